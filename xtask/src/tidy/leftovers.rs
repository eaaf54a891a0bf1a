//! Nothing unfinished, no debugging output, no test that is switched off without a reason.

use proc_macro2::Delimiter;

use super::Finding;
use super::source::{Kind, Source, Token, group};
use super::tree::Tree;

/// Macros that do not belong into finished code, and what to do instead.
const MACROS: &[(&str, &str)] = &[
    ("todo", "finish it, or leave it out"),
    ("unimplemented", "finish it, or return an error that says what is not supported"),
    ("dbg", "delete it, or report through `tracing`"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources().iter().flat_map(check_source).collect()
}

fn check_source(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (position, token) in source.tokens().iter().enumerate() {
        let tokens = &source.tokens()[position..];
        if let Some((name, way_out)) = macro_call(tokens) {
            findings.push(source.finding(token.line, format!("`{name}!` is left over"), way_out));
        }
        if let Some(line) = ignored_without_reason(tokens) {
            let what = "`#[ignore]` without a reason".to_owned();
            findings.push(source.finding(line, what, "write `#[ignore = \"why, and how to run it\"]`"));
        }
    }
    findings
}

fn macro_call(tokens: &[Token]) -> Option<&'static (&'static str, &'static str)> {
    let [name, bang, open, ..] = tokens else { return None };
    let is_call = bang.kind == Kind::Punct('!') && matches!(open.kind, Kind::Open(_));
    MACROS.iter().find(|(macro_name, _)| is_call && name.kind.is_ident(macro_name))
}

/// The line of an `ignore` without text in the attribute that starts here, `cfg_attr` included.
fn ignored_without_reason(tokens: &[Token]) -> Option<usize> {
    let [hash, open, name, ..] = tokens else { return None };
    if hash.kind != Kind::Punct('#') || open.kind != Kind::Open(Delimiter::Bracket) {
        return None;
    }
    let attribute = group(&tokens[1..]);
    let bare = |position: usize| {
        let reason = attribute.get(position + 1..position + 3);
        let has_reason = matches!(reason, Some([equals, Token { kind: Kind::Text(reason), .. }])
            if equals.kind == Kind::Punct('=') && !reason.trim().is_empty());
        (attribute[position].kind.is_ident("ignore") && !has_reason).then_some(attribute[position].line)
    };
    match name.kind.ident() {
        Some("ignore") => bare(1),
        // cfg_attr(condition, attribute, ...): what counts stands behind a comma.
        Some("cfg_attr") => (3..attribute.len())
            .filter(|position| attribute[position - 1].kind == Kind::Punct(','))
            .find_map(bare),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<(usize, String)> {
        let tree = Tree::of(&[("crates/sim/src/lib.rs", text)]);
        check(&tree).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn macros_of_unfinished_code_are_found() {
        for (name, _) in MACROS {
            let expected = [(2, format!("`{name}!` is left over"))];
            assert_eq!(findings(&format!("fn f() {{\n    {name}!(\"later\")\n}}\n")), expected);
            assert_eq!(findings(&format!("fn f() {{\n    g(std::{name}![]);\n}}\n")), expected);
            assert_eq!(findings(&format!("fn f() {{\n    vec![{name}!{{}}]\n}}\n")), expected);
        }
    }

    #[test]
    fn the_same_words_elsewhere_pass() {
        let text = "/// todo!()\nfn todo(dbg: bool, todo: bool) -> bool { todo != (dbg) /* dbg!() */ }\n\
                    const TEXT: &str = \"unimplemented!()\";\n";
        assert_eq!(findings(text), []);
    }

    #[test]
    fn an_ignored_test_needs_a_reason() {
        let expected = [(2, "`#[ignore]` without a reason".to_owned())];
        assert_eq!(findings("#[test]\n#[ignore]\nfn f() {}\n"), expected);
        assert_eq!(findings("#[test]\n#[ignore = \" \"]\nfn f() {}\n"), expected);
        assert_eq!(findings("#[test]\n#[cfg_attr(miri, ignore)]\nfn f() {}\n"), expected);
        assert_eq!(findings("#[test]\n#[ignore = \"takes an hour; run by hand\"]\nfn f() {}\n"), []);
        assert_eq!(findings("#[test]\n#[cfg_attr(miri, ignore = \"maps files\")]\nfn f() {}\n"), []);
        assert_eq!(findings("#[cfg_attr(ignore, inline)]\nfn ignore() {}\n"), []);
    }
}
