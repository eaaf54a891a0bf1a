//! The contract of ranges, proved by a toy: a tree whose scans remember a position instead of a
//! key.
//!
//! Alone such a scan is right. Beside a removal it misses a key that is present throughout; beside
//! an insertion it returns one twice.

use std::sync::Arc;

use engines::Result;
use engines::batch::StripedTree;
use engines::engine::AnyTree;
use engines::index::{
    Bounds, Condition, Direction, Index, IndexStat, NextEntry, Observed, Scan, Value, Violation,
    Written,
};
use engines::versions::TreeVersions;
use everleaf_sim::index::IndexOperation::{
    self, Insert, Remove, Scan as Forward, ScanBack as Backward, Visit,
};
use everleaf_sim::index::{
    AnyEngine, CodecName, Engine, Explorable, FollowUp, IndexSubject, KeyShape,
};
use everleaf_sim::{
    DurabilityContract, ExplorationOptions, Explorer, Images, Program, Scheduling, Search,
    SecondCrash, ThreadsFailure,
};
use medium::Lsn;
use medium::sim::Sim;
use pool::{Pool, TreeRoot};

use crate::common;

/// An engine whose scans go by position.
struct ByPosition(AnyEngine);

impl Explorable for ByPosition {
    fn name(&self) -> &'static str {
        "by position"
    }

    fn codec(&self) -> &'static str {
        self.0.codec()
    }

    fn create(&self, pool: &Pool<Sim>, name: &str) -> Result<Arc<StripedTree>> {
        let tree = AnyTree::records(Positions(self.0.create(pool, name)?));
        Ok(Arc::new(StripedTree::new(
            pool,
            tree,
            TreeVersions::without_views(pool),
        )))
    }

    fn open(&self, pool: &Pool<Sim>, root: &TreeRoot) -> Result<Arc<StripedTree>> {
        let tree = AnyTree::records(Positions(self.0.open(pool, root)?));
        Ok(Arc::new(StripedTree::new(
            pool,
            tree,
            TreeVersions::without_views(pool),
        )))
    }

    fn leaf_entries(&self) -> usize {
        self.0.leaf_entries()
    }

    fn children_max(&self) -> usize {
        self.0.children_max()
    }

    fn keys(&self) -> KeyShape {
        self.0.keys()
    }

    fn marks_later(&self) -> bool {
        self.0.marks_later()
    }

    fn durability(&self) -> DurabilityContract {
        self.0.durability()
    }

    fn allocations(&self, tree: &dyn Index, keys: u64) -> Result<Option<u64>> {
        self.0.allocations(tree, keys)
    }
}

/// The toy is wrapped in stripes of its own, so it writes to the tree beneath the inner stripes.
struct Positions(Arc<StripedTree>);

/// Begins anew for each entry, and skips as many as it has returned.
struct PositionScan<'i> {
    tree: &'i dyn Index,
    bounds: Bounds,
    direction: Direction,
    position: usize,
    entry: (Vec<u8>, Vec<u8>),
}

impl Scan for PositionScan<'_> {
    fn advance(&mut self) -> Result<bool> {
        let mut scan = self.tree.range(self.bounds.clone(), self.direction)?;
        for _ in 0..self.position {
            if !scan.advance()? {
                return Ok(false);
            }
        }
        self.position += 1;
        scan.next_into(&mut self.entry.0, &mut self.entry.1)
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        (&self.entry.0, &self.entry.1)
    }

    fn lsn(&self) -> Lsn {
        // Each entry was waited for.
        Lsn::DURABLE
    }
}

impl Index for Positions {
    fn engine(&self) -> &'static str {
        self.0.engine()
    }

    fn codec(&self) -> &'static str {
        self.0.codec()
    }

    fn read_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Observed<bool>> {
        self.0.read_into(key, value)
    }

    fn write(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Result<Written> {
        self.0.beneath().write(key, value, condition)
    }

    fn read_many(&self, keys: &[&[u8]]) -> Result<Observed<Vec<Option<Value>>>> {
        self.0.read_many(keys)
    }

    fn wait(&self, lsn: Lsn) -> Result<()> {
        self.0.wait(lsn)
    }

    fn cursor<'i>(&'i self, bounds: Bounds, direction: Direction) -> Result<Box<dyn Scan + 'i>> {
        Ok(Box::new(PositionScan {
            tree: &*self.0,
            bounds,
            direction,
            position: 0,
            entry: Default::default(),
        }))
    }

    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn bulk_load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64> {
        self.0.bulk_load(next, fill)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        self.0.check()
    }

    fn stat(&self) -> Result<IndexStat> {
        self.0.stat()
    }

    fn destroy(&self) -> Result<()> {
        self.0.destroy()
    }
}

/// A scan beside writes, on a tree that `before` left.
fn explore(
    engine: &AnyEngine,
    before: &[IndexOperation],
    threads: [&[IndexOperation]; 2],
) -> Option<Box<ThreadsFailure<IndexOperation>>> {
    let options = ExplorationOptions {
        limit_bytes: 4 << 20,
        ..common::options("models", Images::Some { random: 0 }, SecondCrash::Never)
    };
    let mut explorer = Explorer::new(IndexSubject::new(engine, FollowUp::Keys), options).unwrap();
    explorer.set_up(before).unwrap();
    let search = Search::Exhaustive { preemptions_max: 2 };
    let scheduling = Scheduling {
        search,
        crashes: false,
        ..Scheduling::default()
    };
    explorer
        .explore_threads(
            &Program::of(threads.map(<[_]>::to_vec).to_vec()),
            &scheduling,
        )
        .err()
}

#[test]
fn a_scan_must_return_what_is_there_all_the_time_once_and_in_order() {
    let right = common::small(Engine::RNTREE, CodecName::Word);
    let wrong: AnyEngine = Arc::new(ByPosition(Arc::clone(&right)));
    let before = [10, 20, 30].map(|key| Insert(key, key));
    let missed = "returned Value(None) where scan";
    let twice = "a scan out of order, or with a key twice";
    for (scan, write, complaint) in [
        (Forward(0, 99), Remove(10), missed),
        (Backward(0, 99), Remove(30), missed),
        (Forward(0, 99), Insert(5, 5), twice),
        (Backward(0, 99), Insert(35, 5), twice),
    ] {
        let failure =
            explore(&wrong, &before, [&[scan], &[write]]).expect("a flaw that was not noticed");
        assert!(
            failure.what.contains(complaint),
            "another complaint: {failure}"
        );
        if let Some(failure) = explore(&right, &before, [&[scan], &[write]]) {
            panic!("{failure}");
        }
    }
}

/// A node whose neighbour is removed covers more keys than when a scan reached it, and its version
/// does not change.
#[test]
fn a_masstree_node_that_comes_to_cover_more_gives_no_key_twice() {
    let mut before = [10, 20, 30, 40, 50, 60]
        .map(|key| Insert(key, key))
        .to_vec();
    before.extend([Remove(20), Remove(40), IndexOperation::Sync]);
    for codec in [CodecName::Word, CodecName::Record] {
        let engine = common::small(Engine::MASSTREE, codec);
        for writes in [
            [Remove(50), Remove(60), Insert(55, 5)],
            [Remove(10), Remove(30), Insert(20, 5)],
        ] {
            for scan in [Forward(0, 99), Backward(0, 99), Visit(0, 99)] {
                if scan == Visit(0, 99) && codec == CodecName::Record {
                    continue;
                }
                if let Some(failure) = explore(&engine, &before, [&[scan], &writes]) {
                    panic!("{failure}");
                }
            }
        }
    }
}
