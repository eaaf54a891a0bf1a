//! docs/FORMAT.md describes the version that this release writes.

#[test]
fn the_description_names_the_version_that_is_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FORMAT.md");
    let description = std::fs::read_to_string(path).unwrap();
    let number = |rest: &str| {
        let digits = rest
            .trim_start_matches([':', ' '])
            .split(|c: char| !c.is_ascii_digit())
            .next();
        digits.unwrap_or_default().parse().unwrap()
    };
    let named: Vec<u32> = description
        .split("format version")
        .skip(1)
        .map(number)
        .collect();
    assert_eq!(named, [everleaf_pool::FORMAT_VERSION; 2]);
}
