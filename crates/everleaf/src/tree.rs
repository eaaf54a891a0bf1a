//! A tree of byte strings.

use std::cell::Cell;
use std::sync::Arc;

use engines::batch::Target;
use engines::engine::AnyTree;
use engines::index::{Bounds, EpochStat, Epochs, Index, IndexStat, Value, Violation};
use engines::{Error, ErrorKind, Result};

use crate::store::{Inner, OpenTree};
use crate::{KeyRange, Range, Ticket, TreeOptions, WordTree};

/// A thread keeps no larger buffer than this for [`Tree::get_with`].
const LENT_BYTES_KEPT: usize = 1 << 20;

/// An ordered map from byte strings to byte strings, by name in a [`Store`](crate::Store).
///
/// Cheap to clone; keeps the store open. All methods may be called from any number of threads. A
/// write is durable when it returns, and no reader sees it before, unless the store was opened with
/// another [`crate::Durability`], or the engine is durable by epochs
/// ([`Engine::is_buffered`](crate::Engine::is_buffered)). Keys have 0 bytes to 64 KiB, values 0
/// bytes to 16 MiB; in a tree of words ([`Codec::Word`](crate::Codec::Word)) both have exactly 8.
///
/// # Errors of all methods
/// [`ErrorKind::KeyTooLong`], [`ErrorKind::ValueTooLong`], [`ErrorKind::NotAWord`] for arguments
/// beyond these limits; [`ErrorKind::Corrupt`] where the tree is damaged; [`ErrorKind::Medium`] if
/// the medium failed. Writes also [`ErrorKind::PoolFull`]: nothing was changed, and the tree stays
/// usable; and [`ErrorKind::ReadOnly`] in a store that is only read
/// ([`Options::read_only`](crate::Options::read_only)). [`Error::path`] is the pool's path.
#[derive(Clone)]
pub struct Tree {
    // Dropped before the store.
    any: AnyTree,
    context: Arc<Context>,
}

struct Context {
    name: String,
    kind: TreeOptions,
    /// The first root word, which no other tree of the pool has.
    anchor: u64,
    store: Arc<Inner>,
}

impl Tree {
    pub(crate) fn new(tree: &OpenTree, name: &str, store: Arc<Inner>) -> Self {
        let OpenTree { any, kind, anchor } = tree;
        let context = Context {
            name: name.to_owned(),
            kind: *kind,
            anchor: *anchor,
            store,
        };
        Self {
            any: any.clone(),
            context: Arc::new(context),
        }
    }

    pub(crate) fn store(&self) -> &Arc<Inner> {
        &self.context.store
    }

    /// Whether it is another handle of the same tree.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.any.index, &other.any.index)
    }

    /// The tree as batches of engines name it.
    pub(crate) fn target(&self) -> Target<'_> {
        let Context {
            name, kind, anchor, ..
        } = &*self.context;
        Target {
            name,
            index: &*self.any.index,
            engine: kind.engine,
            codec: kind.codec,
            anchor: *anchor,
        }
    }

    /// The running epoch, if the tree is durable by epochs.
    pub(crate) fn running_epoch(&self) -> Option<(Arc<dyn Index>, u64)> {
        let epoch = self.any.index.epochs()?.epoch_stat().running;
        Some((Arc::clone(&self.any.index), epoch))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// Its engine and codec.
    pub fn kind(&self) -> TreeOptions {
        self.context.kind
    }

    /// The engine beneath, for comparisons. Its errors lack the pool's path, and it tries a write
    /// to a full pool only once. In a store that is only read it takes writes, and they are lost.
    #[inline(always)]
    pub fn index(&self) -> &dyn Index {
        &*self.any.index
    }

    /// The same tree as a tree of words, whatever its engine; `None` if it is one of records.
    ///
    /// ```
    /// # use everleaf::{Engine, Store, TreeOptions};
    /// # let store = Store::in_memory()?;
    /// let tree = store.tree_with("ages", TreeOptions { engine: Engine::BZTREE, ..TreeOptions::WORDS })?;
    /// let ages = tree.as_words().expect("made as one");
    /// ages.put(7, 41)?;
    /// assert_eq!(tree.get(7_u64.to_be_bytes())?.as_deref(), Some(&41_u64.to_be_bytes()[..]));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn as_words(&self) -> Option<WordTree> {
        let words = self.any.words.clone()?;
        Some(WordTree::new(self.clone(), words))
    }

    #[cold]
    pub(crate) fn name_path(&self, error: Error) -> Error {
        self.context.store.name_path(error)
    }

    #[inline(always)]
    pub(crate) fn at<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.name_path(error))
    }

    /// A write, tried twice if the pool is full at first.
    #[inline(always)]
    pub(crate) fn written<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        self.at(self.context.store.written(attempt))
    }

    /// The value of `key`: a copy, which derefs to `[u8]`; up to 24 bytes cost no allocation. O(log
    /// n).
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.at(self.any.index.get(key.as_ref()))
    }

    /// Copies the value of `key` into `value`, which is cleared first; `false` if the key is
    /// absent. For reading many values without allocations. O(log n).
    #[inline]
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        self.at(self.any.index.get_into(key.as_ref(), value))
    }

    /// Calls `read` with the value of `key`, if it is present, and returns what that returns. The
    /// value is lent from a buffer of the thread that is used again, so reading costs no
    /// allocation. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let tree = store.tree("texts")?;
    /// tree.put("greeting", "good morning")?;
    /// assert_eq!(tree.get_with("greeting", |value| value.len())?, Some(12));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn get_with<T>(
        &self,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        thread_local!(static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) });
        // Taken out, as `read` may read another value.
        let mut buffer = BUFFER.take();
        let found = self.get_into(key, &mut buffer);
        let result = found.map(|is_present| is_present.then(|| read(&buffer)));
        if buffer.capacity() <= LENT_BYTES_KEPT {
            BUFFER.set(buffer);
        }
        result
    }

    /// Whether `key` is present. O(log n).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(key).map(|value| value.is_some())
    }

    /// Adds a key; `false`, and nothing changes, if it is present. O(log n).
    #[inline]
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.written(|| self.any.index.insert(key.as_ref(), value.as_ref()))
    }

    /// Replaces the value of a key; `false`, and nothing changes, if it is absent. O(log n).
    #[inline]
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.written(|| self.any.index.update(key.as_ref(), value.as_ref()))
    }

    /// Sets the value of a key, whether it is present or not. O(log n).
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.written(|| self.any.index.put(key.as_ref(), value.as_ref()))
    }

    /// Removes a key; `false` if it is absent. O(log n).
    #[inline]
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.written(|| self.any.index.remove(key.as_ref()))
    }

    /// Replaces `current` by `new` in one atomic step; `None` stands for absent. Returns whether
    /// the key had `current`; if not, nothing changes. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let tree = store.tree("locks")?;
    /// assert!(tree.compare_exchange("door", None, Some(b"mine"))?);
    /// assert!(!tree.compare_exchange("door", None, Some(b"yours"))?);
    /// assert!(tree.compare_exchange("door", Some(b"mine"), None)?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn compare_exchange(
        &self,
        key: impl AsRef<[u8]>,
        current: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.written(|| self.any.index.compare_exchange(key.as_ref(), current, new))
    }

    /// A write that returns before it is durable, and what to wait for: or several, all of this
    /// store and none of them with a ticket of its own. Where one of them fails, those before it
    /// have no ticket; [`Store::sync`](crate::Store::sync) waits for them.
    #[doc(hidden)]
    #[inline]
    pub fn ticketed<T>(&self, write: impl FnOnce() -> Result<T>) -> Result<(T, Ticket)> {
        let (result, lsn) = medium::deferred(write);
        let epoch = self.running_epoch();
        Ok((result?, Ticket::new(lsn, epoch, &self.context.store)))
    }

    /// As [`Tree::put`], but returns before it is durable: the [`Ticket`] is for waiting. One
    /// thread can so keep many writes under way and wait for them together. Other readers see the
    /// value only once it is durable (with
    /// [`Durability::Immediate`](crate::Durability::Immediate)): they wait for it. A writer that
    /// gets 8 MiB of log ahead of the disk waits.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let tree = store.tree("readings")?;
    /// let tickets = (0..64_u32)
    ///     .map(|time| tree.put_async(time.to_be_bytes(), "21.5 C"))
    ///     .collect::<Result<Vec<_>, _>>()?;
    /// everleaf::Ticket::wait_all(tickets)?;
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn put_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Ticket> {
        self.ticketed(|| self.put(key, value))
            .map(|((), ticket)| ticket)
    }

    /// As [`Tree::insert`], with a ticket, as [`Tree::put_async`]. The ticket is for the answer
    /// `false` as well: it may rest on what is not durable yet.
    pub fn insert_async(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(bool, Ticket)> {
        self.ticketed(|| self.insert(key, value))
    }

    /// As [`Tree::update`], with a ticket, as [`Tree::insert_async`].
    pub fn update_async(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(bool, Ticket)> {
        self.ticketed(|| self.update(key, value))
    }

    /// As [`Tree::remove`], with a ticket, as [`Tree::insert_async`].
    pub fn remove_async(&self, key: impl AsRef<[u8]>) -> Result<(bool, Ticket)> {
        self.ticketed(|| self.remove(key))
    }

    /// As [`Tree::compare_exchange`], with a ticket, as [`Tree::insert_async`].
    pub fn compare_exchange_async(
        &self,
        key: impl AsRef<[u8]>,
        current: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<(bool, Ticket)> {
        self.ticketed(|| self.compare_exchange(key, current, new))
    }

    /// The values of many keys, in their order: several times as fast as one [`Tree::get`] after
    /// the other, because the waits for memory overlap. O(keys * log n). Not a snapshot: each value
    /// is as of some moment of the call.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.at(self.any.index.get_many(&keys))
    }

    /// The entries within a range of keys, in order; `rev()` reads them from the end. O(log n),
    /// then O(1) an entry.
    pub fn range(&self, range: impl KeyRange) -> Range<'_> {
        Range::new(self, range.into_bounds())
    }

    /// The entries whose keys begin with `prefix`, as [`Tree::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range<'_> {
        Range::new(self, Bounds::prefix(prefix.as_ref()))
    }

    /// All entries, as [`Tree::range`].
    pub fn iter(&self) -> Range<'_> {
        self.range(..)
    }

    /// The number of keys; exact when no thread writes. O(leaves).
    pub fn len(&self) -> Result<u64> {
        self.at(self.any.index.len())
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> Result<bool> {
        self.at(self.any.index.is_empty())
    }

    /// Fills an empty tree from entries in strictly ascending order, leaves to `fill` of their
    /// capacity (0.5 to 1.0; other values are clamped). Wholly done or not at all, also across a
    /// crash. Returns the number of entries. O(n), and much faster than as many inserts. Until it
    /// is done, it keeps what it would have to undo in memory: up to 16 bytes an entry, nothing for
    /// words in [`Engine::RNTREE`](crate::Engine::RNTREE), next to nothing in
    /// [`Engine::MASSTREE`](crate::Engine::MASSTREE). Epochs end meanwhile, and the load is durable
    /// with the one in which it ends.
    ///
    /// # Errors
    /// [`ErrorKind::NotEmpty`]; [`ErrorKind::NotSorted`] with the place of the first entry out of
    /// order.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
        fill: f64,
    ) -> Result<u64> {
        self.try_bulk_load(entries.into_iter().map(Ok::<_, Error>), fill)
    }

    /// As [`Tree::bulk_load`], from a source that may fail: its first error is returned, and
    /// nothing is loaded.
    pub fn try_bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        &self,
        entries: impl IntoIterator<Item = std::result::Result<(K, V), E>>,
        fill: f64,
    ) -> std::result::Result<u64, E> {
        self.at(self.context.store.expect_writable())?;
        // The source cannot be read twice, so there is no second attempt: free space is found
        // before the first one. Soon after a crash that waits for recovery in the background.
        self.context.store.find_space();
        let mut entries = entries.into_iter();
        let mut failure = None;
        let loaded = self.any.index.bulk_load(
            &mut |key, value| match entries.next() {
                None => Ok(false),
                Some(Ok((new_key, new_value))) => {
                    key.clear();
                    key.extend_from_slice(new_key.as_ref());
                    value.clear();
                    value.extend_from_slice(new_value.as_ref());
                    Ok(true)
                }
                Some(Err(error)) => {
                    failure = Some(error);
                    // Only stops the load; the source's own error is what the caller gets.
                    Err(ErrorKind::InUse.into())
                }
            },
            if fill.is_nan() {
                1.0
            } else {
                fill.clamp(0.5, 1.0)
            },
        );
        match failure {
            Some(error) => Err(error),
            None => Ok(self.at(loaded)?),
        }
    }

    /// Verifies the whole structure and returns every violation. O(n). Writers of a leaf wait for a
    /// moment; those of [`Engine::MASSTREE`](crate::Engine::MASSTREE) until the end.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.at(self.any.index.check())
    }

    /// Figures. O(leaves); with [`Engine::MASSTREE`](crate::Engine::MASSTREE) O(n).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a node cannot be read.
    pub fn stat(&self) -> Result<IndexStat> {
        self.at(self.any.index.stat())
    }

    /// Figures of a tree that is durable by epochs
    /// ([`Engine::is_buffered`](crate::Engine::is_buffered)): the progress of the sweep after a
    /// crash, and what the ends of epochs took. `None` for other trees. O(1), unlike
    /// [`Tree::stat`].
    pub fn epoch_stat(&self) -> Option<EpochStat> {
        self.any.index.epochs().map(Epochs::epoch_stat)
    }

    /// What the engine counted since the tree was opened, by name. Each engine has counters of its
    /// own.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.any.index.counters()
    }
}

impl<'t> IntoIterator for &'t Tree {
    type Item = Result<(Value, Value)>;
    type IntoIter = Range<'t>;

    fn into_iter(self) -> Range<'t> {
        self.iter()
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Tree")
            .field("name", &self.context.name)
            .field("kind", &self.context.kind)
            .finish_non_exhaustive()
    }
}
