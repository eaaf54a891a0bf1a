//! docs/TESTING.md shows the output of the example.

use crate::linked_list_example as linked_list;

#[test]
fn the_docs_show_what_the_example_prints() {
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/TESTING.md"
    ))
    .unwrap();
    let report = linked_list::explore(false)
        .unwrap_err()
        .replace("tests/models/../../", "");
    assert!(page.contains(&report), "the page should say:\n{report}");
    let mended = format!("mended: {}\n", linked_list::explore(true).unwrap());
    assert!(page.contains(&mended), "the page should say:\n{mended}");
}
