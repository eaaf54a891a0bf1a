//! Writes of the durable Masstree within one epoch: a crash leaves all of them, or none, whichever
//! thread ends the epoch.

use std::collections::BTreeMap;

use engines::index::{Bounds, Condition, Direction, EpochLength, Epochs, Index, RecordCodec};
use engines::masstree::{MassTree, MassTreeOptions};
use everleaf_sim::index::pool_options;
use everleaf_sim::{
    Complaint, Concurrent, DurabilityContract, ExplorationOptions, Explorer, Images, Program,
    Rules, Scheduling, Search, SecondCrash, Subject,
};
use medium::sim::Sim;
use pool::Pool;

use crate::common;
use crate::common::text;

type Tree = MassTree<Sim, RecordCodec>;

/// A key, and its new value; none removes it.
type Write = (u64, Option<u64>);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Operation {
    /// Writes, each by itself.
    Apart(Vec<Write>),
    /// Writes in one batch.
    Batch(Vec<Write>),
    Sync,
}

use Operation::{Apart, Batch, Sync};

/// A pool with one tree.
struct Batches {
    /// Whether the writes of a batch are done as any others: then they are torn.
    are_torn: bool,
}

struct Opened {
    tree: Tree,
    _pool: Pool<Sim>,
}

fn key(number: u64) -> Vec<u8> {
    // In two layers.
    format!("prefix--{number:04}").into_bytes()
}

impl Subject for Batches {
    type Operation = Operation;
    type Outcome = ();
    type State = BTreeMap<u64, u64>;
    type Instance = Opened;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &mut Self::State, operation: &Operation) {
        let (Apart(writes) | Batch(writes)) = operation else {
            return;
        };
        for (key, value) in writes {
            match value {
                Some(value) => drop(state.insert(*key, *value)),
                None => drop(state.remove(key)),
            }
        }
    }

    fn durability(&self, operation: &Operation) -> DurabilityContract {
        if *operation == Sync {
            DurabilityContract::OnReturn
        } else {
            DurabilityContract::WithEpoch
        }
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        let pool = Pool::open(sim.clone(), pool_options()).map_err(text)?;
        let options = MassTreeOptions {
            epoch: EpochLength::Manual,
            width: Some(4),
            recovery_threads: 1,
            shards: 2,
            close_cleanly: false,
            ..MassTreeOptions::default()
        };
        let tree = match pool.trees().map_err(text)?.first() {
            Some(root) => Tree::open(&pool, root, options),
            None => Tree::create(&pool, "t", options),
        };
        if pool.needs_mark() {
            pool.finish_marking();
        }
        Ok(Opened {
            tree: tree.map_err(text)?,
            _pool: pool,
        })
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<(), Complaint> {
        self.call(opened, operation)
    }

    fn observe(&self, opened: &mut Opened) -> Result<Self::State, Complaint> {
        let mut scan = opened
            .tree
            .range(Bounds::all(), Direction::Forward)
            .map_err(text)?;
        let mut found = Vec::new();
        let mut value = Vec::new();
        let mut state = BTreeMap::new();
        while scan.next_into(&mut found, &mut value).map_err(text)? {
            let digits = found
                .get(8..)
                .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            let value = value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            let entry = digits
                .zip(value)
                .ok_or_else(|| format!("{found:?} was never written"))?;
            state.extend([entry]);
        }
        Ok(state)
    }

    fn check(&self, opened: &mut Opened, _state: &Self::State) -> Result<(), Complaint> {
        let violations = opened.tree.check().map_err(text)?;
        violations
            .first()
            .map_or(Ok(()), |violation| Err(format!("check found {violation}")))
    }

    fn follow_up(&self, _state: &Self::State, _recent: &[Operation]) -> Vec<Operation> {
        vec![
            Batch((1..8).map(|key| (key, Some(70 + key))).collect()),
            Sync,
            Batch(vec![(1, None), (9, None)]),
        ]
    }
}

impl Concurrent for Batches {
    fn call(&self, opened: &Opened, operation: &Operation) -> Result<(), Complaint> {
        let tree = &opened.tree;
        let bytes = |value: &Option<u64>| value.map(u64::to_be_bytes);
        match operation {
            Batch(writes) if !self.are_torn => tree.within_epoch(&mut |_| {
                writes.iter().try_for_each(|(number, value)| {
                    let value = bytes(value);
                    tree.write_durably(
                        &key(*number),
                        value.as_ref().map(|value| &value[..]),
                        Condition::Always,
                    )?;
                    Ok(())
                })
            }),
            Apart(writes) | Batch(writes) => writes.iter().try_for_each(|(number, value)| {
                let value = bytes(value);
                tree.write_durably(
                    &key(*number),
                    value.as_ref().map(|value| &value[..]),
                    Condition::Always,
                )?;
                // Operations of other threads may come between here.
                medium::sync::yield_now();
                Ok(())
            }),
            Sync => tree.sync(),
        }
        .map_err(text)
    }
}

fn puts(keys: std::ops::Range<u64>, value: u64) -> Vec<Write> {
    keys.map(|key| (key, Some(value))).collect()
}

fn options(rules: Rules, second_crash: SecondCrash) -> ExplorationOptions {
    let options = common::options("engines", Images::Some { random: 2 }, second_crash);
    ExplorationOptions { rules, ..options }
}

/// Batches that split nodes, make layers, and write to one key more than once; with epochs that end
/// between them.
#[test]
fn one_thread() {
    let script = [
        Batch(puts(1..3, 1)),
        Batch(vec![
            (1, Some(2)),
            (3, Some(3)),
            (2, None),
            (2, Some(4)),
            (1, Some(5)),
        ]),
        Sync,
        Batch(puts(3..9, 6)),
        Apart(vec![(9, Some(7))]),
        Sync,
        Batch(vec![
            (1, None),
            (2, None),
            (3, None),
            (4, Some(8)),
            (4, None),
            (5, Some(9)),
            (6, Some(10)),
        ]),
        Sync,
        Batch((1..10).map(|key| (key, None)).collect()),
    ];
    for rules in [Rules::Lines, Rules::Log] {
        let options = options(rules, SecondCrash::InRecovery);
        let mut explorer = Explorer::new(Batches { are_torn: false }, options).unwrap();
        explorer
            .explore(&script)
            .unwrap_or_else(|failure| panic!("{failure}"));
        println!("batches, {rules:?}: {}", explorer.stats());
        assert_eq!(explorer.stats().cut_short, 0);
    }
}

/// A batch, beside threads that end epochs and write other keys. Returns the first violation.
fn beside(are_torn: bool, rules: Rules, threads: Vec<Vec<Operation>>) -> Result<(), String> {
    let mut explorer =
        Explorer::new(Batches { are_torn }, options(rules, SecondCrash::Never)).unwrap();
    explorer.set_up(&[Apart(puts(1..4, 1)), Sync]).unwrap();
    let scheduling = Scheduling {
        search: Search::Exhaustive { preemptions_max: 2 },
        ..Scheduling::default()
    };
    let program = Program::of(threads);
    explorer
        .explore_threads(&program, &scheduling)
        .map_err(|failure| failure.to_string())?;
    println!("beside others, {rules:?}: {}", explorer.stats());
    Ok(())
}

#[test]
fn beside_a_thread_that_ends_epochs() {
    let batch = Batch(vec![(1, Some(2)), (2, None), (5, Some(3))]);
    for rules in [Rules::Lines, Rules::Log]
        .into_iter()
        .take(if common::is_thorough() { 2 } else { 1 })
    {
        let syncs = vec![vec![batch.clone()], vec![Sync, Sync]];
        beside(false, rules, syncs).unwrap_or_else(|failure| panic!("{failure}"));
        let writes = vec![vec![batch.clone()], vec![Apart(vec![(3, Some(4))]), Sync]];
        beside(false, rules, writes).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// A layer is removed with its last key, and made again, while another thread writes to it.
#[test]
fn layers_that_go_beside_their_writers() {
    let apart = |writes: &[Write]| {
        writes
            .iter()
            .map(|write| Apart(vec![*write]))
            .collect::<Vec<_>>()
    };
    let removes = apart(&[(1, None), (2, None), (3, None)]);
    for writes in [
        apart(&[(2, Some(4))]),
        apart(&[(4, Some(5)), (4, None)]),
        apart(&[(3, None), (1, Some(6))]),
    ] {
        let threads = vec![removes.clone(), writes];
        beside(false, Rules::Lines, threads).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn writes_that_are_no_batch_are_found_torn() {
    let writes = Batch(vec![(1, Some(2)), (2, None), (5, Some(3))]);
    let report = beside(true, Rules::Lines, vec![vec![writes], vec![Sync]])
        .expect_err("torn, but not found");
    assert!(report.contains("crash"), "{report}");
}
