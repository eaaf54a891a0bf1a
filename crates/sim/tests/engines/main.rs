//! Our engines, crashed at every moment and under every schedule that matters; one binary, so that
//! both cores have work.

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod bztree;
mod bztree_threads;
mod cawbt;
mod evacuation;
mod exhaustive;
mod marks;
mod masstree;
mod masstree_batches;
mod masstree_copies;
mod masstree_trees;
mod moved_last;
mod pmwcas;
mod rntree;
mod rntree_holes;
mod threads;
mod views;
mod wbtree;
