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

/// A program, and how it is explored.
#[derive(Clone)]
struct Script {
    name: &'static str,
    threads: Vec<Vec<ViewOperation>>,
    /// The trees with which it finds faults of the protocol.
    kinds: [TreeKind; 2],
    /// The most bytes that old values may take.
    bytes_max: usize,
    /// The most preemptions of its schedules.
    preemptions_max: u32,
    /// Whether each run is crashed as well.
    crashes: bool,
}

impl Script {
    fn new(name: &'static str, threads: Vec<Vec<ViewOperation>>) -> Self {
        Self {
            name,
            threads,
            kinds: WORDS,
            bytes_max: usize::MAX,
            preemptions_max: 2,
            crashes: false,
        }
    }

    fn with_kinds(self, kinds: [TreeKind; 2]) -> Self {
        Self { kinds, ..self }
    }

    fn with_bytes_max(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    fn with_preemptions_max(self, preemptions_max: u32) -> Self {
        Self {
            preemptions_max,
            ..self
        }
    }

    fn with_crashes(self) -> Self {
        Self {
            crashes: true,
            ..self
        }
    }
}

/// Both trees have the keys 1 and 2, durably.
fn setup() -> Vec<ViewOperation> {
    let both = batch(&[
        (0, 1, Some(10)),
        (0, 2, Some(20)),
        (1, 1, Some(30)),
        (1, 2, Some(40)),
    ]);
    vec![both, sync()]
}

/// Ends the epoch, if a tree is durable by epochs.
fn sync() -> ViewOperation {
    Write(BatchOperation::Sync)
}

fn both(key: u64) -> Vec<ViewRead> {
    vec![Key(0, key), Key(1, key)]
}

/// Programs that are small enough for all schedules.
#[expect(clippy::too_many_lines, reason = "a table")]
fn scripts() -> Vec<Script> {
    let moved = batch(&[(0, 1, Some(5)), (1, 1, Some(6))]);
    let all = || vec![Range(0, 0, 7), RangeBack(0, 0, 7)];
    vec![
        Script::new(
            "a view is ended while it reads",
            vec![
                vec![Snapshot(vec![Key(0, 1), Key(0, 2)])],
                vec![put(0, 1, 11), put(0, 2, 21)],
            ],
        )
        .with_bytes_max(1),
        Script::new(
            "a view is ended by a second write",
            vec![
                vec![Snapshot(vec![Key(0, 1), Key(0, 1)])],
                vec![put(0, 1, 11), put(0, 2, 21)],
            ],
        )
        // One change fits.
        .with_bytes_max(250),
        Script::new(
            "transactions whose views are ended",
            vec![
                vec![Transaction(both(1), vec![(0, 1, Some(1))])],
                vec![Transaction(both(1), vec![(1, 1, Some(2))])],
            ],
        )
        .with_bytes_max(1),
        Script::new(
            "a snapshot between two writers of one key",
            vec![
                vec![Snapshot(vec![Key(0, 1)])],
                vec![put(0, 1, 11)],
                vec![put(0, 1, 12), Snapshot(vec![Key(0, 1)])],
            ],
        )
        .with_preemptions_max(3),
        Script::new(
            "two batches in opposite order",
            vec![
                vec![moved.clone()],
                vec![batch(&[(1, 1, Some(7)), (0, 1, Some(8))])],
            ],
        ),
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
    fault: Option<VersionsFault>,
) -> Result<(), String> {
    let search = Search::Exhaustive {
        preemptions_max: script.preemptions_max,
    };
    explore_by(kinds, script, search, fault)
}

fn explore_by(
    kinds: &[TreeKind; 2],
    script: &Script,
    search: Search,
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
        crashes: script.crashes,
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
    for script in scripts().into_iter().chain(of_words()) {
        explore(&WORDS, &script, None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Bulk loads beside snapshots, and a transaction that has found the tree empty.
fn loads() -> Vec<Script> {
    let empty = batch(&[(0, 1, None), (0, 2, None)]);
    let load = || Load(0, vec![(1, 50), (2, 51), (3, 52)]);
    let all = || Snapshot(vec![Range(0, 0, 7), Key(0, 1), RangeBack(0, 0, 7)]);
    let scripts = vec![
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
    ];
    let kinds = [TreeKind::Engine(Engine::RNTREE), TreeKind::PlainWords];
    let scripts = scripts.into_iter();
    scripts
        .map(|script| script.with_kinds(kinds.clone()))
        .collect()
}

/// Scripts that need trees of plain words.
fn of_words() -> Vec<Script> {
    vec![Script::new(
        "a batch that cannot be finished",
        vec![
            vec![ViewOperation::Unfinished(vec![(0, 1, Some(5))])],
            vec![
                Snapshot(vec![Key(0, 1), Key(0, 1)]),
                Snapshot(vec![Key(0, 1)]),
            ],
        ],
    )]
}

/// Scripts that take long, for a single fault each.
fn long() -> Vec<Script> {
    vec![
        Script::new(
            "a snapshot beside a write that another one follows",
            vec![
                vec![Snapshot(vec![Key(0, 1), Key(0, 1)])],
                vec![put(0, 1, 11)],
                vec![put(0, 1, 12)],
            ],
        )
        .with_preemptions_max(4),
        Script::new(
            "a snapshot beside a write that a batch follows",
            vec![
                vec![Snapshot(vec![Key(0, 1), Key(0, 1)])],
                vec![put(0, 1, 11)],
                vec![batch(&[(0, 1, Some(12))])],
            ],
        )
        .with_preemptions_max(4),
        Script::new(
            "a snapshot that is opened at the end of a load",
            vec![
                vec![Snapshot(vec![Key(0, 1), Key(0, 1)])],
                vec![batch(&[(0, 1, None), (0, 2, None)]), Load(0, vec![(1, 50)])],
            ],
        )
        .with_kinds([TreeKind::Engine(Engine::RNTREE), TreeKind::PlainWords])
        .with_preemptions_max(3),
    ]
}

#[test]
fn views_beside_bulk_loads() {
    let mut pairs = vec![[TreeKind::Engine(Engine::RNTREE), TreeKind::PlainWords]];
    if common::is_thorough() {
        pairs.push([
            TreeKind::Engine(Engine::WBTREE),
            TreeKind::Words(Engine::RNTREE),
        ]);
    }
    for kinds in pairs {
        for script in loads() {
            explore(&kinds, &script, None).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

/// Each fault of the protocol, and the script that finds it.
const FAULTS: [(VersionsFault, &str); 39] = [
    (NoGracePeriod, "a snapshot beside two writers of one key"),
    (OpenerSkipsGracePeriod, "two snapshots beside two writers"),
    (NoKeyLock, "a snapshot between two writers of one key"),
    (
        KeyLockEndsEarly,
        "a snapshot beside a write that another one follows",
    ),
    (
        ShareEndsEarly,
        "a snapshot beside a write that a batch follows",
    ),
    (
        SwitchBeforeShare,
        "a snapshot beside two writers of one key",
    ),
    (
        ChangesBeforeTree,
        "a snapshot beside two writers of one key",
    ),
    (NoWaitForPublished, "a snapshot beside a batch"),
    (
        PublishBeforeRecord,
        "a snapshot beside two writers of one key",
    ),
    (BatchBeforeRecord, "a snapshot beside a batch"),
    (StripesInAnyOrder, "two batches in opposite order"),
    (
        StampThenRecord,
        "a transaction and a snapshot beside a writer",
    ),
    (StampForEachWrite, "write skew"),
    (NoCheck, "write skew"),
    (CheckThenStamp, "write skew"),
    (EndedViewCommits, "transactions whose views are ended"),
    (ReadsOfEpochIgnored, "a transaction that rests on an epoch"),
    (RegisterLate, "a snapshot beside a batch"),
    (ValueNotKeptTwice, "two snapshots beside two writers"),
    (NewestChangeWins, "two snapshots beside two writers"),
    (OffIgnoresOpeners, "two snapshots beside two writers"),
    (OffIgnoresViews, "two snapshots beside a writer"),
    (OffInTwoSteps, "two snapshots beside a writer"),
    (ForgetTooMuch, "two snapshots beside two writers"),
    (NoLastCheck, "a view is ended while it reads"),
    (LastCheckFirst, "a view is ended while it reads"),
    (ForgetBeforeMark, "a view is ended by a second write"),
    (RangeReadsChangesOnce, "ranges beside writers"),
    (NoChangesBehindLast, "ranges beside writers"),
    (NoChangesBeforeFirst, "ranges beside writers"),
    (NoCheckOfRanges, "phantoms"),
    (LoadWithoutStripes, "a snapshot beside a load"),
    (LoadNotRecorded, "a snapshot beside a load"),
    (LoadBeforeEmpty, "a load beside a single write"),
    (
        NoWaitForLoad,
        "a snapshot that is opened at the end of a load",
    ),
    (ChangeBeatsLoad, "a snapshot beside a load"),
    (LoadBeatsChange, "a load after changes"),
    (UnfinishedIsNoObstacle, "a batch that cannot be finished"),
    (UnfinishedTooLate, "a batch that cannot be finished"),
];

#[test]
fn each_fault_of_the_protocol_is_found() {
    let mut scripts = scripts();
    scripts.extend(loads());
    scripts.extend(of_words());
    scripts.extend(long());
    scripts.extend(of_epochs());
    let mut survived = Vec::new();
    for (fault, name) in FAULTS {
        let script = scripts.iter().find(|script| script.name == name);
        let script = script.expect("the table names scripts");
        if explore(&script.kinds, script, Some(fault)).is_ok() {
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

/// A record is moved to another slab while a view reads its key, both before and after the key is
/// overwritten: the value in the tree may be the copy, and the old value may have been read from it.
#[test]
fn a_mover_beside_a_snapshot_and_a_writer() {
    let script = Script::new(
        "a mover beside a snapshot and a writer",
        vec![
            vec![ViewOperation::Move(0)],
            vec![Snapshot(vec![Key(0, 1), Range(0, 0, 7), Key(0, 1)])],
            vec![put(0, 1, 11)],
        ],
    );
    for engine in Engine::ALL {
        let kinds = [TreeKind::Engine(*engine), TreeKind::PlainWords];
        let all = Search::Exhaustive { preemptions_max: 1 };
        let random = Search::Random {
            runs: if common::is_thorough() { 20_000 } else { 200 },
            depth: 4,
            seed: common::setting("EVERLEAF_SEED", 1),
        };
        for search in [all, random] {
            explore_by(&kinds, &script, search, None)
                .unwrap_or_else(|failure| panic!("{kinds:?}: {failure}"));
        }
    }
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
            explore_by(&kinds, script, search, None)
                .unwrap_or_else(|failure| panic!("{kinds:?}: {failure}"));
        }
    }
}

/// A crash in a transaction leaves all of it or nothing, and what a snapshot has returned is there
/// afterwards. Each fence is a moment at which a write is visible and not yet durable.
#[test]
fn crashes_in_transactions() {
    let scripts = [
        two_transactions(),
        Script::new(
            "a snapshot beside a transaction",
            vec![
                vec![Transaction(both(1), vec![(0, 1, Some(1)), (1, 2, None)])],
                vec![Snapshot(vec![Key(0, 1), Range(1, 0, 7)])],
            ],
        ),
        Script::new(
            "a snapshot beside single writes",
            vec![
                vec![put(0, 1, 11), put(1, 1, 12)],
                vec![Snapshot(both(1)), Snapshot(both(1))],
            ],
        ),
    ];
    let is_immediate = |kind: &TreeKind| match kind {
        TreeKind::Engine(engine) => !engine.is_buffered(),
        _ => true,
    };
    let mut kinds: Vec<[TreeKind; 2]> = vec![WORDS];
    let pairs = common::pairs_or(&[
        [Engine::RNTREE, Engine::BZTREE],
        [Engine::WBTREE, Engine::CAWBT],
    ]);
    kinds.extend(
        pairs
            .into_iter()
            .filter(|pair| pair.iter().all(is_immediate)),
    );
    for kinds in kinds {
        crash(&kinds, scripts.iter().cloned());
    }
}

fn two_transactions() -> Script {
    Script::new(
        "two transactions",
        vec![
            vec![Transaction(both(1), vec![(0, 1, Some(1)), (1, 2, None)])],
            vec![Transaction(both(2), vec![(1, 1, Some(2)), (0, 2, Some(3))])],
        ],
    )
}

/// Explores scripts with crashes.
fn crash(kinds: &[TreeKind; 2], scripts: impl Iterator<Item = Script>) {
    for script in scripts.map(Script::with_crashes) {
        let preemptions_max = if common::is_thorough() { 2 } else { 1 };
        let all = Search::Exhaustive { preemptions_max };
        for search in [all, Search::Sweep] {
            explore_by(kinds, &script, search, None)
                .unwrap_or_else(|failure| panic!("{kinds:?}: {failure}"));
        }
    }
}

/// Transactions beside epochs. The first tree is durable by epochs. Each single write to it is read
/// by the transaction that follows, or its epoch is ended.
fn of_epochs() -> Vec<Script> {
    let kinds = [TreeKind::Engine(Engine::MASSTREE), TreeKind::PlainWords];
    let scripts = vec![
        Script::new(
            "a transaction that rests on an epoch",
            vec![
                vec![
                    put(0, 1, 11),
                    Transaction(vec![Key(0, 1)], vec![(1, 1, Some(1))]),
                ],
                vec![Snapshot(both(1))],
            ],
        ),
        Script::new(
            "a transaction beside the end of its epoch",
            vec![
                vec![
                    put(0, 1, 11),
                    Transaction(vec![Range(0, 0, 7)], vec![(1, 1, Some(1))]),
                ],
                vec![sync()],
            ],
        ),
        Script::new(
            "a transaction of epochs alone",
            vec![
                vec![Transaction(
                    vec![Key(0, 1)],
                    vec![(0, 1, Some(1)), (0, 2, None)],
                )],
                vec![sync()],
            ],
        ),
    ];
    scripts
        .into_iter()
        .map(|script| script.with_kinds(kinds.clone()).with_crashes())
        .collect()
}

/// The same with a tree that is durable by epochs: the entries that a transaction has read there
/// survive whenever its writes to the other tree do.
#[test]
fn crashes_in_transactions_beside_epochs() {
    let mut others = vec![Engine::RNTREE, Engine::MASSTREE];
    if common::is_thorough() {
        others = Engine::ALL.to_vec();
    }
    for other in others {
        let kinds = [Engine::MASSTREE, other].map(TreeKind::Engine);
        let scripts = of_epochs().into_iter().chain([two_transactions()]);
        crash(&kinds, scripts);
    }
}
