//! Durable ordered maps in a file, as fast as memory.
//!
//! Everleaf keeps B+-trees in a *pool*: one memory-mapped file. On persistent memory it is written
//! line by line with the processor's own write-back instructions; on an ordinary disk the same
//! lines go to a log beside the file, which many writers sync together. There is no cache to size,
//! and a single write needs no transaction: it is durable when it returns, and a read is a search in
//! memory.
//!
//! ```
//! # fn main() -> Result<(), everleaf::Error> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("fruit.pool");
//! use everleaf::Store;
//!
//! let store = Store::open(&path)?; // opens the file, or makes it
//! let stock = store.tree("stock")?; // opens the tree, or makes it
//!
//! stock.put("apple", "12")?;
//! stock.put("pear", "3")?;
//! assert_eq!(stock.get("apple")?.as_deref(), Some(b"12".as_slice()));
//! assert_eq!(stock.get("plum")?, None);
//! stock.remove("pear")?;
//!
//! drop(stock);
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Ranges and prefixes
//!
//! Keys are byte strings and sort as such. Any range of the standard library will do, and every
//! range can be read from either end. Numbers sort if you write them big-endian.
//!
//! ```
//! # let store = everleaf::Store::in_memory()?;
//! let log = store.tree("log")?;
//! for (time, line) in [(1_u32, "up"), (2, "busy"), (3, "down")] {
//!     log.put([b"host-a/".as_slice(), &time.to_be_bytes()].concat(), line)?;
//! }
//! log.put("host-b/", "silent")?;
//!
//! assert_eq!(log.prefix("host-a/").count(), 3);
//! let (_, last) = log.prefix("host-a/").next_back().unwrap()?;
//! assert_eq!(&*last, b"down");
//! for entry in log.range("host-b"..).rev() {
//!     let (key, value) = entry?;
//!     assert_eq!((&*key, &*value), (b"host-b/".as_slice(), b"silent".as_slice()));
//! }
//! # Ok::<(), everleaf::Error>(())
//! ```
//!
//! [`Tree::iter`] reads all; [`Range::next_entry`] reads without allocating. A range returns every
//! key that is present for the whole scan, and each key at most once; it is no [`Snapshot`].
//!
//! # Conditional writes
//!
//! A write to one key can depend on its value, in one atomic step:
//!
//! ```
//! # let store = everleaf::Store::in_memory()?;
//! let users = store.tree("users")?;
//! assert!(users.insert("ada", "1")?); // only if absent
//! assert!(!users.insert("ada", "2")?);
//! assert!(users.update("ada", "3")?); // only if present
//! assert!(!users.update("bob", "4")?);
//! // only if it has the expected value
//! assert!(users.compare_exchange("ada", Some(b"3"), Some(b"5"))?);
//! assert!(!users.compare_exchange("ada", Some(b"3"), None)?);
//! // and what was there before
//! assert_eq!(users.take("ada")?.as_deref(), Some(b"5".as_slice()));
//! # Ok::<(), everleaf::Error>(())
//! ```
//!
//! [`Tree::fetch_update`] computes the new value from the old one; [`Tree::pop_first`] takes the
//! entry with the smallest key; [`Tree::remove_range`] removes many.
//!
//! # Several writes at once
//!
//! A [`Batch`] has writes to any trees of a store. A crash leaves all of them or none, and they
//! wait for the disk once.
//!
//! ```
//! # let store = everleaf::Store::in_memory()?;
//! use everleaf::Batch;
//!
//! let accounts = store.tree("accounts")?;
//! let log = store.tree("log")?;
//! accounts.put("ada", "100")?;
//! let mut transfer = Batch::new();
//! transfer.expect(&accounts, "ada", Some(b"100")); // or nothing is written
//! transfer.put(&accounts, "ada", "70").put(&accounts, "bob", "30").put(&log, "1", "ada to bob: 30");
//! store.write(&transfer)?;
//! # Ok::<(), everleaf::Error>(())
//! ```
//!
//! # Snapshots
//!
//! A [`Snapshot`] is all trees of a store as of one moment. It has a batch or a transaction wholly or
//! not at all. The methods of [`View`] read it. Writers do not wait for it; the values that they
//! replace take memory until it is dropped ([`Options::versions_bytes_max`]).
//!
//! ```
//! # let store = everleaf::Store::in_memory()?;
//! use everleaf::View;
//!
//! let stock = store.tree("stock")?;
//! stock.put("apple", "12")?;
//! let before = store.snapshot()?;
//! stock.put("apple", "9")?;
//! assert_eq!(before.get(&stock, "apple")?.as_deref(), Some(b"12".as_slice()));
//! assert_eq!(before.iter(&stock).count(), 1);
//! # Ok::<(), everleaf::Error>(())
//! ```
//!
//! # Transactions
//!
//! A [`Transaction`] reads, decides and writes at one moment, over any trees of a store, strictly
//! serialisable. If another write has changed what it has read, [`Store::transaction`] runs the
//! closure again. The page `docs/TRANSACTIONS.md` compares the promise with that of other stores.
//!
//! ```
//! # let store = everleaf::Store::in_memory()?;
//! use everleaf::{Error, View};
//!
//! let accounts = store.typed::<String, u64>("accounts")?;
//! accounts.put("ada", &70)?;
//! store.transaction(|tx| {
//!     let ada = tx.get(&accounts, "ada")?.unwrap_or(0);
//!     let bob = tx.get(&accounts, "bob")?.unwrap_or(0);
//!     tx.put(&accounts, "ada", &(ada - 30))?;
//!     tx.put(&accounts, "bob", &(bob + 30))?;
//!     Ok::<_, Error>(())
//! })?;
//! assert_eq!(accounts.get("bob")?, Some(30));
//! # Ok::<(), everleaf::Error>(())
//! ```
//!
//! # Numbers
//!
//! Trees of `u64` keys and values need no records and no copies: 25 bytes a key in the pool after
//! inserts in random order, 17.5 after a bulk load, or 18.6 where lines have two copies
//! ([`LineForm::Twin`]).
//!
//! ```
//! # let store = everleaf::Store::in_memory()?;
//! let squares = store.word_tree("squares")?;
//! squares.bulk_load((0..1000).map(|n| (n, n * n)), 1.0)?;
//! assert_eq!(squares.get(30)?, Some(900));
//! assert_eq!(squares.get_many(&[1, 2, 1000])?, [Some(1), Some(4), None]);
//! let top: Vec<_> = squares.range(990..).rev().take(2).collect::<Result<_, _>>()?;
//! assert_eq!(top, [(999, 998_001), (998, 996_004)]);
//! # Ok::<(), everleaf::Error>(())
//! ```
//!
//! # Types
//!
//! [`Store::typed`] is a tree with keys and values of types: integers, floats, strings, byte
//! arrays, `Option`s and tuples of these sort as in Rust, and types of your own derive [`Key`] or
//! [`EncodedValue`]. The tree remembers its types by name and version, and opens with these only.
//!
//! ```
//! # let store = everleaf::Store::in_memory()?;
//! use everleaf::{EncodedValue, ErrorKind};
//!
//! #[derive(EncodedValue)]
//! #[everleaf(name = "round")]
//! struct Round { score: f64, opponent: String }
//!
//! let rounds = store.typed::<(String, u32), Round>("rounds")?; // by player and number
//! for (number, score) in [(1, 7.5), (2, 9.0)] {
//!     rounds.put(&("ada".to_owned(), number), &Round { score, opponent: "bob".to_owned() })?;
//! }
//! let of_ada: Vec<_> = rounds.prefix("ada").collect::<Result<_, _>>()?;
//! assert_eq!(of_ada[1].1.score, 9.0);
//!
//! let refused = store.typed::<u64, String>("rounds").unwrap_err();
//! assert!(refused.to_string().contains("holds (text,u32) -> round:1, not u64 -> text"));
//! # Ok::<(), everleaf::Error>(())
//! ```
//!
//! # Threads
//!
//! [`Store`], [`Tree`] and [`WordTree`] are cheap to clone, and all their methods may be called
//! from any thread. Finding a key takes no lock; on a disk it waits until what it saw is durable. A
//! range takes none either, unless writers change the same leaf again and again before it is read.
//! Writers lock one leaf for a moment, or nothing ([`Engine::BZTREE`]).
//!
//! ```
//! # let store = everleaf::Store::in_memory()?;
//! let hits = store.tree("hits")?;
//! std::thread::scope(|scope| {
//!     for thread in 0..2 {
//!         let hits = hits.clone();
//!         scope.spawn(move || (0..100).try_for_each(|n| hits.put(format!("{thread}/{n}"), "")));
//!     }
//! });
//! assert_eq!(hits.len()?, 200);
//! # Ok::<(), everleaf::Error>(())
//! ```
//!
//! # Which engine
//!
//! [`Store::tree`] makes a tree of the default engine, [`Engine::RNTREE`], which suits most uses.
//! To use another one, name it when the tree is made; the pool remembers it. One store may have
//! trees of several engines.
//!
//! ```
//! # let store = everleaf::Store::in_memory()?;
//! use everleaf::{Engine, TreeOptions};
//!
//! // Latch-free, and usable at once after a crash, whatever its size.
//! let sessions = store.tree_with("sessions", TreeOptions { engine: Engine::BZTREE, ..TreeOptions::RECORDS })?;
//! sessions.put("7f3a", "ada")?;
//! // No write waits for the medium; a crash loses the last milliseconds.
//! let clicks = store.tree_with("clicks", TreeOptions { engine: Engine::MASSTREE, ..TreeOptions::RECORDS })?;
//! clicks.put("page-1", "12")?;
//! store.sync()?; // from here on nothing of it is lost
//! # Ok::<(), everleaf::Error>(())
//! ```
//!
//! # Space, figures, copies
//!
//! There is no size to choose: the file grows as needed, up to [`Options::limit_bytes`] if that is
//! given. Space of removed entries is reused, and closing the store gives the file's free tail
//! back; [`Store::drop_tree`] frees all of a tree. [`Store::stat`] and [`Tree::stat`] say how much
//! is used. On ordinary disks, [`Store::backup`] copies a store while it is written, and
//! [`Options::backup`] one that another process has open. [`Store::salvage`] reads the undamaged
//! entries of a damaged tree.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("a.pool");
//! # let copy = folder.path().join("copy.pool");
//! use everleaf::{MediumChoice, Options};
//!
//! let options = Options::new().medium(MediumChoice::File);
//! let store = options.open(&path)?;
//! store.tree("stock")?.put("apple", "12")?;
//! store.backup(&copy)?;
//! assert!(options.open(&copy)?.tree("stock")?.contains("apple")?);
//! assert_eq!(store.stat()?.trees, 1);
//! store.drop_tree("stock")?;
//! # Ok::<(), everleaf::Error>(())
//! ```
//!
//! # Processes
//!
//! One *process* writes to a pool at a time; a second one gets [`ErrorKind::Locked`], which names
//! the first. Any number of processes may read it, also while one writes: they get the state of one
//! moment ([`Options::read_only`]). Reading changes no file, so it also serves for a full disk, a
//! read-only file system, a pool without write permission, and the pool of a process that was
//! killed.
//!
//! Open a store *after* a fork. A store belongs to the process that opened it: in a child that was
//! forked later, every operation of it is [`ErrorKind::Forked`]. The child may open stores of its
//! own. [`Store`] has the details.
//!
//! # What is durable when
//!
//! With the usual engine a write is durable when it returns, and no reader sees it before. (With
//! [`Engine::MASSTREE`] a write is durable when its epoch ends.) After a crash the trees have every
//! acknowledged write, and each write that was under way wholly or not at all; they have nothing
//! else. *Which* crash depends on where the file lies, so ask [`Store::survives`] or demand it with
//! [`Options::require`]:
//!
//! | the file is on | [`Survives`] |
//! | --- | --- |
//! | a file system that grants `MAP_SYNC` (ext4 or xfs with `-o dax` on persistent memory) | loss of power |
//! | any other on a disk: ext4, xfs, ... on an SSD | loss of power |
//! | tmpfs: a file system in memory | the end of the process, however it comes; **not** loss of power or of the kernel |
//! | nothing: [`Store::in_memory`] | nothing |
//!
//! On an ordinary disk each write waits for the disk, which takes a tenth of a millisecond or more,
//! but threads share the wait; and one thread can keep many writes under way by
//! [`Tree::pending`], whose operations return a [`Pending`] result. If losing the last moments is acceptable, ask
//! for less: [`Options::durability`]. [`MediumChoice::Dax`] on an ordinary file *emulates*
//! persistent memory, and survives no loss of power.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("money.pool");
//! use everleaf::{ErrorKind, Options, Survives};
//!
//! match Options::new().require(Survives::PowerLoss).open(&path) {
//!     Ok(store) => assert_eq!(store.survives(), Survives::PowerLoss),
//!     Err(error) => assert!(matches!(error.kind(), ErrorKind::NotDurable { .. })),
//! }
//! ```
//!
//! # Closing, and opening after a crash
//!
//! [`Store::close`], or dropping the last handle, records which space is in use. After a crash the
//! next open finds that out again: it reads all leaves of [`Engine::RNTREE`] on all cores before it
//! returns, and all nodes and records of [`Engine::CAWBT`]. Trees of [`Engine::BZTREE`],
//! [`Engine::WBTREE`] and [`Engine::MASSTREE`] are usable at once; a thread in the background finds
//! out which space they use. Nothing leaks.
//!
//! # Errors
//!
//! There is one [`Error`]. Its text says what failed, where, and a way out; [`Error::path`] is the
//! pool that it concerns, and [`Error::kind`] what went wrong, to match on. The frequent questions
//! have methods: [`Error::is_full`], [`Error::is_corrupt`], [`Error::is_retryable`],
//! [`Error::is_absent`]. A damaged or hostile pool gives [`ErrorKind::Corrupt`],
//! [`ErrorKind::Unopenable`] or a wrong answer, never undefined behaviour; [`Store::check`] finds
//! damage.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("small.pool");
//! use everleaf::{Error, ErrorKind, Options};
//!
//! let store = Options::new().limit_bytes(1 << 20).open(&path)?;
//! let tree = store.tree("big")?;
//! let full = tree.put("key", vec![0; 4 << 20]).unwrap_err();
//! assert!(full.is_full());
//! assert!(matches!(full.kind(), ErrorKind::PoolFull { limit: 1_048_576, .. }));
//! assert_eq!(full.path(), Some(path.as_path()));
//! tree.put("key", "small")?; // nothing was lost, and the tree is usable
//!
//! let second = Options::new().open(&path).unwrap_err();
//! assert!(matches!(second.kind(), ErrorKind::Locked { .. }));
//! assert!(second.to_string().contains("small.pool"));
//! # Ok::<(), Error>(())
//! ```
//!
//! # What there is not
//!
//! No writing by several processes at a time, no encryption, no compression. No nested
//! transactions, and no locks that a transaction takes before it commits.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod adoption;
mod back_off;
mod backend;
mod background;
mod backup;
mod batch;
mod beside;
mod close;
mod compact;
mod counter;
mod derived;
mod encoding;
#[doc(hidden)]
pub mod for_derives;
mod idle;
mod kind;
mod open_store;
mod options;
mod pending;
mod range;
mod recovery;
mod replace;
mod sealed;
mod snapshot;
mod store;
mod store_duty;
mod transaction;
mod tree;
mod tree_handle;
mod tree_types;
mod typed;
mod view;
mod view_reads;
mod violation;
mod word_tree;

pub use batch::Batch;
pub use close::CloseError;
pub use compact::{CompactOptions, CompactStop, Compaction, TreeLeft};
pub use counter::Counter;
#[cfg(feature = "derive")]
pub use derive::{EncodedValue, Key};
pub use encoding::{EncodedLike, EncodedValue, Encoding, Key, NotEncodable, StartsWith};
pub use engines::engine::{CodecKind, Contract, Engine, Setting, Settings, Values};
pub use engines::index::record::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use engines::index::{
    Bounds, Condition, Direction, Entry, EpochStat, Index, IndexStat, KeysBetween, LeftOut,
    NextEntry, OwnSpace, Part, Scan, Value, Violation, WordIndex,
};
pub use engines::versions::{OpenView, VersionsStat};
pub use engines::{Error, ErrorKind, Result};
pub use kind::TreeOptions;
pub use medium::file::{LogEnd, LogError, Replay};
pub use medium::{
    DisplacedFile, Displacement, Durability, FileStat, FlushKind, Grown, LimitedBy, LineForm,
    LineStore, MediumError, Survives, ignore_file_size_signal,
};
pub use options::{MediumChoice, Options, log_path};
pub use pending::{Pending, PendingTree, PendingTyped, PendingWords};
pub use pool::{ENCODINGS_BYTES_MAX, Encodings, LostCopy, TREE_NAME_BYTES_MAX, TREES_MAX};
pub use range::{KeyRange, Range};
pub use recovery::{DamagedPart, NotRecovered, Recovery};
pub use snapshot::Snapshot;
pub use store::{Store, StoreStat, TreeInfo};
pub use transaction::Transaction;
pub use tree::Tree;
pub use tree_handle::{KeyFor, PrefixFor, RangeFor, TreeHandle, ValueFor};
pub use typed::{TypedRange, TypedTree};
pub use view::{View, ViewRange};
pub use violation::StoreViolation;
pub use word_tree::{WordRange, WordTree};
