//! Keys as slices of eight bytes. One layer of the trie compares one slice.

/// Class of a key that goes on behind its slice.
pub(super) const LONGER: u8 = 9;
/// Class of an entry that leads to the next layer. Sorts as [`LONGER`], of which it is the other
/// form.
pub(super) const LAYER: u8 = 10;

/// Eight bytes of a key, big-endian and padded with zeros, and how many of them belong to it: 0 to
/// 8, or [`LONGER`]. Sorts as the keys do: `a`, `a\0`, `a\0\0`... have one word and differ in
/// class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Slice {
    pub(super) word: u64,
    pub(super) class: u8,
}

impl Slice {
    /// The smallest: that of the empty key.
    pub(super) const FIRST: Self = Self { word: 0, class: 0 };

    /// The first slice of the rest of a key.
    #[inline(always)]
    pub(super) fn of(rest: &[u8]) -> Self {
        let class = if rest.len() > 8 {
            LONGER
        } else {
            rest.len() as u8
        };
        Self {
            word: crate::index::record::prefix_word(rest),
            class,
        }
    }

    /// The rest of `key` in layer `depth`.
    #[inline(always)]
    pub(super) fn rest(key: &[u8], depth: usize) -> &[u8] {
        key.get(8 * depth..).unwrap_or_default()
    }

    /// Bytes of the key in this slice.
    pub(super) fn bytes(self) -> usize {
        usize::from(self.class.min(8))
    }

    /// Appends the bytes of the key in this slice.
    pub(super) fn append_to(self, key: &mut Vec<u8>) {
        key.extend_from_slice(&self.word.to_be_bytes()[..self.bytes()]);
    }
}

/// Where a descent goes within a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SliceTarget {
    /// To the node that covers this slice.
    At(Slice),
    /// To the node that covers the slices just below this one.
    Below(Slice),
    /// To the last node.
    Last,
}
