use super::*;

#[test]
fn slots_lie_inside_the_slab_behind_its_bitmap() {
    for index in 0..CLASSES as u64 {
        let class = Class::from_index(index).unwrap();
        assert!(class.slots() >= 1);
        assert!(class.slot_offset(0) >= 8 * (BITMAP_WORD + class.bitmap_words()) as u64);
        let last = class.slot_offset(class.slots() - 1);
        assert!(last + u64::from(SIZES[class.index()]) <= SLAB_BYTES);
        assert_eq!(class.slot_at(last), Some(class.slots() - 1));
        assert_eq!(class.slot_at(last + 1), None);
        assert_eq!(class.slot_at(0), None);
    }
}

#[test]
fn leaves_pack_tightly() {
    assert_eq!(Class::of(960, true).unwrap().slots(), 68);
    assert_eq!(Class::of(1024, true).unwrap().slots(), 63);
    assert!(
        Class::of(33, true)
            .unwrap()
            .slot_offset(1)
            .is_multiple_of(64)
    );
}
