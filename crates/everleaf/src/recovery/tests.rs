use super::*;

/// The text of a tree's damage once named the tree a second time.
#[test]
fn damage_that_is_found_later_is_told_like_that_of_an_open() {
    let violation = |tree: Option<&str>, offset| StoreViolation {
        tree: tree.map(str::to_owned),
        offset,
        what: "a leaf".to_owned(),
    };
    let of_tree = NotRecovered::from(violation(Some("fruit"), Some(64)));
    let name = "fruit".to_owned();
    assert_eq!(of_tree.part, DamagedPart::Tree { name });
    assert_eq!(of_tree.what, "damaged at offset 0x40: a leaf");
    assert_eq!(
        of_tree.what,
        NotRecovered::tree("fruit", &Error::corrupt(64, "a leaf")).what
    );
    let of_pool = NotRecovered::from(violation(None, None));
    assert_eq!(of_pool.part, DamagedPart::Pool);
    assert_eq!(of_pool.what, "a leaf");
}
