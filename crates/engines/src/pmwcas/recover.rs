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
pub(crate) mod tests {
    use medium::{Dax, Word};
    use pool::{Pool, PoolOptions};

    use super::*;
    use crate::pmwcas::layout::DESCRIPTOR_BYTES;

    /// The descriptor that is damaged.
    const INDEX: usize = 1;
    const SEQUENCE: u64 = 5;
    const FREE: Status = Status {
        state: OperationState::Free,
        count: 0,
        sequence: SEQUENCE - 1,
    };

    /// A pool with descriptors, and behind them words to be named.
    struct Planted {
        pool: Pool<Dax>,
        /// Where the descriptors lie.
        place: u64,
        /// Where the words lie.
        words: u64,
    }

    fn pool() -> Planted {
        let options = PoolOptions {
            close_on_drop: false,
            ..PoolOptions::default()
        };
        let pool = Pool::open(Dax::plain(1 << 20).unwrap(), options).unwrap();
        let guard = pool.pin();
        let place = guard.allocate_lines(Pmwcas::bytes(1)).unwrap();
        Pmwcas::format(&guard, place, 1).unwrap();
        let words = guard.allocate(8 * WORDS_MAX).unwrap();
        drop(guard);
        Planted { pool, place, words }
    }

    /// Writes a descriptor as an operation on words with these offsets leaves it, with what belongs
    /// to it.
    pub(crate) fn plant(guard: &Guard<'_, Dax>, place: u64, offsets: &[u64]) {
        let target = |offset: &u64| TargetWord {
            offset: *offset,
            old: 1,
            new: 2,
        };
        let targets: Vec<TargetWord> = offsets.iter().map(target).collect();
        let pmwcas = Pmwcas::at::<Dax>(place, 1).unwrap();
        pmwcas
            .node(guard, INDEX)
            .unwrap()
            .fill(guard, FREE, SEQUENCE, targets.into_iter())
            .unwrap();
    }

    fn refusal(guard: &Guard<'_, Dax>, place: u64) -> String {
        Pmwcas::open(guard, place, 1)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    fn named(words: u64, count: usize) -> Vec<TargetWord> {
        let target = |word| TargetWord {
            offset: words + 8 * word,
            old: 10 + word,
            new: 20 + word,
        };
        (0..count as u64).map(target).collect()
    }

    /// Words may durably hold its name, and without the descriptor their values are lost.
    #[test]
    fn a_damaged_descriptor_that_is_undecided_is_refused_by_name() {
        let Planted { pool, place, words } = pool();
        let guard = pool.pin();
        let pmwcas = Pmwcas::open(&guard, place, 1).unwrap();
        let node = pmwcas.node(&guard, INDEX).unwrap();
        for count in 1..=WORDS_MAX {
            let cells: &[Word] = guard.words(words, count).unwrap();
            let name = Name {
                index: INDEX,
                sequence: SEQUENCE,
            };
            let fill = || {
                node.fill(&guard, FREE, SEQUENCE, named(words, count).into_iter())
                    .unwrap();
                cells
                    .iter()
                    .for_each(|cell| cell.store(&guard, name.installed()));
            };
            fill();
            let lines = guard
                .words(guard.offset_of(node), DESCRIPTOR_BYTES / 8)
                .unwrap();
            let used = lines.len().min((2 + 3 * count).next_multiple_of(8));
            // An operation on this many words does not use the rest of the lines.
            let content: Vec<u64> = lines[..used].iter().map(|word| word.load(&guard)).collect();
            for (word, bit) in (0..used).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
                lines[word].store(&guard, content[word] ^ 1 << bit);
                let refused = refusal(&guard, place);
                let named = refused.contains(&format!("PMwCAS descriptor {INDEX}: "));
                let kept = cells
                    .iter()
                    .zip(10..)
                    .all(|(cell, old)| cell.load(&guard) == old);
                assert!(
                    named || kept,
                    "{count} words, word {word}, bit {bit}: {refused:?}"
                );
                fill();
            }
            assert_eq!(refusal(&guard, place), "");
            assert!(
                cells
                    .iter()
                    .zip(10..)
                    .all(|(cell, old)| cell.load(&guard) == old),
                "rolled back"
            );
        }
    }

    #[test]
    fn words_that_no_operation_names_are_refused_by_name() {
        let Planted { pool, place, words } = pool();
        let guard = pool.pin();
        let pmwcas = Pmwcas::open(&guard, place, 1).unwrap();
        let node = pmwcas.node(&guard, INDEX).unwrap();
        let end = pool.stat().file_bytes;
        let with = |offset: u64, old: u64, new: u64| {
            let mut targets = named(words, 3);
            targets[2] = TargetWord { offset, old, new };
            targets
        };
        let cases = [
            ("it names a word outside of the pool", with(end, 1, 2)),
            ("it names a word outside of the pool", with(1 << 60, 1, 2)),
            (
                "it names a word outside of the pool",
                with(words + 17, 1, 2),
            ),
            (
                "a value has more than 61 bits",
                with(words + 16, VALUE_MASK + 1, 2),
            ),
            (
                "a value has more than 61 bits",
                with(words + 16, 1, u64::MAX),
            ),
            ("its words overlap", with(words + 8, 1, 2)),
            ("its words overlap", with(words, 1, 2)),
            ("an operation without words", Vec::new()),
        ];
        for (what, targets) in cases {
            for state in [
                OperationState::Undecided,
                OperationState::Succeeded,
                OperationState::Failed,
            ] {
                node.fill(&guard, FREE, SEQUENCE, targets.iter().copied())
                    .unwrap();
                let status = Status {
                    state,
                    count: targets.len(),
                    sequence: SEQUENCE,
                };
                node.status.store(&guard, status.encode());
                let expected = format!("PMwCAS descriptor {INDEX}: {what}");
                let refused = refusal(&guard, place);
                assert!(
                    refused.contains(&expected),
                    "{what}, {state:?}: {refused:?}"
                );
            }
        }
    }
}
