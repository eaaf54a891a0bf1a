use super::*;

#[test]
fn a_process_gets_small_pages_only_while_a_guard_lives() {
    let before = SmallPages::are_all();
    let Some(outer) = SmallPages::take() else {
        return;
    };
    let inner = SmallPages::take().unwrap();
    assert_eq!(SmallPages::are_all(), Some(true));
    drop(inner);
    assert_eq!(SmallPages::are_all(), Some(true));
    drop(outer);
    assert_eq!(SmallPages::are_all(), before);
}
