//! Stand-ins for a medium, a disk or a correct program, for tests only. They are no part of the
//! API.
//!
//! - [`Late`]: a medium whose LSNs become durable when a test says so.
//! - [`faulty`]: a machine with two files, whose disk fails, tears writes and forgets what was not
//!   synced.
//! - [`forked`]: children of a fork.
//! - [`Hooked`]: a file that calls a test before each operation.
//! - [`refusal`]: calls of the system that fail in the thread of a test.
//! - [`stride`]: which part of its places a test visits.
//! - [`panic_text`]: the message of a panic.
//! - `mutant`: faults in the file medium itself, which only its own unit tests can plant.

use std::any::Any;

pub mod faulty;
pub mod forked;
mod hooked;
pub mod late;
pub(crate) mod mutant;
pub mod refusal;

pub use hooked::{FileCall, Hooked, Then};
pub use late::Late;

/// Every `ordinary`th place in an ordinary run, each where `cargo xtask thorough` sets
/// `EVERLEAF_CASES`.
pub fn stride(ordinary: usize) -> usize {
    if std::env::var_os("EVERLEAF_CASES").is_some() {
        1
    } else {
        ordinary
    }
}

/// The message of a panic, if it has one.
pub fn panic_text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}
