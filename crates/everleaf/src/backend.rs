//! A pool on some medium, seen without the medium's type.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Waker;

use engines::batch::{self, BatchRequest, StripedTree};
use engines::engine::{self, Engine, Host, Salvaged, Settings, Visit};
use engines::index::{EpochLength, Index};
use engines::versions::{TreeVersions, Versions};
use engines::{Error, ErrorKind, Result};
use medium::file::CopyTarget;
use medium::{FileStat, Lsn, Process, Survives};
use pool::{Encodings, Evacuate, Evacuation, LostCopy, NewTree, Pool, PoolStat, Roots, TreeRoot};

use crate::TreeOptions;

/// The operations of a pool that a store needs, whatever the medium. Recovery needs more: it runs before the
/// type of the medium is forgotten.
pub(crate) trait Backend: Send + Sync {
    fn roots(&self) -> Result<Roots>;
    /// The copy of the header that the open has written anew.
    fn header_mended(&self) -> Option<LostCopy>;
    /// No tree may be dropped meanwhile.
    fn lost_copies(&self) -> Result<Vec<LostCopy>>;
    /// No tree may be dropped meanwhile. `had_lost_epochs` says whether a copy of the numbers of
    /// epochs was lost before the open.
    fn mend_copies(&self, had_lost_epochs: bool) -> Result<Vec<LostCopy>>;
    fn find_tree(&self, name: &str) -> Result<Option<TreeRoot>>;
    fn create_tree(
        &self,
        new: NewTree<'_>,
        kind: TreeOptions,
        opening: &StoreOpening,
    ) -> Result<Arc<StripedTree>>;
    fn open_tree(
        &self,
        root: &TreeRoot,
        settings: Settings,
        opening: &StoreOpening,
    ) -> Result<Arc<StripedTree>>;
    /// `None` for engines whose trees have to be opened for that.
    fn salvage(&self, root: &TreeRoot, opening: &StoreOpening, visit: &mut Visit<'_>) -> Salvaged;
    fn expect_batches_finished(&self) -> Result<()>;
    /// Returns the LSN at which the batch is durable.
    fn write_batch(&self, batch: &BatchRequest<'_>) -> Result<Lsn>;
    fn remove_tree(&self, root: &TreeRoot) -> Result<()>;
    fn rename_tree(&self, root: &TreeRoot, name: &str) -> Result<()>;
    fn set_encodings(&self, root: &TreeRoot, encodings: Option<&Encodings>) -> Result<()>;
    fn leave_unclean(&self);
    /// Makes durable what was written so far, by any thread.
    fn sync(&self) -> Result<()>;
    /// Waits until everything up to `lsn` is durable, unless the durability of operations is put
    /// off.
    fn wait_for(&self, lsn: Lsn) -> Result<()>;
    /// Waits until everything up to `lsn` is durable, even if the durability of operations is put
    /// off.
    fn settle(&self, lsn: Lsn) -> Result<()>;
    /// Slows an operation down that does not wait, if the disk is far behind.
    fn keep_up(&self, lsn: Lsn) -> Result<()>;
    /// Has `waker` called when everything up to `lsn` is durable, or the medium has failed; `false`
    /// if it is durable already.
    fn wake_when_durable(&self, lsn: Lsn, waker: &Waker) -> Result<bool>;
    /// Whether a wait for `lsn` would return at once.
    fn is_durable(&self, lsn: Lsn) -> bool;
    /// The process that has opened the pool.
    fn process(&self) -> Process;
    /// Figures of the log, if the medium has one.
    fn log_stat(&self) -> Option<FileStat>;
    fn backup(&self, target: &CopyTarget) -> Result<u64>;
    fn reclaim(&self);
    /// Gives the room of free space back.
    fn release(&self);
    fn compact(&self) -> Result<()>;
    /// Chooses slabs that are to be emptied, except for those at these offsets.
    fn evacuate(&self, choice: Evacuate, excluded: &BTreeSet<u64>) -> Evacuation;
    fn stat(&self) -> PoolStat;
    fn survives(&self) -> Survives;
    fn describe(&self) -> String;
    /// The pool's file, if the medium has one.
    fn pool_file(&self) -> Option<&std::fs::File>;
    /// Ends writing and removes the log, if there is one: for a pool whose file is removed.
    fn abandon(&self) -> Result<()>;
    /// Closes the pool cleanly. After an error it can still be read.
    fn close(&mut self) -> Result<()>;
}

/// How trees of a store are opened, whatever their engines.
#[derive(Clone, Debug)]
pub(crate) struct StoreOpening {
    /// The engines that the store knows.
    pub(crate) engines: &'static [Engine],
    /// Threads that recover; all cores if none are named.
    pub(crate) threads: Option<usize>,
    /// When epochs end.
    pub(crate) epoch: EpochLength,
    /// Whether dropping a tree ends its epoch.
    pub(crate) close_cleanly: bool,
    /// Settings for every tree of an engine.
    pub(crate) settings: Vec<(Engine, Settings)>,
    /// How often a transaction is tried.
    pub(crate) transaction_attempts: u32,
    /// What the trees held at earlier moments, for views.
    pub(crate) versions: Arc<Versions>,
}

impl StoreOpening {
    /// The engine and codec of a tree, from its slot in the root table.
    pub(crate) fn kind(&self, root: &TreeRoot) -> Result<TreeOptions> {
        TreeOptions::of(root, self.engines)
    }

    /// How a tree of this kind is opened.
    fn of(&self, kind: TreeOptions) -> engine::Opening {
        let of_engine = self
            .settings
            .iter()
            .filter(|(engine, _)| *engine == kind.engine);
        let settings = of_engine.fold(kind.settings, |settings, (_, set)| settings.or(*set));
        let usual = engine::Opening::default();
        engine::Opening {
            threads: self.threads.unwrap_or(usual.threads),
            epoch: self.epoch,
            close_cleanly: self.close_cleanly,
            // An engine that does not mark later has to mark in its open.
            mark_later: kind.engine.marks_later,
            settings,
        }
    }
}

/// A tree that is open.
pub(crate) struct OpenTree {
    pub(crate) striped: Arc<StripedTree>,
    pub(crate) kind: TreeOptions,
    /// The encodings of its keys and values; `None` if it is a tree of byte strings.
    pub(crate) encodings: Option<Encodings>,
    /// Its first root word.
    pub(crate) anchor: u64,
}

impl OpenTree {
    pub(crate) fn open(
        backend: &dyn Backend,
        root: &TreeRoot,
        settings: Settings,
        opening: &StoreOpening,
    ) -> Result<Self> {
        let kind = opening.kind(root)?;
        Ok(Self {
            striped: backend.open_tree(root, settings, opening)?,
            kind,
            encodings: root.encodings.clone(),
            anchor: root.words[0],
        })
    }

    pub(crate) fn index(&self) -> &dyn Index {
        &*self.striped
    }

    /// Whether there is no handle of the tree.
    pub(crate) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.striped) == 1
    }
}

impl<M: Host> Backend for Pool<M> {
    fn roots(&self) -> Result<Roots> {
        Pool::roots(self)
    }

    fn header_mended(&self) -> Option<LostCopy> {
        Pool::header_mended(self).cloned()
    }

    fn lost_copies(&self) -> Result<Vec<LostCopy>> {
        let mut lost = Pool::lost_copies(self)?;
        lost.extend(engines::copies::lost_copies(self)?);
        Ok(lost)
    }

    fn mend_copies(&self, had_lost_epochs: bool) -> Result<Vec<LostCopy>> {
        let mut mended = Pool::mend_copies(self)?;
        mended.extend(engines::copies::mend_copies(self, had_lost_epochs)?);
        Ok(mended)
    }

    fn find_tree(&self, name: &str) -> Result<Option<TreeRoot>> {
        Pool::find_tree(self, name)
    }

    fn create_tree(
        &self,
        new: NewTree<'_>,
        kind: TreeOptions,
        opening: &StoreOpening,
    ) -> Result<Arc<StripedTree>> {
        let factory = M::factory(&kind.engine.media);
        let tree = (factory.create)(self, new, kind.codec, &opening.of(kind))?;
        let versions = TreeVersions::of_new(&opening.versions);
        Ok(Arc::new(StripedTree::new(self, tree, versions)))
    }

    fn open_tree(
        &self,
        root: &TreeRoot,
        settings: Settings,
        opening: &StoreOpening,
    ) -> Result<Arc<StripedTree>> {
        let kind = opening.kind(root)?;
        let kind = TreeOptions {
            settings: settings.or(kind.settings),
            ..kind
        };
        let factory = M::factory(&kind.engine.media);
        let tree = (factory.open)(self, root, kind.codec, &opening.of(kind))?;
        let versions = TreeVersions::of_existing(&opening.versions);
        Ok(Arc::new(StripedTree::new(self, tree, versions)))
    }

    fn salvage(&self, root: &TreeRoot, opening: &StoreOpening, visit: &mut Visit<'_>) -> Salvaged {
        let kind = opening.kind(root)?;
        (M::factory(&kind.engine.media).salvage)(self, root, kind.codec, visit)
    }

    fn expect_batches_finished(&self) -> Result<()> {
        batch::expect_finished(self)
    }

    fn write_batch(&self, batch: &BatchRequest<'_>) -> Result<Lsn> {
        batch::write(self, batch)
    }

    fn remove_tree(&self, root: &TreeRoot) -> Result<()> {
        Pool::remove_tree(self, root)
    }

    fn rename_tree(&self, root: &TreeRoot, name: &str) -> Result<()> {
        Pool::rename_tree(self, root, name).map(drop)
    }

    fn set_encodings(&self, root: &TreeRoot, encodings: Option<&Encodings>) -> Result<()> {
        Pool::set_encodings(self, root, encodings).map(drop)
    }

    fn leave_unclean(&self) {
        Pool::leave_unclean(self);
    }

    fn sync(&self) -> Result<()> {
        let lsn = self.pin().fence();
        self.settle(lsn)
    }

    fn wait_for(&self, lsn: Lsn) -> Result<()> {
        self.peek().wait_for(lsn)
    }

    fn settle(&self, lsn: Lsn) -> Result<()> {
        self.peek().settle(lsn)
    }

    fn keep_up(&self, lsn: Lsn) -> Result<()> {
        self.peek().keep_up(lsn)
    }

    fn wake_when_durable(&self, lsn: Lsn, waker: &Waker) -> Result<bool> {
        Ok(self.medium().wake_when_durable(lsn, waker)?)
    }

    fn is_durable(&self, lsn: Lsn) -> bool {
        // The notes that an open makes by itself are not synced as long as nothing else is written.
        // If they are lost, no entry is.
        let medium = self.medium();
        medium.durable() >= lsn || medium.is_at_rest()
    }

    fn process(&self) -> Process {
        Pool::process(self)
    }

    fn log_stat(&self) -> Option<FileStat> {
        self.medium().file().map(medium::File::stat)
    }

    fn backup(&self, target: &CopyTarget) -> Result<u64> {
        let file = self.medium().file();
        let file = file.ok_or_else(|| ErrorKind::NoBackup {
            why: "its medium has no log".to_owned(),
        })?;
        Ok(file.backup(target)?)
    }

    fn reclaim(&self) {
        Pool::reclaim(self);
    }

    fn release(&self) {
        Pool::release(self);
    }

    fn compact(&self) -> Result<()> {
        Pool::compact(self)
    }

    fn evacuate(&self, choice: Evacuate, excluded: &BTreeSet<u64>) -> Evacuation {
        Pool::evacuate(self, choice, excluded)
    }

    fn stat(&self) -> PoolStat {
        Pool::stat(self)
    }

    fn survives(&self) -> Survives {
        self.medium().survives()
    }

    fn describe(&self) -> String {
        self.medium().describe()
    }

    fn pool_file(&self) -> Option<&std::fs::File> {
        self.medium().pool_file()
    }

    fn abandon(&self) -> Result<()> {
        // If the medium has no log, the drop of the pool writes to a file without a name.
        let Some(file) = self.medium().file() else {
            return Ok(());
        };
        file.abandon().map_err(Error::io("remove the log"))
    }

    fn close(&mut self) -> Result<()> {
        self.close_in_place()
    }
}
