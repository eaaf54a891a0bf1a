//! Loops and aborts as reports: explorations in a process that another one watches.
//!
//! A recovery that panics, or that goes on operating on the medium for ever, is reported by the
//! [`Explorer`](crate::Explorer) itself. One that loops without touching the medium, overflows its stack or aborts takes
//! its process with it. So whoever wants a report of that as well runs the exploration in a child process ([`watch`],
//! [`watch_again`]). There each explorer writes into a file what it is about to try; the watcher reads it, and says so
//! if the child dies of a signal or does not go on.
//!
//! No clock is read: the watcher counts how often it looked, so that a machine that was stopped for a while does no harm.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::subject::Complaint;

/// The variable that names the file.
const VARIABLE: &str = "EVERLEAF_BEACON";
/// The bytes of one explorer in the file: what it does now, in two parts.
const SLOT_BYTES: usize = 8192;
const PROGRAM_AT: usize = 1024;
/// How often the watcher looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Where an explorer writes what it does.
#[derive(Debug)]
pub(crate) struct Beacon {
    file: File,
    offset: u64,
    attempts: u64,
    text: Vec<u8>,
}

impl Beacon {
    /// A place in the watcher's file; none if nobody watches.
    pub(crate) fn new() -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let path = PathBuf::from(std::env::var_os(VARIABLE)?);
        let file = File::options().write(true).open(path).ok()?;
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) * SLOT_BYTES as u64;
        Some(Self { file, offset, attempts: 0, text: Vec::new() })
    }

    fn write(&mut self, at: usize, bytes_max: usize, text: &str) {
        let mut end = text.len().min(bytes_max - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.text.clear();
        self.text.extend_from_slice(&text.as_bytes()[..end]);
        self.text.push(0);
        // Without it, a report would be less exact; the exploration itself is not concerned.
        let _ = self.file.write_all_at(&self.text, self.offset + at as u64);
    }

    /// From now on this program is explored.
    pub(crate) fn program(&mut self, text: &str) {
        self.write(PROGRAM_AT, SLOT_BYTES - PROGRAM_AT, text);
    }

    /// From now on this is tried.
    pub(crate) fn attempt(&mut self, what: &str) {
        self.attempts += 1;
        let text = format!("{} {what}", self.attempts);
        self.write(0, PROGRAM_AT, &text);
    }

    /// Nothing is tried any more.
    pub(crate) fn rest(&mut self) {
        self.write(0, PROGRAM_AT, "");
    }
}

/// Whether somebody watches this process.
pub fn is_watched() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// What one explorer was doing, as the file says.
#[derive(Clone, PartialEq, Eq)]
struct Doing {
    attempt: String,
    program: String,
}

impl Doing {
    fn text(&self) -> Complaint {
        let what = self.attempt.split_once(' ').map_or("", |(_, what)| what);
        format!("this:\n{}  {what}", self.program)
    }
}

fn text_at(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// What each explorer does; `None` for those that rest.
fn read(file: &File) -> io::Result<Vec<Option<Doing>>> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let doing = |slot: &[u8]| {
        let attempt = text_at(&slot[..PROGRAM_AT.min(slot.len())]);
        let program = text_at(slot.get(PROGRAM_AT..).unwrap_or_default());
        (!attempt.is_empty()).then_some(Doing { attempt, program })
    };
    Ok(bytes.chunks(SLOT_BYTES).map(doing).collect())
}

/// Runs a command and watches the explorers in it. `Err` inside: an explorer tried nothing new for `limit`, and the process
/// was killed, or the process died of a signal; with what was being tried. Else how it exited.
///
/// `limit` is time in which the watcher runs, and has to be longer than the longest recovery.
///
/// # Errors
/// If the command cannot be run or watched.
pub fn watch(mut command: Command, limit: Duration) -> io::Result<Result<ExitStatus, Complaint>> {
    let beacons = tempfile::NamedTempFile::new()?;
    let mut child = command.env(VARIABLE, beacons.path()).spawn()?;
    let result = follow(&mut child, beacons.as_file(), limit);
    if !matches!(result, Ok(Ok(_))) {
        // It may have ended already; then there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
    }
    result
}

/// As [`watch`]: runs this program once more, with the same arguments. The second time, [`is_watched`].
///
/// # Errors
/// If it cannot be run or watched.
pub fn watch_again(limit: Duration) -> io::Result<Result<ExitStatus, Complaint>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1));
    watch(command, limit)
}

fn follow(child: &mut Child, file: &File, limit: Duration) -> io::Result<Result<ExitStatus, Complaint>> {
    let looks_max = limit.as_millis().div_ceil(PAUSE.as_millis()).max(1);
    // For each explorer, what it did and for how many looks.
    let mut known: Vec<(Option<Doing>, u128)> = Vec::new();
    loop {
        if let Some(status) = child.try_wait()? {
            let Some(signal) = status.signal() else { return Ok(Ok(status)) };
            let tried: Vec<_> = read(file)?.iter().flatten().map(Doing::text).collect();
            return Ok(Err(format!(
                "the process died of signal {signal}, during {}",
                tried.join("\nor during ")
            )));
        }
        std::thread::sleep(PAUSE);
        let now = read(file)?;
        known.resize(now.len(), (None, 0));
        for ((before, looks), doing) in known.iter_mut().zip(now) {
            *looks = if doing == *before { *looks + 1 } else { 0 };
            *before = doing;
            if let Some(stuck) = before.as_ref().filter(|_| *looks >= looks_max) {
                return Ok(Err(format!(
                    "did not go on for {limit:?}: a loop without operations on the medium, or close to one, during {}",
                    stuck.text()
                )));
            }
        }
    }
}
