use super::*;

/// Each call as `function call ordinal`.
fn found(text: &str) -> Vec<String> {
    let words = |place: &CallPlace| format!("{} {} {}", place.function, place.call, place.ordinal);
    places("a.rs", text).iter().map(words).collect()
}

#[test]
fn calls_are_named_by_function_and_counted_in_the_order_of_the_text() {
    let text = "fn f(g: &G) { g.store(g.store(1)); g.fence() }\n\
                impl<M> Tree<M> { fn f(&self) { let c = || g.fence(); fn inner() { fence() } g.fence() } }\n\
                trait Kit { fn f(&self) { medium::fence(g) } }\n";
    let expected = [
        "f store 1",
        "f store 2",
        "f fence 1",
        "Tree::f fence 1",
        "inner fence 1",
        "Tree::f fence 2",
        "Kit::f fence 1",
    ];
    assert_eq!(found(text), expected);
}

#[test]
fn comments_and_formatting_do_not_count() {
    let plain = "fn f() { g.publish(1); if h { g.publish(2) } }";
    let formatted = "/// Docs: g.publish()\nfn f() {\n    // g.publish(0)\n    g\n        .publish(1);\n    if h {\n        \
                     g.publish(2)\n    }\n}\n";
    assert_eq!(found(plain), found(formatted));
}

#[test]
fn calls_inside_macros_count() {
    assert_eq!(
        found("fn f() { check!(g.flush(x), [h.flush(y)]) }"),
        ["f flush 1", "f flush 2"]
    );
    assert_eq!(found("not rust"), Vec::<String>::new());
}

#[test]
fn a_site_finds_its_call() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("crates")).expect("the folder can be made");
    let text = "fn f() {\n    g.store(1); g\n        .fence();\n    x::wait(2)\n}\n";
    std::fs::write(folder.path().join("crates/a.rs"), text).expect("the file can be written");
    let mut sources = Sources::new(folder.path());
    for (line, column, call) in [(2, 7, "store"), (3, 10, "fence"), (4, 5, "wait")] {
        let place = sources
            .place(Site {
                file: "crates/a.rs",
                line,
                column,
            })
            .expect("there is a call");
        assert_eq!(place.to_string(), format!("a.rs f {call} 1"));
    }
    assert_eq!(
        sources.place(Site {
            file: "crates/b.rs",
            line: 1,
            column: 1
        }),
        None
    );
}
