//! The interface to a scheduler: how it learns the next access of a thread.
//!
//! A harness runs the threads of a test one at a time, as coroutines of one thread of the system.
//! Before each access that others could notice, the running one calls the [`Scheduler`], which
//! returns when that thread is to go on. The scheduler itself is part of the harness;
//! `everleaf-sim` has one.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::WORD_BYTES;
use crate::huge_pages::HUGE_PAGE_BYTES as HUGE_PAGE;

const HUGE_PAGE_BYTES: usize = HUGE_PAGE as usize;

/// The effect of an access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccessKind {
    /// It reads.
    Load,
    /// It changes, or may change: stores, compare-exchanges, locks that are taken.
    Store,
    /// It makes durable what this thread flushed; other threads do not see it, but a crash does.
    Fence,
}

/// The next access of a thread. Other threads cannot tell whether the code behind it, up to the
/// thread's next access, runs at the same moment or later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// The first of the places that it concerns, as a number: a volatile word, or a line of a
    /// [`Sim`](crate::Sim).
    pub place: usize,
    /// How many places: they are numbered one after the other.
    pub places: usize,
    /// Its effect.
    pub kind: AccessKind,
}

/// Lines are numbered from here, far above volatile words.
const FIRST_LINE: usize = 1 << 61;
/// One place stands for the free lists of all memory that is allocated and reused.
const FREE_MEMORY: usize = 1 << 62;

/// Words of the object that the threads share are numbered from here.
const FIRST_AT_HOME: usize = 1 << 59;
/// Locks and the like are numbered from here, by a hash of their type.
const FIRST_TYPE: usize = 1 << 60;

impl Access {
    /// An access to adjacent volatile words. They go by their address.
    pub fn words<T>(words: &[T], kind: AccessKind) -> Self {
        const { assert!(size_of::<T>() == WORD_BYTES) };
        Self {
            place: words.as_ptr().addr() / WORD_BYTES,
            places: words.len(),
            kind,
        }
    }

    /// The access with numbers that are the same in each run of the same program, although each run
    /// makes its objects anew. `home` is the address range of the object that the threads share:
    /// its words are numbered by their distance from its start. All other words are numbered by
    /// their distance from a huge page, where arenas begin. Two words may get the same number and
    /// are then taken for one. That costs additional schedules, but hides no failure.
    #[must_use]
    pub fn named(self, home: &Range<usize>) -> Self {
        if self.place >= FIRST_TYPE {
            return self;
        }
        let address = self.place * WORD_BYTES;
        let place = match home.contains(&address) {
            true => FIRST_AT_HOME + (address - home.start) / WORD_BYTES,
            false => address % HUGE_PAGE_BYTES / WORD_BYTES,
        };
        Self { place, ..self }
    }

    /// An access to something of this type that is no word: a lock, a list. All of one type count
    /// as one place.
    pub fn something<T>(kind: AccessKind) -> Self {
        let name = std::any::type_name::<T>().bytes();
        let hash = name.fold(0_usize, |hash, byte| {
            hash.wrapping_mul(0x0100_0193) ^ usize::from(byte)
        });
        Self {
            place: FIRST_TYPE + hash % FIRST_TYPE,
            places: 1,
            kind,
        }
    }

    /// Memory is allocated, or given back.
    pub fn free_memory() -> Self {
        Self {
            place: FREE_MEMORY,
            places: 1,
            kind: AccessKind::Store,
        }
    }

    /// Whether it is an access to lines of a medium.
    pub fn is_to_lines(&self) -> bool {
        (FIRST_LINE..FREE_MEMORY).contains(&self.place)
    }

    /// An access to lines of a medium, numbered from its start.
    pub fn lines(first: usize, lines: usize, kind: AccessKind) -> Self {
        Self {
            place: FIRST_LINE + first,
            places: lines,
            kind,
        }
    }
}

/// Decides which thread runs. Called on the thread that is running; returns when it is to go on.
pub trait Scheduler {
    /// The running thread is about to make this access.
    fn reach(&self, access: Access);

    /// The running thread cannot go on before another one has changed something.
    fn contend(&self);
}

thread_local! {
    /// The number of the thread that runs; `NOBODY` outside of a scheduler.
    static THREAD: Cell<u16> = const { Cell::new(NOBODY) };
    static SCHEDULER: RefCell<Option<Rc<dyn Scheduler>>> = const { RefCell::new(None) };
}

const NOBODY: u16 = u16::MAX;

/// Whether a scheduler decides about the calling thread.
#[inline]
pub fn is_running() -> bool {
    THREAD.get() != NOBODY
}

/// The number that the scheduler gave the running thread.
#[inline]
pub fn thread() -> Option<u16> {
    let thread = THREAD.get();
    (thread != NOBODY).then_some(thread)
}

/// Goes on with thread `thread` of a scheduler: `resume` runs it until it stops, and then the
/// caller goes on, without a scheduler.
pub fn enter<R>(scheduler: &Rc<dyn Scheduler>, thread: u16, resume: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            THREAD.set(NOBODY);
            SCHEDULER.with_borrow_mut(|current| *current = None);
        }
    }
    assert!(thread != NOBODY && !is_running(), "one scheduler at a time");
    SCHEDULER.with_borrow_mut(|current| *current = Some(Rc::clone(scheduler)));
    THREAD.set(thread);
    let _leave = Leave;
    resume()
}

/// Abandons the threads of a scheduler where they stand: their pins end, and memory that they
/// retired is never freed.
pub fn abandon() {
    super::epoch::forget();
}

fn call(tell: impl FnOnce(&dyn Scheduler)) {
    let scheduler = SCHEDULER.with_borrow(Clone::clone);
    if let Some(scheduler) = scheduler {
        tell(&*scheduler);
    }
}

/// A yield point: the running thread is about to make this access. Does nothing outside of a
/// scheduler.
#[inline]
pub fn reach(access: Access) {
    if is_running() {
        reach_scheduler(access);
    }
}

#[cold]
#[inline(never)]
fn reach_scheduler(access: Access) {
    call(|scheduler| scheduler.reach(access));
}

/// The running thread cannot go on before another one has changed something.
#[cold]
#[inline(never)]
pub fn contend() {
    call(|scheduler| scheduler.contend());
}
