//! Files that can be read in one sitting, functions that fit a screen.

use proc_macro2::Delimiter;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::source::{Kind, Source, Token, flatten, group};
use super::tree::Tree;

/// Lines of a file, comments and blank lines included.
const FILE_LINES_MAX: usize = 800;
/// Lines of a function from its signature to its closing brace, without docs and attributes.
const FUNCTION_LINES_MAX: usize = 70;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources().iter().flat_map(check_source).collect()
}

fn check_source(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    if source.line_count() > FILE_LINES_MAX {
        let what = format!("the file has {} lines, more than {FILE_LINES_MAX}", source.line_count());
        findings.push(source.finding(1, what, "split it by topic"));
    }
    let mut functions = Functions::default();
    functions.visit_file(source.syntax());
    for Function { name, first, last } in functions.found {
        let length = last - first + 1;
        if length > FUNCTION_LINES_MAX {
            let what = format!("`fn {name}` has {length} lines, more than {FUNCTION_LINES_MAX}");
            findings.push(source.finding(first, what, "give its steps names of their own"));
        }
    }
    findings
}

struct Function {
    name: String,
    first: usize,
    last: usize,
}

/// Collects every function with a body: free, associated, nested, and inside macro calls and definitions.
#[derive(Default)]
struct Functions {
    found: Vec<Function>,
}

impl Functions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let last = block.brace_token.span.close().end().line;
        self.found.push(Function { name: signature.ident.to_string(), first, last });
    }

    /// What a macro is given need not be Rust, so functions are found by their shape: `fn name ... { ... }`.
    fn add_from_tokens(&mut self, tokens: &[Token]) {
        for (position, token) in tokens.iter().enumerate() {
            let rest = &tokens[position + 1..];
            if !token.kind.is_ident("fn") || matches!(rest.first(), Some(Token { kind: Kind::Open(_), .. })) {
                continue;
            }
            let ends = |token: &Token| matches!(token.kind, Kind::Punct(';') | Kind::Open(Delimiter::Brace));
            let Some(body) = rest.iter().position(ends) else { continue };
            if rest[body].kind != Kind::Punct(';') {
                let close = &rest[body + group(&rest[body..]).len()];
                let name = rest.iter().find_map(|token| token.kind.ident()).unwrap_or("?").to_owned();
                self.found.push(Function { name, first: token.line, last: close.line });
            }
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.add(&node.sig, &node.block);
        visit::visit_item_fn(self, node);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.add(&node.sig, &node.block);
        visit::visit_impl_item_fn(self, node);
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(block) = &node.default {
            self.add(&node.sig, block);
        }
        visit::visit_trait_item_fn(self, node);
    }

    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        let mut tokens = Vec::new();
        flatten(node.tokens.clone(), &mut tokens);
        self.add_from_tokens(&tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<(usize, String)> {
        let tree = Tree::of(&[("crates/pool/src/lib.rs", text)]);
        check(&tree).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    /// A function of exactly this many lines.
    fn function(head: &str, line_count: usize) -> String {
        format!("{head} {{\n{}}}\n", "    ();\n".repeat(line_count - 2))
    }

    #[test]
    fn a_file_may_have_800_lines_and_not_one_more() {
        assert_eq!(findings(&"\n".repeat(800)), []);
        assert_eq!(findings(&"// line\n".repeat(801)), [(1, "the file has 801 lines, more than 800".into())]);
    }

    #[test]
    fn a_function_may_have_70_lines_and_not_one_more() {
        assert_eq!(findings(&function("fn f()", 70)), []);
        assert_eq!(findings(&function("fn f()", 71)), [(1, "`fn f` has 71 lines, more than 70".into())]);
    }

    #[test]
    fn docs_and_attributes_are_not_part_of_the_function() {
        let text = format!("/// Doc.\n#[inline]\n{}", function("pub fn f()", 70));
        assert_eq!(findings(&text), []);
        let text = format!("/// Doc.\n#[inline]\n{}", function("pub fn f()", 71));
        assert_eq!(findings(&text), [(3, "`fn f` has 71 lines, more than 70".into())]);
    }

    #[test]
    fn methods_trait_defaults_and_nested_functions_count() {
        for (open, close) in [("impl A {\n", "}"), ("trait A {\n", "}"), ("mod a {\n", "}")] {
            let long = format!("{open}{}{close}", function("fn f()", 71));
            assert_eq!(findings(&long), [(2, "`fn f` has 71 lines, more than 70".into())]);
            let short = format!("{open}{}{close}", function("fn f()", 70));
            assert_eq!(findings(&short), []);
        }
        for (open, close) in [("", ""), ("impl A {", "}"), ("trait A {", "}")] {
            let inner = function("fn inner()", 71);
            let nested = format!("{open} fn outer() {{\n{inner}}} {close}\n");
            let names: Vec<_> = findings(&nested).into_iter().map(|(_, what)| what).collect();
            assert_eq!(
                names,
                ["`fn outer` has 73 lines, more than 70", "`fn inner` has 71 lines, more than 70"]
            );
        }
    }

    #[test]
    fn functions_inside_macros_count() {
        let call = |line_count| format!("proptest! {{\n{}}}\n", function("fn f(a in 0..9)", line_count));
        assert_eq!(findings(&call(70)), []);
        assert_eq!(findings(&call(71)), [(2, "`fn f` has 71 lines, more than 70".into())]);
        let definition = |line_count| {
            let function = function("fn $name() -> fn(u8)", line_count);
            format!("macro_rules! m {{\n($name:ident) => {{\n{function}}};\n}}\n")
        };
        assert_eq!(findings(&definition(70)), []);
        assert_eq!(findings(&definition(71)), [(3, "`fn name` has 71 lines, more than 70".into())]);
    }
}
