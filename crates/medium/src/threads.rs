//! Threads that work in the background.

use std::io;
use std::thread::{Builder, JoinHandle};

use crate::testing::refusal::{SystemCall, grant};

/// Starts a thread of this name.
///
/// # Errors
/// If the system gives no more threads, or no memory for one.
pub fn start_thread(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    grant(SystemCall::StartThread)?;
    Builder::new().name(name.to_owned()).spawn(work)
}
