//! A tree of byte strings.

use std::cell::Cell;
use std::sync::Arc;

use engines::batch::{BatchTree, StripedTree};
use engines::index::{
    Condition, EpochStat, Epochs, Index, IndexStat, Observed, Value, Violation, Written,
};
use engines::{Error, ErrorKind, Result};
use medium::Lsn;
use pool::Encodings;

use crate::TreeOptions;
use crate::backend::OpenTree;
use crate::open_store::SharedStore;
use crate::tree_types::WantedEntries;

/// The largest buffer that a thread keeps for [`Tree::get_with`], in bytes.
const LENT_BYTES_KEPT: usize = 1 << 20;

/// An ordered map from byte strings to byte strings, by name in a [`Store`](crate::Store).
///
/// Cheap to clone; keeps the store open. All methods may be called from any number of threads. A
/// write is durable when it returns, and no reader sees it before, unless the store was opened with
/// another [`crate::Durability`], or the engine is durable by epochs
/// ([`Engine::is_buffered`](crate::Engine::is_buffered)). Keys have 0 bytes to 64 KiB, values 0
/// bytes to 16 MiB; in a tree of words ([`CodecKind::Word`](crate::CodecKind::Word)) both have
/// exactly 8.
///
/// A tree that remembers the types of its keys and values ([`Store::typed`](crate::Store::typed)) is
/// only read through this type: each write is [`ErrorKind::TypedTree`].
///
/// # Errors of all methods
/// [`ErrorKind::KeyTooLong`], [`ErrorKind::ValueTooLong`], [`ErrorKind::NotAWord`] for arguments
/// beyond these limits; [`ErrorKind::Corrupt`] where the tree is damaged; [`ErrorKind::Medium`] if
/// the medium failed. Writes also [`ErrorKind::PoolFull`]: nothing was changed, and the tree stays
/// usable; and [`ErrorKind::ReadOnly`] in a store that is only read
/// ([`Options::read_only`](crate::Options::read_only)). [`ErrorKind::Forked`] in a child that was
/// forked after the open. [`Error::path`] is the pool's path.
#[derive(Clone)]
pub struct Tree {
    // Dropped before the store.
    striped: Arc<StripedTree>,
    context: Arc<TreeContext>,
    /// Whether the tree has encodings, and a user of this handle may write bytes that are none of
    /// them.
    is_only_read: bool,
    /// Whether a process that writes the pool can overtake the store.
    is_in_place: bool,
}

struct TreeContext {
    name: String,
    kind: TreeOptions,
    /// The encodings of keys and values, when the handle was made.
    encodings: Option<Encodings>,
    /// The first root word, which no other tree of the pool has.
    anchor: u64,
    store: SharedStore,
}

impl Tree {
    /// A handle of an open tree for a user that reads and writes these entries.
    pub(crate) fn new(
        tree: &OpenTree,
        name: &str,
        entries: &WantedEntries<'_>,
        store: SharedStore,
    ) -> Self {
        let is_in_place = store.is_in_place();
        let context = TreeContext {
            name: name.to_owned(),
            kind: tree.kind,
            encodings: tree.encodings.clone(),
            anchor: tree.anchor,
            store,
        };
        let is_only_read = match entries {
            WantedEntries::Bytes => tree.encodings.is_some(),
            WantedEntries::Typed(_) => false,
        };
        Self {
            striped: Arc::clone(&tree.striped),
            context: Arc::new(context),
            is_only_read,
            is_in_place,
        }
    }

    /// Another handle of the same tree, for byte strings: it only reads a tree that has encodings.
    pub(crate) fn for_bytes(&self) -> Self {
        Self {
            is_only_read: self.context.encodings.is_some(),
            ..self.clone()
        }
    }

    /// Another handle of the same tree, for a user that writes keys and values in its encodings.
    pub(crate) fn for_its_encodings(&self) -> Self {
        Self {
            is_only_read: false,
            ..self.clone()
        }
    }

    /// Refuses a write through a handle that only reads, as the bytes may be no keys and values of
    /// the tree.
    ///
    /// # Errors
    /// [`ErrorKind::TypedTree`].
    #[inline(always)]
    pub(crate) fn expect_writes(&self) -> Result<()> {
        if self.is_only_read {
            return Err(self.refusal());
        }
        Ok(())
    }

    #[cold]
    fn refusal(&self) -> Error {
        let types = self.encodings().map(ToString::to_string);
        self.name_path(
            ErrorKind::TypedTree {
                name: self.name().to_owned(),
                types: types.unwrap_or_default(),
            }
            .into(),
        )
    }

    pub(crate) fn store(&self) -> &SharedStore {
        &self.context.store
    }

    /// Refuses a tree of another store.
    ///
    /// # Errors
    /// [`ErrorKind::OfAnotherStore`], with the path of `store`.
    pub(crate) fn expect_of(&self, store: &SharedStore) -> Result<()> {
        if store.is_same(self.store()) {
            return Ok(());
        }
        let refused = ErrorKind::OfAnotherStore {
            name: self.name().to_owned(),
            other: self.store().path.clone(),
        };
        Err(store.name_path(refused.into()))
    }

    /// Whether it is another handle of the same tree.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.striped, &other.striped)
    }

    /// The tree as batches of engines name it.
    pub(crate) fn target(&self) -> BatchTree<'_> {
        let TreeContext {
            name, kind, anchor, ..
        } = &*self.context;
        BatchTree::new(name, &self.striped, *anchor, kind.codec, &kind.engine)
    }

    #[inline(always)]
    pub(crate) fn striped(&self) -> &StripedTree {
        &self.striped
    }

    /// The tree, shared with a pending result.
    pub(crate) fn shared(&self) -> Arc<dyn Index> {
        Arc::clone(&self.striped) as _
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// Its engine and codec.
    pub fn kind(&self) -> TreeOptions {
        self.context.kind
    }

    /// The encodings of its keys and values, by name; `None` if it is a tree of byte strings or of
    /// words.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// store.typed::<(String, u32), f64>("scores")?;
    /// let scores = store.open_tree("scores")?;
    /// assert_eq!(scores.encodings().unwrap().to_string(), "(text,u32) -> f64");
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn encodings(&self) -> Option<&Encodings> {
        self.context.encodings.as_ref()
    }

    /// The engine beneath, for comparisons. Its errors lack the pool's path, and it tries a write
    /// to a full pool only once. In a store that is only read it accepts writes, which are lost, and
    /// it does not notice when another process has overtaken the store. It writes any bytes to a
    /// tree that has encodings.
    #[inline(always)]
    pub fn index(&self) -> &dyn Index {
        &*self.striped
    }

    #[cold]
    pub(crate) fn name_path(&self, error: Error) -> Error {
        self.context.store.name_path(error)
    }

    /// Passes on what was read or written, with the path of the store if it is an error.
    #[inline(always)]
    pub(crate) fn at<T>(&self, result: Result<T>) -> Result<T> {
        if self.is_in_place {
            return self.context.store.believe(result);
        }
        result.map_err(|error| self.name_path(error))
    }

    /// A write, tried twice if the pool is full at first, and its wait. Returns whether its
    /// condition held.
    #[inline(always)]
    pub(crate) fn write(&self, attempt: impl Fn() -> Result<Written>) -> Result<bool> {
        self.expect_writes()?;
        let store = &self.context.store;
        let written = self.at(store.ordered(attempt))?;
        self.wait_for(written.lsn)?;
        Ok(written.held)
    }

    /// Takes the answer of a read, once it is durable.
    #[inline(always)]
    pub(crate) fn answer<T>(&self, found: Result<Observed<T>>) -> Result<T> {
        let found = self.at(found)?;
        self.wait_for(found.lsn)?;
        Ok(found.value)
    }

    /// Waits for an operation, unless the durability of operations is put off.
    #[inline(always)]
    pub(crate) fn wait_for(&self, lsn: Lsn) -> Result<()> {
        if lsn == Lsn::DURABLE {
            return Ok(());
        }
        self.at(self.context.store.wait_for(lsn))
    }

    /// The value of `key`: a copy, which derefs to `[u8]`; up to 24 bytes cost no allocation. O(log
    /// n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// stock.put("apple", "12")?;
    /// let count = stock.get("apple")?.expect("it was put");
    /// assert_eq!(&*count, b"12");
    /// assert_eq!(stock.get("plum")?, None);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.answer(self.striped.read(key.as_ref()))
    }

    /// Copies the value of `key` into `value`, which is cleared first; `false` if the key is
    /// absent. For reading many values without allocations. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// stock.put("apple", "12")?;
    /// let mut count = Vec::new();
    /// assert!(stock.get_into("apple", &mut count)?);
    /// assert_eq!(count, b"12");
    /// assert!(!stock.get_into("plum", &mut count)?);
    /// assert!(count.is_empty());
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    #[inline]
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        self.answer(self.striped.read_into(key.as_ref(), value))
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
        // The buffer is taken out, since `read` may call this method for another value.
        let mut buffer = BUFFER.take();
        let found = self.get_into(key, &mut buffer);
        let result = found.map(|is_present| is_present.then(|| read(&buffer)));
        if buffer.capacity() <= LENT_BYTES_KEPT {
            BUFFER.set(buffer);
        }
        result
    }

    /// Whether `key` is present. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let seen = store.tree("seen")?;
    /// seen.put("page 1", "")?; // an empty value is a value
    /// assert!(seen.contains("page 1")?);
    /// assert!(!seen.contains("page 2")?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(key).map(|value| value.is_some())
    }

    /// Adds a key; `false`, and nothing changes, if it is present. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let users = store.tree("users")?;
    /// assert!(users.insert("ada", "1815")?);
    /// assert!(!users.insert("ada", "1816")?);
    /// assert_eq!(users.get("ada")?.as_deref(), Some(b"1815".as_slice()));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    #[inline]
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let value = Some(value.as_ref());
        self.write(|| self.striped.write(key.as_ref(), value, Condition::Absent))
    }

    /// Replaces the value of a key; `false`, and nothing changes, if it is absent. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let users = store.tree("users")?;
    /// assert!(!users.update("ada", "1815")?);
    /// assert!(users.is_empty()?);
    /// users.put("ada", "1815")?;
    /// assert!(users.update("ada", "1816")?);
    /// assert_eq!(users.get("ada")?.as_deref(), Some(b"1816".as_slice()));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    #[inline]
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let value = Some(value.as_ref());
        self.write(|| self.striped.write(key.as_ref(), value, Condition::Present))
    }

    /// Sets the value of a key, whether it is present or not. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// stock.put("apple", "12")?; // adds the key
    /// stock.put("apple", "9")?; // replaces its value
    /// assert_eq!(stock.get("apple")?.as_deref(), Some(b"9".as_slice()));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let value = Some(value.as_ref());
        self.write(|| self.striped.write(key.as_ref(), value, Condition::Always))
            .map(|_| ())
    }

    /// Removes a key; `false` if it is absent. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// stock.put("apple", "12")?;
    /// assert!(stock.remove("apple")?);
    /// assert!(!stock.remove("apple")?); // it is gone already
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    #[inline]
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.write(|| self.striped.write(key.as_ref(), None, Condition::Present))
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
        self.write(|| self.striped.exchange(key.as_ref(), current, new))
    }

    /// The values of many keys, in their order: several times as fast as one [`Tree::get`] after
    /// the other, because the waits for memory overlap. O(keys * log n). Not a snapshot: each value
    /// is as of some moment of the call.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// stock.put("apple", "12")?;
    /// stock.put("pear", "3")?;
    /// let counts = stock.get_many(&["pear", "plum", "apple"])?;
    /// assert_eq!(counts[0].as_deref(), Some(b"3".as_slice()));
    /// assert_eq!(counts[1], None);
    /// assert_eq!(counts[2].as_deref(), Some(b"12".as_slice()));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.answer(self.striped.read_many(&keys))
    }

    /// The number of keys; exact when no thread writes. O(leaves).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// stock.put("apple", "12")?;
    /// stock.put("apple", "9")?;
    /// stock.put("pear", "3")?;
    /// assert_eq!(stock.len()?, 2);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn len(&self) -> Result<u64> {
        self.at(self.striped.len())
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> Result<bool> {
        self.at(self.striped.is_empty())
    }

    /// Fills an empty tree from entries in strictly ascending order, leaves to `fill` of their
    /// capacity (0.5 to 1.0; other values are clamped). The load is atomic, also across a crash.
    /// Returns the number of entries. O(n), and much faster than inserting the entries one by one.
    /// Until it is done, it keeps in memory what an undo would need: up to 16 bytes an entry,
    /// nothing for words in [`Engine::RNTREE`](crate::Engine::RNTREE), and a small constant in
    /// [`Engine::MASSTREE`](crate::Engine::MASSTREE). Epochs end meanwhile, and the load is durable
    /// with the one in which it ends.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::ErrorKind;
    ///
    /// let squares = store.tree("squares")?;
    /// let unsorted = squares.bulk_load([("b", "4"), ("a", "1")], 1.0).unwrap_err();
    /// assert!(matches!(unsorted.kind(), ErrorKind::NotSorted { index: 1 }));
    /// assert!(squares.is_empty()?); // nothing was loaded
    ///
    /// let entries = (0..1000_u32).map(|n| (n.to_be_bytes(), (n * n).to_string()));
    /// assert_eq!(squares.bulk_load(entries, 1.0)?, 1000);
    /// assert_eq!(squares.get(30_u32.to_be_bytes())?.as_deref(), Some(b"900".as_slice()));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotEmpty`]; [`ErrorKind::NotSorted`] with the place of the first entry out of
    /// order; [`ErrorKind::InLoadSource`] if the source of a load of this tree calls it.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
        fill: f64,
    ) -> Result<u64> {
        self.try_bulk_load(entries.into_iter().map(Ok::<_, Error>), fill)
    }

    /// Does the same as [`Tree::bulk_load`], from a source that may fail: then the source's error
    /// is returned, and nothing is loaded.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// let lines = ["apple 12", "pear"];
    /// let entries = lines.into_iter().map(|line| match line.split_once(' ') {
    ///     Some(entry) => Ok(entry),
    ///     None => Err(format!("no count in {line:?}").into()),
    /// });
    /// let failed: Box<dyn std::error::Error> = stock.try_bulk_load(entries, 1.0).unwrap_err();
    /// assert_eq!(failed.to_string(), "no count in \"pear\"");
    /// assert!(stock.is_empty()?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn try_bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        &self,
        entries: impl IntoIterator<Item = std::result::Result<(K, V), E>>,
        fill: f64,
    ) -> std::result::Result<u64, E> {
        self.expect_writes()?;
        self.at(self.context.store.expect_writable())?;
        // The source cannot be read twice, so there is no second attempt, and free space is found
        // before the first one. Soon after a crash this waits for recovery in the background.
        self.context.store.find_space();
        let mut entries = entries.into_iter();
        let failure = Cell::new(None);
        self.store().note_write();
        let loaded = self.striped.bulk_load(
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
                    failure.set(Some(error));
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
        match failure.into_inner() {
            Some(error) => Err(error),
            None => Ok(self.at(loaded)?),
        }
    }

    /// Verifies the whole structure and returns every violation. O(n). Writers of a leaf wait for a
    /// moment; those of [`Engine::MASSTREE`](crate::Engine::MASSTREE) until the end.
    /// [`Store::check`](crate::Store::check) checks all trees, and has an example.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.at(self.striped.check())
    }

    /// Figures. O(leaves); with [`Engine::MASSTREE`](crate::Engine::MASSTREE) O(n).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a node cannot be read.
    pub fn stat(&self) -> Result<IndexStat> {
        self.at(self.striped.stat())
    }

    /// Figures of a tree that is durable by epochs
    /// ([`Engine::is_buffered`](crate::Engine::is_buffered)): the progress of the sweep after a
    /// crash, and what the ends of epochs took. `None` for other trees, and in a child that was forked
    /// after the open. O(1), unlike [`Tree::stat`].
    pub fn epoch_stat(&self) -> Option<EpochStat> {
        self.striped.epochs().map(Epochs::epoch_stat)
    }

    /// Of trees that are durable by epochs, one whose epochs are those of the pool; if all are
    /// transient, one of these.
    pub(crate) fn that_ends_epoch<'t>(trees: impl Iterator<Item = &'t Self>) -> Option<&'t Self> {
        let mut found = None;
        for tree in trees {
            if tree.striped.shared_epochs().is_some() {
                return Some(tree);
            }
            found = Some(tree);
        }
        found
    }

    /// The counters of the engine since the tree was opened, by name. Each engine has counters of its
    /// own. None in a child that was forked after the open.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.index().counters()
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
