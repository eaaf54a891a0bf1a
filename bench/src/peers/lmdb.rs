//! LMDB, through heed.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, PutFlags, RoTxn, RwTxn,
    WithTls,
};

use super::{Peer, PeerKind, PeerReader, Result, TransactionDurability, TransactionPeer};
use crate::entries::EntrySource;
use crate::transfer::{AccountTransfer, TransferKeys};

pub(super) const KIND: PeerKind = PeerKind {
    name: "lmdb",
    is_ours: false,
    package: "heed",
    beneath: || {
        let heed::LmdbVersion {
            major,
            minor,
            patch,
            ..
        } = heed::lmdb_version();
        Some(format!("LMDB {major}.{minor}.{patch}"))
    },
    settings: "a map of 64 GiB; no `WRITEMAP`, since a stray pointer could damage the file; 512 readers. Load: one transaction; \
        in order: with `APPEND`. Durable put or batch: one transaction with a full sync. Single writes that need not be durable: \
        one transaction each with `NOSYNC`, one sync at the end. Gets and ranges: one read transaction for all of a thread. Transactions: one write transaction each, which are serial; those \
        that are durable together with `NOSYNC`.",
    open,
    open_transactions,
};

/// Only address space: the file grows as needed.
const MAP_BYTES: usize = 64 << 30;
const READERS_MAX: u32 = 512;

struct Lmdb {
    env: Env,
    entries: Database<'static, Bytes, Bytes>,
}

fn open(_: &'static PeerKind, folder: &Path) -> Result<Box<dyn Peer>> {
    Ok(Box::new(open_with(folder, EnvFlags::empty())?))
}

fn open_transactions(
    _: &'static PeerKind,
    folder: &Path,
    durability: TransactionDurability,
) -> Result<Box<dyn TransactionPeer>> {
    let flags = match durability {
        TransactionDurability::OnCommit => EnvFlags::empty(),
        TransactionDurability::OnSync => EnvFlags::NO_SYNC,
    };
    Ok(Box::new(open_with(folder, flags)?))
}

fn open_with(folder: &Path, flags: EnvFlags) -> Result<Lmdb> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(READERS_MAX);
    // SAFETY: the only flag that is ever given is `NO_SYNC`. Without syncs a crash of the system may
    // cost the file; the file is for this measurement only.
    unsafe { options.flags(flags) };
    // SAFETY: the folder was made by this program, which changes no file in it but through LMDB.
    let env = unsafe { options.open(folder) }?;
    let made = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        opener
            .create_database(txn, None)
            .map(CommitOrAbort::<_, ()>::Commit)
    })?;
    let entries = made.commit().ok_or("LMDB made no database")?;
    Ok(Lmdb { env, entries })
}

impl Lmdb {
    fn set_no_sync(&self, mode: FlagSetMode) -> Result {
        // SAFETY: the trait `Peer` has one caller of `put`, `remove` and `sync` at a time. Without
        // syncs a crash of the system may cost the file; the file is for this measurement only.
        Ok(unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode) }?)
    }

    fn write(&self, change: impl FnOnce(&mut RwTxn) -> heed::Result<()>) -> Result {
        let mut txn = self.env.write_txn()?;
        change(&mut txn)?;
        Ok(txn.commit()?)
    }
}

impl Peer for Lmdb {
    fn load(&self, entries: &mut EntrySource) -> Result {
        self.write(|txn| {
            while let Some((key, value)) = entries.next_entry() {
                self.entries.put(txn, key, value)?;
            }
            Ok(())
        })
    }

    fn load_sorted(&self, entries: &mut EntrySource) -> Result {
        self.write(|txn| {
            while let Some((key, value)) = entries.next_entry() {
                self.entries
                    .put_with_flags(txn, PutFlags::APPEND, key, value)?;
            }
            Ok(())
        })
    }

    fn put_durable(&self, key: &[u8], value: &[u8]) -> Result {
        self.write(|txn| self.entries.put(txn, key, value))
    }

    fn put_many_durable(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result {
        self.write(|txn| {
            entries
                .iter()
                .try_for_each(|(key, value)| self.entries.put(txn, key, value))
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result {
        self.set_no_sync(FlagSetMode::Enable)?;
        self.write(|txn| self.entries.put(txn, key, value))
    }

    fn remove(&self, key: &[u8]) -> Result {
        self.set_no_sync(FlagSetMode::Enable)?;
        self.write(|txn| self.entries.delete(txn, key).map(|_| ()))
    }

    fn sync(&self) -> Result {
        self.set_no_sync(FlagSetMode::Disable)?;
        Ok(self.env.force_sync()?)
    }

    fn reader(&self) -> Result<Box<dyn PeerReader + '_>> {
        Ok(Box::new(TransactionReader {
            txn: self.env.read_txn()?,
            entries: self.entries,
        }))
    }

    fn close(self: Box<Self>) -> Result {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

impl TransactionPeer for Lmdb {
    fn transact(&self, keys: &TransferKeys, transfer: &mut AccountTransfer) -> Result<u64> {
        self.write(|txn| {
            for (number, key) in keys.iter().enumerate() {
                let value = self.entries.get(txn, key)?;
                transfer.see(number, value);
            }
            for (key, value) in keys.iter().zip(transfer.new_values()) {
                self.entries.put(txn, key, value)?;
            }
            Ok(())
        })?;
        // There is one writer at a time.
        Ok(0)
    }

    fn sync(&self) -> Result {
        Ok(self.env.force_sync()?)
    }

    fn reader(&self) -> Result<Box<dyn PeerReader + '_>> {
        Peer::reader(self)
    }

    fn close(self: Box<Self>) -> Result {
        Peer::close(self)
    }
}

struct TransactionReader<'p> {
    txn: RoTxn<'p, WithTls>,
    entries: Database<'static, Bytes, Bytes>,
}

impl PeerReader for TransactionReader<'_> {
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.entries.get(&self.txn, key)?.map(see).is_some())
    }

    fn range(&mut self, first: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result {
        for entry in self
            .entries
            .range(&self.txn, &(Bound::Included(first), Bound::Unbounded))?
            .take(count)
        {
            let (key, value) = entry?;
            see(key, value);
        }
        Ok(())
    }
}
