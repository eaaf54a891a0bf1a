//! Numbers that no other pool or log has.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A random number from the operating system. If that refuses, it comes from the source that seeds
/// hash maps, which gives the child of a fork the same numbers as its parent.
#[must_use]
pub fn random_id() -> u128 {
    let mut bytes = [0; 16];
    // SAFETY: the buffer has this many bytes.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    // So few bytes come all at once.
    if usize::try_from(filled) == Ok(bytes.len()) {
        return u128::from_ne_bytes(bytes);
    }
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}

#[cfg(test)]
mod tests;
