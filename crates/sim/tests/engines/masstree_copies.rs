//! The words that masstree keeps twice: a crash at any point of a repair. The tree stays as it is, and
//! a repair that was acknowledged leaves no lost word.

use std::collections::BTreeSet;

use engines::copies::{lost_copies, mend_copies};
use engines::index::{Bounds, Direction, Index};
use everleaf_sim::index::CodecName::Record;
use everleaf_sim::index::{AnyEngine, Engine, pool_options};
use everleaf_sim::{Complaint, ExplorationOptions, Explorer, Images, Rules, SecondCrash, Subject};
use medium::sim::{Mutation, Sim, Site};
use pool::{EPOCHS, Pool};

use crate::common::{self, text};

/// Keys of the tree.
const KEYS: u64 = 12;
/// In a copy of the epochs: the running one, the last one that was dropped, and the first failed one.
const EPOCH_WORDS: [u64; 3] = [0, 16, 64];
/// In the anchor: the number of shards, the epochs of recovery, and, in the area of the first shard,
/// the first link of the external log. The second copy lies behind each.
const ANCHOR_WORDS: [u64; 4] = [48, 64, 80, 128];

/// A word that is kept twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    Epochs { word: u64 },
    Anchor { word: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    /// Makes the tree, and closes it.
    Make,
    /// Damages a word in one copy.
    Damage { place: Place, copy: u64 },
    /// Writes all copies anew that are lost.
    Mend,
}

use Operation::{Damage, Make, Mend};

struct TreeCopies {
    engine: AnyEngine,
}

struct Opened {
    pool: Pool<Sim>,
    /// The state before the tree was opened, which writes copies anew.
    before_tree: Option<State>,
}

/// Whether there is a tree, and whether a copy is lost.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    is_made: bool,
    is_damaged: bool,
}

impl Opened {
    fn make(&self, engine: &AnyEngine) -> Result<(), Complaint> {
        let tree = engine.create(&self.pool, "t").map_err(text)?;
        let tree: &dyn Index = &*tree;
        for number in 0..KEYS {
            let key = number.to_be_bytes();
            tree.insert(&key, b"value").map_err(text)?;
        }
        tree.sync().map_err(text)
    }

    fn damage(&self, place: Place, copy: u64) -> Result<(), Complaint> {
        let offset = match place {
            Place::Epochs { word } => EPOCHS[copy as usize] + word,
            Place::Anchor { word } => {
                let roots = self.pool.trees().map_err(text)?;
                let root = roots.first().ok_or("no tree")?;
                root.words[0] + word + 8 * copy
            }
        };
        let guard = self.pool.pin();
        let cells = guard.words(offset, 1).map_err(text)?;
        let damaged = cells[0].load(&guard) ^ 0xa5 << 50 | 1;
        cells[0].publish(&guard, damaged);
        guard.drain().map(drop).map_err(text)
    }
}

impl Subject for TreeCopies {
    type Operation = Operation;
    type Outcome = ();
    type State = State;
    type Instance = Opened;

    fn initial(&self) -> State {
        State {
            is_made: false,
            is_damaged: false,
        }
    }

    fn step(&self, state: &mut State, operation: &Operation) {
        match operation {
            Make => state.is_made = true,
            Damage { .. } => state.is_damaged = true,
            Mend => state.is_damaged = false,
        }
    }

    /// The tree is not opened: that would write both copies of the epochs.
    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        let pool = Pool::open(sim.clone(), pool_options()).map_err(text)?;
        Ok(Opened {
            pool,
            before_tree: None,
        })
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<(), Complaint> {
        match *operation {
            Make => opened.make(&self.engine),
            Damage { place, copy } => opened.damage(place, copy),
            Mend => mend_copies(&opened.pool, false).map(drop).map_err(text),
        }
    }

    fn observe(&self, opened: &mut Opened) -> Result<State, Complaint> {
        if let Some(state) = &opened.before_tree {
            return Ok(state.clone());
        }
        let lost = lost_copies(&opened.pool).map_err(text)?;
        Ok(State {
            is_made: !opened.pool.trees().map_err(text)?.is_empty(),
            is_damaged: !lost.is_empty(),
        })
    }

    fn check(&self, opened: &mut Opened, state: &State) -> Result<(), Complaint> {
        if !state.is_made {
            return Ok(());
        }
        opened.before_tree = Some(state.clone());
        let roots = opened.pool.trees().map_err(text)?;
        let root = roots.first().ok_or("no tree")?;
        let tree = self.engine.open(&opened.pool, root).map_err(text)?;
        if let Some(violation) = tree.check().map_err(text)?.first() {
            return Err(violation.to_string());
        }
        let mut range = tree
            .range(Bounds::all(), Direction::Forward)
            .map_err(text)?;
        let mut keys = BTreeSet::new();
        let mut key = Vec::new();
        while range.next_into(&mut key, &mut Vec::new()).map_err(text)? {
            keys.insert(key.clone());
        }
        if keys.len() == KEYS as usize {
            Ok(())
        } else {
            Err(format!("{} keys of {KEYS}", keys.len()))
        }
    }
}

/// Damages each word in each copy, and mends it.
fn script() -> Vec<Operation> {
    let mut operations = Vec::new();
    for copy in 0..2 {
        for word in EPOCH_WORDS {
            let place = Place::Epochs { word };
            operations.extend([Damage { place, copy }, Mend]);
        }
        for word in ANCHOR_WORDS {
            let place = Place::Anchor { word };
            operations.extend([Damage { place, copy }, Mend]);
        }
    }
    // Different words of both copies.
    for (word, copy) in [(48, 0), (80, 1)] {
        let place = Place::Anchor { word };
        operations.push(Damage { place, copy });
    }
    operations.push(Mend);
    operations
}

fn explorer(options: ExplorationOptions) -> Explorer<TreeCopies> {
    let engine = common::small(Engine::MASSTREE, Record);
    let mut explorer = Explorer::new(TreeCopies { engine }, options).unwrap();
    let prepared = explorer.set_up(&[Make]);
    prepared.unwrap_or_else(|failure| panic!("{failure}"));
    explorer
}

fn options(rules: Rules, mutations: Vec<Mutation>) -> ExplorationOptions {
    ExplorationOptions {
        rules,
        mutations,
        shrink: false,
        ..common::options("engines", Images::All, SecondCrash::Never)
    }
}

#[test]
fn a_repair_of_trees_survives_crashes_at_every_point() {
    for rules in [Rules::Lines, Rules::Log, Rules::PersistentCaches] {
        let mut explorer = explorer(options(rules, Vec::new()));
        let explored = explorer.explore(&script());
        explored.unwrap_or_else(|failure| panic!("{failure}"));
        let stats = explorer.stats();
        println!("{rules:?}: {stats}");
        assert!(stats.points > 20 && stats.cut_short == 0);
    }
}

/// Every store, flush, fence and wait of a repair is needed.
#[test]
fn whatever_a_repair_of_trees_lacks_is_missed() {
    let is_here = |site: &Site| {
        site.file.ends_with("engines/src/copies.rs")
            || site.file.ends_with("engines/src/kit/copies.rs")
    };
    let explorer = |rules, mutations| explorer(options(rules, mutations));
    let missed = common::expect_drops_noticed(explorer, &script(), is_here);
    // The store and the flush of a copy of the epochs, the flush of a single word, a fence and a wait.
    assert!(missed >= 5, "{missed}");
}
