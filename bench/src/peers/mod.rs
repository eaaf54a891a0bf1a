//! The operations that a store needs for the comparison, and the list of stores. Each has one file
//! beside this one, and nothing else in this program knows which store it measures.

mod everleaf;
mod fjall;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use std::path::Path;

use crate::entries::EntrySource;
use crate::transfer::{AccountTransfer, TransferKeys};

/// The result of a store. Each store has an error type of its own.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Memory for cached blocks, for every store that asks for a size.
const CACHE_BYTES: usize = 1 << 30;

/// An open store. Its methods may be called from several threads.
pub(crate) trait Peer: Sync {
    /// Stores all entries into an empty store, in the way that suits the store best. All are
    /// durable when it returns.
    fn load(&self, entries: &mut EntrySource) -> Result;

    /// Stores all entries, as `load` does; they come in ascending order of their keys.
    fn load_sorted(&self, entries: &mut EntrySource) -> Result;

    /// Stores one entry, which is durable when this returns.
    fn put_durable(&self, key: &[u8], value: &[u8]) -> Result;

    /// Stores many entries, which are durable when this returns.
    fn put_many_durable(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result;

    /// Stores one entry, which all readers see when this returns. It is durable after the next
    /// `sync`. Only one thread calls it.
    fn put(&self, key: &[u8], value: &[u8]) -> Result;

    /// Removes one entry, with the same promises as `put`.
    fn remove(&self, key: &[u8]) -> Result;

    /// Makes the writes of `put` and `remove` durable.
    fn sync(&self) -> Result;

    /// Reads on the calling thread. It need not show writes that come after this call, and none
    /// comes while it lives.
    fn reader(&self) -> Result<Box<dyn PeerReader + '_>>;

    /// Closes the store cleanly.
    fn close(self: Box<Self>) -> Result;
}

/// A reader of one thread. Values are borrowed, so that no store has to copy them without need.
pub(crate) trait PeerReader {
    /// Calls `see` with the value of `key`; `false` if it is absent.
    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Calls `see` with the entries from `first` on, in ascending order, until `count` are seen or
    /// none is left.
    fn range(&mut self, first: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result;
}

/// When the transactions of an open store are durable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionDurability {
    /// When they return.
    OnCommit,
    /// After the next `sync`.
    OnSync,
}

/// A store that is open for transactions. Its methods may be called from several threads.
pub(crate) trait TransactionPeer: Sync {
    /// Reads the keys in their order, and writes the new values that follow, in one transaction. It
    /// is run again until it commits. All transactions are serialisable. Returns the number of
    /// conflicts, which are the attempts that failed.
    fn transact(&self, keys: &TransferKeys, transfer: &mut AccountTransfer) -> Result<u64>;

    /// Makes all transactions durable. No transaction runs meanwhile.
    fn sync(&self) -> Result;

    /// Reads on the calling thread, while no transaction runs.
    fn reader(&self) -> Result<Box<dyn PeerReader + '_>>;

    /// Closes the store cleanly.
    fn close(self: Box<Self>) -> Result;
}

/// Opens a store for transactions.
type OpenTransactions =
    fn(&'static PeerKind, &Path, TransactionDurability) -> Result<Box<dyn TransactionPeer>>;

/// A store by its name.
#[derive(Debug)]
pub(crate) struct PeerKind {
    pub(crate) name: &'static str,
    /// Whether it is Everleaf.
    pub(crate) is_ours: bool,
    /// The package whose version counts, as `Cargo.lock` names it.
    pub(crate) package: &'static str,
    /// The name and version of the library that the package binds, if it binds one.
    pub(crate) beneath: fn() -> Option<String>,
    /// The settings that differ from its defaults, or that a reader will ask for, and why.
    pub(crate) settings: &'static str,
    /// Opens the store in a folder that exists, and makes it if the folder is empty.
    pub(crate) open: fn(&'static PeerKind, &Path) -> Result<Box<dyn Peer>>,
    /// Opens a store that `open` has made, for transactions.
    pub(crate) open_transactions: OpenTransactions,
}

impl PeerKind {
    /// The package and its version, and those of the library that it binds.
    pub(crate) fn version(&self) -> String {
        let beneath =
            (self.beneath)().map_or_else(String::new, |beneath| format!(", with {beneath}"));
        format!(
            "{} {}{beneath}",
            self.package,
            crate::machine::version(self.package)
        )
    }
}

/// All stores: ours first, the default engine before the others.
pub(crate) const ALL: &[PeerKind] = &[
    everleaf::RNTREE,
    everleaf::BZTREE,
    everleaf::MASSTREE,
    everleaf::WBTREE,
    everleaf::CAWBT,
    lmdb::KIND,
    redb::KIND,
    fjall::KIND,
    #[cfg(feature = "rocksdb")]
    rocksdb::KIND,
];

/// The store with this name, or which there are.
pub(crate) fn parse(name: &str) -> std::result::Result<&'static PeerKind, String> {
    let names = || {
        ALL.iter()
            .map(|kind| kind.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let hint = if name == "rocksdb" {
        "; RocksDB needs `--features rocksdb`, see bench/README.md"
    } else {
        ""
    };
    let found = ALL.iter().find(|kind| kind.name == name);
    found.ok_or_else(|| {
        format!(
            "there is no store `{name}` here; there are {}{hint}",
            names()
        )
    })
}
