//! Bitmaps, in which a clean close records the slots in use.

use medium::Medium;
use medium::sync::Ordering;

use super::left_alone::CLASS_DAMAGED;
use super::usage::SlabUse;
use super::{MediumGuard, Space, UNMARKED, slab_start};
use crate::Result;
use crate::class::{BITMAP_WORD, Class};
use crate::header::checked;
use crate::limits::SLAB_BYTES;

/// The use of a slab, from its bitmap.
enum ReadBitmap {
    /// The use of the slab, or of its span, is known now; the next slab behind it.
    Known { next: u32 },
    /// This is damaged.
    Damaged(&'static str),
}

impl Space {
    /// Reads from the bitmaps which slots of old slabs are in use. If a bitmap is damaged, returns
    /// its slab's offset and the damage: then the trees must mark, at the next open if they are
    /// open already. Does nothing if the use is known. Ends early, and leaves the use unknown, if
    /// `goes_on` returns `false`. O(slabs).
    pub(crate) fn read_bitmaps<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<(u64, &'static str)>> {
        if self.has_bitmaps.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let end = self.unmarked_below.load(Ordering::Acquire);
        let mut slab = 1;
        while slab < end {
            if !goes_on() {
                self.forget(end);
                return Ok(None);
            }
            match self.read_bitmap(guard, slab, end)? {
                ReadBitmap::Known { next } => slab = next,
                ReadBitmap::Damaged(what) => {
                    self.forget(end);
                    self.has_damaged_bitmap.store(true, Ordering::Relaxed);
                    self.has_bitmaps.store(0, Ordering::Release);
                    return Ok(Some((slab_start(slab), what)));
                }
            }
        }
        self.finish_marking();
        Ok(None)
    }

    /// Reads the bitmap of a slab, or of the span that begins there. After a clean close all
    /// bitmaps should be whole.
    fn read_bitmap<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        slab: u32,
        end: u32,
    ) -> Result<ReadBitmap> {
        let (class, bitmap) = match self.head(guard, slab, end)? {
            SlabUse::Free => return Ok(ReadBitmap::Known { next: slab + 1 }),
            SlabUse::Damaged => return Ok(ReadBitmap::Damaged(CLASS_DAMAGED)),
            SlabUse::Cut(_, None) => {
                let what = "which of its slots are in use fails its checksum";
                return Ok(ReadBitmap::Damaged(what));
            }
            SlabUse::Span(slabs) => {
                self.claim_span(slab, slabs);
                return Ok(ReadBitmap::Known { next: slab + slabs });
            }
            SlabUse::Cut(class, Some(bitmap)) => (class, bitmap),
        };
        let used: u32 = bitmap.iter().map(|word| word.count_ones()).sum();
        let known = self.slabs.get(slab);
        known
            .class
            .store(class.index() as u64 + 1, Ordering::Relaxed);
        known.used.store(u64::from(used), Ordering::Relaxed);
        for (cell, word) in known.bitmap.iter().zip(&bitmap) {
            cell.store(*word, Ordering::Relaxed);
        }
        Ok(ReadBitmap::Known { next: slab + 1 })
    }

    /// Whether a slab is all zeros: nothing was ever written there. Some file systems call room
    /// that was never written a hole, for which a close writes no class word, and no longer do so
    /// once it was read.
    pub(super) fn is_blank<M: Medium>(guard: &MediumGuard<'_, M>, slab: u32) -> Result<bool> {
        let words = guard.words(slab_start(slab), SLAB_BYTES as usize / 8)?;
        Ok(words.iter().all(|word| word.load(guard) == 0))
    }

    fn forget(&self, end: u32) {
        for slab in 1..end {
            let known = self.slabs.get(slab);
            known.state.store(UNMARKED, Ordering::Relaxed);
            known.class.store(0, Ordering::Relaxed);
            known.used.store(0, Ordering::Relaxed);
            known
                .bitmap
                .iter()
                .for_each(|word| word.store(0, Ordering::Relaxed));
        }
    }

    /// Writes the bitmaps that have changed since the last clean close, and returns the slabs up to
    /// the last one in use; no thread allocates any more.
    pub(crate) fn write_bitmaps<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Result<u32> {
        let high_water = self.unowned.lock().next;
        // An attempt that failed may have stored what it did not flush.
        let is_first_attempt = !self.has_written_bitmaps.swap(true, Ordering::Relaxed);
        let mut end = 1;
        for slab in 1..high_water {
            let known = self.slabs.get(slab);
            if known.used.load(Ordering::Acquire) == 0 {
                if guard.medium().is_hole(slab_start(slab)) {
                    continue;
                }
                // A free slab has no class; the class word inside of a former span may be anything.
                let class = &guard.words(slab_start(slab), 1)?[0];
                if !is_first_attempt || class.load(guard) != checked(0) {
                    class.publish(guard, checked(0));
                }
                continue;
            }
            end = slab + 1;
            let Some(class) =
                Class::from_index(known.class.load(Ordering::Relaxed).wrapping_sub(1))
            else {
                continue;
            };
            let words = guard.words(slab_start(slab), BITMAP_WORD + class.bitmap_words())?;
            let bitmap: Vec<u64> = known.bitmap[..class.bitmap_words()]
                .iter()
                .map(|word| word.load(Ordering::Acquire))
                .collect();
            let check = bitmap_check(&bitmap);
            let mut known = words[BITMAP_WORD..].iter().zip(&bitmap);
            let is_known = is_first_attempt
                && words[1].load(guard) == check
                && known.all(|(word, bits)| word.load(guard) == *bits);
            if is_known {
                continue;
            }
            words[1].store(guard, check);
            for (word, bits) in words[BITMAP_WORD..].iter().zip(&bitmap) {
                word.store(guard, *bits);
            }
            guard.flush_words(words);
        }
        Ok(end)
    }
}

pub(super) fn bitmap_check(bitmap: &[u64]) -> u64 {
    let bytes: Vec<u8> = bitmap.iter().flat_map(|word| word.to_le_bytes()).collect();
    u64::from(crc32c::crc32c(&bytes)) | 1 << 32
}
