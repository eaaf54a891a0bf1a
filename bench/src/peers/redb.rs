//! redb.

use std::path::Path;

use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable as _, Table,
    TableDefinition,
};

use super::{
    CACHE_BYTES, Peer, PeerKind, PeerReader, Result, TransactionDurability, TransactionPeer,
};
use crate::entries::EntrySource;
use crate::transfer::{AccountTransfer, TransferKeys};

pub(super) const KIND: PeerKind = PeerKind {
    name: "redb",
    is_ours: false,
    package: "redb",
    beneath: || None,
    settings: "a cache of 1 GiB, the default; one-phase commits and no quick repair, the defaults and the fastest for writes. \
        Load: one transaction. Durable put or batch: one transaction, `Durability::Immediate`. Single writes that need not be \
        durable: one transaction each with `Durability::None`, one durable commit at the end. Gets and ranges: one read \
        transaction and one open table for all of a thread. Transactions: one write transaction each, which are serial; those that are \
        durable together with `Durability::None`.",
    open,
    open_transactions,
};

const ENTRIES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("entries");

struct Redb {
    database: Database,
}

fn open(_: &'static PeerKind, folder: &Path) -> Result<Box<dyn Peer>> {
    Ok(Box::new(open_store(folder)?))
}

fn open_transactions(
    _: &'static PeerKind,
    folder: &Path,
    durability: TransactionDurability,
) -> Result<Box<dyn TransactionPeer>> {
    Ok(Box::new(Transactions {
        store: open_store(folder)?,
        durability: match durability {
            TransactionDurability::OnCommit => Durability::Immediate,
            TransactionDurability::OnSync => Durability::None,
        },
    }))
}

fn open_store(folder: &Path) -> Result<Redb> {
    let database = Builder::new()
        .set_cache_size(CACHE_BYTES)
        .create(folder.join("data.redb"))?;
    let store = Redb { database };
    // A reader needs the table to exist.
    if store.database.begin_read()?.open_table(ENTRIES).is_err() {
        store.write(Durability::Immediate, |_| Ok(()))?;
    }
    Ok(store)
}

impl Redb {
    fn write(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut Table<&'static [u8], &'static [u8]>) -> Result,
    ) -> Result {
        let mut txn = self.database.begin_write()?;
        txn.set_durability(durability)?;
        txn.set_two_phase_commit(false);
        change(&mut txn.open_table(ENTRIES)?)?;
        Ok(txn.commit()?)
    }
}

impl Peer for Redb {
    fn load(&self, entries: &mut EntrySource) -> Result {
        self.write(Durability::Immediate, |table| {
            while let Some((key, value)) = entries.next_entry() {
                table.insert(key, value)?;
            }
            Ok(())
        })
    }

    fn load_sorted(&self, entries: &mut EntrySource) -> Result {
        self.load(entries)
    }

    fn put_durable(&self, key: &[u8], value: &[u8]) -> Result {
        self.write(Durability::Immediate, |table| {
            table.insert(key, value)?;
            Ok(())
        })
    }

    fn put_many_durable(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result {
        self.write(Durability::Immediate, |table| {
            for (key, value) in entries {
                table.insert(key.as_slice(), value.as_slice())?;
            }
            Ok(())
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result {
        self.write(Durability::None, |table| {
            table.insert(key, value)?;
            Ok(())
        })
    }

    fn remove(&self, key: &[u8]) -> Result {
        self.write(Durability::None, |table| {
            table.remove(key)?;
            Ok(())
        })
    }

    fn sync(&self) -> Result {
        self.write(Durability::Immediate, |_| Ok(()))
    }

    fn reader(&self) -> Result<Box<dyn PeerReader + '_>> {
        // The table keeps its transaction alive.
        Ok(Box::new(TableReader {
            table: self.database.begin_read()?.open_table(ENTRIES)?,
        }))
    }

    fn close(self: Box<Self>) -> Result {
        Ok(self.database.close()?)
    }
}

struct Transactions {
    store: Redb,
    durability: Durability,
}

impl TransactionPeer for Transactions {
    fn transact(&self, keys: &TransferKeys, transfer: &mut AccountTransfer) -> Result<u64> {
        self.store.write(self.durability, |table| {
            for (number, key) in keys.iter().enumerate() {
                let value = table.get(key.as_slice())?;
                transfer.see(number, value.as_ref().map(redb::AccessGuard::value));
            }
            for (key, value) in keys.iter().zip(transfer.new_values()) {
                table.insert(key.as_slice(), value.as_slice())?;
            }
            Ok(())
        })?;
        // There is one writer at a time.
        Ok(0)
    }

    fn sync(&self) -> Result {
        self.store.sync()
    }

    fn reader(&self) -> Result<Box<dyn PeerReader + '_>> {
        self.store.reader()
    }

    fn close(self: Box<Self>) -> Result {
        Box::new(self.store).close()
    }
}

struct TableReader {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl PeerReader for TableReader {
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self
            .table
            .get(key)?
            .map(|value| see(value.value()))
            .is_some())
    }

    fn range(&mut self, first: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result {
        for entry in self.table.range(first..)?.take(count) {
            let (key, value) = entry?;
            see(key.value(), value.value());
        }
        Ok(())
    }
}
