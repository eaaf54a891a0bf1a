//! Bytes in the words of a pool: copied in and out, never lent.

use medium::{Medium, Word};

/// Stores bytes into words, the last padded with zeros.
pub fn copy_in<M: Medium>(guard: &medium::Guard<'_, M>, words: &[Word], bytes: &[u8]) {
    let (whole, tail) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter().zip(whole) {
        word.store(guard, u64::from_le_bytes(*chunk));
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        words[whole.len()].store(guard, u64::from_le_bytes(last));
    }
}

/// Appends the first `length` bytes of words to a buffer.
pub fn copy_out<M: Medium>(
    guard: &medium::Guard<'_, M>,
    words: &[Word],
    length: usize,
    buffer: &mut Vec<u8>,
) {
    let start = buffer.len();
    buffer.reserve(words.len() * 8);
    // Eight words at a time: the room of the buffer is looked at once for them.
    let (eights, rest) = words.as_chunks::<8>();
    for eight in eights {
        let bytes: [[u8; 8]; 8] = std::array::from_fn(|index| eight[index].load(guard).to_le_bytes());
        buffer.extend_from_slice(bytes.as_flattened());
    }
    for word in rest {
        buffer.extend_from_slice(&word.load(guard).to_le_bytes());
    }
    buffer.truncate(start + length);
}
