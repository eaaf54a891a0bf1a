//! A store: one pool file and the trees in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engines::index::Violation;
use engines::registry::{AnyTree, Settings};
use engines::{Error, PoolError, Result};
use medium::{FileStat, LineForm, Lsn, Survives};
use parking_lot::Mutex;
use pool::{DamagedRoot, TreeRoot};

use crate::backend::{Backend, Opening};
use crate::background::Background;
use crate::backup::NewCopy;
use crate::{Options, Tree, TreeOptions, WordTree};

/// A file with named trees. Cheap to clone; closed cleanly when the last clone and the last tree of it are dropped.
///
/// One process has a pool open at a time, and within it one store: a second open fails with [`PoolError::Locked`], also
/// in the same process. All methods may be called from any thread.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    path: PathBuf,
    recovery: Recovery,
    opening: Opening,
    // It holds trees and the pool, so it goes before both.
    background: Option<Background>,
    // The trees hold the pool, so they go before it.
    trees: Mutex<BTreeMap<String, OpenTree>>,
    backend: Box<dyn Backend>,
}

struct OpenTree {
    any: AnyTree,
    kind: TreeOptions,
}

/// How long it waits for open ranges: the calling thread may have one.
const RANGES_WAIT: Duration = Duration::from_millis(200);

/// What opening the store took.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// Whether the pool was not closed cleanly, so that all trees were opened before the open returned, and can be used. What
    /// of [`Engine::MASSTREE`](crate::Engine::MASSTREE) was not recovered then is when it is touched, or by a sweep. Which
    /// space is in use is found out later where there are trees of [`Engine::BZTREE`](crate::Engine::BZTREE): see
    /// [`Store::finish_recovery`].
    pub after_crash: bool,
    /// The whole of opening: from the mapping of the file to the end of recovery.
    pub duration: Duration,
    /// Trees that could not be recovered, and why. While there are any, no space that was in use before the crash is
    /// reused, so that nothing of them is lost. In [`Store::stat`] also what was found damaged beside trees at work.
    pub damaged: Vec<(String, String)>,
}

/// A named tree, as [`Store::trees`] lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeInfo {
    /// Its name.
    pub name: String,
    /// Its engine and codec; `None` if this release does not know them, or they are damaged.
    pub kind: Option<TreeOptions>,
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
    /// One line for people: the medium, its instructions, what it does not survive.
    pub medium: String,
    /// What is survived.
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
    /// What opening took.
    pub recovery: Recovery,
    /// After a crash, while it is not yet known what is in use: how many allocations were found so far. Until then
    /// `used_bytes` and `allocations` lack what was not found yet.
    pub marked: Option<u64>,
    /// The line log: its size, checkpoints, group commits, and the memory of written pages; `None` on other media.
    pub log: Option<FileStat>,
}

/// Something that [`Store::check`] found wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreViolation {
    /// The tree concerned; `None` for the pool itself.
    pub tree: Option<String>,
    /// The offset in the file of what is concerned, if it is known.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for StoreViolation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(tree) = &self.tree {
            write!(formatter, "tree {tree:?}, ")?;
        }
        if let Some(offset) = self.offset {
            write!(formatter, "offset {offset:#x}: ")?;
        }
        formatter.write_str(&self.what)
    }
}

impl Store {
    /// Opens the store at `path`, and makes it if it is missing. The same as `Options::new().open(path)`, which see
    /// for cost and errors.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// A store in memory, for tests and caches: the same trees, nothing durable.
    ///
    /// # Errors
    /// [`PoolError::Medium`] if the system gives no memory.
    pub fn in_memory() -> Result<Self> {
        Options::new().open_in_memory()
    }

    /// How to open a store otherwise: [`Options`].
    pub fn options() -> Options {
        Options::new()
    }

    /// Takes a pool; recovers all trees if it was not closed cleanly. Its opening began at `start`.
    pub(crate) fn recover(
        path: &Path,
        backend: Box<dyn Backend>,
        opening: Opening,
        start: Instant,
    ) -> Result<Self> {
        let after_crash = backend.needs_mark();
        let (mut trees, mut damaged, mut background) = (BTreeMap::new(), Vec::new(), None);
        if after_crash {
            let roots = backend.roots()?;
            damaged.extend(roots.damaged.iter().map(|root| (root.label(), root.error().to_string())));
            for root in roots.trees {
                match OpenTree::open(backend.as_ref(), &root, Settings::NONE, &opening) {
                    Ok(tree) => drop(trees.insert(root.name, tree)),
                    Err(error) => damaged.push((root.name, error.to_string())),
                }
            }
            let later = |(name, tree): (&String, &OpenTree)| {
                tree.kind.engine.marks_later.then(|| (name.clone(), Arc::clone(&tree.any.index)))
            };
            let later: Vec<_> = trees.iter().filter_map(later).collect();
            if damaged.is_empty() && later.is_empty() {
                backend.finish_marking();
            } else if damaged.is_empty() {
                background = Some(Background::begin(backend.share(), later));
            } else {
                backend.give_up_marking();
            }
        } else if backend.has_bitmaps_to_read() {
            background = Some(Background::begin(backend.share(), Vec::new()));
        }
        let recovery = Recovery { after_crash, duration: start.elapsed(), damaged };
        let (path, trees) = (path.to_owned(), Mutex::new(trees));
        Ok(Self { inner: Arc::new(Inner { path, recovery, opening, background, trees, backend }) })
    }

    /// The tree `name` of byte strings; made if it is missing. A tree is opened when it is first asked for (after a crash,
    /// when the store is): with [`Engine::RNTREE`](crate::Engine::RNTREE) O(its leaves) once, on all cores; with
    /// [`Engine::BZTREE`](crate::Engine::BZTREE) O(1); with [`Engine::MASSTREE`](crate::Engine::MASSTREE) O(1) after a clean
    /// close, else O(nodes in its log + its slabs). O(log trees) from then on.
    ///
    /// # Errors
    /// - [`PoolError::TreeMismatch`]: it exists with another engine or codec, or with nodes of other sizes than are asked for;
    /// - [`Error::NodeSize`]: nodes cannot be of the size that is asked for;
    /// - [`Error::UnknownEngine`]: a newer release made it;
    /// - [`PoolError::BadTreeName`]: names have 1 to 128 bytes; [`PoolError::TooManyTrees`]: a pool holds 208 trees;
    /// - [`PoolError::Corrupt`]: the tree is damaged; [`PoolError::PoolFull`]: no room for a new tree.
    pub fn tree(&self, name: &str) -> Result<Tree> {
        self.tree_with(name, TreeOptions::RECORDS)
    }

    /// The tree `name`, made so if it is missing. Errors and cost as [`Store::tree`].
    pub fn tree_with(&self, name: &str, options: TreeOptions) -> Result<Tree> {
        let found = self.find(name, Some(options)).and_then(|tree| {
            tree.kind().demand(name, options)?;
            Ok(tree)
        });
        self.at(found)
    }

    /// The tree `name` of `u64` keys and values, made if it is missing. Errors and cost as [`Store::tree`]. For another
    /// engine than the default one, [`Store::tree_with`] and [`Tree::as_words`].
    pub fn word_tree(&self, name: &str) -> Result<WordTree> {
        let tree = self.tree_with(name, TreeOptions::WORDS)?;
        tree.as_words().ok_or_else(|| {
            let (found, wanted) = (tree.kind().to_string(), TreeOptions::WORDS.to_string());
            self.inner.name_path(Error::Pool(PoolError::TreeMismatch {
                name: name.to_owned(),
                found,
                wanted,
            }))
        })
    }

    /// The existing tree `name`, whatever its engine and codec. Cost as [`Store::tree`].
    ///
    /// # Errors
    /// [`PoolError::NoSuchTree`]; otherwise as [`Store::tree`].
    pub fn open_tree(&self, name: &str) -> Result<Tree> {
        self.at(self.find(name, None))
    }

    /// Calls `visit` with what can be read of the tree `name`, which is damaged, in ascending order of keys, until it returns
    /// `false`. Returns what was left out, and of [`Engine::MASSTREE`](crate::Engine::MASSTREE), if that is nothing, what else
    /// is damaged: a node may have lost count of its entries. Damage is no error. Nothing of the tree is changed but what an
    /// open changes, and it need not be one that opens, unless it is one of `masstree`: nobody else uses such a tree
    /// meanwhile, and `visit` cannot. Of others, what is changed meanwhile may be left out. O(n).
    ///
    /// # Errors
    /// - [`PoolError::NoSuchTree`]; [`Error::UnknownEngine`]: a newer release made it;
    /// - [`PoolError::TreeMismatch`]: it was made with leaves of another size;
    /// - [`Error::InBatch`]: within a batch, of a tree of `masstree`;
    /// - [`PoolError::Corrupt`]: its slot of the root table is damaged, so that it is not known where it begins; or it does not
    ///   open, and is one of `masstree`.
    pub fn salvage(&self, name: &str, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<Vec<Violation>> {
        let Inner { backend, opening, .. } = &*self.inner;
        // Held, for a tree in use is not dropped; nor is one that does not open.
        let opened = self.find(name, None);
        let salvaged = backend.roots().and_then(|roots| {
            let root = roots.find(name)?;
            let root = root.ok_or_else(|| Error::Pool(PoolError::NoSuchTree { name: name.to_owned() }))?;
            if let Some(left_out) = backend.salvage(root, opening, &mut visit)? {
                return Ok(left_out);
            }
            let left_out = opened?.index().salvage(&mut visit)?;
            Ok(left_out.unwrap_or_default())
        });
        self.at(salvaged)
    }

    fn find(&self, name: &str, create: Option<TreeOptions>) -> Result<Tree> {
        let Inner { trees, backend, opening, .. } = &*self.inner;
        let mut trees = trees.lock();
        if let Some(tree) = trees.get(name) {
            return Ok(self.handle(name, tree));
        }
        let tree = match (backend.roots()?.find(name)?, create) {
            (Some(root), _) => {
                if let Some(wanted) = create {
                    opening.kind(root)?.demand(name, wanted)?;
                }
                let settings = create.map_or(Settings::NONE, |wanted| wanted.settings);
                OpenTree::open(backend.as_ref(), root, settings, opening)?
            }
            (None, Some(kind)) => {
                let create = || backend.create_tree(name, kind, opening);
                let any = tried_twice(create, || {
                    self.inner.has_recovered();
                    self.inner.find_space_of(&trees);
                })?;
                let roots = backend.roots()?;
                let made = roots
                    .find(name)?
                    .ok_or_else(|| Error::Pool(PoolError::NoSuchTree { name: name.to_owned() }))?;
                OpenTree { any, kind: opening.kind(made)? }
            }
            (None, None) => return Err(Error::Pool(PoolError::NoSuchTree { name: name.to_owned() })),
        };
        let handle = self.handle(name, &tree);
        trees.insert(name.to_owned(), tree);
        Ok(handle)
    }

    fn handle(&self, name: &str, tree: &OpenTree) -> Tree {
        Tree::new(tree.any.clone(), name, tree.kind, Arc::clone(&self.inner))
    }

    /// All named trees, in order of their names. A damaged slot of the root table stands for a tree as well, which cannot be
    /// opened: by its name, or where that is damaged by the number of the slot. O(208).
    ///
    /// # Errors
    /// [`PoolError::Corrupt`] if the file ends inside of the root table.
    pub fn trees(&self) -> Result<Vec<TreeInfo>> {
        let roots = self.at(self.inner.backend.roots())?;
        let whole = roots.trees.iter();
        let opening = &self.inner.opening;
        let whole = whole.map(|root| TreeInfo { kind: opening.kind(root).ok(), name: root.name.clone() });
        let damaged = roots.damaged.iter().map(|root| TreeInfo { kind: None, name: root.label() });
        let mut trees: Vec<TreeInfo> = whole.chain(damaged).collect();
        trees.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(trees)
    }

    /// Waits until all is known that a crash left open. An open of trees of [`Engine::BZTREE`](crate::Engine::BZTREE) takes the
    /// same time whatever their size: they work at once, while a thread finds out which space is in use. Until it has, no
    /// space is reused that was in use before; a write to a full store waits for it. At once otherwise. O(n).
    ///
    /// Waits for ranges that are being read, too: not to be called by a thread that holds one.
    pub fn finish_recovery(&self) {
        while !self.inner.has_recovered() {}
    }

    /// Removes the tree `name` and gives its space back. Gone, wholly and durably, when this returns; not at all if a
    /// crash comes before. O(its entries), and it is opened for that if it is not open.
    ///
    /// # Errors
    /// [`PoolError::NoSuchTree`]; [`PoolError::InUse`] while a handle or a range of it lives, or any range while the store recovers
    /// ([`Store::finish_recovery`]); [`PoolError::Corrupt`] if it is damaged: a damaged tree stays, so that what is left of it
    /// can be saved, unless its damage is met only when its space is given back: what is free is then found by the next
    /// open.
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        self.at(self.drop_found(name))
    }

    fn drop_found(&self, name: &str) -> Result<()> {
        // The thread that marks holds the trees.
        if !self.inner.has_recovered() {
            return Err(Error::Pool(PoolError::InUse));
        }
        let Inner { trees, backend, opening, .. } = &*self.inner;
        let mut trees = trees.lock();
        let roots = backend.roots()?;
        let Some(root) = roots.find(name)? else {
            return Err(Error::Pool(PoolError::NoSuchTree { name: name.to_owned() }));
        };
        let tree = match trees.remove(name) {
            Some(tree) => tree,
            None => OpenTree::open(backend.as_ref(), root, Settings::NONE, opening)?,
        };
        // New handles are made under the lock of `trees` only.
        let removed = if tree.any.is_unshared() {
            backend.remove_tree(root)
        } else {
            Err(Error::Pool(PoolError::InUse))
        };
        if let Err(error) = removed {
            trees.insert(name.to_owned(), tree);
            return Err(error);
        }
        // From now on this name means a new tree.
        drop(trees);
        // Where durability is deferred that it is gone is not durable yet.
        backend.sync()?;
        // What is not given back is free after the next open, which finds out what is in use.
        tree.any.index.destroy().inspect_err(|_| backend.leave_unclean())
    }

    /// Returns when everything that was written so far, by any thread, is durable. Needed only where operations are not
    /// durable when they return: with another [`crate::Durability`], after `put_async` and its kin, and for trees that
    /// become durable by epochs ([`Engine::is_buffered`](crate::Engine::is_buffered)), which end theirs now.
    ///
    /// # Errors
    /// [`PoolError::Medium`] if the medium failed; [`Error::InBatch`] within a batch, of whichever tree. The first of all:
    /// what else can be made durable is so.
    pub fn sync(&self) -> Result<()> {
        let trees: Vec<AnyTree> = self.inner.trees.lock().values().map(|tree| tree.any.clone()).collect();
        // Each is tried, whatever became of those before it.
        let ended = trees.iter().map(|tree| tree.index.sync()).fold(Ok(()), Result::and);
        self.at(ended.and(self.inner.backend.sync()))
    }

    /// Copies the store as it is at some moment of the call into a new file, while other threads go on writing. The
    /// copy is a pool of its own, with the same UUID, that is opened as after a crash; it is durable when this returns. It
    /// gets the permissions of the pool, and its owner where the system lets this process give files away. It has its name
    /// only when it is whole: a process that ends meanwhile leaves a file beside `target` whose name ends with `.part`.
    /// Returns its bytes. O(file + log); the log is kept for the time being, in a file without a name beside `target`.
    /// Writers wait only if the log is full while it goes around faster than it can be read. For a store that another
    /// process has open: [`Options::backup`].
    ///
    /// # Errors
    /// [`PoolError::Io`] if `target` exists or cannot be made; [`PoolError::NoBackup`] if the store is not on
    /// [`MediumChoice::File`](crate::MediumChoice::File); [`PoolError::Medium`] if the disk fails, and then there is no copy.
    pub fn backup(&self, target: impl AsRef<Path>) -> Result<u64> {
        let new = NewCopy::make(target.as_ref(), &self.inner.path)?;
        let copied = self.inner.backend.backup(&new.target).map(Some);
        Ok(self.at(new.finish(copied))?.unwrap_or_default())
    }

    /// Figures about the pool and its medium. O(slabs).
    ///
    /// # Errors
    /// [`PoolError::Corrupt`] if the file ends inside of the root table.
    pub fn stat(&self) -> Result<StoreStat> {
        let Inner { path, recovery, backend, .. } = &*self.inner;
        if !recovery.after_crash {
            // Milliseconds, for any size.
            self.inner.has_recovered();
        }
        let pool = backend.stat();
        let roots = self.at(backend.roots())?;
        let mut recovery = recovery.clone();
        if let Some(found) = self.inner.background.as_ref().and_then(Background::damage) {
            let name = found.tree.clone().unwrap_or_else(|| "(the pool)".to_owned());
            recovery.damaged.push((name, found.to_string()));
        }
        let classes = pool.classes_damaged.iter().map(|offset| of_class(*offset).to_string());
        recovery.damaged.extend(classes.map(|what| ("(the pool)".to_owned(), what)));
        Ok(StoreStat {
            path: path.clone(),
            format_version: pool.identity.version,
            uuid: pool.identity.uuid,
            line_form: pool.identity.line_form,
            medium: backend.describe(),
            survives: backend.survives(),
            file_bytes: pool.file_bytes,
            high_water_bytes: pool.high_water_bytes,
            used_bytes: pool.used_bytes,
            allocations: pool.allocations,
            trees: (roots.trees.len() + roots.damaged.len()) as u64,
            recovery,
            marked: pool.marked,
            log: backend.log_stat(),
        })
    }

    /// What opening this store took, and what it could not recover.
    pub fn recovery(&self) -> &Recovery {
        &self.inner.recovery
    }

    /// What is survived. Ask before relying on it: a file in memory (tmpfs) is [`Survives::ProcessCrash`].
    pub fn survives(&self) -> Survives {
        self.inner.backend.survives()
    }

    /// The pool's file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Verifies the whole structure of every tree and returns every violation. Of a tree that is too damaged to be opened
    /// these are what keeps it from that and what [`Store::salvage`] leaves out; of one of `masstree` it is one, the first that
    /// was met.
    /// O(entries); other threads may go on working, but with trees of [`Engine::MASSTREE`](crate::Engine::MASSTREE), whose
    /// writers wait.
    ///
    /// # Errors
    /// Only if checking itself is impossible, as for want of memory.
    pub fn check(&self) -> Result<Vec<StoreViolation>> {
        let roots = self.at(self.inner.backend.roots())?;
        let of_root = |DamagedRoot { name, offset, what, .. }| StoreViolation {
            tree: name,
            offset: Some(offset),
            what,
        };
        let mut found: Vec<StoreViolation> = roots.damaged.into_iter().map(of_root).collect();
        for info in roots.trees {
            let violation = |offset, what| StoreViolation { tree: Some(info.name.clone()), offset, what };
            let of_tree = |Violation { offset, what }: Violation| violation(Some(offset), what);
            let opened = self.open_tree(&info.name);
            let is_open = opened.is_ok();
            match opened.and_then(|tree| tree.check()) {
                Ok(violations) => found.extend(violations.into_iter().map(of_tree)),
                Err(error) => match error.root() {
                    // Other threads may write to it, so it is not read past its locks.
                    Error::Pool(PoolError::Corrupt { offset, what }) if is_open => {
                        found.push(violation(Some(*offset), what.clone()));
                    }
                    Error::Pool(PoolError::Corrupt { offset, what }) => {
                        let first = Violation { offset: *offset, what: what.clone() };
                        found.extend(self.damage(&info.name, first)?.into_iter().map(of_tree));
                    }
                    Error::UnknownEngine { .. } => found.push(violation(None, error.root().to_string())),
                    _ => return Err(error),
                },
            }
        }
        found.extend(self.inner.background.as_ref().and_then(Background::damage));
        let stat = self.inner.backend.stat();
        found.extend(stat.classes_damaged.into_iter().map(of_class));
        let refused = stat.frees_refused;
        if refused > 0 {
            let what = format!("{refused} records or leaves to be freed were none");
            found.push(StoreViolation { tree: None, offset: None, what });
        }
        Ok(found)
    }

    /// All damage of a tree that does not open, for the `first` that was met.
    fn damage(&self, name: &str, first: Violation) -> Result<Vec<Violation>> {
        let mut found = match self.salvage(name, |_, _| true) {
            // What does not open, and is read only where it does.
            Err(error) if error.is_corrupt() => Vec::new(),
            found => found?,
        };
        // What keeps it from being opened may be something that salvage gets over.
        if found.iter().all(|violation| violation.offset != first.offset) {
            found.insert(0, first);
        }
        Ok(found)
    }

    /// Closes the store cleanly: the next open need not recover space, and the file's free tail is given back.
    /// Durable when this returns. Dropping the last handle does the same, but cannot tell of an error.
    ///
    /// # Errors
    /// [`PoolError::InUse`] while another clone of the store, one of its trees or a [`Ticket`](crate::Ticket) lives; it is
    /// then closed when the last of them is dropped. [`PoolError::Medium`] if the medium failed.
    pub fn close(self) -> Result<()> {
        let path = self.inner.path.clone();
        let closed =
            Arc::try_unwrap(self.inner).map_err(|_| Error::Pool(PoolError::InUse)).and_then(|inner| {
                drop(inner.background);
                drop(inner.trees);
                inner.backend.close()
            });
        closed.map_err(|error| error.at(&path))
    }

    fn at<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.inner.name_path(error))
    }
}

impl Inner {
    /// Waits until everything up to `lsn` is durable.
    pub(crate) fn settle(&self, lsn: Lsn) -> Result<()> {
        self.backend.settle(lsn).map_err(|error| self.name_path(error))
    }

    pub(crate) fn durable(&self) -> Lsn {
        self.backend.durable()
    }

    /// A write, tried twice if the pool is full at first.
    #[inline(always)]
    pub(crate) fn written<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        tried_twice(attempt, || self.find_space())
    }

    /// Fetches space back that is free after a crash, or was removed but is not yet reused, by whichever tree.
    #[cold]
    pub(crate) fn find_space(&self) {
        self.has_recovered();
        self.find_space_of(&self.trees.lock());
    }

    /// Of the pool, and of these trees.
    fn find_space_of(&self, trees: &BTreeMap<String, OpenTree>) {
        self.backend.reclaim();
        trees.values().for_each(|tree| tree.any.index.reclaim());
    }

    /// Whether it is known which space is in use; waits for that as long as it may take, unless a range is open.
    fn has_recovered(&self) -> bool {
        self.background.as_ref().is_none_or(|background| background.wait(RANGES_WAIT))
    }

    /// The error with the path of this store.
    #[cold]
    pub(crate) fn name_path(&self, error: Error) -> Error {
        error.at(&self.path)
    }
}

/// The second attempt at what finds the pool full comes after `find_space`.
#[inline(always)]
fn tried_twice<T>(attempt: impl Fn() -> Result<T>, find_space: impl FnOnce()) -> Result<T> {
    match attempt() {
        Err(error) if error.is_full() => {
            find_space();
            attempt()
        }
        result => result,
    }
}

impl OpenTree {
    fn open(backend: &dyn Backend, root: &TreeRoot, settings: Settings, opening: &Opening) -> Result<Self> {
        Ok(Self { kind: opening.kind(root)?, any: backend.open_tree(root, settings, opening)? })
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

/// A slab whose class word is damaged.
fn of_class(offset: u64) -> StoreViolation {
    let what = "the class word of a slab, which tells how it is cut up, is damaged: what lies there is read as before, and its \
                space is not reused; dump the trees and restore them into a new pool to have it back";
    StoreViolation { tree: None, offset: Some(offset), what: what.to_owned() }
}
