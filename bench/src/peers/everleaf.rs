//! Everleaf, with each of its engines.

use std::path::Path;

use everleaf::{
    Batch, CodecKind, Durability, Engine, ErrorKind, Options, Range, Settings, Store, Transaction,
    Tree, TreeOptions, View as _,
};

use super::{Peer, PeerKind, PeerReader, Result, TransactionDurability, TransactionPeer};
use crate::entries::EntrySource;
use crate::transfer::{AccountTransfer, TransferKeys};

/// The settings are the defaults; what differs between engines is when a write is durable.
const IMMEDIATE: &str = "all defaults, which on an ordinary disk is the medium `file`. Loads and single writes that need not be durable: `pending().put`, one `sync` at the end. \
    Durable batch: `Store::write`. \
    Load in order: `bulk_load` to full leaves. \
    Transactions: `Store::transaction`, with as many attempts as it takes; those that are durable together with `Durability::OnSync`.";
const EPOCHS: &str = "as `rntree`, but writes are durable by epochs of 64 ms: a durable put, and a durable batch, \
    ends the epoch. A durable transaction waits with `commit_pending`, which ends the epoch as well, and is run again at once after a conflict.";

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
        open_transactions,
    }
}

struct Everleaf {
    store: Store,
    tree: Tree,
}

fn open(kind: &'static PeerKind, folder: &Path) -> Result<Box<dyn Peer>> {
    Ok(Box::new(open_with(kind, folder, &Options::new())?))
}

fn open_transactions(
    kind: &'static PeerKind,
    folder: &Path,
    durability: TransactionDurability,
) -> Result<Box<dyn TransactionPeer>> {
    let mut options = Options::new().transaction_attempts(u32::MAX);
    if durability == TransactionDurability::OnSync {
        options = options.durability(Durability::OnSync);
    }
    Ok(Box::new(Transactions {
        everleaf: open_with(kind, folder, &options)?,
        durability,
    }))
}

fn open_with(kind: &PeerKind, folder: &Path, options: &Options) -> Result<Everleaf> {
    let engine = Engine::from_name(kind.name).ok_or("this release of Everleaf lacks the engine")?;
    let store = options.open(folder.join("data.pool"))?;
    let options = TreeOptions {
        engine,
        codec: CodecKind::Record,
        settings: Settings::NONE,
    };
    let tree = store.tree_with("data", options)?;
    Ok(Everleaf { store, tree })
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

struct Transactions {
    everleaf: Everleaf,
    durability: TransactionDurability,
}

impl Transactions {
    /// The reads and writes of one attempt.
    fn attempt(
        &self,
        transaction: &mut Transaction,
        keys: &TransferKeys,
        transfer: &mut AccountTransfer,
    ) -> everleaf::Result<()> {
        let tree = &self.everleaf.tree;
        for (number, key) in keys.iter().enumerate() {
            let value = transaction.get(tree, key)?;
            transfer.see(number, value.as_deref());
        }
        for (key, value) in keys.iter().zip(transfer.new_values()) {
            transaction.put(tree, key, value)?;
        }
        Ok(())
    }

    /// One attempt of a transaction that ends the epoch, and waits until that is durable.
    fn attempt_to_end_epoch(
        &self,
        keys: &TransferKeys,
        transfer: &mut AccountTransfer,
    ) -> everleaf::Result<()> {
        let mut transaction = self.everleaf.store.begin()?;
        self.attempt(&mut transaction, keys, transfer)?;
        transaction.commit_pending()?.wait()
    }

    /// A durable transaction on a tree that is durable by epochs, where `Store::transaction` does
    /// not wait for the end of the epoch.
    fn transact_by_epochs(
        &self,
        keys: &TransferKeys,
        transfer: &mut AccountTransfer,
    ) -> Result<u64> {
        let mut conflicts = 0;
        loop {
            let Err(error) = self.attempt_to_end_epoch(keys, transfer) else {
                return Ok(conflicts);
            };
            match error.kind() {
                ErrorKind::Conflict { .. } | ErrorKind::ViewTooOld { .. } => conflicts += 1,
                _ => return Err(error.into()),
            }
        }
    }
}

impl TransactionPeer for Transactions {
    fn transact(&self, keys: &TransferKeys, transfer: &mut AccountTransfer) -> Result<u64> {
        let is_buffered = self.everleaf.tree.kind().engine.is_buffered();
        if is_buffered && self.durability == TransactionDurability::OnCommit {
            return self.transact_by_epochs(keys, transfer);
        }
        let mut attempts = 0;
        self.everleaf.store.transaction(|transaction| {
            attempts += 1;
            self.attempt(transaction, keys, transfer)
        })?;
        Ok(attempts - 1)
    }

    fn sync(&self) -> Result {
        self.everleaf.sync()
    }

    fn reader(&self) -> Result<Box<dyn PeerReader + '_>> {
        self.everleaf.reader()
    }

    fn close(self: Box<Self>) -> Result {
        Box::new(self.everleaf).close()
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
