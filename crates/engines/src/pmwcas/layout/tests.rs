use super::*;

#[test]
fn a_status_with_one_flipped_bit_is_refused() {
    for state in [
        OperationState::Free,
        OperationState::Undecided,
        OperationState::Succeeded,
        OperationState::Failed,
    ] {
        for sequence in [0, 1, 12_345, SEQUENCE_MASK] {
            let status = Status {
                state,
                count: 3,
                sequence,
            };
            let word = status.encode();
            assert_eq!(Status::decode(word), Some(status));
            for bit in 0..64 {
                assert_eq!(
                    Status::decode(word ^ 1 << bit),
                    None,
                    "{status:?}, bit {bit}"
                );
            }
        }
    }
    assert_eq!(Status::decode(0), None, "memory that was never formatted");
}

#[test]
fn a_writer_with_one_flipped_bit_is_nobody() {
    for sequence in [0, 1, 12_345, SEQUENCE_MASK] {
        let word = writer(sequence);
        assert_eq!(word & SEQUENCE_MASK, sequence);
        assert!((0..64).all(|bit| word ^ 1 << bit != writer((word ^ 1 << bit) & SEQUENCE_MASK)));
    }
    assert_ne!(writer(0), 0, "memory that was never formatted");
}
