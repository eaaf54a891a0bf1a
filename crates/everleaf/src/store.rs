//! A store: one pool file and the trees in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engines::batch::StripedTree;
use engines::engine::{CodecKind, Settings};
use engines::index::{Bounds, Direction, Index, LeftOut, Violation};
use engines::versions::VersionsStat;
use engines::{Error, ErrorKind, Result};
use medium::FileLock;
use medium::file::InPlace;
use medium::{FilePlace, FileStat, LineForm, Survives};
use pool::{DamagedRoot, Encodings, LostCopy, NewTree, Roots, TreeRoot};

use crate::backend::{Backend, OpenTree, StoreOpening};
use crate::open_store::{OpenStore, ReadSource, Reopen, SharedStore};
use crate::recovery::{DamagedPart, NotRecovered, Recovered, Recovery};
use crate::tree_types::{EntryTypes, TypeFit, WantedEntries, encodings_of_words, mismatch};
use crate::violation::{StoreViolation, of_class};
use crate::{Tree, TreeOptions, WordTree};

/// A file with named trees. Cheap to clone; closed cleanly when the last clone and the last tree of
/// it are dropped.
///
/// One process writes to a pool at a time, and within it one store: a second open fails with
/// [`ErrorKind::Locked`], also in the same process. Any number of stores may read it, also beside
/// the one that writes: [`Options::read_only`](crate::Options::read_only). All methods may be called
/// from any thread.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// use everleaf::{ErrorKind, Store};
///
/// let store = Store::open(&path)?;
/// let stock = store.tree("stock")?;
/// stock.put("apple", "12")?;
/// let second = Store::open(&path).unwrap_err();
/// assert!(matches!(second.kind(), ErrorKind::Locked { .. }));
///
/// drop(store); // the tree keeps the store open
/// drop(stock); // the last handle closes it
/// assert!(Store::open(&path)?.tree("stock")?.contains("apple")?);
/// # Ok::<(), everleaf::Error>(())
/// ```
///
/// # Fork
/// Open a store after the fork, not before. A store belongs to the process that opened it. In a
/// child that was forked later, every operation of the store, of its trees, and of ranges and
/// [`Pending`](crate::Pending) results that are alive returns [`ErrorKind::Forked`], and changes
/// nothing; methods without a result to refuse, such as [`Store::path`], answer from memory. A
/// handle that is dropped there leaves the parent's pool alone, and its memory stays taken. A child
/// does not keep the pool locked. It may open stores of its own, and the same pool once the parent
/// has closed it. A function that Everleaf calls while an operation is under way, such as the source
/// of a bulk load, must not return in a child that it has forked. The system call `clone` and the
/// function `_Fork` run no handlers of a fork: a child made by them must `exec` or end.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: SharedStore,
}

/// A named tree, as [`Store::trees`] lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeInfo {
    /// Its name.
    pub name: String,
    /// Its engine and codec; `None` if this release does not know them, or they are damaged.
    pub kind: Option<TreeOptions>,
    /// The encodings of its keys and values; `None` if it is a tree of byte strings or of words, or
    /// they are damaged.
    pub encodings: Option<Encodings>,
}

/// Figures about a store.
#[derive(Clone, Debug)]
pub struct StoreStat {
    /// The pool's file.
    pub path: PathBuf,
    /// The version of the file's format.
    pub format_version: u32,
    /// A random number that no other pool has.
    pub uuid: u128,
    /// The form of its failure-atomic lines.
    pub line_form: LineForm,
    /// The medium in one line of text: its kind, its instructions, what it does not survive.
    pub medium: String,
    /// The failures that the store survives.
    pub survives: Survives,
    /// Length of the file, in bytes.
    pub file_bytes: u64,
    /// Bytes up to the high-water mark.
    pub high_water_bytes: u64,
    /// Bytes of the 64 KiB slabs that hold something.
    pub used_bytes: u64,
    /// Allocations in use: leaves and records.
    pub allocations: u64,
    /// Named trees.
    pub trees: u64,
    /// The report of the open.
    pub recovery: Recovery,
    /// After a crash, while the space in use is found out: how many allocations were found so far.
    /// `used_bytes` and `allocations` count only those. In a store that is only read it is not
    /// found out further than the open did.
    pub marked: Option<u64>,
    /// The line log: its size, checkpoints, group commits, and the memory of written pages; `None`
    /// on other media.
    pub log: Option<FileStat>,
    /// The snapshots and transactions that are open, and the old values that are kept for them.
    pub versions: VersionsStat,
    /// Weaknesses of the system that the store had to put up with, in words for people; usually
    /// none. An example is a file system that cannot sync folders.
    pub notes: Vec<String>,
}

impl Store {
    /// A store on a pool that was recovered. `place` is where its file lies, if it has a name;
    /// `source` is the file that it is read from, if it is only read.
    pub(crate) fn on(
        path: &Path,
        backend: Box<dyn Backend>,
        opening: StoreOpening,
        recovered: Recovered,
        place: Option<FilePlace>,
        source: Option<ReadSource>,
    ) -> Self {
        let inner = OpenStore::new(path, place, backend, opening, recovered, source);
        Self {
            inner: SharedStore::new(inner),
        }
    }

    /// The store, which keeps its pool locked.
    pub(crate) fn locked_by(mut self, lock: FileLock) -> Self {
        // No other handle of it exists yet.
        if let Some(inner) = self.inner.get_mut() {
            inner.keep_locked(lock);
        }
        self
    }

    /// The store, which finds out by `in_place` whether it was overtaken.
    pub(crate) fn resting_on(mut self, in_place: InPlace) -> Self {
        // No other handle of it exists yet.
        if let Some(inner) = self.inner.get_mut() {
            inner.rest_on(in_place);
        }
        self
    }

    /// The store, which is only read, and is opened again by `reopen`.
    pub(crate) fn reopened_by(mut self, reopen: Reopen) -> Self {
        // No other handle of it exists yet.
        if let Some(inner) = self.inner.get_mut() {
            inner.reopen_by(reopen);
        }
        self
    }

    /// Opens a store that is [only read](crate::Options::read_only) again, as of a newer moment: everything
    /// that another process had acknowledged as durable before this call is there. For a store that
    /// was overtaken ([`ErrorKind::ViewTooOld`]), or that shows an old state. This store and its
    /// trees stay as they are; trees have to be opened from the new one. Costs and errors are those
    /// of [`Options::open`](crate::Options::open). A store that is not only read shows every write at once, so this gives
    /// another handle of it.
    ///
    /// ```
    /// # use everleaf::{MediumChoice, Options, Store};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// let writer = Options::new().medium(MediumChoice::File).open(&path)?;
    /// let prices = writer.tree("prices")?;
    /// prices.put("apple", "12")?;
    /// let reader = Options::new().read_only(true).open(&path)?;
    /// prices.put("apple", "15")?;
    /// assert_eq!(reader.tree("prices")?.get("apple")?.as_deref(), Some(&b"12"[..]));
    /// let reader = reader.refresh()?;
    /// assert_eq!(reader.tree("prices")?.get("apple")?.as_deref(), Some(&b"15"[..]));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn refresh(&self) -> Result<Self> {
        let reopened = self.inner.reopened();
        match reopened.map_err(|error| self.inner.name_path(error))? {
            Some(inner) => Ok(Self { inner }),
            None => Ok(self.clone()),
        }
    }

    /// The store, with a note for each part of the pool's files that is missing.
    pub(crate) fn lacking(mut self, missing: Vec<String>) -> Self {
        // No other handle of it exists yet.
        if let Some(inner) = self.inner.get_mut() {
            for what in missing {
                inner.recovery.damaged.push(NotRecovered {
                    part: DamagedPart::Pool,
                    what,
                });
            }
        }
        self
    }

    /// The tree `name` of byte strings, whatever its engine; made with the default engine if it is
    /// missing. A tree with types of keys and values ([`Store::typed`]) opens to be read. A tree is opened when it is first asked for (after a crash, when the store is):
    /// with [`Engine::RNTREE`](crate::Engine::RNTREE) O(its leaves) once, on all cores; with
    /// [`Engine::BZTREE`](crate::Engine::BZTREE) and [`Engine::WBTREE`](crate::Engine::WBTREE)
    /// O(1); with [`Engine::MASSTREE`](crate::Engine::MASSTREE) O(1) after a clean close, else
    /// O(nodes in its log). O(log trees) from then on.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::ErrorKind;
    ///
    /// let stock = store.tree("stock")?; // makes the tree
    /// stock.put("apple", "12")?;
    /// assert!(store.tree("stock")?.contains("apple")?); // another handle of the same tree
    ///
    /// store.word_tree("ages")?;
    /// let refused = store.tree("ages").unwrap_err();
    /// assert!(matches!(refused.kind(), ErrorKind::TreeMismatch { .. }));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::TreeMismatch`]: it is a tree of words; for [`Store::tree_with`] also: it has
    ///   another engine, or nodes of other sizes;
    /// - [`ErrorKind::NodeSize`]: nodes cannot be of the size that is asked for;
    /// - [`ErrorKind::UnknownEngine`]: a newer release made it;
    /// - [`ErrorKind::BadTreeName`]: names have 1 to 128 bytes; [`ErrorKind::TooManyTrees`]: a pool
    ///   holds [`TREES_MAX`](crate::TREES_MAX) trees;
    /// - [`ErrorKind::Corrupt`]: the tree is damaged; [`ErrorKind::PoolFull`]: no room for a new
    ///   tree;
    /// - [`ErrorKind::NoSuchTree`]: it is missing, and the store is only read.
    pub fn tree(&self, name: &str) -> Result<Tree> {
        self.of_any_engine(name, TreeOptions::RECORDS, &WantedEntries::Bytes)
    }

    /// The tree `name`, made as `wanted` says if it is missing; an existing one may have another
    /// engine.
    pub(crate) fn of_any_engine(
        &self,
        name: &str,
        wanted: TreeOptions,
        entries: &WantedEntries<'_>,
    ) -> Result<Tree> {
        match self.at(self.find(name, None, entries)) {
            Err(error) if error.is_absent() => self.of_one_engine(name, wanted, entries),
            // The codec of a typed tree follows from its types.
            opened if matches!(entries, WantedEntries::Typed(_)) => opened,
            opened => opened.and_then(|tree| {
                let demanded = tree.kind().demand(
                    name,
                    TreeOptions {
                        codec: wanted.codec,
                        ..tree.kind()
                    },
                );
                self.at(demanded.map(|()| tree))
            }),
        }
    }

    /// The tree `name`, made with these options if it is missing; an existing one was made with the
    /// same options.
    pub(crate) fn of_one_engine(
        &self,
        name: &str,
        options: TreeOptions,
        entries: &WantedEntries<'_>,
    ) -> Result<Tree> {
        let found = self.find(name, Some(options), entries).and_then(|tree| {
            tree.kind().demand(name, options)?;
            Ok(tree)
        });
        self.at(found)
    }

    /// The tree `name`, made with these options if it is missing. Errors and cost are those of
    /// [`Store::tree`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::{Engine, ErrorKind, TreeOptions};
    ///
    /// let options = TreeOptions { engine: Engine::BZTREE, ..TreeOptions::RECORDS };
    /// store.tree_with("sessions", options)?;
    /// let refused = store.tree_with("sessions", TreeOptions::RECORDS).unwrap_err();
    /// assert!(matches!(refused.kind(), ErrorKind::TreeMismatch { .. }));
    /// // `tree` takes an existing tree of any engine.
    /// assert_eq!(store.tree("sessions")?.kind().engine, Engine::BZTREE);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn tree_with(&self, name: &str, options: TreeOptions) -> Result<Tree> {
        self.of_one_engine(name, options, &WantedEntries::Bytes)
    }

    /// The tree `name` for byte strings that the caller has encoded as `encodings` says, made with
    /// these options if it is missing. A program that knows the types of a tree only by name, such as
    /// one that copies trees, writes to it by this handle.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// # let copy = everleaf::Store::in_memory()?;
    /// let scores = store.typed::<String, u64>("scores")?;
    /// scores.put("ada", &7)?;
    ///
    /// let from = store.open_tree("scores")?;
    /// let encodings = from.encodings().expect("made with types");
    /// let to = copy.encoded_tree("scores", from.kind(), encodings)?;
    /// for entry in from.iter() {
    ///     let (key, value) = entry?;
    ///     to.put(key, value)?;
    /// }
    /// assert_eq!(copy.typed::<String, u64>("scores")?.get("ada")?, Some(7));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::TypeMismatch`]: the tree has entries, and other encodings or none;
    /// [`ErrorKind::BadEncoding`]: the names are empty, have spaces, or have more than 272 bytes
    /// together; and the errors of [`Store::tree_with`].
    pub fn encoded_tree(
        &self,
        name: &str,
        options: TreeOptions,
        encodings: &Encodings,
    ) -> Result<Tree> {
        let types = EntryTypes::named(encodings);
        self.of_one_engine(name, options, &WantedEntries::Typed(&types))
    }

    /// The tree `name` of `u64` keys and values, whatever its engine; made with the default engine
    /// if it is missing. Errors and cost are those of [`Store::tree`]. [`WordTree`] has an example.
    pub fn word_tree(&self, name: &str) -> Result<WordTree> {
        let tree = self.of_any_engine(name, TreeOptions::WORDS, &WantedEntries::Bytes)?;
        tree.as_words().ok_or_else(|| {
            let refused = mismatch(name, tree.encodings(), &encodings_of_words());
            self.inner.name_path(refused)
        })
    }

    /// The existing tree `name`, whatever its engine and codec. The cost is that of
    /// [`Store::tree`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::CodecKind;
    ///
    /// let missing = store.open_tree("ages").unwrap_err();
    /// assert!(missing.is_absent()); // nothing was made
    /// store.word_tree("ages")?;
    /// assert_eq!(store.open_tree("ages")?.kind().codec, CodecKind::Word);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchTree`], and the errors of [`Store::tree`].
    pub fn open_tree(&self, name: &str) -> Result<Tree> {
        self.at(self.find(name, None, &WantedEntries::Bytes))
    }

    /// Reads the undamaged entries of a damaged tree: calls `visit` with them in ascending order of
    /// keys, until it returns `false`. Returns the damage that it found, each with how much of the
    /// tree could not be read because of it ([`Part`](crate::Part)). If it found none, it returns
    /// the violations that [`Tree::check`] finds. For [`Engine::MASSTREE`](crate::Engine::MASSTREE)
    /// it also returns damage that cost no entry, such as a wrong count. The tree may be one that
    /// does not open. It is not changed, except by recovery if it can be opened. Entries that are
    /// written meanwhile may be left out. `visit` may use all trees, this one included, and may
    /// wait for other threads: no lock is held while it is called. Between its calls other threads
    /// wait for a tree of `masstree` while it is read. If damage cuts off nodes of a tree of byte
    /// strings, these are searched for in the slabs of the pool. The result says so, and whether
    /// some of their values may be outdated. O(n); with such a search O(pool).
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("a.pool");
    /// # let store = everleaf::Store::open(&path)?;
    /// # store.tree("stock")?.put("apple", "twelve apples")?;
    /// # store.tree("stock")?.put("pear", "three pears")?;
    /// # store.close()?;
    /// # let mut bytes = std::fs::read(&path)?;
    /// # let at = bytes.windows(13).position(|bytes| bytes == b"twelve apples").unwrap();
    /// # bytes[at] ^= 1;
    /// # std::fs::write(&path, bytes)?;
    /// // The tree has the keys "apple" and "pear". A bit of the value of "apple" has changed on disk.
    /// let store = everleaf::Store::open(&path)?;
    /// let mut saved = Vec::new();
    /// let lost = store.salvage("stock", |key, _| {
    ///     saved.push(key.to_vec());
    ///     true
    /// })?;
    /// assert_eq!(saved, [b"pear"]);
    /// assert_eq!(lost.len(), 1);
    /// assert_eq!(lost[0].part, everleaf::Part::Entry);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::NoSuchTree`]; [`ErrorKind::UnknownEngine`]: a newer release made it;
    /// - [`ErrorKind::TreeMismatch`]: it was made with leaves of another size;
    /// - [`ErrorKind::Corrupt`]: the slot of the root table that says where it begins is damaged.
    pub fn salvage(
        &self,
        name: &str,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<LeftOut>> {
        let backend = self.at(self.inner.backend())?;
        let opening = &self.inner.opening;
        // Kept open, so that no other thread drops the tree. A tree that does not open cannot be
        // dropped.
        let opened = self.find(name, None, &WantedEntries::Bytes);
        let salvaged = backend.roots().and_then(|roots| {
            let root = match roots.all().find(|root| root.name == name) {
                Some(root) => root,
                None => roots.find(name)?.ok_or_else(|| Error::no_such_tree(name))?,
            };
            // Salvage needs the bitmaps, which say which nodes are in use.
            self.inner.has_recovered();
            let left_out = opened
                .as_ref()
                .map_or(Ok(None), |tree| tree.index().salvage(&mut visit))?;
            let left_out = left_out.map_or_else(
                || backend.salvage(root, opening, &mut visit),
                |found| Ok(Some(found)),
            );
            match (left_out?.unwrap_or_default(), opened) {
                // A node of zeros looks like an empty one to a reader; a check of the whole tree
                // misses its entries.
                (left_out, Ok(tree)) if left_out.is_empty() => {
                    let found = match tree.check() {
                        Ok(found) => found,
                        Err(error) => match error.kind() {
                            ErrorKind::Corrupt { offset, what } => vec![Violation {
                                offset: *offset,
                                what: what.clone(),
                            }],
                            _ => return Err(error),
                        },
                    };
                    Ok(found.into_iter().map(LeftOut::unknown).collect())
                }
                (left_out, _) => Ok(left_out),
            }
        });
        self.at(salvaged)
    }

    /// The tree `name` for a caller with these entries. It is made with the options `create`, if
    /// there are any and it is missing.
    fn find(
        &self,
        name: &str,
        create: Option<TreeOptions>,
        entries: &WantedEntries<'_>,
    ) -> Result<Tree> {
        let backend = self.inner.backend()?;
        let opening = &self.inner.opening;
        let mut trees = self.inner.trees()?;
        if let Some(tree) = trees.get_mut(name) {
            self.admit(name, tree, entries)?;
            return Ok(self.handle(name, tree, entries));
        }
        let mut tree = match (backend.find_tree(name)?, create) {
            (Some(root), _) => {
                if let Some(wanted) = create {
                    opening.kind(&root)?.demand(name, wanted)?;
                }
                let settings = create.map_or(Settings::NONE, |wanted| wanted.settings);
                OpenTree::open(backend, &root, settings, opening)?
            }
            (None, Some(kind)) if self.inner.source.is_none() => {
                backend.expect_batches_finished()?;
                let kind = TreeOptions {
                    settings: kind.engine.settings_of_new(kind.settings),
                    ..kind
                };
                let encodings = entries.names();
                let new = NewTree {
                    name,
                    encodings: encodings.as_ref(),
                };
                let create = || backend.create_tree(new, kind, opening);
                let striped = self.inner.retry_if_full(&trees, create)?;
                let Some(made) = backend.find_tree(name)? else {
                    return Err(Error::no_such_tree(name));
                };
                OpenTree {
                    striped,
                    kind: opening.kind(&made)?,
                    encodings,
                    anchor: made.words[0],
                }
            }
            (None, _) => return Err(Error::no_such_tree(name)),
        };
        let admitted = self.admit(name, &mut tree, entries);
        let handle = admitted.map(|()| self.handle(name, &tree, entries));
        trees.insert(name.to_owned(), tree);
        handle
    }

    /// Opens a tree that is not open.
    pub(crate) fn open_root(&self, backend: &dyn Backend, root: &TreeRoot) -> Result<OpenTree> {
        OpenTree::open(backend, root, Settings::NONE, &self.inner.opening)
    }

    /// Refuses a caller that wants other entries than the tree has. If the caller knows newer
    /// versions of the tree's types, or the tree is empty and nobody else uses it, the tree remembers
    /// the caller's types from now on. The calling thread has locked the open trees.
    fn admit(&self, name: &str, tree: &mut OpenTree, entries: &WantedEntries<'_>) -> Result<()> {
        let WantedEntries::Typed(types) = entries else {
            return Ok(());
        };
        match types.fit(name, tree.kind.codec, tree.encodings.as_ref()) {
            Ok(TypeFit::Same) => return Ok(()),
            Ok(TypeFit::Older) if self.inner.source.is_some() => return Ok(()),
            Ok(TypeFit::Older) => {}
            Err(mismatch) => {
                if !self.is_free_for_types(tree)? {
                    return Err(mismatch);
                }
                // If the removal of the last entries is not durable yet, a crash would bring back
                // entries of the old types.
                tree.index().sync()?;
            }
        }
        self.inner.expect_trees_may_change()?;
        let backend = self.inner.backend()?;
        let Some(root) = backend.find_tree(name)? else {
            return Err(Error::no_such_tree(name));
        };
        let newer = types.names();
        backend.set_encodings(&root, Some(&newer))?;
        tree.encodings = Some(newer);
        // With deferred durability the change is not durable yet.
        backend.sync()
    }

    /// Whether a tree may get any types, because it has no entry that could be misread: neither now,
    /// nor in a view, and no handle of other types could add one. The types of numbers have the size
    /// of a word, so a tree of words keeps those that it has.
    fn is_free_for_types(&self, tree: &OpenTree) -> Result<bool> {
        let is_written = self.inner.source.is_none();
        if !is_written || tree.kind.codec != CodecKind::Record || !tree.is_unshared() {
            return Ok(false);
        }
        if self.inner.opening.versions.without_views().is_err() {
            return Ok(false);
        }
        let mut entries = tree.index().cursor(Bounds::all(), Direction::Forward)?;
        Ok(!entries.advance()?)
    }

    fn handle(&self, name: &str, tree: &OpenTree, entries: &WantedEntries<'_>) -> Tree {
        Tree::new(tree, name, entries, self.inner.clone())
    }

    /// All named trees, in order of their names. A damaged slot of the root table is listed as a
    /// tree that cannot be opened, under its name, or as `damaged-slot-3` if the name is damaged,
    /// and [`Store::salvage`] takes that name. O(trees).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// store.tree("stock")?;
    /// store.typed::<String, u64>("ages")?;
    /// let trees = store.trees()?;
    /// let names: Vec<&str> = trees.iter().map(|tree| tree.name.as_str()).collect();
    /// assert_eq!(names, ["ages", "stock"]);
    /// let types = trees[0].encodings.as_ref().map(ToString::to_string);
    /// assert_eq!(types.as_deref(), Some("text -> u64"));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the file ends inside of the root table.
    pub fn trees(&self) -> Result<Vec<TreeInfo>> {
        let roots = self.at(self.roots())?;
        let whole = roots.trees.iter();
        let opening = &self.inner.opening;
        let whole = whole.map(|root| TreeInfo {
            kind: opening.kind(root).ok(),
            encodings: root.encodings.clone(),
            name: root.name.clone(),
        });
        let kind = |root: &DamagedRoot| root.tree.as_ref().and_then(|tree| opening.kind(tree).ok());
        let encodings = |root: &DamagedRoot| root.tree.as_ref()?.encodings.clone();
        let damaged = roots.damaged.iter().map(|root| TreeInfo {
            kind: kind(root),
            encodings: encodings(root),
            name: root.label(),
        });
        let mut trees: Vec<TreeInfo> = whole.chain(damaged).collect();
        trees.sort_by(|one, other| one.name.cmp(&other.name));
        self.at(Ok(trees))
    }

    /// The table of named trees.
    fn roots(&self) -> Result<Roots> {
        self.inner.backend()?.roots()
    }

    /// Waits for the end of recovery in the background, if it runs. After a crash, trees of
    /// [`Engine::BZTREE`](crate::Engine::BZTREE), [`Engine::WBTREE`](crate::Engine::WBTREE) and
    /// [`Engine::MASSTREE`](crate::Engine::MASSTREE) are usable at once, whatever their size, while a thread finds out which space is in use. Until it
    /// is done, space that was in use before the crash is not reused, and a write to a full store
    /// waits. O(n).
    ///
    /// It also waits for open ranges, so a thread that holds one must not call it. In a child that
    /// was forked after the open it returns at once.
    pub fn finish_recovery(&self) {
        while !self.inner.has_recovered() {}
    }

    /// Removes the tree `name` and frees its space. The tree is gone, wholly and durably, when this
    /// returns; if a crash comes before, it is gone wholly or not at all. O(its entries); a tree
    /// that is not open is opened for this.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::ErrorKind;
    ///
    /// let stock = store.tree("stock")?;
    /// stock.put("apple", "12")?;
    /// let refused = store.drop_tree("stock").unwrap_err();
    /// assert!(matches!(refused.kind(), ErrorKind::InUse)); // there is a handle
    ///
    /// drop(stock);
    /// store.drop_tree("stock")?;
    /// assert!(store.open_tree("stock").unwrap_err().is_absent());
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchTree`]; [`ErrorKind::InUse`] while a handle or a range of it lives, a
    /// snapshot or a transaction of the store is open, or any range while the store recovers ([`Store::finish_recovery`]); [`ErrorKind::Corrupt`] if
    /// it is damaged. A damaged tree stays, so that it can be salvaged, unless the damage is found
    /// only while its space is freed: the next open then finds out what is free.
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        self.at(self.drop_found(name))
    }

    /// Gives the tree `name` another name. Durable when this returns; a crash leaves it with one of
    /// the two names. O(1).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// store.tree("stock")?.put("apple", "12")?;
    /// store.rename_tree("stock", "stock of 2025")?;
    /// assert!(store.open_tree("stock of 2025")?.contains("apple")?);
    /// assert!(store.open_tree("stock").unwrap_err().is_absent());
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchTree`]; [`ErrorKind::TreeExists`] if a tree has the new name;
    /// [`ErrorKind::BadTreeName`]; [`ErrorKind::TooManyTrees`], as the new name needs a free slot
    /// for a moment; [`ErrorKind::InUse`] in the same cases as with [`Store::drop_tree`].
    pub fn rename_tree(&self, name: &str, new: &str) -> Result<()> {
        self.at(self.rename_found(name, new))
    }

    fn rename_found(&self, name: &str, new: &str) -> Result<()> {
        self.inner.expect_trees_may_change()?;
        // The thread that recovers in the background uses the trees.
        if !self.inner.has_recovered() {
            return Err(ErrorKind::InUse.into());
        }
        let backend = self.inner.backend()?;
        // A view would look for the tree by the name that it had.
        let _without_views = self.inner.opening.versions.without_views()?;
        let mut trees = self.inner.trees()?;
        if let Some(tree) = trees.remove(name) {
            let ended = if tree.is_unshared() {
                tree.index().sync()
            } else {
                Err(ErrorKind::InUse.into())
            };
            if let Err(error) = ended {
                trees.insert(name.to_owned(), tree);
                return Err(error);
            }
            // Dropped here: an open tree writes to the slot that it was opened from.
        }
        let Some(root) = backend.find_tree(name)? else {
            return Err(Error::no_such_tree(name));
        };
        backend.rename_tree(&root, new)?;
        // With deferred durability the new name is not durable yet.
        backend.sync()
    }

    fn drop_found(&self, name: &str) -> Result<()> {
        self.inner.expect_trees_may_change()?;
        // The thread that recovers in the background uses the trees.
        if !self.inner.has_recovered() {
            return Err(ErrorKind::InUse.into());
        }
        let backend = self.inner.backend()?;
        // A view may still have to read the tree.
        let without_views = self.inner.opening.versions.without_views()?;
        let mut trees = self.inner.trees()?;
        let Some(root) = backend.find_tree(name)? else {
            return Err(Error::no_such_tree(name));
        };
        let tree = match trees.remove(name) {
            Some(tree) => tree,
            None => self.open_root(backend, &root)?,
        };
        // New handles are made under the lock of `trees` only.
        let removed = if tree.is_unshared() {
            backend.remove_tree(&root)
        } else {
            Err(ErrorKind::InUse.into())
        };
        if let Err(error) = removed {
            trees.insert(name.to_owned(), tree);
            return Err(error);
        }
        // From now on this name means a new tree.
        drop(trees);
        drop(without_views);
        // With deferred durability the removal is not durable yet.
        backend.sync()?;
        // If this fails, the next open finds out what is free.
        let destroyed = tree
            .striped
            .destroy()
            .inspect_err(|_| backend.leave_unclean());
        backend.release();
        destroyed
    }

    /// Returns when everything that was written so far, by any thread, is durable. Needed only
    /// where operations are not durable when they return: with another [`crate::Durability`], after
    /// [`Tree::pending`], and for trees that become durable by epochs
    /// ([`Engine::is_buffered`](crate::Engine::is_buffered)), whose epochs end now.
    ///
    /// ```
    /// use everleaf::{Engine, Options, TreeOptions};
    ///
    /// let store = Options::new().manual_epochs().open_in_memory()?;
    /// let options = TreeOptions { engine: Engine::MASSTREE, ..TreeOptions::RECORDS };
    /// let clicks = store.tree_with("clicks", options)?; // durable by epochs
    /// let write = clicks.pending().put("page 1", "12")?;
    /// assert!(!write.is_durable());
    /// store.sync()?;
    /// assert!(write.is_durable());
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Medium`] if the medium failed. After an error the other trees are still made
    /// durable, and the first error is returned.
    pub fn sync(&self) -> Result<()> {
        let backend = self.at(self.inner.backend())?;
        if self.inner.source.is_some() {
            return Ok(());
        }
        let trees: Vec<Arc<StripedTree>> = self
            .at(self.inner.trees())?
            .values()
            .map(|tree| Arc::clone(&tree.striped))
            .collect();
        // Each tree is tried, even if one before it failed.
        let mut ended = Ok(());
        for tree in &trees {
            let tree: &dyn Index = &**tree;
            ended = ended.and(tree.sync());
        }
        self.at(ended.and(backend.sync()))
    }

    /// Figures about the pool and its medium. O(slabs).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let used_before = store.stat()?.used_bytes;
    /// store.tree("texts")?.put("long", vec![b'x'; 1 << 20])?;
    /// let stat = store.stat()?;
    /// assert_eq!(stat.trees, 1);
    /// assert!(stat.used_bytes >= used_before + (1 << 20));
    /// assert!(stat.file_bytes >= stat.used_bytes);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the file ends inside of the root table.
    pub fn stat(&self) -> Result<StoreStat> {
        let OpenStore { path, recovery, .. } = &*self.inner;
        let backend = self.at(self.inner.backend())?;
        if !recovery.after_crash {
            // Reading the bitmaps takes milliseconds, for any size.
            self.inner.has_recovered();
        }
        let pool = backend.stat();
        let roots = self.at(backend.roots())?;
        let mut recovery = recovery.clone();
        if let Some(found) = self.inner.damage() {
            recovery.damaged.push(found.into());
        }
        for offset in &pool.classes_damaged {
            recovery.damaged.push(of_class(*offset).into());
        }
        self.at(Ok(StoreStat {
            path: path.clone(),
            format_version: pool.identity.version,
            uuid: pool.identity.uuid,
            line_form: pool.identity.line_form,
            medium: backend.describe(),
            survives: backend.survives(),
            file_bytes: pool.file_bytes,
            high_water_bytes: pool.high_water_bytes,
            used_bytes: pool.used_bytes,
            allocations: pool.allocations - pool.root_pages,
            trees: (roots.trees.len() + roots.damaged.len()) as u64,
            recovery,
            marked: pool.marked,
            log: backend.log_stat(),
            versions: self.inner.opening.versions.stat(),
            notes: self.inner.notes(),
        }))
    }

    /// The report of the open: how long it took, and the parts that it could not recover.
    pub fn recovery(&self) -> &Recovery {
        &self.inner.recovery
    }

    /// The failures that the store survives. A file in memory (tmpfs) survives only
    /// [`Survives::ProcessCrash`].
    pub fn survives(&self) -> Survives {
        self.inner.survives()
    }

    /// The pool's file.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// let store = everleaf::Store::open(&path)?;
    /// assert_eq!(store.path(), path);
    /// let in_memory = everleaf::Store::in_memory()?;
    /// assert_eq!(in_memory.path().to_str(), Some("(memory)"));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Verifies the whole structure of every tree and returns every violation. For a tree that does
    /// not open, the violations are the one that prevents that and those that [`Store::salvage`]
    /// finds. O(entries). Other threads may go on, except that writers of trees of
    /// [`Engine::MASSTREE`](crate::Engine::MASSTREE) wait.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("a.pool");
    /// let store = everleaf::Store::open(&path)?;
    /// store.tree("stock")?.put("apple", "twelve apples")?;
    /// assert_eq!(store.check()?, []);
    /// # store.close()?;
    /// # let mut bytes = std::fs::read(&path)?;
    /// # let at = bytes.windows(13).position(|bytes| bytes == b"twelve apples").unwrap();
    /// # bytes[at] ^= 1;
    /// # std::fs::write(&path, bytes)?;
    ///
    /// // The store is closed, and a bit of the value changes on disk.
    /// let store = everleaf::Store::open(&path)?;
    /// let found = store.check()?;
    /// assert_eq!(found.len(), 1);
    /// assert_eq!(found[0].tree.as_deref(), Some("stock"));
    /// println!("{}", found[0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Only if the check itself is impossible, for example for lack of memory.
    pub fn check(&self) -> Result<Vec<StoreViolation>> {
        let roots = self.at(self.roots())?;
        let of_root = |DamagedRoot {
                           name, offset, what, ..
                       }| StoreViolation {
            tree: name,
            offset: Some(offset),
            what,
        };
        let mut found: Vec<StoreViolation> = roots.damaged.into_iter().map(of_root).collect();
        for info in roots.trees {
            let violation = |offset, what| StoreViolation {
                tree: Some(info.name.clone()),
                offset,
                what,
            };
            let of_tree = |Violation { offset, what }: Violation| violation(Some(offset), what);
            let opened = self.open_tree(&info.name);
            let is_open = opened.is_ok();
            match opened.and_then(|tree| tree.check()) {
                Ok(violations) => found.extend(violations.into_iter().map(of_tree)),
                Err(error) => match error.kind() {
                    // Other threads may write to the tree, so it is not read without its locks.
                    ErrorKind::Corrupt { offset, what } if is_open => {
                        found.push(violation(Some(*offset), what.clone()));
                    }
                    ErrorKind::Corrupt { offset, what } => {
                        let first = Violation {
                            offset: *offset,
                            what: what.clone(),
                        };
                        found.extend(self.damage(&info.name, first)?.into_iter().map(of_tree));
                    }
                    ErrorKind::UnknownEngine { .. } => {
                        found.push(violation(None, error.to_string()));
                    }
                    _ => return Err(error),
                },
            }
        }
        found.extend(self.inner.damage());
        let stat = self.at(self.inner.backend())?.stat();
        found.extend(stat.classes_damaged.into_iter().map(of_class));
        let refused = stat.frees_refused;
        if refused > 0 {
            let what = format!("{refused} records or leaves to be freed were none");
            found.push(StoreViolation {
                tree: None,
                offset: None,
                what,
            });
        }
        self.at(Ok(found))
    }

    /// Lost redundancy: the copies of the pool's header, of its root table, of the numbers of epochs
    /// and of words of trees of [`Engine::MASSTREE`](crate::Engine::MASSTREE) that are damaged or
    /// outdated while the other copy is whole. Nothing is lost yet. [`Store::mend_copies`] writes
    /// them anew.
    ///
    /// An open for writing mends the header itself, and with the first tree of `MASSTREE` the numbers
    /// of epochs, so a damaged copy of these is found only in a store that is only read. After a
    /// crash, copies that are merely outdated are left out: a crash in the middle of a change leaves
    /// such copies. O(trees).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the file ends inside of the root table.
    pub fn lost_copies(&self) -> Result<Vec<LostCopy>> {
        let backend = self.at(self.inner.backend())?;
        // No tree is dropped meanwhile.
        let _trees = self.at(self.inner.trees())?;
        let mut lost = Vec::new();
        if self.inner.source.is_some() {
            // The open has mended these in memory only.
            lost = self.at(self.inner.lost_before())?;
        }
        add_copies(&mut lost, self.at(backend.lost_copies())?);
        if self.inner.recovery.after_crash {
            lost.retain(|copy| !copy.is_outdated);
        }
        Ok(lost)
    }

    /// Writes the copies that [`Store::lost_copies`] names anew, each from the other copy. Returns
    /// those that were written, also by the open. If both copies are damaged, both stay as they are.
    /// Durable when this returns. O(trees).
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`] if the store is only read; [`ErrorKind::Medium`] if the medium failed;
    /// [`ErrorKind::Corrupt`] if the file ends inside of the root table.
    pub fn mend_copies(&self) -> Result<Vec<LostCopy>> {
        self.at(self.inner.expect_writable())?;
        let backend = self.at(self.inner.backend())?;
        let mut mended = self.at(self.inner.lost_before())?;
        {
            // No tree is dropped meanwhile.
            let _trees = self.at(self.inner.trees())?;
            add_copies(
                &mut mended,
                self.at(backend.mend_copies(self.inner.had_lost_epochs()))?,
            );
        }
        // With deferred durability the copies are not durable yet.
        self.at(backend.sync())?;
        Ok(mended)
    }

    /// All damage of a tree that does not open; `first` is the damage that prevents that.
    fn damage(&self, name: &str, first: Violation) -> Result<Vec<Violation>> {
        let mut found = match self.salvage(name, |_, _| true) {
            // An engine whose trees must open to be salvaged.
            Err(error) if error.is_corrupt() => Vec::new(),
            found => found?.into_iter().map(Violation::from).collect(),
        };
        // The damage that prevents an open may be in a part that salvage does not read.
        if found
            .iter()
            .all(|violation| violation.offset != first.offset)
        {
            found.insert(0, first);
        }
        Ok(found)
    }

    /// Passes on what was read or written, with the path of the store if it is an error.
    pub(crate) fn at<T>(&self, result: Result<T>) -> Result<T> {
        self.inner.believe(result)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Store")
            .field("path", &self.inner.path)
            .finish_non_exhaustive()
    }
}

/// Adds those copies that are not among the others yet.
fn add_copies(copies: &mut Vec<LostCopy>, others: Vec<LostCopy>) {
    for other in others {
        if copies.iter().all(|copy| copy.offset != other.offset) {
            copies.push(other);
        }
    }
}
