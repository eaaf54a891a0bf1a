//! The basis of all tests: a cell of the matrix, the world of one test, seeds, failures.

#[macro_use]
mod failure;
mod matrix;
mod place;
mod seed;
mod site;

pub use failure::{Check, Failure, brief};
pub use matrix::{lacking, trials};
pub use place::{InRam, Place};
pub use seed::{Seed, Test, factor, trial};
pub use site::{Closing, Site};

use std::collections::BTreeSet;

use engines::engine::{CodecKind, Contract, Engine, Nodes, Settings};
use engines::index::Index;
use medium::Counts;
use pool::{Evacuate, Evacuation, PoolStat};

type Result<T, E = engines::Error> = std::result::Result<T, E>;

/// Entries that a range returned.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// How entries are coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Words of 8 bytes.
    Word,
    /// Bytes of any length.
    Record,
}

impl Kind {
    /// The codec.
    pub fn codec(self) -> CodecKind {
        match self {
            Self::Word => CodecKind::Word,
            Self::Record => CodecKind::Record,
        }
    }

    /// The other one.
    pub fn other(self) -> Self {
        if self == Self::Word {
            Self::Record
        } else {
            Self::Word
        }
    }
}

/// Makes a pool of at most this many bytes, with an empty tree.
pub type MakeWorld = fn(&Cell, u64) -> Result<Box<dyn World>>;

/// A cell of the matrix: engine, medium, codec and size of nodes.
#[derive(Clone, Copy)]
pub struct Cell {
    /// The engine.
    pub engine: Engine,
    /// How entries are coded.
    pub kind: Kind,
    /// The settings of the engine.
    pub settings: Settings,
    /// Entries in a leaf.
    pub capacity: usize,
    /// How many bytes to flip, at most.
    pub flips: u32,
    /// A divisor for the number of cases.
    pub slowness: u32,
    /// Makes a pool of at most this many bytes, with an empty tree.
    pub make: MakeWorld,
}

impl Cell {
    /// An engine with nodes of a size, on the medium of a place.
    pub fn new<P: Place>(engine: Engine, kind: Kind, nodes: Nodes) -> Self {
        Self {
            engine,
            kind,
            settings: engine
                .settings(nodes.settings)
                .expect("settings of its own"),
            capacity: nodes.leaf_entries,
            flips: P::FLIPS,
            slowness: P::SLOWNESS,
            make: Site::<P>::make,
        }
    }

    /// Nodes of the engine's other size.
    pub fn other_nodes(&self) -> Nodes {
        if self.capacity == self.engine.small.leaf_entries {
            self.engine.full
        } else {
            self.engine.small
        }
    }

    /// A pool with an empty tree.
    pub fn world(&self) -> Result<Box<dyn World>> {
        self.limited(1 << 30)
    }

    /// Whether a tree keeps unused space until it is removed.
    pub fn keeps_space(&self) -> bool {
        self.engine.contract == Contract::Epoch
    }

    /// The number of cases in this cell, where an ordinary run on a fast medium has `usual`.
    pub fn cases(&self, usual: u32) -> u32 {
        (usual / self.slowness).max(1) * factor()
    }

    /// A pool of at most this many bytes, with an empty tree.
    pub fn limited(&self, bytes: u64) -> Result<Box<dyn World>> {
        (self.make)(self, bytes)
    }
}

/// A pool with trees that can be closed and opened again.
pub trait World {
    /// The tree that every world begins with.
    fn tree(&self) -> &dyn Index {
        self.named(MAIN)
    }

    /// A tree by its name.
    fn named(&self, name: &str) -> &dyn Index;

    /// Adds a tree.
    fn add(&mut self, name: &str) -> Result<()>;

    /// Removes a tree for good.
    fn destroy(&mut self, name: &str) -> Result<()>;

    /// Tries to open the main tree again with wrong options.
    fn try_open_as(&self, kind: Kind, settings: Settings) -> Result<()>;

    /// Drops trees and pool.
    fn close(&mut self, how: Closing) -> Result<()>;

    /// Opens pool and trees, after a crash with the mark.
    fn open(&mut self) -> Result<()>;

    /// Closes and opens.
    fn reopen(&mut self, how: Closing) -> Result<()> {
        self.close(how)?;
        self.open()
    }

    /// Frees retired memory.
    fn reclaim(&self);

    /// Chooses slabs that are to be emptied.
    fn evacuate(&self, choice: Evacuate, excluded: &BTreeSet<u64>) -> Evacuation;

    /// Figures about the pool.
    fn stat(&self) -> PoolStat;

    /// All words of the closed pool.
    fn image(&self) -> Vec<u64>;

    /// Overwrites the closed pool from its start on.
    fn set_image(&mut self, words: &[u64]);

    /// The counts so far, on a medium that counts.
    fn counts(&self) -> Option<Counts>;
}

/// The name of the tree that every world begins with.
pub const MAIN: &str = "main";

/// Closes cleanly, then by a crash: after each the trees reach exactly the allocated space.
pub fn expect_no_leak(world: &mut dyn World) -> Check {
    ensure!(
        world.stat().frees_refused == 0,
        "{} offsets were freed that were not allocated",
        world.stat().frees_refused
    );
    // Recovery itself may unlink empty leaves, whose space is free after the next close.
    world.reopen(Closing::Clean)?;
    world.reopen(Closing::Clean)?;
    let by_bitmap = world.stat().allocations;
    world.reopen(Closing::Crash)?;
    let by_mark = world.stat().allocations;
    ensure!(
        by_bitmap <= by_mark,
        "{} allocations are leaked",
        by_bitmap - by_mark
    );
    ensure!(
        by_bitmap >= by_mark,
        "{} allocations that are reachable were freed",
        by_mark - by_bitmap
    );
    Ok(())
}

/// `check` finds nothing.
pub fn expect_sound(tree: &dyn Index) -> Check {
    let violations = tree.check()?;
    ensure!(
        violations.is_empty(),
        "check found {} violations, first {}",
        violations.len(),
        violations[0]
    );
    Ok(())
}

/// All entries within the bounds, forward or reverse; more than `most` are taken for an endless
/// scan.
pub fn collect(
    tree: &dyn Index,
    bounds: engines::index::Bounds,
    direction: engines::index::Direction,
    most: usize,
) -> Result<Entries, Failure> {
    let mut scan = tree.range(bounds, direction)?;
    let mut entries = Vec::new();
    let mut key = b"stale".to_vec();
    let mut value = b"stale".to_vec();
    while scan.next_into(&mut key, &mut value)? {
        entries.push((key.clone(), value.clone()));
        ensure!(entries.len() <= most, "a scan that does not end");
    }
    ensure!(
        !scan.next_into(&mut key, &mut value)?,
        "a scan that goes on after its end"
    );
    Ok(entries)
}
