//! How bytes become durable.
//!
//! A [`Medium`] is the place where bytes survive: persistent memory or plain memory ([`Dax`]), an
//! ordinary file ([`File`]), or a recorded simulation ([`Sim`]). Pool memory is reached only
//! through *cells*: a [`Word`] of 8 bytes, or a [`Line`] of 64 bytes that is written
//! failure-atomically. Every access names a [`MediumGuard`], and through it the medium, so that no
//! store can be forgotten by a recorder, a counter or a log.
//!
//! Persistent types are declared with [`node!`] and consist of cells only. Any bit pattern is then
//! a valid value, and [`MediumGuard::node`], which turns a checked offset into a shared reference,
//! is a safe function: a damaged pool gives wrong answers or an error, never undefined behaviour.
//!
//! The model (what a flush, a fence and an [`Lsn`] promise) is in `docs/PERSISTENCY.md`.
#![allow(unsafe_code)]
// With loom's atomics much of what maps memory is not used.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

mod addresses;
pub mod arena;
mod cell;
mod count;
mod dax;
mod error;
mod extent;
pub mod file;
mod flush;
pub mod folder;
mod guard;
mod holes;
mod huge_pages;
mod instrumented;
mod io;
pub mod kernels;
mod line_store;
mod made_once;
mod mapping;
mod medium;
mod memory;
mod names;
mod node;
mod presence;
mod process;
#[doc(hidden)]
pub mod progress;
mod random;
mod signals;
pub mod sim;
pub mod sync;
#[doc(hidden)]
pub mod testing;
mod threads;
mod word_sum;
mod workers;

pub use cell::{FoundLine, Line, Torn, VolatileWord, Word};
pub use count::Counts;
pub use dax::{Dax, DaxOptions};
pub use error::{Grown, LimitedBy, MapError, MediumError};
pub use extent::Extent;
pub use file::{Durability, File, FileOptions, FileStat, LogError};
pub use flush::FlushKind;
pub use folder::{DisplacedFile, Displacement, FilePlace};
pub use guard::{BadOffset, MediumGuard};
pub use holes::RELEASE_BYTES;
pub use huge_pages::SmallPages;
pub use instrumented::Instrumented;
pub use line_store::{LineNotStored, LineStore, LineValue, TAG_MASK, WholeLoad, twin};
pub use medium::{LineForm, Lsn, Medium, Survives};
pub use memory::memory_bytes;
pub use names::{UnknownName, remedy, size};
pub use node::Node;
pub use process::{FileLock, Forked, Process};
pub use random::random_id;
pub use signals::ignore_file_size_signal;
pub use sim::Sim;
pub use sync::{Pin, pin};
pub use threads::start_thread;
pub use word_sum::WordSum;
pub use workers::{Duty, GivenDuty, NextTurn, is_in_turn};

#[doc(hidden)]
pub mod private {
    //! The items that the macros of this crate name in other crates.
    pub use crate::arena::Volatile;
    pub use crate::node::Node;
}

/// Bytes in a line, the unit that reaches the medium.
pub const LINE_BYTES: usize = 64;
/// Bytes in a word, the unit of a single atomic store.
pub const WORD_BYTES: usize = 8;
