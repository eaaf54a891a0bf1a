//! Where the slots of the root table lie: the first ones in the pool's prefix, the others in pages.
//!
//! ```text
//! the root table in the prefix
//! 0x3000  slots 0 to 19, first copies
//! 0x5800  directory, first copy: for each page two words with checks, the offsets of its two copies
//! 0x9800  directory, second copy
//! 0xd800  slots 0 to 19, second copies
//! ```
//!
//! A page is an allocation with 127 slots. Its two copies lie in different slabs. Pages are never
//! freed: the slots of trees that are dropped are used again.

use medium::{Medium, MediumGuard, Word};

use super::copies::BadPart;
use super::slot::{SLOT_BYTES, SLOT_WORDS, SlotCopies};
use crate::Result;
use crate::header::{PREFIX_BYTES, ROOT_TABLE, checked, unchecked};
use crate::space::Space;

/// Slots in the prefix.
const PREFIX_SLOTS: usize = 20;
const PREFIX_SLOTS_BYTES: u64 = PREFIX_SLOTS as u64 * SLOT_BYTES;
/// Slots in a page: as many as an allocation of one slab has room for.
const PAGE_SLOTS: usize = 127;
const PAGE_BYTES: usize = PAGE_SLOTS * SLOT_BYTES as usize;
/// Pages that the directory has room for.
const PAGES_MAX: usize = 1024;
const ENTRY_BYTES: u64 = 16;
const DIRECTORY_BYTES: u64 = PAGES_MAX as u64 * ENTRY_BYTES;
/// Where the two copies of the directory begin.
const DIRECTORIES: [u64; 2] = [
    ROOT_TABLE + PREFIX_SLOTS_BYTES,
    ROOT_TABLE + PREFIX_SLOTS_BYTES + DIRECTORY_BYTES,
];
/// Where the two copies of the slots in the prefix begin.
const PREFIX_COPIES: [u64; 2] = [ROOT_TABLE, DIRECTORIES[1] + DIRECTORY_BYTES];
const _: () = assert!(PREFIX_COPIES[1] + PREFIX_SLOTS_BYTES == PREFIX_BYTES);

/// The most slots of a root table, and so the most trees of a pool.
pub(super) const SLOTS_MAX: usize = PREFIX_SLOTS + PAGES_MAX * PAGE_SLOTS;

/// A page of the table: the offsets of its two copies, as far as the directory tells them.
#[derive(Clone, Copy, Default, Debug)]
struct RootPage {
    copies: [Option<u64>; 2],
}

/// The pages of a root table, from its directory.
#[derive(Default, Debug)]
pub(super) struct RootPages {
    pages: Vec<RootPage>,
}

/// A slot outside of the prefix.
struct SlotInPage {
    page: usize,
    /// The slot's offset within its page.
    within: u64,
}

fn in_page(slot: usize) -> Option<SlotInPage> {
    let beyond = slot.checked_sub(PREFIX_SLOTS)?;
    Some(SlotInPage {
        page: beyond / PAGE_SLOTS,
        within: (beyond % PAGE_SLOTS) as u64 * SLOT_BYTES,
    })
}

/// The offset of an entry of the directory, in each copy of it.
fn entry_offsets(page: usize) -> [u64; 2] {
    DIRECTORIES.map(|directory| directory + page as u64 * ENTRY_BYTES)
}

/// The two words of an entry, in one copy of the directory.
fn entry_words<'g, M: Medium>(guard: &'g MediumGuard<'_, M>, offset: u64) -> Result<&'g [Word]> {
    Ok(guard.words(offset, (ENTRY_BYTES / 8) as usize)?)
}

impl RootPage {
    /// Reads an entry of the directory; `None` if it holds zeros in both copies.
    fn load<M: Medium>(guard: &MediumGuard<'_, M>, page: usize) -> Result<Option<Self>> {
        let mut found = Self::default();
        let mut is_zero = true;
        for offset in entry_offsets(page) {
            for (copy, cell) in found.copies.iter_mut().zip(entry_words(guard, offset)?) {
                let word = cell.load(guard);
                is_zero &= word == 0;
                if copy.is_none() && word != 0 {
                    *copy = unchecked(word);
                }
            }
        }
        Ok(if is_zero { None } else { Some(found) })
    }

    /// Enters the copies that are there in the directory; the caller fences.
    fn publish<M: Medium>(self, guard: &MediumGuard<'_, M>, page: usize) -> Result<()> {
        for offset in entry_offsets(page) {
            for (cell, copy) in entry_words(guard, offset)?.iter().zip(self.copies) {
                if let Some(start) = copy {
                    cell.publish(guard, checked(start));
                }
            }
        }
        Ok(())
    }
}

impl RootPages {
    /// Reads the directory of a table of which `slots_used` slots were ever used. O(its pages).
    pub(super) fn load<M: Medium>(guard: &MediumGuard<'_, M>, slots_used: usize) -> Result<Self> {
        let needed = slots_used.saturating_sub(PREFIX_SLOTS).div_ceil(PAGE_SLOTS);
        let mut pages = Vec::new();
        while pages.len() < PAGES_MAX {
            match RootPage::load(guard, pages.len())? {
                Some(page) => pages.push(page),
                // The entry is damaged: the slots of its page were in use.
                None if pages.len() < needed => pages.push(RootPage::default()),
                None => break,
            }
        }
        Ok(Self { pages })
    }

    /// The slots that have a place.
    pub(super) fn slots(&self) -> usize {
        PREFIX_SLOTS + self.pages.len() * PAGE_SLOTS
    }

    /// Marks the pages as in use, after a crash. A damaged entry of the directory that leads to no
    /// allocation counts as missing.
    pub(super) fn mark<M: Medium>(&mut self, guard: &MediumGuard<'_, M>, space: &Space) {
        for page in &mut self.pages {
            for copy in &mut page.copies {
                if let Some(offset) = *copy
                    && space.mark(guard, offset).is_err()
                {
                    *copy = None;
                }
            }
        }
    }

    /// The allocations of all pages.
    pub(super) fn allocations(&self) -> u64 {
        let copies = self.pages.iter().flat_map(|page| page.copies);
        copies.flatten().count() as u64
    }

    /// The copies of a slot.
    pub(super) fn slot<'g, M: Medium>(
        &self,
        guard: &'g MediumGuard<'_, M>,
        slot: usize,
    ) -> SlotCopies<'g> {
        let mut copies = [None; 2];
        let mut offset = None;
        for (copy, cells) in copies.iter_mut().enumerate() {
            let Some(start) = self.offset_of(slot, copy) else {
                continue;
            };
            offset = offset.or(Some(start));
            // A damaged entry of the directory may lead out of the file.
            *cells = guard.words(start, SLOT_WORDS).ok();
        }
        let entry = in_page(slot).map_or(ROOT_TABLE, |place| entry_offsets(place.page)[0]);
        SlotCopies {
            slot,
            offset: offset.unwrap_or(entry),
            copies,
        }
    }

    /// The offsets in the directory that one copy of it has, and the other one has not. Also those
    /// that neither has, if the page has another copy.
    pub(super) fn bad_parts<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Result<Vec<BadPart>> {
        let mut bad = Vec::new();
        for (number, page) in self.pages.iter().enumerate() {
            if page.copies.iter().all(Option::is_none) {
                // The slots of the page are damaged.
                continue;
            }
            for (copy, entry) in entry_offsets(number).into_iter().enumerate() {
                for (leads_to, cell) in entry_words(guard, entry)?.iter().enumerate() {
                    let word = cell.load(guard);
                    let value = page.copies[leads_to];
                    if value.is_some_and(|value| checked(value) == word) {
                        continue;
                    }
                    bad.push(BadPart::OfDirectory {
                        page: number,
                        offset: entry + 8 * leads_to as u64,
                        copy,
                        leads_to,
                        value,
                        is_outdated: value.is_some() && (word == 0 || unchecked(word).is_some()),
                    });
                }
            }
        }
        Ok(bad)
    }

    /// Where a copy of a slot begins; `None` if the directory does not tell.
    pub(super) fn offset_of(&self, slot: usize, copy: usize) -> Option<u64> {
        let Some(place) = in_page(slot) else {
            return Some(PREFIX_COPIES[copy] + slot as u64 * SLOT_BYTES);
        };
        let page = self.pages.get(place.page)?;
        let start = page.copies[copy]?;
        start.checked_add(place.within)
    }

    /// Gives a slot a place, if it has none: makes its page, and enters it in the directory. The
    /// caller fences before it publishes the slot.
    ///
    /// # Errors
    /// [`ErrorKind::PoolFull`](crate::ErrorKind::PoolFull).
    pub(super) fn reach<M: Medium>(
        &mut self,
        guard: &MediumGuard<'_, M>,
        space: &Space,
        slot: usize,
    ) -> Result<()> {
        let Some(SlotInPage { page: number, .. }) = in_page(slot) else {
            return Ok(());
        };
        let mut page = self.pages.get(number).copied().unwrap_or_default();
        if page.copies.iter().all(Option::is_some) {
            return Ok(());
        }
        let mut made = Vec::new();
        for copy in &mut page.copies {
            if copy.is_some() {
                continue;
            }
            match Self::make_page(guard, space) {
                Ok(offset) => {
                    made.push(offset);
                    *copy = Some(offset);
                }
                Err(error) => {
                    for offset in made {
                        space.free(offset);
                    }
                    return Err(error);
                }
            }
        }
        guard.fence();
        // PERSIST: the page's slots are free; if this is lost, the page belongs to nobody, and the
        // mark frees it. If one of its copies alone is entered, the other is made anew.
        page.publish(guard, number)?;
        if number == self.pages.len() {
            self.pages.push(page);
        } else {
            self.pages[number] = page;
        }
        Ok(())
    }

    /// Allocates a page of free slots, and flushes them.
    fn make_page<M: Medium>(guard: &MediumGuard<'_, M>, space: &Space) -> Result<u64> {
        let offset = space.allocate(guard, PAGE_BYTES, true)?;
        for slot in 0..PAGE_SLOTS as u64 {
            let state = guard.words(offset + slot * SLOT_BYTES, 1)?;
            state[0].store(guard, 0);
            guard.flush_words(state);
        }
        Ok(offset)
    }
}
