use super::*;

#[test]
fn a_slot_is_held_by_one_at_a_time() {
    let slots = DescriptorSlots::new(2);
    let held = slots.take(0);
    let number = held.number;
    for _ in 0..2 {
        assert!(slots.take_number(number).is_none(), "a slot that is taken");
    }
    let other = slots.take(0);
    assert_ne!(other.number, number);
    drop(held);
    assert!(slots.take_number(number).is_some());
}

#[test]
fn a_descriptor_is_helped_until_its_last_helper_is_done() {
    let slots = DescriptorSlots::new(3);
    let one = slots.take(0);
    let other = slots.take(0);
    let name = Name {
        index: 4,
        sequence: 7,
    };
    assert!(!slots.is_helped(4));
    let first = slots.announce(&one, name);
    let second = slots.announce(&other, name);
    drop(first);
    assert!(slots.is_helped(4) && !slots.is_helped(3));
    drop(second);
    assert!(!slots.is_helped(4));
}
