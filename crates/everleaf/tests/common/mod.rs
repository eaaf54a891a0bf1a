//! Folders for pools, pools whose bytes are changed, and tests that run again in a process of their
//! own.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use everleaf::{Options, Result, Store};
use tempfile::TempDir;

/// The folder lies in memory, if that is possible: pools are overwritten thousands of times, and a
/// disk would sync as often.
pub(crate) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
    .unwrap()
}

/// The bytes that a file takes on its disk.
pub(crate) fn room(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| 512 * file.blocks())
}

/// The bytes with some of them changed.
pub(crate) fn flipped(bytes: &[u8], offsets: &[usize], mask: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for offset in offsets {
        bytes[*offset] ^= mask;
    }
    bytes
}

/// Opens an existing pool.
pub(crate) fn opened(path: &Path) -> Result<Store> {
    Options::new().create(false).open(path)
}

/// Runs one test of the calling program again, by a command that ends with this program. The
/// environment variable `variable` then names the folder.
pub(crate) fn run_again(mut command: Command, variable: &str, folder: &Path, name: &str) {
    let output = command
        .args(["--exact", name, "--nocapture"])
        .env(variable, folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}
