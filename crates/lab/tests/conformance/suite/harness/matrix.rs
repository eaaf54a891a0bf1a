//! The generator: one line of `conformance!` becomes a module of tests per medium, codec and size of nodes.

/// Generates the whole suite for an engine: its name, the engine, its media.
macro_rules! conformance {
    ($name:ident, $engine:expr, $media:ident) => {
        mod $name {
            const ENGINE: engines::registry::Engine = $engine;

            $media!();
        }
    };
}

/// Every medium, in every form that lines have.
macro_rules! on_every_medium {
    () => {
        on_medium!(ram, InRam);
        on_medium!(dax_twin, DaxTwin);
        on_medium!(dax_avx512, DaxAvx512);
        on_medium!(dax_direct_store, DaxMovdir64b);
        on_medium!(dax_rtm, DaxRtm);
        on_medium!(late_single, LateSingle);
        on_medium!(late_twin, LateTwin);
        on_medium!(file, OnFile);
    };
}

/// For engines that store no lines, so that their forms make no difference.
macro_rules! on_media_without_lines {
    () => {
        on_medium!(ram, InRam);
        on_medium!(dax_twin, DaxTwin);
        on_medium!(late_single, LateSingle);
        on_medium!(file, OnFile);
    };
}

/// For engines for comparison only: one medium of each kind.
macro_rules! on_some_media {
    () => {
        on_medium!(ram, InRam);
        on_medium!(late_single, LateSingle);
        on_medium!(file, OnFile);
    };
}

/// Small nodes, with many splits and merges; and nodes of default size.
macro_rules! on_medium {
    ($medium:ident, $place:ident) => {
        mod $medium {
            use super::ENGINE;
            use crate::*;
            tests!(word_narrow, $place, Word, small);
            tests!(record_narrow, $place, Record, small);
            tests!(word_wide, $place, Word, full);
            tests!(record_wide, $place, Record, full);
        }
    };
}

/// All tests of one cell.
macro_rules! tests {
    ($name:ident, $place:ident, $kind:ident, $nodes:ident) => {
        mod $name {
            use super::*;

            fn cell() -> harness::Cell {
                harness::Cell::$nodes::<harness::$place>(ENGINE, harness::Kind::$kind)
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
            harness::run_in(module_path!(), stringify!($test), cell, $module::$test);
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
