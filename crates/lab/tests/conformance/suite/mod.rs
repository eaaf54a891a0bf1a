//! One suite for all engines: each implementation of `Index` must pass all of it, on every medium,
//! with every codec, with small nodes and large ones. The tests of an engine follow from its entry
//! in the registry (`harness::matrix`).
//!
//! - `model`: random operations against `BTreeMap`, reopening in between; keys and values at their
//!   limits;
//! - `threads`, `ranges`: histories per key, sums that must come out, ranges while others write;
//! - `space`: a full pool, an emptied tree, leaks; `bulk`: bulk load;
//! - `damage`: every byte of a pool flipped in turn; `trees`: several trees, the wrong codec;
//! - `budget`: persists per operation, counted.
//!
//! Random choices follow from a seed, the same in every run. `EVERLEAF_SEED=random` or `=NUMBER`
//! chooses another, `EVERLEAF_CASES=NUMBER` multiplies the number of cases. A failure prints the
//! seed and the command that replays it.
//!
//! `selftest` tests the suite itself: it runs it on the sorted chain, and on sorted chains with one
//! flaw each, all of which must be caught.

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

use harness::Test;

macro_rules! tests {
    ($($module:ident::$test:ident,)*) => {
        [$((stringify!($test), $module::$test as Test)),*]
    };
}

/// All tests, with their names.
pub const TESTS: &[(&str, Test)] = &tests![
    model::random_operations,
    limits::lengths_up_to_the_limits,
    limits::keys_that_nearly_tie,
    threads::each_thread_reads_what_it_wrote,
    threads::contended_counters_sum_up,
    threads::inserts_and_removes_balance,
    ranges::ranges_beside_writers,
    ranges::a_range_holds_no_lock,
    space::a_full_pool_loses_nothing,
    space::an_emptied_tree_gives_its_space_back,
    space::a_removed_tree_gives_its_space_back,
    space::nothing_leaks,
    space::records_move_while_threads_work,
    space::sparse_slabs_are_emptied,
    bulk::bulk_load_at_every_fill,
    bulk::bulk_load_is_all_or_nothing,
    damage::every_flipped_byte_is_survived,
    damage::another_format_version_is_refused,
    trees::trees_do_not_mix,
    trees::a_tree_opens_only_as_what_it_is,
    budget::operations_keep_their_budget,
];
