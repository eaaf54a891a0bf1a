//! Writer processes: child processes that run this program, and that are killed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use everleaf::{ErrorKind, Options, Store};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Answer, Failure};

/// How long the lock of a killed process may stay taken.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes that a pipe to the parent holds, if the system allows this size.
const PIPE_BYTES: usize = 1 << 20;

/// A child process, killed when this is dropped, so that no error leaves behind a process that
/// holds a pool.
pub struct Running(Child);

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that the process has ended already, or cannot be killed.
        let _ = kill(self);
    }
}

/// Runs this program again with a hidden subcommand; its standard output is a pipe, and its
/// standard error `errors`.
pub fn spawn(arguments: Vec<OsString>, input: Stdio, errors: Stdio) -> Result<Running, Failure> {
    let program = std::env::current_exe().map_err(Failure::io("find this program"))?;
    let mut command = Command::new(program);
    let child = command
        .args(arguments)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn();
    let child = child.map_err(Failure::io("start the writer process"))?;
    if let Some(output) = &child.stdout {
        // A smaller pipe also works, with more waiting.
        let _ = rustix::pipe::fcntl_setpipe_size(output, PIPE_BYTES);
    }
    Ok(Running(child))
}

/// Sends SIGKILL and waits for the end of the process.
pub fn kill(child: &mut Child) -> Result<ExitStatus, Failure> {
    child
        .kill()
        .map_err(Failure::io("kill the writer process"))?;
    child
        .wait()
        .map_err(Failure::io("wait for the writer process"))
}

/// Whether a process was ended by SIGKILL.
pub fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(9)
}

/// Whether a process was ended by a signal that asks for that: a terminal sends that of Ctrl-C to
/// all its processes.
pub fn was_interrupted(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status
        .signal()
        .is_some_and(|signal| [SIGINT, SIGTERM, SIGHUP].contains(&signal))
}

/// Reports a failure to the parent, which has a pipe at standard error.
pub fn tell_parent(failure: &Failure) -> Answer {
    // If this fails, the parent says that it does not know why.
    let _ = writeln!(io::stderr(), "{}", failure.json());
    Answer::Child(failure.exit_code())
}

/// The failure that a child reported by [`tell_parent`] before it ended. Other text on the child's
/// standard error, such as the report of a panic, is passed on to that of this process.
pub fn failure_of(child: &mut Child) -> Option<Failure> {
    let mut said = String::new();
    // Bytes that are no text are no report.
    child.stderr.take()?.read_to_string(&mut said).ok()?;
    let mut found = None;
    for line in said.lines() {
        let report = serde_json::from_str::<Value>(line).ok();
        let field = |name| Some(report.as_ref()?.get(name)?.as_str()?.to_owned());
        match field("error").zip(field("kind")) {
            Some((error, kind)) => found = Some(Failure::Child { error, kind }),
            None => drop(writeln!(io::stderr(), "{line}")),
        }
    }
    found
}

/// Standard output without a buffer: written bytes reach the parent even if this process is killed
/// next.
pub fn raw_output() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Opens a pool whose holder was killed a moment ago.
pub fn open_after_kill(options: &Options, path: &Path) -> Result<Store, Failure> {
    let start = Instant::now();
    loop {
        match options.open(path) {
            Err(error)
                if matches!(error.kind(), ErrorKind::Locked { .. })
                    && start.elapsed() < LOCK_WAIT_MAX =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return Ok(opened?),
        }
    }
}

/// Makes room for a new pool at `path`: removes an old one, opened with `options`, if all its trees
/// have one of these names. Refuses anything else.
pub fn replace_own(
    path: &Path,
    options: Options,
    names: &[&str],
    what: &str,
) -> Result<(), Failure> {
    if !path.exists() {
        return Ok(());
    }
    let way_out =
        format!("it is no {what}, and was not changed; remove it, or choose another path");
    let refused =
        |why: String| Failure::Refused(format!("{} exists: {why}{way_out}", path.display()));
    let store = match options.create(false).open(path) {
        Ok(store) => store,
        Err(error) => match error.kind() {
            ErrorKind::Locked { .. } | ErrorKind::NotWritable { .. } => return Err(error.into()),
            _ => return Err(Failure::Refused(format!("{error}; {way_out}"))),
        },
    };
    if let Some(foreign) = store
        .trees()?
        .iter()
        .find(|tree| !names.contains(&tree.name.as_str()))
    {
        return Err(refused(format!("it has a tree {:?}; ", foreign.name)));
    }
    Ok(store.remove_files()?)
}
