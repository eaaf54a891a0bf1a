//! RocksDB.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBAccess, DBCompressionType, DBRawIteratorWithThreadMode,
    ErrorKind, IngestExternalFileOptions, OptimisticTransactionDB, OptimisticTransactionOptions,
    Options, ReadOptions, SstFileWriter, WriteBatch, WriteOptions,
};

use super::{
    CACHE_BYTES, Peer, PeerKind, PeerReader, Result, TransactionDurability, TransactionPeer,
};
use crate::entries::EntrySource;
use crate::transfer::{AccountTransfer, TransferKeys};

pub(super) const KIND: PeerKind = PeerKind {
    name: "rocksdb",
    is_ours: false,
    package: "rocksdb",
    beneath: version,
    settings: "a block cache of 1 GiB, Bloom filters of 10 bits a key, no compression, since the values are random; write buffers of \
        64 MiB, the default; as many background jobs as cores; log files are reused, which makes their syncs cheaper. Load: batches \
        of 1,000 into the log, one sync at the end; in order: a table file that is ingested. Durable put or batch: `sync = true`, \
        which threads share. Single writes that need not be durable: `sync = false`, one sync of the log at the end. Transactions: `OptimisticTransactionDB`; reads are `get_for_update` without a snapshot, so that a commit \
        fails if one of the three entries has changed since it was read, which makes transactions serialisable; run again at once after a \
        conflict; `sync` as above. Closed after a flush.",
    open,
    open_transactions,
};

const WRITE_BUFFER_BYTES: usize = 64 << 20;
const BLOOM_BITS_PER_KEY: f64 = 10.0;
const LOAD_BATCH: usize = 1000;
const LOGS_REUSED: usize = 2;

struct Rocks {
    database: DB,
    /// The file of a load in order, beside the database's own.
    sorted_file: std::path::PathBuf,
}

fn options() -> Options {
    let mut blocks = BlockBasedOptions::default();
    if let Ok(cache) = Cache::new_lru_cache(CACHE_BYTES) {
        blocks.set_block_cache(&cache);
    }
    blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    options.increase_parallelism(i32::try_from(cores).unwrap_or(i32::MAX));
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_compression_type(DBCompressionType::None);
    options.set_recycle_log_file_num(LOGS_REUSED);
    options.set_block_based_table_factory(&blocks);
    options
}

fn open(_: &'static PeerKind, folder: &Path) -> Result<Box<dyn Peer>> {
    let database = DB::open(&options(), folder.join("data"))?;
    Ok(Box::new(Rocks {
        database,
        sorted_file: folder.join("sorted.sst"),
    }))
}

/// The version of the library, which is not that of the package if the system's library is used. It
/// is only written to the log.
fn version() -> Option<String> {
    let folder = std::env::temp_dir().join(format!("everleaf-peers-{}", std::process::id()));
    drop(DB::open(&options(), &folder).ok()?);
    let log = std::fs::read_to_string(folder.join("LOG")).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&folder);
    let version = log
        .split_once("RocksDB version: ")?
        .1
        .lines()
        .next()?
        .trim();
    Some(format!("RocksDB {version}"))
}

fn durable() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

impl Peer for Rocks {
    fn load(&self, entries: &mut EntrySource) -> Result {
        let mut batch = WriteBatch::default();
        while let Some((key, value)) = entries.next_entry() {
            batch.put(key, value);
            if batch.len() == LOAD_BATCH {
                self.database.write(std::mem::take(&mut batch))?;
            }
        }
        self.database.write(batch)?;
        self.sync()
    }

    fn load_sorted(&self, entries: &mut EntrySource) -> Result {
        let options = options();
        let mut writer = SstFileWriter::create(&options);
        writer.open(&self.sorted_file)?;
        while let Some((key, value)) = entries.next_entry() {
            writer.put(key, value)?;
        }
        writer.finish()?;
        let mut ingest = IngestExternalFileOptions::default();
        ingest.set_move_files(true);
        Ok(self
            .database
            .ingest_external_file_opts(&ingest, vec![&self.sorted_file])?)
    }

    fn put_durable(&self, key: &[u8], value: &[u8]) -> Result {
        Ok(self.database.put_opt(key, value, &durable())?)
    }

    fn put_many_durable(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result {
        let mut batch = WriteBatch::default();
        for (key, value) in entries {
            batch.put(key, value);
        }
        Ok(self.database.write_opt(batch, &durable())?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result {
        Ok(self.database.put(key, value)?)
    }

    fn remove(&self, key: &[u8]) -> Result {
        Ok(self.database.delete(key)?)
    }

    fn sync(&self) -> Result {
        Ok(self.database.flush_wal(true)?)
    }

    fn reader(&self) -> Result<Box<dyn PeerReader + '_>> {
        let database = &self.database;
        Ok(Box::new(DatabaseReader {
            database,
            cursor: || database.raw_iterator(),
        }))
    }

    fn close(self: Box<Self>) -> Result {
        // Otherwise the next open would read the log.
        self.database.flush()?;
        self.database.cancel_all_background_work(true);
        Ok(())
    }
}

struct Transactions {
    database: OptimisticTransactionDB,
    durability: TransactionDurability,
}

fn open_transactions(
    _: &'static PeerKind,
    folder: &Path,
    durability: TransactionDurability,
) -> Result<Box<dyn TransactionPeer>> {
    let database = OptimisticTransactionDB::open(&options(), folder.join("data"))?;
    Ok(Box::new(Transactions {
        database,
        durability,
    }))
}

impl Transactions {
    /// One attempt; returns whether it committed.
    fn attempt(&self, keys: &TransferKeys, transfer: &mut AccountTransfer) -> Result<bool> {
        let options = match self.durability {
            TransactionDurability::OnCommit => durable(),
            TransactionDurability::OnSync => WriteOptions::default(),
        };
        let transaction = self
            .database
            .transaction_opt(&options, &OptimisticTransactionOptions::default());
        for (number, key) in keys.iter().enumerate() {
            let value = transaction.get_pinned_for_update(key, true)?;
            transfer.see(number, value.as_deref());
        }
        for (key, value) in keys.iter().zip(transfer.new_values()) {
            transaction.put(key, value)?;
        }
        let Err(error) = transaction.commit() else {
            return Ok(true);
        };
        match error.kind() {
            // `TryAgain`: it no longer knows whether there was a conflict.
            ErrorKind::Busy | ErrorKind::TryAgain => Ok(false),
            _ => Err(error.into()),
        }
    }
}

impl TransactionPeer for Transactions {
    fn transact(&self, keys: &TransferKeys, transfer: &mut AccountTransfer) -> Result<u64> {
        let mut conflicts = 0;
        while !self.attempt(keys, transfer)? {
            conflicts += 1;
        }
        Ok(conflicts)
    }

    fn sync(&self) -> Result {
        Ok(self.database.flush_wal(true)?)
    }

    fn reader(&self) -> Result<Box<dyn PeerReader + '_>> {
        let database = &self.database;
        Ok(Box::new(DatabaseReader {
            database,
            cursor: || database.raw_iterator(),
        }))
    }

    fn close(self: Box<Self>) -> Result {
        self.database.flush()?;
        self.database.cancel_all_background_work(true);
        Ok(())
    }
}

/// A reader of a database of either type, which has no trait with `raw_iterator`.
struct DatabaseReader<'p, D: DBAccess, C> {
    database: &'p D,
    /// Makes a cursor.
    cursor: C,
}

impl<'p, D: DBAccess, C: Fn() -> DBRawIteratorWithThreadMode<'p, D>> PeerReader
    for DatabaseReader<'p, D, C>
{
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.database.get_pinned_opt(key, &ReadOptions::default())?;
        Ok(found.map(|value| see(&value)).is_some())
    }

    fn range(&mut self, first: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result {
        let mut cursor = (self.cursor)();
        cursor.seek(first);
        for _ in 0..count {
            let Some(key) = cursor.key() else { break };
            let Some(value) = cursor.value() else { break };
            see(key, value);
            cursor.next();
        }
        Ok(cursor.status()?)
    }
}
