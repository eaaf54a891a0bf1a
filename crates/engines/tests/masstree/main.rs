//! The durable Masstree beyond what the conformance suite asks of every engine. (One binary, so
//! that the engine is built once for all.)

#[path = "../common/mod.rs"]
mod common;
mod damage;
mod everyday;
mod free_space;
mod late_mark;
mod salvage;
