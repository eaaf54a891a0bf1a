//! Persistent multi-word compare-and-swap: up to eight words of a pool change together or not at
//! all, for other threads and across a crash, without a lock.
//!
//! After Wang, Levandoski, Larson: *Easy Lock-Free Indexing in Non-Volatile Memory* (ICDE 2018), as
//! section 2.3 of Arulraj, Levandoski, Minhas, Larson: *BzTree* (VLDB 2018) uses it; in its turn
//! after Harris, Fraser, Pratt: *A Practical Multi-word Compare-and-Swap Operation* (DISC 2002).
//!
//! ```
//! use everleaf_engines::pmwcas::{Pmwcas, VALUE_MASK};
//! use pool::{Pool, PoolOptions};
//!
//! let pool = Pool::open(medium::Dax::plain(1 << 20).unwrap(), PoolOptions::default())?;
//! let guard = pool.pin();
//!
//! // Descriptors for four operations at a time, at a place that the next open knows again.
//! let place = guard.allocate_lines(Pmwcas::bytes(4))?;
//! Pmwcas::format(&guard, place, 4)?;
//! let pmwcas = Pmwcas::open(&guard, place, 4)?;
//!
//! // Two words of the user's: 61 bits each.
//! let accounts = guard.words(guard.allocate(16)?, 2)?;
//! accounts[0].store(&guard, 100);
//! accounts[1].store(&guard, 0);
//! guard.flush_words(accounts);
//!
//! let mut transfer = pmwcas.allocate();
//! transfer.add_word(&guard, &accounts[0], 100, 70)?;
//! transfer.add_word(&guard, &accounts[1], 0, 30)?;
//! assert!(transfer.execute(&guard)?);
//! assert_eq!(pmwcas.read(&guard, &accounts[1])? & VALUE_MASK, 30);
//!
//! // One word is not as expected, so none changes.
//! let mut again = pmwcas.allocate();
//! again.add_word(&guard, &accounts[0], 70, 40)?;
//! again.add_word(&guard, &accounts[1], 0, 60)?;
//! assert!(!again.execute(&guard)?);
//! assert_eq!(pmwcas.read(&guard, &accounts[0])? & VALUE_MASK, 70);
//!
//! // Before the pool is closed: what descriptors name must not be cut off with the file's free tail.
//! pmwcas.finish(&guard)?;
//! # Ok::<(), everleaf_engines::Error>(())
//! ```
//!
//! `examples/pmwcas.rs` of this crate is a longer one, in a file: entries that are reserved, memory
//! that is recycled, recovery.
//!
//! ## The protocol
//!
//! 1. The descriptor is written (`layout`) and flushed: words, expected and desired values,
//!    *undecided*. **Fence 1.**
//! 2. *Phase 1.* In the order of their offsets each word gets the descriptor's name in place of the
//!    expected value, by an RDCSS: a conditional name first, then, if the operation is still
//!    undecided, the name. All words are flushed. **Fence 2.**
//! 3. The status becomes *succeeded*, or *failed* where a word was not as expected, by one
//!    compare-and-swap. Success is flushed. **Fence 3**: the commit point.
//! 4. *Phase 2.* Each word that holds the name gets the desired value, or the expected one back.
//!
//! A writer that finds a name in a word first *helps*: it goes through the same steps, with fences
//! of its own. A reader takes the value from the descriptor: the old one, or the new one after a
//! fence for the success. So a thread that stops for ever delays no other thread, as long as
//! writers find a free slot.
//!
//! ## Why three fences, whatever the number of words, and why no fewer
//!
//! | ordered before | what | otherwise |
//! | --- | --- | --- |
//! | fence 1 | the descriptor, before any word holds its name | a crash finds a name and not the value that it replaced |
//! | fence 2 | all names together, before success | a crash finds success and a word with its old value: it cannot tell whether the word never had the desired value or has lost it since |
//! | fence 3 | success, before any desired value | a crash finds one desired value and rolls the others back, or a reader has seen a value that is then taken back |
//!
//! The fences are shared: what the caller flushed before (a record, a new node) is ordered by fence
//! 1, all names by fence 2, and with them what lies in their lines. A failure needs no third fence,
//! for undecided and failed both roll back. `tests/pmwcas.rs` counts them; the crash explorer finds
//! a lost word for each one that is left out.
//!
//! *The final values need no fence.* As long as the final value of a word is not durable, the word
//! in the pool holds the name of a descriptor that is durably decided, and recovery gives the word
//! its final value. So readers may use the value at once. (The paper sets a dirty bit, and the next
//! reader flushes the word, because it reuses descriptors before their words are durable.) The
//! descriptor must wait instead: fence 1 of the second next operation of the slot makes its words
//! durable, fence 2 of that operation its status *free*, and only then is it filled again. So a
//! slot has two descriptors.
//!
//! *The dirty bit* is for media whose fence orders writes but does not make them durable
//! ([`Medium::LATE`]). There a value is visible after fence 3, and a crash can still undo it.
//!
//! - The value stays dirty until a reader finds that it is durable: that reader clears the bit.
//! - A reader that answers from the value takes it with [`Pmwcas::observe`] and waits with
//!   [`Pmwcas::settle`] for its commit (`seen`). An operation that merely expects the value need
//!   not wait: it is ordered after it.
//! - On other media no word is ever dirty.
//! - A value must not recur in a word before the operation that wrote it has returned and no pinned
//!   thread has seen it; otherwise the bit is cleared too early. Counters and offsets retired by
//!   epoch do not recur. A word whose values recur may be changed together with a word whose values
//!   do not, if readers read both.
//!
//! ## Memory of words
//!
//! Words may lie in memory that is retired and reused, as the nodes of a tree are. Two rules make
//! that safe.
//!
//! *Before memory is retired*, an operation changes for good a word in it that every operation on
//! this memory names: a status. Then a helper may follow a descriptor into such memory, even if the
//! helper was pinned after the memory was retired:
//!
//! 1. Before it writes a word, it sees all words as expected while the operation is undecided.
//! 2. While the operation is undecided its owner is pinned, so the memory was not reused.
//! 3. The status is as expected, so the memory was not retired yet, and from here on the helper's
//!    own pin keeps it.
//!
//! If a word is not as expected the operation fails. Of a decided operation a helper completes only
//! the word where it found the name.
//!
//! *Before memory is reused*, no descriptor may name words in it, or recovery would mistake other
//! content for its name. A descriptor keeps its content until the slot fills it again, which may
//! never happen. So the thread that frees such memory first waits until no thread can read it, and
//! then clears the descriptors ([`Pmwcas::leftovers`], [`Pmwcas::clear_leftovers`]).
//! [`Recycling::FreeOne`] does not do this: its default callback is for memory without words of
//! PMwCAS.
//!
//! ## Reusing descriptors
//!
//! Descriptors are protected by hazard pointers, not by epochs (`slots`): a helper announces the
//! descriptor that it reads. So a reader that stays pinned for long does not keep descriptors from
//! being reused. If a thread panics during an operation, its descriptor stays as it is until the
//! next open: helpers complete the operation, the slot goes on with its other descriptor at the
//! cost of more fences, and memory that waits for descriptors to be cleared waits until that open.
//!
//! ## Recovery
//!
//! [`Pmwcas::open`] validates every descriptor, rolls successful operations forward and the others
//! back, changes only words that still hold the descriptor's name, and then frees the descriptors.
//! A crash may interrupt it anywhere. A descriptor that no crash can leave is refused by name and
//! never followed: its status or its words fail their check, or a word is named twice, lies outside
//! the pool or holds more than 61 bits. An undecided descriptor that fails its check was being
//! filled if one of its lines says so (`layout`), and then no word holds its name; otherwise it is
//! damaged.
//!
//! O(descriptors): 126 of them, four lines each, take microseconds.

mod execute;
mod layout;
#[cfg(all(test, loom))]
mod loom_tests;
mod recover;
mod seen;
mod slots;
mod word;

use medium::sync::Ordering;
use medium::{Lsn, Medium, Word};
use pool::Guard;
use smallvec::SmallVec;

use crate::{Error, ErrorKind, Result};

use layout::{DESCRIPTOR_BYTES, DescriptorNode, TargetWord};
use seen::Commits;
use slots::{DESCRIPTORS_PER_SLOT, DescriptorSlots};
use word::{DESCRIPTORS_MAX, SLOTS_MAX};

#[cfg(all(test, not(loom)))]
pub(crate) use recover::tests::plant;
pub use seen::Seen;
pub use slots::Leftovers;
pub use word::{CONDITIONAL, DESCRIPTOR, DIRTY, VALUE_MASK, is_name};

/// The most words of one operation.
pub const WORDS_MAX: usize = 8;

const _: () = assert!(SLOTS_MAX * DESCRIPTORS_PER_SLOT <= DESCRIPTORS_MAX);

/// A pool of descriptors at a known place, and the volatile state for executing them.
#[derive(Debug)]
pub struct Pmwcas {
    /// Where the descriptors lie.
    place: u64,
    slots: DescriptorSlots,
    commits: Commits,
    /// Whether each descriptor was found whole.
    is_recovered: bool,
}

/// Counts since the descriptors were opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PmwcasStat {
    /// Operations executed.
    pub attempts: u64,
    /// The words of all of these operations together.
    pub words: u64,
    /// Operations that failed because a word was not as expected.
    pub failures: u64,
    /// Operations of other threads that were helped.
    pub helps: u64,
}

/// Why an operation cannot be executed, or a word cannot be part of it. As an [`Error`] it is
/// [`ErrorKind::BadOperation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadTarget {
    /// The operation already has the most words that it can have.
    #[error("an operation has at most {WORDS_MAX} words")]
    TooMany,
    /// The word is already part of the operation.
    #[error("the word at offset {0:#x} is named twice")]
    Twice(u64),
    /// The word is not part of the operation.
    #[error("the word at offset {0:#x} is not part of the operation")]
    Unknown(u64),
    /// A value needs more than 61 bits.
    #[error("{0:#x} has more than 61 bits; the other three belong to PMwCAS")]
    TooWide(u64),
    /// The word was reserved, and its desired value never came.
    #[error("the word at offset {0:#x} was reserved and never filled")]
    Unfilled(u64),
    /// The operation has no words.
    #[error("an operation without words")]
    Empty,
}

/// Whether a word could be named.
pub type Named = std::result::Result<(), BadTarget>;

impl From<BadTarget> for Error {
    fn from(bad: BadTarget) -> Self {
        ErrorKind::BadOperation {
            what: bad.to_string(),
        }
        .into()
    }
}

/// How the memory that a word's values lead to is recycled. A crash needs no recycling: memory that
/// no tree reaches is free after the mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recycling {
    /// The values lead to nothing.
    None,
    /// On success the expected value's memory is retired, on failure the desired value's is freed.
    /// Neither if the two are equal: then the memory stays in use.
    FreeOne,
}

/// Memory to be recycled after an operation, as a finalise callback gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recycled {
    /// The value was replaced: other threads may still read what it leads to.
    Replaced(u64),
    /// The value was never seen by another thread.
    Unused(u64),
}

/// The default callback: values are offsets, of allocations that are aligned to 16, with tags in
/// their low four bits; 0 leads to nothing.
fn recycle_offset<M: Medium>(guard: &Guard<'_, M>, recycled: Recycled) {
    match recycled {
        Recycled::Replaced(value) | Recycled::Unused(value) if value & !15 == 0 => {}
        Recycled::Replaced(value) => guard.retire(value & !15),
        Recycled::Unused(value) => guard.free(value & !15),
    }
}

/// Words and their values, see [`Descriptor::attempt_carrying`].
pub type Carried<'c> = &'c [(&'c Word, u64)];
/// The words of an operation, as its descriptor names them.
type Targets = SmallVec<[TargetWord; WORDS_MAX]>;
/// The words of an operation, found in the pool.
type Swaps<'g> = SmallVec<[Swap<'g>; WORDS_MAX]>;

/// A word of an operation, found in the pool.
#[derive(Clone, Copy, Debug)]
struct Swap<'g> {
    cell: &'g Word,
    target: TargetWord,
}

/// An operation that succeeded: other threads see its words changed, and memory that these lead to
/// must stay. It is durable after [`Commit::wait`].
#[must_use = "not durable before it was waited for"]
#[derive(Debug)]
pub struct Commit {
    lsn: Lsn,
}

impl Commit {
    /// The LSN at which the operation is durable.
    #[inline(always)]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Waits until the operation is durable. Does nothing on media whose fences make durable.
    ///
    /// # Errors
    /// [`ErrorKind::Medium`]: the medium failed. The words stay as they are; a crash may bring the
    /// old values back.
    #[inline]
    #[track_caller]
    pub fn wait<M: Medium>(self, guard: &Guard<'_, M>) -> Result<()> {
        guard.wait_for(self.lsn)
    }
}

impl Pmwcas {
    /// Bytes that `slots` slots take in the pool: two descriptors of 256 bytes for each operation
    /// that may be under way at the same time (more wait for a slot).
    pub const fn bytes(slots: usize) -> usize {
        slots * DESCRIPTORS_PER_SLOT * DESCRIPTOR_BYTES
    }

    /// The most slots.
    pub const SLOTS_MAX: usize = SLOTS_MAX;

    /// An operation without words yet. Costs nothing before it is executed.
    pub fn allocate(&self) -> Descriptor<'_> {
        Descriptor {
            pmwcas: self,
            swaps: Swaps::new(),
            recycled: 0,
        }
    }

    /// The content of a word that takes part in operations, with its [`DIRTY`] bit. If an operation
    /// is under way there, this is its expected value until it has succeeded, then its desired
    /// value. Helps no operation and waits for no thread.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the word names a descriptor that does not name it.
    #[inline(always)]
    pub fn read<M: Medium>(&self, guard: &Guard<'_, M>, cell: &Word) -> Result<u64> {
        let raw = cell.load(guard);
        if is_name(raw) {
            self.read_through(guard, cell)
        } else {
            Ok(raw)
        }
    }

    /// The content of a word, for a caller that is about to change it: helps an operation that is
    /// under way there, and returns the content afterwards. See [`Pmwcas::read`].
    #[inline(always)]
    pub fn read_helping<M: Medium>(&self, guard: &Guard<'_, M>, cell: &Word) -> Result<u64> {
        let raw = cell.load(guard);
        if is_name(raw) {
            self.clear(guard, cell)
        } else {
            Ok(raw)
        }
    }

    /// The value of a word, as [`Pmwcas::read`] finds it, for a caller that returns an answer based
    /// on it. Notes the value's commit in `seen`, for which the caller must first wait with
    /// [`Pmwcas::settle`].
    #[inline(always)]
    pub fn observe<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        cell: &Word,
        seen: &mut Seen,
    ) -> Result<u64> {
        Ok(seen.note(
            guard,
            &self.commits,
            || guard.offset_of(cell),
            self.read(guard, cell)?,
        ))
    }

    /// Figures. O(slots).
    pub fn stat(&self) -> PmwcasStat {
        let mut stat = PmwcasStat::default();
        for slot in self.slots.all() {
            for (words, attempts) in (0..).zip(&slot.counters.attempts) {
                let attempts = attempts.load(Ordering::Relaxed);
                stat.attempts += attempts;
                stat.words += words * attempts;
            }
            stat.failures += slot.counters.failures.load(Ordering::Relaxed);
            stat.helps += slot.counters.helps.load(Ordering::Relaxed);
        }
        stat
    }

    /// Bytes of memory outside of the pool.
    pub fn volatile_bytes(&self) -> u64 {
        (size_of::<Self>() + self.slots.bytes() + self.commits.bytes()) as u64
    }

    fn descriptors(&self) -> usize {
        self.slots.len() * DESCRIPTORS_PER_SLOT
    }

    fn node<'g, M: Medium>(
        &self,
        guard: &'g Guard<'_, M>,
        index: usize,
    ) -> Result<&'g DescriptorNode> {
        Ok(guard.node::<DescriptorNode>(self.place + (index * DESCRIPTOR_BYTES) as u64)?)
    }
}

/// An operation that is being put together. It has no effect before it is executed, and none if it
/// is dropped.
#[derive(Debug)]
#[must_use = "an operation does nothing until it is executed"]
pub struct Descriptor<'p> {
    pmwcas: &'p Pmwcas,
    /// The words, in ascending order of offsets.
    swaps: Swaps<'p>,
    /// One bit for each word, set if its policy is [`Recycling::FreeOne`].
    recycled: u32,
}

/// The desired value of an entry that was reserved and not filled.
const UNFILLED: u64 = u64::MAX;

impl<'p> Descriptor<'p> {
    /// Names a word to be changed from `expected` to `desired`, or, where these are equal, to be as
    /// expected.
    ///
    /// # Errors
    /// [`BadTarget`]: the word is named already, there are eight, or a value has more than 61 bits.
    #[inline]
    pub fn add_word<M: Medium>(
        &mut self,
        guard: &Guard<'_, M>,
        cell: &'p Word,
        expected: u64,
        desired: u64,
    ) -> Named {
        self.add_recycling(guard, cell, expected, desired, Recycling::None)
    }

    /// Names a word, as [`Descriptor::add_word`] does, whose values lead to memory. The operation
    /// owns that memory from now on.
    #[inline]
    pub fn add_recycling<M: Medium>(
        &mut self,
        guard: &Guard<'_, M>,
        cell: &'p Word,
        expected: u64,
        desired: u64,
        recycling: Recycling,
    ) -> Named {
        if (expected | desired) & !VALUE_MASK != 0 {
            let wide = if expected & !VALUE_MASK != 0 {
                expected
            } else {
                desired
            };
            return Err(BadTarget::TooWide(wide));
        }
        let target = TargetWord {
            offset: guard.offset_of(cell),
            old: expected,
            new: desired,
        };
        self.insert(Swap { cell, target }, recycling)
    }

    /// Names a word whose desired value comes later, by [`Descriptor::fill_entry`].
    pub fn reserve_entry<M: Medium>(
        &mut self,
        guard: &Guard<'_, M>,
        cell: &'p Word,
        expected: u64,
        recycling: Recycling,
    ) -> Named {
        if expected & !VALUE_MASK != 0 {
            return Err(BadTarget::TooWide(expected));
        }
        let target = TargetWord {
            offset: guard.offset_of(cell),
            old: expected,
            new: UNFILLED,
        };
        self.insert(Swap { cell, target }, recycling)
    }

    /// Gives a reserved entry its desired value.
    pub fn fill_entry<M: Medium>(
        &mut self,
        guard: &Guard<'_, M>,
        cell: &Word,
        desired: u64,
    ) -> Named {
        if desired & !VALUE_MASK != 0 {
            return Err(BadTarget::TooWide(desired));
        }
        let offset = guard.offset_of(cell);
        let position = self
            .position(offset)
            .map_err(|_| BadTarget::Unknown(offset))?;
        self.swaps[position].target.new = desired;
        Ok(())
    }

    /// Removes a word; its desired value's memory belongs to the caller again.
    pub fn remove_word<M: Medium>(&mut self, guard: &Guard<'_, M>, cell: &Word) -> Named {
        let offset = guard.offset_of(cell);
        let position = self
            .position(offset)
            .map_err(|_| BadTarget::Unknown(offset))?;
        self.swaps.remove(position);
        let below = (1 << position) - 1;
        self.recycled = self.recycled & below | self.recycled >> 1 & !below;
        Ok(())
    }

    fn position(&self, offset: u64) -> std::result::Result<usize, usize> {
        self.swaps
            .binary_search_by_key(&offset, |swap| swap.target.offset)
    }

    #[inline]
    fn insert(&mut self, swap: Swap<'p>, recycling: Recycling) -> Named {
        let offset = swap.target.offset;
        let position = match self.swaps.last() {
            Some(last) if last.target.offset >= offset => match self.position(offset) {
                Ok(_) => return Err(BadTarget::Twice(offset)),
                Err(position) => position,
            },
            // The usual case: words are named in ascending order.
            _ => self.swaps.len(),
        };
        if self.swaps.len() == WORDS_MAX {
            return Err(BadTarget::TooMany);
        }
        if position == self.swaps.len() {
            self.swaps.push(swap);
        } else {
            self.swaps.insert(position, swap);
        }
        let below = (1 << position) - 1;
        let bit = u32::from(recycling == Recycling::FreeOne) << position;
        self.recycled = self.recycled & below | bit | (self.recycled & !below) << 1;
        Ok(())
    }

    /// Executes the operation. If all words are as expected, changes them all durably and returns
    /// `true`; otherwise changes none and returns `false`. Recycles memory by the words' policies,
    /// with their values as offsets.
    ///
    /// Everything that this guard flushed before is durable before any word changes. When this
    /// returns, success is durable or, after a failure, the values that it found are durable. The
    /// guard must have been pinned ([`pool::Pool::pin`], not `peek`) before the words were reached:
    /// the pin keeps their memory, for this thread and for threads that help it.
    ///
    /// # Errors
    /// No word changed if it is [`ErrorKind::BadOperation`], for an operation without words or a
    /// reserved entry that was not filled, or [`ErrorKind::Corrupt`], for a word in the way that
    /// names a descriptor wrongly. [`ErrorKind::Medium`] if the medium failed: the words may have
    /// changed for other threads.
    pub fn execute<M: Medium>(self, guard: &Guard<'_, M>) -> Result<bool> {
        self.execute_with(guard, |recycled| recycle_offset(guard, recycled))
    }

    /// Does the same as [`Descriptor::execute`], with a callback that recycles memory in place of
    /// the default one. It is called once for each word with the policy [`Recycling::FreeOne`]
    /// whose two values differ.
    pub fn execute_with<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        finalise: impl FnMut(Recycled),
    ) -> Result<bool> {
        let pmwcas = self.pmwcas;
        let mut cells: SmallVec<[&Word; WORDS_MAX]> = SmallVec::new();
        if M::LATE {
            cells.extend(self.swaps.iter().map(|swap| swap.cell));
        }
        if let Some(commit) = self.attempt_with(guard, &[], finalise)? {
            commit.wait(guard)?;
            return Ok(true);
        }
        // A failure is an answer, too: the values that it rests on must be durable.
        let mut seen = Seen::default();
        cells
            .into_iter()
            .try_for_each(|cell| pmwcas.observe(guard, cell, &mut seen).map(|_| ()))?;
        pmwcas.settle(guard, &seen)?;
        Ok(false)
    }

    /// Does the same as [`Descriptor::execute`], but does not wait until the outcome is durable. It
    /// is for callers that read again after a failure, and that own memory which a success makes
    /// reachable.
    ///
    /// # Errors
    /// After any error no word has changed.
    pub fn attempt<M: Medium>(self, guard: &Guard<'_, M>) -> Result<Option<Commit>> {
        self.attempt_carrying(guard, &[])
    }

    /// Does the same as [`Descriptor::attempt`], and also gives other words the values `carried`,
    /// which are durable before success is. They come in ascending order of their offsets, none of
    /// them takes part in the operation, and no thread may read them before it has succeeded. After
    /// a failure they may have the values. They take no fence of their own.
    ///
    /// This is faster than stores and a flush by the caller: the processor would wait for them at
    /// the next locked instruction, and for the fence again.
    pub fn attempt_carrying<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        carried: Carried<'_>,
    ) -> Result<Option<Commit>> {
        self.attempt_with(guard, carried, |recycled| recycle_offset(guard, recycled))
    }

    /// Does the same as [`Descriptor::attempt_carrying`], with a callback in place of the default
    /// one: see [`Descriptor::execute_with`].
    pub fn attempt_with<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        carried: Carried<'_>,
        mut finalise: impl FnMut(Recycled),
    ) -> Result<Option<Commit>> {
        debug_assert!(
            guard.is_pinned(),
            "the pin keeps the words' memory for threads that help"
        );
        let done = match self.swaps.iter().find(|swap| swap.target.new == UNFILLED) {
            Some(unfilled) => Err(BadTarget::Unfilled(unfilled.target.offset).into()),
            None if self.swaps.is_empty() => Err(BadTarget::Empty.into()),
            None => self.pmwcas.run(guard, &self.swaps, carried),
        };
        if let Ok(Some(lsn)) = done {
            self.recycled()
                .for_each(|target| finalise(Recycled::Replaced(target.old)));
            return Ok(Some(Commit { lsn }));
        }
        self.discard_with(finalise);
        done.map(|_| None)
    }

    /// Gives the operation up: no word changes, and the memory of desired values is freed as after
    /// a failure.
    pub fn discard<M: Medium>(self, guard: &Guard<'_, M>) {
        self.discard_with(|recycled| recycle_offset(guard, recycled));
    }

    /// Does the same as [`Descriptor::discard`], with a callback in place of the default one.
    pub fn discard_with(self, mut finalise: impl FnMut(Recycled)) {
        let filled = self.recycled().filter(|target| target.new != UNFILLED);
        filled.for_each(|target| finalise(Recycled::Unused(target.new)));
    }

    /// The words that have memory to be recycled.
    fn recycled(&self) -> impl Iterator<Item = &TargetWord> {
        let bits = self.recycled;
        let positions =
            (0..u32::BITS - bits.leading_zeros()).filter(move |position| bits >> position & 1 != 0);
        let targets = positions.map(|position| &self.swaps[position as usize].target);
        targets.filter(|target| target.old != target.new)
    }
}
