//! Pools whose bytes are changed.

use std::path::Path;

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
