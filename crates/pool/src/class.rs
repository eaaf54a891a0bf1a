//! Size classes: the sizes of slots into which slabs are cut.

use crate::limits::SLAB_BYTES;

/// Sizes of slots, in bytes. Up to 128 in steps of 16, then four to six steps per doubling; 960 and
/// 1,024 fit the leaves of RNTree (56 entries, one or two copies of the slot line), 1,408 those of
/// BzTree; the last two cut a slab in three and in two.
const SIZES: [u32; 40] = [
    32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 960, 1024,
    1280, 1408, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 9344, 10880,
    13056, 16320, 21824, 32704, 65472,
];

/// Words before the bitmap in a slab: class, checksum of the bitmap.
pub(crate) const BITMAP_WORD: usize = 2;
/// Words of the longest bitmap.
pub(crate) const BITMAP_WORDS_MAX: usize = 32;
/// The number of classes.
pub(crate) const CLASSES: usize = SIZES.len();

/// A size class, by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Class(u8);

/// For each class: where its first slot begins, and how many there are.
const GEOMETRY: [(u32, u32); CLASSES] = {
    let mut geometry = [(0, 0); CLASSES];
    let mut index = 0;
    while index < CLASSES {
        let size = SIZES[index];
        let mut header = 64;
        let mut slots = (SLAB_BYTES as u32 - header) / size;
        while header < 8 * (BITMAP_WORD as u32 + slots.div_ceil(64)) {
            header += 64;
            slots = (SLAB_BYTES as u32 - header) / size;
        }
        assert!(slots.div_ceil(64) as usize <= BITMAP_WORDS_MAX);
        geometry[index] = (header, slots);
        index += 1;
    }
    geometry
};

impl Class {
    /// The smallest class whose slots have `bytes` bytes, on line boundaries if asked.
    pub(crate) fn of(bytes: usize, line_aligned: bool) -> Option<Self> {
        let fits =
            |size: &u32| *size as usize >= bytes && (!line_aligned || size.is_multiple_of(64));
        SIZES.iter().position(fits).map(|index| Self(index as u8))
    }

    pub(crate) fn bytes(self) -> usize {
        SIZES[self.index()] as usize
    }

    pub(crate) fn from_index(index: u64) -> Option<Self> {
        (index < CLASSES as u64).then_some(Self(index as u8))
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn slots(self) -> u32 {
        GEOMETRY[self.index()].1
    }

    pub(crate) fn bitmap_words(self) -> usize {
        self.slots().div_ceil(64) as usize
    }

    /// Where a slot begins, from the start of its slab.
    pub(crate) fn slot_offset(self, slot: u32) -> u64 {
        u64::from(GEOMETRY[self.index()].0) + u64::from(slot) * u64::from(SIZES[self.index()])
    }

    /// The slot that begins `within` bytes into a slab, if one does.
    pub(crate) fn slot_at(self, within: u64) -> Option<u32> {
        let from_first = within.checked_sub(u64::from(GEOMETRY[self.index()].0))?;
        let size = u64::from(SIZES[self.index()]);
        let slot = from_first / size;
        (from_first % size == 0 && slot < u64::from(self.slots())).then_some(slot as u32)
    }
}

/// The usable bytes of an allocation of `bytes` bytes on line boundaries: those of its size class.
#[must_use]
pub fn lines_taken(bytes: usize) -> usize {
    Class::of(bytes, true).map_or_else(|| bytes.next_multiple_of(64), Class::bytes)
}

#[cfg(test)]
mod tests;
