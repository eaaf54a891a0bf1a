//! The file medium: a pool in an ordinary file, durable on any disk and file system.
//!
//! The pool's file is the *base image*. It is mapped privately, so the kernel never writes it back:
//! stores stay in private pages of memory. The *line log* beside the file makes them durable
//! (`layout`):
//!
//! 1. A fence appends the lines that its thread flushed to the log, as one group with a checksum
//!    (`append`).
//! 2. A wait syncs the log, once for all threads that wait (`commit`).
//! 3. A checkpoint writes lines from the log back to the base image, and frees their space in the
//!    log (`checkpoint`). Before, it tells readers in other processes how far (`in_place`). Then released units are punched out of it (`release`).
//! 4. An open replays the lines that no checkpoint has written back (`replay`).
//!
//! # Invariants
//!
//! 1. Groups are in the log in the order of their fences, and a group has the content of its lines
//!    at the moment of the fence (`capture`). So every prefix of the log is a legal content of
//!    persistent memory after a crash.
//! 2. Acknowledged groups are in a prefix of the log that was synced.
//! 3. The base image holds no line newer than the durable part of the log.
//! 4. Space of the log is used again only after its lines are durable in the base image.
//! 5. After a failed write or sync nothing is acknowledged.
//!
//! A pool that is closed keeps room for a small log behind the end of its file. On a full disk an
//! open uses this room for the new log, so that entries can be removed; the close reserves it again
//! (`open`).
//!
//! A fence does not wait for the disk, so a lock that is held across a fence is not held across a
//! sync. A thread that writes faster than the disk is slowed down at its waits, where it holds no
//! lock, even if its durability is deferred. An operation that fences 64 MiB without a wait is
//! slowed down at its fences; otherwise it could fill the memory.

mod access;
mod append;
mod backup;
mod capture;
mod checkpoint;
mod commit;
mod error;
mod find;
mod image;
mod in_place;
mod layout;
mod log;
#[cfg(all(test, loom))]
mod loom_tests;
mod notes;
mod open;
mod pages;
mod places;
mod private;
mod release;
mod replay;
mod salvage;
mod stat;
mod store;
#[cfg(test)]
mod tests;
mod volatile;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

pub use crate::folder::{FileId, folder_of, sync_folder};
pub use crate::io::{Disk, Io, Through};
pub use access::{PRIVATE_MODE, share_access};
pub use backup::CopyTarget;
pub use error::LogError;
pub use in_place::{FileMoment, InPlace, PoolUse, ViewedPool};
pub use notes::Notes;
pub use open::{Beside, UNSAFE_NO_SYNC};
pub use replay::{LogEnd, Replay};
pub use salvage::{ImageLoss, SalvagedImage};
pub use stat::FileStat;
pub use volatile::survives;

use crate::mapping::Mapping;
use crate::presence::is_mapped;
use crate::process::OwnFiles;
use crate::testing::mutant::Mutant;
use crate::{Extent, LineForm, LineValue, Lsn, Medium, MediumError, Survives};
use append::Appender;
use capture::LineCapture;
use commit::GroupCommit;
use layout::{FRAME_LINES_MAX, LENGTH};
use log::Log;
use pages::PAGE_LINES;
use places::StorePlaces;
use release::Released;
use stat::Checkpoints;
use worker::Duties;

/// A thread that appends more than this beyond the durable part of the log is slowed down. Less if
/// the memory is limited.
const BURST_BYTES_MAX: u64 = 64 << 20;

/// When an operation is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When it returns, and no reader sees it before.
    #[default]
    Immediate,
    /// A sync begins at most this long after the operation returned. If another sync is under way
    /// at that moment, the sync begins when that one has ended. A crash may take back the last
    /// writes, even if they were read; it leaves the state after a prefix of the operations.
    Buffered(Duration),
    /// When a later call that asks for durability returns. A crash leaves the same states as with
    /// [`Durability::Buffered`].
    OnSync,
}

/// How a [`File`] is opened.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// When an operation is durable, and so when a wait ends.
    pub durability: Durability,
    /// Bytes of a new log's ring, at least 64 KiB. If the disk has no room the ring is smaller; on
    /// a file system in memory it has at most 4 MiB.
    pub log_bytes: u64,
    /// Whether a small pool has a smaller log: an eighth of the pool, at least 64 KiB and at most
    /// [`FileOptions::log_bytes`].
    pub log_follows_pool: bool,
    /// The log grows up to this, but not beyond the size of its pool. When nothing was written for
    /// a second, it is cut down to the size that a new log of the pool would have.
    pub log_bytes_max: u64,
    /// The largest length of the pool's file, in bytes.
    pub limit_bytes: u64,
    /// The most memory for written pages, in bytes. A pool that gets larger than half of it gives
    /// pages back to the system. Beyond the limit, writers wait until pages are given back. Data
    /// that waits to be written to disk takes up to half of the limit in addition.
    pub private_bytes_max: u64,
    /// The form of lines. The log keeps lines whole, so a new pool needs no more than
    /// [`LineForm::Single`].
    pub line_form: LineForm,
    /// The offset of a line of the pool's file that belongs to the medium: it names the log. No
    /// engine writes there.
    pub mark_offset: u64,
    /// How long a sync waits at most for other threads that are about to write. `None`: a quarter
    /// of the time that a sync takes, at most 200 us.
    pub gather_max: Option<Duration>,
    /// Whether background threads sync, checkpoint and fill the log with zeros. Without them (in
    /// tests) writers sync and checkpoint when they must.
    pub background: bool,
    /// Wraps each of the two files; tests put a disk that fails between medium and file.
    #[doc(hidden)]
    pub through: Option<Through>,
    #[doc(hidden)]
    pub sizes: Sizes,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Immediate,
            log_bytes: 32 << 20,
            log_follows_pool: false,
            log_bytes_max: 2 << 30,
            limit_bytes: u64::MAX,
            private_bytes_max: u64::MAX,
            line_form: LineForm::Single,
            mark_offset: 0,
            gather_max: None,
            background: true,
            through: None,
            sizes: Sizes::default(),
        }
    }
}

/// How far the medium reads, writes and waits at a time; tests make it smaller.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of the log that are read at a time.
    pub window_bytes: usize,
    /// How far ahead of its end the log is filled with zeros, at most, in bytes.
    pub fill_ahead_bytes: u64,
    /// How far behind the end of the log, in bytes, replay searches for a frame that says that the
    /// log was longer.
    pub look_bytes: u64,
    /// Bytes of the base image that a copy reads before it reads on in the log.
    pub part_bytes: usize,
    /// How long a copy waits for a header of which one half-written copy fails its check.
    pub header_patience: Duration,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            window_bytes: 1 << 20,
            fill_ahead_bytes: 8 << 20,
            look_bytes: 16 << 20,
            part_bytes: 4 << 20,
            header_patience: Duration::from_secs(5),
        }
    }
}

/// The content of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Append {
    Anything,
    /// Nothing that has to become durable before something else does.
    AtRest,
}

/// The end of the log and what changes with it.
#[derive(Debug)]
struct Tail {
    appender: Appender,
    /// Whether the sync duty sleeps until something is appended.
    dozing: bool,
}

/// All of the medium but its memory: shared with the work in the background.
#[derive(Debug)]
struct Core {
    /// The pool's file and its log. It goes before the two.
    own: OwnFiles,
    pool: Arc<dyn Io>,
    /// The memory. It is mapped as long as the medium lives, which ends the work in the
    /// background before it ends.
    extent: Extent,
    lines: LineCapture,
    log: Log,
    tail: CachePadded<Mutex<Tail>>,
    /// Where the log ends; read without the lock of `tail`.
    end: CachePadded<AtomicU64>,
    commit: GroupCommit,
    /// Held while the pool grows: its length, and whether pages are given back, change together.
    growing: Mutex<()>,
    /// Held during a checkpoint, and by threads that keep one from beginning.
    checkpointing: Mutex<()>,
    checkpoints: Mutex<Checkpoints>,
    released: Released,
    /// The pool's length as its users know it. While a growth fails, the file is longer for a
    /// moment.
    pool_bytes: AtomicU64,
    /// The work in the background; none if the pool was opened without it.
    duties: OnceLock<Duties>,
    /// Whether the work in the background is to end.
    is_closing: AtomicBool,
    /// Whether the log is to shrink, because nothing was appended for a while.
    is_idle: AtomicBool,
    /// The highest position that a task waits for without a thread.
    awaited: AtomicU64,
    /// The most bytes that wait in memory to be written to the log. As many may wait to be written
    /// to the pool's file.
    burst_bytes_max: u64,
    durability: Durability,
    mark_offset: u64,
    /// Whether the pool's file names its log, durably, or is just about to.
    marked: AtomicBool,
    /// In a new log: up to here it holds nothing but what [`Medium::fence_at_rest`] has appended.
    rests_until: AtomicU64,
    /// Where the two files lie; `None` if they were opened without names.
    places: Option<StorePlaces>,
}

/// An ordinary file with a log of lines beside it. See the [module](self).
#[derive(Debug)]
pub struct File {
    core: Arc<Core>,
    mapping: Mapping,
    options: FileOptions,
    replay: Replay,
    survives: Survives,
}

impl Core {
    /// Appends one frame of lines that `line` captures; returns where it ends, `u64::MAX` after a
    /// failure. Waits for the disk only if that is 64 MiB behind.
    #[inline]
    fn append(&self, count: usize, line: impl FnMut(usize) -> (u64, LineValue)) -> u64 {
        self.append_as(Append::Anything, count, line)
    }

    #[inline]
    fn append_as(
        &self,
        what: Append,
        count: usize,
        line: impl FnMut(usize) -> (u64, LineValue),
    ) -> u64 {
        let mut tail = self.tail.lock();
        while tail.appender.end() - self.commit.durable() > self.burst_bytes_max {
            let half = tail.appender.end() - self.burst_bytes_max / 2;
            drop(tail);
            if self.settle_logged(half).is_err() {
                return u64::MAX;
            }
            tail = self.tail.lock();
        }
        let mut line = line;
        let Tail { appender, dozing } = &mut *tail;
        let begin = appender.end();
        let end = appender.append(self.commit.durable(), count, |index| {
            let (number, value) = line(index);
            if number != LENGTH {
                self.lines.private.note_append(number / PAGE_LINES, begin);
            }
            (number, value)
        });
        let rests = what == Append::AtRest && self.rests_until.load(Ordering::Relaxed) == begin;
        if rests {
            self.rests_until.store(end, Ordering::Relaxed);
        }
        // ORDER: pairs with the acquire in `end`.
        self.end.store(end, Ordering::Release);
        if !rests && std::mem::take(dozing) {
            self.wake();
        }
        end
    }

    /// Whether nothing up to `position` has to become durable: see [`Medium::fence_at_rest`].
    fn is_at_rest(&self, position: u64) -> bool {
        position <= self.rests_until.load(Ordering::Relaxed) && !self.marked.load(Ordering::Relaxed)
    }

    /// Appends the lines that were noted.
    #[inline]
    fn fence_as(&self, what: Append, notes: &Notes) -> Lsn {
        if self.commit.has_failed() {
            notes.clear();
            return Lsn(u64::MAX);
        }
        notes.take(|numbers| {
            let mut end = self.end();
            for numbers in numbers.chunks(FRAME_LINES_MAX) {
                end = self.append_as(what, numbers.len(), |index| {
                    self.line_to_append(numbers[index])
                });
                if end == u64::MAX {
                    // The frame was refused: later frames of this fence must not become durable
                    // without it.
                    break;
                }
            }
            Lsn(end)
        })
    }

    /// Appends a frame without lines, which records how far the log is durable. Returns where it
    /// ends.
    fn seal(&self) -> u64 {
        if Mutant::NoSeal.is_planted() {
            return self.end();
        }
        self.append(0, |_| unreachable!("a seal has no lines"))
    }

    /// The position behind everything appended.
    fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Waits until everything up to `position` is durable.
    fn settle(&self, position: u64) -> Result<(), MediumError> {
        if self.is_at_rest(position) {
            return self.commit.failure();
        }
        self.settle_logged(position)
    }

    /// Does the same as [`Core::settle`], also for frames that need not become durable.
    fn settle_logged(&self, position: u64) -> Result<(), MediumError> {
        let settled = self.commit.settle(position, &|| {
            if let Err(error) = self.try_sync() {
                self.commit
                    .fail(format!("writing or syncing the log failed: {error}"));
            }
        });
        self.wake_tasks();
        settled
    }

    /// Writes all that is appended, and syncs; then, if that is due, checks that the files have their
    /// names, and has the log grown or filled. Only the leader calls this.
    fn try_sync(&self) -> std::io::Result<()> {
        self.write_and_sync()?;
        if let Some(displaced) = self.displaced_if_due() {
            return self.end_writing(displaced);
        }
        let end = self.commit.durable();
        let is_half_full = end - self.log.start() > self.log.capacity() / 2;
        if is_half_full {
            self.grow_log(end)?;
        }
        if is_half_full || self.log.wants_zeros(end + self.fill_ahead_bytes(end) / 2) {
            self.wake_checkpointer();
        }
        Ok(())
    }

    /// Writes all that is appended, and syncs. Only the leader calls this.
    fn write_and_sync(&self) -> std::io::Result<()> {
        if !self.marked.load(Ordering::Relaxed) {
            self.name_log()?;
        }
        let target = self.end();
        let begin = self.commit.durable();
        let mut end = begin;
        let mut groups = 0;
        while end < target {
            let Some(mut buffer) = self.tail.lock().appender.take() else {
                break;
            };
            if !self.log.has_room(buffer.end()) {
                // A checkpoint makes room, and takes only durable frames.
                self.log.sync()?;
                self.commit.advance(end);
                self.try_checkpoint()?;
                self.grow_log(end)?;
            }
            if !self.log.has_room(buffer.end()) {
                return Err(std::io::Error::other(
                    "no room in the log after a checkpoint",
                ));
            }
            self.log.write(&mut buffer)?;
            end = buffer.end();
            groups += buffer.frames;
            self.tail.lock().appender.give_back(buffer);
        }
        if Mutant::EarlyAcknowledgement.is_planted() {
            self.commit.advance(end);
        }
        self.log.sync()?;
        self.commit.advance(end);
        self.commit.count(groups, end - begin);
        Ok(())
    }

    /// Begins to use a new log. The pool names its log before the log holds anything, and only when
    /// the first group is about to be written: so a failed open leaves a file that is no pool
    /// untouched, and an open that is followed by no write syncs nothing.
    ///
    /// 1. The log's header is durable, and so is the log's place in its folder.
    /// 2. The pool's file names the log, durably.
    fn name_log(&self) -> std::io::Result<()> {
        self.log.fill_first();
        self.log.sync()?;
        if let Some(places) = &self.places {
            let synced = places.log.folder().sync();
            synced.map_err(|error| {
                let what = format!("make the log durable in its folder: {error}");
                std::io::Error::new(error.kind(), what)
            })?;
        }
        // After an error here the mark may be there or not, so the log is not removed any more.
        self.marked.store(true, Ordering::Relaxed);
        let mark = layout::LogMark(Some(self.log.uuid));
        open::write_mark(&*self.pool, self.mark_offset, mark).map_err(std::io::Error::other)
    }

    /// How far ahead of its end, in bytes, the log is filled with zeros: as far as it was written,
    /// so that a few writes do not cost as much as many.
    fn fill_ahead_bytes(&self, end: u64) -> u64 {
        let written = end - self.log.start_at_open;
        self.log
            .sizes
            .fill_ahead_bytes
            .min(written.max(log::FILLED_AT_FIRST))
    }

    /// Makes the log larger, but not larger than its pool, unless readers map the pool. In the worst case a checkpoint writes a
    /// page of the pool's file for each line; the more lines it writes, the more of them share a
    /// page. Only the leader calls this.
    fn grow_log(&self, end: u64) -> std::io::Result<()> {
        // A checkpoint that is under way reads the log where it is, and will make room.
        let Some(_no_checkpoint) = self.checkpointing.try_lock() else {
            return Ok(());
        };
        // Readers in other processes lose their views when a checkpoint overtakes them.
        let limit = if is_mapped(self.pool.file()) {
            u64::MAX
        } else {
            self.pool_bytes.load(Ordering::Relaxed)
        };
        let has_grown = self.log.grow(end, limit)?;
        if has_grown {
            let capacity = self.log.capacity();
            self.tail.lock().appender.set_capacity(capacity);
        }
        Ok(())
    }

    /// Checkpoints the log and cuts it down to its first size. Does nothing if a frame was appended
    /// meanwhile, another thread syncs, or a copy of the pool reads the log.
    fn shrink_log(&self) {
        // A checkpoint would overtake a reader in place for nothing.
        if is_mapped(self.pool.file()) {
            return;
        }
        // All operations find a failure in `commit`.
        let _ = self.checkpoint();
        self.commit.lead_if_free(&|| {
            let Some(_no_checkpoint) = self.checkpointing.try_lock() else {
                return;
            };
            if !self.prepare_to_shrink() {
                return;
            }
            if let Err(error) = self.log.shrink(self.pool_bytes.load(Ordering::Relaxed)) {
                self.commit
                    .fail(format!("making the log smaller failed: {error}"));
            }
        });
    }

    /// Makes the buffers of later frames small enough for the smaller ring; `false` if a frame was
    /// appended that is not checkpointed, or the ring is no larger than an idle one.
    fn prepare_to_shrink(&self) -> bool {
        let capacity = self
            .log
            .capacity_idle(self.pool_bytes.load(Ordering::Relaxed));
        let mut tail = self.tail.lock();
        let has_frames = tail.appender.end() != self.log.start();
        if has_frames || capacity >= self.log.capacity() {
            return false;
        }
        tail.appender.set_capacity(capacity);
        true
    }
}

impl File {
    /// Logs the length of the pool.
    fn log_length(&self, length: u64) {
        let mut value = LineValue::ZERO;
        value.0[0] = length;
        self.core.append(1, |_| (LENGTH, value));
    }
}

// SAFETY: the mapping owns its extent, never moves it, and unmaps it only when dropped.
unsafe impl Medium for File {
    type Notes = Notes;
    const LATE: bool = true;
    const DIRECT: bool = true;

    #[inline(always)]
    fn extent(&self) -> &Extent {
        self.mapping.extent()
    }

    fn grow(&self, length: u64) -> Result<(), MediumError> {
        self.admit()?;
        let _growing = self.core.growing.lock();
        let old = self.mapping.extent().length();
        if length > old {
            let private = &self.core.lines.private;
            if private.is_large(length) && !private.is_active() {
                private.activate(old);
                self.mapping.map_growth();
            }
            self.mapping.grow(length)?;
            // SAFETY: just mapped up to there.
            unsafe { self.core.extent.set_length(length) };
            self.core.pool_bytes.fetch_max(length, Ordering::Relaxed);
            // Two threads may log their lengths in either order: replay takes the greatest.
            self.log_length(length);
        }
        Ok(())
    }

    fn shrink(&mut self, length: u64) -> Result<(), MediumError> {
        // `finish` cuts the file: until then the log may hold lines beyond `length`.
        self.mapping.shrink(length)?;
        // SAFETY: memory beyond stays mapped.
        unsafe { self.core.extent.set_length(self.mapping.extent().length()) };
        Ok(())
    }

    fn keep_up(&self, lsn: Lsn) -> Result<(), MediumError> {
        self.core.keep_up(lsn.0)
    }

    fn settle(&self, lsn: Lsn) -> Result<(), MediumError> {
        self.core.settle(lsn.0)?;
        self.core.seal_soon();
        Ok(())
    }

    fn settle_without_waking(&self, lsn: Lsn) -> Result<(), MediumError> {
        commit::without_waking(|| self.settle(lsn))
    }

    #[inline(always)]
    fn await_memory(&self) -> Result<(), MediumError> {
        self.core.await_memory(self.options.background)
    }

    #[inline(always)]
    fn admit(&self) -> Result<(), MediumError> {
        // Asked at each allocation: the question is inlined, the error is not.
        if self.core.commit.has_failed() {
            self.core.commit.failure()
        } else {
            Ok(())
        }
    }

    /// Writes all of the pool to its file, and removes the log.
    fn finish(&self) -> Result<(), MediumError> {
        self.finish_and_remove_log()
    }

    fn release(&self, start: u64, bytes: u64) {
        self.core
            .released
            .add(start, start + bytes, self.core.end());
    }

    fn reserve(&self, start: u64, bytes: u64) -> Result<(), MediumError> {
        self.core.released.take_back(start, start + bytes);
        self.mapping.reserve_room(start, start + bytes)
    }

    fn is_hole(&self, offset: u64) -> bool {
        self.mapping.holes().has(offset)
    }

    fn cut(&self, length: u64) -> Result<(), MediumError> {
        self.cut_now(length)
    }

    #[inline(always)]
    fn line_form(&self) -> LineForm {
        self.options.line_form
    }

    #[inline(always)]
    fn store(&self, word: &AtomicU64, value: u64) {
        self.core.lines.store(word, value);
    }

    #[inline(always)]
    fn compare_exchange(&self, word: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        self.core.lines.compare_exchange(word, current, new)
    }

    #[inline(always)]
    fn start_volatile(&self, word: &AtomicU64, value: u64) {
        self.core
            .lines
            .store_volatile(word, value, Ordering::Release);
    }

    #[inline(always)]
    fn store_volatile(&self, word: &AtomicU64, value: u64, order: Ordering) {
        self.core.lines.store_volatile(word, value, order);
    }

    #[inline(always)]
    fn compare_exchange_volatile(
        &self,
        word: &AtomicU64,
        values: [u64; 2],
        success: Ordering,
    ) -> Result<u64, u64> {
        self.core
            .lines
            .compare_exchange_volatile(word, values, success)
    }

    #[inline(always)]
    fn store_line(
        &self,
        notes: &Notes,
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError> {
        self.admit()?;
        self.core.lines.store_line(line, value)?;
        self.flush(notes, line);
        Ok(())
    }

    #[inline(always)]
    fn flush(&self, notes: &Notes, memory: &[AtomicU64]) {
        if let Some(offset) = self.mapping.extent().offset_of(memory) {
            notes.add(offset, size_of_val(memory) as u64);
        }
    }

    #[inline]
    fn fence(&self, notes: &Notes) -> Lsn {
        self.core.fence_as(Append::Anything, notes)
    }

    fn fence_at_rest(&self, notes: &Notes) -> Lsn {
        self.core.fence_as(Append::AtRest, notes)
    }

    fn is_at_rest(&self) -> bool {
        self.core.is_at_rest(self.core.end())
    }

    #[inline(always)]
    fn durable(&self) -> Lsn {
        Lsn(self.core.commit.durable())
    }

    #[inline]
    fn wait(&self, lsn: Lsn) -> Result<(), MediumError> {
        match self.core.durability {
            Durability::Immediate => self.core.settle(lsn.0),
            _ => self.core.keep_up(lsn.0),
        }
    }

    #[inline(always)]
    fn wake_when_durable(&self, lsn: Lsn, waker: &Waker) -> Result<bool, MediumError> {
        self.core
            .wake_when_durable(lsn.0, waker, self.options.background)
    }

    fn survives(&self) -> Survives {
        self.survives
    }

    fn describe(&self) -> String {
        let lines = self.core.lines.describe();
        match self.survives {
            Survives::PowerLoss => {
                format!("file: log of lines with fdatasync, {lines}; survives loss of power")
            }
            _ => format!(
                "file (volatile: its file system is in memory, or does not tell, or syncs are switched off), log of lines, \
                 {lines}; survives the process, NOT loss of power or a kernel crash"
            ),
        }
    }
}
