use super::*;

#[test]
fn a_check_tells_single_bits_and_whole_bytes() {
    for bitmap in [0, VALID, LIVE, LIVE | VALID, 0x0123_4567_89ab_cdef & LIVE] {
        let word = sealed(bitmap);
        for bit in 0..64 {
            assert_ne!(sealed(word ^ 1 << bit), word ^ 1 << bit, "bit {bit}");
        }
        for byte in 0..8 {
            let damaged = word ^ 0xff << (8 * byte);
            assert_ne!(sealed(damaged), damaged, "byte {byte}");
        }
    }
}

#[test]
fn a_slot_array_of_a_word_lists_entries() {
    assert_eq!(live_in(Order::of([4, 0, 6]).0[0]), 0b101_0001);
    assert_eq!((live_in(0), live_in(!0)), (0, 1 << 7));
}
