//! Drives Everleaf's engines, through [`Index`].

pub mod batches;
mod concurrent;
mod engine;
mod keys;
pub mod script;
pub mod suite;
pub mod threads;
pub mod views;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use engines::batch::StripedTree;
pub use engines::engine::Engine;
use engines::index::{Bounds, Condition, Direction, Index, Observed, Scan as Scanned};
use medium::sim::Sim;
use pool::{Pool, PoolOptions, PoolStat};

pub use self::engine::{AnyEngine, CodecName, Explorable, Explored, Size, engine};
use self::keys::LINE_VALUE;
pub use self::keys::{KeyShape, LONG_VALUE, THIRD_VALUE};
use crate::schedule::Concurrent;
use crate::specification::holds;
use crate::subject::{Complaint, DurabilityContract, Subject};

/// An operation on a tree whose keys and values are numbers, coded as its codec needs them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexOperation {
    /// Adds a key if it is absent.
    Insert(u64, u64),
    /// Replaces the value of a key that is present.
    Update(u64, u64),
    /// Sets the value of a key.
    Put(u64, u64),
    /// Removes a key.
    Remove(u64),
    /// Replaces the first value by the second.
    Exchange(u64, u64, u64),
    /// Looks a key up.
    Get(u64),
    /// Looks two keys up at once. Returns them as a range of these keys, the lower one first.
    GetMany(u64, u64),
    /// Fills an empty tree with the keys from one to another, both included, each with itself as
    /// its value. Not beside other threads: their histories are judged key by key.
    Load(u64, u64),
    /// Reads the entries from one key to another, both included, ascending.
    Scan(u64, u64),
    /// Reads the entries from one key to another, both included, descending.
    ScanBack(u64, u64),
    /// Reads the entries from one key to another, both included, ascending, by the fast path for
    /// trees of words where there is one.
    Visit(u64, u64),
    /// Ends an epoch: all earlier writes are durable when this returns.
    Sync,
    /// Closes the pool cleanly and opens it again.
    Reopen,
    /// Marks the allocations that the tree reaches, if the open left that for later.
    Mark,
    /// Ends an epoch, gives free space back, and cuts the pool.
    Compact,
    /// Ends an epoch, and moves all records out of the slabs in which they lie.
    Evacuate,
    /// Drops the tree and makes another, empty one.
    DropTree,
}

use IndexOperation::{
    Compact, DropTree, Evacuate, Exchange, Get, GetMany, Insert, Load, Mark, Put, Remove, Reopen,
    Scan, ScanBack, Sync, Update, Visit,
};

impl fmt::Debug for IndexOperation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Insert(key, value) => write!(formatter, "insert {key}={value}"),
            Update(key, value) => write!(formatter, "update {key}={value}"),
            Put(key, value) => write!(formatter, "put {key}={value}"),
            Remove(key) => write!(formatter, "remove {key}"),
            Exchange(key, old, new) => write!(formatter, "exchange {key}={old}->{new}"),
            Get(key) => write!(formatter, "get {key}"),
            GetMany(one, other) => write!(formatter, "get {one} and {other}"),
            Load(from, to) => write!(formatter, "load {from} to {to}"),
            Scan(from, to) => write!(formatter, "scan {from} to {to}"),
            ScanBack(from, to) => write!(formatter, "scan {to} back to {from}"),
            Visit(from, to) => write!(formatter, "visit {from} to {to}"),
            Sync => write!(formatter, "sync"),
            Reopen => write!(formatter, "reopen"),
            Mark => write!(formatter, "mark"),
            Compact => write!(formatter, "compact"),
            Evacuate => write!(formatter, "evacuate"),
            DropTree => write!(formatter, "drop the tree"),
        }
    }
}

impl IndexOperation {
    /// Whether it may change the tree.
    fn writes(self) -> bool {
        !matches!(
            self,
            Get(_) | GetMany(..) | Scan(..) | ScanBack(..) | Visit(..)
        )
    }

    /// The operation as a write to one key; `None` if it is not such a write.
    fn as_write(self) -> Option<KeyWrite> {
        match self {
            Insert(key, value) => Some(KeyWrite {
                key,
                value: Some(value),
                condition: Condition::Absent,
            }),
            Update(key, value) => Some(KeyWrite {
                key,
                value: Some(value),
                condition: Condition::Present,
            }),
            Put(key, value) => Some(KeyWrite {
                key,
                value: Some(value),
                condition: Condition::Always,
            }),
            Remove(key) => Some(KeyWrite {
                key,
                value: None,
                condition: Condition::Present,
            }),
            Exchange(key, old, new) => Some(KeyWrite {
                key,
                value: Some(new),
                condition: Condition::Equals(old),
            }),
            Get(_) | GetMany(..) | Load(..) | Scan(..) | ScanBack(..) | Visit(..) | Sync
            | Reopen | Mark | Compact | Evacuate | DropTree => None,
        }
    }

    /// The key of a read that reads no other: a lookup, or a range of one key.
    fn only_key_read(self) -> Option<u64> {
        match self {
            Get(key) => Some(key),
            GetMany(first, last)
            | Scan(first, last)
            | ScanBack(first, last)
            | Visit(first, last)
                if first == last =>
            {
                Some(first)
            }
            _ => None,
        }
    }

    fn key(self) -> Option<u64> {
        match self {
            Insert(key, _)
            | Update(key, _)
            | Put(key, _)
            | Remove(key)
            | Exchange(key, ..)
            | Get(key) => Some(key),
            GetMany(..) | Load(..) | Scan(..) | ScanBack(..) | Visit(..) | Sync | Reopen | Mark
            | Compact | Evacuate | DropTree => None,
        }
    }
}

/// A conditional write to one key.
struct KeyWrite {
    key: u64,
    /// `None` removes the key.
    value: Option<u64>,
    condition: Condition<u64>,
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexOutcome {
    /// Whether a write's condition held.
    Held(bool),
    /// The value of a key.
    Value(Option<u64>),
    /// Keys and values of a range, ascending.
    Entries(Vec<(u64, u64)>),
}

use IndexOutcome::{Held, Value};

/// Keys and values of a tree.
pub type Entries = BTreeMap<u64, u64>;

/// From this offset on a pool does not rely on the content of fresh memory: for
/// [`ExplorationOptions::rubbish_from`](crate::ExplorationOptions::rubbish_from).
pub const RUBBISH_FROM: u64 = pool::SLAB_BYTES;

/// The operations that follow a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FollowUp {
    /// Each touched key once more.
    Keys,
    /// Each touched key once more; then inserts beside the last key that force a split, and
    /// removals of all of these that force a merge.
    SplitAndMerge,
    /// The last two keys get longer values. Then the first key gets other values, which reuse the
    /// space; leaves in between stay as they are. Then the tree is opened again. Nothing is split.
    Reuse,
}

/// The operations that return before they are durable, as pending operations of a store do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Deferral {
    /// None.
    #[default]
    Nothing,
    /// Writes, for which [`IndexOperation::Sync`] waits; a read waits until its result is durable.
    Writes,
    /// All operations, reads included, until [`IndexOperation::Sync`].
    Everything,
}

/// A pool with one tree of an engine.
pub struct IndexSubject {
    engine: AnyEngine,
    follow_up: FollowUp,
    deferral: Deferral,
}

/// The pool and its tree, opened.
pub struct OpenedIndex {
    sim: Sim,
    /// Dropped before the pool.
    tree: Option<Arc<StripedTree>>,
    pool: Option<Pool<Sim>>,
}

/// A caller of a tree: whether it waits, before it takes an answer, until that is durable.
#[derive(Clone, Copy)]
struct Caller<'t> {
    tree: &'t dyn Index,
    waits: bool,
}

impl<'t> Caller<'t> {
    fn waiting(tree: &'t dyn Index) -> Self {
        Self { tree, waits: true }
    }

    /// The answer of an operation.
    fn answer<T>(self, observed: Observed<T>) -> engines::Result<T> {
        if self.waits {
            self.tree.wait(observed.lsn)?;
        }
        Ok(observed.value)
    }

    fn range(self, bounds: Bounds, direction: Direction) -> engines::Result<Box<dyn Scanned + 't>> {
        if self.waits {
            self.tree.range(bounds, direction)
        } else {
            self.tree.cursor(bounds, direction)
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "called by `map_err`")]
fn text(error: impl ToString) -> Complaint {
    error.to_string()
}

/// The options of explored pools: the pools are small, are left as after a crash when they are
/// dropped, and behave the same in every run.
pub fn pool_options() -> PoolOptions {
    PoolOptions {
        step_slabs_min: 1,
        reclaim_by_epoch: false,
        close_on_drop: false,
        // An exploration makes thousands of pools.
        slabs_max: 1 << 14,
        ..PoolOptions::default()
    }
}

impl IndexSubject {
    /// A subject on a pool whose form of lines is that of the `Sim`.
    pub fn new(engine: &AnyEngine, follow_up: FollowUp) -> Self {
        Self {
            engine: Arc::clone(engine),
            follow_up,
            deferral: Deferral::Nothing,
        }
    }

    /// This subject, but its operations return before they are durable. For engines whose
    /// operations are otherwise durable when they return.
    #[must_use]
    pub fn deferring(self, deferral: Deferral) -> Self {
        Self { deferral, ..self }
    }

    fn keys(&self) -> KeyShape {
        self.engine.keys()
    }

    fn open_tree(&self, sim: &Sim) -> engines::Result<(Pool<Sim>, Arc<StripedTree>)> {
        let pool = Pool::open(sim.clone(), pool_options())?;
        let tree = match pool.trees()?.first() {
            Some(root) => self.engine.open(&pool, root)?,
            None => self.engine.create(&pool, "t")?,
        };
        if pool.needs_mark() && !self.engine.marks_later() {
            pool.finish_marking();
        }
        Ok((pool, tree))
    }

    /// Removes the tree as a store does: from the table of trees first, then from its space, once
    /// no reader is left.
    fn drop_tree(&self, opened: &mut OpenedIndex) -> engines::Result<()> {
        let Some(tree) = opened.tree.take() else {
            return Ok(());
        };
        let Some(pool) = opened.pool.as_ref() else {
            return Ok(());
        };
        Self::mark(pool, &*tree)?;
        let trees = pool.trees()?;
        let root = trees
            .first()
            .ok_or_else(|| engines::Error::no_such_tree("t"))?;
        pool.remove_tree(root)?;
        tree.destroy()?;
        drop(tree);
        opened.tree = Some(self.engine.create(pool, "t")?);
        Ok(())
    }

    fn write(
        &self,
        caller: Caller<'_>,
        key: u64,
        value: Option<u64>,
        condition: Condition<u64>,
    ) -> engines::Result<IndexOutcome> {
        let keys = self.keys();
        let key = keys.key_bytes(key);
        let value = value.map(|value| keys.value_bytes(value));
        let condition = condition.map(|old| keys.value_bytes(old));
        let condition = match &condition {
            Condition::Always => Condition::Always,
            Condition::Absent => Condition::Absent,
            Condition::Present => Condition::Present,
            Condition::Equals(old) => Condition::Equals(&old[..]),
            Condition::Written(_) | Condition::Moved { .. } => {
                unreachable!("only batches and movers write records ahead")
            }
        };
        let written = caller.tree.write(&key, value.as_deref(), condition)?;
        let held = caller.answer(Observed {
            value: written.held,
            lsn: written.lsn,
        })?;
        Ok(Held(held))
    }

    /// The entries of those of some keys that are present.
    fn find(&self, caller: Caller<'_>, keys: &[u64]) -> Result<Vec<(u64, u64)>, Complaint> {
        let shape = self.keys();
        let bytes: Vec<Vec<u8>> = keys.iter().map(|key| shape.key_bytes(*key)).collect();
        let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        let found = caller
            .tree
            .read_many(&bytes)
            .and_then(|found| caller.answer(found))
            .map_err(text)?;
        let mut entries = Vec::new();
        for (&key, found) in keys.iter().zip(found) {
            let Some(found) = found else { continue };
            let value = shape.value_number(&found);
            entries.push((
                key,
                value.ok_or_else(|| {
                    format!("a value of {key} that no operation wrote: {found:?}")
                })?,
            ));
        }
        Ok(entries)
    }

    /// Checks that a descent finds each key that a scan found.
    fn check_finds(&self, tree: &dyn Index, state: &Entries) -> Result<(), Complaint> {
        let keys: Vec<u64> = state.keys().copied().collect();
        let found: Entries = self
            .find(Caller::waiting(tree), &keys)?
            .into_iter()
            .collect();
        match state
            .iter()
            .find(|(key, value)| found.get(key) != Some(value))
        {
            Some((key, value)) => {
                let found = found.get(key);
                Err(format!(
                    "a find of {key} returned {found:?}, but a scan found {value}"
                ))
            }
            None => Ok(()),
        }
    }

    fn scan(
        &self,
        caller: Caller<'_>,
        bounds: Bounds,
        direction: Direction,
    ) -> Result<Vec<(u64, u64)>, Complaint> {
        let shape = self.keys();
        let mut scan = caller.range(bounds, direction).map_err(text)?;
        let mut key = Vec::new();
        let mut value = Vec::new();
        let mut entries = Vec::new();
        while scan.next_into(&mut key, &mut value).map_err(text)? {
            let known = shape.key_number(&key).zip(shape.value_number(&value));
            entries.push(
                known.ok_or_else(|| {
                    format!("an entry that no operation wrote: {key:?} = {value:?}")
                })?,
            );
        }
        Ok(entries)
    }
}

impl Subject for IndexSubject {
    type Operation = IndexOperation;
    type Outcome = IndexOutcome;
    type State = Entries;
    type Instance = OpenedIndex;

    fn initial(&self) -> Entries {
        Entries::new()
    }

    fn step(&self, state: &mut Entries, operation: &IndexOperation) -> IndexOutcome {
        if let Some(write) = operation.as_write() {
            let held = holds(&write.condition, state.get(&write.key));
            match write.value {
                Some(value) if held => drop(state.insert(write.key, value)),
                None if held => drop(state.remove(&write.key)),
                Some(_) | None => {}
            }
            return Held(held);
        }
        match *operation {
            Get(key) => Value(state.get(&key).copied()),
            GetMany(one, other) => {
                let entry = |key| state.get(&key).map(|value| (key, *value));
                IndexOutcome::Entries([one, other].into_iter().filter_map(entry).collect())
            }
            Scan(from, to) | ScanBack(from, to) | Visit(from, to) => {
                let entries = state.range(from..=to).map(|(key, value)| (*key, *value));
                IndexOutcome::Entries(entries.collect())
            }
            Load(from, to) => {
                let held = state.is_empty();
                if held {
                    state.extend((from..=to).map(|key| (key, key)));
                }
                Held(held)
            }
            DropTree => {
                state.clear();
                Held(true)
            }
            Sync | Reopen | Mark | Compact | Evacuate => Held(true),
            Insert(..) | Update(..) | Put(..) | Remove(_) | Exchange(..) => {
                unreachable!("a write to one key")
            }
        }
    }

    fn durability(&self, operation: &IndexOperation) -> DurabilityContract {
        match (operation, self.deferral) {
            (Sync | Compact | Evacuate | Reopen | DropTree, _) => DurabilityContract::OnReturn,
            (_, Deferral::Nothing) => self.engine.durability(),
            (_, Deferral::Writes) => match operation.only_key_read() {
                Some(key) => DurabilityContract::OfPart(key),
                None => DurabilityContract::AtAnyTime,
            },
            (_, Deferral::Everything) => DurabilityContract::AtAnyTime,
        }
    }

    fn is_same_part(&self, key: u64, one: &Entries, other: &Entries) -> bool {
        one.get(&key) == other.get(&key)
    }

    fn copy_part(&self, key: u64, from: &Entries, to: &mut Entries) {
        match from.get(&key) {
            Some(value) => drop(to.insert(key, *value)),
            None => drop(to.remove(&key)),
        }
    }

    fn is_whole(&self, operation: &IndexOperation) -> bool {
        matches!(operation, Sync | Compact | Evacuate)
    }

    fn word(&self, operations: &[IndexOperation]) -> Option<String> {
        Some(script::to_word(operations))
    }

    fn open(&self, sim: &Sim) -> Result<Self::Instance, Complaint> {
        let (pool, tree) = self.open_tree(sim).map_err(text)?;
        Ok(OpenedIndex {
            sim: sim.clone(),
            tree: Some(tree),
            pool: Some(pool),
        })
    }

    fn apply(
        &self,
        opened: &mut Self::Instance,
        operation: &IndexOperation,
    ) -> Result<IndexOutcome, Complaint> {
        if *operation == Reopen {
            if let Some(tree) = opened.tree.take() {
                (&*tree as &dyn Index).sync().map_err(text)?;
            }
            if let Some(pool) = opened.pool.take() {
                pool.close().map_err(text)?;
            }
            *opened = self.open(&opened.sim.clone())?;
            return Ok(Held(true));
        }
        if *operation == DropTree {
            return self.drop_tree(opened).map(|()| Held(true)).map_err(text);
        }
        if self.deferral == Deferral::Nothing {
            return self.call(opened, operation);
        }
        if *operation == Sync {
            let pool = opened.pool.as_ref().ok_or("not open")?;
            let guard = pool.pin();
            return guard
                .settle(guard.fence())
                .map(|()| Held(true))
                .map_err(text);
        }
        let is_put_off = self.deferral == Deferral::Everything || operation.writes();
        self.call_as(opened, operation, !is_put_off)
    }

    fn observe(&self, opened: &mut Self::Instance) -> Result<Entries, Complaint> {
        let tree = opened.tree.as_deref().ok_or("not open")?;
        let forward = self.scan(Caller::waiting(tree), Bounds::all(), Direction::Forward)?;
        let mut reverse = self.scan(Caller::waiting(tree), Bounds::all(), Direction::Reverse)?;
        reverse.reverse();
        if forward != reverse {
            return Err(format!(
                "a scan forward found {forward:?}, in reverse it found {reverse:?}"
            ));
        }
        if !forward.is_sorted_by(|one, other| one.0 < other.0) {
            return Err(format!("a scan out of order: {forward:?}"));
        }
        Ok(forward.into_iter().collect())
    }

    fn check(&self, opened: &mut Self::Instance, state: &Entries) -> Result<(), Complaint> {
        let tree = opened.tree.as_deref().ok_or("not open")?;
        if let Some(violation) = tree.check().map_err(text)?.first() {
            return Err(format!("check found {violation}"));
        }
        let length = tree.len().map_err(text)?;
        if length != state.len() as u64 {
            return Err(format!(
                "the length is {length}, but there are {} keys",
                state.len()
            ));
        }
        self.check_finds(tree, state)?;
        let pool = opened.pool.as_ref().ok_or("not open")?;
        let PoolStat {
            frees_refused,
            classes_damaged,
            ..
        } = pool.stat();
        if frees_refused > 0 {
            return Err(format!(
                "{frees_refused} frees of space that was not allocated"
            ));
        }
        if let Some(offset) = classes_damaged.first() {
            return Err(format!(
                "the class word of the slab at {offset:#x} is damaged"
            ));
        }
        if pool.needs_mark() {
            // The mark is not done, so the space in use is not known yet.
            return Ok(());
        }
        let allocations = pool.stat().allocations;
        match self.engine.allocations(tree, length).map_err(text)? {
            Some(reached) if reached != allocations => Err(format!(
                "space leaks: {allocations} allocations, but {reached} are reached"
            )),
            _ => Ok(()),
        }
    }

    fn follow_up(&self, state: &Entries, recent: &[IndexOperation]) -> Vec<IndexOperation> {
        if self.follow_up == FollowUp::Reuse {
            let last = state.keys().rev().take(2).map(|key| Put(*key, LINE_VALUE));
            let first = state
                .keys()
                .take(1)
                .flat_map(|key| (500..504).map(|value| Put(*key, value)));
            return last
                .chain(first)
                .chain([Scan(0, u64::MAX), ScanBack(0, u64::MAX), Reopen])
                .collect();
        }
        let touched = |operation: &IndexOperation| match *operation {
            Load(from, to) => vec![from, to + 1],
            _ => operation.key().into_iter().collect(),
        };
        let mut keys: Vec<u64> = recent.iter().flat_map(touched).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut operations = Vec::new();
        for &key in &keys {
            // Toggled twice, so that each key is both removed and inserted, whether it was present
            // or not.
            let (first, second) = match state.get(&key) {
                Some(_) => (Remove(key), Insert(key, 500)),
                None => (Insert(key, 501), Remove(key)),
            };
            operations.extend([Get(key), first, second]);
        }
        let beside = keys.last().copied().unwrap_or(0);
        if self.follow_up == FollowUp::SplitAndMerge {
            // One more than a leaf holds: even an empty one splits.
            let fresh: Vec<u64> = (beside + 1..)
                .filter(|key| !state.contains_key(key))
                .take(self.engine.leaf_entries() + 1)
                .collect();
            operations.extend(fresh.iter().map(|key| Insert(*key, 502)));
            operations.extend(fresh.iter().map(|key| Remove(*key)));
            operations.extend(
                state
                    .keys()
                    .filter(|key| **key <= beside + 8)
                    .map(|key| Remove(*key)),
            );
        }
        if self.engine.durability() != DurabilityContract::OnReturn
            || self.deferral != Deferral::Nothing
        {
            operations.push(Sync);
        }
        if self.engine.marks_later() {
            // Allocates space that the mark found free.
            operations.extend([Mark, Put(beside, 503), Put(beside + 1, 504)]);
        }
        operations
    }
}
