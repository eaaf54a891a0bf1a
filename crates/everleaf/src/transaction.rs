//! Transactions: reads, decisions and writes that happen at one moment, or not at all.
#![expect(
    clippy::needless_pass_by_value,
    reason = "a key or a value is often made for the call"
)]

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use engines::batch::{BatchRequest, BatchSize, EpochRead, TransactionReads, Write};
use engines::index::{Bounds, Direction, Observed, Scan, Value};
use engines::versions::{MergeSource, MergedScan, ReadSet, ReadSpan, StoreView};
use engines::{Error, ErrorKind, Result};
use medium::Lsn;
use parking_lot::Mutex;

use crate::back_off::BackOff;
use crate::counter::{Counter, counted};
use crate::derived::REMOVED_AT_ONCE;
use crate::open_store::SharedStore;
use crate::range::Range;
use crate::sealed::Sealed;
use crate::view_reads::ViewReads;
use crate::{KeyFor, Pending, RangeFor, Store, Tree, TreeHandle, ValueFor, View};

/// Reads and writes of trees of a store that happen at one moment, or not at all. Made by
/// [`Store::transaction`] or [`Store::begin`].
///
/// Reads are those of [`View`]: they see the store as it was when the transaction began, and the
/// transaction's own writes. Other threads see the writes once it has committed, all of them at
/// once if they read by a [`Snapshot`](crate::Snapshot) or a transaction.
///
/// Transactions are strictly serialisable: each happens as if it were alone, at a moment between its
/// begin and its commit. So the commit fails with [`ErrorKind::Conflict`] if another write has
/// changed a key that the transaction has read, or has added, changed or removed one in a range as
/// far as the transaction has read it. (A conditional write that changes nothing, such as an insert
/// of a key that is present, counts as a change.) A transaction without writes never fails so. Reads
/// outside of transactions and snapshots see each write on its own.
///
/// The writes are kept in memory until the commit. The limits are those of a batch: 16 MiB, or
/// 10,000 writes to trees that are durable by epochs.
///
/// ```
/// # let store = everleaf::Store::in_memory()?;
/// use everleaf::View;
///
/// let stock = store.tree("stock")?;
/// let mut tx = store.begin()?;
/// tx.put(&stock, "apple", "12")?;
/// assert!(tx.contains(&stock, "apple")?); // it sees its own write
/// assert!(!stock.contains("apple")?); // others do not
/// tx.commit()?;
/// assert!(stock.contains("apple")?);
/// # Ok::<(), everleaf::Error>(())
/// ```
pub struct Transaction {
    // Dropped before the store.
    view: StoreView,
    writes: Vec<TreeWrites>,
    size: BatchSize,
    reads: Mutex<Reads>,
    waits: ReadWaits,
    /// Whether a read has failed because the view was ended.
    is_too_old: AtomicBool,
    store: SharedStore,
}

/// The transaction's writes to one tree.
struct TreeWrites {
    tree: Tree,
    /// The new value of each key; `None` for a key that is removed.
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// When a transaction waits until what it has read is durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadWaits {
    AtEachRead,
    /// Once, before anything of it is returned to the caller.
    AtTheEnd,
}

/// The reads of a transaction.
#[derive(Default)]
struct Reads {
    set: ReadSet,
    /// The LSN by which all of it is durable.
    lsn: Lsn,
    /// The last read of a tree that is durable by epochs, and the epoch that ran then.
    of_epoch: Option<EpochOfRead>,
}

struct EpochOfRead {
    tree: Tree,
    epoch: u64,
}

impl Reads {
    /// Notes the epoch in which a tree is read, if it is durable by epochs. Called after the read.
    fn note_epoch(&mut self, tree: &Tree) {
        let Some(epochs) = tree.striped().shared_epochs() else {
            return;
        };
        self.of_epoch = Some(EpochOfRead {
            tree: tree.clone(),
            epoch: epochs.running(),
        });
    }
}

impl Store {
    /// Runs a transaction: calls `run` and commits what it has written. If another write comes
    /// between, `run` is called again, after a pause that grows, at most as often as
    /// [`Options::transaction_attempts`](crate::Options::transaction_attempts) says. Durable when
    /// this returns, as [`Store::write`] says, and so is everything that `run` has read.
    ///
    /// An error that `run` returns undoes the transaction, and is returned as it is; a panic undoes
    /// it and goes on.
    ///
    /// ```
    /// use everleaf::{Error, View};
    ///
    /// # let store = everleaf::Store::in_memory()?;
    /// let accounts = store.typed::<String, u64>("accounts")?;
    /// accounts.put("ada", &70)?;
    ///
    /// let is_paid = store.transaction(|tx| {
    ///     let ada = tx.get(&accounts, "ada")?.unwrap_or(0);
    ///     if ada < 30 {
    ///         return Ok::<_, Error>(false);
    ///     }
    ///     let bob = tx.get(&accounts, "bob")?.unwrap_or(0);
    ///     tx.put(&accounts, "ada", &(ada - 30))?;
    ///     tx.put(&accounts, "bob", &(bob + 30))?;
    ///     Ok(true)
    /// })?;
    /// assert!(is_paid);
    /// assert_eq!(accounts.get("bob")?, Some(30));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `run`; [`ErrorKind::Conflict`] or [`ErrorKind::ViewTooOld`] if the last attempt
    /// failed so; those of [`Store::write`].
    #[track_caller]
    pub fn transaction<T, E: From<Error>>(
        &self,
        run: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let (value, ()) = self.run_until_committed(run, Transaction::commit)?;
        Ok(value)
    }

    /// Does the same as [`Store::transaction`], but returns before the transaction, and what it has
    /// read, is durable. An error that `run` returns is waited for.
    ///
    /// # Errors
    /// Those of [`Store::transaction`].
    #[track_caller]
    pub fn transaction_pending<T, E: From<Error>>(
        &self,
        run: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<Pending<T>, E> {
        let (value, pending) = self.run_until_committed(run, Transaction::commit_pending)?;
        Ok(pending.map(|()| value))
    }

    /// Runs a transaction until `commit` does not fail because of other writes. Returns what the two
    /// return.
    #[track_caller]
    pub(crate) fn run_until_committed<T, C, E: From<Error>>(
        &self,
        mut run: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
        commit: impl Fn(Transaction) -> Result<C>,
    ) -> std::result::Result<(T, C), E> {
        let mut back_off = BackOff::sleeping();
        let mut attempts_left = self.inner.opening.transaction_attempts;
        loop {
            attempts_left = attempts_left.saturating_sub(1);
            let mut transaction = self.begin_with(ReadWaits::AtTheEnd)?;
            match run(&mut transaction) {
                Err(_) if transaction.is_too_old() && attempts_left > 0 => {}
                Err(error) => {
                    // The error may rest on what was read.
                    transaction.wait_for_reads()?;
                    return Err(error);
                }
                Ok(value) => {
                    let lsn_of_reads = transaction.reads.get_mut().lsn;
                    match commit(transaction) {
                        Ok(committed) => return Ok((value, committed)),
                        Err(error) if is_transient(&error) && attempts_left > 0 => {}
                        Err(error) => {
                            // The error may rest on what was read.
                            self.at(self.inner.wait_for(lsn_of_reads))?;
                            return Err(error.into());
                        }
                    }
                }
            }
            back_off.pause();
        }
    }

    /// Begins a transaction that the caller commits ([`Transaction::commit`]). Dropping it undoes it.
    /// What it reads is durable when it is returned, so a read of a key that was just written waits
    /// for the disk; [`Store::transaction`] waits once.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// let mut tx = store.begin()?;
    /// tx.put(&stock, "apple", "12")?;
    /// drop(tx); // without a commit
    /// assert!(stock.is_empty()?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Store::snapshot`]; [`ErrorKind::ReadOnly`].
    #[track_caller]
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(ReadWaits::AtEachRead)
    }

    #[track_caller]
    fn begin_with(&self, waits: ReadWaits) -> Result<Transaction> {
        self.at(self.inner.expect_writable())?;
        let view = self.at(self.inner.open_view())?;
        Ok(Transaction {
            view,
            writes: Vec::new(),
            size: BatchSize::default(),
            reads: Mutex::default(),
            waits,
            is_too_old: AtomicBool::new(false),
            store: self.inner.clone(),
        })
    }
}

/// Whether the same transaction may succeed at another attempt.
fn is_transient(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Conflict { .. } | ErrorKind::ViewTooOld { .. }
    )
}

impl Transaction {
    /// Sets the value of a key, whether it is present or not. O(log writes).
    ///
    /// # Errors
    /// [`ErrorKind::BatchTooLarge`]: the transaction has too many writes, and stays as it was before
    /// this one; [`ErrorKind::KeyTooLong`], [`ErrorKind::ValueTooLong`], [`ErrorKind::NotAWord`];
    /// [`ErrorKind::NotEncodable`]; [`ErrorKind::TypedTree`] for bytes to a tree that has types;
    /// [`ErrorKind::OfAnotherStore`].
    pub fn put<T: TreeHandle>(
        &mut self,
        tree: &T,
        key: impl KeyFor<T>,
        value: impl ValueFor<T>,
    ) -> Result<()> {
        self.write(tree.bytes_tree(), &key.encoded(), Some(&value.encoded()?))
    }

    /// Adds a key; `false`, and nothing changes, if it is present. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::Error;
    ///
    /// let users = store.tree("users")?;
    /// store.transaction(|tx| {
    ///     assert!(tx.insert(&users, "ada", "1815")?);
    ///     assert!(!tx.insert(&users, "ada", "1816")?); // it sees its own write
    ///     Ok::<_, Error>(())
    /// })?;
    /// assert_eq!(users.get("ada")?.as_deref(), Some(b"1815".as_slice()));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::put`] and of [`View`].
    pub fn insert<T: TreeHandle>(
        &mut self,
        tree: &T,
        key: impl KeyFor<T>,
        value: impl ValueFor<T>,
    ) -> Result<bool> {
        let value = value.encoded()?;
        self.write_if(tree.bytes_tree(), &key.encoded(), false, Some(&value))
    }

    /// Replaces the value of a key; `false`, and nothing changes, if it is absent. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::Error;
    ///
    /// let users = store.typed::<String, u32>("users")?;
    /// users.put("ada", &1815)?;
    /// store.transaction(|tx| {
    ///     assert!(tx.update(&users, "ada", &1816)?);
    ///     assert!(!tx.update(&users, "bob", &1960)?);
    ///     Ok::<_, Error>(())
    /// })?;
    /// assert_eq!(users.get("ada")?, Some(1816));
    /// assert_eq!(users.len()?, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::put`] and of [`View`].
    pub fn update<T: TreeHandle>(
        &mut self,
        tree: &T,
        key: impl KeyFor<T>,
        value: impl ValueFor<T>,
    ) -> Result<bool> {
        let value = value.encoded()?;
        self.write_if(tree.bytes_tree(), &key.encoded(), true, Some(&value))
    }

    /// Removes a key; `false` if it is absent. O(log n).
    ///
    /// # Errors
    /// Those of [`Transaction::put`] and of [`View`].
    pub fn remove<T: TreeHandle>(&mut self, tree: &T, key: impl KeyFor<T>) -> Result<bool> {
        self.write_if(tree.bytes_tree(), &key.encoded(), true, None)
    }

    /// Replaces `current` by `new`, where `None` stands for absent. Returns whether the key had
    /// `current`; if not, nothing changes. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::Error;
    ///
    /// let locks = store.typed::<String, u32>("locks")?;
    /// let has_lock = store.transaction(|tx| {
    ///     let is_free = tx.compare_exchange(&locks, "door", None, Some(&7))?;
    ///     Ok::<_, Error>(is_free)
    /// })?;
    /// assert!(has_lock);
    /// assert_eq!(locks.get("door")?, Some(7));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::put`] and of [`View`].
    pub fn compare_exchange<T: TreeHandle>(
        &mut self,
        tree: &T,
        key: impl KeyFor<T>,
        current: Option<T::Named<'_>>,
        new: Option<T::Named<'_>>,
    ) -> Result<bool> {
        let tree_of_bytes = tree.bytes_tree();
        let key = key.encoded();
        let found = self.read(tree_of_bytes, &key)?;
        let current = current.map(T::named_bytes).transpose()?;
        if found.as_deref() != current.as_deref() {
            return Ok(false);
        }
        let new = new.map(T::named_bytes).transpose()?;
        if found.is_some() || new.is_some() {
            self.write(tree_of_bytes, &key, new.as_deref())?;
        }
        Ok(true)
    }

    /// Replaces the value of a key by what `update` makes of it, where `None` stands for absent, and
    /// returns the old one. O(log n).
    ///
    /// ```
    /// use everleaf::Error;
    ///
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.typed::<String, u32>("stock")?;
    /// stock.put("apple", &12)?;
    /// store.transaction(|tx| {
    ///     let sold = tx.fetch_update(&stock, "apple", |count| Some(count?.saturating_sub(3)))?;
    ///     assert_eq!(sold, Some(12));
    ///     Ok::<_, Error>(())
    /// })?;
    /// assert_eq!(stock.get("apple")?, Some(9));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::put`] and of [`View`].
    pub fn fetch_update<T: TreeHandle>(
        &mut self,
        tree: &T,
        key: impl KeyFor<T>,
        update: impl FnOnce(Option<T::Value>) -> Option<T::Value>,
    ) -> Result<Option<T::Value>> {
        let tree_of_bytes = tree.bytes_tree();
        let key = key.encoded();
        let old = self.read(tree_of_bytes, &key)?;
        let decode = || -> Result<Option<T::Value>> {
            match &old {
                Some(old) => Ok(Some(tree.value_of(old)?)),
                None => Ok(None),
            }
        };
        let new = match update(decode()?) {
            Some(new) => Some(T::value_bytes(&new)?),
            None => None,
        };
        if old.is_some() || new.is_some() {
            self.write(tree_of_bytes, &key, new.as_deref())?;
        }
        decode()
    }

    /// Adds a number to that of a key, where an absent key counts as 0, and returns the sum. O(log n).
    ///
    /// ```
    /// use everleaf::Error;
    ///
    /// # let store = everleaf::Store::in_memory()?;
    /// let counters = store.typed::<String, u64>("counters")?;
    /// let jobs = store.typed::<u64, String>("jobs")?;
    /// let id = store.transaction(|tx| {
    ///     let id = tx.increment(&counters, "next job", 1)?;
    ///     tx.put(&jobs, &id, "print")?;
    ///     Ok::<_, Error>(id)
    /// })?;
    /// assert_eq!(id, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::CounterOverflow`], and nothing changes; those of [`Transaction::put`] and of
    /// [`View`].
    pub fn increment<T: TreeHandle<Value: Counter>>(
        &mut self,
        tree: &T,
        key: impl KeyFor<T>,
        by: i64,
    ) -> Result<T::Value> {
        let tree_of_bytes = tree.bytes_tree();
        let key = key.encoded();
        let old = match self.read(tree_of_bytes, &key)? {
            Some(old) => Some(tree.value_of(&old)?),
            None => None,
        };
        let sum = tree_of_bytes.at(counted(tree_of_bytes, old, by))?;
        self.write(tree_of_bytes, &key, Some(&T::value_bytes(&sum)?))?;
        Ok(sum)
    }

    /// Removes the keys of a range, and returns how many: those that the transaction sees there, its
    /// own writes included. They count against its limits. If another write adds a key there before
    /// the commit, that is a conflict. O(log n) a key.
    ///
    /// ```
    /// use everleaf::Error;
    ///
    /// # let store = everleaf::Store::in_memory()?;
    /// let readings = store.typed::<u32, f64>("readings")?;
    /// for day in 1..=31 {
    ///     readings.put(&day, &21.5)?;
    /// }
    /// let removed = store.transaction(|tx| {
    ///     tx.put(&readings, &32, &20.0)?;
    ///     tx.remove_range(&readings, ..25)
    /// })?;
    /// assert_eq!(removed, 24);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::put`] and of [`View`]. After [`ErrorKind::BatchTooLarge`] some keys are
    /// removed, and others not.
    pub fn remove_range<T: TreeHandle>(
        &mut self,
        tree: &T,
        range: impl RangeFor<T>,
    ) -> Result<u64> {
        self.remove_within(tree.bytes_tree(), range.encoded())
    }

    /// Removes the keys within bounds, and returns how many.
    pub(crate) fn remove_within(&mut self, tree: &Tree, bounds: Bounds) -> Result<u64> {
        let mut bounds = bounds;
        let mut removed = 0;
        loop {
            let keys = self.keys_within(tree, bounds.clone())?;
            for key in &keys {
                self.write(tree, key, None)?;
            }
            removed += keys.len() as u64;
            match keys.into_iter().next_back() {
                Some(last) => bounds.lower = Bound::Excluded(last),
                None => return Ok(removed),
            }
        }
    }

    /// The first keys within bounds.
    fn keys_within(&self, tree: &Tree, bounds: Bounds) -> Result<Vec<Vec<u8>>> {
        let mut range = Range::in_view(tree, self, bounds);
        let mut keys = Vec::new();
        while keys.len() < REMOVED_AT_ONCE
            && let Some((key, _)) = range.next_entry()?
        {
            keys.push(key.to_vec());
        }
        Ok(keys)
    }

    /// The number of keys that it has written.
    pub fn len(&self) -> usize {
        self.writes.iter().map(|tree| tree.writes.len()).sum()
    }

    /// Whether it has written nothing.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Commits the transaction: all of its writes or none of them, also after a crash. Durable when
    /// this returns, as [`Store::write`] says.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::{ErrorKind, View};
    ///
    /// let stock = store.typed::<String, u32>("stock")?;
    /// stock.put("apple", &12)?;
    /// let mut tx = store.begin()?;
    /// let apples = tx.get(&stock, "apple")?.unwrap_or(0);
    /// tx.put(&stock, "apple", &(apples - 1))?;
    /// stock.put("apple", &9)?; // another thread is faster
    /// let refused = tx.commit().unwrap_err();
    /// assert!(matches!(refused.kind(), ErrorKind::Conflict { .. }));
    /// assert_eq!(stock.get("apple")?, Some(9));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// Nothing was written after [`ErrorKind::Conflict`], which names what another write has
    /// changed; [`ErrorKind::ViewTooOld`]; and the errors of [`Store::write`].
    pub fn commit(mut self) -> Result<()> {
        let lsn = self.commit_ordered()?;
        // No old values are kept for this view while the thread waits.
        let store = self.store.clone();
        drop(self);
        store.wait_for(lsn).map_err(|error| store.name_path(error))
    }

    /// Does the same as [`Transaction::commit`], but returns before the transaction is durable.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// let mut tx = store.begin()?;
    /// tx.put(&stock, "apple", "12")?;
    /// let committed = tx.commit_pending()?;
    /// // The thread may do something else here.
    /// committed.wait()?; // from now on no crash takes it back
    /// assert!(stock.contains("apple")?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::commit`].
    pub fn commit_pending(mut self) -> Result<Pending<()>> {
        let lsn = self.commit_ordered()?;
        let pending = Pending::new((), lsn, &self.store);
        let are_by_epochs = self
            .writes
            .iter()
            .all(|written| written.tree.kind().engine.is_buffered());
        if !are_by_epochs {
            return Ok(pending);
        }
        let trees = self.writes.iter().map(|written| &written.tree);
        Ok(match Tree::that_ends_epoch(trees) {
            Some(tree) => pending.in_running_epoch(&tree.shared()),
            None => pending,
        })
    }

    /// Commits, and returns the LSN at which the transaction is durable, with what it has read.
    pub(crate) fn commit_ordered(&mut self) -> Result<Lsn> {
        self.name_path(self.store.expect_own_process())?;
        let reads = self.reads.get_mut();
        if self.writes.is_empty() {
            return Ok(reads.lsn);
        }
        let epoch = reads.of_epoch.as_ref().map(|read| EpochRead {
            tree: read.tree.striped(),
            epoch: read.epoch,
        });
        let mut writes = Vec::new();
        for (number, written) in self.writes.iter().enumerate() {
            writes.extend(written.writes.iter().map(|(key, value)| Write {
                tree: number,
                key,
                value: value.as_deref(),
            }));
        }
        let request = BatchRequest {
            trees: self.writes.iter().map(|of| of.tree.target()).collect(),
            writes,
            conditions: Vec::new(),
            transaction: Some(TransactionReads {
                view: &self.view,
                reads: &reads.set,
                epoch,
            }),
        };
        let store = &self.store;
        let lsn = store
            .ordered(|| store.backend()?.write_batch(&request))
            .map_err(|error| store.name_path(error))?;
        Ok(lsn.max(reads.lsn))
    }

    /// Writes to a key, if it is present or absent as wanted. Returns whether it is.
    fn write_if(
        &mut self,
        tree: &Tree,
        key: &[u8],
        wants_present: bool,
        value: Option<&[u8]>,
    ) -> Result<bool> {
        let is_present = self.read(tree, key)?.is_some();
        let holds = is_present == wants_present;
        if holds {
            self.write(tree, key, value)?;
        }
        Ok(holds)
    }

    /// Notes a write, which the commit will do.
    pub(crate) fn write(&mut self, tree: &Tree, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.name_path(self.store.expect_own_process())?;
        tree.expect_of(&self.store)?;
        tree.expect_writes()?;
        let target = tree.target();
        self.name_path(target.check(key, value))?;
        let mut size = self.size;
        if let Some(replaced) = self.own_writes(tree).and_then(|own| own.get(key)) {
            size = size.without(&target, key, replaced.as_deref());
        }
        self.size = self.name_path(size.with(&target, key, value))?;
        let number = self.number(tree);
        let value = value.map(<[u8]>::to_vec);
        self.writes[number].writes.insert(key.to_vec(), value);
        Ok(())
    }

    fn number(&mut self, tree: &Tree) -> usize {
        let known = self
            .writes
            .iter()
            .position(|known| known.tree.is_same(tree));
        known.unwrap_or_else(|| {
            self.writes.push(TreeWrites {
                tree: tree.clone(),
                writes: BTreeMap::new(),
            });
            self.writes.len() - 1
        })
    }

    /// The transaction's writes to a tree.
    fn own_writes(&self, tree: &Tree) -> Option<&BTreeMap<Vec<u8>, Option<Vec<u8>>>> {
        let own = self.writes.iter().find(|own| own.tree.is_same(tree))?;
        Some(&own.writes)
    }

    fn name_path<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.store.name_path(error))
    }

    fn is_too_old(&self) -> bool {
        self.is_too_old.load(Ordering::Relaxed)
    }

    /// Notes whether a read has failed because the view was ended.
    fn note_failure<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && matches!(error.kind(), ErrorKind::ViewTooOld { .. })
        {
            self.is_too_old.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Waits until everything that was read is durable.
    fn wait_for_reads(&self) -> Result<()> {
        let lsn = self.reads.lock().lsn;
        self.name_path(self.store.wait_for(lsn))
    }

    /// Takes the answer of a read, and waits for it if the transaction does so at each read.
    fn answer<T>(&self, tree: &Tree, found: Result<Observed<T>>) -> Result<T> {
        let found = tree.at(self.note_failure(found))?;
        self.wait_for(tree, found.lsn)?;
        Ok(found.value)
    }
}

impl View for Transaction {}

impl Sealed for Transaction {}

impl ViewReads for Transaction {
    fn read(&self, tree: &Tree, key: &[u8]) -> Result<Option<Value>> {
        tree.expect_of(&self.store)?;
        if let Some(own) = self.own_writes(tree)
            && let Some(value) = own.get(key)
        {
            return Ok(value.as_deref().map(Value::from_slice));
        }
        let found = tree.striped().read_at(&self.view, key);
        {
            let mut reads = self.reads.lock();
            let versions = tree.striped().versions();
            reads.set.note_key(versions, tree.name(), key);
            reads.note_epoch(tree);
        }
        self.answer(tree, found)
    }

    fn read_many(&self, tree: &Tree, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        tree.expect_of(&self.store)?;
        let own = self.own_writes(tree);
        let own_value = |key: &[u8]| own.and_then(|own| own.get(key));
        let read: Vec<&[u8]> = keys
            .iter()
            .copied()
            .filter(|key| own_value(key).is_none())
            .collect();
        let found = tree.striped().read_many_at(&self.view, &read);
        {
            let mut reads = self.reads.lock();
            let versions = tree.striped().versions();
            for key in &read {
                reads.set.note_key(versions, tree.name(), key);
            }
            reads.note_epoch(tree);
        }
        let mut found = self.answer(tree, found)?.into_iter();
        let values = keys.iter().map(|key| match own_value(key) {
            Some(own) => own.as_deref().map(Value::from_slice),
            None => found.next().flatten(),
        });
        Ok(values.collect())
    }

    fn cursor<'v>(
        &'v self,
        tree: &'v Tree,
        bounds: Bounds,
        direction: Direction,
    ) -> Result<Box<dyn Scan + 'v>> {
        tree.expect_of(&self.store)?;
        let scan = tree
            .striped()
            .cursor_at(&self.view, bounds.clone(), direction);
        let scan = self.note_failure(scan)?;
        let from = match direction {
            Direction::Forward => bounds.lower.clone(),
            Direction::Reverse => bounds.upper.clone(),
        };
        let span = {
            let versions = tree.striped().versions();
            let mut reads = self.reads.lock();
            reads
                .set
                .begin_range(versions, tree.name(), from, direction)
        };
        Ok(Box::new(TransactionScan {
            transaction: self,
            tree,
            span,
            own: OwnRange::of(self.own_writes(tree), &bounds, direction),
            end: match direction {
                Direction::Forward => bounds.upper,
                Direction::Reverse => bounds.lower,
            },
            merged: MergedScan::new(scan, direction),
        }))
    }

    fn wait_for(&self, tree: &Tree, lsn: Lsn) -> Result<()> {
        match self.waits {
            ReadWaits::AtEachRead => tree.wait_for(lsn),
            ReadWaits::AtTheEnd => {
                let mut reads = self.reads.lock();
                reads.lsn = reads.lsn.max(lsn);
                Ok(())
            }
        }
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Transaction")
            .field("writes", &self.len())
            .finish_non_exhaustive()
    }
}

/// The transaction's own writes within a range, in the order of a scan.
struct OwnRange<'v> {
    rest: Option<btree_map::Range<'v, Vec<u8>, Option<Vec<u8>>>>,
    direction: Direction,
    next: Option<OwnWrite<'v>>,
}

/// A key that the transaction has written.
#[derive(Clone, Copy)]
struct OwnWrite<'v> {
    key: &'v [u8],
    /// `None` if it has removed the key.
    value: Option<&'v [u8]>,
}

impl<'v> OwnRange<'v> {
    fn of(
        own: Option<&'v BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
        bounds: &Bounds,
        direction: Direction,
    ) -> Self {
        let rest = match own {
            Some(own) if !bounds.is_empty() => Some(own.range::<[u8], _>(bounds.as_slices())),
            _ => None,
        };
        let mut range = Self {
            rest,
            direction,
            next: None,
        };
        range.advance();
        range
    }

    fn advance(&mut self) {
        self.next = None;
        let Some(rest) = &mut self.rest else {
            return;
        };
        let next = match self.direction {
            Direction::Forward => rest.next(),
            Direction::Reverse => rest.next_back(),
        };
        if let Some((key, value)) = next {
            self.next = Some(OwnWrite {
                key,
                value: value.as_deref(),
            });
        }
    }
}

/// A range of a transaction: the entries of its view, and its own writes. It notes how far it is
/// read: an entry of the view that only shows that an own write comes first does not count.
struct TransactionScan<'v> {
    transaction: &'v Transaction,
    tree: &'v Tree,
    span: ReadSpan,
    own: OwnRange<'v>,
    /// The end of the range in the direction of the scan.
    end: Bound<Vec<u8>>,
    /// The entries of the view, and over them the own writes.
    merged: MergedScan<'v, &'v [u8], &'v [u8]>,
}

impl TransactionScan<'_> {
    /// Takes the next key of the view and the own writes. `false` at the end of both. A key that the
    /// transaction has removed has no entry.
    fn take_next(&mut self) -> bool {
        let own = self.own.next;
        match self.merged.take_next(own.map(|own| own.key)) {
            MergeSource::Neither => return false,
            MergeSource::Beneath => {}
            MergeSource::Over => {
                self.own.advance();
                if let Some(OwnWrite {
                    key,
                    value: Some(value),
                }) = own
                {
                    self.merged.set_over(key, value);
                }
            }
        }
        true
    }

    /// Notes that the range was read up to here.
    fn note(&self, to: Bound<&[u8]>) {
        let mut reads = self.transaction.reads.lock();
        reads.set.extend_range(self.span, to);
        reads.note_epoch(self.tree);
    }
}

impl Scan for TransactionScan<'_> {
    fn advance(&mut self) -> Result<bool> {
        loop {
            let advanced = self.merged.advance_beneath();
            if let Err(error) = self.transaction.note_failure(advanced) {
                // The transaction may decide by the error, which any key may have caused.
                self.note(self.end.as_ref().map(Vec::as_slice));
                return Err(error);
            }
            if !self.take_next() {
                self.note(self.end.as_ref().map(Vec::as_slice));
                return Ok(false);
            }
            if let Some((key, _)) = self.merged.entry() {
                self.note(Bound::Included(key));
                return Ok(true);
            }
        }
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        self.merged.entry().unwrap_or_default()
    }

    fn lsn(&self) -> Lsn {
        self.merged.beneath().lsn()
    }
}
