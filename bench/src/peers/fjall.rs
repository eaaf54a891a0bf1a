//! fjall.

use std::path::Path;

use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace,
    PersistMode, Readable as _,
};

use super::{
    CACHE_BYTES, Peer, PeerKind, PeerReader, Result, TransactionDurability, TransactionPeer,
};
use crate::entries::EntrySource;
use crate::transfer::{AccountTransfer, TransferKeys};

pub(super) const KIND: PeerKind = PeerKind {
    name: "fjall",
    is_ours: false,
    package: "fjall",
    beneath: || None,
    settings: "a block cache of 1 GiB, as it advises for data that fits; no compression, since the values are random; Bloom filters \
        and a memtable of 64 MiB, the defaults. Loads and single writes that need not be durable: single inserts into the journal, \
        one `persist` at the end; in order: an ingestion. Durable put: an insert and `persist(SyncData)`, the `fdatasync` that the \
        others use as well. Durable batch: one batch with that durability. Transactions: its optimistic ones, which are serialisable, run again at once after a \
        conflict; a durable one is followed by `persist(SyncData)`, since a commit with that durability syncs under the lock that all \
        commits and begins take. Closed by dropping it, which leaves the journal to the next \
        open.",
    open,
    open_transactions,
};

struct Fjall {
    // Dropped before the database.
    entries: Keyspace,
    database: Database,
}

fn open(_: &'static PeerKind, folder: &Path) -> Result<Box<dyn Peer>> {
    let database = Database::builder(folder)
        .cache_size(CACHE_BYTES as u64)
        .open()?;
    let entries = database.keyspace("entries", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { entries, database }))
}

impl Peer for Fjall {
    fn load(&self, entries: &mut EntrySource) -> Result {
        while let Some((key, value)) = entries.next_entry() {
            self.entries.insert(key, value)?;
        }
        self.sync()
    }

    fn load_sorted(&self, entries: &mut EntrySource) -> Result {
        let mut ingestion = self.entries.start_ingestion()?;
        while let Some((key, value)) = entries.next_entry() {
            ingestion.write(key, value)?;
        }
        ingestion.finish()?;
        self.sync()
    }

    fn put_durable(&self, key: &[u8], value: &[u8]) -> Result {
        self.entries.insert(key, value)?;
        self.sync()
    }

    fn put_many_durable(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result {
        let mut batch = self
            .database
            .batch()
            .durability(Some(PersistMode::SyncData));
        for (key, value) in entries {
            batch.insert(&self.entries, key.as_slice(), value.as_slice());
        }
        Ok(batch.commit()?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result {
        Ok(self.entries.insert(key, value)?)
    }

    fn remove(&self, key: &[u8]) -> Result {
        Ok(self.entries.remove(key)?)
    }

    fn sync(&self) -> Result {
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn reader(&self) -> Result<Box<dyn PeerReader + '_>> {
        Ok(Box::new(KeyspaceReader {
            entries: &self.entries,
        }))
    }

    fn close(self: Box<Self>) -> Result {
        self.database.persist(PersistMode::SyncAll)?;
        Ok(())
    }
}

struct Transactions {
    // Dropped before the database.
    entries: OptimisticTxKeyspace,
    database: OptimisticTxDatabase,
    durability: TransactionDurability,
}

fn open_transactions(
    _: &'static PeerKind,
    folder: &Path,
    durability: TransactionDurability,
) -> Result<Box<dyn TransactionPeer>> {
    let database = OptimisticTxDatabase::builder(folder)
        .cache_size(CACHE_BYTES as u64)
        .open()?;
    let entries = database.keyspace("entries", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Transactions {
        entries,
        database,
        durability,
    }))
}

impl Transactions {
    /// One attempt; returns whether it committed.
    fn attempt(&self, keys: &TransferKeys, transfer: &mut AccountTransfer) -> Result<bool> {
        let mut transaction = self.database.write_tx()?;
        for (number, key) in keys.iter().enumerate() {
            let value = transaction.get(&self.entries, key)?;
            transfer.see(number, value.as_deref());
        }
        for (key, value) in keys.iter().zip(transfer.new_values()) {
            transaction.insert(&self.entries, key.as_slice(), value.as_slice());
        }
        Ok(transaction.commit()?.is_ok())
    }
}

impl TransactionPeer for Transactions {
    fn transact(&self, keys: &TransferKeys, transfer: &mut AccountTransfer) -> Result<u64> {
        let mut conflicts = 0;
        while !self.attempt(keys, transfer)? {
            conflicts += 1;
        }
        if self.durability == TransactionDurability::OnCommit {
            self.sync()?;
        }
        Ok(conflicts)
    }

    fn sync(&self) -> Result {
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn reader(&self) -> Result<Box<dyn PeerReader + '_>> {
        Ok(Box::new(KeyspaceReader {
            entries: self.entries.inner(),
        }))
    }

    fn close(self: Box<Self>) -> Result {
        self.database.persist(PersistMode::SyncAll)?;
        Ok(())
    }
}

struct KeyspaceReader<'p> {
    entries: &'p Keyspace,
}

impl PeerReader for KeyspaceReader<'_> {
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.entries.get(key)?.map(|value| see(&value)).is_some())
    }

    fn range(&mut self, first: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result {
        for guard in self.entries.range(first..).take(count) {
            let (key, value) = guard.into_inner()?;
            see(&key, &value);
        }
        Ok(())
    }
}
