//! Room on the disk: free slabs are given back to the medium, and the free tail of the file is cut
//! off.
//!
//! The content of a free slab is not needed. If the slab is a hole, its class word is not read and
//! counts as 0.

use std::collections::BTreeSet;

use medium::{Medium, RELEASE_BYTES};

use super::{MediumGuard, Space, Unowned, find_run, slab_start};
use crate::Result;
use crate::header::StateWord;
use crate::limits::SLAB_BYTES;

const _: () = assert!(SLAB_BYTES == RELEASE_BYTES);

/// How many free slabs keep their room: most are used again soon.
const KEPT_SLABS: usize = 64;

impl Unowned {
    pub(super) fn add_free(&mut self, slab: u32) {
        self.free.insert(slab);
        self.unreleased.insert(slab);
    }

    pub(super) fn remove_free(&mut self, slab: u32) {
        self.free.remove(&slab);
        self.unreleased.remove(&slab);
    }
}

impl Space {
    /// Gives slabs that were released room on the disk again: a store to a hole of a full disk
    /// would raise a signal.
    pub(super) fn reserve<M: Medium>(
        guard: &MediumGuard<'_, M>,
        first: u32,
        count: u32,
    ) -> Result<()> {
        Ok(guard
            .medium()
            .reserve(slab_start(first), u64::from(count) * SLAB_BYTES)?)
    }

    /// Gives room to the run of `count` free slabs at `first`. If the disk has none, takes another
    /// run that has kept its room. Returns the first slab of the run.
    pub(super) fn reserve_one_of<M: Medium>(
        guard: &MediumGuard<'_, M>,
        free: &BTreeSet<u32>,
        first: u32,
        count: u32,
    ) -> Result<u32> {
        let Err(error) = Self::reserve(guard, first, count) else {
            return Ok(first);
        };
        let has_room = |slab: &u32| !guard.medium().is_hole(slab_start(*slab));
        let with_room = free.iter().copied().filter(has_room).collect();
        let first = find_run(&with_room, count).ok_or(error)?;
        // The medium takes back a slab that waits to be punched.
        Self::reserve(guard, first, count).map(|()| first)
    }

    /// Gives the room of free slabs back, if there are many. Whatever made them free was fenced.
    pub(crate) fn release_if_many<M: Medium>(&self, guard: &MediumGuard<'_, M>) {
        let mut unowned = self.unowned.lock();
        if unowned.unreleased.len() + unowned.emptied.len() > KEPT_SLABS {
            self.release(guard, &mut unowned);
        }
    }

    /// Gives the room of all free slabs back. Whatever made them free was fenced.
    pub(crate) fn release_all<M: Medium>(&self, guard: &MediumGuard<'_, M>) {
        drop(self.leave_open(None));
        self.release(guard, &mut self.unowned.lock());
    }

    /// The caller holds `unowned`, so no other thread takes a free slab meanwhile.
    fn release<M: Medium>(&self, guard: &MediumGuard<'_, M>, unowned: &mut Unowned) {
        self.free_emptied(unowned);
        let mut run = 0..0;
        let release = |run: &std::ops::Range<u32>| {
            if !run.is_empty() {
                guard.medium().release(
                    slab_start(run.start),
                    u64::from(run.end - run.start) * SLAB_BYTES,
                );
            }
        };
        for slab in std::mem::take(&mut unowned.unreleased) {
            if guard.medium().is_hole(slab_start(slab)) {
                continue;
            }
            if slab == run.end {
                run.end += 1;
            } else {
                release(&run);
                run = slab..slab + 1;
            }
        }
        release(&run);
    }

    /// Gives the room of all free slabs back, and cuts off those at the end of the file. While the
    /// use of old slabs is not known, only slabs that have become free since the open.
    pub(crate) fn compact<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Result<()> {
        drop(self.leave_open(None));
        let mut unowned = self.unowned.lock();
        self.release(guard, &mut unowned);
        let mut end = unowned.next;
        while end > 1 && unowned.free.contains(&(end - 1)) {
            end -= 1;
        }
        if end < unowned.high_water {
            unowned.free.split_off(&end);
            unowned.next = end;
            unowned.high_water = end;
            // PERSIST: what made the slabs free was fenced; if this is lost, the file is cut
            // nevertheless, and a mark beyond its end says that the file was truncated.
            StateWord::HighWater.publish(guard, u64::from(end))?;
            guard.fence();
        }
        // This is also called if nothing is to be cut: it gives the room of released slabs back
        // now.
        Ok(guard.medium().cut(slab_start(end))?)
    }
}
