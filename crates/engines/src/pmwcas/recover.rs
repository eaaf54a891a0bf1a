//! Makes descriptors, and rolls operations that a crash cut off forward or back.

use medium::Medium;
use pool::Guard;
use smallvec::SmallVec;

use super::layout::{OperationState, Status, TargetWord, check_of};
use super::seen::Commits;
use super::slots::DescriptorSlots;
use super::word::{Name, SLOTS_MAX, VALUE_MASK};
use super::{Pmwcas, WORDS_MAX};
use crate::{Error, Result};

/// A descriptor that is not free.
pub(super) struct BusyDescriptor {
    index: usize,
    status: Status,
    /// Empty if a crash interrupted the filling: no word holds its name.
    targets: SmallVec<[TargetWord; WORDS_MAX]>,
}

impl Pmwcas {
    fn at<M: Medium>(place: u64, slots: usize) -> Result<Self> {
        if !(1..=SLOTS_MAX).contains(&slots) {
            let what =
                format!("{slots} slots for PMwCAS descriptors; there can be 1 to {SLOTS_MAX}");
            return Err(Error::corrupt(place, what));
        }
        Ok(Self::assembled::<M>(place, slots, true))
    }

    fn assembled<M: Medium>(place: u64, slots: usize, is_recovered: bool) -> Self {
        Self {
            place,
            slots: DescriptorSlots::new(slots),
            commits: Commits::new::<M>(),
            is_recovered,
        }
    }

    /// For reading words although descriptors may be damaged: a word that names a damaged one is an
    /// error. No word may be changed.
    pub(crate) fn unrecovered<M: Medium>(place: u64, slots: usize) -> Self {
        Self::assembled::<M>(place, slots.clamp(1, SLOTS_MAX), false)
    }

    /// Writes and flushes [`Pmwcas::bytes`] bytes of free descriptors at `place`; the caller fences
    /// before it publishes the place.
    pub fn format<M: Medium>(guard: &Guard<'_, M>, place: u64, slots: usize) -> Result<()> {
        let pmwcas = Self::at::<M>(place, slots)?;
        (0..pmwcas.descriptors()).try_for_each(|index| {
            pmwcas.node(guard, index)?.format(guard);
            Ok(())
        })
    }

    /// Opens the descriptors at `place`: rolls operations that a crash cut off forward or back.
    /// Durable when this returns. No other thread may use the words meanwhile. O(slots).
    ///
    /// Call [`Pmwcas::finish`] before a clean close of the pool. Otherwise the close may cut words
    /// that a descriptor still names off with the file's free tail, and the next open is refused. A
    /// drop cannot do this, as it has no guard.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) names a descriptor that no crash can
    /// leave.
    pub fn open<M: Medium>(guard: &Guard<'_, M>, place: u64, slots: usize) -> Result<Self> {
        let pmwcas = Self::at::<M>(place, slots)?;
        let mut unfinished: Vec<BusyDescriptor> = Vec::new();
        for index in 0..pmwcas.descriptors() {
            unfinished.extend(pmwcas.examine(guard, index)?);
        }
        if !unfinished.is_empty() {
            for operation in &unfinished {
                roll(guard, operation)?;
            }
            // PERSIST: the words are ordered before the descriptors that hold their values are
            // freed; if this is lost, they are rolled again.
            guard.fence();
            for operation in &unfinished {
                let free = operation.status.in_state(OperationState::Free).encode();
                pmwcas
                    .node(guard, operation.index)?
                    .status
                    .publish(guard, free);
            }
            guard.drain()?;
        }
        (0..pmwcas.descriptors()).try_for_each(|index| pmwcas.skip_numbers(guard, index))?;
        Ok(pmwcas)
    }

    /// Makes the next operation of a descriptor take a number that no crash has left in one of its
    /// lines.
    fn skip_numbers<M: Medium>(&self, guard: &Guard<'_, M>, index: usize) -> Result<()> {
        let node = self.node(guard, index)?;
        let Some(status) = Status::decode(node.status.load(guard)) else {
            return Ok(());
        };
        let sequence = node.last_sequence(guard, status);
        if sequence > status.sequence {
            // This is not flushed. If it is lost, the next open does it again, or the line has the
            // next operation's number.
            node.status
                .store(guard, Status { sequence, ..status }.encode());
        }
        Ok(())
    }

    /// Validates a descriptor; `None` if it is free.
    pub(super) fn examine<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        index: usize,
    ) -> Result<Option<BusyDescriptor>> {
        let node = self.node(guard, index)?;
        let refuse = |what: &str| {
            Err(Error::corrupt(
                guard.offset_of(node),
                format!("PMwCAS descriptor {index}: {what}"),
            ))
        };
        let Some(status) = Status::decode(node.status.load(guard)) else {
            return refuse("the status fails its check");
        };
        if status.state == OperationState::Free {
            return Ok(None);
        }
        let mut targets = node.load_targets(guard, status.count);
        if node.check.load(guard) != check_of(status.sequence, targets.iter().copied()) {
            if status.state != OperationState::Undecided || !node.is_torn(guard, status) {
                return refuse("its words fail their check");
            }
            targets.clear();
            return Ok(Some(BusyDescriptor {
                index,
                status,
                targets,
            }));
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
        Ok(Some(BusyDescriptor {
            index,
            status,
            targets,
        }))
    }
}

/// Gives words that still hold the name their final values, and flushes them.
fn roll<M: Medium>(guard: &Guard<'_, M>, operation: &BusyDescriptor) -> Result<()> {
    let BusyDescriptor {
        index,
        status,
        targets,
    } = operation;
    let name = Name {
        index: *index,
        sequence: status.sequence,
    };
    for target in targets {
        let cell = &guard.words(target.offset, 1)?[0];
        let raw = cell.load(guard);
        if raw == name.installed() {
            let succeeded = status.state == OperationState::Succeeded;
            // PERSIST: success is durable, or no desired value was ever visible; if this is lost,
            // it is done again.
            cell.publish(guard, if succeeded { target.new } else { target.old });
        } else if name.is_conditional_in(raw) {
            // The word holds only the first half of an RDCSS: the operation was not decided with
            // its name in this word.
            cell.publish(guard, target.old);
        } else {
            // The word has its final value, or a later one. If only the process ended, that may be
            // in the processor's cache alone: it must be durable before the descriptor is freed.
            guard.flush(cell);
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
