//! Which shapes are refused, and which are counted.

use super::{found, outcome, workspace, write, xtask};

const FILE: &str = "crates/sim/tests/a.rs";

/// What is found in a function with this body, without the place.
fn found_in_body(body: &str) -> Vec<String> {
    found_in_file(&format!("fn f() {{\n{body}\n}}\n"))
}

fn found_in_file(text: &str) -> Vec<String> {
    let place = format!("{FILE}:");
    let strip = |found: &String| {
        let rest = found.strip_prefix(&place).expect("it is in that file");
        let (_line, what) = rest.split_once(": ").expect("a place, then what is wrong");
        what.to_owned()
    };
    found(&[(FILE, text)]).iter().map(strip).collect()
}

#[test]
fn a_violation_names_its_line() {
    let text = "fn f() {\n    let x = 1;\n    let (a, b) = (x, 2);\n}\n";
    let expected = "crates/sim/tests/a.rs:3: `let` with tuples on both sides";
    assert_eq!(found(&[(FILE, text)]), [expected]);
}

#[test]
fn a_let_with_tuples_on_both_sides_is_refused() {
    for body in [
        "let (a, b) = (1, 2);",
        "let (mut a, b): (u32, u32) = (1, 2);",
        "let (Some(a), Some(b)) = (x, y) else { return };",
        "if let (Some(a), Some(b)) = (x, y) {}",
        "let f = || { let (a, b) = (1, 2); };",
        "assert!({ let (a, b) = (1, 2); a == b });",
    ] {
        let expected = ["`let` with tuples on both sides"];
        assert_eq!(found_in_body(body), expected, "{body}");
    }
    for body in [
        "let (a, b) = pair();",
        "let pair = (1, 2);",
        "match (a, b) { (1, 2) => {} _ => {} }",
        "let (a, b) = if x { (1, 2) } else { (2, 1) };",
        "for (a, b) in pairs {}",
    ] {
        assert_eq!(found_in_body(body), [""; 0], "{body}");
    }
}

#[test]
fn the_code_that_a_macro_writes_is_read() {
    for text in [
        "macro_rules! m { ($a:ident) => { fn f() { let (x, y) = (1, $a); } }; }",
        "macro_rules! m { () => {}; ($($a:ident),*) => { $(let (x, y) = (1, $a);)* }; }",
        "macro_rules! m { ($a:expr) => {{ let (x, y) = (1, $a); x + y }}; }",
    ] {
        let expected = ["`let` with tuples on both sides"];
        assert_eq!(found_in_file(text), expected, "{text}");
    }
    // A body that is no code by itself is left out.
    let pattern = "macro_rules! m { ($a:ident) => { $a, (1, 2) => }; }";
    assert_eq!(found_in_file(pattern), [""; 0]);
}

#[test]
fn a_tuple_parameter_is_refused() {
    for text in [
        "fn f((a, b): (u32, u32)) {}",
        "fn f(&(a, b): &(u32, u32)) {}",
        "impl A { fn f(&self, (a, b): (u32, u32)) {} }",
        "trait A { fn f(&self, (a, b): (u32, u32)) {} }",
    ] {
        let expected = ["a tuple taken apart as a parameter"];
        assert_eq!(found_in_file(text), expected, "{text}");
    }
    for text in ["fn f(pair: (u32, u32)) {}", "fn f((): ()) {}"] {
        assert_eq!(found_in_file(text), [""; 0], "{text}");
    }
    assert_eq!(
        found_in_body("let f = |(a, b): (u32, u32)| a + b;"),
        [""; 0]
    );
}

#[test]
fn control_flow_through_iterators_and_options_is_refused() {
    for body in [
        "x.filter(|_| held);",
        "assert_eq!(x.filter(|_| held), None);",
    ] {
        assert_eq!(found_in_body(body), ["`filter(|_| ..)`"], "{body}");
    }
    let for_each = "x.take().into_iter().for_each(drop);";
    assert_eq!(found_in_body(for_each), ["`.into_iter().for_each(..)`"]);
    for body in [
        "held.then_some(()).ok_or(Error::Held)?;",
        "held.then_some(()).ok_or_else(|| Error::Held)?;",
        "held.then(|| ()).ok_or(Error::Held)?;",
    ] {
        assert_eq!(found_in_body(body), ["`then_some(()).ok_or(..)`"], "{body}");
    }
    for body in [
        "x.filter(|it| it.held);",
        "x.iter().for_each(drop);",
        "held.then_some(5).ok_or(Error::Held)?;",
        "held.then_some(());",
    ] {
        assert_eq!(found_in_body(body), [""; 0], "{body}");
    }
}

#[test]
fn an_index_made_of_a_bool_is_refused() {
    for body in [
        "[a, b][usize::from(flag)];",
        "[a, b][flag as usize];",
        "pair[usize::from(x == y)];",
        "pair[usize::from(!x.is_empty())];",
        "pair[usize::from(is_left)];",
        "pair[(x < y) as usize];",
    ] {
        assert_eq!(found_in_body(body), ["an index made of a bool"], "{body}");
    }
    for body in [
        "words[usize::from(index)];",
        "words[usize::from(!mask)];",
        "[a, b][index];",
        "words[index as usize];",
    ] {
        assert_eq!(found_in_body(body), [""; 0], "{body}");
    }
}

#[test]
fn an_assignment_of_tuples_is_refused() {
    let expected = ["an assignment of tuples, `(a, b) = (x, y)`"];
    assert_eq!(found_in_body("(a, b) = (b, a);"), expected);
    for body in ["(a, b) = pair;", "a = (b, c);"] {
        assert_eq!(found_in_body(body), [""; 0], "{body}");
    }
}

#[test]
fn nested_options_and_results_are_refused() {
    for (text, shape) in [
        (
            "fn f() -> Result<Option<Option<u8>>> {}",
            "`Option` and `Result` three deep in a type",
        ),
        ("fn f() { g(Err(Ok(1))) }", "`Err(Ok(..))`, `Ok(Err(..))`"),
        (
            "fn f() { return Ok(Err(1)); }",
            "`Err(Ok(..))`, `Ok(Err(..))`",
        ),
        (
            "fn f() { x.ok().flatten(); }",
            "`.ok()` with `.copied()`, `.cloned()` or `.flatten()`",
        ),
    ] {
        assert_eq!(found_in_file(text), [shape], "{text}");
    }
}

/// A shape that is only counted, with its place.
#[test]
fn places_of_counted_shapes_are_listed() {
    let root = workspace();
    write(root.path(), FILE, "fn f() {\n    x.map(|y| z = y);\n}\n");
    let output = xtask(root.path(), &["tidy", "--count-shapes", "--places"]);
    let (code, list) = outcome(&output);
    assert_eq!(code, 0);
    let expected = "crates/sim/tests/a.rs:2: a closure that assigns to variables around it\n";
    assert_eq!(list, expected);
}

#[test]
fn a_file_that_is_not_rust_is_found() {
    let found = found(&[(FILE, "fn f() {\n    let = ;\n}\n")]);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("crates/sim/tests/a.rs:2: this is not Rust"),
        "{found:?}"
    );
}

/// The count of one shape in crate `sim`, whose file has this text.
fn counted(shape: &str, text: &str) -> usize {
    let root = workspace();
    write(root.path(), FILE, text);
    let output = xtask(root.path(), &["tidy", "--count-shapes"]);
    let (code, table) = outcome(&output);
    assert_eq!(code, 0);
    let cells = |row: &str| -> Vec<String> {
        row.trim_matches('|')
            .split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    let column = cells(table.lines().next().expect("a heading"))
        .iter()
        .position(|name| name == "sim")
        .expect("a column of the crate");
    let row = table
        .lines()
        .find(|row| row.contains(shape))
        .expect("a row of the shape");
    cells(row)[column].parse().expect("a count")
}

#[test]
fn shapes_are_counted_whether_refused_or_not() {
    for (shape, text) in [
        ("tuples on both sides", "fn f() { let (a, b) = (1, 2); }"),
        ("three deep", "fn f() -> Option<Result<Option<u8>, E>> {}"),
        ("more than two", "fn f() -> Option<(u8, u8, u8)> {}"),
        ("more than two", "struct A { a: (u8, u8, u8) }"),
        ("`.ok()` with", "fn f() { x.as_ref().ok().copied(); }"),
        ("`Err(Ok(..))`", "fn f() { return Err(Ok(1)); }"),
        ("a closure that assigns", "fn f() { x.map(|y| z = y); }"),
        ("a closure that assigns", "fn f() { x.map(|y| z += y); }"),
        (
            "a closure that assigns",
            "fn f() { x.map(|y| z.field = y); }",
        ),
        ("assignment of tuples", "fn f() { (a, b) = (b, a); }"),
        ("begins as `MAX`", "fn f() { A { at: usize::MAX }; }"),
    ] {
        assert_eq!(counted(shape, text), 1, "{text}");
    }
    for (shape, text) in [
        ("three deep", "fn f() -> Option<Result<u8, E>> {}"),
        ("more than two", "fn f() { let x: (u8, u8, u8) = y; }"),
        ("`Err(Ok(..))`", "fn f() { Ok(Ok(1)) }"),
        ("begins as `MAX`", "fn f() { A { limit_bytes: u64::MAX }; }"),
        (
            "a closure that assigns",
            "fn f() { x.map(|mut y| { y = 2; let mut z = 1; z += y; }); }",
        ),
    ] {
        assert_eq!(counted(shape, text), 0, "{text}");
    }
}
