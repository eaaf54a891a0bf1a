//! What a user of the library does every day: stores, trees, ranges, batches, views, files, damage.
//!
//! One program has them all, because linking the engines takes longer than most of these tests.
//! Tests that need a process of their own are beside this folder.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod batches;
mod compaction;
mod file;
mod read_only;
mod reading;
mod room;
mod salvage;
mod snapshots;
mod store;
mod transactions;
mod typed;
