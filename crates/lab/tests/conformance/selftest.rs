//! Tests of the suite: it passes on the sorted chain, and must fail on sorted chains with one flaw
//! each.

use libtest_mimic::{Failed, Trial};

use crate::flawed::{FLAWED, Flaw};
use crate::harness::{Cell, InRam, Kind, Seed, Test, trial};
use crate::suite::{TESTS, budget, bulk, damage, limits, model, ranges, space, threads, trees};

fn cell(flaw: Flaw, kind: Kind) -> Cell {
    let cell = Cell::new::<InRam>(FLAWED, kind, FLAWED.small);
    let flawed = FLAWED
        .settings(&[("flaw", flaw as u64)])
        .expect("a flaw by its number");
    Cell {
        flips: 1000,
        settings: cell.settings.or(flawed),
        ..cell
    }
}

/// Runs of a test for a flaw that only racing threads show: one of them must fail.
const RUNS: u64 = 50;
/// The seed of the first one.
const FIRST_SEED: Seed = Seed(7);

/// Whether `test` fails for the engine with this flaw, with at least one codec and in at least one
/// of some runs.
fn catches(flaw: Flaw, test: Test) -> bool {
    let fails = |kind, seed| {
        let outcome = std::panic::catch_unwind(|| test(&cell(flaw, kind), Seed(seed)));
        !matches!(outcome, Ok(Ok(())))
    };
    (FIRST_SEED.0..FIRST_SEED.0 + RUNS).any(|seed| {
        [Kind::Word, Kind::Record]
            .into_iter()
            .any(|kind| fails(kind, seed))
    })
}

macro_rules! caught {
    ($($name:ident: $flaw:ident by $module:ident::$test:ident;)*) => {
        &[$((stringify!($name), Flaw::$flaw, stringify!($test), $module::$test as Test)),*]
    };
}

/// Which test catches which flaw, each under a name.
const CAUGHT: &[(&str, Flaw, &str, Test)] = caught! {
    insert_replaces: InsertReplaces by model::random_operations;
    update_inserts: UpdateInserts by model::random_operations;
    comparison_is_ignored: ComparisonIsIgnored by model::random_operations;
    comparison_is_not_atomic: ComparisonIsNotAtomic by threads::contended_counters_sum_up;
    writes_race: WritesRace by threads::inserts_and_removes_balance;
    reverse_skips_the_first: ReverseSkipsTheFirst by model::random_operations;
    excluded_is_included: ExcludedIsIncluded by model::random_operations;
    range_counts: RangeCounts by ranges::ranges_beside_writers;
    range_counts_alone: RangeCounts by ranges::a_range_holds_no_lock;
    get_many_sorts: GetManySorts by model::random_operations;
    get_into_appends: GetIntoAppends by model::random_operations;
    keys_are_cut: KeysAreCut by limits::keys_that_nearly_tie;
    long_keys_are_taken: LongKeysAreTaken by limits::lengths_up_to_the_limits;
    clean_close_loses_one: CleanCloseLosesOne by model::random_operations;
    crash_loses_one: CrashLosesOne by model::random_operations;
    remove_leaks: RemoveLeaks by space::nothing_leaks;
    failed_condition_leaks: FailedConditionLeaks by space::nothing_leaks;
    hoards: Hoards by space::an_emptied_tree_gives_its_space_back;
    destroy_leaks: DestroyLeaks by space::a_removed_tree_gives_its_space_back;
    full_pool_loses: FullPoolLoses by space::a_full_pool_loses_nothing;
    bulk_load_keeps_a_part: BulkLoadKeepsAPart by bulk::bulk_load_is_all_or_nothing;
    bulk_load_takes_any_order: BulkLoadTakesAnyOrder by bulk::bulk_load_is_all_or_nothing;
    bulk_load_asks_again: BulkLoadAsksAgain by bulk::bulk_load_at_every_fill;
    opens_as_anything: OpensAsAnything by trees::a_tree_opens_only_as_what_it_is;
    trees_mix: TreesMix by trees::trees_do_not_mix;
    one_fence_more: OneFenceMore by budget::operations_keep_their_budget;
    fences_are_saved: FencesAreSaved by budget::operations_keep_their_budget;
    damage_panics: DamagePanics by damage::every_flipped_byte_is_survived;
    damage_circles: DamageCircles by damage::every_flipped_byte_is_survived;
};

fn no_flaw_is_forgotten() -> Result<(), Failed> {
    let is_caught = |flaw: &Flaw| CAUGHT.iter().any(|(_, caught, ..)| caught == flaw);
    match Flaw::ALL[1..].iter().find(|flaw| !is_caught(flaw)) {
        Some(flaw) => Err(format!("no test looks for {flaw:?}").into()),
        None => Ok(()),
    }
}

/// The tests of the suite itself, whose seeds are fixed. The engine without a flaw passes
/// everything with the first seed: so a failure with that is due to the flaw.
pub fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test(
        "selftest::no_flaw_is_forgotten",
        no_flaw_is_forgotten,
    )];
    for &(name, flaw, test, body) in CAUGHT {
        let catch = move || match catches(flaw, body) {
            true => Ok(()),
            false => Err(format!("{flaw:?} passes {test}").into()),
        };
        trials.push(Trial::test(format!("selftest::{name}"), catch));
    }
    for kind in [Kind::Word, Kind::Record] {
        for &(test, body) in TESTS {
            let name = format!("selftest::{}::{test}", kind.codec().name());
            trials.push(trial(name, FIRST_SEED, cell(Flaw::None, kind), body));
        }
    }
    trials
}
