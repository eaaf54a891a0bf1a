//! The keys and values that every store gets, and that a reader must find again.

use clap::Args;
use lab::bench::KeyShape;

/// Bytes of the smallest random key: 8 that give its order, and 8 of its index.
const KEY_BYTES_MIN: usize = 16;
/// Bytes of a random key, if none are asked for.
const KEY_BYTES: usize = 24;
/// The seed of keys of other shapes.
const SEED: u64 = 1;
const WORD_BYTES: usize = size_of::<u64>();

/// The sizes of entries and how many there are.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct EntryShape {
    /// Entries that are loaded.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..=u64::from(u32::MAX)))]
    pub(crate) entries: u64,
    /// The shape of keys: another one in each process that measures.
    #[arg(skip)]
    pub(crate) key_shape: KeyShape,
    /// Bytes of a random key, at least 16; keys of other shapes have lengths of their own
    /// [default: 24].
    #[arg(long, value_name = "N", value_parser = key_bytes)]
    pub(crate) key_bytes: Option<usize>,
    /// Bytes of a value, at least 8.
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = value_bytes)]
    pub(crate) value_bytes: usize,
}

fn key_bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().map_err(|_| "give a number".to_owned())?;
    // LMDB takes no longer keys.
    (KEY_BYTES_MIN..=511)
        .contains(&bytes)
        .then_some(bytes)
        .ok_or_else(|| "give 16 to 511".to_owned())
}

fn value_bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().map_err(|_| "give a number".to_owned())?;
    (8..=1 << 20)
        .contains(&bytes)
        .then_some(bytes)
        .ok_or_else(|| "give 8 to 1048576".to_owned())
}

/// Spreads numbers over 64 bits; no two give the same.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Fills `bytes` with words that look random; the same `seed` gives the same.
fn fill(bytes: &mut Vec<u8>, size: usize, seed: u64) {
    let mut word = seed | 1;
    while bytes.len() < size {
        let rest = (size - bytes.len()).min(WORD_BYTES);
        bytes.extend_from_slice(&word.to_le_bytes()[..rest]);
        word = word.wrapping_mul(0xD134_2543_DE82_EF95).rotate_left(29);
    }
}

/// The first word of the value with which an index is loaded.
fn loaded_word(index: u64) -> u64 {
    mix(index) | 1
}

/// The word at an offset; `None` if the bytes end before its end.
fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset + WORD_BYTES)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The state of a loaded entry that transactions update. Its value says which one it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AccountState {
    /// How often it was updated.
    pub(crate) updates: u64,
    /// A digest of the states that the last transaction had read. It has no meaning before the
    /// first update.
    pub(crate) digest: u64,
}

impl EntryShape {
    /// The same entries with keys of another shape.
    pub(crate) fn with_keys(self, key_shape: KeyShape) -> Self {
        Self { key_shape, ..self }
    }

    /// Bytes of a random key.
    pub(crate) fn random_key_bytes(&self) -> usize {
        self.key_bytes.unwrap_or(KEY_BYTES)
    }

    /// A number of an index. Keys sort as these numbers of their indices do.
    fn order(&self, index: u64) -> u64 {
        match self.key_shape {
            KeyShape::Random => mix(index),
            shape => shape.word(index, SEED),
        }
    }

    /// The key of an index. Keys of consecutive indices are in random order, unless keys of their
    /// shape ascend. A random key has the index itself in bytes 8 to 15.
    pub(crate) fn key(&self, index: u64, key: &mut Vec<u8>) {
        let order = self.order(index);
        key.clear();
        if self.key_shape != KeyShape::Random {
            key.extend_from_slice(&self.key_shape.key(order));
            return;
        }
        key.extend_from_slice(&order.to_be_bytes());
        key.extend_from_slice(&index.to_be_bytes());
        fill(key, self.random_key_bytes(), mix(!index));
    }

    /// The value of an index after `updates` updates.
    pub(crate) fn value(&self, index: u64, updates: u64, value: &mut Vec<u8>) {
        value.clear();
        fill(value, self.value_bytes, mix(index ^ (updates << 40)));
    }

    /// An entry of its own.
    pub(crate) fn entry(&self, index: u64, updates: u64) -> (Vec<u8>, Vec<u8>) {
        let mut key = Vec::new();
        let mut value = Vec::new();
        self.key(index, &mut key);
        self.value(index, updates, &mut value);
        (key, value)
    }

    /// The indices of loaded entries, in ascending order of keys.
    pub(crate) fn sorted(&self) -> Vec<u32> {
        let mut indices: Vec<u32> = (0..self.entries as u32).collect();
        indices.sort_unstable_by_key(|index| self.order(u64::from(*index)));
        indices
    }

    /// The place of the `step`th index in an order that differs from that of the load, so that no
    /// write finds entries in the order in which they lie in the file. Each index comes once in
    /// `entries` steps.
    pub(crate) fn shuffled(&self, step: u64) -> u64 {
        // The factor is a prime, so it has no divisor in common with the count.
        (u128::from(step) * 3_037_000_493 % u128::from(self.entries)) as u64
    }

    /// The value of an index in a state: before any update, that of the load. After it, the first
    /// word is that of the load plus the number of updates, the second one is the digest, and the
    /// others follow from both.
    pub(crate) fn account_value(&self, index: u64, state: AccountState, value: &mut Vec<u8>) {
        if state.updates == 0 {
            self.value(index, 0, value);
            return;
        }
        let first = loaded_word(index).wrapping_add(state.updates);
        value.clear();
        value.extend_from_slice(&first.to_le_bytes());
        let mut seed = mix(first) ^ mix(!index);
        // A short value has no room for a digest.
        if self.value_bytes >= 2 * WORD_BYTES {
            value.extend_from_slice(&state.digest.to_le_bytes());
            seed ^= state.digest;
        }
        fill(value, self.value_bytes, mix(seed));
    }

    /// The state whose value a reader found; `None` if it is the value of no state.
    pub(crate) fn account_state(
        &self,
        index: u64,
        value: &[u8],
        expected: &mut Vec<u8>,
    ) -> Option<AccountState> {
        let state = AccountState {
            updates: word(value, 0)?.wrapping_sub(loaded_word(index)),
            digest: word(value, WORD_BYTES).unwrap_or(0),
        };
        self.account_value(index, state, expected);
        (value == expected.as_slice()).then_some(state)
    }

    /// Whether an entry that a reader found is that of this index.
    pub(crate) fn is_entry(
        &self,
        index: u64,
        key: &[u8],
        value: &[u8],
        expected: &mut Vec<u8>,
    ) -> bool {
        self.key(index, expected);
        key == expected.as_slice() && self.is_value(index, 0, value, expected)
    }

    /// Whether a value that a reader found is that of this index after `updates` updates.
    pub(crate) fn is_value(
        &self,
        index: u64,
        updates: u64,
        value: &[u8],
        expected: &mut Vec<u8>,
    ) -> bool {
        self.value(index, updates, expected);
        value == expected.as_slice()
    }
}

/// Entries one by one, each borrowed until the next one is asked for.
pub(crate) struct EntrySource<'i> {
    shape: EntryShape,
    indices: Box<dyn Iterator<Item = u64> + 'i>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'i> EntrySource<'i> {
    pub(crate) fn new(shape: EntryShape, indices: impl Iterator<Item = u64> + 'i) -> Self {
        Self {
            shape,
            indices: Box::new(indices),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// The next key and value.
    pub(crate) fn next_entry(&mut self) -> Option<(&[u8], &[u8])> {
        let index = self.indices.next()?;
        self.shape.key(index, &mut self.key);
        self.shape.value(index, 0, &mut self.value);
        Some((&self.key, &self.value))
    }
}

#[cfg(test)]
mod tests;
