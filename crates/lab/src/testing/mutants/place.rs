//! Where a fault is planted, named so that comments and formatting may change: file, function, call
//! and ordinal.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use medium::sim::Site;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// A call in a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CallPlace {
    /// The file, from `crates/` on.
    pub(super) file: String,
    /// The function around it: `function`, or `Type::function`.
    pub(super) function: String,
    /// The name of the called function, such as `publish`.
    pub(super) call: String,
    /// Which of the calls of that name in the function it is, from 1.
    pub(super) ordinal: usize,
    /// Line and column, both from 1.
    at: (u32, u32),
}

impl fmt::Display for CallPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            function,
            call,
            ordinal,
            ..
        } = self;
        write!(formatter, "{file} {function} {call} {ordinal}")
    }
}

/// The calls of source files. Each file is read and parsed once.
pub(super) struct Sources<'r> {
    root: &'r Path,
    files: BTreeMap<String, Vec<CallPlace>>,
}

impl<'r> Sources<'r> {
    /// The source files below `root`, the folder of the workspace.
    pub(super) fn new(root: &'r Path) -> Self {
        Self {
            root,
            files: BTreeMap::new(),
        }
    }

    /// The calls in a file; none if it cannot be read or is not Rust.
    pub(super) fn places(&mut self, file: &str) -> &[CallPlace] {
        let read =
            || std::fs::read_to_string(self.root.join("crates").join(file)).unwrap_or_default();
        self.files
            .entry(file.to_owned())
            .or_insert_with(|| places(file, &read()))
    }

    /// The call at a site.
    pub(super) fn place(&mut self, site: Site) -> Option<&CallPlace> {
        let file = site.file.strip_prefix("crates/")?;
        // The site of `path::function()` is the beginning of its path.
        self.places(file)
            .iter()
            .find(|place| place.at >= (site.line, site.column))
    }
}

/// The calls in the functions of a source text, in its order; none if it is not Rust.
fn places(file: &str, text: &str) -> Vec<CallPlace> {
    let Ok(syntax) = syn::parse_file(text) else {
        return Vec::new();
    };
    let mut calls = Calls {
        file,
        found: Vec::new(),
        owner: None,
        function: None,
    };
    calls.visit_file(&syntax);
    calls.found.sort_by_key(|place| place.at);
    let mut counts = BTreeMap::new();
    for place in &mut calls.found {
        let count = counts
            .entry((place.function.clone(), place.call.clone()))
            .or_default();
        *count += 1;
        place.ordinal = *count;
    }
    calls.found
}

/// Collects calls, without their ordinals.
struct Calls<'f> {
    file: &'f str,
    found: Vec<CallPlace>,
    /// The type or trait that is visited.
    owner: Option<String>,
    /// The function that is visited.
    function: Option<String>,
}

impl Calls<'_> {
    fn add(&mut self, name: &syn::Ident) {
        let Some(function) = self.function.clone() else {
            return;
        };
        let start = name.span().start();
        let at = (start.line as u32, start.column as u32 + 1);
        self.found.push(CallPlace {
            file: self.file.to_owned(),
            function,
            call: name.to_string(),
            ordinal: 0,
            at,
        });
    }

    fn within_function(&mut self, signature: &syn::Signature, visit: impl FnOnce(&mut Self)) {
        let name = &signature.ident;
        let function = self
            .owner
            .as_ref()
            .map_or(name.to_string(), |owner| format!("{owner}::{name}"));
        let around = self.function.replace(function);
        visit(self);
        self.function = around;
    }

    fn within_owner(&mut self, owner: Option<String>, visit: impl FnOnce(&mut Self)) {
        let around = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = around;
    }

    /// The arguments of a macro need not be Rust, so calls are found by their shape: `name(...)`.
    fn add_from_tokens(&mut self, tokens: TokenStream) {
        let mut name = None;
        for token in tokens {
            if let TokenTree::Group(group) = &token {
                if let Some(name) = name.take()
                    && group.delimiter() == Delimiter::Parenthesis
                {
                    self.add(&name);
                }
                self.add_from_tokens(group.stream());
            }
            name = if let TokenTree::Ident(ident) = token {
                Some(ident)
            } else {
                None
            };
        }
    }
}

impl<'ast> Visit<'ast> for Calls<'_> {
    fn visit_item_impl(&mut self, node: &'ast syn::ItemImpl) {
        let owner = match &*node.self_ty {
            syn::Type::Path(path) => path
                .path
                .segments
                .last()
                .map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.within_owner(owner, |calls| visit::visit_item_impl(calls, node));
    }

    fn visit_item_trait(&mut self, node: &'ast syn::ItemTrait) {
        self.within_owner(Some(node.ident.to_string()), |calls| {
            visit::visit_item_trait(calls, node);
        });
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        let visit = |calls: &mut Self| visit::visit_item_fn(calls, node);
        self.within_owner(None, |calls| calls.within_function(&node.sig, visit));
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.within_function(&node.sig, |calls| visit::visit_impl_item_fn(calls, node));
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        self.within_function(&node.sig, |calls| visit::visit_trait_item_fn(calls, node));
    }

    fn visit_expr_method_call(&mut self, node: &'ast syn::ExprMethodCall) {
        self.add(&node.method);
        visit::visit_expr_method_call(self, node);
    }

    fn visit_expr_call(&mut self, node: &'ast syn::ExprCall) {
        if let syn::Expr::Path(path) = &*node.func
            && let Some(segment) = path.path.segments.last()
        {
            self.add(&segment.ident);
        }
        visit::visit_expr_call(self, node);
    }

    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        self.add_from_tokens(node.tokens.clone());
    }
}

#[cfg(test)]
mod tests;
