//! Records that are moved out of slabs that are to be emptied ([`pool::Evacuation`]).
//!
//! 1. *Find* keys whose records lie in such slabs ([`keys_evacuated`]).
//! 2. For each key, under its stripe and under one pin: read its entry, *copy* the record, flush the
//!    copy, and fence ([`relocate`]).
//! 3. The engine *replaces* the entry as an update does, provided that it still leads to the old
//!    record ([`Condition::Moved`]), and retires that record. Otherwise the copy is freed.
//!
//! The pin lasts from reading the entry to comparing it: until then the space of the old record is
//! not used again, so an equal offset means the same record. A crash leaves the entry with the old
//! record or with the copy. Both have the same content.

use medium::Medium;
use pool::Guard;

use super::scan::{Goal, LeafCopy, Leaves, MovedNodes};
use crate::index::{Codec, Condition, Direction, EntryWords, EvacuatedKeys, Moved, Written};
use crate::{Error, ErrorKind, Result};

/// Reads a leaf, and appends its keys from [`EvacuatedKeys::from`] on whose records lie in slabs
/// that are to be emptied. Does the same with the leaf itself, if the engine moves leaves.
pub fn keys_evacuated<M: Medium, C: Codec, T: Leaves<M, C>>(
    tree: &T,
    evacuated: &mut EvacuatedKeys,
) -> Result<()> {
    let guard = tree.pool().pin();
    let has_movable = C::HAS_RECORDS || T::MOVED_NODES != MovedNodes::None;
    if !has_movable || !guard.evacuates() {
        evacuated.is_finished = true;
        return Ok(());
    }
    let mut leaf = LeafCopy::default();
    let goal = match &evacuated.from {
        None => Goal::First,
        Some(key) => Goal::At(key),
    };
    tree.copy_leaf(&guard, goal, Direction::Forward, &mut leaf)?;
    for entry in &leaf.entries {
        let Some(record) = C::record(*entry) else {
            continue;
        };
        if !guard.is_evacuated(record) {
            continue;
        }
        let mut key = Vec::new();
        // A damaged record stays where it is, and is found there.
        if C::copy_key(&guard, *entry, &mut key).is_ok() {
            evacuated.keys.push(key);
        }
    }
    match T::MOVED_NODES {
        MovedNodes::None => {}
        MovedNodes::LeavesBehindFirst => {
            if guard.is_evacuated(leaf.offset)
                && let Some(low) = &evacuated.from
            {
                evacuated.nodes.push(low.clone());
            }
        }
        // The engine looks at the inner nodes above the leaf itself.
        MovedNodes::All => evacuated
            .nodes
            .push(evacuated.from.clone().unwrap_or_default()),
    }
    let Some(end) = leaf.end else {
        evacuated.is_finished = true;
        return Ok(());
    };
    if evacuated.from.as_ref().is_some_and(|from| end <= *from) {
        return Err(Error::corrupt(leaf.offset, "separators out of order"));
    }
    evacuated.from = Some(end);
    Ok(())
}

/// A record and its copy, by their offsets.
pub struct RecordCopy {
    from: u64,
    to: u64,
}

impl RecordCopy {
    /// The condition of the write that replaces the record by the copy.
    pub fn condition<V>(&self) -> Condition<V> {
        Condition::Moved {
            from: self.from,
            to: self.to,
        }
    }
}

/// Copies the record of an entry, if it lies in a slab that is to be emptied, and lets `replace`
/// replace it under the condition of the copy. The thread has been pinned by `guard` since before it read
/// the entry.
pub fn relocate<M: Medium, C: Codec>(
    guard: &Guard<'_, M>,
    entry: EntryWords,
    replace: impl FnOnce(RecordCopy) -> Result<Written>,
) -> Result<Moved> {
    let Some(from) = C::record(entry) else {
        return Ok(Moved::NotEvacuated);
    };
    if !guard.is_evacuated(from) {
        return Ok(Moved::NotEvacuated);
    }
    // Damage stays where it is, and is found there.
    if !C::is_sound(guard, entry)? {
        return Ok(Moved::Stays);
    }
    let copy = C::copy_record(guard, entry)?;
    let Some(to) = copy.and_then(C::record) else {
        return Ok(Moved::Stays);
    };
    // PERSIST: nothing must precede; if this is lost, nothing leads to the copy yet. The engine's
    // fences cover only the flushes of the guard that it opens itself.
    guard.fence();
    match replace(RecordCopy { from, to }) {
        Ok(Written { held: true, lsn }) => Ok(Moved::Done(lsn)),
        Ok(Written { held: false, .. }) => {
            guard.free(to);
            Ok(Moved::Stays)
        }
        Err(error) => {
            // If the medium has failed in the middle of a change, the entry may lead to the copy.
            if !matches!(error.kind(), ErrorKind::Medium { .. }) {
                guard.free(to);
            }
            Err(error)
        }
    }
}
