//! Children of a fork, for tests of what a store does in one.
//!
//! A child has only the thread that forked. It may use what that thread could use at that moment,
//! so a test that forks has one thread, or knows what the others hold. A child that hangs is ended
//! by a signal, and the test fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// How long a child may take.
const CHILD_SECONDS_MAX: u32 = 30;
/// The exit code of a child that panicked.
const PANICKED: i32 = 101;

/// How a child ends when its work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildEnding {
    /// By `_exit`, which runs no destructor.
    AtOnce,
    /// By `exit`, which runs the destructors of the thread's variables.
    WithDestructors,
}

/// A child that runs. It is killed if this is dropped before it was waited for.
#[derive(Debug)]
pub struct ForkedChild {
    process: Option<Pid>,
}

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildEnd {
    /// With this exit code; 101 after a panic.
    Code(i32),
    /// By this signal. SIGALRM: it hung.
    Signal(i32),
}

/// Ends this process by a signal unless it ends before.
pub fn end_after(seconds: u32) {
    // SAFETY: it changes no memory.
    unsafe { libc::alarm(seconds) };
}

/// Runs `work` in a child, whose exit code is 0 if it returns.
///
/// # Panics
/// If the system makes no process.
pub fn fork(ending: ChildEnding, work: impl FnOnce()) -> ForkedChild {
    // SAFETY: the child runs `work`, by which the caller answers for what it uses, and then ends.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "{}", std::io::Error::last_os_error());
    if process > 0 {
        return ForkedChild {
            process: Pid::from_raw(process),
        };
    }
    end_after(CHILD_SECONDS_MAX);
    // The caller's frames belong to the parent, so no panic may unwind into them.
    let code = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(()) => 0,
        Err(_) => PANICKED,
    };
    match ending {
        // SAFETY: it does not return.
        ChildEnding::AtOnce => unsafe { libc::_exit(code) },
        ChildEnding::WithDestructors => std::process::exit(code),
    }
}

impl ForkedChild {
    /// Waits until it has ended.
    ///
    /// # Panics
    /// If the system does not know the child.
    pub fn wait(mut self) -> ChildEnd {
        let waited = self.process.take().map(end_of);
        waited.expect("it is waited for once")
    }

    /// Kills it, and waits until it has ended.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for ForkedChild {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let _ = kill_process(process, Signal::KILL);
            end_of(process);
        }
    }
}

fn end_of(process: Pid) -> ChildEnd {
    let waited = rustix::io::retry_on_intr(|| waitpid(Some(process), WaitOptions::empty()));
    let (_, status) = waited
        .expect("a child of this process")
        .expect("it has ended");
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ChildEnd::Code(code),
        (None, signal) => ChildEnd::Signal(signal.unwrap_or_default()),
    }
}
