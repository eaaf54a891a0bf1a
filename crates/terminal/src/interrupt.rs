//! Ctrl-C, and the other signals that ask a process to end.
//!
//! A command that has files to remove, or results to report, calls [`gently`] and then [`check`]
//! now and then. At any other time, and for a second signal, the process ends at once: pools
//! survive that, and temporary files are removed.

use std::fs::File;
use std::io::{self, Read};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::temporary;

static IS_GENTLE: AtomicBool = AtomicBool::new(false);
static IS_READING: AtomicBool = AtomicBool::new(false);
static IS_ASKED: AtomicBool = AtomicBool::new(false);
/// Whether one of the signals was to end the process, and not only the present command of a shell.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// The settings of the terminal before the first prompt.
static TERMINAL: OnceLock<Termios> = OnceLock::new();

/// How often a command that waits for input checks whether a signal came.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Takes the signals of this process from now on. A signal that ends the process at once calls
/// `report`, which returns the exit code. The terminal sends the signal of Ctrl-C to parent and child
/// alike; a child leaves it to its parent (`leaves_to_parent`), which reports it and ends the child.
pub fn install(
    leaves_to_parent: bool,
    report: impl Fn() -> u8 + Send + 'static,
) -> Result<(), Failure> {
    // If signals cannot be taken, they end the process at once, which harms no pool.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else {
        return Ok(());
    };
    let take = move || {
        for signal in &mut signals {
            if leaves_to_parent && signal == SIGINT {
                continue;
            }
            if signal != SIGINT {
                IS_ENDING.store(true, SeqCst);
            }
            if IS_ASKED.swap(true, SeqCst) || !IS_GENTLE.load(SeqCst) {
                temporary::remove_all();
                restore_terminal();
                std::process::exit(report().into());
            }
        }
    };
    // Without the thread, the signals that are taken would have no effect.
    let started = medium::start_thread("everleaf-signals", take);
    started.map_err(Failure::io("start the thread that takes signals"))?;
    Ok(())
}

/// From now on this command calls [`check`] until it ends.
pub fn gently() {
    IS_GENTLE.store(true, SeqCst);
}

/// Calls `wait`, which waits for a user at the terminal. A signal ends the process at once
/// meanwhile, and leaves the terminal as it is now.
///
/// # Errors
/// If a signal was to end the process while a command ran. (A Ctrl-C ends that command alone.)
pub fn at_prompt<T>(wait: impl FnOnce() -> T) -> Result<T, Interruption> {
    if let Ok(settings) = tcgetattr(io::stdin()) {
        // All later calls would save the same.
        let _ = TERMINAL.set(settings);
    }
    IS_GENTLE.store(false, SeqCst);
    // A signal that comes later finds that it may end the process at once.
    if IS_ENDING.load(SeqCst) {
        return Err(Interruption);
    }
    let waited = wait();
    // An earlier signal was for the command before.
    IS_ASKED.store(false, SeqCst);
    IS_GENTLE.store(true, SeqCst);
    Ok(waited)
}

/// Gives the terminal the settings that it had before the first prompt.
fn restore_terminal() {
    if let Some(settings) = TERMINAL.get() {
        // If the terminal is gone, it needs no settings.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, settings);
    }
}

/// The command changes no pool before it ends.
pub fn changes_nothing() {
    IS_READING.store(true, SeqCst);
}

/// The sentence of an interrupted command about the pool.
pub fn consequence() -> &'static str {
    if IS_READING.load(SeqCst) {
        "; the pool is as it was"
    } else {
        ""
    }
}

/// Whether the command was asked to end.
pub fn is_asked() -> bool {
    IS_ASKED.load(SeqCst)
}

/// Fails if the command was asked to end.
pub fn check() -> Result<(), Interruption> {
    if is_asked() {
        Err(Interruption)
    } else {
        Ok(())
    }
}

/// Input whose reads fail once the command was asked to end.
pub struct Interruptible(pub File);

impl Read for Interruptible {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !is_asked() {
            let mut input = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut input, Some(&LOOK_EVERY)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // Input for which the system cannot wait can be read at once.
                _ => return self.0.read(buffer),
            }
        }
        Err(io::Error::other(Interruption))
    }
}

/// The command was asked to end, and has to. Reads of [`Interruptible`] fail with it as well.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interruption;
