use super::*;

#[test]
fn a_prefix_ends_where_its_last_byte_can_be_raised() {
    assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
    assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
    assert_eq!(prefix_end(b"\xff"), None);
    assert_eq!(prefix_end(b""), None);
    assert_eq!(
        Bounds::prefix(b""),
        Bounds {
            lower: Bound::Included(Vec::new()),
            upper: Bound::Unbounded
        }
    );
}
