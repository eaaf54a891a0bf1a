//! The files of a benchmark.

use std::path::PathBuf;

use terminal::failure::{Failure, Result};
use terminal::temporary::Scratch;

/// Makes a file that is removed at the end of the benchmark.
///
/// # Errors
/// [`Failure::Io`] if it exists or cannot be made.
pub(super) fn new_scratch(path: PathBuf) -> Result<Scratch> {
    let action = format!("create {}", path.display());
    Scratch::create(path).map_err(Failure::io(action))
}
