//! Coroutines for the threads of a run. They are reused from run to run, because making one takes
//! longer than most runs.

use std::cell::Cell;
use std::rc::Rc;

use generator::{Generator, Gn};
use medium::sync::schedule::{self, Scheduler};

use super::turn::Turn;

/// The work of one thread in one run.
pub(super) type Job = Box<dyn FnOnce()>;

/// The stack of a coroutine, in words: 512 KiB of address space.
const STACK_WORDS: usize = 1 << 16;

thread_local! {
    /// The job that the coroutine resumed next starts with, if it has none. Coroutines stay on the
    /// operating system's thread that made them.
    static JOB: Cell<Option<Job>> = const { Cell::new(None) };
}

/// Suspends the running coroutine: control returns to the code that resumed it.
#[expect(
    deprecated,
    reason = "the scope that replaces it is not available inside the calls of the threads"
)]
pub(super) fn give_way() {
    generator::yield_with(());
}

fn coroutine() -> Generator<'static, (), ()> {
    Gn::<()>::new_opt(STACK_WORDS, || {
        while let Some(job) = JOB.take() {
            job();
            give_way();
        }
    })
}

/// The coroutines of one explorer.
#[derive(Default)]
pub(super) struct Crew {
    members: Vec<Generator<'static, (), ()>>,
}

impl Crew {
    /// Runs the jobs, each as a thread of its own, in the order of `turn`. When this returns all
    /// are done, or the run is stuck.
    pub(super) fn run(&mut self, turn: &Rc<Turn>, jobs: Vec<Job>) {
        while self.members.len() < jobs.len() {
            self.members.push(coroutine());
        }
        let mut jobs: Vec<Option<Job>> = jobs.into_iter().map(Some).collect();
        let scheduler: Rc<dyn Scheduler> = Rc::<Turn>::clone(turn);
        while let Some(next) = turn.next() {
            if let Some(job) = jobs[next].take() {
                JOB.set(Some(job));
            }
            let member = &mut self.members[next];
            schedule::enter(&scheduler, next as u16, || member.resume());
        }
        if turn.is_stuck() {
            // The coroutines are leaked, not dropped: unwinding would run code that waits for locks
            // that are never released.
            self.members.drain(..).for_each(std::mem::forget);
            schedule::abandon();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Without a job a coroutine ends.
        for member in &mut self.members {
            member.resume();
        }
    }
}
