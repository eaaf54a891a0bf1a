//! One suite for all engines: each implementation of `Index` must pass all of it, on every medium, with every codec, with small
//! nodes and large ones. One line for each engine generates its tests.
//!
//! - `model`: random operations against `BTreeMap`, reopening in between; keys and values at their limits;
//! - `threads`, `ranges`: histories per key, sums that must come out, ranges while others write;
//! - `space`: a full pool, an emptied tree, leaks; `bulk`: bulk load;
//! - `damage`: every byte of a pool flipped in turn; `trees`: several trees, the wrong codec;
//! - `budget`: persists per operation, counted.
//!
//! Random choices follow from a seed, the same in every run. `EVERLEAF_SEED=random` or `=NUMBER` chooses another,
//! `EVERLEAF_CASES=NUMBER` multiplies the number of cases. A failure prints the seed and the command that replays it.
//!
//! `selftest` tests the suite itself: it runs it on the sorted chain, and on sorted chains with one flaw each, all of which must
//! be caught.

// No engine runs on all media.
#![allow(dead_code, unused_imports, unused_macros)]

#[macro_use]
pub mod harness;
pub mod budget;
pub mod bulk;
pub mod damage;
pub mod generate;
pub mod limits;
pub mod model;
pub mod ranges;
pub mod space;
pub mod threads;
pub mod trees;
