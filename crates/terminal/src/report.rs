//! Reports of failures: words on standard error, and an object on standard output for scripts.

use std::io::Write;

use crate::child;
use crate::context::{Context, write_json};
use crate::failure::Failure;

/// Reports a failure; returns the exit code.
pub fn report(context: Context, failure: &Failure) -> u8 {
    if context.json {
        tell_script(failure);
    }
    // If this fails, the exit code still tells.
    let _ = writeln!(std::io::stderr(), "everleaf: {failure}");
    failure.exit_code()
}

/// Prints a failure as JSON. Another thread may have locked standard output, so the bytes go to its
/// file.
pub fn tell_script(failure: &Failure) {
    // If this fails, the exit code still tells.
    let _ = child::raw_output().map(|mut output| write_json(&mut output, &failure.json()));
}
