//! The two copies of the root table: a crash at any point of a repair. The trees stay as they are,
//! and a repair that was acknowledged leaves no lost copy.

use std::collections::BTreeSet;

use everleaf_sim::index::pool_options;
use everleaf_sim::{Complaint, ExplorationOptions, Explorer, Images, Rules, SecondCrash, Subject};
use medium::sim::{Sim, Site};
use pool::{Pool, ROOT_WORDS};

use crate::common::{self, text};

/// Slot 0 of the table, in both copies.
const SLOTS: [u64; 2] = [0x3000, 0xd800];
/// The state of slot 1, which holds no tree any more.
const FREE_STATE: u64 = 0x3200;
/// The directory's first entry, in both copies.
const DIRECTORIES: [u64; 2] = [0x5800, 0x9800];
/// Words of a copy of a slot.
const NAME: u64 = 8 * 2;
const ROOTS: u64 = 8 * 18;
const ENCODINGS: u64 = 8 * 28;
/// As many trees as the first slots have room for, one of which is removed, and two in a page.
const TREES: u8 = 22;

/// A part of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    /// The state of slot 0.
    State,
    /// The name of slot 0.
    Name,
    /// A root word of slot 0.
    Root,
    /// The encodings of slot 0.
    Encodings,
    /// The word of the directory that leads to the first copy of the first page.
    Directory,
    /// The name in the first slot of the first page.
    InPage,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    Create {
        tree: u8,
    },
    Remove {
        tree: u8,
    },
    /// Damages a part in one copy.
    Damage {
        place: Place,
        copy: usize,
    },
    /// Gives the second copy of slot 0 an older state.
    Outdate,
    /// Writes all copies anew that are lost.
    Mend,
}

use Operation::{Create, Damage, Mend, Outdate, Remove};

struct RootCopies;

struct Opened {
    pool: Pool<Sim>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    trees: BTreeSet<String>,
    /// Whether a copy is lost.
    is_damaged: bool,
}

fn name_of(tree: u8) -> String {
    format!("tree {tree}")
}

impl Opened {
    fn store(&self, offset: u64, change: impl Fn(u64) -> u64) -> Result<(), Complaint> {
        let guard = self.pool.pin();
        let cells = guard.words(offset, 1).map_err(text)?;
        cells[0].publish(&guard, change(cells[0].load(&guard)));
        guard.drain().map(drop).map_err(text)
    }

    fn load(&self, offset: u64) -> Result<u64, Complaint> {
        let guard = self.pool.pin();
        let cells = guard.words(offset, 1).map_err(text)?;
        Ok(cells[0].load(&guard))
    }

    fn damage(&self, place: Place, copy: usize) -> Result<(), Complaint> {
        let offset = match place {
            Place::State => SLOTS[copy],
            Place::Name => SLOTS[copy] + NAME,
            Place::Root => SLOTS[copy] + ROOTS,
            Place::Encodings => SLOTS[copy] + ENCODINGS,
            Place::Directory => DIRECTORIES[copy],
            Place::InPage => {
                let entry = self.load(DIRECTORIES[0] + 8 * copy as u64)?;
                (entry & ((1 << 48) - 1)) + NAME
            }
        };
        self.store(offset, |word| !word)
    }
}

impl Subject for RootCopies {
    type Operation = Operation;
    type Outcome = ();
    type State = State;
    type Instance = Opened;

    fn initial(&self) -> State {
        State {
            trees: BTreeSet::new(),
            is_damaged: false,
        }
    }

    fn step(&self, state: &mut State, operation: &Operation) {
        match *operation {
            Create { tree } => drop(state.trees.insert(name_of(tree))),
            Remove { tree } => drop(state.trees.remove(&name_of(tree))),
            Damage { .. } | Outdate => state.is_damaged = true,
            Mend => state.is_damaged = false,
        }
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        let pool = Pool::open(sim.clone(), pool_options()).map_err(text)?;
        pool.finish_marking();
        Ok(Opened { pool })
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<(), Complaint> {
        let pool = &opened.pool;
        match *operation {
            Create { tree } => {
                let words = [u64::from(tree); ROOT_WORDS];
                let made = pool.create_tree(&name_of(tree), 9, 9, &words);
                made.map(drop).map_err(text)
            }
            Remove { tree } => {
                let root = pool.find_tree(&name_of(tree)).map_err(text)?;
                let root = root.ok_or("a tree is missing")?;
                pool.remove_tree(&root).map_err(text)
            }
            Damage { place, copy } => opened.damage(place, copy),
            Outdate => {
                let free = opened.load(FREE_STATE)?;
                opened.store(SLOTS[1], |_| free)
            }
            Mend => pool.mend_copies().map(drop).map_err(text),
        }
    }

    fn observe(&self, opened: &mut Opened) -> Result<State, Complaint> {
        let mut trees = BTreeSet::new();
        for tree in opened.pool.trees().map_err(text)? {
            let number = tree.words[0];
            let is_whole = tree.words == [number; ROOT_WORDS];
            if !is_whole || tree.name != name_of(number as u8) {
                return Err(format!("a tree that was not made: {tree:?}"));
            }
            trees.insert(tree.name);
        }
        let lost = opened.pool.lost_copies().map_err(text)?;
        Ok(State {
            trees,
            is_damaged: !lost.is_empty(),
        })
    }

    fn check(&self, _opened: &mut Opened, _state: &State) -> Result<(), Complaint> {
        Ok(())
    }

    fn follow_up(&self, _state: &State, _recent: &[Operation]) -> Vec<Operation> {
        vec![Mend]
    }
}

/// Trees in the prefix and in a page, and a slot that is free again.
fn setup() -> Vec<Operation> {
    let mut operations: Vec<Operation> = (0..TREES).map(|tree| Create { tree }).collect();
    operations.push(Remove { tree: 1 });
    operations
}

/// Damages each part in each copy, and mends them one by one and together.
fn script() -> Vec<Operation> {
    let mut operations = Vec::new();
    for copy in 0..2 {
        for place in [
            Place::State,
            Place::Name,
            Place::Root,
            Place::Encodings,
            Place::Directory,
            Place::InPage,
        ] {
            operations.push(Damage { place, copy });
            operations.push(Mend);
        }
    }
    operations.extend([Outdate, Mend]);
    // Each copy is damaged in another part.
    operations.extend([
        Damage {
            place: Place::Name,
            copy: 0,
        },
        Damage {
            place: Place::Root,
            copy: 1,
        },
        Damage {
            place: Place::Directory,
            copy: 0,
        },
        Mend,
    ]);
    operations
}

fn explorer(options: ExplorationOptions) -> Explorer<RootCopies> {
    let options = ExplorationOptions {
        command: "cargo test -p everleaf-sim --test models root_copies::".to_owned(),
        ..options
    };
    let mut explorer = Explorer::new(RootCopies, options).unwrap();
    let prepared = explorer.set_up(&setup());
    prepared.unwrap_or_else(|failure| panic!("{failure}"));
    explorer
}

#[test]
fn a_repair_survives_crashes_at_every_point() {
    for rules in [Rules::Lines, Rules::Log, Rules::PersistentCaches] {
        let mut explorer = explorer(ExplorationOptions {
            rules,
            images: Images::All,
            second_crash: SecondCrash::InRecovery,
            ..ExplorationOptions::default()
        });
        let explored = explorer.explore(&script());
        explored.unwrap_or_else(|failure| panic!("{failure}"));
        let stats = explorer.stats();
        println!("{rules:?}: {stats}");
        assert!(stats.points > 50 && stats.cut_short == 0);
    }
}

/// Every store, flush, fence and wait of a repair is needed. Their order is not: a part that is
/// partly written does not count.
#[test]
fn whatever_a_repair_lacks_is_missed() {
    let options = |rules, mutations| ExplorationOptions {
        rules,
        mutations,
        images: Images::All,
        shrink: false,
        ..ExplorationOptions::default()
    };
    let is_here = |site: &Site| {
        site.file.ends_with("pool/src/roots/copies.rs") || site.file.ends_with("pool/src/roots.rs")
    };
    let explorer = |rules, mutations| explorer(options(rules, mutations));
    let missed = common::expect_drops_noticed(explorer, &script(), is_here);
    // Two stores, two flushes, a fence and a wait.
    assert!(missed >= 6, "{missed}");
}
