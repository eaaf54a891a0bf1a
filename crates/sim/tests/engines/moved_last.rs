//! CAWBT: a node that moves by one store of its parent, while no later move fences. The space of the
//! old node is used again at once, so the parent's store must be ordered before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engines::batch::StripedTree;
use engines::index::{Bounds, Direction, Index, Moved};
use everleaf_sim::index::CodecName::Record;
use everleaf_sim::index::{AnyEngine, Engine, pool_options};
use everleaf_sim::{Complaint, ExplorationOptions, Explorer, Images, Rules, SecondCrash, Subject};
use medium::sim::{Mutation, Sim, Site};
use pool::{Evacuate, Pool, SLAB_BYTES};

use crate::common::{self, text};

/// Bytes of values: records then take slots of 64 bytes, as nodes do.
const VALUE_BYTES: usize = 44;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    Insert(u64),
    Remove(u64),
    /// Inserts a key while the slabs in use are to be emptied, so that what is new lies elsewhere.
    InsertElsewhere(u64),
    /// Moves the nodes on the way to the first leaf out of the first slab of nodes. Then the next
    /// allocations are made there again.
    MoveFirst,
}

use Operation::{Insert, InsertElsewhere, MoveFirst, Remove};

struct MovedLast {
    engine: AnyEngine,
}

struct Opened {
    /// Dropped before the pool.
    tree: Arc<StripedTree>,
    pool: Pool<Sim>,
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

impl Opened {
    fn insert(&self, number: u64) -> Result<(), Complaint> {
        let value = [number as u8; VALUE_BYTES];
        match self.tree.insert(&key(number), &value).map_err(text)? {
            true => Ok(()),
            false => Err(format!("{number} was there")),
        }
    }

    /// The slab of the root, which never moves.
    fn first_slab(&self) -> Result<u64, Complaint> {
        let roots = self.pool.trees().map_err(text)?;
        let root = roots.first().ok_or("no tree")?;
        Ok(root.words[0] / SLAB_BYTES * SLAB_BYTES)
    }

    /// The slabs of the pool, but for one.
    fn slabs_but(&self, slab: u64) -> BTreeSet<u64> {
        let length = self.pool.stat().file_bytes;
        let all = (0..length / SLAB_BYTES).map(|number| number * SLAB_BYTES);
        all.filter(|other| *other != slab).collect()
    }

    fn move_first(&self) -> Result<(), Complaint> {
        let slab = self.first_slab()?;
        let excluded = self.slabs_but(slab);
        {
            let evacuation = self.pool.evacuate(Evacuate::All, &excluded);
            if evacuation.is_empty() {
                return Err("no slab is to be emptied".to_owned());
            }
            let moved = self.tree.move_node(&[]).map_err(text)?;
            let Moved::Done(lsn) = moved else {
                return Err(format!("no node was moved: {moved:?}"));
            };
            self.tree.wait(lsn).map_err(text)?;
        }
        self.return_to_fullest();
        Ok(())
    }

    /// Lets the next allocations be made in the fullest slab.
    fn return_to_fullest(&self) {
        self.pool.reclaim();
        // No slab is to be emptied, but each thread leaves the slabs from which it allocates.
        drop(self.pool.evacuate(Evacuate::All, &self.slabs_but(u64::MAX)));
    }
}

impl Subject for MovedLast {
    type Operation = Operation;
    type Outcome = ();
    type State = BTreeMap<u64, u8>;
    type Instance = Opened;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &mut Self::State, operation: &Operation) {
        match *operation {
            Insert(number) | InsertElsewhere(number) => {
                state.insert(number, number as u8);
            }
            Remove(number) => drop(state.remove(&number)),
            MoveFirst => {}
        }
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        let pool = Pool::open(sim.clone(), pool_options()).map_err(text)?;
        let tree = match pool.trees().map_err(text)?.first() {
            Some(root) => self.engine.open(&pool, root),
            None => self.engine.create(&pool, "t"),
        };
        let tree = tree.map_err(text)?;
        if pool.needs_mark() {
            pool.finish_marking();
        }
        Ok(Opened { tree, pool })
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<(), Complaint> {
        match *operation {
            Insert(number) => opened.insert(number),
            InsertElsewhere(number) => {
                {
                    let _evacuation = opened.pool.evacuate(Evacuate::All, &BTreeSet::new());
                    opened.insert(number)?;
                }
                opened.return_to_fullest();
                Ok(())
            }
            Remove(number) => {
                if !opened.tree.remove(&key(number)).map_err(text)? {
                    return Err(format!("{number} was not there"));
                }
                opened.pool.reclaim();
                Ok(())
            }
            MoveFirst => opened.move_first(),
        }
    }

    fn observe(&self, opened: &mut Opened) -> Result<Self::State, Complaint> {
        let mut found = BTreeMap::new();
        let mut range = opened
            .tree
            .range(Bounds::all(), Direction::Forward)
            .map_err(text)?;
        let mut key = Vec::new();
        let mut value = Vec::new();
        while range.next_into(&mut key, &mut value).map_err(text)? {
            let number = key.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            let number = number.ok_or("a key that was not inserted")?;
            if value != [number as u8; VALUE_BYTES] {
                return Err(format!("another value of {number}: {value:?}"));
            }
            found.insert(number, number as u8);
        }
        Ok(found)
    }

    fn check(&self, opened: &mut Opened, _state: &Self::State) -> Result<(), Complaint> {
        match opened.tree.check().map_err(text)?.first() {
            Some(violation) => Err(violation.to_string()),
            None => Ok(()),
        }
    }
}

/// Two leaves, of which the first lies in the slab of the root, with most of the records, and the
/// second in another slab.
fn setup() -> Vec<Operation> {
    let mut operations: Vec<_> = (1..=5).map(Insert).collect();
    // The second leaf is split, and its upper half lies elsewhere. Then the lower half is merged with
    // the first leaf.
    operations.extend([InsertElsewhere(6), Remove(1), Remove(3)]);
    // The records take the slots of those that were removed, and fill the second leaf.
    operations.extend([Insert(3), Insert(7)]);
    operations
}

/// The first leaf moves, and the second one stays. Then the second one is split: the new record and the
/// new leaf take two slots, before a fence, and one of these was that of the first leaf.
fn script() -> Vec<Operation> {
    vec![MoveFirst, Insert(8), Insert(9)]
}

fn explorer(options: ExplorationOptions) -> Explorer<MovedLast> {
    let engine = common::small(Engine::CAWBT, Record);
    let mut explorer = Explorer::new(MovedLast { engine }, options).unwrap();
    let prepared = explorer.set_up(&setup());
    prepared.unwrap_or_else(|failure| panic!("{failure}"));
    explorer
}

fn options(mutations: Vec<Mutation>) -> ExplorationOptions {
    ExplorationOptions {
        rules: Rules::Lines,
        mutations,
        shrink: false,
        ..common::options("engines", Images::All, SecondCrash::Never)
    }
}

#[test]
fn a_node_that_moves_last_survives_crashes() {
    let mut explorer = explorer(options(Vec::new()));
    let explored = explorer.explore(&script());
    explored.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{}", explorer.stats());
}

/// Both fences of the move of a single node are needed: that before the parent's store, and that
/// behind it.
#[test]
fn a_node_that_moves_last_needs_both_fences() {
    let survey = explorer(options(Vec::new())).survey(&script());
    let mutations = survey.unwrap_or_else(|failure| panic!("{failure}"));
    let is_here = |site: &Site| site.file.ends_with("cawbt/relocate.rs");
    let mut fences = 0;
    for mutation in mutations {
        let Mutation::DropFence(site) = mutation else {
            continue;
        };
        if !is_here(&site) {
            continue;
        }
        let mut explorer = explorer(options(vec![mutation]));
        let explored = explorer.explore(&script());
        assert!(explored.is_err(), "{mutation} was not noticed");
        fences += 1;
    }
    assert_eq!(fences, 2);
}
