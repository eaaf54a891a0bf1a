use super::*;

#[test]
fn a_status_counts() {
    let mut status = LeafStatus::of_sorted(5, 6);
    assert_eq!(
        (
            status.count(),
            status.sorted(),
            status.live(),
            status.pending()
        ),
        (5, 5, 5, 0)
    );
    assert!(status.validated(0).is_ok() && !status.is_full());
    status = status.reserved();
    assert_eq!((status.count(), status.live(), status.pending()), (6, 5, 1));
    assert_eq!(
        (status.kept(), status.frozen().kept(), status.capacity()),
        (6, 5, 6)
    );
    status = status.completed().buried();
    assert_eq!(
        (
            status.count(),
            status.live(),
            status.pending(),
            status.dead()
        ),
        (6, 5, 0, 1)
    );
    assert!(status.frozen().is_frozen() && !status.is_frozen());
    assert_eq!(status.frozen().thawed().live(), 5);
    assert_ne!(
        status.frozen(),
        status.frozen().thawed().frozen(),
        "a thaw in between is seen"
    );
    assert!((0..3 << 20).fold(status, |status, _| status.frozen()).0 <= VALUE_MASK);
    assert!(
        status.validated(0).is_ok() && status.is_full() && status.reserved().validated(0).is_err()
    );
    assert!(
        LeafStatus::of_sorted(0, ENTRIES_MAX + 1)
            .validated(0)
            .is_err()
    );
    assert_eq!(status.completed(), status, "nothing was pending");
}

#[test]
fn a_pointer_with_a_changed_bit_fails_its_check() {
    for pointer in [
        Pointer::leaf(0xffff_ffff_ff40),
        Pointer::inner(0x3a_1240),
        Pointer::inner(1 << 16),
    ] {
        assert!(pointer.is_sound() && pointer.0 <= VALUE_MASK);
        (0..61).for_each(|bit| assert!(!Pointer(pointer.0 ^ 1 << bit).is_sound(), "bit {bit}"));
    }
    assert_eq!(Pointer::leaf(0xffff_ffff_ff40).offset(), 0xffff_ffff_ff40);
    assert!(
        Pointer::leaf(64).is_leaf()
            && !Pointer::inner(64).is_leaf()
            && !Pointer(0x3a_1240).is_sound()
    );
}

#[test]
fn metadata_holds_what_it_was_given() {
    let meta = Meta::visible(5, 77);
    assert_eq!(
        (meta.state(), meta.high(), meta.version()),
        (EntryState::Visible, 5, 77)
    );
    assert_eq!(meta.gone().state(), EntryState::Gone);
    assert_eq!(Meta::EMPTY.state(), EntryState::Empty);
    assert_eq!(Meta::EMPTY.gone().state(), EntryState::Gone);
}
