//! The crates that promise safe Rust say so to the compiler.

use super::Finding;
use super::source::Source;
use super::tree::Tree;

/// The folders whose crates contain no `unsafe`.
const SAFE: &[&str] = &["crates/engines", "crates/everleaf", "crates/sim", "crates/cli", "xtask"];

/// The files of a package that are the root of a crate, tests and examples aside.
const ROOTS: &[&str] = &["src/lib.rs", "src/main.rs"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    SAFE.iter().flat_map(|folder| check_folder(tree, folder)).collect()
}

fn check_folder(tree: &Tree, folder: &str) -> Vec<Finding> {
    let sources: Vec<_> = tree.sources().iter().filter(|source| source.is_in(folder)).collect();
    let (roots, _): (Vec<&Source>, Vec<&Source>) =
        sources.iter().partition(|source| is_root(source.path(), folder));
    if roots.is_empty() {
        return vec![Finding {
            file: format!("{folder}/src/lib.rs"),
            line: 1,
            what: "this crate is to forbid unsafe code, and it is not there".to_owned(),
            way_out: "correct the table in xtask/src/tidy/unsafe_code.rs".to_owned(),
        }];
    }
    let mut findings = Vec::new();
    for root in roots.iter().filter(|root| !forbids_unsafe(root.syntax())) {
        let what = "`#![forbid(unsafe_code)]` is missing".to_owned();
        findings.push(root.finding(1, what, "add it below the crate's docs"));
    }
    for source in sources {
        let keywords = source.tokens().iter().filter(|token| token.kind.is_ident("unsafe"));
        findings.extend(keywords.map(|token| {
            let what = format!("`unsafe` in {folder}, tests included");
            source.finding(token.line, what, "move what needs it into crates/medium or crates/pool")
        }));
    }
    findings
}

fn is_root(path: &str, folder: &str) -> bool {
    let Some(path) = path.strip_prefix(folder).and_then(|path| path.strip_prefix('/')) else { return false };
    let is_binary = path.strip_prefix("src/bin/").is_some_and(|path| match path.split_once('/') {
        None => true,
        Some((_, file)) => file == "main.rs",
    });
    ROOTS.contains(&path) || is_binary
}

fn forbids_unsafe(file: &syn::File) -> bool {
    file.attrs.iter().any(|attribute| {
        let mut found = false;
        let parsed = attribute.path().is_ident("forbid").then(|| {
            attribute.parse_nested_meta(|lint| {
                found |= lint.path.is_ident("unsafe_code");
                Ok(())
            })
        });
        found && matches!(parsed, Some(Ok(())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAFE_ROOT: &str = "//! Docs.\n#![forbid(unsafe_code)]\n";

    /// Every safe crate in order, with one more file, or one replaced.
    fn findings(file: (&str, &str)) -> Vec<(String, usize, String)> {
        let roots = SAFE.iter().map(|folder| format!("{folder}/src/lib.rs"));
        let roots: Vec<_> = roots.filter(|path| path != file.0).collect();
        let mut files: Vec<_> = roots.iter().map(|path| (path.as_str(), SAFE_ROOT)).collect();
        files.push(file);
        let findings = check(&Tree::of(&files)).into_iter();
        findings.map(|finding| (finding.file, finding.line, finding.what)).collect()
    }

    #[test]
    fn roots_that_forbid_unsafe_pass() {
        for root in [
            SAFE_ROOT,
            "#![forbid(missing_docs, unsafe_code)]",
            "#![allow(dead_code)]\n#![forbid(unsafe_code)]\nfn f() {}",
        ] {
            assert_eq!(findings(("crates/engines/src/lib.rs", root)), []);
        }
    }

    #[test]
    fn roots_that_do_not_forbid_it_are_found() {
        for folder in SAFE {
            for path in ["src/lib.rs", "src/main.rs", "src/bin/tool.rs", "src/bin/tool/main.rs"] {
                let path = format!("{folder}/{path}");
                for root in [
                    "",
                    "#![forbid(missing_docs)]",
                    "#![deny(unsafe_code)]",
                    "#![cfg_attr(test, forbid(unsafe_code))]",
                ] {
                    let expected = (path.clone(), 1, "`#![forbid(unsafe_code)]` is missing".to_owned());
                    assert_eq!(findings((&path, root)), [expected]);
                }
            }
        }
    }

    #[test]
    fn modules_and_other_crates_need_not_say_it() {
        assert_eq!(findings(("crates/engines/src/rntree/mod.rs", "fn f() {}")), []);
        assert_eq!(findings(("crates/medium/src/lib.rs", "fn f() { unsafe { g() } }")), []);
    }

    #[test]
    fn the_keyword_is_found_in_tests_too() {
        let path = "crates/cli/tests/demo.rs";
        let expected = (path.to_owned(), 2, "`unsafe` in crates/cli, tests included".to_owned());
        assert_eq!(findings((path, "fn f() {\n    unsafe { g() }\n}\n")), [expected]);
        assert_eq!(findings((path, "// unsafe\nfn f() { g(\"unsafe\") }\n")), []);
    }

    #[test]
    fn a_crate_that_is_gone_is_found() {
        let files: Vec<_> = SAFE[1..].iter().map(|folder| format!("{folder}/src/lib.rs")).collect();
        let files: Vec<_> = files.iter().map(|path| (path.as_str(), SAFE_ROOT)).collect();
        let findings = check(&Tree::of(&files));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].file, format!("{}/src/lib.rs", SAFE[0]));
    }
}
