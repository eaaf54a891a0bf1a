//! The generator: one line of `conformance!` becomes a module of tests per medium, codec and capacity.

/// Generates the whole suite for an engine: its name, its type, two capacities of its leaves, its options, its contract,
/// its media.
macro_rules! conformance {
    ($name:ident, $tree:ident, [$narrow:literal, $wide:literal], $options:expr, $contract:expr, $media:ident) => {
        mod $name {
            use engines::index::{Index, RecordCodec, WordCodec};
            use medium::Medium;
            use pool::{Pool, Result, TreeRoot};

            use super::*;

            pub enum Engine {}

            implement_engine!(WordCodec, $tree, $options);
            implement_engine!(RecordCodec, $tree, $options);
            $media!([$narrow, $wide], $contract);
        }
    };
}

/// Every medium, in every form that lines have.
macro_rules! on_every_medium {
    ([$narrow:literal, $wide:literal], $contract:expr) => {
        on_medium!(ram, InRam, [$narrow, $wide], $contract);
        on_medium!(dax_twin, DaxTwin, [$narrow, $wide], $contract);
        on_medium!(dax_avx512, DaxAvx512, [$narrow, $wide], $contract);
        on_medium!(dax_direct_store, DaxMovdir64b, [$narrow, $wide], $contract);
        on_medium!(dax_rtm, DaxRtm, [$narrow, $wide], $contract);
        on_medium!(late_single, LateSingle, [$narrow, $wide], $contract);
        on_medium!(late_twin, LateTwin, [$narrow, $wide], $contract);
        on_medium!(file, OnFile, [$narrow, $wide], $contract);
    };
}

/// For engines that store no lines, so that their forms make no difference.
macro_rules! on_media_without_lines {
    ([$narrow:literal, $wide:literal], $contract:expr) => {
        on_medium!(ram, InRam, [$narrow, $wide], $contract);
        on_medium!(dax_twin, DaxTwin, [$narrow, $wide], $contract);
        on_medium!(late_single, LateSingle, [$narrow, $wide], $contract);
        on_medium!(file, OnFile, [$narrow, $wide], $contract);
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

            fn try_open<M: Medium, const N: usize>(pool: &Pool<M>, root: &TreeRoot) -> Result<()> {
                $tree::<M, $codec, N>::open(pool, root, $options).map(drop)
            }
        }
    };
}

macro_rules! on_medium {
    ($medium:ident, $place:ident, [$narrow:literal, $wide:literal], $contract:expr) => {
        mod $medium {
            use super::Engine;
            use crate::*;
            narrow!($place, [$narrow, $wide], $contract);
            wide!($place, [$narrow, $wide], $contract);
        }
    };
}

/// Small leaves: many splits and merges.
macro_rules! narrow {
    ($place:ident, [$narrow:literal, $wide:literal], $contract:expr) => {
        tests!(word_narrow, Engine, $place, Word, WordCodec, [$narrow, $wide], $contract);
        tests!(record_narrow, Engine, $place, Record, RecordCodec, [$narrow, $wide], $contract);
    };
}

/// Leaves as users have them.
macro_rules! wide {
    ($place:ident, [$narrow:literal, $wide:literal], $contract:expr) => {
        tests!(word_wide, Engine, $place, Word, WordCodec, [$wide, $narrow], $contract);
        tests!(record_wide, Engine, $place, Record, RecordCodec, [$wide, $narrow], $contract);
    };
}

/// All tests of one cell.
macro_rules! tests {
    (
        $name:ident, $engine:ty, $place:ident, $kind:ident, $codec:ident,
        [$capacity:literal, $other:literal], $contract:expr
    ) => {
        mod $name {
            use super::*;

            fn cell() -> harness::Cell {
                harness::Cell {
                    kind: harness::Kind::$kind,
                    capacity: $capacity,
                    other_capacity: $other,
                    contract: $contract,
                    flips: <harness::$place as harness::Place>::FLIPS,
                    slowness: <harness::$place as harness::Place>::SLOWNESS,
                    make: harness::Site::<$engine, harness::$place, engines::index::$codec, $capacity, $other>::make,
                }
            }

            every_test!(tests_of_cell);
        }
    };
}

/// In the module of a cell.
macro_rules! tests_of_cell {
    ($($module:ident::$test:ident),* $(,)?) => { $(
        #[test]
        fn $test() {
            harness::run(module_path!(), stringify!($test), &|seed| $module::$test(&cell(), seed));
        }
    )* };
}

/// The suite: calls `$each` with all of its tests.
macro_rules! every_test {
    ($each:ident) => {
        $each! {
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
            damage::another_format_version_is_refused,
            trees::trees_do_not_mix,
            trees::a_tree_opens_only_as_what_it_is,
            budget::operations_keep_their_budget,
        }
    };
}
