//! Runs the command.

pub(crate) mod children;
pub(crate) mod frames;
pub(crate) mod page;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::program;

/// The command, to be given arguments.
pub(crate) fn everleaf() -> Command {
    Command::new(program())
}

/// The output of a run.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: String,
}

impl Said {
    pub(crate) fn of(output: Output) -> Self {
        let code = output.status.code().expect("the command ends by itself");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!errors.contains("panicked"), "{errors}");
        Self {
            code,
            output: output.stdout,
            errors,
        }
    }

    /// Standard output as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.output).unwrap()
    }

    /// The run must have had this exit code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// The one line of JSON on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.text().lines().count(), 1, "{self:?}");
        serde_json::from_slice(&self.output).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs the command on arguments.
pub(crate) fn run<A: AsRef<OsStr>>(arguments: &[A]) -> Said {
    Said::of(
        everleaf()
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap(),
    )
}

/// Runs a script of the shell, in which `"$0"` is the command: the shell can limit a process, and
/// send its output anywhere.
pub(crate) fn run_in_shell(script: &str) -> Said {
    let output = Command::new("sh")
        .args(["-c", script, program()])
        .output()
        .unwrap();
    Said::of(output)
}

/// Does the same as [`run`], with standard input.
pub(crate) fn run_with<A: AsRef<OsStr>>(arguments: &[A], input: &[u8]) -> Said {
    let mut child = everleaf()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command may have ended already, without reading everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    Said::of(child.wait_with_output().unwrap())
}

/// A folder, and a path for a pool in it.
pub(crate) fn pool() -> (TempDir, PathBuf) {
    // The folder lies in memory, if that is possible: on a disk the tests would sync thousands of
    // times.
    let memory = std::path::Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
    .unwrap();
    let path = folder.path().join("a.pool");
    (folder, path)
}

/// A subcommand on a pool, and more arguments.
pub(crate) fn on(subcommand: &str, pool: &Path, more: &[&str]) -> Vec<OsString> {
    let subcommand = [OsString::from(subcommand), pool.as_os_str().to_owned()];
    subcommand
        .into_iter()
        .chain(more.iter().map(OsString::from))
        .collect()
}

/// A line for each number.
pub(crate) fn lines(numbers: std::ops::Range<u32>, line: impl Fn(u32) -> String) -> String {
    numbers.map(line).collect()
}

/// Salvages what is left of a damaged pool into a file, and returns the answer in JSON.
pub(crate) fn salvage_in_part(pool: &Path, file: &Path) -> serde_json::Value {
    let file = file.to_str().unwrap();
    run(&on("dump", pool, &[file, "--salvage", "--json"]))
        .expect(1)
        .json()
}
