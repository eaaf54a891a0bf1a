//! Everleaf, with each of its engines.

use std::path::Path;

use everleaf::{Batch, CodecKind, Engine, Options, Range, Settings, Store, Tree, TreeOptions};

use super::{Peer, PeerKind, PeerReader, Result};
use crate::entries::EntrySource;

/// The settings are the defaults; what differs between engines is when a write is durable.
const IMMEDIATE: &str = "all defaults, which on an ordinary disk is the medium `file`. Loads and single writes that need not be durable: `pending().put`, one `sync` at the end. \
    Durable batch: `Store::write`. \
    Load in order: `bulk_load` to full leaves.";
const EPOCHS: &str = "as `rntree`, but writes are durable by epochs of 64 ms: a durable put, and a durable batch, \
    ends the epoch.";

pub(super) const RNTREE: PeerKind = kind("rntree", IMMEDIATE);
pub(super) const BZTREE: PeerKind = kind("bztree", "as `rntree`");
pub(super) const MASSTREE: PeerKind = kind("masstree", EPOCHS);
pub(super) const WBTREE: PeerKind = kind("wbtree", "as `rntree`; one thread writes at a time");
pub(super) const CAWBT: PeerKind = kind("cawbt", "as `rntree`; one thread writes at a time");

const fn kind(name: &'static str, settings: &'static str) -> PeerKind {
    PeerKind {
        name,
        is_ours: true,
        package: "everleaf",
        beneath: || None,
        settings,
        open,
    }
}

struct Everleaf {
    store: Store,
    tree: Tree,
}

fn open(kind: &'static PeerKind, folder: &Path) -> Result<Box<dyn Peer>> {
    let engine = Engine::from_name(kind.name).ok_or("this release of Everleaf lacks the engine")?;
    let store = Options::new().open(folder.join("data.pool"))?;
    let options = TreeOptions {
        engine,
        codec: CodecKind::Record,
        settings: Settings::NONE,
    };
    let tree = store.tree_with("data", options)?;
    Ok(Box::new(Everleaf { store, tree }))
}

impl Peer for Everleaf {
    fn load(&self, entries: &mut EntrySource) -> Result {
        while let Some((key, value)) = entries.next_entry() {
            drop(self.tree.pending().put(key, value)?);
        }
        Ok(self.store.sync()?)
    }

    fn load_sorted(&self, entries: &mut EntrySource) -> Result {
        let owned = std::iter::from_fn(|| {
            entries
                .next_entry()
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
        });
        self.tree.bulk_load(owned, 1.0)?;
        Ok(self.store.sync()?)
    }

    fn put_durable(&self, key: &[u8], value: &[u8]) -> Result {
        if self.tree.kind().engine.is_buffered() {
            return Ok(self.tree.pending().put(key, value)?.wait()?);
        }
        Ok(self.tree.put(key, value)?)
    }

    fn put_many_durable(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result {
        let mut batch = Batch::new();
        for (key, value) in entries {
            batch.put(&self.tree, key, value);
        }
        Ok(self.store.write_pending(&batch)?.wait()?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result {
        drop(self.tree.pending().put(key, value)?);
        Ok(())
    }

    fn remove(&self, key: &[u8]) -> Result {
        drop(self.tree.pending().remove(key)?);
        Ok(())
    }

    fn sync(&self) -> Result {
        Ok(self.store.sync()?)
    }

    fn reader(&self) -> Result<Box<dyn PeerReader + '_>> {
        Ok(Box::new(TreeReader {
            tree: &self.tree,
            value: Vec::new(),
        }))
    }

    fn close(self: Box<Self>) -> Result {
        drop(self.tree);
        Ok(self.store.close()?)
    }
}

struct TreeReader<'p> {
    tree: &'p Tree,
    /// Everleaf lends no memory of its pool, so it copies each value to here.
    value: Vec<u8>,
}

impl PeerReader for TreeReader<'_> {
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let is_present = self.tree.get_into(key, &mut self.value)?;
        if is_present {
            see(&self.value);
        }
        Ok(is_present)
    }

    fn range(&mut self, first: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result {
        let mut range: Range<'_> = self.tree.range(first..);
        for _ in 0..count {
            let Some((key, value)) = range.next_entry()? else {
                break;
            };
            see(key, value);
        }
        Ok(())
    }
}
