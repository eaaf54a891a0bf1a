//! Reports of loops and aborts: explorations run in a process that another process watches.
//!
//! A recovery that panics, or that goes on operating on the medium for ever, is reported by the
//! [`Explorer`](crate::Explorer) itself. One that loops without touching the medium, overflows its
//! stack or aborts takes its process with it. To get a report of that as well, run the exploration
//! in a child process ([`watch`]). There each explorer writes its next attempt into a file. If the
//! child dies of a signal or makes no progress, the watcher reads the file and reports the
//! attempts.
//!
//! No clock is read. A loop is recognised by the processor time of its thread, a blocked thread by
//! how often the watcher found it asleep. So a busy machine, or one that was suspended, causes no
//! false report.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// The variable that names the file.
const VARIABLE: &str = "EVERLEAF_BEACON";
/// The bytes of one explorer in the file: its current attempt, then its program.
const SLOT_BYTES: usize = 64 << 10;
const PROGRAM_AT: usize = 16 << 10;
/// A text of this length may have been cut off: one byte less for the end, and up to three for a
/// split character.
const ATTEMPT_MAX: usize = PROGRAM_AT - 4;
/// The pause between two observations of the watcher.
const PAUSE: Duration = Duration::from_millis(20);

/// Slots that are free again.
static FREE: Mutex<Vec<u64>> = Mutex::new(Vec::new());

thread_local! {
    /// The folder of the calling thread in `/proc`; empty if there is none.
    static THREAD: String = std::fs::read_link("/proc/thread-self")
        .map_or_else(|_| String::new(), |path| path.to_string_lossy().into_owned());
}

/// The place where an explorer writes its attempts.
#[derive(Debug)]
pub(crate) struct Beacon {
    file: File,
    slot: u64,
    attempts: u64,
    text: Vec<u8>,
}

impl Beacon {
    /// A place in the watchdog's file; none if no watchdog runs.
    pub(crate) fn new() -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let path = PathBuf::from(std::env::var_os(VARIABLE)?);
        let file = File::options().write(true).open(path).ok()?;
        let free = FREE.lock().pop();
        let slot = free.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        Some(Self {
            file,
            slot,
            attempts: 0,
            text: Vec::new(),
        })
    }

    /// Writes texts one after the other, cut where there is no more space: then no zero byte
    /// follows.
    fn write(&mut self, at: usize, bytes_max: usize, texts: &[&str]) {
        self.text.clear();
        for text in texts {
            let mut end = text.len().min(bytes_max - self.text.len() - 1);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            self.text.extend_from_slice(&text.as_bytes()[..end]);
            if self.text.len() + 1 < bytes_max {
                self.text.push(0);
            }
        }
        // If writing fails, a report is less exact, but the exploration is not affected.
        let _ = self
            .file
            .write_all_at(&self.text, self.slot * SLOT_BYTES as u64 + at as u64);
    }

    /// Notes the program explored from now on: the command, the program as one word, and as text.
    pub(crate) fn program(&mut self, command: &str, word: &str, text: &str) {
        self.write(PROGRAM_AT, SLOT_BYTES - PROGRAM_AT, &[command, word, text]);
    }

    /// Notes the crash that is tried next.
    pub(crate) fn attempt(&mut self, crash: &str) {
        self.attempts += 1;
        let text = THREAD.with(|thread| format!("{} {thread} {crash}", self.attempts));
        self.write(0, PROGRAM_AT, &[&text]);
    }

    /// Notes that nothing is tried any more.
    pub(crate) fn rest(&mut self) {
        self.write(0, PROGRAM_AT, &[""]);
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        self.rest();
        FREE.lock().push(self.slot);
    }
}

/// Whether a watchdog watches this process.
pub fn is_watched() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// The attempt of one explorer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Doing {
    /// The command that explores it.
    pub command: String,
    /// The program in one word, as [`Subject::word`](crate::Subject::word) has it, up to the crash;
    /// empty if there is no such word.
    pub word: String,
    /// The program, as text.
    pub program: String,
    /// The crash that was tried, as a [`CrashReplay`](crate::CrashReplay); empty if it went wrong
    /// without one.
    pub crash: String,
}

impl fmt::Display for Doing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.program)?;
        match self.crash.is_empty() {
            true => write!(formatter, "  without a crash; found by {}", self.command),
            false => write!(
                formatter,
                "  replay: EVERLEAF_CRASH={} {}",
                self.crash, self.command
            ),
        }
    }
}

/// Why a watched process did not finish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The watcher's finding.
    pub what: String,
    /// The attempts of its explorers: of the one without progress, or of all, as the signal may
    /// have hit any of them.
    pub doing: Vec<Doing>,
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)?;
        for (index, doing) in self.doing.iter().enumerate() {
            let which = if index == 0 {
                ", during"
            } else {
                "\nor during"
            };
            write!(formatter, "{which} this:\n{doing}")?;
        }
        Ok(())
    }
}

/// The text up to the next zero byte.
fn text(bytes: &mut impl Iterator<Item = u8>) -> String {
    let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&text).into_owned()
}

/// The bytes of the file from there on; fewer at its end.
fn read(file: &File, at: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; bytes_max];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], at + length as u64)? {
            0 => break,
            more => length += more,
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// The current attempt of each explorer; empty for idle ones.
fn attempts(file: &File) -> io::Result<Vec<String>> {
    let slots = file.metadata()?.len().div_ceil(SLOT_BYTES as u64);
    let attempt = |slot| {
        Ok(text(
            &mut read(file, slot * SLOT_BYTES as u64, PROGRAM_AT)?.into_iter(),
        ))
    };
    (0..slots).map(attempt).collect()
}

/// The full description of an explorer's attempt.
fn doing(file: &File, slot: usize, attempt: &str) -> io::Result<Doing> {
    let at = (slot * SLOT_BYTES + PROGRAM_AT) as u64;
    let mut bytes = read(file, at, SLOT_BYTES - PROGRAM_AT)?.into_iter();
    let command = text(&mut bytes);
    let word = text(&mut bytes);
    let program = text(&mut bytes);
    let (_, crash) = parts(attempt);
    Ok(Doing {
        command,
        word,
        program,
        crash: crash.to_owned(),
    })
}

/// The thread of an attempt, and its crash; no crash if the text was cut off, as it would name
/// another one.
fn parts(attempt: &str) -> (&str, &str) {
    let mut parts = attempt.splitn(3, ' ').skip(1);
    let thread = parts.next().unwrap_or_default();
    let crash = parts.next().unwrap_or_default();
    (
        thread,
        if attempt.len() < ATTEMPT_MAX {
            crash
        } else {
            ""
        },
    )
}

/// The state of a thread.
enum Activity {
    /// It waits for something.
    Sleeps,
    /// It is runnable; the processor time that it has used.
    Runs(Duration),
    /// It was stopped by a signal.
    IsStopped,
}

/// The state of a thread, given its folder in `/proc`; `None` if it is not known.
fn activity(thread: &str) -> Option<Activity> {
    let read = |name| std::fs::read_to_string(format!("/proc/{thread}/{name}")).ok();
    if thread.is_empty() {
        return None;
    }
    // The state follows the program's name, which stands in brackets and may contain any character.
    let state = read("stat")?
        .rsplit_once(')')?
        .1
        .trim_start()
        .chars()
        .next()?;
    match state {
        'S' | 'D' => Some(Activity::Sleeps),
        'T' | 't' => Some(Activity::IsStopped),
        _ => {
            let used_ns = read("schedstat")?.split(' ').next()?.parse().ok()?;
            Some(Activity::Runs(Duration::from_nanos(used_ns)))
        }
    }
}

/// The observations of one explorer.
#[derive(Default)]
struct Watched {
    attempt: String,
    /// How long it has made the present attempt.
    idle: Duration,
    /// The processor time of its thread at the last observation, if known.
    used: Option<Duration>,
}

impl Watched {
    /// Adds an observation, [`PAUSE`] after the last one.
    fn look(&mut self, attempt: String) {
        if attempt != self.attempt {
            *self = Self {
                attempt,
                ..Self::default()
            };
        }
        if self.attempt.is_empty() {
            return;
        }
        match activity(parts(&self.attempt).0) {
            Some(Activity::Runs(used)) => {
                self.idle += used.saturating_sub(self.used.replace(used).unwrap_or(used));
            }
            Some(Activity::IsStopped) => {}
            Some(Activity::Sleeps) | None => self.idle += PAUSE,
        }
    }
}

/// How a process that was watched ended.
#[derive(Debug)]
pub enum ProcessEnd {
    /// It exited.
    Exited(ExitStatus),
    /// It died of a signal, or was killed because an explorer tried nothing new: the attempts that
    /// were under way.
    Cut(Ended),
}

/// Runs a command and watches the explorers in it. It is killed if an explorer tries nothing new
/// for `limit`.
///
/// `limit` must be longer than the longest recovery. It counts processor time while the explorer
/// runs, elapsed time while it sleeps, and nothing while it is stopped.
///
/// # Errors
/// If the command cannot be run or watched.
pub fn watch(mut command: Command, limit: Duration) -> io::Result<ProcessEnd> {
    // It has no name in any folder, so none is left behind however this process ends.
    let beacons = tempfile::tempfile()?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), beacons.as_raw_fd());
    let mut child = command.env(VARIABLE, path).spawn()?;
    let result = follow(&mut child, &beacons, limit);
    if !matches!(result, Ok(ProcessEnd::Exited(_))) {
        // It may have ended already; then there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
    }
    result
}

fn follow(child: &mut Child, file: &File, limit: Duration) -> io::Result<ProcessEnd> {
    let mut watched: Vec<Watched> = Vec::new();
    loop {
        if let Some(status) = child.try_wait()? {
            let Some(signal) = status.signal() else {
                return Ok(ProcessEnd::Exited(status));
            };
            let now = attempts(file)?;
            let tried = now
                .iter()
                .enumerate()
                .filter(|(_, attempt)| !attempt.is_empty());
            let doing = tried
                .map(|(slot, attempt)| doing(file, slot, attempt))
                .collect::<io::Result<_>>()?;
            return Ok(ProcessEnd::Cut(Ended {
                what: format!("the process died of signal {signal}"),
                doing,
            }));
        }
        std::thread::sleep(PAUSE);
        let now = attempts(file)?;
        watched.resize_with(now.len(), Watched::default);
        for (slot, (watched, attempt)) in watched.iter_mut().zip(now).enumerate() {
            watched.look(attempt);
            if watched.idle >= limit {
                let what = format!(
                    "made no progress for {limit:?}: probably a loop without operations on the medium"
                );
                return Ok(ProcessEnd::Cut(Ended {
                    what,
                    doing: vec![doing(file, slot, &watched.attempt)?],
                }));
            }
        }
    }
}
