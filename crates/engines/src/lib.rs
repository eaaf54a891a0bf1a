//! Durable ordered indexes: the engines behind Everleaf, and the [`Index`](index::Index) trait they
//! share.
//!
//! Engines are safe Rust: their persistent types consist of cells, and are reached through a guard
//! that checks every offset. No engine depends on another.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub use medium;

pub use pool::{Error, ErrorKind, Result};

/// How many threads can run at the same time. The operating system answers from files, so it is
/// asked once.
pub(crate) fn cores() -> usize {
    static CORES: std::sync::LazyLock<usize> =
        std::sync::LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *CORES
}

pub mod batch;
pub mod bztree;
pub mod cawbt;
pub mod engine;
pub mod index;
pub mod kit;
pub mod masstree;
pub mod pmwcas;
pub mod registry;
pub mod rntree;
pub mod wbtree;
