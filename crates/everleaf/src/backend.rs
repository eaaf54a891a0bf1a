//! A pool on some medium, seen without the medium's type.

use std::sync::Arc;

use engines::bztree::{BzTree, BzTreeOptions};
use engines::index::{Index, RecordCodec, Violation, WordCodec, WordIndex};
use engines::masstree::{EpochLength, MassTree, MassTreeOptions, Mode, WIDTH_TRANSIENT};
use engines::rntree::{RnTree, RnTreeOptions};
use medium::file::CopyTarget;
use medium::{FileStat, Lsn, Medium, Survives};
use pool::{Error, Pool, PoolStat, Result, Roots, TreeRoot};

use crate::{Codec, Engine, TreeOptions};

/// An open tree without the medium's type.
#[derive(Clone)]
pub(crate) struct AnyTree {
    pub(crate) index: Arc<dyn Index>,
    /// The same tree as a tree of words, if it is one: a call through this is the only one between user and engine.
    pub(crate) words: Option<Arc<dyn WordIndex>>,
}

impl AnyTree {
    fn records(tree: impl Index + 'static) -> Self {
        Self { index: Arc::new(tree), words: None }
    }

    fn words<T: Index + WordIndex + 'static>(tree: T) -> Self {
        let tree = Arc::new(tree);
        Self { index: Arc::clone(&tree) as _, words: Some(tree) }
    }

    /// Whether nobody else holds it.
    pub(crate) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.index) == 1 + usize::from(self.words.is_some())
    }
}

/// What takes the entries of a damaged tree, until it returns `false`.
pub(crate) type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> bool + 'v;

/// What a store needs of its pool, whatever the medium.
pub(crate) trait Backend: Send + Sync {
    fn roots(&self) -> Result<Roots>;
    fn create_tree(&self, name: &str, kind: TreeOptions, opening: &Opening) -> Result<AnyTree>;
    fn open_tree(&self, root: &TreeRoot, opening: &Opening) -> Result<AnyTree>;
    /// `None` for engines whose trees have to be opened for that.
    fn salvage(&self, root: &TreeRoot, visit: &mut Visit<'_>) -> Result<Option<Vec<Violation>>>;
    fn remove_tree(&self, root: &TreeRoot) -> Result<()>;
    fn needs_mark(&self) -> bool;
    fn finish_marking(&self);
    fn finish_marking_later(&self);
    fn has_bitmaps_to_read(&self) -> bool;
    fn read_bitmaps(&self) -> Result<()>;
    fn give_up_marking(&self);
    fn leave_unclean(&self);
    /// Another handle of the same pool.
    fn share(&self) -> Arc<dyn Backend>;
    /// Makes durable what was written so far, by any thread.
    fn sync(&self) -> Result<()>;
    fn settle(&self, lsn: Lsn) -> Result<()>;
    fn durable(&self) -> Lsn;
    /// Figures of the log, if the medium has one.
    fn log_stat(&self) -> Option<FileStat>;
    fn backup(&self, target: &CopyTarget) -> Result<u64>;
    fn reclaim(&self);
    fn stat(&self) -> PoolStat;
    fn survives(&self) -> Survives;
    fn describe(&self) -> String;
    fn close(self: Box<Self>) -> Result<()>;
}

/// How trees are opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// Threads that recover; all cores if none are named.
    pub(crate) threads: Option<usize>,
    /// When epochs end.
    pub(crate) epoch: EpochLength,
    /// How changes of a Masstree are made undoable.
    pub(crate) masstree_mode: Mode,
    /// Whether dropping a tree ends its epoch.
    pub(crate) close_cleanly: bool,
}

impl Opening {
    fn rntree(&self) -> RnTreeOptions {
        let mut options = RnTreeOptions::default();
        options.recovery_threads = self.threads.unwrap_or(options.recovery_threads);
        options
    }

    fn bztree(kind: TreeOptions) -> BzTreeOptions {
        BzTreeOptions { mark_later: true, nodes: kind.nodes, ..BzTreeOptions::default() }
    }

    fn masstree(&self) -> MassTreeOptions {
        let Self { threads, epoch, masstree_mode: mode, close_cleanly } = *self;
        let mut options = MassTreeOptions { epoch, mode, close_cleanly, ..MassTreeOptions::default() };
        options.recovery_threads = threads.unwrap_or(options.recovery_threads);
        options
    }
}

impl<M: Medium> Backend for Pool<M> {
    fn roots(&self) -> Result<Roots> {
        Pool::roots(self)
    }

    fn create_tree(&self, name: &str, kind: TreeOptions, opening: &Opening) -> Result<AnyTree> {
        if kind.nodes.is_some() && kind.engine != Engine::BzTree {
            return Err(Error::NodesFixed { engine: kind.engine.name() });
        }
        let transient = kind.engine == Engine::MassTree && opening.masstree_mode == Mode::Transient;
        Ok(match (kind.engine, kind.codec) {
            (_, Codec::Record) if transient => {
                let options = opening.masstree();
                AnyTree::records(MassTree::<M, RecordCodec, WIDTH_TRANSIENT>::create(self, name, options)?)
            }
            (_, Codec::Word) if transient => {
                let options = opening.masstree();
                AnyTree::words(MassTree::<M, WordCodec, WIDTH_TRANSIENT>::create(self, name, options)?)
            }
            (Engine::RnTree, Codec::Record) => {
                AnyTree::records(RnTree::<M, RecordCodec>::create(self, name, opening.rntree())?)
            }
            (Engine::RnTree, Codec::Word) => {
                AnyTree::words(RnTree::<M, WordCodec>::create(self, name, opening.rntree())?)
            }
            (Engine::MassTree, Codec::Record) => {
                AnyTree::records(MassTree::<M, RecordCodec>::create(self, name, opening.masstree())?)
            }
            (Engine::MassTree, Codec::Word) => {
                AnyTree::words(MassTree::<M, WordCodec>::create(self, name, opening.masstree())?)
            }
            (Engine::BzTree, Codec::Record) => {
                AnyTree::records(BzTree::<M, RecordCodec>::create(self, name, Opening::bztree(kind))?)
            }
            (Engine::BzTree, Codec::Word) => {
                AnyTree::words(BzTree::<M, WordCodec>::create(self, name, Opening::bztree(kind))?)
            }
        })
    }

    fn open_tree(&self, root: &TreeRoot, opening: &Opening) -> Result<AnyTree> {
        let kind = TreeOptions::of(root)?;
        Ok(match (kind.engine, kind.codec) {
            (Engine::RnTree, Codec::Record) => {
                AnyTree::records(RnTree::<M, RecordCodec>::open(self, root, opening.rntree())?)
            }
            (Engine::RnTree, Codec::Word) => {
                AnyTree::words(RnTree::<M, WordCodec>::open(self, root, opening.rntree())?)
            }
            (Engine::MassTree, Codec::Record) => {
                AnyTree::records(MassTree::<M, RecordCodec>::open(self, root, opening.masstree())?)
            }
            (Engine::MassTree, Codec::Word) => {
                AnyTree::words(MassTree::<M, WordCodec>::open(self, root, opening.masstree())?)
            }
            (Engine::BzTree, Codec::Record) => {
                AnyTree::records(BzTree::<M, RecordCodec>::open(self, root, Opening::bztree(kind))?)
            }
            (Engine::BzTree, Codec::Word) => {
                AnyTree::words(BzTree::<M, WordCodec>::open(self, root, Opening::bztree(kind))?)
            }
        })
    }

    fn salvage(&self, root: &TreeRoot, visit: &mut Visit<'_>) -> Result<Option<Vec<Violation>>> {
        let kind = TreeOptions::of(root)?;
        Ok(match (kind.engine, kind.codec) {
            (Engine::RnTree, Codec::Record) => Some(RnTree::<M, RecordCodec>::salvage(self, root, visit)?),
            (Engine::RnTree, Codec::Word) => Some(RnTree::<M, WordCodec>::salvage(self, root, visit)?),
            (Engine::BzTree, Codec::Record) => Some(BzTree::<M, RecordCodec>::salvage(self, root, visit)?),
            (Engine::BzTree, Codec::Word) => Some(BzTree::<M, WordCodec>::salvage(self, root, visit)?),
            (Engine::MassTree, _) => None,
        })
    }

    fn remove_tree(&self, root: &TreeRoot) -> Result<()> {
        Pool::remove_tree(self, root)
    }

    fn needs_mark(&self) -> bool {
        Pool::needs_mark(self)
    }

    fn finish_marking(&self) {
        Pool::finish_marking(self);
    }

    fn finish_marking_later(&self) {
        Pool::finish_marking_later(self);
    }

    fn has_bitmaps_to_read(&self) -> bool {
        Pool::has_bitmaps_to_read(self)
    }

    fn read_bitmaps(&self) -> Result<()> {
        Pool::read_bitmaps(self)
    }

    fn give_up_marking(&self) {
        Pool::give_up_marking(self);
    }

    fn leave_unclean(&self) {
        Pool::leave_unclean(self);
    }

    fn share(&self) -> Arc<dyn Backend> {
        Arc::new(self.clone())
    }

    fn sync(&self) -> Result<()> {
        let lsn = self.pin().fence();
        self.settle(lsn)
    }

    fn settle(&self, lsn: Lsn) -> Result<()> {
        Ok(self.medium().settle(lsn)?)
    }

    fn durable(&self) -> Lsn {
        self.medium().durable()
    }

    fn log_stat(&self) -> Option<FileStat> {
        self.medium().file().map(medium::File::stat)
    }

    fn backup(&self, target: &CopyTarget) -> Result<u64> {
        let file = self.medium().file();
        let file = file.ok_or_else(|| Error::NoBackup { why: "its medium has no log".to_owned() })?;
        Ok(file.backup(target)?)
    }

    fn reclaim(&self) {
        Pool::reclaim(self);
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

    fn close(self: Box<Self>) -> Result<()> {
        Pool::close(*self)
    }
}
