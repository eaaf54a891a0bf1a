//! The keys of the trees of a torture pool.

use lab::bench::KeyShape;
use sim::torture::{has_words, key_bytes};

/// The seed of the keys: the same for all processes, so that they need not tell each other.
const SEED: u64 = 1;

/// How the number of a key becomes its bytes.
#[derive(Clone, Copy)]
pub(super) struct TortureKeys {
    /// The shape of the keys of trees of records; a mixture if none is named.
    pub(super) shape: Option<KeyShape>,
}

impl TortureKeys {
    /// The bytes of a key in a tree.
    pub(super) fn bytes(self, tree: u8, key: u32) -> Vec<u8> {
        match self.shape {
            Some(shape) if !has_words(tree) => {
                let word = shape.word(u64::from(key), SEED);
                shape.key(word).to_vec()
            }
            _ => key_bytes(tree, key),
        }
    }
}

#[cfg(test)]
mod tests;
