//! The models of the images that a crash leaves, the scheduler, and toys that break a rule; one
//! binary, so that both cores have work.

#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod deferred;
mod epochs;
mod example;
mod linked_list;
#[allow(dead_code, unused_imports, reason = "the example's main is its own")]
#[path = "../../examples/linked_list.rs"]
mod linked_list_example;
mod litmus;
mod pmwcas_memory;
mod pool_protocol;
mod range_contract;
mod reduction;
mod root_copies;
mod schedule;
mod trace_mutants;
mod twin_line;
