//! Durable ordered indexes: the engines behind Everleaf, and the [`Index`](index::Index) trait they
//! share.
//!
//! Engines are safe Rust: their persistent types consist of cells, and are reached through a guard
//! that checks every offset. No engine depends on another.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

#[doc(hidden)]
pub use medium;

pub use pool::{Error, ErrorKind, Result};

/// How many threads can run at the same time. The operating system answers from files, so it is
/// asked once; by two threads that ask at the same time, twice: neither waits for the other, which
/// the child of a fork may not have.
pub(crate) fn cores() -> usize {
    /// 0 before the system was asked.
    static CORES: AtomicUsize = AtomicUsize::new(0);
    let mut cores = CORES.load(Ordering::Relaxed);
    if cores == 0 {
        cores = std::thread::available_parallelism().map_or(1, usize::from);
        CORES.store(cores, Ordering::Relaxed);
    }
    cores
}

pub mod batch;
pub mod bztree;
pub mod cawbt;
pub mod copies;
pub mod engine;
pub mod index;
pub mod kit;
pub mod masstree;
pub mod pmwcas;
pub mod registry;
pub mod rntree;
pub mod versions;
pub mod wbtree;
