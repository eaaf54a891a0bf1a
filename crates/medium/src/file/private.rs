//! The memory that written pages take, and how it is given back.
//!
//! A page of the pool that a thread stores to becomes *private*: the system keeps it in memory, and
//! never writes it to the file. Without a limit it stays so until the pool is closed. With a limit,
//! pages are *given back*: they show the file again, and take no memory that the system could not
//! take back. That begins when the pool gets larger than half of the limit. The pages that it had
//! before stay private.
//!
//! A page is given back only if no store is lost by it:
//!
//! 1. The last frame with a line of the page is checkpointed. Otherwise a later checkpoint could
//!    write an older content of a line, which would then show. Condition 2 alone is not enough,
//!    because values recur.
//! 2. Page and file are equal.
//!
//! The thread that gives pages back holds off checkpoints, so the file does not change, and reads
//! the page of the file. Then it takes the lock under which frames are appended and the locks of
//! the page's lines, without which no thread stores. Under these locks it checks condition 1 again,
//! compares the page with the file, and gives it back.
//!
//! A page whose last frame is checkpointed and that still differs has lines which were stored to
//! and not flushed. They are appended to the log, and the page is given back after the next
//! checkpoint. That is safe for every tree: any line may become durable at any time
//! (docs/PERSISTENCY.md).
//!
//! When three quarters of the limit are private, a thread in the background syncs, checkpoints and
//! gives pages back. Beyond the limit, writers wait for it where they hold no lock of a tree. After
//! a failure of the medium nothing is given back.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};

use super::Core;
use super::layout::{FRAME_LINES_MAX, LENGTH};
use super::pages::{PAGE_BYTES, PAGE_LINES};
use crate::io::read_all;
use crate::mapping::{expect_random_loads, show_file};
use crate::testing::mutant::Mutant;
use crate::{LINE_BYTES, LineValue, MediumError};

/// Pages that have an entry in the first chunk of the table. The second chunk has as many; each
/// later one as many as all chunks before it together.
const FIRST_CHUNK_PAGES: u64 = 1 << 9;
/// Chunks of the table: enough for 2^34 pages, which are 64 TiB.
const CHUNKS: usize = 26;
/// The lowest bit of an entry of the table: whether the page is private. The bits above are one
/// more than the position where the last frame with a line of the page begins; 0 if there was none.
const PRIVATE: u64 = 1;
/// How often a writer waits for pages to be given back, before it goes on nevertheless.
const ROUNDS_MAX: u64 = 4;
/// How long a writer waits before it checks whether the medium has failed.
const PATIENCE: Duration = Duration::from_millis(100);

type Chunk = OnceLock<Box<[AtomicU64]>>;

/// The number of the chunk with the entry of this page.
#[inline(always)]
fn chunk_of(page: u64) -> usize {
    (page / FIRST_CHUNK_PAGES)
        .checked_ilog2()
        .map_or(0, |log| log as usize + 1)
}

/// The page that the first entry of this chunk is for.
#[inline(always)]
fn first_page_of(chunk: usize) -> u64 {
    match chunk {
        0 => 0,
        _ => FIRST_CHUNK_PAGES << (chunk - 1),
    }
}

/// Entries of zero. A large chunk takes memory only where it is written.
fn new_chunk(chunk: usize) -> Box<[AtomicU64]> {
    let pages = first_page_of(chunk).max(FIRST_CHUNK_PAGES);
    let entries = Box::into_raw(vec![0_u64; pages as usize].into_boxed_slice());
    // SAFETY: an `AtomicU64` has the size and alignment of a `u64` here, and any value of one is a
    // value of the other.
    unsafe { Box::from_raw(entries as *mut [AtomicU64]) }
}

const _: () = assert!(align_of::<AtomicU64>() == align_of::<u64>());

/// The state of the pages of a pool.
#[derive(Debug)]
pub(super) struct Private {
    chunks: [Chunk; CHUNKS],
    /// The number of private pages.
    pages: CachePadded<AtomicU64>,
    pages_max: u64,
    /// Whether pages are given back. From then on each store notes its page.
    is_active: AtomicBool,
    /// The pages before this one stay private.
    first: AtomicU64,
    /// Whether a writer has asked for pages to be given back.
    is_due: AtomicBool,
    /// How often pages were given back.
    rounds: Mutex<u64>,
    round_ended: Condvar,
    given_back: AtomicU64,
}

impl Private {
    /// For a pool of which at most `bytes_max` bytes are to be private.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            chunks: [const { Chunk::new() }; CHUNKS],
            pages: CachePadded::default(),
            pages_max: bytes_max / PAGE_BYTES,
            is_active: AtomicBool::new(false),
            first: AtomicU64::new(0),
            is_due: AtomicBool::new(false),
            rounds: Mutex::default(),
            round_ended: Condvar::new(),
            given_back: AtomicU64::new(0),
        }
    }

    fn entry(&self, page: u64) -> Option<&AtomicU64> {
        let number = chunk_of(page);
        let chunk = self.chunks.get(number)?;
        let index = page - first_page_of(number);
        chunk.get_or_init(|| new_chunk(number)).get(index as usize)
    }

    /// Whether a pool of this length is to give pages back.
    pub(super) fn is_large(&self, length: u64) -> bool {
        // With larger pages the system would give back more than was compared.
        length / PAGE_BYTES > self.pages_max / 2 && rustix::param::page_size() as u64 == PAGE_BYTES
    }

    /// From now on, pages behind `length` bytes are given back. No thread stores there yet.
    pub(super) fn activate(&self, length: u64) {
        self.first
            .store(length.div_ceil(PAGE_BYTES), Ordering::Relaxed);
        // ORDER: a thread that stores to such a page sees this: it has the page's offset from a
        // load of a greater length.
        self.is_active.store(true, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// The pool has this length only.
    pub(super) fn cut(&self, length: u64) {
        let end = length.div_ceil(PAGE_BYTES);
        self.first.fetch_min(end, Ordering::Relaxed);
        self.noted(end).for_each(|page| self.forget(page));
    }

    /// The page that is about to be stored to is private.
    #[inline]
    pub(super) fn note_store(&self, page: u64) {
        let Some(entry) = self.entry(page) else {
            return;
        };
        if entry.load(Ordering::Relaxed) & PRIVATE == 0
            && entry.fetch_or(PRIVATE, Ordering::Relaxed) & PRIVATE == 0
        {
            self.pages.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A frame that begins at this position has a line of the page. The caller holds the lock under
    /// which frames are appended.
    #[inline]
    pub(super) fn note_append(&self, page: u64, position: u64) {
        let Some(entry) = self.entry(page) else {
            return;
        };
        let old = entry.load(Ordering::Relaxed);
        let new = (position + 1) << 1;
        if self.is_active() {
            // Stores note their pages, and may do so now: only the bits of the position change.
            entry.fetch_xor((old ^ new) & !PRIVATE, Ordering::Relaxed);
            return;
        }
        entry.store(new | PRIVATE, Ordering::Relaxed);
        if old & PRIVATE == 0 {
            self.pages.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether every frame with a line of the page begins before `start`.
    fn is_checkpointed(&self, page: u64, start: u64) -> bool {
        Mutant::EqualIsEnough.is_planted()
            || self
                .entry(page)
                .is_some_and(|entry| entry.load(Ordering::Relaxed) >> 1 <= start)
    }

    fn forget(&self, page: u64) {
        if let Some(entry) = self.entry(page)
            && entry.fetch_and(!PRIVATE, Ordering::Relaxed) & PRIVATE != 0
        {
            self.pages.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The private pages from this one on.
    fn noted(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        let chunks = self.chunks.iter().zip(0..).skip(chunk_of(from));
        let pages =
            chunks.filter_map(|(chunk, number)| Some((chunk.get()?, first_page_of(number))));
        let pages = pages.flat_map(|(chunk, first)| chunk.iter().zip(first..));
        let noted = pages.filter(|(entry, _)| entry.load(Ordering::Relaxed) & PRIVATE != 0);
        noted
            .map(|(_, page)| page)
            .filter(move |page| *page >= from)
    }

    /// Bytes of private pages.
    pub(super) fn bytes(&self) -> u64 {
        self.pages.load(Ordering::Relaxed) * PAGE_BYTES
    }

    /// Bytes that were given back so far.
    pub(super) fn bytes_given_back(&self) -> u64 {
        self.given_back.load(Ordering::Relaxed) * PAGE_BYTES
    }

    /// Whether writers have to wait.
    fn is_short(&self) -> bool {
        self.pages.load(Ordering::Relaxed) > self.pages_max
    }

    /// Whether it is time to give pages back.
    #[inline(always)]
    fn is_nearly_short(&self) -> bool {
        self.is_active() && self.pages.load(Ordering::Relaxed) > self.pages_max / 4 * 3
    }

    /// Whether the thread in the background is to give pages back.
    pub(super) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }
}

impl Core {
    /// Waits until the private pages take no more than their limit, but not for more than
    /// [`ROUNDS_MAX`] rounds.
    #[inline(always)]
    pub(super) fn await_memory(&self, has_background: bool) -> Result<(), MediumError> {
        if self.lines.private.is_nearly_short() {
            self.wait_for_memory(has_background)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn wait_for_memory(&self, has_background: bool) -> Result<(), MediumError> {
        let private = &self.lines.private;
        if !has_background {
            return if private.is_short() {
                self.give_back()
            } else {
                Ok(())
            };
        }
        let mut rounds = private.rounds.lock();
        let last = *rounds + ROUNDS_MAX;
        loop {
            if !private.is_due.swap(true, Ordering::Relaxed) {
                self.wake_checkpointer();
            }
            if !private.is_short() || *rounds >= last {
                return Ok(());
            }
            self.commit.failure()?;
            // After a failure it may be that no thread ends a round.
            private.round_ended.wait_for(&mut rounds, PATIENCE);
        }
    }

    /// A round: makes all appended frames durable, checkpoints them, and gives pages back. Threads
    /// that wait for the round go on, also after an error.
    pub(super) fn give_back(&self) -> Result<(), MediumError> {
        // This includes the part by which the pool grew.
        expect_random_loads(&self.extent);
        let result = self.try_give_back();
        self.lines.private.is_due.store(false, Ordering::Relaxed);
        *self.lines.private.rounds.lock() += 1;
        self.lines.private.round_ended.notify_all();
        result
    }

    fn try_give_back(&self) -> Result<(), MediumError> {
        // What the first pass appends, the second one can give back.
        for _ in 0..2 {
            self.settle(self.end())?;
            self.checkpoint()?;
            let lines = self.give_back_pages();
            for lines in lines.chunks(FRAME_LINES_MAX) {
                self.append(lines.len(), |index| self.line_to_append(lines[index]));
            }
            if lines.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Gives back the pages that may be. Returns the lines that differ from the file although no
    /// frame has them.
    pub(super) fn give_back_pages(&self) -> Vec<u64> {
        let private = &self.lines.private;
        let mut lines = Vec::new();
        let mut base = [0; PAGE_BYTES as usize];
        for page in private.noted(private.first.load(Ordering::Relaxed)) {
            // Checkpoints also punch released units out of the file, and cut it. They wait for one
            // page only.
            let _no_checkpoint =
                (!Mutant::GivenBackAnytime.is_planted()).then(|| self.checkpointing.lock());
            let start = self.log.start();
            if !private.is_checkpointed(page, start) {
                continue;
            }
            if read_all(&*self.pool, &mut base, page * PAGE_BYTES).is_err() {
                break;
            }
            let _tail = self.tail.lock();
            let _stopped = (!Mutant::StoresGoOn.is_planted()).then(|| self.lines.lock_page(page));
            let is_still =
                private.is_checkpointed(page, start) || Mutant::LookedAtOnce.is_planted();
            if !is_still || self.commit.has_failed() {
                continue;
            }
            let begin = lines.len();
            lines.extend(self.differing(page, &base));
            if lines.len() == begin {
                self.show_file(page);
            }
        }
        lines
    }

    /// Gives back the pages of released units that were punched out of the file: their content is
    /// arbitrary.
    pub(super) fn give_back_punched(&self, start: u64, end: u64) {
        if !self.lines.private.is_active() {
            return;
        }
        let first = self.lines.private.first.load(Ordering::Relaxed);
        for page in (start / PAGE_BYTES).max(first)..end / PAGE_BYTES {
            let _stopped = self.lines.lock_page(page);
            // A thread that takes the unit into use again says so before it stores there.
            if self.released.has_hole(page * PAGE_BYTES) {
                self.show_file(page);
            }
        }
    }

    /// Gives a page back. The caller holds the locks of its lines.
    fn show_file(&self, page: u64) {
        let private = &self.lines.private;
        // SAFETY: the medium, which ends its duties before it ends, has mapped the file there;
        // what was stored to the page is in the file, or arbitrary.
        if unsafe { show_file(&self.extent, page * PAGE_BYTES, PAGE_BYTES) } {
            private.forget(page);
            private.given_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The lines of a page that differ from what the file holds. The medium's own line does not
    /// count: no thread reads it from memory.
    fn differing(&self, page: u64, base: &[u8; PAGE_BYTES as usize]) -> impl Iterator<Item = u64> {
        let own = self.mark_offset / LINE_BYTES as u64;
        let numbers = page * PAGE_LINES..(page + 1) * PAGE_LINES;
        numbers
            .zip(base.as_chunks::<LINE_BYTES>().0)
            .filter_map(move |(number, base)| {
                let line = self.extent.line(number)?;
                let words = line.iter().zip(base.as_chunks().0);
                let mut differ = words
                    .map(|(word, base)| word.load(Ordering::Relaxed) != u64::from_le_bytes(*base));
                (number != own && differ.any(|differs| differs)).then_some(number)
            })
    }

    /// The content to append for a line. If the pool was cut before it, a length record of 0, which
    /// replay ignores.
    pub(super) fn line_to_append(&self, number: u64) -> (u64, LineValue) {
        match self.extent.line(number) {
            Some(line) => (number, self.lines.capture(line)),
            // It was flushed before the pool was cut. Of all lengths replay takes the greatest.
            None => (LENGTH, LineValue::ZERO),
        }
    }
}

#[cfg(test)]
mod tests;
