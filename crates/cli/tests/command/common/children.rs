//! Commands that run while a test goes on, and are interrupted.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::{Said, everleaf};

/// Starts the command.
pub(crate) fn start<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> Child {
    let mut command = everleaf();
    let command = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Sends the signal of Ctrl-C, and waits for the end.
pub(crate) fn interrupt(mut child: Child) -> Said {
    // The input is kept open: its end would end the command, too.
    let _input = child.stdin.take();
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    Said::of(child.wait_with_output().unwrap())
}

/// Waits until `is_so`, for a while.
#[track_caller]
pub(crate) fn expect_soon(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it did not happen"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The names of the files in a folder.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
