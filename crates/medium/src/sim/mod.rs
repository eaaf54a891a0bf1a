//! The simulated medium, on which crash exploration runs: it records operations, takes stores back,
//! and leaves operations out as a fault.
//!
//! A [`Sim`] is memory of this process with six abilities. The memory model (which images a crash
//! may leave) is part of the explorer, in `everleaf-sim`.
//!
//! - It **records** a [`Trace`]: every store (of a word, or of a line in [`LineForm::Single`]: each
//!   one *atom*), flush and fence with its thread and its place in the source, and the [`Mark`]s of
//!   a harness. Flushes belong to the guard through which they were made, as on a file: only a
//!   fence through the same guard makes them durable.
//! - It **takes back**: [`Sim::push_level`] begins to note the old content of each line that is
//!   stored to, and [`Sim::rollback`] restores it. An image is therefore a difference from the one
//!   before, never a copy.
//! - Its lines may be **open** ([`Sim::install`]): an open line has several possible contents. A
//!   load asks a [`Chooser`] which of the values that are still possible it finds. A recovery then
//!   branches only on lines that it reads.
//! - It may be **late** ([`SimOptions::late`]), as a file is: fences order, and only a wait makes
//!   durable.
//! - It **releases** units: once all fences before are durable, their lines are zeros, durably.
//! - It plants **faults** ([`Mutation`]): flushes, fences and stores called from one place in the
//!   source are not done.
//!
//! A `Sim` is a handle: clones are the same memory, so the harness keeps a handle when a pool takes
//! its medium by value. Stores are serialised by a lock. Loads are not, unless the line is open.
//!
//! Each of its operations is a yield point of a [scheduler](crate::sync::schedule), if one runs.
//!
//! It notices only the first store to a [`VolatileWord`](crate::VolatileWord), which
//! [`start`](crate::VolatileWord::start) makes. From then on a rollback restores the word's line,
//! which may hold other data in the next image. In an image the word holds [`VOLATILE_LEFT`],
//! whatever was stored to it.

mod open;
#[cfg(test)]
mod tests;
mod trace;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::error::Grown;
use crate::mapping::Mapping;
use crate::sync::schedule::{self, Access, AccessKind};
use crate::{
    Extent, LINE_BYTES, LineForm, LineValue, Lsn, Medium, MediumError, Survives, WORD_BYTES,
};

pub use self::open::{Chooser, Decision, OpenLine, Worlds};
use self::open::{LoadAnswer, OpenLines};
pub use self::trace::{Event, Mark, Mutation, Site, SiteKind, Trace};

/// Words in a line.
const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;
/// The value that a crash leaves in a volatile word. Locks then seem taken, and marks set.
pub const VOLATILE_LEFT: u64 = u64::MAX;
/// In a line's flags: its content is open.
const OPEN: u8 = 1 << 7;
/// In a line's flags: the level below which its old content was noted.
const LEVEL_MASK: u8 = OPEN - 1;

/// How a [`Sim`] is made.
#[derive(Clone, Copy, Debug)]
pub struct SimOptions {
    /// How lines are stored.
    pub line_form: LineForm,
    /// The most bytes that it grows to. Creating a `Sim` costs a byte of flags for each 64.
    pub limit_bytes: u64,
    /// Whether fenced stores are durable only after a wait, as on a file.
    pub late: bool,
    /// From this offset on, in bytes, fresh memory holds rubbish instead of zeros. Costs the whole
    /// memory at once.
    pub rubbish_from: Option<u64>,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            line_form: LineForm::Single,
            limit_bytes: 4 << 20,
            late: false,
            rubbish_from: None,
        }
    }
}

/// The payload of the panic that ends a run after too many steps: a loop, or close to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepLimitExceeded;

/// A line's old content, to be restored.
#[derive(Debug)]
struct Undo {
    line: u32,
    old_flags: u8,
    content: LineValue,
}

#[derive(Debug)]
struct Level {
    undo_start: usize,
    length: u64,
}

#[derive(Default)]
struct Inner {
    recording: bool,
    trace: Trace,
    undo: Vec<Undo>,
    levels: Vec<Level>,
    open: OpenLines,
    chooser: Option<Box<dyn Chooser>>,
    mutations: Vec<Mutation>,
    census: Option<BTreeMap<(SiteKind, Site), u64>>,
    released: Vec<ReleasedLines>,
}

/// Lines that were released before a fence was durable.
#[derive(Clone, Copy)]
struct ReleasedLines {
    /// The LSN of the fence.
    lsn: u64,
    first: u32,
    count: u32,
}

impl ReleasedLines {
    fn end(&self) -> u32 {
        self.first + self.count
    }
}

struct Shared {
    mapping: Mapping,
    line_form: LineForm,
    late: bool,
    /// The LSN of the last fence, and the last one that was waited for.
    fenced: AtomicU64,
    durable: AtomicU64,
    flags: Vec<AtomicU8>,
    steps_left: AtomicU64,
    inner: Mutex<Inner>,
}

/// A recording medium. See the [module](self).
#[derive(Clone)]
pub struct Sim {
    shared: Arc<Shared>,
}

/// Which flushes a fence makes durable: those of the same guard.
#[derive(Debug)]
pub struct SimNotes(u64);

impl Default for SimNotes {
    fn default() -> Self {
        thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
        NEXT.with(|next| {
            next.set(next.get() + 1);
            Self(u64::from(system_thread_number()) << 48 | next.get())
        })
    }
}

/// The number of the calling thread of the system.
fn system_thread_number() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: u16 = NEXT.fetch_add(1, Ordering::Relaxed) as u16);
    NUMBER.with(|number| *number)
}

fn thread_number() -> u16 {
    schedule::thread().unwrap_or_else(system_thread_number)
}

impl Sim {
    /// Empty memory; nothing is recorded yet.
    pub fn new(options: SimOptions) -> Result<Self, MediumError> {
        let lines = options.limit_bytes.div_ceil(LINE_BYTES as u64);
        let shared = Shared {
            mapping: Mapping::memory(options.limit_bytes, Grown::Pool)?,
            line_form: options.line_form,
            late: options.late,
            fenced: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            flags: (0..lines).map(|_| AtomicU8::new(0)).collect(),
            steps_left: AtomicU64::new(u64::MAX),
            inner: Mutex::new(Inner::default()),
        };
        let sim = Self {
            shared: Arc::new(shared),
        };
        options.rubbish_from.map_or(Ok(()), |from| {
            sim.fill_with_rubbish(from, options.limit_bytes)
        })?;
        Ok(sim)
    }

    /// Growing does not clear memory, so it is enough to fill it once.
    fn fill_with_rubbish(&self, from: u64, limit_bytes: u64) -> Result<(), MediumError> {
        self.set_length(limit_bytes)?;
        let first = from / WORD_BYTES as u64;
        let words = self
            .extent()
            .words(0, limit_bytes as usize / WORD_BYTES)
            .unwrap_or_default();
        for (number, word) in words.iter().enumerate().skip(first as usize) {
            // Another value for each word: large and small ones, and some that are small at both
            // ends, as are a slot of a narrow node of Masstree (4 to 7) and the low bits of an
            // epoch.
            let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let both_ends = 4 | mixed >> 40 & 3 | mixed >> 50 << 4 | (mixed >> 45 & 31) << 48;
            let value = [mixed, mixed >> 28, mixed >> 56, both_ends][(mixed >> 32) as usize % 4];
            word.store(value, Ordering::Relaxed);
        }
        self.set_length(0)
    }

    /// Records from now on, or stops.
    pub fn set_recording(&self, recording: bool) {
        self.shared.inner.lock().recording = recording;
    }

    /// Swaps what was recorded for `trace`, which is cleared: its memory is used again.
    pub fn swap_trace(&self, trace: &mut Trace) {
        trace.clear();
        std::mem::swap(&mut self.shared.inner.lock().trace, trace);
    }

    /// How many events were recorded so far.
    pub fn recorded(&self) -> usize {
        self.shared.inner.lock().trace.events.len()
    }

    /// Records a mark.
    pub fn mark(&self, mark: Mark) {
        self.shared
            .record(&mut self.shared.inner.lock(), Event::Mark(mark));
    }

    /// Panics with [`StepLimitExceeded`] once this many more loads, stores, flushes and fences were
    /// done.
    pub fn set_step_limit(&self, steps: u64) {
        self.shared.steps_left.store(steps, Ordering::Relaxed);
    }

    /// Plants faults, in place of those planted before.
    pub fn set_mutations(&self, mutations: Vec<Mutation>) {
        self.shared.inner.lock().mutations = mutations;
    }

    /// Counts from now on, from zero, how often each place in the source stores, flushes and
    /// fences.
    pub fn start_census(&self) {
        self.shared.inner.lock().census = Some(BTreeMap::new());
    }

    /// The counts since [`Sim::start_census`].
    pub fn census(&self) -> BTreeMap<(SiteKind, Site), u64> {
        self.shared.inner.lock().census.clone().unwrap_or_default()
    }

    /// Notes changes from now on, so that [`Sim::rollback`] takes them back. Levels nest, up to
    /// 127.
    pub fn push_level(&self) {
        let mut inner = self.shared.inner.lock();
        assert!(
            inner.levels.len() < usize::from(LEVEL_MASK),
            "too many levels"
        );
        let level = Level {
            undo_start: inner.undo.len(),
            length: self.shared.mapping.extent().length(),
        };
        inner.levels.push(level);
    }

    /// Takes everything back that happened since the last [`Sim::push_level`], decisions about open
    /// lines included. No other thread may use the memory. O(lines stored to).
    pub fn rollback(&self) {
        let mut inner = self.shared.inner.lock();
        self.shared.rollback(&mut inner);
    }

    /// Takes everything back since the last [`Sim::push_level`], and ends the level.
    pub fn pop_level(&self) {
        let mut inner = self.shared.inner.lock();
        self.shared.rollback(&mut inner);
        inner.levels.pop();
    }

    /// Opens lines: each has one of several contents, which loads decide. Replaces the lines that
    /// were open before.
    pub fn install(&self, lines: Vec<OpenLine>) {
        let mut inner = self.shared.inner.lock();
        self.shared.close_lines(&mut inner);
        for open in &lines {
            self.shared.flags[open.line as usize].fetch_or(OPEN, Ordering::Relaxed);
        }
        inner.open.install(lines);
    }

    /// Ends the openness of lines and returns them as they were installed.
    pub fn uninstall(&self) -> Vec<OpenLine> {
        let mut inner = self.shared.inner.lock();
        self.shared.close_lines(&mut inner);
        inner.open.uninstall()
    }

    /// Sets what decides the content of open lines; without it, loads find the newest content.
    /// Returns the former one.
    pub fn set_chooser(&self, chooser: Option<Box<dyn Chooser>>) -> Option<Box<dyn Chooser>> {
        std::mem::replace(&mut self.shared.inner.lock().chooser, chooser)
    }

    /// A line as memory holds it, past the recorder and past openness; `None` beyond the length.
    pub fn peek(&self, line: u32) -> Option<LineValue> {
        Some(LineValue::load(self.shared.words(line)?, Ordering::Relaxed))
    }

    /// Changes a line without recording it, but so that a rollback takes it back.
    ///
    /// # Panics
    /// If the line lies beyond the length.
    pub fn poke(&self, line: u32, value: &LineValue) {
        let mut inner = self.shared.inner.lock();
        self.shared.save(&mut inner, line);
        let words = self.shared.words(line).expect("a line of this medium");
        value.store(words, Ordering::Relaxed);
    }

    /// Changes the length, within the limit, without recording it; a rollback takes it back.
    pub fn set_length(&self, length: u64) -> Result<(), MediumError> {
        self.shared.mapping.grow(length)?;
        // SAFETY: `grow` mapped up to `length`; a shorter extent only hides memory, which stays
        // mapped.
        unsafe { self.shared.mapping.extent().set_length(length) };
        Ok(())
    }
}

impl Shared {
    fn words(&self, line: u32) -> Option<&[AtomicU64; LINE_WORDS]> {
        self.mapping.extent().line(u64::from(line))
    }

    /// The number of a word, from the medium's start. A word outside of the memory belongs to
    /// another medium, which is a logic error.
    #[inline]
    fn number_of(&self, word: &AtomicU64) -> usize {
        let offset =
            (std::ptr::from_ref(word) as usize).wrapping_sub(self.mapping.extent().base() as usize);
        let number = offset / WORD_BYTES;
        assert!(
            number / LINE_WORDS < self.flags.len(),
            "a word of another medium"
        );
        number
    }

    /// A yield point before an access to the line of a word.
    #[inline]
    fn reach(&self, word: &AtomicU64, kind: AccessKind) {
        if schedule::is_running() {
            schedule::reach(Access::lines(self.number_of(word) / LINE_WORDS, 1, kind));
        }
    }

    #[inline]
    fn step(&self) {
        // No atomic decrement: two threads at once may count one step for two, which does not
        // matter.
        let left = self.steps_left.load(Ordering::Relaxed);
        if left == 0 {
            // Objects that the panic drops may still use the medium.
            self.steps_left.store(u64::MAX, Ordering::Relaxed);
            std::panic::panic_any(StepLimitExceeded);
        }
        self.steps_left.store(left - 1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.step();
        self.inner.lock()
    }

    /// Counts a call at a place in the source.
    fn count(inner: &mut Inner, kind: SiteKind, site: Site) {
        if let Some(census) = &mut inner.census {
            *census.entry((kind, site)).or_default() += 1;
        }
    }

    #[allow(clippy::unused_self, reason = "called beside methods that need it")]
    fn record(&self, inner: &mut Inner, event: Event) {
        if let Some((kind, site)) = event.site() {
            Self::count(inner, kind, site);
        }
        if inner.recording {
            inner.trace.events.push(event);
        }
    }

    /// Notes the line's content, unless this level has it.
    fn save(&self, inner: &mut Inner, line: u32) {
        let level = inner.levels.len() as u8;
        let flags = self.flags[line as usize].load(Ordering::Relaxed);
        if flags & LEVEL_MASK >= level {
            return;
        }
        let Some(words) = self.words(line) else {
            return;
        };
        let content = LineValue::load(words, Ordering::Relaxed);
        inner.undo.push(Undo {
            line,
            old_flags: flags,
            content,
        });
        self.flags[line as usize].store(flags & OPEN | level, Ordering::Relaxed);
    }

    fn rollback(&self, inner: &mut Inner) {
        let level = inner.levels.last().expect("a level was pushed");
        for undo in inner.undo.drain(level.undo_start..).rev() {
            let words = self.words(undo.line).expect("the memory only grew");
            undo.content.store(words, Ordering::Relaxed);
            let flags = &self.flags[undo.line as usize];
            let open = flags.load(Ordering::Relaxed) & OPEN;
            flags.store(open | undo.old_flags & LEVEL_MASK, Ordering::Relaxed);
        }
        // SAFETY: it had this length before, so it is mapped; a shorter extent only hides memory.
        unsafe { self.mapping.extent().set_length(level.length) };
        inner.open.reset();
        inner.released.clear();
    }

    /// Zeroes the lines that were released before fences that are durable now.
    fn release_due(&self, inner: &mut Inner) {
        let durable = self.durable.load(Ordering::Relaxed);
        let due: Vec<ReleasedLines> = inner
            .released
            .extract_if(.., |released| released.lsn <= durable)
            .collect();
        for released in due {
            for line in released.first..released.end() {
                let Some(words) = self.words(line) else { break };
                let is_open = self.flags[line as usize].load(Ordering::Relaxed) & OPEN != 0;
                if is_open || LineValue::load(words, Ordering::Relaxed) != LineValue::ZERO {
                    self.before_store(inner, line, u8::MAX);
                    LineValue::ZERO.store(words, Ordering::Release);
                }
            }
            let event = Event::Release {
                line: released.first,
                count: released.count,
            };
            self.record(inner, event);
        }
    }

    fn close_lines(&self, inner: &mut Inner) {
        for line in inner.open.lines() {
            self.flags[line as usize].fetch_and(!OPEN, Ordering::Relaxed);
        }
    }

    /// To be called before words of a line are stored to: notes its content. The words then need no
    /// decision any more.
    fn before_store(&self, inner: &mut Inner, line: u32, words: u8) {
        self.save(inner, line);
        if self.flags[line as usize].load(Ordering::Relaxed) & OPEN != 0 {
            inner.open.set_known(line, words);
        }
    }

    fn is_dropped(
        inner: &Inner,
        fault: impl Fn(Site) -> Mutation,
        site: &'static Location<'static>,
    ) -> bool {
        !inner.mutations.is_empty() && inner.mutations.contains(&fault(Site::from(site)))
    }

    fn store_locked(
        &self,
        inner: &mut Inner,
        word: &AtomicU64,
        value: u64,
        exchanged: bool,
        site: &'static Location<'static>,
    ) {
        if Self::is_dropped(inner, Mutation::DropStore, site) {
            return;
        }
        let number = self.number_of(word);
        self.before_store(
            inner,
            (number / LINE_WORDS) as u32,
            1 << (number % LINE_WORDS),
        );
        word.store(value, Ordering::Release);
        let event = Event::Store {
            word: number as u32,
            value,
            exchanged,
            thread: thread_number(),
            site,
        };
        self.record(inner, event);
    }

    fn start_locked(
        &self,
        inner: &mut Inner,
        word: &AtomicU64,
        value: u64,
        site: &'static Location<'static>,
    ) {
        let number = self.number_of(word);
        let line = (number / LINE_WORDS) as u32;
        // The line is saved even if a fault leaves the start out: stores to the word from now on
        // bypass the medium, and have to be taken back.
        self.save(inner, line);
        if Self::is_dropped(inner, Mutation::DropStore, site) {
            return;
        }
        self.before_store(inner, line, 1 << (number % LINE_WORDS));
        word.store(value, Ordering::Release);
        let word = number as u32;
        let thread = thread_number();
        self.record(
            inner,
            Event::Store {
                word,
                value: VOLATILE_LEFT,
                exchanged: false,
                thread,
                site,
            },
        );
    }

    fn load_locked(&self, inner: &mut Inner, word: &AtomicU64) -> u64 {
        let number = self.number_of(word);
        let line = (number / LINE_WORDS) as u32;
        if self.flags[line as usize].load(Ordering::Relaxed) & OPEN == 0 {
            return word.load(Ordering::Acquire);
        }
        let within = number % LINE_WORDS;
        let value = match inner.open.load(line, within, inner.chooser.as_deref_mut()) {
            LoadAnswer::InMemory => return word.load(Ordering::Acquire),
            LoadAnswer::Agreed(value) => value,
            LoadAnswer::Decided(value) => {
                self.record(
                    inner,
                    Event::Narrow {
                        line,
                        word: within as u8,
                        value,
                    },
                );
                value
            }
        };
        self.save(inner, line);
        word.store(value, Ordering::Release);
        value
    }

    #[cold]
    fn load_open(&self, word: &AtomicU64) -> u64 {
        let mut inner = self.inner.lock();
        self.load_locked(&mut inner, word)
    }

    #[track_caller]
    fn record_flush(&self, inner: &mut Inner, notes: &SimNotes, memory: &[AtomicU64]) {
        let site = Location::caller();
        if memory.is_empty() || Self::is_dropped(inner, Mutation::DropFlush, site) {
            return;
        }
        let first = self.number_of(&memory[0]) / LINE_WORDS;
        let last = self.number_of(&memory[memory.len() - 1]) / LINE_WORDS;
        let line = first as u32;
        let count = (last - first + 1) as u32;
        self.record(
            inner,
            Event::Flush {
                notes: notes.0,
                line,
                count,
                thread: thread_number(),
                site,
            },
        );
    }
}

// SAFETY: the mapping owns its extent, never moves it, and unmaps it only when the last handle is
// dropped.
unsafe impl Medium for Sim {
    type Notes = SimNotes;
    const LATE: bool = true;
    const DIRECT: bool = false;
    const SCHEDULED: bool = true;

    #[inline]
    fn extent(&self) -> &Extent {
        self.shared.mapping.extent()
    }

    fn grow(&self, length: u64) -> Result<(), MediumError> {
        schedule::reach(Access::something::<Extent>(AccessKind::Store));
        if length > self.extent().length() {
            self.shared.mapping.grow(length)?;
            self.shared
                .record(&mut self.shared.lock(), Event::Grow { length });
        }
        Ok(())
    }

    /// Does nothing: a crash may come before the file is cut, and no code reads beyond the length.
    fn shrink(&mut self, _length: u64) -> Result<(), MediumError> {
        Ok(())
    }

    fn release(&self, start: u64, bytes: u64) {
        schedule::reach(Access::something::<Extent>(AccessKind::Store));
        let mut inner = self.shared.lock();
        let line = LINE_BYTES as u64;
        let lsn = self.shared.fenced.load(Ordering::Relaxed);
        inner.released.push(ReleasedLines {
            lsn,
            first: (start / line) as u32,
            count: (bytes / line) as u32,
        });
        self.shared.release_due(&mut inner);
    }

    fn reserve(&self, start: u64, bytes: u64) -> Result<(), MediumError> {
        let first = (start / LINE_BYTES as u64) as u32;
        let end = ((start + bytes) / LINE_BYTES as u64) as u32;
        self.shared
            .inner
            .lock()
            .released
            .retain(|released| released.end() <= first || end <= released.first);
        Ok(())
    }

    #[inline]
    fn line_form(&self) -> LineForm {
        self.shared.line_form
    }

    #[inline]
    fn load(&self, word: &AtomicU64) -> u64 {
        self.shared.reach(word, AccessKind::Load);
        self.shared.step();
        let line = self.shared.number_of(word) / LINE_WORDS;
        if self.shared.flags[line].load(Ordering::Relaxed) & OPEN == 0 {
            return word.load(Ordering::Acquire);
        }
        self.shared.load_open(word)
    }

    fn store(&self, word: &AtomicU64, value: u64) {
        let site = Location::caller();
        self.shared.reach(word, AccessKind::Store);
        self.shared
            .store_locked(&mut self.shared.lock(), word, value, false, site);
    }

    /// Words that are stored past the caches may arrive in any order. Here half of the values of a
    /// copy are stored from the last word to the first. So of two torn stores with the same tag,
    /// one may have the words that the other lacks.
    fn store_copy(&self, notes: &SimNotes, copy: &[AtomicU64; 8], value: &LineValue) {
        let mixed = value.0.iter().fold(0, |mixed: u64, word| {
            (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let is_backward = mixed >> 63 == 1;
        for step in 0..8 {
            let word = if is_backward { 7 - step } else { step };
            self.store(&copy[word], value.0[word]);
        }
        self.flush(notes, copy);
    }

    fn start_volatile(&self, word: &AtomicU64, value: u64) {
        let site = Location::caller();
        self.shared
            .start_locked(&mut self.shared.lock(), word, value, site);
    }

    fn compare_exchange(&self, word: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        let site = Location::caller();
        self.shared.reach(word, AccessKind::Store);
        let mut inner = self.shared.lock();
        let found = self.shared.load_locked(&mut inner, word);
        if found != current {
            return Err(found);
        }
        self.shared.store_locked(&mut inner, word, new, true, site);
        Ok(found)
    }

    fn store_line(
        &self,
        notes: &SimNotes,
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError> {
        let site = Location::caller();
        self.shared.reach(&line[0], AccessKind::Store);
        let mut inner = self.shared.lock();
        if Shared::is_dropped(&inner, Mutation::DropStore, site) {
            return Ok(());
        }
        let number = (self.shared.number_of(&line[0]) / LINE_WORDS) as u32;
        self.shared.before_store(&mut inner, number, u8::MAX);
        value.store(line, Ordering::Release);
        let index = inner.trace.line_values.len() as u32;
        if inner.recording {
            inner.trace.line_values.push(*value);
        }
        let thread = thread_number();
        self.shared.record(
            &mut inner,
            Event::StoreLine {
                line: number,
                value: index,
                thread,
                site,
            },
        );
        self.shared.record_flush(&mut inner, notes, line);
        Ok(())
    }

    fn flush(&self, notes: &SimNotes, memory: &[AtomicU64]) {
        if let Some(first) = memory.first()
            && let Some(last) = memory.last()
            && schedule::is_running()
        {
            // A flush covers the present content of the lines, so stores of other threads to them
            // come before or after it.
            let first = self.shared.number_of(first);
            let last = self.shared.number_of(last);
            let line = first / LINE_WORDS;
            let lines = last / LINE_WORDS - first / LINE_WORDS + 1;
            schedule::reach(Access::lines(line, lines, AccessKind::Load));
        }
        self.shared
            .record_flush(&mut self.shared.lock(), notes, memory);
    }

    fn fence(&self, notes: &SimNotes) -> Lsn {
        let site = Location::caller();
        schedule::reach(Access::something::<Self>(AccessKind::Fence));
        let mut inner = self.shared.lock();
        let before = self.shared.fenced.load(Ordering::Relaxed);
        if Shared::is_dropped(&inner, Mutation::DropFence, site) {
            return Lsn(before);
        }
        let lsn = before + u64::from(self.shared.late);
        self.shared.fenced.store(lsn, Ordering::Relaxed);
        let event = Event::Fence {
            notes: notes.0,
            lsn,
            thread: thread_number(),
            site,
        };
        self.shared.record(&mut inner, event);
        Lsn(lsn)
    }

    #[inline]
    fn durable(&self) -> Lsn {
        Lsn(self.shared.durable.load(Ordering::Relaxed))
    }

    fn wait(&self, lsn: Lsn) -> Result<(), MediumError> {
        if lsn <= self.durable() {
            return Ok(());
        }
        let site = Location::caller();
        schedule::reach(Access::something::<Self>(AccessKind::Fence));
        let mut inner = self.shared.lock();
        let fenced = Lsn(self.shared.fenced.load(Ordering::Relaxed));
        if lsn > fenced {
            return Err(MediumError::Failed(format!(
                "a wait for {lsn:?}, but the last fence was {fenced:?}"
            )));
        }
        if !Shared::is_dropped(&inner, Mutation::DropWait, site) {
            self.shared.durable.store(lsn.0, Ordering::Relaxed);
            self.shared.record(
                &mut inner,
                Event::Wait {
                    lsn: lsn.0,
                    thread: thread_number(),
                    site,
                },
            );
            self.shared.release_due(&mut inner);
        }
        Ok(())
    }

    fn left_to_caller(&self, lsn: Lsn) -> Lsn {
        if lsn <= self.durable() {
            return lsn;
        }
        let site = Location::caller();
        let mut inner = self.shared.lock();
        if Shared::is_dropped(&inner, Mutation::DropWait, site) {
            return Lsn::DURABLE;
        }
        Shared::count(&mut inner, SiteKind::Wait, Site::from(site));
        lsn
    }

    fn survives(&self) -> Survives {
        Survives::Nothing
    }

    fn describe(&self) -> String {
        format!(
            "sim: recorded memory of this process, {:?} lines; nothing survives its end",
            self.line_form()
        )
    }
}
