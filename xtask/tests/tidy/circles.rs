//! Which circles of files are found.

use super::found as found_in;

/// What is found in crate `engines` with these files of its `src/`, each without the violation's
/// explanation of the whole.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let paths: Vec<String> = files
        .iter()
        .map(|(path, _)| format!("crates/engines/src/{path}"))
        .collect();
    let mut texts = Vec::new();
    for (path, (_, text)) in paths.iter().zip(files) {
        let lints = if path.ends_with("lib.rs") {
            "#![forbid(unsafe_code)]\n"
        } else {
            ""
        };
        texts.push((path.as_str(), format!("{lints}{text}")));
    }
    let borrowed: Vec<(&str, &str)> = texts
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    found_in(&borrowed)
}

const THREE: (&str, &str) = ("lib.rs", "mod a;\nmod b;\nmod c;\n");
const A_USES_B: (&str, &str) = ("a.rs", "use crate::b::B;\npub struct A(B);\n");
const B_USES_C: (&str, &str) = ("b.rs", "use crate::c::C;\npub struct B(C);\n");
const C_USES_A: (&str, &str) = ("c.rs", "\nuse crate::a::A;\npub struct C(A);\n");
const C_ALONE: (&str, &str) = ("c.rs", "pub struct C;\n");

#[test]
fn a_circle_of_three_files_is_found_with_its_lines() {
    let expected = "crates/engines/src/a.rs:1: 3 files of crates/engines/src/ use each other in a circle, for \
                    example a.rs:1 -> b.rs:1 -> c.rs:2 -> a.rs (all of them: a.rs, b.rs, c.rs)";
    assert_eq!(found(&[THREE, A_USES_B, B_USES_C, C_USES_A]), [expected]);
    assert_eq!(found(&[THREE, A_USES_B, B_USES_C, C_ALONE]), [""; 0]);
}

#[test]
fn two_files_may_use_each_other() {
    let b = ("b.rs", "use crate::a::A;\npub struct B(A);\n");
    assert_eq!(found(&[THREE, A_USES_B, b, C_ALONE]), [""; 0]);
    // Two such pairs with a file in common are three files that reach each other.
    let b = ("b.rs", "use crate::{a::A, c::C};\npub struct B(A, C);\n");
    let c = ("c.rs", "use crate::b::B;\npub struct C(B);\n");
    assert_eq!(found(&[THREE, A_USES_B, b, c]).len(), 1);
}

#[test]
fn every_way_to_write_a_path_counts() {
    for text in [
        "pub fn f() -> crate::a::A { todo!() }\n",
        "pub fn f() { super::a::make() }\n",
        "use super::a;\npub fn f() { a::make() }\n",
        "use super::a::{self as other};\npub fn f() { other::make() }\n",
        "pub fn f() { assert!(crate::a::A::new().is_whole()) }\n",
        "pub fn f() { use crate::a::A; }\n",
        "mod inner { use super::super::a::A; }\n",
        "use crate::*;\npub fn f() { a::make() }\n",
    ] {
        let c = format!("{text}pub struct C;\n");
        let c = ("c.rs", c.as_str());
        assert_eq!(found(&[THREE, A_USES_B, B_USES_C, c]).len(), 1, "{text}");
    }
}

#[test]
fn paths_that_lead_nowhere_else_do_not_count() {
    for text in [
        "// crate::a::A\n",
        "use crate::a;\n",
        "use ::a::A;\n",
        "use other::a::A;\n",
        "#[cfg(test)]\nuse crate::a::A;\n",
        "#[cfg(all(loom, test))]\nmod tests { use crate::a::A; }\n",
        "#[test]\nfn f() { crate::a::make() }\n",
        "macro_rules! make { () => { crate::a::make() } }\n",
    ] {
        let c = format!("{text}pub struct C;\n");
        let c = ("c.rs", c.as_str());
        assert_eq!(found(&[THREE, A_USES_B, B_USES_C, c]), [""; 0], "{text}");
    }
    for condition in ["not(test)", "any(test, unix)"] {
        let c = format!("#[cfg({condition})]\nuse crate::a::A;\npub struct C;\n");
        let c = ("c.rs", c.as_str());
        assert_eq!(found(&[THREE, A_USES_B, B_USES_C, c]).len(), 1);
    }
}

#[test]
fn a_facade_neither_hides_a_circle_nor_makes_one() {
    let facade = ("a/mod.rs", "mod parts;\npub use self::parts::A;\n");
    let parts = ("a/parts.rs", "use crate::b::B;\npub struct A(B);\n");
    let all = [THREE, facade, parts, B_USES_C, C_USES_A];
    let violations = found(&all);
    assert_eq!(violations.len(), 1);
    let files = "(all of them: a/parts.rs, b.rs, c.rs)";
    assert!(violations[0].ends_with(files), "{violations:?}");
    // Here another part of `a` uses `b`, and the facade has nothing of its own.
    let facade = (
        "a/mod.rs",
        "mod parts;\nmod others;\npub use self::parts::A;\n",
    );
    let parts = ("a/parts.rs", "pub struct A;\n");
    let others = ("a/others.rs", "use crate::b::B;\npub struct Other(B);\n");
    let all = [THREE, facade, parts, others, B_USES_C, C_USES_A];
    assert_eq!(found(&all), [""; 0]);
}

#[test]
fn private_imports_and_globs_of_a_module_are_followed() {
    let root = ("lib.rs", "mod a;\nmod b;\n");
    let facade = ("a/mod.rs", "mod one;\nuse crate::b::B;\npub struct A;\n");
    for import in ["use super::B;\n", "use super::*;\n"] {
        let one = format!("{import}pub struct One(B);\npub struct Two;\n");
        let one = ("a/one.rs", one.as_str());
        let b = (
            "b/mod.rs",
            "mod deep;\npub use deep::Deep;\nuse crate::a::one::One;\npub struct B(One);\n",
        );
        let deep = (
            "b/deep.rs",
            "use crate::a::one::Two;\npub struct Deep(Two);\n",
        );
        // `a/one.rs` and `b/mod.rs` use each other; `b/deep.rs` is below `b/mod.rs`.
        assert_eq!(found(&[root, facade, one, b, deep]), [""; 0]);
        let one =
            format!("{import}use crate::b::Deep;\npub struct One(B);\npub struct Two(Deep);\n");
        let one = ("a/one.rs", one.as_str());
        assert_eq!(found(&[root, facade, one, b, deep]).len(), 1, "{import}");
    }
}

#[test]
fn roots_preludes_and_own_submodules_do_not_count() {
    let root = (
        "lib.rs",
        "mod a;\nmod b;\nuse crate::a::A;\npub struct Root(A);\n",
    );
    let a = ("a.rs", "use crate::{Root, b::B};\npub struct A(Root, B);\n");
    let b = ("b.rs", "use crate::Root;\npub struct B(Root);\n");
    assert_eq!(found(&[root, a, b]), [""; 0]);
    let root = ("lib.rs", "mod prelude;\nmod a;\nmod b;\n");
    let prelude = (
        "prelude.rs",
        "pub use crate::{a::A, b::B};\nconst N: A = A;\n",
    );
    let a = ("a.rs", "use crate::prelude::*;\npub struct A(B);\n");
    let b = ("b.rs", "use crate::prelude::N;\npub struct B;\n");
    assert_eq!(found(&[root, prelude, a, b]), [""; 0]);
    let root = ("lib.rs", "mod a;\n");
    let a = (
        "a.rs",
        "mod one;\nmod two;\nuse one::One;\npub struct A(One);\n",
    );
    let one = ("a/one.rs", "use super::two::Two;\npub struct One(Two);\n");
    let two = ("a/two.rs", "use super::A;\npub struct Two(A);\n");
    assert_eq!(found(&[root, a, one, two]), [""; 0]);
}

#[test]
fn modules_with_a_path_of_their_own_are_read() {
    let root = (
        "lib.rs",
        "mod a;\n#[path = \"elsewhere/d.rs\"]\nmod b;\nmod c;\n",
    );
    let b = ("elsewhere/d.rs", "use crate::c::C;\npub struct B(C);\n");
    let violations = found(&[root, A_USES_B, b, C_USES_A]);
    assert_eq!(violations.len(), 1);
    assert!(violations[0].contains("elsewhere/d.rs"), "{violations:?}");
}

#[test]
fn commands_tests_and_workspaces_inside_are_crates_as_well() {
    let files = |folder: &str, root: &str| {
        [THREE, A_USES_B, B_USES_C, C_USES_A].map(|(path, text)| {
            if path == "lib.rs" {
                let lints = "#![forbid(unsafe_code)]\n";
                (format!("{folder}/{root}"), format!("{lints}{text}"))
            } else {
                (format!("{folder}/{path}"), text.to_owned())
            }
        })
    };
    for all in [
        files("crates/cli/src", "main.rs"),
        files("crates/sim/tests/suite", "main.rs"),
        files("peers/src", "main.rs"),
    ] {
        let borrowed = all
            .each_ref()
            .map(|(path, text)| (path.as_str(), text.as_str()));
        assert_eq!(found_in(&borrowed).len(), 1, "{}", all[0].0);
    }
}
