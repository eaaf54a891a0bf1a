//! ReadVersions that are told apart, and versions that are not.

use super::ReadVersions;

const ONE: ReadVersions = ReadVersions::new("one", 1, &[]);
const OTHER_ONE: ReadVersions = ReadVersions::new("other", 1, &[]);
const TWO: ReadVersions = ReadVersions::new("one", 2, &[ONE]);

#[test]
fn versions_that_differ_are_accepted() {
    let three = ReadVersions::new("one", 3, &[ONE, TWO]);
    assert!(three.has_version(1) && three.has_version(2) && three.has_version(3));
    assert!(!three.has_version(4));
}

#[test]
#[should_panic(expected = "give this type another version")]
fn a_type_does_not_read_another_one_of_its_version() {
    ReadVersions::new("two", 1, &[ONE]);
}

#[test]
#[should_panic(expected = "give this type another version")]
fn a_type_does_not_read_one_that_reads_its_version() {
    ReadVersions::new("two", 1, &[TWO]);
}

#[test]
#[should_panic(expected = "cannot be told apart")]
fn two_types_of_one_version_are_not_read() {
    ReadVersions::new("two", 3, &[OTHER_ONE, TWO]);
}
