//! Which names are listed as defined more than once.

use super::{outcome, workspace, write, xtask};

#[test]
fn a_name_that_is_defined_twice_is_listed_with_its_places() {
    let root = workspace();
    write(
        root.path(),
        "crates/engines/src/a.rs",
        "pub struct Place;\nstruct Own;\npub(super) struct Step;\npub enum Once {}\n",
    );
    write(
        root.path(),
        "crates/sim/src/b.rs",
        "\npub(crate) trait Place {}\npub struct Own;\npub struct Step;\n",
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
