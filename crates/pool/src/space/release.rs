//! Room on the disk: free slabs are given back to the medium, and the free tail of the file is cut
//! off.
//!
//! Nothing is expected to survive in a free slab. The class word of one that is a hole is not read;
//! it counts as 0.

use std::collections::BTreeSet;

use medium::{Medium, RELEASE_BYTES};

use super::{MediumGuard, Space, Unowned, find_run, slab_start};
use crate::Result;
use crate::header::State;
use crate::limits::SLAB_BYTES;

const _: () = assert!(SLAB_BYTES == RELEASE_BYTES);

/// So many free slabs may keep their room: most are used again soon.
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
    /// Slabs that were released get room on the disk again: a store to a hole of a full disk would
    /// be a signal.
    pub(super) fn reserve<M: Medium>(
        guard: &MediumGuard<'_, M>,
        first: u32,
        count: u32,
    ) -> Result<()> {
        Ok(guard
            .medium()
            .reserve(slab_start(first), u64::from(count) * SLAB_BYTES)?)
    }

    /// The same for the run of free slabs at `first` or, if the disk has no room, for one that has
    /// kept its own. Returns its first slab.
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
        // One that waits to be punched is taken back.
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

    /// No other thread takes a free slab meanwhile.
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

    /// Gives the room of all free slabs back, and cuts off those at the end of the file. While it
    /// is not known what is in use, only what was free since the open.
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
            (unowned.next, unowned.high_water) = (end, end);
            // PERSIST: what made the slabs free was fenced; lost, the file is cut nevertheless, and
            // a mark beyond its end says that the file was truncated.
            State::HighWater.publish(guard, u64::from(end))?;
            guard.fence();
        }
        // Also where nothing is to be cut: what was released is then given back now.
        Ok(guard.medium().cut(slab_start(end))?)
    }
}
