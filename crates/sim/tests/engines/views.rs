//! Snapshots and transactions over two trees, beside single writes, batches and loads: under every
//! schedule with two preemptions, and with each fault of the protocol.

use everleaf_sim::index::Engine;
use everleaf_sim::index::batches::{BatchOperation, BatchSubject, KeyState, TreeKind};
use everleaf_sim::index::views::{ViewOperation, ViewRead, ViewSubject};
use everleaf_sim::{ExplorationOptions, Images, Program, Rules, Scheduling, Search, SecondCrash};

use engines::versions::VersionsFault::{self, *};

use crate::common;
use ViewOperation::{Load, Snapshot, Transaction, Write};
use ViewRead::{First, Key, Range, RangeBack};

const WORDS: [TreeKind; 2] = [TreeKind::PlainWords, TreeKind::PlainWords];

fn put(tree: usize, key: u64, value: u64) -> ViewOperation {
    Write(BatchOperation::Single((tree, key, Some(value))))
}

fn remove(tree: usize, key: u64) -> ViewOperation {
    Write(BatchOperation::Single((tree, key, None)))
}

fn batch(writes: &[KeyState]) -> ViewOperation {
    Write(BatchOperation::Batch(writes.to_vec(), Vec::new()))
}

/// A program, and the state before it.
struct Script {
    name: &'static str,
    threads: Vec<Vec<ViewOperation>>,
    /// The most bytes that old values may take.
    bytes_max: usize,
    /// The most preemptions of its schedules.
    preemptions_max: u32,
}

impl Script {
    fn new(name: &'static str, threads: Vec<Vec<ViewOperation>>) -> Self {
        Self {
            name,
            threads,
            bytes_max: usize::MAX,
            preemptions_max: 2,
        }
    }
}

/// Both trees have the keys 1 and 2.
fn setup() -> Vec<ViewOperation> {
    vec![batch(&[
        (0, 1, Some(10)),
        (0, 2, Some(20)),
        (1, 1, Some(30)),
        (1, 2, Some(40)),
    ])]
}

fn both(key: u64) -> Vec<ViewRead> {
    vec![Key(0, key), Key(1, key)]
}

/// Programs that are small enough for all schedules.
#[expect(clippy::too_many_lines, reason = "a table")]
fn scripts() -> Vec<Script> {
    let moved = batch(&[(0, 1, Some(5)), (1, 1, Some(6))]);
    let all = || vec![Range(0, 0, 7), RangeBack(0, 0, 7)];
    let mut ended = Script::new(
        "a view is ended while it reads",
        vec![
            vec![Snapshot(vec![Key(0, 1), Key(0, 2)])],
            vec![put(0, 1, 11), put(0, 2, 21)],
        ],
    );
    ended.bytes_max = 1;
    let mut ended_later = Script::new(
        "a view is ended by a second write",
        vec![
            vec![Snapshot(vec![Key(0, 1), Key(0, 1)])],
            vec![put(0, 1, 11), put(0, 2, 21)],
        ],
    );
    // One change fits.
    ended_later.bytes_max = 250;
    let mut lost_value = Script::new(
        "a snapshot between two writers of one key",
        vec![
            vec![Snapshot(vec![Key(0, 1)])],
            vec![put(0, 1, 11)],
            vec![put(0, 1, 12), Snapshot(vec![Key(0, 1)])],
        ],
    );
    lost_value.preemptions_max = 3;
    vec![
        ended,
        ended_later,
        lost_value,
        Script::new(
            "two snapshots beside two writers",
            vec![
                vec![Snapshot(vec![Key(0, 1)])],
                vec![put(0, 1, 11)],
                vec![Snapshot(vec![Key(0, 1), Key(0, 1)])],
                vec![put(0, 1, 12)],
            ],
        ),
        Script::new(
            "a snapshot beside two writers of one key",
            vec![
                vec![Snapshot(vec![Key(0, 1), Key(0, 1)])],
                vec![put(0, 1, 11)],
                vec![put(0, 1, 12)],
            ],
        ),
        Script::new(
            "a snapshot beside a batch",
            vec![
                vec![Snapshot(both(1))],
                vec![moved.clone()],
                vec![put(1, 1, 7)],
            ],
        ),
        Script::new(
            "two snapshots beside a writer",
            vec![
                vec![Snapshot(vec![Key(0, 1), Key(0, 1)])],
                vec![Snapshot(vec![Key(0, 1), Key(0, 1)])],
                vec![put(0, 1, 11), put(0, 1, 12)],
            ],
        ),
        Script::new(
            "a snapshot after a snapshot",
            vec![
                vec![
                    Snapshot(vec![Key(0, 1)]),
                    Snapshot(vec![Key(0, 1), Key(0, 2)]),
                ],
                vec![put(0, 1, 11), put(0, 2, 21)],
            ],
        ),
        Script::new(
            "ranges beside writers",
            vec![vec![Snapshot(all())], vec![put(0, 3, 33), remove(0, 1)]],
        ),
        Script::new(
            "a range beside the removal of its last key",
            vec![
                vec![Snapshot(vec![Range(0, 0, 7)])],
                vec![remove(0, 2), put(0, 5, 55)],
            ],
        ),
        Script::new(
            "a range from the end beside the removal of its first key",
            vec![
                vec![Snapshot(vec![RangeBack(0, 0, 7)])],
                vec![remove(0, 1), put(0, 0, 5)],
            ],
        ),
        Script::new(
            "write skew",
            vec![
                vec![Transaction(both(1), vec![(0, 1, Some(1))])],
                vec![Transaction(both(1), vec![(1, 1, Some(2))])],
            ],
        ),
        Script::new(
            "an update beside a single write",
            vec![
                vec![Transaction(vec![Key(0, 1)], vec![(0, 1, Some(1))])],
                vec![Transaction(vec![Key(0, 1)], vec![(0, 1, Some(2))])],
                vec![put(0, 1, 5)],
            ],
        ),
        Script::new(
            "a transaction beside a batch",
            vec![
                vec![Transaction(vec![Key(0, 1)], vec![(1, 1, Some(1))])],
                vec![moved],
            ],
        ),
        Script::new(
            "phantoms",
            vec![
                vec![Transaction(vec![Range(0, 3, 6)], vec![(0, 3, Some(1))])],
                vec![Transaction(vec![RangeBack(0, 3, 6)], vec![(0, 4, Some(2))])],
            ],
        ),
        Script::new(
            "a range as far as it was read",
            vec![
                vec![Transaction(vec![First(0, 0, 7)], vec![(1, 1, Some(1))])],
                vec![put(0, 0, 5), remove(0, 1)],
            ],
        ),
        Script::new(
            "a transaction and a snapshot beside a writer",
            vec![
                vec![Transaction(both(1), vec![(0, 1, Some(1)), (1, 2, None)])],
                vec![Snapshot(vec![Key(0, 1), Key(1, 2), Key(1, 1)])],
                vec![put(1, 1, 3)],
            ],
        ),
    ]
}

fn options() -> ExplorationOptions {
    ExplorationOptions {
        rules: Rules::Lines,
        ..common::options("engines", Images::Some { random: 1 }, SecondCrash::Never)
    }
}

/// All schedules of a script. Returns the first violation.
fn explore(
    kinds: &[TreeKind; 2],
    script: &Script,
    crashes: bool,
    fault: Option<VersionsFault>,
) -> Result<(), String> {
    let search = Search::Exhaustive {
        preemptions_max: script.preemptions_max,
    };
    explore_by(kinds, script, search, crashes, fault)
}

fn explore_by(
    kinds: &[TreeKind; 2],
    script: &Script,
    search: Search,
    crashes: bool,
    fault: Option<VersionsFault>,
) -> Result<(), String> {
    let mut batches = BatchSubject::new(kinds.clone()).versions_bytes_max(script.bytes_max);
    if let Some(fault) = fault {
        batches = batches.fault(fault);
    }
    let mut explorer = ViewSubject::new(batches).explorer(ExplorationOptions {
        shrink: false,
        ..options()
    })?;
    explorer
        .set_up(&setup())
        .map_err(|failure| failure.to_string())?;
    let scheduling = Scheduling {
        search,
        crashes,
        ..Scheduling::default()
    };
    let program = Program::of(script.threads.clone());
    explorer
        .explore_threads(&program, &scheduling)
        .map_err(|failure| format!("{}: {failure}", script.name))?;
    println!("{kinds:?}, {}: {}", script.name, explorer.stats());
    Ok(())
}

#[test]
fn views_of_plain_words_under_all_schedules() {
    for script in scripts() {
        explore(&WORDS, &script, false, None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Bulk loads beside snapshots, and a transaction that has found the tree empty.
fn loads() -> Vec<Script> {
    let empty = batch(&[(0, 1, None), (0, 2, None)]);
    let load = || Load(0, vec![(1, 50), (2, 51), (3, 52)]);
    let all = || Snapshot(vec![Range(0, 0, 7), Key(0, 1), RangeBack(0, 0, 7)]);
    vec![
        Script::new(
            "a snapshot beside a load",
            vec![vec![all()], vec![empty.clone(), load()]],
        ),
        Script::new(
            "a load beside a single write",
            vec![vec![empty.clone(), load()], vec![put(0, 5, 5)], vec![all()]],
        ),
        Script::new(
            "a load after changes",
            vec![
                vec![Snapshot(vec![Key(0, 1), Key(0, 1), Key(0, 3)])],
                vec![remove(0, 1), remove(0, 2), load(), remove(0, 3)],
            ],
        ),
        Script::new(
            "a transaction beside a load",
            vec![
                vec![Transaction(vec![Key(0, 3)], vec![(1, 1, Some(1))])],
                vec![empty, load()],
            ],
        ),
    ]
}

#[test]
fn views_beside_bulk_loads() {
    for kinds in [
        [TreeKind::Engine(Engine::RNTREE), TreeKind::PlainWords],
        [
            TreeKind::Engine(Engine::WBTREE),
            TreeKind::Words(Engine::RNTREE),
        ],
    ] {
        for script in loads() {
            explore(&kinds, &script, false, None).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

/// Each fault of the protocol, and the script that finds it.
const FAULTS: [(VersionsFault, &str); 23] = [
    (NoGracePeriod, "a snapshot beside two writers of one key"),
    (OpenerSkipsGracePeriod, "two snapshots beside two writers"),
    (NoKeyLock, "a snapshot between two writers of one key"),
    (
        ChangesBeforeTree,
        "a snapshot beside two writers of one key",
    ),
    (NoWaitForPublished, "a snapshot beside a batch"),
    (
        PublishBeforeRecord,
        "a snapshot beside two writers of one key",
    ),
    (
        StampThenRecord,
        "a transaction and a snapshot beside a writer",
    ),
    (StampForEachWrite, "write skew"),
    (NoCheck, "write skew"),
    (CheckThenStamp, "write skew"),
    (RegisterLate, "a snapshot beside a batch"),
    (ValueNotKeptTwice, "two snapshots beside two writers"),
    (NewestChangeWins, "two snapshots beside two writers"),
    (OffIgnoresOpeners, "two snapshots beside two writers"),
    (ForgetTooMuch, "two snapshots beside two writers"),
    (NoLastCheck, "a view is ended while it reads"),
    (ForgetBeforeMark, "a view is ended by a second write"),
    (RangeReadsChangesOnce, "ranges beside writers"),
    (NoChangesBehindLast, "ranges beside writers"),
    (NoCheckOfRanges, "phantoms"),
    (LoadWithoutStripes, "a snapshot beside a load"),
    (LoadNotRecorded, "a snapshot beside a load"),
    (ChangeBeatsLoad, "a snapshot beside a load"),
];

#[test]
fn each_fault_of_the_protocol_is_found() {
    let mut survived = Vec::new();
    for (fault, name) in FAULTS {
        let mut scripts = scripts().into_iter().chain(loads());
        let script = scripts.find(|script| script.name == name);
        let script = script.expect("the table names scripts");
        let has_load = loads().iter().any(|load| load.name == name);
        let kinds = match has_load {
            true => [TreeKind::Engine(Engine::RNTREE), TreeKind::PlainWords],
            false => WORDS,
        };
        if explore(&kinds, &script, false, Some(fault)).is_ok() {
            survived.push(fault);
        }
    }
    println!(
        "{{\"faults\":{},\"survived\":{}}}",
        FAULTS.len(),
        survived.len()
    );
    assert!(survived.is_empty(), "not found: {survived:?}");
}

/// Pairs of engines, each of them once with one that is durable by epochs; all pairs in thorough
/// runs.
fn pairs() -> Vec<[TreeKind; 2]> {
    common::pairs_or(&[
        [Engine::RNTREE, Engine::BZTREE],
        [Engine::WBTREE, Engine::CAWBT],
        [Engine::MASSTREE, Engine::RNTREE],
    ])
}

/// Real engines: random schedules, as their programs are too long for all.
#[test]
fn views_of_engines_under_random_schedules() {
    let runs = if common::is_thorough() { 20_000 } else { 20 };
    for kinds in pairs() {
        for script in scripts().iter().chain(&loads()) {
            let search = Search::Random {
                runs,
                depth: 3,
                seed: common::setting("EVERLEAF_SEED", 1),
            };
            explore_by(&kinds, script, search, false, None)
                .unwrap_or_else(|failure| panic!("{kinds:?}: {failure}"));
        }
    }
}

/// A crash in a transaction leaves all of it or nothing, and what a snapshot has returned is there
/// afterwards. Each fence is a moment at which a write is visible and not yet durable.
#[test]
fn crashes_in_transactions() {
    let script = |name, threads| Script::new(name, threads);
    let scripts = [
        script(
            "two transactions",
            vec![
                vec![Transaction(both(1), vec![(0, 1, Some(1)), (1, 2, None)])],
                vec![Transaction(both(2), vec![(1, 1, Some(2)), (0, 2, Some(3))])],
            ],
        ),
        script(
            "a snapshot beside a transaction",
            vec![
                vec![Transaction(both(1), vec![(0, 1, Some(1)), (1, 2, None)])],
                vec![Snapshot(vec![Key(0, 1), Range(1, 0, 7)])],
            ],
        ),
        script(
            "a snapshot beside single writes",
            vec![
                vec![put(0, 1, 11), put(1, 1, 12)],
                vec![Snapshot(both(1)), Snapshot(both(1))],
            ],
        ),
    ];
    let immediate = [
        [Engine::RNTREE, Engine::BZTREE],
        [Engine::WBTREE, Engine::CAWBT],
    ];
    let mut kinds: Vec<[TreeKind; 2]> = vec![WORDS];
    kinds.extend(immediate.map(|pair| pair.map(TreeKind::Engine)));
    for kinds in kinds {
        for script in &scripts {
            let all = Search::Exhaustive { preemptions_max: 1 };
            for search in [all, Search::Sweep] {
                explore_by(&kinds, script, search, true, None)
                    .unwrap_or_else(|failure| panic!("{kinds:?}: {failure}"));
            }
        }
    }
}
