//! BzTree under threads: the races of its structure changes, every schedule within a bound, the
//! crashes of each.

use std::time::Instant;

use everleaf_sim::index::CodecName::{Record, Word};
use everleaf_sim::index::suite::Scope;
use everleaf_sim::index::threads::{self, ProgramExploration};
use everleaf_sim::index::{
    AnyEngine, CodecName, Engine, Explored, FollowUp, IndexOperation, IndexOperation::*,
};
use everleaf_sim::{
    DurabilityContract, ExplorationOptions, Images, Program, Rules, Scheduling, Search, SecondCrash,
};

use crate::{common, marks};

fn options() -> ExplorationOptions {
    common::options("engines", Images::Some { random: 0 }, SecondCrash::Never)
}

/// With the crashes of each schedule, where these have one preemption at most.
fn explore(codec: CodecName, scope: &Scope, programs: &[Program<IndexOperation>], search: &Search) {
    let crashes = !matches!(
        search,
        Search::Exhaustive {
            preemptions_max: 2..
        }
    );
    explore_with(
        &common::small(Engine::BZTREE, codec),
        scope,
        programs,
        search,
        crashes,
        &options(),
    );
}

fn explore_with(
    engine: &AnyEngine,
    scope: &Scope,
    programs: &[Program<IndexOperation>],
    search: &Search,
    crashes: bool,
    options: &ExplorationOptions,
) {
    let start = Instant::now();
    let scheduling = Scheduling {
        crashes,
        ..Scheduling::default()
    };
    let next = |number: usize| Some((programs.get(number)?.clone(), search.clone()));
    let work = ProgramExploration {
        options,
        follow_up: FollowUp::Keys,
        scheduling: &scheduling,
        workers: 2,
        progress: None,
    };
    let stats = threads::exhaust(engine, &scope.setup, next, work);
    let stats = stats.unwrap_or_else(|failure| panic!("{failure}"));
    let schedules = stats.schedules;
    let seconds = start.elapsed().as_secs_f32();
    println!(
        "{}, {}: {} programs, {schedules} schedules; {stats}; {seconds:.1} s",
        scope.name,
        engine.codec(),
        programs.len()
    );
    assert_eq!(stats.cut_short, 0);
}

/// One race: all schedules with two preemptions, with the crashes of each; in ordinary runs with
/// words only.
fn race(name: &'static str, setup: &[IndexOperation], operations: &[IndexOperation]) {
    let scope = Scope {
        name,
        setup: setup.to_vec(),
        keys: [0; 3],
    };
    for codec in [Word, Record] {
        let preemptions_max = if codec == Word || common::is_thorough() {
            2
        } else {
            1
        };
        let search = Search::Exhaustive { preemptions_max };
        let engine = common::small(Engine::BZTREE, codec);
        explore_with(
            &engine,
            &scope,
            &[Program::single(operations)],
            &search,
            true,
            &options(),
        );
    }
}

/// On a medium whose fences order but do not make durable, with every image that a crash leaves of
/// the log.
#[test]
fn races_on_a_file() {
    let options = ExplorationOptions {
        rules: Rules::Log,
        ..options()
    };
    for (name, setup, operations) in [
        (
            "a split beside a put",
            full(),
            [Insert(16, 102), Put(10, 103)],
        ),
        ("a split beside a read", full(), [Insert(16, 102), Get(10)]),
        (
            "the same key",
            vec![Insert(10, 1)],
            [Insert(20, 101), Insert(20, 102)],
        ),
    ] {
        let scope = Scope {
            name,
            setup,
            keys: [0; 3],
        };
        for codec in [Word, Record] {
            let search = Search::Exhaustive { preemptions_max: 1 };
            let engine = common::small(Engine::BZTREE, codec);
            explore_with(
                &engine,
                &scope,
                &[Program::single(&operations)],
                &search,
                true,
                &options,
            );
        }
    }
}

fn full() -> Vec<IndexOperation> {
    (1..5).map(|key| Insert(10 * key, key)).collect()
}

/// A regression: the second thread took a descriptor that the first one was using, and both splits
/// reported success.
#[test]
fn a_split_beside_a_put() {
    race(
        "a split beside a put",
        &full(),
        &[Insert(16, 102), Put(10, 103)],
    );
}

#[test]
#[ignore = "thorough: 22 s"]
fn inserts_of_the_same_key() {
    race(
        "the same key",
        &[Insert(10, 1)],
        &[Insert(20, 101), Insert(20, 102)],
    );
    race(
        "the same key, split",
        &full(),
        &[Insert(15, 101), Insert(15, 102)],
    );
}

/// A regression: a writer that had waited long enough ended an insert's reservation before the
/// insert had written the entry's metadata. The insert then still used the entry, so the key was
/// there twice.
#[test]
fn reservations_that_others_end() {
    let engines: [AnyEngine; 2] = [
        Explored::small(Engine::BZTREE, CodecName::Word)
            .with("patience", 0)
            .shared(),
        Explored::small(Engine::BZTREE, CodecName::Record)
            .with("patience", 0)
            .shared(),
    ];
    let three = [Insert(20, 101), Insert(20, 102), Insert(20, 103)];
    let programs: [(&str, &[IndexOperation], Program<IndexOperation>, u32); 5] = [
        (
            "the same key",
            &full()[..1],
            Program::single(&three[..2]),
            2,
        ),
        (
            "another key",
            &full()[..1],
            Program::single(&[Insert(20, 101), Insert(30, 102)]),
            2,
        ),
        (
            "the last entry",
            &full()[..3],
            Program::single(&[Insert(50, 101), Put(50, 102)]),
            2,
        ),
        (
            "and one more",
            &full()[..1],
            Program::of(vec![three[..1].to_vec(), vec![three[1], Insert(30, 104)]]),
            2,
        ),
        ("three threads", &full()[..1], Program::single(&three), 1),
    ];
    for engine in engines
        .iter()
        .take(if common::is_thorough() { 2 } else { 1 })
    {
        for (name, setup, program, most) in &programs {
            let scope = Scope {
                name,
                setup: setup.to_vec(),
                keys: [0; 3],
            };
            for preemptions_max in 1..=*most {
                let search = Search::Exhaustive { preemptions_max };
                explore_with(
                    engine,
                    &scope,
                    std::slice::from_ref(program),
                    &search,
                    preemptions_max < 2,
                    &options(),
                );
            }
        }
    }
}

#[test]
fn an_insert_into_a_leaf_that_is_being_frozen() {
    race(
        "an insert beside a freeze",
        &full()[..3],
        &[Insert(15, 101), Insert(16, 102)],
    );
}

#[test]
#[ignore = "thorough: 33 s"]
fn two_splits_of_one_leaf() {
    race("two splits", &full(), &[Insert(15, 101), Insert(35, 102)]);
}

fn small_leaves() -> Vec<IndexOperation> {
    let mut setup: Vec<_> = (1..9).map(|key| Insert(10 * key, key)).collect();
    setup.extend([20, 30, 60, 70, 80].map(Remove));
    setup
}

#[test]
#[ignore = "thorough: 17 s"]
fn an_insert_into_leaves_that_are_being_merged() {
    race(
        "a merge beside an insert",
        &small_leaves(),
        &[Remove(10), Insert(15, 101)],
    );
    race(
        "a merge beside an insert on the right",
        &small_leaves(),
        &[Remove(10), Insert(45, 101)],
    );
}

#[test]
#[ignore = "thorough: 8 s"]
fn two_merges() {
    race("two merges", &small_leaves(), &[Remove(10), Remove(50)]);
}

#[test]
#[ignore = "thorough: 8 s"]
fn a_remove_from_a_leaf_that_is_being_consolidated() {
    // The leaf is full of removed entries, so the insert consolidates it.
    let mut setup = full();
    setup.extend([Remove(30), Remove(40)]);
    race(
        "a consolidation beside a remove",
        &setup,
        &[Insert(15, 101), Remove(10)],
    );
    race(
        "a consolidation beside an update",
        &setup,
        &[Insert(15, 101), Update(10, 102)],
    );
    race(
        "a consolidation beside a scan",
        &setup,
        &[Insert(15, 101), Scan(0, 100)],
    );
}

/// The mark after a crash beside a thread that splits, merges and replaces records. Then free space
/// is reused, while that thread may still retire nodes that it had removed before the mark reached
/// them.
#[test]
fn a_mark_beside_changes() {
    let engines: [AnyEngine; 2] = [
        Explored::small(Engine::BZTREE, CodecName::Word)
            .marking_later()
            .shared(),
        Explored::small(Engine::BZTREE, CodecName::Record)
            .marking_later()
            .shared(),
    ];
    for engine in &engines {
        let explore = |setup: &[IndexOperation], operation: IndexOperation| {
            let programs = [
                (
                    Program::single(&[Mark, operation]),
                    Search::Exhaustive { preemptions_max: 2 },
                ),
                (
                    Program::of(vec![vec![Mark, Insert(16, 103)], vec![operation]]),
                    Search::Exhaustive { preemptions_max: 1 },
                ),
            ];
            marks::explore(engine, setup, &programs, &options());
        };
        for operation in [Insert(15, 101), Put(10, 102), Remove(20)] {
            explore(&full(), operation);
        }
        explore(&small_leaves(), Remove(10));
    }
}

/// A sample of all pairs of operations on trees that split and merge, each with one preemption and
/// the crashes of that.
#[test]
fn pairs_of_operations() {
    for (number, scope) in threads::scopes(4).iter().enumerate() {
        let pairs: Vec<_> = threads::pairs(scope, DurabilityContract::OnReturn)
            .into_iter()
            .skip(number)
            .step_by(9)
            .collect();
        explore(
            Word,
            scope,
            &pairs,
            &Search::Exhaustive { preemptions_max: 1 },
        );
        explore(
            Record,
            scope,
            &pairs[..1],
            &Search::Exhaustive { preemptions_max: 1 },
        );
    }
}

/// Three threads, random programs.
#[test]
fn random_threads() {
    for seed in common::seeds(3, 8) {
        let program = threads::random(seed, 3, 8, 9, DurabilityContract::OnReturn);
        let scope = Scope {
            name: "random",
            setup: Vec::new(),
            keys: [0; 3],
        };
        let search = Search::Random {
            runs: 20,
            depth: 3,
            seed,
        };
        explore(Word, &scope, std::slice::from_ref(&program), &search);
        explore(Record, &scope, std::slice::from_ref(&program), &search);
    }
}

/// All pairs with two preemptions, and triples with one: minutes.
#[test]
#[ignore = "thorough: minutes"]
fn all_pairs_and_triples() {
    for scope in threads::scopes(4) {
        explore(
            Word,
            &scope,
            &threads::pairs(&scope, DurabilityContract::OnReturn),
            &Search::Exhaustive { preemptions_max: 1 },
        );
        explore(
            Record,
            &scope,
            &threads::pairs(&scope, DurabilityContract::OnReturn),
            &Search::Exhaustive { preemptions_max: 1 },
        );
        explore(
            Word,
            &scope,
            &threads::pairs(&scope, DurabilityContract::OnReturn),
            &Search::Exhaustive { preemptions_max: 2 },
        );
        let triples: Vec<_> = threads::triples(&scope, DurabilityContract::OnReturn)
            .into_iter()
            .step_by(10)
            .collect();
        explore(
            Word,
            &scope,
            &triples,
            &Search::Exhaustive { preemptions_max: 1 },
        );
    }
}
