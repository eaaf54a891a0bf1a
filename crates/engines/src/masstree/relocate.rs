//! Records that move out of runs that are to be emptied.
//!
//! The value of the key is written anew, as by an update that sets the same value. So a record moves
//! within an epoch, and moves back if that fails.

use std::sync::Arc;

use medium::Medium;
use pool::{Evacuate, SLAB_BYTES};
use rustc_hash::FxHashSet;

use super::access::{TreeAccess, Walk};
use super::allocator::run_of_object;
use super::cells::SlotValue;
use super::core::Core;
use super::scan::ScannedEntry;
use super::shard::{Parked, Work};
use super::slice::{LONGER, Slice};
use crate::Result;
use crate::index::{Direction, EvacuatedKeys, Moved, OwnSpace};
use medium::Lsn;

/// Entries that are read at a time.
const ENTRIES: usize = 256;

/// Keys whose records lie in some runs, of a part of the tree.
struct FoundKeys<'r> {
    runs: &'r FxHashSet<u64>,
    keys: Vec<Vec<u8>>,
    entries: usize,
    /// The last key that was read.
    last: Option<Vec<u8>>,
}

impl FoundKeys<'_> {
    /// Takes entries whose keys have a common beginning. Returns whether it takes more.
    fn take<M: Medium>(
        &mut self,
        view: &TreeAccess<'_, M>,
        prefix: &[u8],
        words: &[[u64; 2]],
        classes: &[u8],
    ) -> bool {
        for (&[word, content], &class) in words.iter().zip(classes) {
            let slice = Slice {
                word,
                class: class.min(LONGER),
            };
            let entry = ScannedEntry {
                prefix,
                slice,
                content,
            };
            let mut key = Vec::new();
            self.entries += 1;
            // The key of a damaged record is not known. The record stays where it is.
            if entry.copy_key(view, &mut key).is_err() {
                continue;
            }
            if self.runs.contains(&run_of_object(content)) {
                self.keys.push(key.clone());
            }
            self.last = Some(key);
        }
        self.entries < ENTRIES
    }
}

impl<M: Medium> Core<M> {
    /// Chooses runs that are to be emptied, and keeps allocations away from them until
    /// [`Core::end_evacuation`]. Returns how many. No operation runs meanwhile. O(runs + free
    /// objects).
    pub(super) fn begin_evacuation(&self, choice: Evacuate) -> Result<u64> {
        let _leaving = self.leaving.lock();
        if self.epochs.any_failed() {
            self.sweep()?;
        }
        let mut shards = self.epochs.stop();
        if self.are_words || self.epochs.are_over() {
            return Ok(0);
        }
        let guard = self.pool.peek();
        let parked = self.space(&guard).park_sparse_runs(&mut shards, choice);
        if parked.is_err() {
            for shard in &mut shards {
                shard.own.parked.fill(Parked::None);
            }
        }
        let runs = parked?;
        drop(shards);
        let count = runs.len() as u64;
        *self.evacuated.lock() = Arc::new(runs);
        Ok(count)
    }

    /// The slabs that the tree has taken from the pool. O(runs).
    pub(super) fn own_space(&self) -> Result<OwnSpace> {
        let _leaving = self.leaving.lock();
        let guard = self.pool.peek();
        let _serial = self.runs.lock();
        let mut space = self.space(&guard).bytes_of_runs()?;
        for shard in 0..self.epochs.barrier.shards().len() {
            let segments = self.log.segments(&guard, shard)?;
            space.log_bytes += segments.len() as u64 * SLAB_BYTES;
        }
        Ok(space)
    }

    /// Allows allocations from all runs again.
    pub(super) fn end_evacuation(&self) {
        let _leaving = self.leaving.lock();
        for shard in &mut self.epochs.stop() {
            shard.own.parked.fill(Parked::None);
        }
        *self.evacuated.lock() = Arc::default();
    }

    fn evacuated_runs(&self) -> Arc<FxHashSet<u64>> {
        Arc::clone(&self.evacuated.lock())
    }

    /// Finds keys whose records lie in runs that are to be emptied.
    pub(super) fn find_evacuated(&self, evacuated: &mut EvacuatedKeys) -> Result<()> {
        let runs = self.evacuated_runs();
        if runs.is_empty() {
            evacuated.is_finished = true;
            return Ok(());
        }
        let from = evacuated.from.as_deref();
        let read = |view: &TreeAccess<'_, M>| {
            let mut found = FoundKeys {
                runs: &runs,
                keys: Vec::new(),
                entries: 0,
                last: None,
            };
            let mut nodes_read = self.nothing_read();
            let take = |prefix: &[u8], words: &[[u64; 2]], classes: &[u8]| {
                Ok(found.take(view, prefix, words, classes))
            };
            let is_end = view.collect(from, Direction::Forward, &mut nodes_read, take)?;
            Ok((found, is_end))
        };
        let view = self.look();
        let (found, is_end) = match read(&view) {
            Ok(found) if view.is_valid() => found,
            _ => self.with_pass_held(read)?,
        };
        evacuated.keys.extend(found.keys);
        // A read that brought nothing new cannot go on.
        evacuated.is_finished = is_end || found.last.is_none() || found.last == evacuated.from;
        evacuated.from = found.last;
        Ok(())
    }

    /// Moves the record of a key, if it lies in a run that is to be emptied.
    pub(super) fn move_record(&self, key: &[u8]) -> Result<Moved> {
        self.end_failed()?;
        let runs = self.evacuated_runs();
        self.attempt_twice(|view, work| view.move_record(work, key, &runs))
    }
}

impl<M: Medium> TreeAccess<'_, M> {
    fn move_record(&self, work: &mut Work<'_>, key: &[u8], runs: &FxHashSet<u64>) -> Walk<Moved> {
        let place = self.lock_place(key)?;
        let Some(entry) = place.entry else {
            return Ok(Moved::NotEvacuated);
        };
        let found = self.value_for(place.node, place.depth, entry, key)?;
        let Some(SlotValue::Record(record)) = found else {
            return Ok(Moved::NotEvacuated);
        };
        if !runs.contains(&run_of_object(entry.value)) {
            return Ok(Moved::NotEvacuated);
        }
        let mut value = Vec::new();
        record.copy_value(&self.guard, &mut value)?;
        // Damage stays where it is, and is found there.
        if !record.is_sound(&self.guard, key, &value)? {
            return Ok(Moved::Stays);
        }
        self.guard.admit()?;
        self.update(work, &place, entry, key, &value)?;
        // The move is durable with its epoch. No answer rests on it.
        Ok(Moved::Done(Lsn::DURABLE))
    }
}
