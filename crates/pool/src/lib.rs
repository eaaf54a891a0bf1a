//! The pool: one file that holds named trees.
//!
//! A pool is a header kept twice, a state line, a root table and slabs of 64 KiB (see
//! `docs/FORMAT.md`). It is independent of the engines: it allocates space, keeps the roots of
//! trees, and checks offsets. Allocation costs no persist of its own: after a crash, the
//! allocations in use are those that the trees reach (`space.rs`).
//!
//! Nothing that is read from a pool is trusted to be in bounds: a damaged pool gives
//! [`ErrorKind::Corrupt`].
#![forbid(unsafe_code)]

mod batch_slots;
pub mod bytes;
mod class;
mod error;
mod header;
mod limbo;
mod limits;
#[cfg(all(test, loom))]
mod loom_tests;
mod lost_copy;
mod options;
#[allow(clippy::module_inception)]
mod pool;
mod quarantine;
mod roots;
mod space;

pub use batch_slots::{BatchSlot, BatchSlots};
pub use class::lines_taken;
pub use error::{Error, ErrorKind, Result};
pub use header::{BATCH_SLOTS, BATCHES, EPOCHS, FORMAT_VERSION, Identity, MEDIUM_LINE};
pub use limits::{ALLOCATION_BYTES_MAX, SLAB_BYTES};
pub use lost_copy::LostCopy;
pub use options::PoolOptions;
pub use pool::{
    Guard, Pool, PoolStat, bytes_expected, has_state, holder_of_file, set_holder_of_file,
};
pub use quarantine::Quarantine;
pub use roots::{
    DamagedRoot, ENCODINGS_BYTES_MAX, Encodings, NewTree, ROOT_WORDS, Roots, TREE_NAME_BYTES_MAX,
    TREES_MAX, TreeRoot,
};
pub use space::{Evacuate, Evacuation, Unevacuated, Usage};
