//! docs/FORMAT.md is of the version that is written.

#[test]
fn the_description_names_the_version_that_is_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FORMAT.md");
    let description = std::fs::read_to_string(path).unwrap();
    let named: Vec<&str> = description.split("format version").skip(1).map(|rest| &rest[..3]).collect();
    let expected = format!("{:>2}", everleaf_pool::FORMAT_VERSION);
    assert!(
        named.len() == 2 && named.iter().all(|found| found.trim_start_matches(':').starts_with(&expected))
    );
}
