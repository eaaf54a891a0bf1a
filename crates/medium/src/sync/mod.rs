//! Volatile state that threads share: atomics, locks, waiting, epochs. One module, so that a test
//! can decide which thread runs.
//!
//! Whatever several threads share outside of a pool goes through here and not through `std`,
//! `parking_lot` or `crossbeam` directly: atomics ([`AtomicU64`], [`Atomic`]), [`Mutex`], waiting
//! ([`pause`], [`spin_loop`], [`yield_now`]), and the epochs after which retired memory is reused
//! ([`Pin`]). The module has three back ends:
//!
//! | back end | when | what it does |
//! | --- | --- | --- |
//! | std | always, unless one of the others is asked for | the real thing |
//! | scheduler | on a thread that runs inside of [`schedule::enter`] | one thread at a time, the scheduler says which |
//! | `loom` | built with `--cfg loom` | every interleaving *and* every weak ordering, of a few lines of code |
//!
//! # Why the scheduler costs nothing where none runs
//!
//! A point read of an engine takes some two hundred nanoseconds and twenty accesses to volatile
//! memory. Asking at each of them whether a scheduler runs would take a noticeable part of that
//! time, and a second build for tests would test another program. So the code asks only where that
//! costs nothing:
//!
//! - **Operations on the medium** are yield points on [`Sim`](crate::Sim), whose own code asks.
//! - **Volatile words that belong to a medium's nodes** (versions, bitmaps, locks beside a leaf)
//!   are [`Atomic<M>`]: the type names the medium, and the compiler removes the question unless
//!   [`Medium::SCHEDULED`] is set, as it is on `Sim`. Engines are compiled for each medium, so the
//!   same source and the same release build have both forms.
//! - **Contended paths** ask a thread-local variable: a lock that was not free, the second round of
//!   a spin loop. The thread has to wait there anyway.
//! - **Epochs** are asked for once per guard, by its medium; [`pin`], which knows no medium, is for
//!   rare changes.
//!
//! # Under `loom`
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p everleaf-medium -p everleaf-pool -p everleaf-engines --lib loom_tests
//! ```
//!
//! runs the models of the volatile protocols: the pool's space and the memory that waits to be
//! freed; optimistic lock coupling of the inner nodes, and a leaf's version, claims, live entries
//! and slots, each with the reuse of what was retired; and the Masstree's barrier between epochs;
//! the file medium's group commit; announced shares of a lock. They have at most two preemptions.
//! Everything else is built for them, but does not run: an arena has ten elements then, an inner
//! node four children. Pool memory is not modelled; where a model needs an entry, it has atomics
//! with the orderings of cells.
//!
//! `loom` 0.7 has a gap: it keeps one last access of each word. If a thread loads a word and then
//! stores to it, `loom` finds no race of that store with earlier loads of other threads, and does
//! not try the other order. A model whose writer does that may run once and prove nothing. Where it
//! matters the writer changes the word in one step (`fetch_or`, `swap`, `compare_exchange`).
//!
//! # What is no yield point
//!
//! Plain atomics ([`AtomicU64`], as in the inner nodes) are deliberately no yield points.
//! Everything between two yield points is one step for the scheduler; `loom` tests whether it may
//! be taken for one.
//!
//! # What follows for its users
//!
//! - A thread that waits must wait by [`pause`], [`spin_loop`] or [`Mutex::lock`]: any other loop
//!   never ends under the scheduler, where the thread that it waits for does not run by itself.
//! - A lock may be held at a yield point only if it comes from here: a thread that wants it then
//!   lets the others run.
//! - The scheduler runs one thread at a time, in an order of its own: it is sequentially
//!   consistent. A missing `Release` is found by `loom`, not by the scheduler.

mod announced;
mod atomic;
mod awaited;
mod epoch;
mod mutex;
pub mod schedule;
mod shared_lock;

#[cfg(test)]
pub(crate) use announced::while_words_are_locked;
pub use announced::{Share, wait_for_announced};
pub use atomic::{Atomic, AtomicBool, AtomicU32, AtomicU64, fence, load_all};
pub use awaited::Awaited;
pub use epoch::{Pin, pin, pin_on};
pub use mutex::{Mutex, MutexGuard, hand_over};
pub use shared_lock::{ExclusiveGuard, SharedGuard, SharedLock};

pub use std::sync::atomic::Ordering;

/// Checks a protocol in every interleaving with at most two preemptions, and every weak ordering.
#[cfg(loom)]
pub fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.check(check);
}

/// Threads that sleep until another one wakes them. A scheduler does not know of it.
pub(crate) mod thread {
    #[cfg(loom)]
    pub(crate) use loom::thread::{Thread, current, park};
    #[cfg(not(loom))]
    pub(crate) use std::thread::{Thread, current, park};
}

use crate::Medium;

/// Forgets, in the child of a fork, what the threads of its parent share. For the handler of forks:
/// it takes no lock and allocates nothing.
pub(crate) fn begin_anew() {
    announced::begin_anew();
    epoch::begin_anew();
}

/// How often a waiting thread spins before it lets others run.
const SPINS_MAX: u32 = 64;

/// Whether the calling thread runs under a scheduler, as far as that matters on medium `M`: no code
/// where it does not.
#[inline(always)]
pub fn is_scheduled<M: Medium>() -> bool {
    M::SCHEDULED && schedule::is_running()
}

/// The number of the calling thread, by which it chooses its shard: from 0 on, in the order of the
/// first calls. On a scheduled medium it is the number that the scheduler gave the thread, and 0
/// outside of a scheduler, so every run makes the same choices.
#[inline]
pub fn thread_number<M: Medium>() -> usize {
    thread_number_beside(M::SCHEDULED)
}

/// [`thread_number`] for code that knows only at run time whether its medium may be scheduled.
#[inline]
pub fn thread_number_beside(may_be_scheduled: bool) -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    if may_be_scheduled {
        return schedule::thread().map_or(0, usize::from);
    }
    NUMBER.with(|number| *number)
}

/// Waits a moment for another thread: spins at first, then lets others run. Under a scheduler
/// others run at once.
#[inline]
pub fn pause(spins: &mut u32) {
    if schedule::is_running() {
        return schedule::contend();
    }
    *spins += 1;
    if *spins < SPINS_MAX {
        spin_loop_hint();
    } else {
        yield_thread();
    }
}

/// Says that the calling thread waits for another one that will soon be done.
#[inline]
pub fn spin_loop() {
    if schedule::is_running() {
        return schedule::contend();
    }
    spin_loop_hint();
}

#[cfg(not(loom))]
fn spin_loop_hint() {
    std::hint::spin_loop();
}

/// Lets others run, where there is no hurry.
#[inline]
pub fn yield_now() {
    if schedule::is_running() {
        return schedule::contend();
    }
    yield_thread();
}

#[cfg(not(loom))]
fn yield_thread() {
    std::thread::yield_now();
}

/// Under `loom` a thread that spins yields: it must let the others run, or the model never ends.
#[cfg(loom)]
fn spin_loop_hint() {
    loom::thread::yield_now();
}

#[cfg(loom)]
fn yield_thread() {
    loom::thread::yield_now();
}
