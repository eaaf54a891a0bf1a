//! Batches over two trees of one pool: a crash leaves all of one or none.

use std::collections::BTreeMap;
use std::sync::Arc;

use engines::batch::{
    self, BatchCondition, BatchRequest, BatchTree, StripedTree, TransactionReads, Unfinished, Write,
};
use engines::engine::{AnyTree, CodecKind, Contract};
use engines::index::{
    Bounds, Condition, Direction, Epochs, Index, IndexStat, NextEntry, Observed, Scan, Value,
    Violation, Written,
};
use engines::versions::{TreeVersions, Versions, VersionsFault};
use engines::{Error, ErrorKind, Result as EngineResult};
use medium::sim::Sim;
use medium::{Lsn, Word};
use pool::{Pool, ROOT_WORDS, TreeRoot};

use super::{CodecName, Engine, Explorable, Explored, pool_options, text};
use crate::explore::Explorer;
use crate::options::ExplorationOptions;
use crate::schedule::{Concurrent, Program};
use crate::subject::{Complaint, DurabilityContract, Subject};

/// A tree, a key, and its value; none if it is absent.
pub type KeyState = (usize, u64, Option<u64>);

/// An operation on two trees whose keys and values are numbers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BatchOperation {
    /// Writes in one batch, provided that keys are in these states before it.
    Batch(Vec<KeyState>, Vec<KeyState>),
    /// The writes of a batch, but each by itself and without conditions: a crash may leave some of
    /// them.
    Torn(Vec<KeyState>),
    /// A write by itself.
    Single(KeyState),
    /// Ends the epoch.
    Sync,
}

use BatchOperation::{Single, Sync, Torn};

/// A kind of tree.
#[derive(Clone, Debug)]
pub enum TreeKind {
    /// A line of words in the pool, one for each key below 8.
    PlainWords,
    /// A tree of records of an engine, with the smallest nodes.
    Engine(Engine),
    /// A tree of words of an engine, with the smallest nodes.
    Words(Engine),
    /// [`Engine::RNTREE`], with splits that copy records.
    Gathering,
}

impl TreeKind {
    fn is_by_epochs(&self) -> bool {
        matches!(self, Self::Engine(engine) | Self::Words(engine) if engine.contract == Contract::Epoch)
    }

    /// The engine whose contract the tree has. Plain words have immediate durability, like
    /// [`Engine::RNTREE`].
    fn engine(&self) -> Engine {
        if let Self::Engine(engine) | Self::Words(engine) = self {
            *engine
        } else {
            Engine::RNTREE
        }
    }

    fn explored(&self) -> Explored {
        let codec = if self.codec() == CodecKind::Word {
            CodecName::Word
        } else {
            CodecName::Record
        };
        let explored = Explored::small(self.engine(), codec);
        if let Self::Gathering = self {
            explored.opening_with("gather", 1)
        } else {
            explored
        }
    }

    fn codec(&self) -> CodecKind {
        if let Self::PlainWords | Self::Words(_) = self {
            CodecKind::Word
        } else {
            CodecKind::Record
        }
    }
}

/// Two trees in a pool.
pub struct BatchSubject {
    kinds: [TreeKind; 2],
    /// The most bytes that old values take.
    versions_bytes_max: usize,
    /// A fault of the versions.
    fault: Option<VersionsFault>,
}

/// The trees, opened.
pub struct OpenedTrees {
    pub(super) trees: [(Arc<StripedTree>, u64); 2],
    pub(super) pool: Pool<Sim>,
    pub(super) versions: Arc<Versions>,
}

pub(super) const NAMES: [&str; 2] = ["first", "second"];

impl BatchSubject {
    /// Trees of these kinds.
    pub fn new(kinds: [TreeKind; 2]) -> Self {
        Self {
            kinds,
            versions_bytes_max: usize::MAX,
            fault: None,
        }
    }

    /// With this bound of the memory for old values.
    #[must_use]
    pub fn versions_bytes_max(mut self, bytes: usize) -> Self {
        self.versions_bytes_max = bytes;
        self
    }

    /// With a fault of the versions.
    #[must_use]
    pub fn fault(mut self, fault: VersionsFault) -> Self {
        self.fault = Some(fault);
        self
    }

    fn versions(&self, pool: &Pool<Sim>) -> Arc<Versions> {
        let bytes = self.versions_bytes_max;
        match self.fault {
            Some(fault) => Versions::with_fault::<Sim>(bytes, pool.process(), fault),
            None => Versions::new::<Sim>(bytes, pool.process()),
        }
    }

    pub(super) fn is_immediate(&self, tree: usize) -> bool {
        !self.kinds[tree].is_by_epochs()
    }

    /// Operations of one thread: batches that split nodes, replace, remove and find conditions that
    /// do not hold, with single writes between them.
    pub fn script(&self) -> Vec<BatchOperation> {
        let both = |keys: std::ops::Range<u64>, value: u64| -> Vec<KeyState> {
            keys.flat_map(|key| [(0, key, Some(value)), (1, key, Some(value + 1))])
                .collect()
        };
        let batch = |writes| BatchOperation::Batch(writes, Vec::new());
        // After a single write to a tree that is durable by epochs comes a batch that ends the
        // epoch, or a sync.
        let by_epochs = usize::from(self.is_immediate(0));
        let mut script = vec![batch(both(1..3, 1)), Sync];
        script.extend([Single((1 - by_epochs, 3, Some(3))), Sync]);
        script.push(Single((by_epochs, 3, Some(4))));
        let writes = vec![
            (0, 1, Some(5)),
            (1, 2, None),
            (0, 2, Some(6)),
            (0, 2, Some(7)),
            (1, 1, Some(8)),
        ];
        script.push(BatchOperation::Batch(
            writes,
            vec![(0, 1, Some(1)), (1, 5, None)],
        ));
        script.push(BatchOperation::Batch(
            both(6..7, 9),
            vec![(1, 1, Some(8)), (0, 4, Some(1))],
        ));
        script.extend([Sync, batch(both(3..8, 10)), Sync]);
        script.push(batch(
            (1..6)
                .flat_map(|key| [(0, key, None), (1, key, None)])
                .collect(),
        ));
        script.push(Sync);
        if self.is_immediate(0) != self.is_immediate(1) {
            script.extend(Self::resting_on(by_epochs));
        }
        script
    }

    /// Batches that write to the other tree alone, under conditions on the tree `by_epochs`: on an
    /// insert, an update and a removal of the running epoch, and on states whose epoch has ended.
    fn resting_on(by_epochs: usize) -> Vec<BatchOperation> {
        let immediate = 1 - by_epochs;
        let resting = |value: Option<u64>, key: u64, expected: Option<u64>| {
            BatchOperation::Batch(
                vec![(immediate, 2, value)],
                vec![(by_epochs, key, expected)],
            )
        };
        vec![
            Single((by_epochs, 2, Some(20))),
            resting(Some(21), 2, Some(20)),
            // The batch before has ended the epoch.
            resting(Some(22), 2, Some(20)),
            Single((by_epochs, 2, Some(23))),
            resting(Some(24), 2, Some(23)),
            Single((by_epochs, 2, None)),
            resting(None, 2, None),
            Single((by_epochs, 3, Some(25))),
            Sync,
            resting(Some(26), 3, Some(25)),
            resting(Some(27), 4, None),
        ]
    }

    /// Programs of two threads: a batch, beside a single write to one of its keys, for each of
    /// them.
    pub fn beside(&self) -> Vec<Program<BatchOperation>> {
        let batch = BatchOperation::Batch(vec![(0, 1, Some(5)), (1, 2, Some(6))], Vec::new());
        let singles = [(0, 1, Some(7)), (1, 2, None)];
        singles
            .map(|single| Program::of(vec![vec![batch.clone()], vec![Single(single)]]))
            .into()
    }

    /// The operations that come before the programs.
    pub fn setup(&self) -> Vec<BatchOperation> {
        vec![
            BatchOperation::Batch(vec![(0, 1, Some(1)), (1, 2, Some(2))], Vec::new()),
            Sync,
        ]
    }

    /// An explorer of it.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn explorer(self, options: ExplorationOptions) -> Result<Explorer<Self>, Complaint> {
        Explorer::new(self, options).map_err(text)
    }

    fn open_tree(
        &self,
        pool: &Pool<Sim>,
        tree: usize,
        versions: &Arc<Versions>,
    ) -> EngineResult<(Arc<StripedTree>, u64)> {
        let root = |pool: &Pool<Sim>| -> EngineResult<Option<TreeRoot>> {
            Ok(pool
                .trees()?
                .into_iter()
                .find(|root| root.name == NAMES[tree]))
        };
        let found = root(pool)?;
        let versions = TreeVersions::of_existing(versions);
        let plain = |tree, versions| {
            let tree = AnyTree::records(tree);
            Arc::new(StripedTree::new(pool, tree, versions))
        };
        let index = match (&self.kinds[tree], &found) {
            (TreeKind::PlainWords, Some(root)) => plain(PlainWords::open(pool, root)?, versions),
            (TreeKind::PlainWords, None) => plain(PlainWords::create(pool, NAMES[tree])?, versions),
            (kind, Some(root)) => kind.explored().open_with(pool, root, versions)?,
            (kind, None) => kind.explored().create_with(pool, NAMES[tree], versions)?,
        };
        let root = if found.is_some() { found } else { root(pool)? };
        let root = root.ok_or_else(|| Error::no_such_tree(NAMES[tree]))?;
        Ok((index, root.words[0]))
    }

    fn open_pool(&self, sim: &Sim) -> Result<OpenedTrees, Complaint> {
        let pool = Pool::open(sim.clone(), pool_options()).map_err(text)?;
        let unfinished = Unfinished::read(&pool).map_err(text)?;
        if let Some(damage) = unfinished.damage.first() {
            return Err(damage.to_string());
        }
        if pool.needs_mark() {
            unfinished.mark(&pool).map_err(text)?;
        }
        let versions = self.versions(&pool);
        let trees = [
            self.open_tree(&pool, 0, &versions).map_err(text)?,
            self.open_tree(&pool, 1, &versions).map_err(text)?,
        ];
        if pool.needs_mark() {
            pool.finish_marking();
        }
        let tree_of = |anchor: u64| {
            trees
                .iter()
                .find(|tree| tree.1 == anchor)
                .map(|tree| &*tree.0 as &dyn Index)
        };
        unfinished.finish(&pool, tree_of).map_err(text)?;
        Ok(OpenedTrees {
            trees,
            pool,
            versions,
        })
    }

    pub(super) fn write_batch(
        &self,
        opened: &OpenedTrees,
        writes: &[KeyState],
        before: &[KeyState],
        transaction: Option<TransactionReads<'_>>,
    ) -> EngineResult<bool> {
        let bytes = |states: &[KeyState]| -> Vec<_> {
            let state = |(tree, key, value): &KeyState| {
                (*tree, key_bytes(*key), value.map(u64::to_be_bytes))
            };
            states.iter().map(state).collect()
        };
        let writes = bytes(writes);
        let before = bytes(before);
        let target = |(number, kind): (usize, &TreeKind)| {
            let (tree, anchor) = &opened.trees[number];
            BatchTree::new(NAMES[number], tree, *anchor, kind.codec(), &kind.engine())
        };
        let batch = BatchRequest {
            trees: self.kinds.iter().enumerate().map(target).collect(),
            writes: writes
                .iter()
                .map(|(tree, key, value)| Write {
                    tree: *tree,
                    key,
                    value: value.as_ref().map(|value| &value[..]),
                })
                .collect(),
            conditions: before
                .iter()
                .map(|(tree, key, value)| BatchCondition {
                    tree: *tree,
                    key,
                    condition: value
                        .as_ref()
                        .map_or(Condition::Absent, |value| Condition::Equals(&value[..])),
                })
                .collect(),
            transaction,
        };
        match batch::write(&opened.pool, &batch) {
            Err(error) if matches!(error.kind(), ErrorKind::ConditionFailed { .. }) => Ok(false),
            Err(error) => Err(error),
            Ok(lsn) => {
                opened.pool.peek().wait_for(lsn)?;
                Ok(true)
            }
        }
    }
}

pub(super) fn key_bytes(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

fn write_one(opened: &OpenedTrees, write: KeyState) -> EngineResult<()> {
    let (tree, key, value) = write;
    let value = value.map(u64::to_be_bytes);
    let value = value.as_ref().map(|value| &value[..]);
    opened.trees[tree]
        .0
        .write_durably(&key_bytes(key), value, Condition::Always)
        .map(drop)
}

impl Subject for BatchSubject {
    type Operation = BatchOperation;
    type Outcome = bool;
    type State = [BTreeMap<u64, u64>; 2];
    type Instance = OpenedTrees;

    fn initial(&self) -> Self::State {
        Self::State::default()
    }

    fn step(&self, state: &mut Self::State, operation: &BatchOperation) -> bool {
        let holds = |(tree, key, value): &KeyState| state[*tree].get(key) == value.as_ref();
        let writes = match operation {
            BatchOperation::Batch(_, before) if !before.iter().all(holds) => return false,
            BatchOperation::Batch(writes, _) | Torn(writes) => writes.as_slice(),
            Single(write) => std::slice::from_ref(write),
            Sync => &[],
        };
        for (tree, key, value) in writes {
            match value {
                Some(value) => drop(state[*tree].insert(*key, *value)),
                None => drop(state[*tree].remove(key)),
            }
        }
        true
    }

    fn durability(&self, operation: &BatchOperation) -> DurabilityContract {
        let is_durable = match operation {
            BatchOperation::Batch(writes, _) | Torn(writes) => {
                writes.iter().any(|write| self.is_immediate(write.0))
            }
            Single(write) => self.is_immediate(write.0),
            Sync => true,
        };
        if is_durable {
            DurabilityContract::OnReturn
        } else {
            DurabilityContract::WithEpoch
        }
    }

    fn open(&self, sim: &Sim) -> Result<OpenedTrees, Complaint> {
        self.open_pool(sim)
    }

    fn apply(
        &self,
        opened: &mut OpenedTrees,
        operation: &BatchOperation,
    ) -> Result<bool, Complaint> {
        self.call(opened, operation)
    }

    fn observe(&self, opened: &mut OpenedTrees) -> Result<Self::State, Complaint> {
        let mut state = Self::State::default();
        for ((tree, _), found) in opened.trees.iter().zip(&mut state) {
            let mut scan = tree
                .range(Bounds::all(), Direction::Forward)
                .map_err(text)?;
            let mut key = Vec::new();
            let mut value = Vec::new();
            while scan.next_into(&mut key, &mut value).map_err(text)? {
                let entry = number(&key).zip(number(&value));
                found.extend([entry.ok_or_else(|| format!("{key:?} was never written"))?]);
            }
        }
        Ok(state)
    }

    fn check(&self, opened: &mut OpenedTrees, state: &Self::State) -> Result<(), Complaint> {
        let mut reached = Some(0);
        for ((tree, _), (kind, entries)) in opened.trees.iter().zip(self.kinds.iter().zip(state)) {
            if let Some(violation) = tree.check().map_err(text)?.first() {
                return Err(format!("check found {violation}"));
            }
            let own = match kind {
                TreeKind::PlainWords => Some(1),
                TreeKind::Engine(_) | TreeKind::Words(_) | TreeKind::Gathering => kind
                    .explored()
                    .allocations(&**tree, entries.len() as u64)
                    .map_err(text)?,
            };
            reached = reached.zip(own).map(|(others, own)| others + own);
        }
        let allocations = opened.pool.stat().allocations;
        match reached {
            Some(reached) if reached != allocations => Err(format!(
                "space leaks: {allocations} allocations, but {reached} are reached"
            )),
            _ => Ok(()),
        }
    }

    fn follow_up(&self, _state: &Self::State, _recent: &[BatchOperation]) -> Vec<BatchOperation> {
        let writes = vec![
            (0, 1, Some(70)),
            (1, 1, Some(71)),
            (0, 2, None),
            (1, 2, Some(72)),
        ];
        vec![
            BatchOperation::Batch(writes, Vec::new()),
            Single((0, 1, Some(73))),
            Sync,
        ]
    }
}

impl Concurrent for BatchSubject {
    fn call(&self, opened: &OpenedTrees, operation: &BatchOperation) -> Result<bool, Complaint> {
        match operation {
            BatchOperation::Batch(writes, before) => self.write_batch(opened, writes, before, None),
            Torn(writes) => writes
                .iter()
                .try_for_each(|write| write_one(opened, *write))
                .map(|()| true),
            Single(write) => write_one(opened, *write).map(|()| true),
            Sync => {
                let mut epochs = opened.trees.iter().filter_map(|tree| tree.0.epochs());
                epochs.next().map_or(Ok(()), Epochs::sync).map(|()| true)
            }
        }
        .map_err(text)
    }
}

/// A line of words, one for each key.
struct PlainWords {
    pool: Pool<Sim>,
    at: u64,
}

pub(super) const KEYS: usize = 8;

impl PlainWords {
    fn create(pool: &Pool<Sim>, name: &str) -> EngineResult<Self> {
        let guard = pool.pin();
        let at = guard.allocate_lines(8 * KEYS)?;
        let words = guard.words(at, KEYS)?;
        words.iter().for_each(|word| word.store(&guard, 0));
        guard.flush_words(words);
        guard.fence();
        let mut root = [0; ROOT_WORDS];
        root[0] = at;
        pool.create_tree(name, u16::MAX, 0, &root)?;
        Ok(Self {
            pool: pool.clone(),
            at,
        })
    }

    fn open(pool: &Pool<Sim>, root: &TreeRoot) -> EngineResult<Self> {
        let at = root.words[0];
        if pool.needs_mark() {
            pool.mark(at)?;
        }
        Ok(Self {
            pool: pool.clone(),
            at,
        })
    }

    fn word<'g>(&self, guard: &'g pool::Guard<'_, Sim>, key: u64) -> EngineResult<&'g Word> {
        let outside = || Error::corrupt(self.at, "a key beyond the words");
        guard
            .words(self.at, KEYS)?
            .get(key as usize)
            .ok_or_else(outside)
    }
}

impl Index for PlainWords {
    fn engine(&self) -> &'static str {
        "plain words"
    }

    fn codec(&self) -> &'static str {
        "word"
    }

    fn read_into(&self, key: &[u8], value: &mut Vec<u8>) -> EngineResult<Observed<bool>> {
        value.clear();
        let guard = self.pool.pin();
        let found = self
            .word(&guard, number(key).unwrap_or(u64::MAX))?
            .load(&guard);
        value.extend(
            (found != 0)
                .then(|| found.to_be_bytes())
                .into_iter()
                .flatten(),
        );
        Ok(Observed::durable(found != 0))
    }

    fn write(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        _condition: Condition<&[u8]>,
    ) -> EngineResult<Written> {
        let guard = self.pool.pin();
        let word = self.word(&guard, number(key).unwrap_or(u64::MAX))?;
        word.publish(&guard, value.and_then(number).unwrap_or(0));
        guard.drain()?;
        Ok(Written::done(Lsn::DURABLE))
    }

    fn read_many(&self, keys: &[&[u8]]) -> EngineResult<Observed<Vec<Option<Value>>>> {
        let values = keys
            .iter()
            .map(|key| self.get(key))
            .collect::<EngineResult<_>>()?;
        Ok(Observed::durable(values))
    }

    fn wait(&self, _lsn: Lsn) -> EngineResult<()> {
        Ok(())
    }

    fn cursor<'i>(
        &'i self,
        bounds: Bounds,
        direction: Direction,
    ) -> EngineResult<Box<dyn Scan + 'i>> {
        Ok(Box::new(WordsFrom::new(self, &bounds, direction)))
    }

    fn len(&self) -> EngineResult<u64> {
        let mut scan = WordsFrom::new(self, &Bounds::all(), Direction::Forward);
        let mut keys = 0;
        while scan.advance()? {
            keys += 1;
        }
        Ok(keys)
    }

    fn bulk_load(&self, _next: &mut NextEntry<'_>, _fill: f64) -> EngineResult<u64> {
        Err(ErrorKind::NotEmpty.into())
    }

    fn check(&self) -> EngineResult<Vec<Violation>> {
        Ok(Vec::new())
    }

    fn stat(&self) -> EngineResult<IndexStat> {
        Ok(IndexStat::default())
    }

    fn destroy(&self) -> EngineResult<()> {
        self.pool.pin().free(self.at);
        Ok(())
    }
}

/// The words of a range.
struct WordsFrom<'w> {
    words: &'w PlainWords,
    /// The keys that are left, in the order of the scan.
    keys: Vec<u64>,
    /// The entry that it is at.
    key: [u8; 8],
    value: Vec<u8>,
}

impl<'w> WordsFrom<'w> {
    fn new(words: &'w PlainWords, bounds: &Bounds, direction: Direction) -> Self {
        let is_within = |key: &u64| {
            let key = key_bytes(*key);
            bounds.is_above_lower(&key) && bounds.is_below_upper(&key)
        };
        let mut keys: Vec<u64> = (0..KEYS as u64).filter(is_within).collect();
        // The next one comes last.
        if direction == Direction::Forward {
            keys.reverse();
        }
        Self {
            words,
            keys,
            key: [0; 8],
            value: Vec::new(),
        }
    }
}

impl Scan for WordsFrom<'_> {
    fn advance(&mut self) -> EngineResult<bool> {
        while let Some(key) = self.keys.pop() {
            self.key = key_bytes(key);
            if self.words.get_into(&self.key, &mut self.value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        (&self.key, &self.value)
    }

    fn lsn(&self) -> Lsn {
        Lsn::DURABLE
    }
}
