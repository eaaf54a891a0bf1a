//! Numbers that no other pool or log has.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A random number. Its source is the one from which the standard library seeds hash maps: 128 bits
/// from the operating system.
#[must_use]
pub fn random_id() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}

#[cfg(test)]
mod tests;
