//! Writing a value: insert, update, put, compare-exchange.
//!
//! **Insert.** A compare-and-swap of the status reserves an entry; it is not flushed. PMwCAS on
//! metadata and status makes the entry visible, and carries key and payload.
//!
//! *Why the reservation needs no persist.* Nothing depends on it before the entry is visible, and
//! the operation that makes it so takes the status with the reservation for its expected value,
//! which is durable with the descriptor. A crash before that leaves a status with or without the
//! reservation. Without it the entry is free again, whatever lies in it. With it the entry is
//! pending, and the next insert into the leaf ends it, as it ends the reservation of a thread that
//! has stopped.
//!
//! *No wait for the entry's line.* Unless others are pending, nothing of the entry is read before
//! fence 1, so while the processor waits there its line comes from memory. That the entry is free
//! is known from its fingerprint, which lies in the line of the status and is stored after the
//! reservation: no crash leaves one that the status does not count.
//!
//! **Update.** PMwCAS on payload, metadata and status, in place. A value of 64 bits has its upper
//! three in the metadata, whose version goes up, so a reader that finds the same metadata before
//! and after the payload has both of one value.

use medium::sync::{is_scheduled, pause};
use medium::{Medium, Word};
use pool::Guard;

use super::BzTree;
use super::find::{DescentGoal, VisibleEntry};
use super::layout::{EntryState, KEY, LEAF_STATUS, Leaf, LeafStatus, META, Meta, PAYLOAD};
use crate::index::{Codec, Condition, Written};
use crate::kit::write::{Encoded, holds};
use crate::pmwcas::{Seen, VALUE_MASK};
use crate::{Error, ErrorKind, Result};

/// Attempts after which an operation gives up.
const ATTEMPTS_MAX: u32 = 1 << 16;

/// What is wrong with an entry that the status does not count.
const USED: &str = "an entry that was never reserved is in use";

/// How one attempt of an operation ended.
pub(super) enum Attempt {
    /// Done.
    Done(Written),
    /// The tree changed meanwhile: try again from the root.
    Again,
}

/// The outcome of the reservations before one's own.
#[derive(PartialEq, Eq)]
enum Earlier {
    /// None of them has the key.
    Clear,
    /// One of them has it.
    Duplicate,
    /// The leaf is frozen.
    Frozen,
}

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Sets the value of a key if the condition holds. O(log n).
    pub(super) fn store<'k>(
        &self,
        key: C::Key<'k>,
        value: C::Value<'k>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Written> {
        match self.store_once(key, value, condition) {
            // Nodes are replaced and not changed, so a lot of memory may wait to be freed. Only a
            // batch is pinned here.
            Err(error) if error.is_full() && !self.pool.peek().has_set_aside() => {
                self.reclaim();
                self.store_once(key, value, condition)
            }
            outcome => outcome,
        }
    }

    fn store_once<'k>(
        &self,
        key: C::Key<'k>,
        value: C::Value<'k>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Written> {
        let guard = self.pool.pin();
        let mut encoded = Encoded::<M, C>::new(&guard, key, value, condition);
        self.attempt(|| self.try_store(&guard, key, &mut encoded, condition))
    }

    /// Repeats a write until it is done.
    #[inline(always)]
    pub(super) fn attempt(&self, mut write: impl FnMut() -> Result<Attempt>) -> Result<Written> {
        for _ in 0..ATTEMPTS_MAX {
            if let Attempt::Done(held) = write()? {
                return Ok(held);
            }
        }
        Err(ErrorKind::Contended {
            offset: self.anchor,
        }
        .into())
    }

    fn try_store(
        &self,
        guard: &Guard<'_, M>,
        key: C::Key<'_>,
        encoded: &mut Encoded<'_, '_, '_, '_, M, C>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Attempt> {
        let mut seen = Seen::default();
        let offset = self.descend(guard, key, &mut seen)?;
        let leaf = Self::leaf(guard, offset)?;
        let status = self.leaf_status_helping(guard, leaf)?;
        if status.is_frozen() {
            // A frozen leaf's replacement may have room even if this one has none.
            return self.make_way(guard, key, offset, false);
        }
        if let Ok(free) = leaf.entry(guard, status.count()) {
            free[META].prefetch_write();
            free[PAYLOAD].prefetch_write();
        }
        // This search comes after the status was read: any later completion changes the status.
        let found = self.look(guard, leaf, key, &mut seen)?;
        if !holds::<M, C>(guard, condition, found.as_ref().map(|found| found.words))? {
            if found.is_none() && !self.is_absent(guard, offset, key, &mut seen)? {
                return Ok(Attempt::Again);
            }
            let lsn = guard.left_to_caller(seen.lsn());
            return Ok(Attempt::Done(Written::refused(lsn)));
        }
        match found {
            Some(found) => self.replace(guard, leaf, status, &found, encoded),
            None if status.is_full() => self.make_way(guard, key, offset, true),
            None => self.add(guard, leaf, status, key, encoded),
        }
    }

    /// Replaces a leaf that is frozen or full; the caller then tries everything again. If the
    /// replacement fails, because the pool is full or an entry is damaged, a frozen leaf is thawed
    /// and stays in use, provided that it has room or none is needed.
    pub(super) fn make_way(
        &self,
        guard: &Guard<'_, M>,
        key: C::Key<'_>,
        offset: u64,
        needs_room: bool,
    ) -> Result<Attempt> {
        let (path, found) =
            self.descend_path(guard, &DescentGoal::Key(key), &mut Seen::default())?;
        if found != offset {
            return Ok(Attempt::Again);
        }
        let live = self.leaf_status(guard, Self::leaf(guard, offset)?)?.live();
        if let Err(error) = self.renew_leaf(guard, &path, offset) {
            let status = self.thaw(guard, key, offset)?;
            if needs_room && status.is_full() && !status.is_frozen() {
                return Err(error);
            }
            if !error.is_full() {
                // A merge would fail for the same reason, and freeze the leaf once more.
                return Ok(Attempt::Again);
            }
        }
        if live <= self.sizes.live_min() {
            // The write goes on even if this merge fails, for lack of space or for damage in a
            // neighbour; so does a remove.
            let _ = self.shrink(guard, key);
        }
        Ok(Attempt::Again)
    }

    /// Replaces the value of an entry.
    pub(super) fn replace(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
        status: LeafStatus,
        found: &VisibleEntry,
        encoded: &mut Encoded<'_, '_, '_, '_, M, C>,
    ) -> Result<Attempt> {
        let cells = leaf.entry(guard, found.entry)?;
        let (payload, high) = Self::part(encoded.words()?[1]);
        let meta = Meta::visible(high, found.meta.version().wrapping_add(1));
        let mut swap = self.pmwcas.allocate();
        // The status stays the same. It is part of the operation so that a freeze makes the
        // operation fail.
        swap.add_word(guard, &leaf.head[LEAF_STATUS], status.0, status.0)?;
        swap.add_word(guard, &cells[META], found.meta.0, meta.0)?;
        swap.add_word(guard, &cells[PAYLOAD], found.payload, payload)?;
        let Some(commit) = swap.attempt(guard)? else {
            return Ok(Attempt::Again);
        };
        encoded.published();
        C::retire(guard, found.words);
        let lsn = guard.left_to_caller(commit.lsn());
        Ok(Attempt::Done(Written::done(lsn)))
    }

    /// Adds an entry to a leaf that does not have the key and has room.
    #[inline(always)]
    fn add(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
        status: LeafStatus,
        key: C::Key<'_>,
        encoded: &mut Encoded<'_, '_, '_, '_, M, C>,
    ) -> Result<Attempt> {
        // The allocation comes first, because it may fail for lack of space.
        let words = encoded.words()?;
        let Some(cells) = self.reserve(guard, leaf, status)? else {
            return Ok(Attempt::Again);
        };
        let entry = status.count();
        let (payload, high) = Self::part(words[1]);
        // The fingerprint lies in the line of the status, whose name is flushed when the entry is
        // completed.
        leaf.set_fingerprint(guard, entry, Self::fingerprint(key));
        if status.pending() > 0 {
            // Reservations before this one may be for the same key, and come first.
            match self.wait_for_earlier(guard, leaf, entry, key)? {
                Earlier::Clear => {}
                Earlier::Frozen => return Ok(Attempt::Again),
                Earlier::Duplicate => {
                    self.end_reservation(guard, leaf, entry, Meta::EMPTY)?;
                    return Ok(Attempt::Again);
                }
            }
        }
        let carried = [(&cells[KEY], words[0]), (&cells[PAYLOAD], payload)];
        loop {
            let status = self.leaf_status(guard, leaf)?;
            if status.is_frozen() {
                // The thread that froze it relies on this entry never becoming visible.
                return Ok(Attempt::Again);
            }
            let mut complete = self.pmwcas.allocate();
            complete.add_word(
                guard,
                &leaf.head[LEAF_STATUS],
                status.0,
                status.completed().0,
            )?;
            complete.add_word(guard, &cells[META], Meta::EMPTY.0, Meta::visible(high, 0).0)?;
            if let Some(commit) = complete.attempt_carrying(guard, &carried)? {
                encoded.published();
                self.refill_spares(guard);
                let lsn = guard.left_to_caller(commit.lsn());
                return Ok(Attempt::Done(Written::done(lsn)));
            }
            let meta = self.meta(guard, cells)?;
            if meta.state() == EntryState::Gone {
                // Another writer has ended the reservation.
                return Ok(Attempt::Again);
            }
            if meta != Meta::EMPTY {
                self.end_reservation(guard, leaf, entry, meta)?;
                return Err(Error::corrupt(leaf.offset, USED));
            }
        }
    }

    fn meta(&self, guard: &Guard<'_, M>, cells: &[Word; 3]) -> Result<Meta> {
        Ok(Meta(self.pmwcas.read(guard, &cells[META])? & VALUE_MASK))
    }

    /// Reserves the next entry, if nothing has changed since `status` was read.
    #[inline(always)]
    fn reserve<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        leaf: Leaf<'g>,
        status: LeafStatus,
    ) -> Result<Option<&'g [Word; 3]>> {
        let cell = &leaf.head[LEAF_STATUS];
        let cells = leaf.entry(guard, status.count())?;
        let is_used = leaf.fingerprint(guard, status.count()) != 0;
        let raw = self.pmwcas.read_helping(guard, cell)?;
        if raw & VALUE_MASK != status.0 {
            return Ok(None);
        }
        if is_used {
            return Err(Error::corrupt(leaf.offset, USED));
        }
        let new = status.reserved().0 | raw & !VALUE_MASK;
        Ok(cell
            .compare_exchange(guard, raw, new)
            .is_ok()
            .then_some(cells))
    }

    /// Waits for the reservations before `entry`, a bounded time for each, and then ends it.
    fn wait_for_earlier(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
        entry: usize,
        key: C::Key<'_>,
    ) -> Result<Earlier> {
        let mut seen = Seen::default();
        for earlier in 0..entry {
            let cells = leaf.entry(guard, earlier)?;
            let mut looks = 0;
            let mut spins = 0;
            // Under a scheduler a thread that polls without seeing a change counts as one that
            // waits for ever.
            let patience = match is_scheduled::<M>() {
                true => self.patience.min(2),
                false if M::SCHEDULED => 0,
                false => self.patience,
            };
            loop {
                let meta = self.meta(guard, cells)?;
                if meta.state() != EntryState::Empty {
                    break;
                }
                if self.leaf_status(guard, leaf)?.is_frozen() {
                    return Ok(Earlier::Frozen);
                }
                if looks == patience {
                    self.end_reservation(guard, leaf, earlier, meta)?;
                    continue;
                }
                looks += 1;
                pause(&mut spins);
            }
        }
        let found = self.look(guard, leaf, key, &mut seen)?;
        Ok(if found.is_some() {
            Earlier::Duplicate
        } else {
            Earlier::Clear
        })
    }

    /// Ends a reservation of any thread, of an entry with this metadata, unless it was completed or
    /// the leaf was frozen meanwhile.
    fn end_reservation(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
        entry: usize,
        meta: Meta,
    ) -> Result<()> {
        let cells = leaf.entry(guard, entry)?;
        loop {
            let now = self.meta(guard, cells)?;
            let status = self.leaf_status(guard, leaf)?;
            if now != meta || status.is_frozen() {
                return Ok(());
            }
            let mut end = self.pmwcas.allocate();
            end.add_word(guard, &cells[META], meta.0, meta.gone().0)?;
            end.add_word(
                guard,
                &leaf.head[LEAF_STATUS],
                status.0,
                status.completed().buried().0,
            )?;
            if let Some(commit) = end.attempt(guard)? {
                // No thread returns an answer that rests on this, so it need not wait until it is
                // durable.
                drop(commit);
                return Ok(());
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
