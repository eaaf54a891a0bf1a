//! Which names are found, and listed, as defined more than once.

use super::{found, outcome, workspace, write, xtask};

#[test]
fn a_name_that_is_defined_twice_is_listed_with_its_places() {
    let root = workspace();
    write(
        root.path(),
        "crates/engines/src/a.rs",
        "pub struct Place;\nstruct Own;\npub(self) struct Other;\npub enum Once {}\n",
    );
    write(
        root.path(),
        "crates/sim/src/b.rs",
        "\npub(crate) trait Place {}\npub struct Own;\npub struct Other;\n",
    );
    let output = xtask(root.path(), &["tidy", "--names"]);
    let expected = "Place: 2 (struct crates/engines/src/a.rs:1, trait crates/sim/src/b.rs:2)\n";
    assert_eq!(outcome(&output), (0, expected));
}

#[test]
fn names_of_tests_and_inside_functions_are_left_out() {
    let root = workspace();
    write(
        root.path(),
        "crates/engines/src/a.rs",
        "pub struct Place;\n",
    );
    write(
        root.path(),
        "crates/engines/tests/a.rs",
        "pub struct Place;\n",
    );
    write(
        root.path(),
        "crates/sim/src/b.rs",
        "#[cfg(test)]\nmod tests { pub struct Place; }\nfn f() { pub struct Place; }\n",
    );
    let output = xtask(root.path(), &["tidy", "--names"]);
    assert_eq!(outcome(&output), (0, ""));
}

#[test]
fn a_name_that_is_defined_twice_is_refused() {
    let first = ("crates/engines/src/a.rs", "pub struct Place;\n");
    for text in [
        "\npub enum Place {}\n",
        "\npub(crate) trait Place {}\n",
        "\npub(super) type Place = u64;\n",
        "\npub(in crate::b) union Place { a: u8 }\n",
        "\nnode! { pub(super) struct Place { a: Word } }\n",
        "\nmedium::volatile! { pub struct Place<M> { a: Atomic<M> } }\n",
    ] {
        let found = found(&[first, ("crates/sim/src/b.rs", text)]);
        let expected =
            "crates/sim/src/b.rs:2: the name `Place` is taken, by struct crates/engines/src/a.rs:1";
        assert_eq!(found, [expected], "{text}");
    }
}

#[test]
fn every_further_definition_is_found() {
    let found = found(&[
        ("crates/engines/src/a.rs", "pub struct Place;\n"),
        (
            "crates/engines/src/b.rs",
            "mod inner {\n    pub struct Place;\n}\n",
        ),
        ("crates/sim/src/c.rs", "pub trait Place {}\n"),
    ]);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn names_of_one_idea_and_private_names_may_be_shared() {
    let found = found(&[
        (
            "crates/engines/src/a.rs",
            "pub struct Args;\npub type Result<T> = T;\npub struct Own;\n",
        ),
        (
            "crates/sim/src/b.rs",
            "pub struct Args;\npub type Result<T> = T;\nstruct Own;\n",
        ),
    ]);
    assert_eq!(found, [""; 0]);
}
