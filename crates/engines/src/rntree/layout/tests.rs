use super::*;

#[test]
fn slots_keep_order_next_and_tags() {
    let tagged = LineValue([medium::TAG_MASK; 8]);
    let slots = Slots(tagged).with(0, 0x1234_5678_9a80);
    let slots = slots.inserted(0, 7).inserted(0, 55).inserted(1, 3);
    assert_eq!((slots.count(), slots.next()), (3, 0x1234_5678_9a80));
    assert_eq!([0, 1, 2].map(|position| slots.entry(position)), [55, 3, 7]);
    assert!(
        slots
            .0
            .0
            .iter()
            .all(|word| word & medium::TAG_MASK == medium::TAG_MASK)
    );
    let slots = slots.replaced(1, 9).removed(0);
    assert_eq!((slots.entry(0), slots.entry(1), slots.count()), (9, 7, 2));
    assert_eq!(slots.position_of(7), Some(1));
    assert_eq!(slots.position_of(55), None);
}

/// All entries have the same sum in this test, so only the check of the slots can notice a changed
/// slot.
#[test]
fn every_changed_byte_of_a_line_fails_its_check() {
    let entry = |number: usize| [0x51_u64.rotate_right(number as u32), 0];
    let sum = |slots: &Slots| {
        let listed = (0..slots.count()).map(|position| slots.entry(position));
        listed.fold(EntrySum::default(), |sum, number| {
            sum.with(number, entry(number))
        })
    };
    let mut slots = Slots::identity(20, 0x1234_5678_9a80, EntrySum::default());
    slots = slots.removed(3).removed(8).inserted(2, 40);
    slots = slots.sealed_with(SEED ^ sum(&slots).0);
    slots.verify(sum(&slots), 0).unwrap();
    for (byte, change) in (0..64).flat_map(|byte| (1..=0xff_u64).map(move |change| (byte, change)))
    {
        let mut damaged = slots;
        damaged.0.0[byte / 8] ^= change << (8 * (byte % 8)) & !medium::TAG_MASK;
        if damaged == slots {
            continue;
        }
        let found = damaged
            .validate(ENTRIES_MAX, 0)
            .and_then(|()| damaged.verify(sum(&damaged), 0));
        assert!(found.is_err(), "byte {byte} xor {change:#x}");
    }
    for bit in 6..48 {
        let mut damaged = slots;
        damaged.0.0[0] ^= 1 << bit;
        assert!(
            damaged.verify_line(0).is_err(),
            "bit {bit} of the next leaf's offset"
        );
    }
}
