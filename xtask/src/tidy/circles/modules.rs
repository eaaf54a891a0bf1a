//! The modules of a crate, what each defines, imports and names, and the file that a path leads to.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Ident, Item, ItemMacro, ItemMod, ItemUse, Lit, Meta, UseTree};

use super::components::Graph;
use crate::tidy::syntax::{Syntax, is_only_for_tests, line_of};

/// How many imports are followed from one path. A longer chain is a circle of imports, which the
/// compiler refuses.
const IMPORTS_MAX: usize = 32;

/// A crate: its files, and its modules from the root on. A module is named by its index.
pub(super) struct Crate {
    files: Vec<SourceFile>,
    modules: Vec<Module>,
}

struct SourceFile {
    path: String,
    /// The module that the whole file is.
    module: usize,
}

/// A module, in a file of its own or inline.
struct Module {
    parent: Option<usize>,
    file: usize,
    children: BTreeMap<String, usize>,
    /// The items that it defines, macros included.
    items: BTreeSet<String>,
    /// By the name under which it is known here.
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Every path that its code names, with its line.
    named: Vec<NamedPath>,
}

struct NamedPath {
    segments: Vec<String>,
    line: usize,
}

/// Where a path leads to within the crate.
#[derive(Clone, Copy)]
enum Target {
    Module(usize),
    /// An item of the module.
    ItemOf(usize),
}

impl Crate {
    /// Reads the crate that begins in this file.
    pub(super) fn load(root: &str, syntax: &Syntax) -> Self {
        let mut it = Self {
            files: Vec::new(),
            modules: Vec::new(),
        };
        if let Some(file) = syntax.file(root) {
            let folder = parent_folder(root);
            let module = it.add_module(None, it.files.len());
            it.add_file(root, module);
            it.read_items(&file.items, module, folder, syntax);
        }
        it
    }

    fn add_file(&mut self, path: &str, module: usize) {
        self.files.push(SourceFile {
            path: path.to_owned(),
            module,
        });
    }

    fn add_module(&mut self, parent: Option<usize>, file: usize) -> usize {
        self.modules.push(Module {
            parent,
            file,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            named: Vec::new(),
        });
        self.modules.len() - 1
    }

    /// Reads the items of a module. Its submodules lie in `folder`.
    fn read_items(&mut self, items: &[Item], module: usize, folder: &str, syntax: &Syntax) {
        let mut submodules = Vec::new();
        let mut reader = Reader {
            module: &mut self.modules[module],
            submodules: &mut submodules,
        };
        for item in items {
            reader.visit_item(item);
        }
        for submodule in submodules {
            self.read_submodule(submodule, module, folder, syntax);
        }
    }

    fn read_submodule(&mut self, item: &ItemMod, parent: usize, folder: &str, syntax: &Syntax) {
        let name = name_of(&item.ident);
        let inner_folder = format!("{folder}/{name}");
        let file_of_parent = self.modules[parent].file;
        if let Some((_, items)) = &item.content {
            let module = self.add_module(Some(parent), file_of_parent);
            self.modules[parent].children.insert(name, module);
            self.read_items(items, module, &inner_folder, syntax);
            return;
        }
        let candidates = match path_attribute(&item.attrs) {
            Some(path) => {
                let base = parent_folder(&self.files[file_of_parent].path);
                vec![normalized(&format!("{base}/{path}"))]
            }
            None => vec![
                format!("{folder}/{name}.rs"),
                format!("{folder}/{name}/mod.rs"),
            ],
        };
        for path in candidates {
            let Some(file) = syntax.file(&path) else {
                continue;
            };
            let module = self.add_module(Some(parent), self.files.len());
            self.add_file(&path, module);
            // Several files may stand for one module, each for another processor. The first one
            // stands for all of them when a path leads there.
            self.modules[parent].children.entry(name).or_insert(module);
            let folder = if path.ends_with("/mod.rs") {
                parent_folder(&path).to_owned()
            } else {
                path.trim_end_matches(".rs").to_owned()
            };
            self.read_items(&file.items, module, &folder, syntax);
            return;
        }
    }

    /// Which file uses which.
    pub(super) fn graph(&self) -> Graph {
        let paths = self.files.iter().map(|file| file.path.clone()).collect();
        let mut graph = Graph::new(paths);
        for (module, its) in self.modules.iter().enumerate() {
            for path in &its.named {
                let Some(Target::ItemOf(target)) = self.resolve(module, &path.segments, 0) else {
                    continue;
                };
                let to = self.modules[target].file;
                if self.counts(its.file, to) {
                    graph.add(its.file, to, path.line);
                }
            }
        }
        graph
    }

    /// Whether the rule counts a use of one file by another.
    fn counts(&self, from: usize, to: usize) -> bool {
        let is_free = |file: usize| file == 0 || self.files[file].path.ends_with("/prelude.rs");
        let is_inside = |inner: usize, outer: usize| {
            self.is_descendant(self.files[inner].module, self.files[outer].module)
        };
        !is_free(from) && !is_free(to) && !is_inside(from, to) && !is_inside(to, from)
    }

    /// Whether a module is another one or lies in it.
    fn is_descendant(&self, module: usize, ancestor: usize) -> bool {
        let mut next = Some(module);
        while let Some(module) = next {
            if module == ancestor {
                return true;
            }
            next = self.modules[module].parent;
        }
        false
    }

    /// Where a path leads to from a module; nowhere if it leaves the crate.
    fn resolve(&self, module: usize, path: &[String], imports: usize) -> Option<Target> {
        let mut module = module;
        let mut rest = path;
        let mut is_relative = true;
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" => module = 0,
                "self" => {}
                "super" => module = self.modules[module].parent?,
                _ => break,
            }
            is_relative = false;
            rest = after;
        }
        if is_relative {
            return self.resolve_within(module, rest, imports);
        }
        if rest.is_empty() {
            return Some(Target::Module(module));
        }
        // A name that is not found was made by a macro, or lies in another crate's module that is
        // imported as a whole. The path goes through this module in either case.
        let found = self.resolve_within(module, rest, imports);
        Some(found.unwrap_or(Target::ItemOf(module)))
    }

    /// Where a path leads to that begins with a name which this module knows.
    fn resolve_within(&self, module: usize, path: &[String], imports: usize) -> Option<Target> {
        let Some((first, rest)) = path.split_first() else {
            return Some(Target::Module(module));
        };
        if imports > IMPORTS_MAX {
            return None;
        }
        let it = &self.modules[module];
        if let Some(child) = it.children.get(first) {
            if rest.is_empty() {
                return Some(Target::Module(*child));
            }
            let found = self.resolve_within(*child, rest, imports);
            return Some(found.unwrap_or(Target::ItemOf(*child)));
        }
        if it.items.contains(first) {
            return Some(Target::ItemOf(module));
        }
        if let Some(import) = it.imports.get(first) {
            let mut whole = import.clone();
            whole.extend_from_slice(rest);
            // An import that leaves the crate.
            return self.resolve(module, &whole, imports + 1);
        }
        for glob in &it.globs {
            if let Some(Target::Module(source)) = self.resolve(module, glob, imports + 1)
                && source != module
                && let Some(found) = self.resolve_within(source, path, imports + 1)
            {
                return Some(found);
            }
        }
        None
    }
}

/// Reads what a module defines, imports and names. Submodules are left to the caller.
struct Reader<'m, 's> {
    module: &'m mut Module,
    submodules: &'m mut Vec<&'s ItemMod>,
}

impl Reader<'_, '_> {
    fn name(&mut self, segments: Vec<String>, line: usize) {
        self.module.named.push(NamedPath { segments, line });
    }

    /// Notes the imports of a `use`, which begin with `path`.
    fn import(&mut self, tree: &UseTree, path: &mut Vec<String>, line: usize) {
        match tree {
            UseTree::Path(part) => {
                path.push(name_of(&part.ident));
                self.import(&part.tree, path, line);
                path.pop();
            }
            UseTree::Name(leaf) if leaf.ident == "self" => {
                let name = path.last().cloned().unwrap_or_default();
                self.import_as(name, path.clone(), line);
            }
            UseTree::Name(leaf) => {
                let name = name_of(&leaf.ident);
                let mut whole = path.clone();
                whole.push(name.clone());
                self.import_as(name, whole, line);
            }
            UseTree::Rename(leaf) => {
                let mut whole = path.clone();
                if leaf.ident != "self" {
                    whole.push(name_of(&leaf.ident));
                }
                self.import_as(name_of(&leaf.rename), whole, line);
            }
            UseTree::Glob(_) => self.module.globs.push(path.clone()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path, line);
                }
            }
        }
    }

    fn import_as(&mut self, name: String, path: Vec<String>, line: usize) {
        self.name(path.clone(), line);
        self.module.imports.entry(name).or_insert(path);
    }

    /// Notes the paths that stand in the tokens of a macro call.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut segments: Vec<String> = Vec::new();
        let mut line = 0;
        // How many colons followed the last segment.
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.name_if_any(&mut segments, line);
                        line = ident.span().start().line;
                    }
                    segments.push(name_of(&ident));
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !segments.is_empty() => {
                    colons += 1;
                }
                TokenTree::Group(group) => {
                    self.name_if_any(&mut segments, line);
                    colons = 0;
                    self.read_tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.name_if_any(&mut segments, line);
                    colons = 0;
                }
            }
        }
        self.name_if_any(&mut segments, line);
    }

    fn name_if_any(&mut self, segments: &mut Vec<String>, line: usize) {
        if !segments.is_empty() {
            self.name(std::mem::take(segments), line);
        }
    }
}

impl<'s> Visit<'s> for Reader<'_, 's> {
    fn visit_item(&mut self, item: &'s Item) {
        if is_only_for_tests(attributes_of(item)) {
            return;
        }
        if let Some(name) = defined_name(item) {
            self.module.items.insert(name);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'s ItemMod) {
        self.submodules.push(item);
    }

    fn visit_item_use(&mut self, item: &'s ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, &mut Vec::new(), line_of(item));
        }
    }

    fn visit_item_macro(&mut self, item: &'s ItemMacro) {
        // The body of `macro_rules!` belongs to the callers of the macro.
        if item.ident.is_none() {
            visit::visit_item_macro(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'s syn::ImplItemFn) {
        if !is_only_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_field(&mut self, field: &'s syn::Field) {
        if !is_only_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_path(&mut self, path: &'s syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|segment| name_of(&segment.ident));
            self.name(segments.collect(), line_of(path));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'s syn::Macro) {
        self.visit_path(&call.path);
        self.read_tokens(call.tokens.clone());
    }
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defined_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name_of(ident))
}

/// A name without the `r#` of names that are keywords elsewhere.
fn name_of(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").unwrap_or(&name).to_owned()
}

/// The path in `#[path = ".."]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        let Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) = &pair.value
        else {
            return None;
        };
        pair.path.is_ident("path").then(|| text.value())
    })
}

fn parent_folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A path without `..`.
fn normalized(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}
