use proptest::prelude::*;

use super::*;
use crate::kernels::Kernels;

/// Bytes with zeros up to a whole word.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(8), 0);
    padded
}

proptest! {
    /// Bytes in any number have the CRC-32C that the crate computes of them and their padding.
    #[test]
    fn the_sum_of_bytes_is_that_of_the_crate(bytes in prop::collection::vec(any::<u8>(), 0..6000)) {
        let sum = WordSum::default().with_bytes(&bytes);
        prop_assert_eq!(sum.check(), crc32c::crc32c(&padded(&bytes)));
    }

    /// One step by the instruction and one by tables agree.
    #[test]
    fn both_steps_agree(state in any::<u32>(), word in any::<u64>()) {
        if Kernels::Avx2.is_supported() {
            // SAFETY: a processor with AVX2 has the instruction.
            let by_instruction = unsafe { crc::step(state, word) };
            prop_assert_eq!(by_instruction, crc::step_by_table(state, word));
        }
    }
}

#[test]
fn words_of_zeros_have_a_check() {
    let zeros = WordSum::default().with_word(0).with_word(0);
    assert_ne!(zeros.check(), 0);
    assert_ne!(zeros.check(), WordSum::default().with_word(0).check());
}
