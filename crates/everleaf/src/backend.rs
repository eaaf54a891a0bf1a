//! A pool on some medium, seen without the medium's type.

use std::sync::Arc;

use engines::index::{Index, RecordCodec, WordCodec};
use engines::rntree::{RnTree, RnTreeOptions};
use medium::{Medium, Survives};
use pool::{Pool, PoolStat, Result, TreeRoot};

use crate::{Codec, Engine, TreeOptions};

/// What a store needs of its pool, whatever the medium.
pub(crate) trait Backend: Send + Sync {
    fn roots(&self) -> Result<Vec<TreeRoot>>;
    fn create_tree(&self, name: &str, kind: TreeOptions, threads: Option<usize>) -> Result<Arc<dyn Index>>;
    fn open_tree(&self, root: &TreeRoot, threads: Option<usize>) -> Result<Arc<dyn Index>>;
    fn remove_tree(&self, root: &TreeRoot) -> Result<()>;
    fn needs_mark(&self) -> bool;
    fn finish_marking(&self);
    fn drain(&self) -> Result<()>;
    fn reclaim(&self);
    fn stat(&self) -> PoolStat;
    fn survives(&self) -> Survives;
    fn describe(&self) -> String;
    fn close(self: Box<Self>) -> Result<()>;
}

fn rntree_options(threads: Option<usize>) -> RnTreeOptions {
    let mut options = RnTreeOptions::default();
    if let Some(threads) = threads {
        options.recovery_threads = threads;
    }
    options
}

impl<M: Medium> Backend for Pool<M> {
    fn roots(&self) -> Result<Vec<TreeRoot>> {
        self.trees()
    }

    fn create_tree(&self, name: &str, kind: TreeOptions, threads: Option<usize>) -> Result<Arc<dyn Index>> {
        let options = rntree_options(threads);
        Ok(match (kind.engine, kind.codec) {
            (Engine::RnTree, Codec::Record) => {
                Arc::new(RnTree::<M, RecordCodec>::create(self, name, options)?)
            }
            (Engine::RnTree, Codec::Word) => Arc::new(RnTree::<M, WordCodec>::create(self, name, options)?),
        })
    }

    fn open_tree(&self, root: &TreeRoot, threads: Option<usize>) -> Result<Arc<dyn Index>> {
        let options = rntree_options(threads);
        let kind = TreeOptions::of(root)?;
        Ok(match (kind.engine, kind.codec) {
            (Engine::RnTree, Codec::Record) => Arc::new(RnTree::<M, RecordCodec>::open(self, root, options)?),
            (Engine::RnTree, Codec::Word) => Arc::new(RnTree::<M, WordCodec>::open(self, root, options)?),
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

    fn drain(&self) -> Result<()> {
        Ok(self.pin().drain()?)
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
