//! The parts that commands on Everleaf share: how they parse a pool, answer in words or in JSON, show
//! progress, fail, and end when a signal asks for it.
//!
//! `everleaf` and `everleaf-workbench` are such commands. Users of a store need nothing of this crate.
#![forbid(unsafe_code)]

pub mod child;
pub mod command;
pub mod completions;
pub mod context;
pub mod engine_list;
pub mod failure;
pub mod interrupt;
pub mod output_file;
pub mod pool;
pub mod progress;
pub mod report;
pub mod temporary;
pub mod text;
pub mod values;
pub mod violations;
