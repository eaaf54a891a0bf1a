//! An artificial medium whose fences return long before anything is durable.
//!
//! A file behaves like this, but faster, and a test cannot control it. Here the test decides when
//! each group becomes durable, sees which threads wait for it, and examines the image that a crash
//! would leave. It holds engines to two rules: *no lock is held across a wait* (so a second writer
//! gets as far as its own wait while the first still waits), and *no reader returns a value that a
//! crash could take back*.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::{Dax, Extent, LINE_BYTES, LineForm, LineValue, Lsn, Medium, MediumError, Survives};

/// A timer of the system ends at least this late.
const TIMER: Duration = Duration::from_micros(60);

/// When a [`Late`] medium makes its groups durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// At once, at the fence: for setting up.
    Immediate,
    /// Only when the test calls [`Late::release`].
    Manual,
    /// After this many further fences; or, when a thread waits, this long after the fence it waits
    /// for.
    After {
        /// Fences that follow.
        fences: u64,
        /// Time since the fence.
        delay: Duration,
    },
}

/// The content of a [`Late`] medium after a crash.
#[derive(Clone, Debug, Default)]
pub struct LateImage {
    length: u64,
    lines: BTreeMap<u64, LineValue>,
}

/// The lines that one guard flushed since its last fence.
#[derive(Debug, Default)]
pub struct LateNotes {
    lines: RefCell<Vec<u64>>,
}

/// The lines of one fence, as they were then.
#[derive(Debug)]
struct Group {
    lsn: u64,
    fenced: Instant,
    lines: Vec<(u64, LineValue)>,
}

#[derive(Debug)]
struct State {
    release: Release,
    /// The LSN of the last fence.
    fenced: u64,
    /// Groups not yet durable, oldest first.
    groups: VecDeque<Group>,
    /// The content of the lines that are durable.
    shadow: BTreeMap<u64, LineValue>,
    /// The positions that threads are waiting for.
    waiting: Vec<Lsn>,
    hold: Hold,
}

/// Whether a fence is to be held, or is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    Nothing,
    /// The fence after this many further ones.
    Fence(usize),
    Held,
}

/// Plain memory whose LSNs become durable late. See the [module](self).
///
/// A fence captures the lines that its guard flushed since its last fence, as one group with the
/// next LSN. Groups become durable in order, and a crash leaves what they hold and nothing else.
#[derive(Debug)]
pub struct Late {
    ram: Dax,
    line_form: LineForm,
    durable: AtomicU64,
    state: Mutex<State>,
    /// Something became durable, or a thread began to wait.
    changed: Condvar,
}

impl Late {
    /// Empty memory of at most `limit_bytes`, releasing [`Release::Immediate`]ly until told
    /// otherwise, so that pools can be made and opened on it.
    pub fn new(limit_bytes: u64, line_form: LineForm) -> Result<Self, MediumError> {
        let state = State {
            release: Release::Immediate,
            fenced: 0,
            groups: VecDeque::new(),
            shadow: BTreeMap::new(),
            waiting: Vec::new(),
            hold: Hold::Nothing,
        };
        Ok(Self {
            ram: Dax::plain(limit_bytes)?,
            line_form,
            durable: AtomicU64::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// The memory after a crash that left `image`, as a medium of its own.
    pub fn from_image(
        image: &LateImage,
        limit_bytes: u64,
        line_form: LineForm,
    ) -> Result<Self, MediumError> {
        let late = Self::new(limit_bytes, line_form)?;
        late.grow(image.length)?;
        for (number, value) in &image.lines {
            let Some(words) = late.extent().line(*number) else {
                continue;
            };
            value.store(words, Ordering::Relaxed);
        }
        late.state.lock().shadow.clone_from(&image.lines);
        Ok(late)
    }

    /// Changes when groups become durable. Groups that the new rule would have released already
    /// become durable now.
    pub fn set_release(&self, release: Release) {
        let mut state = self.state.lock();
        state.release = release;
        self.release_by_rule(&mut state);
    }

    /// Makes everything up to `up_to` durable and wakes the threads that wait for it.
    pub fn release(&self, up_to: Lsn) {
        self.release_locked(&mut self.state.lock(), up_to.0);
    }

    /// Makes everything durable that was fenced.
    pub fn release_all(&self) {
        let mut state = self.state.lock();
        let fenced = state.fenced;
        self.release_locked(&mut state, fenced);
    }

    /// The LSN of the last fence.
    pub fn fenced(&self) -> Lsn {
        Lsn(self.state.lock().fenced)
    }

    /// The positions that threads are waiting for at this moment, ascending; one for each thread.
    pub fn waiting(&self) -> Vec<Lsn> {
        let mut waiting = self.state.lock().waiting.clone();
        waiting.sort_unstable();
        waiting
    }

    /// Blocks until at least `count` threads wait for something that is not durable, or `timeout`
    /// has passed; whether they do. Threads that wait hold no lock, or the next one would not get
    /// there.
    pub fn until_waiting(&self, count: usize, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        while state.waiting.len() < count {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.waiting.len() >= count;
            }
        }
        true
    }

    /// Holds the fence after `further` others, on whatever thread, until [`Late::let_go`], to stop
    /// an operation in its middle.
    pub fn hold_fence(&self, further: usize) {
        self.state.lock().hold = Hold::Fence(further);
    }

    /// Blocks until a fence is held, or `timeout` has passed; whether one is.
    pub fn until_held(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        while state.hold != Hold::Held {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.hold == Hold::Held;
            }
        }
        true
    }

    /// Lets a held fence go on, and holds no other.
    pub fn let_go(&self) {
        self.state.lock().hold = Hold::Nothing;
        self.changed.notify_all();
    }

    /// The image that a crash leaves at this moment: everything that is durable, and nothing else.
    pub fn durable_image(&self) -> LateImage {
        self.image(Lsn(0))
    }

    /// The image that a crash leaves when the groups up to `up_to`, or up to the durable position
    /// if that is greater, have reached the medium. Groups reach it in their order, so there are no
    /// other images.
    pub fn image(&self, up_to: Lsn) -> LateImage {
        let state = self.state.lock();
        let mut image = LateImage {
            length: self.ram.extent().length(),
            lines: state.shadow.clone(),
        };
        for group in state.groups.iter().take_while(|group| group.lsn <= up_to.0) {
            image.lines.extend(group.lines.iter().copied());
        }
        image
    }

    fn release_locked(&self, state: &mut State, up_to: u64) {
        while state.groups.front().is_some_and(|group| group.lsn <= up_to) {
            let group = state.groups.pop_front().expect("there is a front");
            state.shadow.extend(group.lines);
            self.durable.store(group.lsn, Ordering::Release);
        }
        self.changed.notify_all();
    }

    fn release_by_rule(&self, state: &mut State) {
        match state.release {
            Release::Immediate => self.release_locked(state, state.fenced),
            Release::Manual => {}
            Release::After { fences, .. } => {
                self.release_locked(state, state.fenced.saturating_sub(fences));
            }
        }
    }

    fn note(&self, notes: &LateNotes, memory: &[AtomicU64]) {
        let Some(offset) = self.ram.extent().offset_of(memory) else {
            return;
        };
        let line = LINE_BYTES as u64;
        let end = (offset + size_of_val(memory) as u64).div_ceil(line);
        notes.lines.borrow_mut().extend(offset / line..end);
    }

    /// Waits once, until something changed or the rule lets `lsn` go.
    fn wait_a_while(&self, state: &mut parking_lot::MutexGuard<'_, State>, lsn: Lsn) {
        let fenced = state
            .groups
            .iter()
            .find(|group| group.lsn == lsn.0)
            .map(|group| group.fenced);
        match (state.release, fenced) {
            (Release::After { delay, .. }, Some(fenced)) if delay < TIMER => {
                // A timer would wake this thread many times too late.
                parking_lot::MutexGuard::unlocked(state, || {
                    while fenced.elapsed() < delay {
                        std::thread::yield_now();
                    }
                });
                self.release_locked(state, lsn.0);
            }
            (Release::After { delay, .. }, Some(fenced)) => {
                if self.changed.wait_until(state, fenced + delay).timed_out() {
                    self.release_locked(state, lsn.0);
                }
            }
            _ => self.changed.wait(state),
        }
    }
}

// SAFETY: the extent is that of the memory inside, which is never replaced.
unsafe impl Medium for Late {
    type Notes = LateNotes;
    const LATE: bool = true;
    const DIRECT: bool = true;

    #[inline(always)]
    fn extent(&self) -> &Extent {
        self.ram.extent()
    }

    fn grow(&self, length: u64) -> Result<(), MediumError> {
        self.ram.grow(length)
    }

    fn shrink(&mut self, length: u64) -> Result<(), MediumError> {
        self.state
            .get_mut()
            .shadow
            .split_off(&length.div_ceil(LINE_BYTES as u64));
        self.ram.shrink(length)
    }

    #[inline(always)]
    fn line_form(&self) -> LineForm {
        self.line_form
    }

    fn store_line(
        &self,
        notes: &LateNotes,
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError> {
        // Fences capture lines under this lock, so none captures half of the stored line.
        let _whole = self.state.lock();
        value.store(line, Ordering::Release);
        self.note(notes, line);
        Ok(())
    }

    fn flush(&self, notes: &LateNotes, memory: &[AtomicU64]) {
        self.note(notes, memory);
    }

    fn fence(&self, notes: &LateNotes) -> Lsn {
        let mut numbers = std::mem::take(&mut *notes.lines.borrow_mut());
        numbers.sort_unstable();
        numbers.dedup();
        let mut state = self.state.lock();
        let capture = |number: u64| {
            Some((
                number,
                LineValue::load(self.ram.extent().line(number)?, Ordering::Acquire),
            ))
        };
        let lines = numbers.into_iter().filter_map(capture).collect();
        state.fenced += 1;
        let lsn = state.fenced;
        state.groups.push_back(Group {
            lsn,
            fenced: Instant::now(),
            lines,
        });
        self.release_by_rule(&mut state);
        match state.hold {
            Hold::Fence(0) => {
                state.hold = Hold::Held;
                self.changed.notify_all();
                while state.hold == Hold::Held {
                    self.changed.wait(&mut state);
                }
            }
            Hold::Fence(further) => state.hold = Hold::Fence(further - 1),
            // Only one fence is held at a time: others pass.
            Hold::Nothing | Hold::Held => {}
        }
        Lsn(lsn)
    }

    #[inline(always)]
    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    fn wait(&self, lsn: Lsn) -> Result<(), MediumError> {
        if self.durable() >= lsn {
            return Ok(());
        }
        let mut state = self.state.lock();
        if lsn.0 > state.fenced {
            return Err(MediumError::Failed(format!(
                "a wait for {lsn:?}, but the last fence was {}",
                state.fenced
            )));
        }
        state.waiting.push(lsn);
        self.changed.notify_all();
        while self.durable() < lsn {
            self.wait_a_while(&mut state, lsn);
        }
        let mine = state
            .waiting
            .iter()
            .position(|waiting| *waiting == lsn)
            .expect("entered above");
        state.waiting.swap_remove(mine);
        Ok(())
    }

    fn survives(&self) -> Survives {
        Survives::Nothing
    }

    fn describe(&self) -> String {
        "late: memory of this process that becomes durable when a test says so; nothing survives its end"
            .to_owned()
    }
}

#[cfg(test)]
mod tests;
