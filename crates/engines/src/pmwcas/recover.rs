//! Making descriptors, and rolling what a crash cut off forward or back.

use medium::Medium;
use medium::sync::AtomicU64;
use pool::{Error, Guard, Result};
use smallvec::SmallVec;

use super::layout::{State, Status, Target, check_of};
use super::slots::Slots;
use super::word::{Name, SLOTS_MAX, VALUE_MASK};
use super::{Pmwcas, WORDS_MAX};

/// A descriptor that is not free.
struct Unfinished {
    index: usize,
    status: Status,
    /// Empty if it was being filled when the crash came: no word holds its name.
    targets: SmallVec<[Target; WORDS_MAX]>,
}

impl Pmwcas {
    fn at(place: u64, slots: usize) -> Result<Self> {
        if !(1..=SLOTS_MAX).contains(&slots) {
            let what = format!("{slots} slots for PMwCAS descriptors; there can be 1 to {SLOTS_MAX}");
            return Err(Error::corrupt(place, what));
        }
        Ok(Self { place, slots: Slots::new(slots), commit_lsn: AtomicU64::new(0) })
    }

    /// Writes and flushes [`Pmwcas::bytes`] bytes of free descriptors at `place`; the caller fences before it publishes
    /// the place.
    pub fn format<M: Medium>(guard: &Guard<'_, M>, place: u64, slots: usize) -> Result<()> {
        let pmwcas = Self::at(place, slots)?;
        let free = Status { state: State::Free, count: 0, sequence: 0 };
        for index in 0..pmwcas.descriptors() {
            pmwcas.node(guard, index)?.status.publish(guard, free.encode());
        }
        Ok(())
    }

    /// Opens the descriptors at `place`: rolls forward or back what a crash cut off. Durable when this returns; nobody
    /// else uses the words meanwhile. O(slots).
    ///
    /// # Errors
    /// [`Error::Corrupt`] names the descriptor that no crash leaves so.
    pub fn open<M: Medium>(guard: &Guard<'_, M>, place: u64, slots: usize) -> Result<Self> {
        let pmwcas = Self::at(place, slots)?;
        let mut unfinished: Vec<Unfinished> = Vec::new();
        for index in 0..pmwcas.descriptors() {
            unfinished.extend(pmwcas.examine(guard, index)?);
        }
        if unfinished.is_empty() {
            return Ok(pmwcas);
        }
        for operation in &unfinished {
            roll(guard, operation)?;
        }
        // PERSIST: the words before the descriptors that tell what they are to be; lost, they are rolled again.
        guard.fence();
        for operation in &unfinished {
            let free = operation.status.in_state(State::Free).encode();
            pmwcas.node(guard, operation.index)?.status.publish(guard, free);
        }
        guard.drain()?;
        Ok(pmwcas)
    }

    /// Validates a descriptor; `None` if it is free.
    fn examine<M: Medium>(&self, guard: &Guard<'_, M>, index: usize) -> Result<Option<Unfinished>> {
        let node = self.node(guard, index)?;
        let refuse = |what: &str| {
            Err(Error::corrupt(guard.offset_of(node), format!("PMwCAS descriptor {index}: {what}")))
        };
        let Some(status) = Status::decode(node.status.load(guard)) else {
            return refuse("the status fails its check");
        };
        if status.state == State::Free {
            return Ok(None);
        }
        let mut targets = node.load_targets(guard, status.count);
        if node.check.load(guard) != check_of(status.sequence, &targets) {
            if status.state != State::Undecided {
                return refuse("it is decided, but its words fail their check");
            }
            targets.clear();
            return Ok(Some(Unfinished { index, status, targets }));
        }
        if targets.is_empty() {
            return refuse("an operation without words");
        }
        for target in &targets {
            if guard.words(target.offset, 1).is_err() {
                return refuse("it names a word outside of the pool");
            }
            if (target.old | target.new) & !VALUE_MASK != 0 {
                return refuse("a value has more than 61 bits");
            }
        }
        if !targets.is_sorted_by(|one, other| one.offset < other.offset) {
            return refuse("its words overlap");
        }
        Ok(Some(Unfinished { index, status, targets }))
    }
}

/// Gives words that still hold the name their final values, and flushes them.
fn roll<M: Medium>(guard: &Guard<'_, M>, operation: &Unfinished) -> Result<()> {
    let Unfinished { index, status, targets } = operation;
    let name = Name { index: *index, sequence: status.sequence };
    for target in targets {
        let cell = &guard.words(target.offset, 1)?[0];
        let raw = cell.load(guard);
        if raw == name.installed() {
            let succeeded = status.state == State::Succeeded;
            // PERSIST: success is durable, or no desired value was ever visible; lost, it is done again.
            cell.publish(guard, if succeeded { target.new } else { target.old });
        } else if name.is_conditional_in(raw) {
            // Never more than the first half of an RDCSS: the word was not part of what was decided.
            cell.publish(guard, target.old);
        } else {
            // It has its final value, or a later one, perhaps only in the cache of a machine that went on when the process
            // ended: before the descriptor goes, it must be durable.
            guard.flush(cell);
        }
    }
    Ok(())
}
