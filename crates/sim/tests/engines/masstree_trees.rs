//! Several trees of the durable Masstree in one pool: after a crash all are in the state of one
//! moment.

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

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Operation {
    /// A tree, a key, and its new value; none removes it.
    Write(usize, u64, Option<u64>),
    /// Ends the epoch, through this tree.
    Sync(usize),
}

use Operation::{Sync, Write};

/// A pool with two trees.
struct Trees;

struct Opened {
    trees: [Tree; 2],
    _pool: Pool<Sim>,
}

impl Subject for Trees {
    type Operation = Operation;
    type Outcome = ();
    type State = [BTreeMap<u64, u64>; 2];
    type Instance = Opened;

    fn initial(&self) -> Self::State {
        Self::State::default()
    }

    fn step(&self, state: &mut Self::State, operation: &Operation) {
        match *operation {
            Write(tree, key, Some(value)) => drop(state[tree].insert(key, value)),
            Write(tree, key, None) => drop(state[tree].remove(&key)),
            Sync(_) => {}
        }
    }

    fn durability(&self, operation: &Operation) -> DurabilityContract {
        if matches!(operation, Sync(_)) {
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
        let roots = pool.trees().map_err(text)?;
        let open = |name: &str| match roots.iter().find(|root| root.name == name) {
            Some(root) => Tree::open(&pool, root, options),
            None => Tree::create(&pool, name, options),
        };
        let trees = [open("first").map_err(text)?, open("second").map_err(text)?];
        if pool.needs_mark() {
            pool.finish_marking();
        }
        Ok(Opened { trees, _pool: pool })
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<(), Complaint> {
        self.call(opened, operation)
    }

    fn observe(&self, opened: &mut Opened) -> Result<Self::State, Complaint> {
        let mut state = Self::State::default();
        for (tree, found) in opened.trees.iter().zip(&mut state) {
            let mut scan = tree
                .range(Bounds::all(), Direction::Forward)
                .map_err(text)?;
            let mut key = Vec::new();
            let mut value = Vec::new();
            while scan.next_into(&mut key, &mut value).map_err(text)? {
                let number =
                    |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
                let entry = number(&key).zip(number(&value));
                found.extend([entry.ok_or_else(|| format!("{key:?} was never written"))?]);
            }
        }
        Ok(state)
    }

    fn check(&self, opened: &mut Opened, _state: &Self::State) -> Result<(), Complaint> {
        for tree in &opened.trees {
            if let Some(violation) = tree.check().map_err(text)?.first() {
                return Err(format!("check found {violation}"));
            }
        }
        Ok(())
    }

    fn follow_up(&self, _state: &Self::State, _recent: &[Operation]) -> Vec<Operation> {
        vec![
            Write(0, 1, Some(70)),
            Write(1, 1, Some(71)),
            Sync(0),
            Write(1, 2, None),
            Write(0, 2, Some(72)),
        ]
    }
}

impl Concurrent for Trees {
    fn call(&self, opened: &Opened, operation: &Operation) -> Result<(), Complaint> {
        match *operation {
            Write(tree, key, value) => {
                let value = value.map(u64::to_be_bytes);
                let value = value.as_ref().map(|value| &value[..]);
                opened.trees[tree]
                    .write(&key.to_be_bytes(), value, Condition::Always)
                    .map(drop)
            }
            Sync(tree) => opened.trees[tree].sync(),
        }
        .map_err(text)
    }
}

fn options(rules: Rules, second_crash: SecondCrash) -> ExplorationOptions {
    let options = common::options("engines", Images::Some { random: 2 }, second_crash);
    ExplorationOptions { rules, ..options }
}

/// Crashes at each point of a script, and in each recovery.
fn explore(name: &str, script: &[Operation]) {
    for rules in [Rules::Lines, Rules::Log] {
        let mut explorer = Explorer::new(Trees, options(rules, SecondCrash::InRecovery)).unwrap();
        explorer
            .explore(script)
            .unwrap_or_else(|failure| panic!("{failure}"));
        println!("{name}, {rules:?}: {}", explorer.stats());
        assert_eq!(explorer.stats().cut_short, 0);
    }
}

/// A thread that writes to one tree and then to the other, beside one that ends epochs, after `setup`.
fn explore_beside(name: &str, setup: &[Operation]) {
    let writes = vec![
        Write(0, 1, Some(2)),
        Write(1, 1, Some(3)),
        Write(0, 2, Some(4)),
    ];
    for rules in [Rules::Lines, Rules::Log] {
        let mut explorer = Explorer::new(Trees, options(rules, SecondCrash::Never)).unwrap();
        explorer.set_up(setup).unwrap();
        let scheduling = Scheduling {
            search: Search::Exhaustive { preemptions_max: 2 },
            ..Scheduling::default()
        };
        let program = Program::of(vec![writes.clone(), vec![Sync(0), Sync(1)]]);
        explorer
            .explore_threads(&program, &scheduling)
            .unwrap_or_else(|failure| panic!("{failure}"));
        println!("{name}, {rules:?}: {}", explorer.stats());
    }
}

/// Splits, in-line logs and the external log of both trees, in epochs that either tree ends.
#[test]
fn one_thread() {
    let put = |tree, keys: std::ops::Range<u64>, value| {
        keys.map(move |key| Write(tree, key, Some(value)))
    };
    let script: Vec<Operation> = put(0, 1..6, 1)
        .chain(put(1, 1..3, 2))
        .chain([Sync(0)])
        .chain([
            Write(0, 1, Some(3)),
            Write(1, 1, Some(4)),
            Write(0, 2, None),
            Write(1, 5, Some(5)),
        ])
        .chain([Sync(1)])
        .chain(put(1, 3..9, 6))
        .chain([
            Write(0, 1, Some(7)),
            Write(0, 1, Some(8)),
            Write(0, 4, Some(9)),
            Write(1, 2, None),
        ])
        .chain([Sync(1), Write(0, 5, None), Write(1, 1, None)])
        .collect();
    explore("trees", &script);
}

/// A thread that writes to one tree and then to the other, beside one that ends epochs.
#[test]
fn beside_a_thread_that_ends_epochs() {
    let setup = [Write(0, 1, Some(1)), Write(1, 1, Some(1)), Sync(0)];
    explore_beside("trees beside others", &setup);
}

/// Writes both trees, and ends epochs until neither takes part in their ends any more.
fn both_idle() -> [Operation; 5] {
    [
        Write(0, 1, Some(1)),
        Write(1, 1, Some(1)),
        Sync(0),
        Sync(0),
        Sync(1),
    ]
}

/// Epochs end without a tree that nobody writes to, and with it again from its next write on.
#[test]
fn an_idle_tree_that_is_written_to() {
    let script: Vec<Operation> = both_idle()
        .into_iter()
        // One tree is written to in several epochs, and the other one falls behind.
        .chain([Write(0, 2, Some(2)), Sync(0), Write(0, 1, Some(3)), Sync(1)])
        // The other one wakes up, in the middle of an epoch, and is the only one in the next.
        .chain([Write(0, 3, Some(4)), Write(1, 1, Some(5)), Sync(0)])
        .chain([Write(1, 2, Some(6)), Write(1, 1, None), Sync(0)])
        .chain([Write(0, 1, None), Write(1, 3, Some(7))])
        .collect();
    explore("an idle tree", &script);
}

/// A thread that wakes one tree and then the other, beside one that ends epochs.
#[test]
fn idle_trees_that_are_written_to_beside_a_thread_that_ends_epochs() {
    explore_beside("idle trees beside others", &both_idle());
}
