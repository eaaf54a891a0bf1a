use std::path::Path;

use super::*;

#[test]
fn a_check_that_fails_advises_no_check() {
    let damage = || Error::corrupt(64, "a leaf").at(Path::new("a.pool"));
    let elsewhere = Failure::from(damage()).to_string();
    assert!(elsewhere.contains("`everleaf check`"), "{elsewhere}");
    let failure = Failure::from(damage()).of_check();
    assert_eq!(
        failure.to_string(),
        "a.pool: the pool is damaged at offset 0x40: a leaf, so it was not checked to the end; `everleaf dump --salvage` saves all whole entries"
    );
    assert_eq!((failure.kind(), failure.exit_code()), ("damaged", 3));
    // Other failures stay as they are.
    let absent = Failure::from(Error::from(ErrorKind::NoSuchPool)).of_check();
    assert_eq!(absent.kind(), "absent");
}
