//! The trait that every medium implements.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use crate::line_store::LineValue;
use crate::{Extent, MediumError, kernels};

/// A position in the order of durability (log sequence number). On media where a fence is itself
/// durable every LSN is [`Lsn::DURABLE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The position of everything that is durable already.
    pub const DURABLE: Self = Self(0);
}

/// How a failure-atomic line lies in memory; a pool keeps the form it was made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineForm {
    /// One copy, written by one store that the hardware or the medium keeps whole.
    Single,
    /// Two self-validating copies, the second in the 64 bytes before the first; the newest sound
    /// one wins.
    Twin,
}

/// The failures that a medium's promises survive. Ordered: more is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Survives {
    /// Nothing: plain memory of this process.
    Nothing,
    /// The death of the process, not of the machine (a file in memory, or a mapping that is never
    /// synced).
    ProcessCrash,
    /// Loss of power.
    PowerLoss,
}

/// Where bytes become durable.
///
/// Engines are generic over a medium and are compiled for each, so hardware pays nothing for the
/// simulator. Ordering ([`Medium::fence`]) and durability ([`Medium::wait`]) are different calls:
/// on a file ordering is free and durability costs an fsync.
///
/// # Safety
/// [`Medium::extent`] always returns the same extent, whose memory obeys the contract of
/// [`Extent::new`], and stays mapped at least as long as the medium lives.
pub unsafe trait Medium: Send + Sync + 'static {
    /// The lines that one thread flushed since its last fence, for media that collect them.
    type Notes: Default;

    /// Whether an LSN may become durable later than its fence returns.
    const LATE: bool;

    /// Whether loads may bypass the medium (kernels then read memory directly).
    const DIRECT: bool;

    /// Whether a scheduler may decide in which order threads go on: accesses to
    /// [`Atomic`](crate::sync::Atomic)s of this medium ask for one.
    const SCHEDULED: bool = false;

    /// The memory.
    fn extent(&self) -> &Extent;

    /// Makes at least `length` bytes accessible; the new part reads as zero.
    fn grow(&self, length: u64) -> Result<(), MediumError>;

    /// Gives back the memory beyond `length` bytes, once no thread reads it.
    fn shrink(&mut self, length: u64) -> Result<(), MediumError>;

    /// Gives back the room on the disk that whole units of [`RELEASE_BYTES`](crate::RELEASE_BYTES) take, which nothing in
    /// memory or in the pool leads to. What led there was fenced away: it is done once all fences
    /// before are durable, or later, or never. What the units hold is arbitrary from now on.
    fn release(&self, start: u64, bytes: u64) {
        let _ = (start, bytes);
    }

    /// Makes sure that units which were released have room on the disk. To be called before a store
    /// to them.
    ///
    /// # Errors
    /// [`MediumError::Full`] if the disk has none. They stay released.
    fn reserve(&self, start: u64, bytes: u64) -> Result<(), MediumError> {
        let _ = (start, bytes);
        Ok(())
    }

    /// Whether the unit at `offset` is known to have no room on the disk. It is not to be accessed:
    /// on a full disk even a load may end the process. What such a unit held when it was last
    /// durable is gone, so nothing durable leads there.
    fn is_hole(&self, offset: u64) -> bool {
        let _ = offset;
        false
    }

    /// Gives back now what was released, and what lies beyond `length` bytes. Nothing leads there,
    /// durably; a thread that reads there nevertheless finds arbitrary values. Media without a file
    /// may keep their length.
    fn cut(&self, length: u64) -> Result<(), MediumError> {
        let _ = length;
        Ok(())
    }

    /// The form in which lines are stored on this medium.
    fn line_form(&self) -> LineForm;

    /// Whether nothing is ever durable: flushes and fences do nothing, and a log of changes would
    /// never be read.
    #[inline(always)]
    fn is_volatile(&self) -> bool {
        false
    }

    /// Atomic load with acquire ordering.
    #[inline(always)]
    fn load(&self, word: &AtomicU64) -> u64 {
        word.load(Ordering::Acquire)
    }

    /// Atomic store with release ordering.
    #[inline(always)]
    #[track_caller]
    fn store(&self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
    }

    /// Gives a [`VolatileWord`](crate::VolatileWord) its first value, with release ordering.
    #[inline(always)]
    #[track_caller]
    fn start_volatile(&self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
    }

    /// Stores to a [`VolatileWord`](crate::VolatileWord) that was started.
    #[inline(always)]
    fn store_volatile(&self, word: &AtomicU64, value: u64, order: Ordering) {
        word.store(value, order);
    }

    /// Compare-and-exchange of a [`VolatileWord`](crate::VolatileWord) that was started: replaces
    /// the first value by the second; relaxed on failure.
    #[inline(always)]
    fn compare_exchange_volatile(
        &self,
        word: &AtomicU64,
        [current, new]: [u64; 2],
        success: Ordering,
    ) -> Result<u64, u64> {
        word.compare_exchange(current, new, success, Ordering::Relaxed)
    }

    /// Atomic compare-and-exchange; `Err` holds the value that was found.
    #[inline(always)]
    #[track_caller]
    fn compare_exchange(&self, word: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    /// A failure-atomic store of one line in [`LineForm::Single`], written back as
    /// [`Medium::flush`] does. Not visible in order to other threads before the next fence. After
    /// an error the line has its old value.
    #[track_caller]
    fn store_line(
        &self,
        notes: &Self::Notes,
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError>;

    /// Stores a copy of a line in [`LineForm::Twin`], which a crash may tear in any way, and asks
    /// that it be written back. Not visible in order to other threads before the next fence.
    #[inline(always)]
    #[track_caller]
    fn store_copy(&self, notes: &Self::Notes, copy: &[AtomicU64; 8], value: &LineValue) {
        for (word, value) in copy.iter().zip(value.0) {
            self.store(word, value);
        }
        self.flush(notes, copy);
    }

    /// Asks that the lines which hold `memory` be written back; does not wait.
    #[track_caller]
    fn flush(&self, notes: &Self::Notes, memory: &[AtomicU64]);

    /// Everything this thread flushed before is durable before anything it flushes after.
    #[track_caller]
    fn fence(&self, notes: &Self::Notes) -> Lsn;

    /// A [`Medium::fence`] for stores that need not become durable before something else does, such
    /// as the note that a pool is open: if they are lost, nothing is. A medium that becomes durable
    /// late may leave them until an ordinary fence follows. Waits for their LSN return at once until
    /// then.
    #[inline(always)]
    #[track_caller]
    fn fence_at_rest(&self, notes: &Self::Notes) -> Lsn {
        self.fence(notes)
    }

    /// Whether nothing was fenced since the medium was opened but what [`Medium::fence_at_rest`]
    /// has fenced, and none of it is durable: the file is as it was before.
    fn is_at_rest(&self) -> bool {
        false
    }

    /// How far the medium has got.
    #[inline(always)]
    fn durable(&self) -> Lsn {
        Lsn::DURABLE
    }

    /// Waits until `durable() >= lsn`, but not for an LSN of [`Medium::fence_at_rest`] that nothing
    /// follows.
    #[inline(always)]
    #[track_caller]
    fn wait(&self, lsn: Lsn) -> Result<(), MediumError> {
        let _ = lsn;
        Ok(())
    }

    /// Leaves the wait for `lsn` to the caller of the running operation: returns `lsn`. A recording
    /// medium notes the place of the call, and can plant the fault that the caller forgets this
    /// LSN.
    #[inline(always)]
    #[track_caller]
    fn left_to_caller(&self, lsn: Lsn) -> Lsn {
        lsn
    }

    /// Has `waker` called once everything up to `lsn` is durable, or the medium has failed. Returns
    /// `false`, and calls nobody, if it is durable already. A medium that becomes durable late, and
    /// has no thread of its own to call `waker`, waits instead.
    fn wake_when_durable(&self, lsn: Lsn, waker: &Waker) -> Result<bool, MediumError> {
        let _ = waker;
        if self.durable() < lsn {
            self.wait(lsn)?;
        }
        Ok(false)
    }

    /// For an operation that returns before `lsn` is durable: slows the caller down only if the
    /// medium is far behind. The caller holds no lock, as in [`Medium::wait`].
    fn keep_up(&self, lsn: Lsn) -> Result<(), MediumError> {
        let _ = lsn;
        Ok(())
    }

    /// Waits until everything up to `lsn` is durable, also where [`Medium::wait`] returns earlier
    /// because the durability of operations is put off ([`Durability`](crate::Durability)).
    #[track_caller]
    fn settle(&self, lsn: Lsn) -> Result<(), MediumError> {
        self.wait(lsn)
    }

    /// Does the same as [`Medium::settle`], but wakes no task: for a caller that holds a lock which a
    /// waker could need. It calls [`Medium::settle`] once it holds the lock no more, which wakes the
    /// tasks.
    #[track_caller]
    fn settle_without_waking(&self, lsn: Lsn) -> Result<(), MediumError> {
        self.settle(lsn)
    }

    /// Waits while written pages take more memory than is allowed. The caller holds no lock that a
    /// writer needs.
    ///
    /// # Errors
    /// [`MediumError::Failed`] after a failure.
    #[inline(always)]
    fn await_memory(&self) -> Result<(), MediumError> {
        Ok(())
    }

    /// Whether a write may begin.
    ///
    /// # Errors
    /// [`MediumError::Failed`] after a failure.
    #[inline(always)]
    fn admit(&self) -> Result<(), MediumError> {
        Ok(())
    }

    /// Whether a pool can be closed cleanly. Called before anything is written for that.
    ///
    /// # Errors
    /// [`MediumError::Displaced`] if its file has lost its name. The pool is as it was.
    fn prepare_finish(&self) -> Result<(), MediumError> {
        Ok(())
    }

    /// Ends a pool that is closed cleanly, and of which everything is flushed and fenced. Nothing
    /// is written after this.
    ///
    /// # Errors
    /// [`MediumError::Failed`] if the disk failed, now or before; [`MediumError::Log`] if the
    /// system refuses.
    fn finish(&self) -> Result<(), MediumError> {
        Ok(())
    }

    /// The failures that its promises survive.
    fn survives(&self) -> Survives;

    /// One line for people: the medium, its instructions, what it does not survive.
    fn describe(&self) -> String;

    /// Which of up to 64 entries (pairs of key word and value word) have a key below `key`, and
    /// which have it. Bit i of the masks stands for entry i.
    #[inline(always)]
    fn compare_entries(&self, entries: &[[AtomicU64; 2]], key: u64) -> (u64, u64) {
        if Self::DIRECT {
            return kernels::compare_entries(entries, key);
        }
        compare(entries.iter().map(|entry| self.load(&entry[0])), key)
    }

    /// Which of 64 bytes equal `byte`: bit i stands for byte i.
    #[inline(always)]
    fn match_byte(&self, line: &[AtomicU64; 8], byte: u8) -> u64 {
        // Under `loom` pool memory is not modelled, and the kernels of `loom` take its own atomics.
        #[cfg(not(loom))]
        if Self::DIRECT {
            return kernels::match_byte(line, byte);
        }
        let bytes = line.iter().flat_map(|word| self.load(word).to_le_bytes());
        bytes.enumerate().fold(0, |mask, (index, found)| {
            mask | u64::from(found == byte) << index
        })
    }

    /// How many of the first `count` keys, at most 32, are less than or equal to `key`.
    #[inline(always)]
    fn rank_le(&self, keys: &[AtomicU64; 32], count: usize, key: u64) -> usize {
        // Under `loom` pool memory is not modelled, and the kernels of `loom` take its own atomics.
        #[cfg(not(loom))]
        if Self::DIRECT {
            return kernels::rank_le(keys, count, key);
        }
        keys.iter()
            .take(count)
            .filter(|word| self.load(word) <= key)
            .count()
    }

    /// Which of up to 16 words are below `key`, and which equal it. Bit i of the masks stands for
    /// word i.
    #[inline(always)]
    fn compare_words(&self, words: &[AtomicU64], key: u64) -> (u32, u32) {
        if Self::DIRECT {
            return kernels::compare_words(words, key);
        }
        let (below, equal) = compare(words.iter().map(|word| self.load(word)), key);
        (below as u32, equal as u32)
    }

    /// The value of a line, as eight loads.
    #[inline(always)]
    fn load_line(&self, line: &[AtomicU64; 8]) -> LineValue {
        if Self::DIRECT {
            return kernels::load_line(line);
        }
        LineValue(std::array::from_fn(|index| self.load(&line[index])))
    }
}

/// Which of up to 64 words are below `key`, and which equal it.
fn compare(words: impl Iterator<Item = u64>, key: u64) -> (u64, u64) {
    words
        .enumerate()
        .fold((0, 0), |(below, equal), (index, word)| {
            (
                below | u64::from(word < key) << index,
                equal | u64::from(word == key) << index,
            )
        })
}
