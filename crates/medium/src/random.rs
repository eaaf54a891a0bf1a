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
mod tests {
    use std::collections::HashSet;

    #[test]
    fn ids_differ_also_in_each_half() {
        let ids: Vec<u128> = (0..1000).map(|_| super::random_id()).collect();
        let halves: HashSet<u64> = ids
            .iter()
            .flat_map(|id| [*id as u64, (*id >> 64) as u64])
            .collect();
        assert_eq!(halves.len(), 2000);
    }
}
