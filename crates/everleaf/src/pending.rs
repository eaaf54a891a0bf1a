//! Operations that return before their answer is durable.

use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use engines::Result;
use engines::index::{Bounds, Condition, Direction, Entry, Index, Value, WordIndex as _, Written};
use medium::Lsn;

use crate::back_off::BackOff;
use crate::open_store::SharedStore;
use crate::typed::{key_bytes, value_bytes};
use crate::{EncodedLike, EncodedValue, Key, KeyRange, Tree, TypedTree, WordTree};

/// The result of an operation that may not be durable yet. Its holder can wait until it is.
/// Dropping it does not wait, and loses nothing: a later sync makes the write durable. Like a tree,
/// a pending result keeps its store open.
///
/// It is a future, too, for any executor. No thread waits for it: the thread that syncs the store's
/// log wakes the task, so a disk that hangs delays no other store.
///
/// ```
/// # let store = everleaf::Store::in_memory()?;
/// # let tree = store.tree("readings")?;
/// let write = async {
///     tree.pending().put("monday", "21.5")?.await // other tasks run meanwhile
/// };
/// # assert!(std::pin::pin!(write).poll(&mut Context::from_waker(Waker::noop())).is_ready());
/// # use std::{future::Future, task::{Context, Waker}};
/// # Ok::<(), everleaf::Error>(())
/// ```
#[must_use = "the answer may not be durable yet; wait for it, or drop it on purpose"]
pub struct Pending<T> {
    /// `None` once the future has returned it.
    value: Option<T>,
    lsn: Lsn,
    /// The epoch of a write to a tree that is durable by epochs. It is dropped before the store.
    epoch: Option<OpenEpoch>,
    store: SharedStore,
}

/// An epoch that need not have ended.
#[derive(Clone)]
struct OpenEpoch {
    tree: Arc<dyn Index>,
    number: u64,
}

impl OpenEpoch {
    fn is_durable(&self) -> bool {
        match self.tree.epochs() {
            Some(epochs) => epochs.is_durable(self.number),
            None => true,
        }
    }

    /// Ends the epoch, if it still runs, and waits until that is durable.
    fn sync(&self) -> Result<()> {
        match self.tree.epochs() {
            Some(epochs) if !epochs.is_durable(self.number) => epochs.sync(),
            _ => Ok(()),
        }
    }

    /// Ends the epoch, if it still runs. Returns when it is durable.
    fn complete(&self) -> Result<Lsn> {
        match self.tree.epochs() {
            Some(epochs) if !epochs.is_durable(self.number) => epochs.complete(self.number),
            _ => Ok(Lsn::DURABLE),
        }
    }
}

impl<T> Pending<T> {
    /// The result of a read, or of a write to trees of immediate durability.
    pub(crate) fn new(value: T, lsn: Lsn, store: &SharedStore) -> Self {
        Self {
            value: Some(value),
            lsn,
            epoch: None,
            store: store.clone(),
        }
    }

    /// The result of a write to a tree that is durable with the epoch that runs now.
    pub(crate) fn in_running_epoch(self, tree: &Arc<dyn Index>) -> Self {
        let Some(epochs) = tree.epochs() else {
            return self;
        };
        let number = epochs.running();
        let tree = Arc::clone(tree);
        Self {
            epoch: Some(OpenEpoch { tree, number }),
            ..self
        }
    }

    /// The position of the operation in the order of durability: of two writes to a store, the one
    /// with the lower number is durable no later. 0 on media where a write is durable at once.
    pub fn lsn(&self) -> u64 {
        self.lsn.0
    }

    /// Whether the result is durable already. With trees that are durable by epochs
    /// ([`Engine::is_buffered`](crate::Engine::is_buffered)): whether the epoch that ran when the
    /// write returned is complete and durable. `false` in a child that was forked after the open.
    /// O(1), no system call. [`Store::sync`](crate::Store::sync) has an example.
    pub fn is_durable(&self) -> bool {
        let has_ended = match &self.epoch {
            Some(epoch) => epoch.is_durable(),
            None => true,
        };
        has_ended && self.store.is_durable(self.lsn)
    }

    /// The result, which a crash may still take back. `None` once the future has returned it.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let users = store.tree("users")?;
    /// let first = users.pending().insert("ada", "1815")?;
    /// let second = users.pending().insert("ada", "1816")?;
    /// assert_eq!(first.peek(), Some(&true)); // known at once
    /// assert_eq!(second.peek(), Some(&false));
    /// assert!(first.wait()?); // durable
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn peek(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Returns the result when it is durable, whatever the store's
    /// [`Durability`](crate::Durability). The thread that waits may do the sync for all that wait.
    /// With trees that are durable by epochs
    /// ([`Engine::is_buffered`](crate::Engine::is_buffered)) it ends the epoch of the write, unless
    /// that has ended. A read of such a tree is ready at once.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// stock.put("apple", "12")?;
    /// let old = stock.pending().replace("apple", "9")?;
    /// // The thread may do something else here.
    /// assert_eq!(old.wait()?.as_deref(), Some(b"12".as_slice()));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Medium`](crate::ErrorKind::Medium) if the medium failed: then it is not known
    /// whether the write is durable; [`ErrorKind::Forked`](crate::ErrorKind::Forked) in a child that
    /// was forked after the open.
    ///
    /// # Panics
    /// If the future has returned the result.
    pub fn wait(mut self) -> Result<T> {
        self.settle()?;
        Ok(self.take())
    }

    /// Returns all results when they are durable. One sync serves all results of one store.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let users = store.tree("users")?;
    /// let mut inserts = Vec::new();
    /// for name in ["ada", "bob", "ada"] {
    ///     inserts.push(users.pending().insert(name, "")?);
    /// }
    /// assert_eq!(everleaf::Pending::wait_all(inserts)?, [true, true, false]);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of [`Pending::wait`].
    pub fn wait_all(pending: impl IntoIterator<Item = Self>) -> Result<Vec<T>> {
        let pending: Vec<Self> = pending.into_iter().collect();
        // A wait for the last one makes the others durable.
        if let Some(last) = pending.iter().max_by_key(|pending| pending.lsn) {
            last.settle()?;
        }
        pending.into_iter().map(Self::wait).collect()
    }

    fn settle(&self) -> Result<()> {
        if let Some(epoch) = &self.epoch {
            epoch.sync().map_err(|error| self.store.name_path(error))?;
        }
        self.store.settle(self.lsn)
    }

    fn take(&mut self) -> T {
        self.value
            .take()
            .expect("a future is not polled again after it has returned")
    }

    /// Asks that the task of `context` be woken when the result is durable; `true` if it is.
    fn poll_durable(&mut self, context: &Context<'_>) -> Result<bool> {
        if let Some(epoch) = &self.epoch {
            // After an error the epoch stays: it is not known to be durable.
            let lsn = epoch.complete()?;
            self.lsn = self.lsn.max(lsn);
            self.epoch = None;
        }
        if self.store.wake_when_durable(self.lsn, context.waker())? {
            return Ok(false);
        }
        Ok(true)
    }
}

impl<T: Clone> Clone for Pending<T> {
    fn clone(&self) -> Self {
        Self {
            value: self.value.clone(),
            lsn: self.lsn,
            epoch: self.epoch.clone(),
            store: self.store.clone(),
        }
    }
}

/// Nothing in it is pinned.
impl<T> Unpin for Pending<T> {}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    /// Returns what [`Pending::wait`] returns once the result is durable. Does not block the
    /// thread.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match self.poll_durable(context) {
            Ok(true) => Poll::Ready(Ok(self.take())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(self.store.name_path(error))),
        }
    }
}

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Pending")
            .field("lsn", &self.lsn.0)
            .finish_non_exhaustive()
    }
}

impl Tree {
    /// The operations of the tree in their pending form: each returns before its answer is durable,
    /// and gives a [`Pending`] result to wait for. One thread can thus keep many writes under way
    /// and wait for them together. With [`Durability::Immediate`](crate::Durability::Immediate) a
    /// reader that finds such a write waits until it is durable. A writer that is 8 MiB of log
    /// ahead of the disk waits.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let tree = store.tree("readings")?;
    /// let writes = (0..64_u32)
    ///     .map(|time| tree.pending().put(time.to_be_bytes(), "21.5 C"))
    ///     .collect::<Result<Vec<_>, _>>()?;
    /// everleaf::Pending::wait_all(writes)?;
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn pending(&self) -> PendingTree<'_> {
        PendingTree::new(self)
    }

    /// A write without its wait.
    pub(crate) fn write_pending(
        &self,
        attempt: impl Fn() -> Result<Written>,
    ) -> Result<Pending<bool>> {
        self.expect_writes()?;
        let store = self.store();
        let written = self.at(store.ordered(attempt))?;
        self.at(store.keep_up(written.lsn))?;
        let pending = Pending::new(written.held, written.lsn, store);
        if self.kind().engine.is_buffered() {
            return Ok(pending.in_running_epoch(&self.shared()));
        }
        Ok(pending)
    }
}

/// The operations of a [`Tree`], each of which returns before its answer is durable: see
/// [`Tree::pending`].
#[derive(Clone, Copy, Debug)]
pub struct PendingTree<'t> {
    tree: &'t Tree,
}

impl<'t> PendingTree<'t> {
    pub(crate) fn new(tree: &'t Tree) -> Self {
        Self { tree }
    }

    fn write(self, write: impl Fn(&dyn Index) -> Result<Written>) -> Result<Pending<bool>> {
        self.tree.write_pending(|| write(self.tree.index()))
    }

    /// Returns the value of a key; see [`Tree::get`].
    pub fn get(self, key: impl AsRef<[u8]>) -> Result<Pending<Option<Value>>> {
        let found = self.tree.at(self.tree.index().read(key.as_ref()))?;
        Ok(Pending::new(found.value, found.lsn, self.tree.store()))
    }

    /// Returns the values of many keys, in their order; see [`Tree::get_many`].
    pub fn get_many<K: AsRef<[u8]>>(self, keys: &[K]) -> Result<Pending<Vec<Option<Value>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let found = self.tree.at(self.tree.index().read_many(&keys))?;
        Ok(Pending::new(found.value, found.lsn, self.tree.store()))
    }

    /// Adds a key, if it is absent; see [`Tree::insert`].
    pub fn insert(self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Pending<bool>> {
        let value = Some(value.as_ref());
        self.write(|tree| tree.write(key.as_ref(), value, Condition::Absent))
    }

    /// Replaces the value of a key, if it is present; see [`Tree::update`].
    pub fn update(self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Pending<bool>> {
        let value = Some(value.as_ref());
        self.write(|tree| tree.write(key.as_ref(), value, Condition::Present))
    }

    /// Sets the value of a key, whether it is present or not; see [`Tree::put`].
    pub fn put(self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Pending<()>> {
        let value = Some(value.as_ref());
        let written = self.write(|tree| tree.write(key.as_ref(), value, Condition::Always))?;
        Ok(written.map(|_| ()))
    }

    /// Removes a key, if it is present; see [`Tree::remove`].
    pub fn remove(self, key: impl AsRef<[u8]>) -> Result<Pending<bool>> {
        self.write(|tree| tree.write(key.as_ref(), None, Condition::Present))
    }

    /// Replaces `current` by `new` in one atomic step; see [`Tree::compare_exchange`].
    pub fn compare_exchange(
        self,
        key: impl AsRef<[u8]>,
        current: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Pending<bool>> {
        self.write(|tree| tree.exchange(key.as_ref(), current, new))
    }

    /// Whether a key is present; see [`Tree::contains`].
    pub fn contains(self, key: impl AsRef<[u8]>) -> Result<Pending<bool>> {
        Ok(self.get(key)?.map(|value| value.is_some()))
    }

    /// Sets the value of a key, and returns the old one; see [`Tree::replace`].
    pub fn replace(
        self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Pending<Option<Value>>> {
        self.fetch_update(key, |_| Some(value.as_ref()))
    }

    /// Removes a key, and returns its value; see [`Tree::take`].
    pub fn take(self, key: impl AsRef<[u8]>) -> Result<Pending<Option<Value>>> {
        self.fetch_update(key, |_| None::<Vec<u8>>)
    }

    /// Replaces the value of a key by what `update` makes of it, and returns the old one; see
    /// [`Tree::fetch_update`]. The old value that `update` gets may not be durable yet.
    pub fn fetch_update<V: AsRef<[u8]>>(
        self,
        key: impl AsRef<[u8]>,
        mut update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Pending<Option<Value>>> {
        let key = key.as_ref();
        let mut back_off = BackOff::spinning();
        loop {
            // Nothing waits for this read: the exchange comes after it in the order of durability.
            let old = self.get(key)?.take();
            let new = update(old.as_deref());
            let new = new.as_ref().map(AsRef::as_ref);
            let exchanged = self.compare_exchange(key, old.as_deref(), new)?;
            if exchanged.peek() == Some(&true) {
                return Ok(exchanged.map(|_| old));
            }
            back_off.pause();
        }
    }

    /// The entry with the smallest key; see [`Tree::first`].
    pub fn first(self) -> Result<Pending<Option<Entry>>> {
        self.end(Bounds::all(), Direction::Forward)
    }

    /// The entry with the greatest key; see [`Tree::last`].
    pub fn last(self) -> Result<Pending<Option<Entry>>> {
        self.end(Bounds::all(), Direction::Reverse)
    }

    /// The first entry above a key; see [`Tree::next_above`].
    pub fn next_above(self, key: impl AsRef<[u8]>) -> Result<Pending<Option<Entry>>> {
        let above = (Bound::Excluded(key.as_ref()), Bound::Unbounded);
        self.end(above.into_bounds(), Direction::Forward)
    }

    /// The last entry below a key; see [`Tree::next_below`].
    pub fn next_below(self, key: impl AsRef<[u8]>) -> Result<Pending<Option<Entry>>> {
        self.end((..key.as_ref()).into_bounds(), Direction::Reverse)
    }

    /// The first entry of a range of keys in this direction.
    fn end(self, bounds: Bounds, direction: Direction) -> Result<Pending<Option<Entry>>> {
        let mut scan = self.tree.at(self.tree.index().cursor(bounds, direction))?;
        let entry = if self.tree.at(scan.advance())? {
            let (key, value) = scan.entry();
            Some((Value::from_slice(key), Value::from_slice(value)))
        } else {
            None
        };
        Ok(Pending::new(entry, scan.lsn(), self.tree.store()))
    }

    /// Removes the entry with the smallest key, and returns it; see [`Tree::pop_first`].
    pub fn pop_first(self) -> Result<Pending<Option<Entry>>> {
        self.pop(Self::first)
    }

    /// Removes the entry with the greatest key, and returns it; see [`Tree::pop_last`].
    pub fn pop_last(self) -> Result<Pending<Option<Entry>>> {
        self.pop(Self::last)
    }

    fn pop(
        self,
        find: impl Fn(Self) -> Result<Pending<Option<Entry>>>,
    ) -> Result<Pending<Option<Entry>>> {
        let mut back_off = BackOff::spinning();
        loop {
            let found = find(self)?;
            let Some((key, value)) = found.peek().cloned().flatten() else {
                return Ok(found);
            };
            let removed = self.compare_exchange(&key, Some(&value), None)?;
            if removed.peek() == Some(&true) {
                return Ok(removed.map(|_| Some((key, value))));
            }
            back_off.pause();
        }
    }
}

impl WordTree {
    /// The operations of the tree in their pending form: see [`Tree::pending`].
    pub fn pending(&self) -> PendingWords<'_> {
        PendingWords::new(self)
    }
}

/// The operations of a [`WordTree`], each of which returns before its answer is durable: see
/// [`Tree::pending`].
#[derive(Clone, Copy, Debug)]
pub struct PendingWords<'t> {
    words: &'t WordTree,
}

impl<'t> PendingWords<'t> {
    pub(crate) fn new(words: &'t WordTree) -> Self {
        Self { words }
    }

    fn write(
        self,
        key: u64,
        value: Option<u64>,
        condition: Condition<u64>,
    ) -> Result<Pending<bool>> {
        let tree = self.words.as_tree();
        tree.write_pending(|| self.words.words().write(key, value, condition))
    }

    /// Returns the value of a key; see [`WordTree::get`].
    pub fn get(self, key: u64) -> Result<Pending<Option<u64>>> {
        let tree = self.words.as_tree();
        let found = tree.at(self.words.words().read(key))?;
        Ok(Pending::new(found.value, found.lsn, tree.store()))
    }

    /// Returns the values of many keys, in their order; see [`WordTree::get_many`].
    pub fn get_many(self, keys: &[u64]) -> Result<Pending<Vec<Option<u64>>>> {
        let tree = self.words.as_tree();
        let mut values = vec![None; keys.len()];
        let lsn = tree.at(self.words.words().read_many(keys, &mut values))?;
        Ok(Pending::new(values, lsn, tree.store()))
    }

    /// Adds a key, if it is absent; see [`WordTree::insert`].
    pub fn insert(self, key: u64, value: u64) -> Result<Pending<bool>> {
        self.write(key, Some(value), Condition::Absent)
    }

    /// Replaces the value of a key, if it is present; see [`WordTree::update`].
    pub fn update(self, key: u64, value: u64) -> Result<Pending<bool>> {
        self.write(key, Some(value), Condition::Present)
    }

    /// Sets the value of a key, whether it is present or not; see [`WordTree::put`].
    pub fn put(self, key: u64, value: u64) -> Result<Pending<()>> {
        let written = self.write(key, Some(value), Condition::Always)?;
        Ok(written.map(|_| ()))
    }

    /// Removes a key, if it is present; see [`WordTree::remove`].
    pub fn remove(self, key: u64) -> Result<Pending<bool>> {
        self.write(key, None, Condition::Present)
    }

    /// Replaces `current` by `new` in one atomic step; see [`WordTree::compare_exchange`].
    pub fn compare_exchange(
        self,
        key: u64,
        current: Option<u64>,
        new: Option<u64>,
    ) -> Result<Pending<bool>> {
        match (current, new) {
            (None, None) => Ok(self.get(key)?.map(|value| value.is_none())),
            (None, Some(_)) => self.write(key, new, Condition::Absent),
            (Some(current), _) => self.write(key, new, Condition::Equals(current)),
        }
    }
}

impl<K: Key, V: EncodedValue> TypedTree<K, V> {
    /// The operations of the tree in their pending form: see [`Tree::pending`].
    pub fn pending(&self) -> PendingTyped<'_, K, V> {
        PendingTyped::new(self)
    }
}

/// The operations of a [`TypedTree`], each of which returns before its answer is durable: see
/// [`Tree::pending`].
pub struct PendingTyped<'t, K: Key, V: EncodedValue> {
    tree: &'t TypedTree<K, V>,
}

impl<'t, K: Key, V: EncodedValue> PendingTyped<'t, K, V> {
    pub(crate) fn new(tree: &'t TypedTree<K, V>) -> Self {
        Self { tree }
    }

    /// Returns the value of a key; see [`TypedTree::get`].
    pub fn get<Q: Key + ?Sized>(self, key: &Q) -> Result<Pending<Option<V>>>
    where
        K: EncodedLike<Q>,
    {
        let found = self.tree.beneath().pending().get(key_bytes(key))?;
        found.try_map(|bytes| self.decode(bytes))
    }

    /// Adds a key, if it is absent; see [`TypedTree::insert`].
    pub fn insert<Q, W>(self, key: &Q, value: &W) -> Result<Pending<bool>>
    where
        Q: Key + ?Sized,
        W: EncodedValue + ?Sized,
        K: EncodedLike<Q>,
        V: EncodedLike<W>,
    {
        let tree = self.tree.beneath().pending();
        tree.insert(key_bytes(key), value_bytes(value)?)
    }

    /// Replaces the value of a key, if it is present; see [`TypedTree::update`].
    pub fn update<Q, W>(self, key: &Q, value: &W) -> Result<Pending<bool>>
    where
        Q: Key + ?Sized,
        W: EncodedValue + ?Sized,
        K: EncodedLike<Q>,
        V: EncodedLike<W>,
    {
        let tree = self.tree.beneath().pending();
        tree.update(key_bytes(key), value_bytes(value)?)
    }

    /// Sets the value of a key, whether it is present or not; see [`TypedTree::put`].
    pub fn put<Q, W>(self, key: &Q, value: &W) -> Result<Pending<()>>
    where
        Q: Key + ?Sized,
        W: EncodedValue + ?Sized,
        K: EncodedLike<Q>,
        V: EncodedLike<W>,
    {
        let tree = self.tree.beneath().pending();
        tree.put(key_bytes(key), value_bytes(value)?)
    }

    /// Removes a key, if it is present; see [`TypedTree::remove`].
    pub fn remove<Q: Key + ?Sized>(self, key: &Q) -> Result<Pending<bool>>
    where
        K: EncodedLike<Q>,
    {
        self.tree.beneath().pending().remove(key_bytes(key))
    }

    /// Replaces `current` by `new` in one atomic step; see [`TypedTree::compare_exchange`].
    pub fn compare_exchange<Q, W>(
        self,
        key: &Q,
        current: Option<&W>,
        new: Option<&W>,
    ) -> Result<Pending<bool>>
    where
        Q: Key + ?Sized,
        W: EncodedValue + ?Sized,
        K: EncodedLike<Q>,
        V: EncodedLike<W>,
    {
        let current = current.map(value_bytes).transpose()?;
        let new = new.map(value_bytes).transpose()?;
        let tree = self.tree.beneath().pending();
        tree.compare_exchange(key_bytes(key), current.as_deref(), new.as_deref())
    }

    /// Whether a key is present; see [`TypedTree::contains`].
    pub fn contains<Q: Key + ?Sized>(self, key: &Q) -> Result<Pending<bool>>
    where
        K: EncodedLike<Q>,
    {
        self.tree.beneath().pending().contains(key_bytes(key))
    }

    /// Returns the values of many keys, in their order; see [`TypedTree::get_many`].
    pub fn get_many<'q, Q: Key + ?Sized + 'q>(
        self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Result<Pending<Vec<Option<V>>>>
    where
        K: EncodedLike<Q>,
    {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(key_bytes).collect();
        let found = self.tree.beneath().pending().get_many(&keys)?;
        found.try_map(|found| found.into_iter().map(|bytes| self.decode(bytes)).collect())
    }

    /// Sets the value of a key, and returns the old one; see [`TypedTree::replace`].
    pub fn replace<Q, W>(self, key: &Q, value: &W) -> Result<Pending<Option<V>>>
    where
        Q: Key + ?Sized,
        W: EncodedValue + ?Sized,
        K: EncodedLike<Q>,
        V: EncodedLike<W>,
    {
        let tree = self.tree.beneath().pending();
        let old = tree.replace(key_bytes(key), value_bytes(value)?)?;
        old.try_map(|bytes| self.decode(bytes))
    }

    /// Removes a key, and returns its value; see [`TypedTree::take`].
    pub fn take<Q: Key + ?Sized>(self, key: &Q) -> Result<Pending<Option<V>>>
    where
        K: EncodedLike<Q>,
    {
        let old = self.tree.beneath().pending().take(key_bytes(key))?;
        old.try_map(|bytes| self.decode(bytes))
    }

    /// Computes the new value of a key from the old one, and returns the old one; see
    /// [`TypedTree::fetch_update`]. The old value that `update` gets may not be durable yet.
    pub fn fetch_update<Q: Key + ?Sized>(
        self,
        key: &Q,
        mut update: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<Pending<Option<V>>>
    where
        K: EncodedLike<Q>,
    {
        let tree = self.tree.beneath().pending();
        let key = key_bytes(key);
        let mut back_off = BackOff::spinning();
        loop {
            let bytes = tree.get(&key)?.take();
            let old = self.decode(bytes.clone())?;
            let new = update(old).as_ref().map(value_bytes).transpose()?;
            let exchanged = tree.compare_exchange(&key, bytes.as_deref(), new.as_deref())?;
            if exchanged.peek() == Some(&true) {
                return exchanged.try_map(|_| self.decode(bytes));
            }
            back_off.pause();
        }
    }

    /// The entry with the smallest key; see [`TypedTree::first`].
    pub fn first(self) -> Result<Pending<Option<(K, V)>>> {
        let found = self.tree.beneath().pending().first()?;
        found.try_map(|entry| self.decode_entry(entry))
    }

    /// The entry with the greatest key; see [`TypedTree::last`].
    pub fn last(self) -> Result<Pending<Option<(K, V)>>> {
        let found = self.tree.beneath().pending().last()?;
        found.try_map(|entry| self.decode_entry(entry))
    }

    /// The first entry above a key; see [`TypedTree::next_above`].
    pub fn next_above<Q: Key + ?Sized>(self, key: &Q) -> Result<Pending<Option<(K, V)>>>
    where
        K: EncodedLike<Q>,
    {
        let found = self.tree.beneath().pending().next_above(key_bytes(key))?;
        found.try_map(|entry| self.decode_entry(entry))
    }

    /// The last entry below a key; see [`TypedTree::next_below`].
    pub fn next_below<Q: Key + ?Sized>(self, key: &Q) -> Result<Pending<Option<(K, V)>>>
    where
        K: EncodedLike<Q>,
    {
        let found = self.tree.beneath().pending().next_below(key_bytes(key))?;
        found.try_map(|entry| self.decode_entry(entry))
    }

    /// Removes the entry with the smallest key, and returns it; see [`TypedTree::pop_first`].
    pub fn pop_first(self) -> Result<Pending<Option<(K, V)>>> {
        let removed = self.tree.beneath().pending().pop_first()?;
        removed.try_map(|entry| self.decode_entry(entry))
    }

    /// Removes the entry with the greatest key, and returns it; see [`TypedTree::pop_last`].
    pub fn pop_last(self) -> Result<Pending<Option<(K, V)>>> {
        let removed = self.tree.beneath().pending().pop_last()?;
        removed.try_map(|entry| self.decode_entry(entry))
    }

    fn decode_entry(&self, entry: Option<Entry>) -> Result<Option<(K, V)>> {
        match entry {
            Some((key, value)) => Ok(Some(self.tree.entry(key, value)?)),
            None => Ok(None),
        }
    }

    fn decode(&self, bytes: Option<Value>) -> Result<Option<V>> {
        match bytes {
            Some(bytes) => Ok(Some(self.tree.value(&bytes)?)),
            None => Ok(None),
        }
    }
}

impl<T> Pending<T> {
    /// Converts the result; an error if `convert` returns one.
    fn try_map<U>(self, convert: impl FnOnce(T) -> Result<U>) -> Result<Pending<U>> {
        let value = match self.value {
            Some(value) => Some(convert(value)?),
            None => None,
        };
        Ok(Pending {
            value,
            lsn: self.lsn,
            epoch: self.epoch,
            store: self.store,
        })
    }

    /// Converts the result.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Pending<U> {
        Pending {
            value: self.value.map(convert),
            lsn: self.lsn,
            epoch: self.epoch,
            store: self.store,
        }
    }
}
