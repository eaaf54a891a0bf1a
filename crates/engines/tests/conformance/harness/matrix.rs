//! The generator: one line of `conformance!` becomes a module of tests per medium, codec and capacity.

/// Generates the whole suite for an engine: its name, its type, its options, its budget.
macro_rules! conformance {
    // An engine without failure-atomic lines: how those are stored makes no difference to it.
    ($name:ident, $tree:ident, $options:expr, $fences:expr, without lines) => {
        mod $name {
            use engines::index::{Index, RecordCodec, WordCodec};
            use medium::Medium;
            use pool::{Pool, Result, TreeRoot};

            use super::*;

            pub enum Engine {}

            implement_engine!(WordCodec, $tree, $options);
            implement_engine!(RecordCodec, $tree, $options);
            on_medium!(ram, InRam, $fences);
            on_medium!(dax, DaxTwin, $fences);
            on_medium!(late, LateSingle, $fences);
            on_medium!(counted, Counted, $fences);
        }
    };
    ($name:ident, $tree:ident, $options:expr, $fences:expr) => {
        mod $name {
            use engines::index::{Index, RecordCodec, WordCodec};
            use medium::Medium;
            use pool::{Pool, Result, TreeRoot};

            use super::*;

            pub enum Engine {}

            implement_engine!(WordCodec, $tree, $options);
            implement_engine!(RecordCodec, $tree, $options);
            on_medium!(ram, InRam, $fences);
            on_medium!(dax_twin, DaxTwin, $fences);
            on_medium!(dax_avx512, DaxAvx512, $fences);
            on_medium!(dax_direct_store, DaxMovdir64b, $fences);
            on_medium!(dax_rtm, DaxRtm, $fences);
            on_medium!(late_single, LateSingle, $fences);
            on_medium!(late_twin, LateTwin, $fences);
            on_medium!(file, OnFile, $fences);
            on_medium!(counted, Counted, $fences);
        }
    };
}

macro_rules! implement_engine {
    ($codec:ident, $tree:ident, $options:expr) => {
        impl harness::Engine<$codec> for Engine {
            fn create<M: Medium, const N: usize>(pool: &Pool<M>, name: &str) -> Result<Box<dyn Index>> {
                Ok(Box::new($tree::<M, $codec, N>::create(pool, name, $options)?))
            }

            fn open<M: Medium, const N: usize>(pool: &Pool<M>, root: &TreeRoot) -> Result<Box<dyn Index>> {
                Ok(Box::new($tree::<M, $codec, N>::open(pool, root, $options)?))
            }
        }
    };
}

macro_rules! on_medium {
    ($medium:ident, $place:ident, $fences:expr) => {
        mod $medium {
            use super::Engine;
            use crate::*;
            tests!(word_4, Engine, $place, Word, WordCodec, 4, $fences);
            tests!(word_56, Engine, $place, Word, WordCodec, 56, $fences);
            tests!(record_4, Engine, $place, Record, RecordCodec, 4, $fences);
            tests!(record_56, Engine, $place, Record, RecordCodec, 56, $fences);
        }
    };
}

/// All tests of one cell.
macro_rules! tests {
    ($name:ident, $engine:ty, $place:ident, $kind:ident, $codec:ident, $capacity:literal, $fences:expr) => {
        mod $name {
            use super::*;

            fn cell() -> harness::Cell {
                harness::Cell {
                    kind: harness::Kind::$kind,
                    capacity: $capacity,
                    fences: $fences,
                    flips: <harness::$place as harness::Place>::FLIPS,
                    slowness: <harness::$place as harness::Place>::SLOWNESS,
                    make: harness::Site::<$engine, harness::$place, engines::index::$codec, $capacity>::make,
                }
            }

            tests!(@each
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
                bulk::bulk_load_at_every_fill,
                bulk::bulk_load_is_all_or_nothing,
                damage::every_flipped_byte_is_survived,
                trees::trees_do_not_mix,
                trees::a_tree_opens_only_as_what_it_is,
                budget::operations_keep_their_budget,
            );
        }
    };
    (@each $($module:ident::$test:ident),* $(,)?) => { $(
        #[test]
        fn $test() {
            harness::run(module_path!(), stringify!($test), |seed| $module::$test(&cell(), seed));
        }
    )* };
}
