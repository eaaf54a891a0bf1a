//! Views of two trees of one pool: snapshots and transactions beside writes, batches and loads.
//!
//! Each snapshot and each transaction is one operation that takes effect at one moment: the
//! specification reads and writes all of it in one step. So a history that some order of the
//! operations explains is strictly serialisable.

use std::ops::Bound;

use engines::batch::{self, EpochRead, TransactionReads};
use engines::index::{Bounds, Direction, Index};
use engines::versions::{ReadSet, StoreView};
use engines::{ErrorKind, Result as EngineResult};
use medium::Lsn;
use medium::sim::Sim;

use super::batches::{BatchOperation, BatchSubject, KeyState, NAMES, OpenedTrees};
use super::batches::{KEYS, key_bytes, number};
use super::concurrent::evacuate;
use super::text;
use crate::explore::Explorer;
use crate::options::ExplorationOptions;
use crate::schedule::Concurrent;
use crate::subject::{Complaint, DurabilityContract, Subject};

/// How often a snapshot or a transaction is begun anew. Each time another thread has committed.
const ATTEMPTS: u32 = 20;

/// An operation on two trees whose keys and values are numbers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ViewOperation {
    /// A write without a view.
    Write(BatchOperation),
    /// Reads of one snapshot.
    Snapshot(Vec<ViewRead>),
    /// Reads, and then writes that rest on them.
    Transaction(Vec<ViewRead>, Vec<ComputedWrite>),
    /// Fills a tree with these keys and values, if it is empty.
    Load(usize, Vec<(u64, u64)>),
    /// Moves all records of a tree to other slabs.
    Move(usize),
    /// A batch that cannot be finished: its last write goes to a key that the second tree, of plain
    /// words, cannot hold.
    Unfinished(Vec<KeyState>),
}

/// A read of a view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ViewRead {
    /// A key of a tree.
    Key(usize, u64),
    /// The keys of a tree from the first to the last one.
    Range(usize, u64, u64),
    /// The same from the end.
    RangeBack(usize, u64, u64),
    /// The first of these keys.
    First(usize, u64, u64),
}

/// A write of a transaction: to a tree and a key, the sum of all values that were read and this one;
/// `None` removes the key.
pub type ComputedWrite = KeyState;

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ViewOutcome {
    /// Whether the condition held.
    Held(bool),
    /// The entries that each read has returned.
    Seen(Vec<Vec<(u64, u64)>>),
    /// A batch is unfinished.
    Refused,
}

type State = <BatchSubject as Subject>::State;

/// A key that stands in the state of the second tree for a batch that is unfinished.
const UNFINISHED: u64 = u64::MAX;

/// Two trees in a pool, and views of them.
pub struct ViewSubject {
    batches: BatchSubject,
}

impl ViewRead {
    fn tree(&self) -> usize {
        match self {
            Self::Key(tree, _)
            | Self::Range(tree, ..)
            | Self::RangeBack(tree, ..)
            | Self::First(tree, ..) => *tree,
        }
    }

    /// The entries that it returns in this state.
    fn of(&self, state: &State) -> Vec<(u64, u64)> {
        let entries = |tree: usize, from: u64, to: u64| {
            state[tree]
                .range(from..=to)
                .map(|(key, value)| (*key, *value))
        };
        match *self {
            Self::Key(tree, key) => entries(tree, key, key).collect(),
            Self::Range(tree, from, to) => entries(tree, from, to).collect(),
            Self::RangeBack(tree, from, to) => entries(tree, from, to).rev().collect(),
            Self::First(tree, from, to) => entries(tree, from, to).take(1).collect(),
        }
    }
}

/// What a transaction writes, after it has seen these entries.
fn computed(seen: &[Vec<(u64, u64)>], writes: &[ComputedWrite]) -> Vec<KeyState> {
    let sum: u64 = seen.iter().flatten().map(|(_, value)| value).sum();
    writes
        .iter()
        .map(|(tree, key, value)| (*tree, *key, value.map(|value| value + sum)))
        .collect()
}

/// A view that is being read.
struct Reading<'o> {
    opened: &'o OpenedTrees,
    view: StoreView,
    reads: ReadSet,
    lsn: Lsn,
    /// The epoch of the last read of each tree that is durable by epochs.
    epochs: [Option<u64>; 2],
}

impl Reading<'_> {
    fn read(&mut self, read: &ViewRead) -> EngineResult<Vec<(u64, u64)>> {
        let tree = &self.opened.trees[read.tree()].0;
        let name = NAMES[read.tree()];
        let mut entries = Vec::new();
        match *read {
            ViewRead::Key(_, key) => {
                let bytes = key_bytes(key);
                let found = tree.read_at(&self.view, &bytes)?;
                self.lsn = self.lsn.max(found.lsn);
                self.reads.note_key(tree.versions(), name, &bytes);
                let value = found.value.and_then(|value| number(&value));
                entries.extend(value.map(|value| (key, value)));
            }
            ViewRead::Range(_, from, to)
            | ViewRead::RangeBack(_, from, to)
            | ViewRead::First(_, from, to) => {
                let direction = match read {
                    ViewRead::RangeBack(..) => Direction::Reverse,
                    _ => Direction::Forward,
                };
                let bounds = Bounds::of(&(key_bytes(from)..=key_bytes(to)));
                let (begin, end) = match direction {
                    Direction::Forward => (bounds.lower.clone(), bounds.upper.clone()),
                    Direction::Reverse => (bounds.upper.clone(), bounds.lower.clone()),
                };
                let span = self
                    .reads
                    .begin_range(tree.versions(), name, begin, direction);
                let mut scan = tree.cursor_at(&self.view, bounds, direction)?;
                loop {
                    let is_there = scan.advance()?;
                    self.lsn = self.lsn.max(scan.lsn());
                    if !is_there {
                        let end = end.as_ref().map(Vec::as_slice);
                        self.reads.extend_range(span, end);
                        break;
                    }
                    let (key, value) = scan.entry();
                    self.reads.extend_range(span, Bound::Included(key));
                    entries.extend(number(key).zip(number(value)));
                    if matches!(read, ViewRead::First(..)) {
                        break;
                    }
                }
            }
        }
        if let Some(epochs) = tree.epochs() {
            self.epochs[read.tree()] = Some(epochs.epoch_stat().running);
        }
        Ok(entries)
    }

    /// The last read of a tree that is durable by epochs. All trees of a pool have the same epochs.
    fn epoch(&self) -> Option<EpochRead<'_>> {
        for (tree, epoch) in self.opened.trees.iter().zip(self.epochs) {
            if let Some(epoch) = epoch {
                return Some(EpochRead {
                    tree: &tree.0,
                    epoch,
                });
            }
        }
        None
    }
}

impl ViewSubject {
    /// Views of these trees.
    pub fn new(batches: BatchSubject) -> Self {
        Self { batches }
    }

    /// An explorer of it.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn explorer(self, options: ExplorationOptions) -> Result<Explorer<Self>, Complaint> {
        Explorer::new(self, options).map_err(text)
    }

    fn attempt(
        &self,
        opened: &OpenedTrees,
        reads: &[ViewRead],
        writes: &[ComputedWrite],
    ) -> EngineResult<Vec<Vec<(u64, u64)>>> {
        let mut reading = Reading {
            opened,
            view: opened.versions.open()?,
            reads: ReadSet::default(),
            lsn: Lsn::DURABLE,
            epochs: [None; 2],
        };
        let mut seen = Vec::new();
        for read in reads {
            seen.push(reading.read(read)?);
        }
        if !writes.is_empty() {
            let transaction = TransactionReads {
                view: &reading.view,
                reads: &reading.reads,
                epoch: reading.epoch(),
            };
            let writes = computed(&seen, writes);
            self.batches
                .write_batch(opened, &writes, &[], Some(transaction))?;
        }
        opened.pool.peek().wait_for(reading.lsn)?;
        Ok(seen)
    }

    fn with_view(
        &self,
        opened: &OpenedTrees,
        reads: &[ViewRead],
        writes: &[ComputedWrite],
    ) -> Result<ViewOutcome, Complaint> {
        for _ in 0..ATTEMPTS {
            match self.attempt(opened, reads, writes) {
                Ok(seen) => return Ok(ViewOutcome::Seen(seen)),
                Err(error) if error.is_retryable() => {}
                Err(error) if matches!(error.kind(), ErrorKind::BatchUnfinished) => {
                    return Ok(ViewOutcome::Refused);
                }
                Err(error) => return Err(text(error)),
            }
        }
        Err(format!("{ATTEMPTS} conflicts, one after the other"))
    }

    /// Fails after it has written all but the last write.
    fn write_unfinished(
        &self,
        opened: &OpenedTrees,
        writes: &[KeyState],
    ) -> Result<ViewOutcome, Complaint> {
        let mut writes = writes.to_vec();
        writes.push((1, KEYS as u64, Some(1)));
        match self.batches.write_batch(opened, &writes, &[], None) {
            Ok(_) => Err("the batch was finished".to_owned()),
            Err(error) if error.is_corrupt() => Ok(ViewOutcome::Refused),
            Err(error) => Err(text(error)),
        }
    }

    fn load(tree: &dyn Index, entries: &[(u64, u64)]) -> Result<ViewOutcome, Complaint> {
        let mut entries = entries.iter();
        let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
            let Some((next_key, next_value)) = entries.next() else {
                return Ok(false);
            };
            *key = key_bytes(*next_key).to_vec();
            *value = next_value.to_be_bytes().to_vec();
            Ok(true)
        };
        match tree.bulk_load(&mut next, 1.0) {
            Ok(_) => Ok(ViewOutcome::Held(true)),
            Err(error) if matches!(error.kind(), ErrorKind::NotEmpty) => {
                Ok(ViewOutcome::Held(false))
            }
            Err(error) => Err(text(error)),
        }
    }
}

impl Subject for ViewSubject {
    type Operation = ViewOperation;
    type Outcome = ViewOutcome;
    type State = State;
    type Instance = OpenedTrees;

    fn initial(&self) -> State {
        self.batches.initial()
    }

    fn step(&self, state: &mut State, operation: &ViewOperation) -> ViewOutcome {
        match operation {
            ViewOperation::Write(write) => ViewOutcome::Held(self.batches.step(state, write)),
            ViewOperation::Snapshot(_) if state[1].contains_key(&UNFINISHED) => {
                ViewOutcome::Refused
            }
            ViewOperation::Snapshot(reads) => {
                ViewOutcome::Seen(reads.iter().map(|read| read.of(state)).collect())
            }
            ViewOperation::Transaction(reads, writes) => {
                let seen: Vec<_> = reads.iter().map(|read| read.of(state)).collect();
                let writes = computed(&seen, writes);
                self.batches
                    .step(state, &BatchOperation::Batch(writes, Vec::new()));
                ViewOutcome::Seen(seen)
            }
            ViewOperation::Load(tree, entries) => {
                let is_empty = state[*tree].is_empty();
                if is_empty {
                    state[*tree].extend(entries.iter().copied());
                }
                ViewOutcome::Held(is_empty)
            }
            ViewOperation::Move(_) => ViewOutcome::Held(true),
            ViewOperation::Unfinished(writes) => {
                let torn = BatchOperation::Torn(writes.clone());
                self.batches.step(state, &torn);
                state[1].insert(UNFINISHED, 0);
                ViewOutcome::Refused
            }
        }
    }

    fn durability(&self, operation: &ViewOperation) -> DurabilityContract {
        let is_immediate = |tree: usize| self.batches.is_immediate(tree);
        let is_durable = match operation {
            ViewOperation::Write(write) => return self.batches.durability(write),
            ViewOperation::Snapshot(reads) => reads.iter().all(|read| is_immediate(read.tree())),
            ViewOperation::Transaction(_, writes) => {
                writes.iter().any(|write| is_immediate(write.0))
            }
            ViewOperation::Load(..) | ViewOperation::Move(_) | ViewOperation::Unfinished(_) => true,
        };
        if is_durable {
            DurabilityContract::OnReturn
        } else {
            DurabilityContract::WithEpoch
        }
    }

    fn open(&self, sim: &Sim) -> Result<OpenedTrees, Complaint> {
        self.batches.open(sim)
    }

    fn apply(
        &self,
        opened: &mut OpenedTrees,
        operation: &ViewOperation,
    ) -> Result<ViewOutcome, Complaint> {
        self.call(opened, operation)
    }

    fn observe(&self, opened: &mut OpenedTrees) -> Result<State, Complaint> {
        let mut state = self.batches.observe(opened)?;
        if batch::expect_finished(&opened.pool).is_err() {
            state[1].insert(UNFINISHED, 0);
        }
        Ok(state)
    }

    fn check(&self, opened: &mut OpenedTrees, state: &State) -> Result<(), Complaint> {
        // An unfinished batch has space that the next open frees.
        if !state[1].contains_key(&UNFINISHED) {
            self.batches.check(opened, state)?;
        }
        // Nothing is kept without a view.
        let stat = opened.versions.stat();
        if stat.views == 0 && (stat.keys, stat.bytes) != (0, 0) {
            return Err(format!("old values are kept for nobody: {stat:?}"));
        }
        Ok(())
    }

    fn follow_up(&self, state: &State, _recent: &[ViewOperation]) -> Vec<ViewOperation> {
        self.batches
            .follow_up(state, &[])
            .into_iter()
            .map(ViewOperation::Write)
            .collect()
    }
}

impl Concurrent for ViewSubject {
    fn call(
        &self,
        opened: &OpenedTrees,
        operation: &ViewOperation,
    ) -> Result<ViewOutcome, Complaint> {
        match operation {
            ViewOperation::Write(write) => Ok(ViewOutcome::Held(self.batches.call(opened, write)?)),
            ViewOperation::Snapshot(reads) => self.with_view(opened, reads, &[]),
            ViewOperation::Transaction(reads, writes) => self.with_view(opened, reads, writes),
            ViewOperation::Load(tree, entries) => Self::load(&*opened.trees[*tree].0, entries),
            ViewOperation::Move(tree) => {
                evacuate(&opened.pool, &*opened.trees[*tree].0).map_err(text)?;
                Ok(ViewOutcome::Held(true))
            }
            ViewOperation::Unfinished(writes) => self.write_unfinished(opened, writes),
        }
    }
}
