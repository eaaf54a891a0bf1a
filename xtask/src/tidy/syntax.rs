//! The Rust files of the workspace as syntax trees, for the rules that read more than lines.

use std::collections::BTreeMap;

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, Meta, Token};

use super::tree::Workspace;

/// The source files of a workspace, parsed once for all rules that read them.
pub(super) struct Syntax {
    files: BTreeMap<String, syn::File>,
    unreadable: Vec<Unreadable>,
}

/// A source file that is not Rust.
pub(super) struct Unreadable {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) reason: String,
}

impl Syntax {
    /// Parses every source file.
    pub(super) fn parse(tree: &Workspace) -> Self {
        let mut files = BTreeMap::new();
        let mut unreadable = Vec::new();
        for file in tree.sources() {
            match syn::parse_file(&file.text) {
                Ok(parsed) => {
                    files.insert(file.path.clone(), parsed);
                }
                Err(error) => unreadable.push(Unreadable {
                    path: file.path.clone(),
                    line: error.span().start().line,
                    reason: error.to_string(),
                }),
            }
        }
        Self { files, unreadable }
    }

    /// The files that could be parsed, in the order of their paths.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &syn::File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    pub(super) fn file(&self, path: &str) -> Option<&syn::File> {
        self.files.get(path)
    }

    pub(super) fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }
}

/// The crate, or the other package, that a file belongs to: the first folder of its path, below
/// `crates/` the second.
pub(super) fn package_of(path: &str) -> &str {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    path.split('/').next().unwrap_or(path)
}

/// The line on which something begins, from 1.
pub(super) fn line_of(syntax: &impl Spanned) -> usize {
    syntax.span().start().line
}

/// Whether these attributes leave something out of every build that is not a test.
pub(super) fn is_only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else {
            return attribute.path().is_ident("test");
        };
        list.path.is_ident("cfg") && list.parse_args().is_ok_and(|meta| needs_test(&meta))
    })
}

/// Whether a condition of `cfg` is false wherever `test` is false.
fn needs_test(condition: &Meta) -> bool {
    let list = match condition {
        Meta::Path(path) => return path.is_ident("test"),
        Meta::NameValue(_) => return false,
        Meta::List(list) => list,
    };
    let Ok(conditions) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
    else {
        return false;
    };
    if list.path.is_ident("all") {
        conditions.iter().any(needs_test)
    } else if list.path.is_ident("any") {
        !conditions.is_empty() && conditions.iter().all(needs_test)
    } else {
        false
    }
}

/// The expression inside parentheses and invisible groups.
pub(super) fn without_parentheses(expression: &Expr) -> &Expr {
    match expression {
        Expr::Paren(inner) => without_parentheses(&inner.expr),
        Expr::Group(inner) => without_parentheses(&inner.expr),
        other => other,
    }
}
