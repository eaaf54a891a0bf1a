//! Writes that a crash leaves together.
#![expect(
    clippy::needless_pass_by_value,
    reason = "a key or a value is often made for the call"
)]

use std::ops::Range;

use engines::batch::{self, BatchCondition, Write};
use engines::index::{Bounds, Condition};
use engines::{ErrorKind, Result};
use medium::Lsn;

use crate::encoding::NotEncodable;
use crate::view_reads::ViewReads;
use crate::{KeyFor, Pending, RangeFor, Store, Transaction, Tree, TreeHandle, ValueFor};

/// Writes to any trees of one store, and conditions: [`Store::write`] does all of them or none,
/// whatever crash comes.
///
/// Of several writes to one key the last one counts. Conditions are about the state before the
/// batch, and no crash leaves the batch without the state that they have read. Nothing is written
/// before [`Store::write`], which leaves the batch as it is. A batch keeps its trees open.
///
/// ```
/// use everleaf::{Batch, Engine, Error, ErrorKind, Store, TreeOptions};
///
/// let store = Store::in_memory()?;
/// let stock = store.tree("stock")?;
/// let orders = store.tree_with("orders", TreeOptions { engine: Engine::BZTREE, ..TreeOptions::RECORDS })?;
/// stock.put("apple", "12")?;
///
/// let mut order = Batch::new();
/// order.expect(&stock, "apple", Some(b"12")).put(&stock, "apple", "9").put(&orders, "order 1", "3 apples");
/// store.write(&order)?;
/// assert_eq!(orders.get("order 1")?.as_deref(), Some(b"3 apples".as_slice()));
///
/// // There are not 12 apples any more, so nothing is written.
/// let refused = store.write(&order).unwrap_err();
/// assert!(matches!(refused.kind(), ErrorKind::ConditionFailed { index: 0, .. }));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Batch {
    trees: Vec<Tree>,
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    writes: Vec<Planned<Option<Range<usize>>>>,
    /// Ranges whose keys are removed.
    ranges: Vec<PlannedRange>,
    conditions: Vec<Planned<Condition<Range<usize>>>>,
    /// The first call that the batch could not note.
    fault: Option<BatchFault>,
}

/// Why a batch is refused as a whole.
#[derive(Clone)]
enum BatchFault {
    /// This handle does not take writes of bytes.
    OnlyRead(Tree),
    NotEncodable(NotEncodable),
}

/// A write or a condition for one key of a tree, which is given by its number in the batch.
#[derive(Clone)]
struct Planned<W> {
    tree: usize,
    key: Range<usize>,
    what: W,
}

/// A removal of the keys of a range.
#[derive(Clone)]
struct PlannedRange {
    /// The tree, by its number in the batch.
    tree: usize,
    bounds: Bounds,
    /// The number of writes that were planned before it.
    writes_before: usize,
}

impl Batch {
    /// A batch without writes. [`Batch`] has an example.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of a key, whether it is present or not.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::Batch;
    ///
    /// let stock = store.tree("stock")?;
    /// let mut batch = Batch::new();
    /// batch.put(&stock, "apple", "12").put(&stock, "apple", "9");
    /// assert!(stock.is_empty()?); // nothing is written yet
    /// store.write(&batch)?;
    /// assert_eq!(stock.get("apple")?.as_deref(), Some(b"9".as_slice()));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn put<T: TreeHandle>(
        &mut self,
        tree: &T,
        key: impl KeyFor<T>,
        value: impl ValueFor<T>,
    ) -> &mut Self {
        match value.encoded() {
            Ok(value) => self.plan(tree.bytes_tree(), &key.encoded(), Some(&value)),
            Err(fault) => self.refuse(BatchFault::NotEncodable(fault)),
        }
    }

    /// Removes a key, if it is present.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::Batch;
    ///
    /// let todo = store.tree("todo")?;
    /// let done = store.tree("done")?;
    /// todo.put("job 7", "print")?;
    /// let mut batch = Batch::new();
    /// batch.remove(&todo, "job 7").put(&done, "job 7", "print");
    /// store.write(&batch)?; // no crash leaves the job in both trees, or in none
    /// assert!(todo.is_empty()?);
    /// assert!(done.contains("job 7")?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn remove<T: TreeHandle>(&mut self, tree: &T, key: impl KeyFor<T>) -> &mut Self {
        self.plan(tree.bytes_tree(), &key.encoded(), None)
    }

    /// Removes the keys of a range: those that are present when the batch is written, and those that
    /// the batch has put there before this call. What it puts there later stays. The keys count
    /// against the limits of a batch. Such a batch is written as a transaction
    /// ([`Store::transaction`]), so [`Store::write`] tries again if another write adds a key there
    /// meanwhile.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::Batch;
    ///
    /// let readings = store.typed::<u32, f64>("readings")?;
    /// let days = store.typed::<u32, u32>("days")?;
    /// for day in 1..=31 {
    ///     readings.put(&day, &21.5)?;
    /// }
    /// let mut batch = Batch::new();
    /// batch.remove_range(&readings, ..25).put(&days, &1, &7);
    /// store.write(&batch)?;
    /// assert_eq!(readings.len()?, 7);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn remove_range<T: TreeHandle>(&mut self, tree: &T, range: impl RangeFor<T>) -> &mut Self {
        let tree = tree.bytes_tree();
        if tree.expect_writes().is_err() {
            return self.refuse(BatchFault::OnlyRead(tree.clone()));
        }
        let tree = self.number(tree);
        self.ranges.push(PlannedRange {
            tree,
            bounds: range.encoded(),
            writes_before: self.writes.len(),
        });
        self
    }

    /// Notes a write.
    fn plan(&mut self, tree: &Tree, key: &[u8], value: Option<&[u8]>) -> &mut Self {
        if tree.expect_writes().is_err() {
            return self.refuse(BatchFault::OnlyRead(tree.clone()));
        }
        let tree = self.number(tree);
        let key = self.keep(key);
        let what = value.map(|value| self.keep(value));
        self.writes.push(Planned { tree, key, what });
        self
    }

    /// Notes why the batch will be refused. The first fault counts.
    fn refuse(&mut self, fault: BatchFault) -> &mut Self {
        self.fault.get_or_insert(fault);
        self
    }

    /// Refuses the batch if one of its calls could not be noted.
    fn expect_whole(&self) -> Result<()> {
        match &self.fault {
            Some(BatchFault::OnlyRead(tree)) => tree.expect_writes(),
            Some(BatchFault::NotEncodable(fault)) => Err(fault.clone().into()),
            None => Ok(()),
        }
    }

    /// Demands that a key has this value before the batch, or is absent (`None`).
    ///
    /// If the tree is durable by epochs ([`Engine::is_buffered`](crate::Engine::is_buffered)), a
    /// crash may take back what the running epoch has changed. It then takes back the batch as
    /// well. For that a batch that writes only to other trees ends the epoch, unless the epoch of
    /// the state that it has read has ended before. A change of a neighbour of the key may count as
    /// a change of the key. The same holds for [`Batch::expect_present`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::{Batch, ErrorKind};
    ///
    /// let orders = store.tree("orders")?;
    /// let mut batch = Batch::new();
    /// batch.expect(&orders, "order 1", None).put(&orders, "order 1", "3 apples");
    /// store.write(&batch)?;
    /// let refused = store.write(&batch).unwrap_err(); // the key is present now
    /// assert!(matches!(refused.kind(), ErrorKind::ConditionFailed { .. }));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn expect<T: TreeHandle>(
        &mut self,
        tree: &T,
        key: impl KeyFor<T>,
        value: Option<T::Named<'_>>,
    ) -> &mut Self {
        let value = match value.map(T::named_bytes).transpose() {
            Ok(value) => value,
            Err(fault) => return self.refuse(BatchFault::NotEncodable(fault)),
        };
        let condition = value
            .as_deref()
            .map_or(Condition::Absent, Condition::Equals);
        self.demand(tree.bytes_tree(), &key.encoded(), condition)
    }

    /// Demands that a key is present before the batch, with any value.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::Batch;
    ///
    /// let customers = store.tree("customers")?;
    /// let orders = store.tree("orders")?;
    /// let mut order = Batch::new();
    /// order.expect_present(&customers, "ada").put(&orders, "order 1", "3 apples");
    /// assert!(store.write(&order).is_err()); // there is no such customer
    /// assert!(orders.is_empty()?);
    /// customers.put("ada", "")?;
    /// store.write(&order)?; // the same batch again
    /// assert!(orders.contains("order 1")?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn expect_present<T: TreeHandle>(&mut self, tree: &T, key: impl KeyFor<T>) -> &mut Self {
        self.demand(tree.bytes_tree(), &key.encoded(), Condition::Present)
    }

    fn demand(&mut self, tree: &Tree, key: &[u8], condition: Condition<&[u8]>) -> &mut Self {
        let tree = self.number(tree);
        let key = self.keep(key);
        let what = condition.map(|value| self.keep(value));
        self.conditions.push(Planned { tree, key, what });
        self
    }

    /// The number of writes; a removal of a range counts as one.
    pub fn len(&self) -> usize {
        self.writes.len() + self.ranges.len()
    }

    /// Whether there is no write.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.ranges.is_empty()
    }

    /// Forgets writes and conditions, and keeps the memory for others.
    pub fn clear(&mut self) {
        self.trees.clear();
        self.bytes.clear();
        self.writes.clear();
        self.ranges.clear();
        self.conditions.clear();
        self.fault = None;
    }

    /// A tree that the batch writes to, if all of these are durable by epochs. A batch that writes
    /// to any other tree is durable at the position that the write returns.
    pub(crate) fn tree_by_epochs(&self) -> Option<&Tree> {
        let of_writes = self.writes.iter().map(|write| write.tree);
        let of_ranges = self.ranges.iter().map(|range| range.tree);
        let written = of_writes.chain(of_ranges).map(|number| &self.trees[number]);
        if !written.clone().all(|tree| tree.kind().engine.is_buffered()) {
            return None;
        }
        Tree::that_ends_epoch(written)
    }

    fn number(&mut self, tree: &Tree) -> usize {
        // Most batches write to one tree several times in a row, so the last tree is tried first.
        let known = self.trees.iter().rposition(|known| known.is_same(tree));
        known.unwrap_or_else(|| {
            self.trees.push(tree.clone());
            self.trees.len() - 1
        })
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Does the batch within a transaction. The conditions come first: they are about the state before
    /// the batch.
    fn replay(&self, tx: &mut Transaction) -> Result<()> {
        for (index, condition) in self.conditions.iter().enumerate() {
            let tree = &self.trees[condition.tree];
            let found = tx.read(tree, &self.bytes[condition.key.clone()])?;
            let holds = match &condition.what {
                Condition::Absent => found.is_none(),
                Condition::Equals(value) => found.as_deref() == Some(&self.bytes[value.clone()]),
                // A batch makes no other conditions.
                _ => found.is_some(),
            };
            if !holds {
                let tree = tree.name().to_owned();
                return Err(ErrorKind::ConditionFailed { tree, index }.into());
            }
        }
        let mut ranges = self.ranges.iter().peekable();
        for (number, write) in self.writes.iter().enumerate() {
            while let Some(range) = ranges.next_if(|range| range.writes_before == number) {
                tx.remove_within(&self.trees[range.tree], range.bounds.clone())?;
            }
            let key = &self.bytes[write.key.clone()];
            let value = write.what.as_ref().map(|value| &self.bytes[value.clone()]);
            tx.write(&self.trees[write.tree], key, value)?;
        }
        for range in ranges {
            tx.remove_within(&self.trees[range.tree], range.bounds.clone())?;
        }
        Ok(())
    }

    /// The batch as engines take it.
    fn lent(&self) -> batch::BatchRequest<'_> {
        let bytes = |range: &Range<usize>| &self.bytes[range.clone()];
        let write = |Planned { tree, key, what }: &Planned<Option<Range<usize>>>| Write {
            tree: *tree,
            key: bytes(key),
            value: what.as_ref().map(bytes),
        };
        let condition =
            |Planned { tree, key, what }: &Planned<Condition<Range<usize>>>| BatchCondition {
                tree: *tree,
                key: bytes(key),
                condition: what.as_ref().map(bytes),
            };
        batch::BatchRequest {
            trees: self.trees.iter().map(Tree::target).collect(),
            writes: self.writes.iter().map(write).collect(),
            conditions: self.conditions.iter().map(condition).collect(),
            transaction: None,
        }
    }
}

impl Store {
    /// Does all writes of a batch, if all of its conditions hold; a crash leaves all of them or
    /// none. Durable when this returns, with one wait for the medium; if all of its trees are
    /// durable by epochs ([`Engine::is_buffered`](crate::Engine::is_buffered)), with the end of the
    /// running epoch, like any other write to them. If only some are, this ends the epoch; so does
    /// a condition on a state of the running epoch, if no write is to a tree that is durable by
    /// epochs ([`Batch::expect`]).
    ///
    /// No other write to the same keys comes between. Readers may see some of the writes and not
    /// yet the others. Writes to other keys go on, though some wait: a tree has 64 locks for all of
    /// its keys. O(writes * log n). [`Batch`] has an example.
    ///
    /// # Errors
    /// Nothing was written after
    /// - [`ErrorKind::ConditionFailed`], which names the condition;
    /// - [`ErrorKind::PoolFull`]: space for the worst case is set aside before anything is written;
    /// - [`ErrorKind::BatchTooLarge`]: the limits are 16 MiB, or 10,000 writes to trees that are
    ///   durable by epochs;
    /// - [`ErrorKind::Conflict`], after many attempts, if the batch removes a range;
    /// - [`ErrorKind::KeyTooLong`], [`ErrorKind::ValueTooLong`], [`ErrorKind::NotAWord`];
    ///   [`ErrorKind::NotEncodable`]; [`ErrorKind::OfAnotherStore`]; [`ErrorKind::TypedTree`] for
    ///   bytes to a tree that has types; [`ErrorKind::ReadOnly`];
    /// - [`ErrorKind::InLoadSource`]: called from the source of a bulk load of one of the trees.
    ///
    /// After an error of the medium, or of a damaged tree, it is not known whether the batch was
    /// done. The next open finishes it or undoes it; until then all writes to the store return
    /// [`ErrorKind::BatchUnfinished`]. If a tree is still damaged then, the open lists that
    /// ([`Recovery::damaged`](crate::Recovery::damaged)), and the store goes on refusing writes.
    pub fn write(&self, batch: &Batch) -> Result<()> {
        let lsn = self.write_ordered(batch)?;
        self.at(self.inner.wait_for(lsn))
    }

    /// Does the same as [`Store::write`], but returns before the batch is durable.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::{Batch, Pending};
    ///
    /// let accounts = store.tree("accounts")?;
    /// let log = store.tree("log")?;
    /// let mut writes = Vec::new();
    /// for name in ["ada", "bob", "cleo"] {
    ///     let mut batch = Batch::new();
    ///     batch.put(&accounts, name, "0").put(&log, name, "opened");
    ///     writes.push(store.write_pending(&batch)?);
    /// }
    /// Pending::wait_all(writes)?; // one sync for all three
    /// assert_eq!(accounts.len()?, 3);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn write_pending(&self, batch: &Batch) -> Result<Pending<()>> {
        let lsn = self.write_ordered(batch)?;
        let pending = Pending::new((), lsn, &self.inner);
        Ok(match batch.tree_by_epochs() {
            Some(tree) => pending.in_running_epoch(&tree.shared()),
            None => pending,
        })
    }

    /// Does the writes of [`Store::write`] without its wait. Returns the position at which the
    /// batch is durable.
    pub(crate) fn write_ordered(&self, batch: &Batch) -> Result<Lsn> {
        self.at(self.inner.expect_own_process())?;
        self.at(batch.expect_whole())?;
        for tree in &batch.trees {
            tree.expect_of(&self.inner)?;
        }
        if batch.is_empty() && batch.conditions.is_empty() {
            return Ok(Lsn::DURABLE);
        }
        if !batch.ranges.is_empty() {
            let replay = |tx: &mut Transaction| batch.replay(tx);
            let ((), lsn) = self
                .run_until_committed(replay, |mut tx| tx.commit_ordered())
                .map_err(|error| self.inner.name_path(error))?;
            return Ok(lsn);
        }
        let lent = batch.lent();
        let write = || self.inner.backend()?.write_batch(&lent);
        self.at(self.inner.ordered(write))
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Batch")
            .field("trees", &self.trees)
            .field("writes", &self.len())
            .field("conditions", &self.conditions.len())
            .finish_non_exhaustive()
    }
}
