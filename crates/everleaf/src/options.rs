//! How a store is opened, and the opening itself.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engines::engine::{Engine, Host, Settings};
use engines::index::EpochLength;
use engines::versions::Versions;
use engines::{Error, ErrorKind, Result};
use medium::file::{Beside, Io, Through, ViewedPool};
use medium::testing::refusal::{SystemCall, grant};
use medium::{
    Dax, DaxOptions, Durability, FileLock, FileOptions, FilePlace, FlushKind, LineForm, LineStore,
    Medium, Survives,
};
use pool::{Identity, Pool, PoolOptions};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, test_kill_process};

use crate::Store;
use crate::backend::StoreOpening;
use crate::beside::{CopiedPool, FoundView, PoolToRead, find_to_read, find_view};
use crate::idle;
use crate::open_store::{ReadSource, Reopen};
use crate::recovery::{self, Terms};

/// The least memory for written pages.
const PRIVATE_BYTES_MIN: u64 = 1 << 20;

/// The shortest time after which a store without writes compacts itself.
const IDLE_PAUSE_MIN: Duration = Duration::from_millis(10);

/// How often an open begins anew because its path led to another file once it had the lock.
const ATTEMPTS_MAX: u32 = 100;
/// How long an open for writing waits for readers that read the pool in place: most of them read a
/// key or two.
const READERS_PATIENCE: Duration = Duration::from_millis(250);
/// How long it sleeps between two attempts: [`ATTEMPTS_MAX`] of them take longer than the patience.
const READERS_REST: Duration = Duration::from_millis(5);
/// How often a view is opened that is overtaken at once.
const VIEW_ATTEMPTS: u32 = 3;
/// How often a transaction is tried, if the options do not say.
const TRANSACTION_ATTEMPTS: u32 = 1000;
/// The part of the memory that old values may take, if the options do not say: one eighth.
const VERSIONS_PART: u64 = 8;
/// The permissions of a new pool, as far as the process grants them to new files.
const NEW_POOL_MODE: u32 = 0o666;

/// How an attempt to read a pool in place ended.
enum InPlaceOpen {
    Opened(Store),
    /// A process that writes the pool has overtaken the reader.
    Overtaken,
    /// The pool cannot be read in place now, or the file system has no locks for that.
    Impossible,
}

/// Where a store's bytes become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum MediumChoice {
    /// [`MediumChoice::Dax`] if the file system grants `MAP_SYNC`, else [`MediumChoice::File`].
    /// Both survive loss of power, unless the file system itself is in memory.
    #[default]
    Auto,
    /// The file, mapped privately, with a log of lines beside it that is synced before an operation
    /// is acknowledged: survives loss of power on any disk.
    File,
    /// The mapped file, its lines written back by the processor. On a file system that grants
    /// `MAP_SYNC` it survives loss of power. On any other it is an *emulation*: it survives the end
    /// of the process however that comes, but not loss of power or a kernel crash.
    Dax,
    /// Memory of this process. Nothing survives it; the path is not looked at.
    Ram,
}

/// How a store is opened. The default suits most uses; each method changes one point.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("a.pool");
/// let store = everleaf::Options::new().limit_bytes(1 << 30).open(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing before `open`"]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Options {
    create: bool,
    read_only: bool,
    read_from_copy: bool,
    verify: bool,
    limit_bytes: u64,
    medium: MediumChoice,
    line_store: Option<LineStore>,
    flush: Option<FlushKind>,
    require: Survives,
    durability: Durability,
    log_bytes: Option<u64>,
    log_bytes_max: Option<u64>,
    private_bytes_max: Option<u64>,
    gather_max: Option<Duration>,
    recovery_threads: Option<usize>,
    close_cleanly: bool,
    compact_when_idle: Option<Duration>,
    epoch: EpochLength,
    engines: &'static [Engine],
    settings: Vec<(Engine, Settings)>,
    versions_bytes_max: Option<usize>,
    transaction_attempts: u32,
    through: Option<Through>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            read_only: false,
            read_from_copy: false,
            verify: true,
            limit_bytes: u64::MAX,
            medium: MediumChoice::Auto,
            line_store: None,
            flush: None,
            require: Survives::Nothing,
            durability: Durability::Immediate,
            log_bytes: None,
            log_bytes_max: None,
            private_bytes_max: None,
            gather_max: None,
            recovery_threads: None,
            close_cleanly: true,
            compact_when_idle: None,
            epoch: EpochLength::Every(Duration::from_millis(64)),
            engines: Engine::ALL,
            settings: Vec::new(),
            versions_bytes_max: None,
            transaction_attempts: TRANSACTION_ATTEMPTS,
            through: None,
        }
    }
}

impl Store {
    /// Opens the store at `path`, and makes it if it is missing. The same as
    /// `Options::new().open(path)`: [`Options::open`] names cost and errors. [`Store`] has an
    /// example.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// A store in memory, for tests and caches: the same trees, nothing durable.
    ///
    /// ```
    /// let cache = everleaf::Store::in_memory()?;
    /// cache.tree("pages")?.put("/index.html", "<html>")?;
    /// assert!(cache.tree("pages")?.contains("/index.html")?);
    /// assert_eq!(cache.survives(), everleaf::Survives::Nothing);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Medium`] if the system gives no memory.
    pub fn in_memory() -> Result<Self> {
        Options::new().open_in_memory()
    }

    /// Options to open a store with.
    pub fn options() -> Options {
        Options::new()
    }
}

impl Options {
    /// The default: create what is missing, no limit, everything detected. [`Options`] has an
    /// example.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a missing or empty file becomes a new pool. Default: yes. Otherwise it is
    /// [`ErrorKind::NoSuchPool`] or [`ErrorKind::NotAPool`].
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// use everleaf::{ErrorKind, Options};
    ///
    /// let options = Options::new().create(false);
    /// let missing = options.open(&path).unwrap_err();
    /// assert!(matches!(missing.kind(), ErrorKind::NoSuchPool));
    /// assert!(!path.exists());
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether the store is only read. It then opens beside other readers, and beside a process that
    /// writes, and keeps none of them out. Default: no.
    ///
    /// The store shows one moment of the call, with everything that another process had acknowledged
    /// as durable before. It reads the pool in place, and only pages with lines of the log, and pages
    /// that recovery writes, take memory. O(log) beside the costs of [`Options::open`].
    ///
    /// A process that writes the pool overtakes the store sooner or later: when its log is
    /// checkpointed, which it puts off as long as its log may grow ([`Options::log_bytes_max`]), or
    /// when it opens or closes the pool. From then on, reads fail with [`ErrorKind::ViewTooOld`]. They
    /// never return a value of another moment. [`Store::refresh`] opens the store as of a newer
    /// moment; [`Options::read_from_copy`] gives one that lasts.
    ///
    /// A pool that another process has open on [`MediumChoice::Dax`] cannot be read meanwhile
    /// ([`ErrorKind::NotBeside`]): nothing tells which of its lines belong to one moment.
    ///
    /// No file is changed: not on a full disk, not on a read-only file system, not a pool without
    /// write permission. What an open for writing would recover is recovered in memory, so a pool
    /// whose process was killed can be read, too. No thread works in the background. Trees show what
    /// an open for writing would show, with one difference: that open makes durable what it finds
    /// before it returns, and this one does not. So the last writes of another process, whether it
    /// was killed or is still writing, can be read here, and be taken back by a loss of power
    /// afterwards.
    ///
    /// Whatever would write fails with [`ErrorKind::ReadOnly`], and a missing tree is
    /// [`ErrorKind::NoSuchTree`]. A missing pool is never made. The medium and its settings do not
    /// matter, except that [`MediumChoice::Ram`] has nothing to read.
    ///
    /// ```
    /// # use everleaf::{ErrorKind, Options, Store};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("a.pool");
    /// let store = Store::open(&path)?;
    /// store.tree("main")?.put("key", "value")?;
    /// store.close()?;
    ///
    /// let reader = Options::new().read_only(true).open(&path)?;
    /// let tree = reader.tree("main")?;
    /// assert_eq!(tree.get("key")?.as_deref(), Some(&b"value"[..]));
    /// let refused = tree.put("key", "new").unwrap_err();
    /// assert!(matches!(refused.kind(), ErrorKind::ReadOnly));
    ///
    /// let writer = Store::open(&path)?;
    /// writer.tree("main")?.put("key", "new")?;
    /// let overtaken = tree.get("key").unwrap_err();
    /// assert!(matches!(overtaken.kind(), ErrorKind::ViewTooOld { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether a store that is [only read](Options::read_only) is read from a copy of the pool. Then
    /// no writer overtakes it. For stores that are read for long. O(pool) beside the costs of
    /// [`Options::open`]. The copy lies in the folder of the pool, has no name, and ends with the
    /// store. If no copy can be made, because the disk has no room or the folder is read-only, and no
    /// process writes the pool, the store keeps writers out instead. Default: no.
    ///
    /// ```
    /// # use everleaf::{Options, Store};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// # Store::open(&path)?.tree("main")?.put("key", "old")?;
    /// let reader = Options::new().read_only(true).read_from_copy(true).open(&path)?;
    /// let writer = Store::open(&path)?;
    /// writer.tree("main")?.put("key", "new")?;
    /// assert_eq!(reader.tree("main")?.get("key")?.as_deref(), Some(&b"old"[..]));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn read_from_copy(mut self, read_from_copy: bool) -> Self {
        self.read_from_copy = read_from_copy;
        self
    }

    /// Whether every record that is read must pass its check; one that fails it is
    /// [`ErrorKind::Corrupt`], which names the key and the offset, and not a wrong value. Default: yes.
    /// A read then computes the record's check, a CRC32C, while it copies the record. A read that
    /// finds no key verifies the records whose keys it relied on.
    ///
    /// The example `verification` measures the cost. Trees of words have no records, and nothing to
    /// verify. [`Store::check`] verifies all records in either case.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("a.pool");
    /// let store = everleaf::Options::new().verify(false).open(&path)?;
    /// store.tree("main")?.put("key", "value")?;
    /// assert!(store.tree("main")?.contains("key")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// The largest length that the file may get, in bytes. An operation that would need more fails
    /// with [`ErrorKind::PoolFull`] and changes nothing; removes go on working. Default: what the
    /// disk holds.
    ///
    /// ```
    /// use everleaf::Options;
    ///
    /// let store = Options::new().limit_bytes(1 << 20).open_in_memory()?;
    /// let texts = store.tree("texts")?;
    /// let full = texts.put("long", vec![b'x'; 2 << 20]).unwrap_err();
    /// assert!(full.is_full());
    /// texts.put("short", "x")?; // the tree is usable
    /// assert_eq!(texts.len()?, 1);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn limit_bytes(mut self, limit_bytes: u64) -> Self {
        self.limit_bytes = limit_bytes;
        self
    }

    /// Where bytes become durable. Default: [`MediumChoice::Auto`].
    pub fn medium(mut self, medium: MediumChoice) -> Self {
        self.medium = medium;
        self
    }

    /// How a line of 64 bytes is stored failure-atomically. Default: the best that this processor
    /// has. A pool keeps the *form* it was made with: [`LineStore::Twin`], or any of the three
    /// others. On [`MediumChoice::File`] only the form matters, and the default is single.
    pub fn line_store(mut self, line_store: LineStore) -> Self {
        self.line_store = Some(line_store);
        self
    }

    /// How lines are written back. Default: the best that this processor has.
    /// [`FlushKind::Nothing`] is for platforms whose caches are durable (eADR), which cannot be
    /// detected.
    pub fn flush(mut self, flush: FlushKind) -> Self {
        self.flush = Some(flush);
        self
    }

    /// The failures that the medium must survive; if it promises less, opening fails with
    /// [`ErrorKind::NotDurable`]. Default: nothing.
    pub fn require(mut self, survives: Survives) -> Self {
        self.require = survives;
        self
    }

    /// When an operation is durable. Matters on [`MediumChoice::File`] alone: on the other media an
    /// operation is durable when it returns. It has no effect on trees that become durable by
    /// epochs ([`Engine::is_buffered`](crate::Engine::is_buffered)). Default:
    /// [`Durability::Immediate`].
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// use everleaf::{Durability, MediumChoice, Options};
    ///
    /// let options = Options::new().medium(MediumChoice::File).durability(Durability::OnSync);
    /// let store = options.open(&path)?;
    /// let clicks = store.tree("clicks")?;
    /// clicks.put("page 1", "12")?; // does not wait for the disk
    /// let write = clicks.pending().put("page 2", "7")?;
    /// assert!(!write.is_durable());
    /// store.sync()?; // makes both durable
    /// assert!(write.is_durable());
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Bytes of the log on [`MediumChoice::File`], at least 64 KiB; less if the disk has no room.
    /// The larger, the fewer checkpoints, and the longer an open after a crash. A log that exists
    /// keeps its size. Default: an eighth of the pool, but 64 KiB to 1 MiB, growing up to
    /// [`Options::log_bytes_max`]. A log whose size is given here grows only if that is given, too.
    pub fn log_bytes(mut self, log_bytes: u64) -> Self {
        self.log_bytes = Some(log_bytes);
        self
    }

    /// The most bytes that the log on [`MediumChoice::File`] grows to: it gets up to twice as large
    /// whenever it is half full, but not larger than the pool's file, unless another process reads the
    /// pool ([`Options::read_only`]). After a second without a
    /// write it is cut down to the size of a new log. Default: 2 GiB.
    pub fn log_bytes_max(mut self, log_bytes_max: u64) -> Self {
        self.log_bytes_max = Some(log_bytes_max);
        self
    }

    /// The most memory that written pages take on [`MediumChoice::File`], in bytes, at least 1 MiB.
    /// A page that was written stays in memory until a checkpoint has written it back; a pool that
    /// is smaller than half of this keeps all its pages. Beyond it, writers wait for a checkpoint,
    /// or for four if the pages that they write themselves are more. Data that waits to be written
    /// to disk takes up to half of this in addition. docs/FILES.md lists the memory that each
    /// engine takes for each key. Default: a quarter of the memory of the machine, or of the
    /// control group if that has less.
    pub fn private_bytes_max(mut self, private_bytes_max: u64) -> Self {
        self.private_bytes_max = Some(private_bytes_max);
        self
    }

    /// How long a sync on [`MediumChoice::File`] waits at most for other threads that are about to
    /// sync, so that one sync serves all. It waits only if there were such threads a moment ago.
    /// Zero: not at all. Default: a quarter of what a sync takes, and no longer than 200 us.
    pub fn gather_max(mut self, gather_max: Duration) -> Self {
        self.gather_max = Some(gather_max);
        self
    }

    /// How many threads recover a tree. Default: all cores.
    pub fn recovery_threads(mut self, threads: usize) -> Self {
        self.recovery_threads = Some(threads.max(1));
        self
    }

    /// How long an epoch lasts, for trees that become durable by epochs. At the end of an epoch
    /// these trees flush the nodes that changed. A crash takes all of them back to the same moment,
    /// the end of the last complete epoch. At least 1 ms. On a disk the time begins when the sync
    /// of the last epoch ends, and an epoch can be lost until its own sync ends. Default: 64 ms.
    pub fn epoch(mut self, length: Duration) -> Self {
        self.epoch = EpochLength::Every(length.max(Duration::from_millis(1)));
        self
    }

    /// Epochs end only at [`Store::sync`] and when space is short. After a crash each node is then
    /// recovered when it is first used, not in the background. After about 24 crashes with ended
    /// epochs between them, an open recovers all nodes before it returns.
    pub fn manual_epochs(mut self) -> Self {
        self.epoch = EpochLength::Manual;
        self
    }

    /// Compacts the store ([`Store::compact`]) by itself, in the background, when nobody has written
    /// to it for this time, at least 10 ms. It moves at most 100,000 records and nodes a second. It does
    /// so once, until somebody has written again. An obstacle or an error ends the attempt, and is no
    /// error of the store. Default: not at all.
    ///
    /// A compaction opens all trees, which stay open. While it moves the records of a tree, the tree
    /// cannot be dropped or renamed ([`ErrorKind::InUse`]). A store that is
    /// closed or dropped ends a compaction that is under way, and waits for that: for some moves, for
    /// the open of a tree, or for the room of free slabs to be given back, if that has begun.
    pub fn compact_when_idle(mut self, pause: Duration) -> Self {
        self.compact_when_idle = Some(pause.max(IDLE_PAUSE_MIN));
        self
    }

    /// The most memory that old values take, in bytes: those that open snapshots and transactions
    /// may read ([`Store::snapshot`]). If they take more, the oldest snapshot or transaction ends,
    /// and its reads fail with [`ErrorKind::ViewTooOld`]. Default: an eighth of the memory of the
    /// machine, or of the control group.
    pub fn versions_bytes_max(mut self, versions_bytes_max: usize) -> Self {
        self.versions_bytes_max = Some(versions_bytes_max);
        self
    }

    /// How often [`Store::transaction`] tries a transaction whose commit conflicts with other
    /// writes, at least once. Default: 1000.
    pub fn transaction_attempts(mut self, attempts: u32) -> Self {
        self.transaction_attempts = attempts.max(1);
        self
    }

    /// The memory that old values may take.
    fn old_values_bytes_max(&self) -> usize {
        self.versions_bytes_max.unwrap_or_else(|| {
            let bytes = medium::memory_bytes() / VERSIONS_PART;
            usize::try_from(bytes).unwrap_or(usize::MAX)
        })
    }

    /// Whether the store is closed cleanly when its last handle is dropped. If not, the next open
    /// recovers as after a crash. For tests.
    #[doc(hidden)]
    pub fn close_cleanly(mut self, close_cleanly: bool) -> Self {
        self.close_cleanly = close_cleanly;
        self
    }

    /// Settings for every tree of an engine that the store makes or opens: for tests and
    /// comparisons.
    #[doc(hidden)]
    pub fn settings(mut self, engine: Engine, settings: Settings) -> Self {
        self.settings.push((engine, settings));
        self
    }

    /// The engines that the store knows, in place of [`Engine::ALL`]: for engines that exist to be
    /// compared with.
    #[doc(hidden)]
    pub fn engines(mut self, engines: &'static [Engine]) -> Self {
        self.engines = engines;
        self
    }

    /// A layer between [`MediumChoice::File`] and each of its files: for tests, with a disk that
    /// fails.
    #[doc(hidden)]
    pub fn through(mut self, through: Through) -> Self {
        self.through = Some(through);
        self
    }

    /// Opens the store at `path`, and makes it if it is missing. O(pool's slabs) after a clean
    /// close. After a crash O(leaves of [`Engine::RNTREE`](crate::Engine::RNTREE) + entries of
    /// [`Engine::CAWBT`](crate::Engine::CAWBT)), on all cores; if a batch was under way, also
    /// O(entries of [`Engine::BZTREE`](crate::Engine::BZTREE) and
    /// [`Engine::WBTREE`](crate::Engine::WBTREE)). On [`MediumChoice::File`] also O(log).
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// use everleaf::Options;
    ///
    /// let store = Options::new().open(&path)?; // makes the file
    /// store.tree("stock")?.put("apple", "12")?;
    /// store.close()?;
    ///
    /// let store = Options::new().open(&path)?; // finds it
    /// assert!(store.tree("stock")?.contains("apple")?);
    /// assert!(!store.recovery().after_crash);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::NoSuchPool`], [`ErrorKind::NotAPool`], [`ErrorKind::NotWritable`],
    ///   [`ErrorKind::Locked`], [`ErrorKind::Io`]: the file;
    /// - [`ErrorKind::Version`], [`ErrorKind::UnknownFeatures`], [`ErrorKind::LineForm`]: a pool of
    ///   another release or machine;
    /// - [`ErrorKind::Unopenable`]: a damaged header, or a truncated file. A damaged *tree* fails
    ///   when it is opened itself;
    /// - [`ErrorKind::Medium`] with [`MediumError::Log`](medium::MediumError::Log): the log beside
    ///   the pool is missing, damaged or of another pool;
    /// - [`ErrorKind::NotDurable`], [`ErrorKind::Unsupported`]: this machine lacks what was asked
    ///   for;
    /// - [`ErrorKind::PoolFull`]: no room for a new pool.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        let path = path.as_ref();
        if self.medium == MediumChoice::Ram {
            return self.open_in_memory();
        }
        let opened = if self.read_only {
            self.open_to_read(path)
        } else {
            self.open_path(path)
        };
        let begun = opened.and_then(|store| self.begin_duties(store));
        begun.map_err(|error| error.at(path))
    }

    /// Lets an open store begin the work that it does by itself.
    fn begin_duties(&self, store: Store) -> Result<Store> {
        if let Some(pause) = self.compact_when_idle
            && !self.read_only
        {
            idle::compact_when_idle(&store, pause)?;
        }
        Ok(store)
    }

    /// Opens the readable part of a damaged pool, for reading only, as [`Options::read_only`] does.
    /// For [`Store::salvage`]. [`Recovery::damaged`](crate::Recovery::damaged) says what is missing:
    ///
    /// - If the file is truncated, the bytes behind its end are lost.
    /// - If the log is missing, so are the writes that only the log had: the trees are as they were
    ///   before these, or damaged. Of a pool that was never checkpointed nothing is left.
    /// - If a part of the log is damaged, the writes before it are there. If its header is damaged,
    ///   the log is searched for all that it holds.
    /// - If both copies of the pool's header are damaged, the pool is read as one of this release,
    ///   with lines of the form that [`Options::line_store`] writes, or single ones.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("a.pool");
    /// # use everleaf::{Options, Store};
    /// # let store = Store::open(&path)?;
    /// # store.tree("stock")?.put("apple", "12")?;
    /// # store.close()?;
    /// let file = std::fs::OpenOptions::new().write(true).open(&path)?;
    /// file.set_len(file.metadata()?.len() - 4096)?; // the end of the pool is lost
    /// assert!(Store::open(&path).is_err());
    ///
    /// let rest = Options::new().open_damaged(&path)?;
    /// assert!(rest.recovery().damaged[0].what.contains("cut off"));
    /// let mut saved = Vec::new();
    /// rest.salvage("stock", |key, _| {
    ///     saved.push(key.to_vec());
    ///     true
    /// })?;
    /// assert_eq!(saved, [b"apple"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Options::open`], if the file is no pool, or another process writes to it;
    /// [`ErrorKind::Unopenable`] if the file ends before the first entry.
    pub fn open_damaged(&self, path: impl AsRef<Path>) -> Result<Store> {
        let path = path.as_ref();
        self.open_readable_part(path)
            .map_err(|error| error.at(path))
    }

    fn open_readable_part(&self, path: &Path) -> Result<Store> {
        let start = Instant::now();
        let LockedPool { file, place, lock } = locked_to_read(path)?;
        let log = log_place(&place);
        let salvaged = medium::File::salvage_image(&file, &log, &self.file_options())?;
        let mut missing: Vec<String> = salvaged.losses.iter().map(ToString::to_string).collect();
        let image = self.formed_to_salvage(&file, salvaged.image, &mut missing)?;
        let length = image.extent().length();
        let expected = pool::bytes_expected(&image).unwrap_or(0);
        if length < expected {
            image.grow(expected)?;
            missing.push(format!(
                "the part of the file that was cut off is left out: it has {length} of {expected} bytes"
            ));
        }
        let source = ReadSource {
            file,
            log_place: Some(log),
        };
        let store = self.finish(path, image, start, Some(place), Some(source))?;
        Ok(store.lacking(missing).locked_by(lock))
    }

    /// An image of the damaged pool in `file`, with lines of the pool's form. If its header cannot be
    /// read, it gets another one.
    fn formed_to_salvage(
        &self,
        file: &File,
        mut image: Dax,
        missing: &mut Vec<String>,
    ) -> Result<Dax> {
        if image.extent().length() < pool::SLAB_BYTES {
            // The error names the reason.
            Identity::of_file(file)?;
            return Err(not_a_pool(NEVER_WRITTEN));
        }
        // A pool that names a log may have its header in the log only.
        let names_log =
            medium::File::needs_log(file, pool::MEDIUM_LINE).map_err(medium::MediumError::from)?;
        let what = match Identity::of_medium(&image) {
            Ok(Some(identity)) => {
                image.set_line_form(identity.line_form);
                return Ok(image);
            }
            Ok(None) if names_log => {
                "the pool's file holds nothing: all that was written was in the log".to_owned()
            }
            Ok(None) => return Err(not_a_pool(NEVER_WRITTEN)),
            Err(error) => {
                let is_foreign = matches!(error.kind(), ErrorKind::NotAPool { .. });
                let is_pool = names_log || pool::has_state(&image);
                let is_damaged_pool = error.is_corrupt() || is_foreign && is_pool;
                if !is_damaged_pool {
                    return Err(error);
                }
                format!(
                    "both copies of the header are missing or damaged; the pool is read as one of format version {}",
                    pool::FORMAT_VERSION
                )
            }
        };
        missing.push(what);
        let line_form = self.line_store.map_or(LineForm::Single, form_of);
        image.set_line_form(line_form);
        Identity::assume(&image)?;
        Ok(image)
    }

    /// Makes a store in memory, on [`MediumChoice::Ram`]. [`Options::limit_bytes`] has an example.
    ///
    /// # Errors
    /// [`ErrorKind::NotDurable`] if [`Options::require`] asks for anything; [`ErrorKind::NotAPool`]
    /// with [`Options::read_only`]; [`ErrorKind::Medium`] if the system gives no memory.
    pub fn open_in_memory(&self) -> Result<Store> {
        let path = Path::new("(memory)");
        let start = Instant::now();
        if self.read_only {
            return Err(not_a_pool("new memory holds nothing that could be read").at(path));
        }
        let ram = Dax::plain(self.limit_bytes).map_err(medium::MediumError::from)?;
        self.finish(path, ram, start, None, None)
            .and_then(|store| self.begin_duties(store))
            .map_err(|error| error.at(path))
    }

    /// Opens the store on a medium of the caller's: for benchmarks that count or delay what reaches
    /// it.
    ///
    /// # Errors
    /// The same as those of [`Options::open`].
    #[doc(hidden)]
    pub fn open_with<M: Host>(&self, medium: M) -> Result<Store> {
        self.finish(Path::new("(medium)"), medium, Instant::now(), None, None)
    }

    fn open_path(&self, path: &Path) -> Result<Store> {
        let start = Instant::now();
        for _ in 0..ATTEMPTS_MAX {
            let opened = self.open_file(path)?;
            if opened.is_new {
                if let Some(store) = self.open_new(path, opened.pool)? {
                    return Ok(store);
                }
                continue;
            }
            let operation = FlockOperation::NonBlockingLockExclusive;
            let locked = match opened.pool.lock(operation) {
                Err(error) if is_kept_by_readers(&error) && start.elapsed() < READERS_PATIENCE => {
                    std::thread::sleep(READERS_REST);
                    continue;
                }
                locked => locked?,
            };
            if let Some(locked) = locked {
                let store = self.open_locked(path, &locked.place, locked.file)?;
                return Ok(store.locked_by(locked.lock));
            }
        }
        Err(never_in_place())
    }

    /// Opens a pool whose file this call has made. `None` if another process removed the file
    /// before it was locked. If anything fails, the file is removed: it holds nothing yet. A file
    /// that is no pool would confuse users, and its log would be refused by the next pool.
    fn open_new(&self, path: &Path, new: NamedPool) -> Result<Option<Store>> {
        // A second handle, for the case of a failure.
        let again = match new.file.try_clone() {
            Ok(again) => again,
            Err(error) => {
                remove_if_empty(&new.place, &new.file);
                return Err(refused(error));
            }
        };
        let place = new.place.clone();
        let locked = match new.lock(FlockOperation::NonBlockingLockExclusive) {
            Ok(Some(locked)) => locked,
            Ok(None) => return Ok(None),
            Err(error) => {
                // The process that has locked it uses it.
                if !matches!(error.kind(), ErrorKind::Locked { .. }) {
                    remove_if_empty(&place, &again);
                }
                return Err(error);
            }
        };
        let LockedPool { file, lock, .. } = locked;
        // Another process may have opened the new file and written to it before this one had the
        // lock.
        if file.metadata().map_err(refused)?.len() > 0 {
            let store = self.open_locked(path, &place, file)?;
            return Ok(Some(store.locked_by(lock)));
        }
        let opened = self.open_locked(path, &place, file);
        if opened.is_err() {
            let log_place = log_place(&place);
            medium::File::remove_log_of_failed(&again, &log_place, pool::MEDIUM_LINE);
            // If this fails, an empty pool stays, which does no harm.
            let _ = place.remove(&again);
        }
        Ok(Some(opened?.locked_by(lock)))
    }

    fn open_to_read(&self, path: &Path) -> Result<Store> {
        let start = Instant::now();
        let mut from_copy = self.read_from_copy;
        if !from_copy {
            match self.open_in_place(path, start) {
                InPlaceOpen::Opened(store) => return Ok(store.reopened_by(self.reopen())),
                // A process writes the pool, and should not be kept out.
                InPlaceOpen::Overtaken => from_copy = true,
                InPlaceOpen::Impossible => {}
            }
        }
        let store = match find_to_read(path, from_copy)? {
            PoolToRead::Locked(LockedPool { file, place, lock }) => {
                let source = ReadSource {
                    file,
                    log_place: Some(log_place(&place)),
                };
                let image = self.image(&source)?;
                let store = self.finish(path, image, start, Some(place), Some(source))?;
                store.locked_by(lock)
            }
            PoolToRead::Copied(CopiedPool { copy, place }) => {
                let source = ReadSource {
                    file: copy,
                    log_place: None,
                };
                let image = self.image(&source)?;
                self.finish(path, image, start, Some(place), Some(source))?
            }
        };
        Ok(store.reopened_by(self.reopen()))
    }

    fn reopen(&self) -> Reopen {
        let options = self.clone();
        Box::new(move |path| Ok(options.open(path)?.inner))
    }

    /// Opens the pool to be read in place. An error does not count: the pool may have been overtaken.
    /// If there is another reason, the way by a copy or with the lock finds it as well.
    fn open_in_place(&self, path: &Path, start: Instant) -> InPlaceOpen {
        let mut was_overtaken = false;
        for _ in 0..VIEW_ATTEMPTS {
            match self.try_in_place(path, start) {
                Ok(InPlaceOpen::Opened(store)) => return InPlaceOpen::Opened(store),
                Ok(InPlaceOpen::Overtaken) => was_overtaken = true,
                Ok(InPlaceOpen::Impossible) | Err(_) => {}
            }
        }
        if was_overtaken {
            InPlaceOpen::Overtaken
        } else {
            InPlaceOpen::Impossible
        }
    }

    fn try_in_place(&self, path: &Path, start: Instant) -> Result<InPlaceOpen> {
        let Some(found) = find_view(path, self.file_options())? else {
            return Ok(InPlaceOpen::Impossible);
        };
        let FoundView {
            viewed: ViewedPool { image, in_place },
            file,
            place,
        } = found;
        let image = as_formed(image)?;
        let source = ReadSource {
            file,
            log_place: Some(log_place(&place)),
        };
        let store = self.finish(path, image, start, Some(place), Some(source))?;
        let is_current = in_place.is_current().map_err(medium::MediumError::from)?;
        if is_current {
            Ok(InPlaceOpen::Opened(store.resting_on(in_place)))
        } else {
            Ok(InPlaceOpen::Overtaken)
        }
    }

    /// The pool that is to be read, as memory. No process writes it.
    pub(crate) fn image(&self, source: &ReadSource) -> Result<Dax> {
        let file = &source.file;
        let again = file.try_clone().map_err(refused)?;
        let asked = self.medium == MediumChoice::Dax;
        let needs_log =
            medium::File::needs_log(file, pool::MEDIUM_LINE).map_err(medium::MediumError::from)?;
        // A pool that needs its log can be read only once the log is replayed.
        if !needs_log && Identity::of_file(file)?.is_none() {
            return Err(not_a_pool(NEVER_WRITTEN));
        }
        let log_place = source.log_place.as_ref();
        let image = medium::File::image(again, log_place, self.file_options(), asked)?;
        as_formed(image)
    }

    /// Opens the file at the end of `path`, and makes it if it is missing. Links are followed, also
    /// one that leads to no file yet.
    fn open_file(&self, path: &Path) -> Result<OpenedFile> {
        let is_missing = match std::fs::metadata(path) {
            Ok(found) if !found.is_file() => return Err(no_file(&found)),
            Ok(_) => false,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused(error)),
            Err(_) if !self.create => return Err(ErrorKind::NoSuchPool.into()),
            Err(_) => true,
        };
        let place = FilePlace::find(path).map_err(refused)?;
        let made = if is_missing {
            place.make(NEW_POOL_MODE).map(Some)
        } else {
            Ok(None)
        };
        let made = match made {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            made => made.map_err(refused)?,
        };
        let is_new = made.is_some();
        let file = match made {
            Some(file) => file,
            None => place.open(true).map_err(refused)?,
        };
        Ok(OpenedFile {
            pool: NamedPool { file, place },
            is_new,
        })
    }

    fn open_locked(&self, path: &Path, place: &FilePlace, file: File) -> Result<Store> {
        let start = Instant::now();
        let needs_log =
            medium::File::needs_log(&file, pool::MEDIUM_LINE).map_err(medium::MediumError::from)?;
        // A pool that needs its log can be read only once the log is replayed.
        let identity = if needs_log {
            None
        } else {
            Identity::of_file(&file)?
        };
        let blank = identity.is_none() && !needs_log;
        if blank && !self.create {
            return Err(not_a_pool(NEVER_WRITTEN));
        }
        let store = match self.medium {
            MediumChoice::Dax => self.open_dax(path, place, file, blank, start)?,
            // `Auto` takes mapped memory only if that survives loss of power, as the file medium
            // does.
            MediumChoice::Auto if Dax::survives_power_loss(&file) => {
                self.open_dax(path, place, file, blank, start)?
            }
            MediumChoice::Auto | MediumChoice::File | MediumChoice::Ram => {
                self.check_instructions()?;
                let medium = self.open_beside(place, file, blank)?;
                let store = self.open_on_file(path, medium, start, Some(place.clone()))?;
                // Again: replaying the log may have written back the number of an older holder.
                if let Some(file) = store.inner.backend()?.pool_file() {
                    pool::set_holder_of_file(file)?;
                }
                store
            }
        };
        Ok(store)
    }

    fn open_beside(&self, place: &FilePlace, file: File, blank: bool) -> Result<medium::File> {
        let pool_place = Some(place.clone());
        let found = Beside::find(file, pool_place, log_place(place), self.file_options())?;
        if !blank {
            // Replay and recovery may take long, and other processes ask for the holder meanwhile.
            // The number is written only once the pool has the log that it needs.
            pool::set_holder_of_file(found.pool_file())?;
        }
        Ok(found.open()?)
    }

    fn file_options(&self) -> FileOptions {
        let default = FileOptions::default();
        FileOptions {
            durability: self.durability,
            log_bytes: self.log_bytes.unwrap_or(FOLLOWING_LOG_BYTES_MAX),
            log_follows_pool: self.log_bytes.is_none(),
            log_bytes_max: self
                .log_bytes_max
                .or(self.log_bytes)
                .unwrap_or(default.log_bytes_max),
            limit_bytes: self.limit_bytes,
            private_bytes_max: self
                .private_bytes_max
                .unwrap_or_else(|| medium::memory_bytes() / 4)
                .max(PRIVATE_BYTES_MIN),
            mark_offset: pool::MEDIUM_LINE,
            gather_max: self.gather_max,
            through: self.through,
            ..default
        }
    }

    /// Opens the store on two files that are open, whatever they are: for tests with a disk that
    /// fails.
    ///
    /// # Errors
    /// The same as those of [`Options::open`].
    #[doc(hidden)]
    pub fn open_on(&self, pool: Arc<dyn Io>, log: Arc<dyn Io>) -> Result<Store> {
        let path = Path::new("(machine)");
        let options = FileOptions {
            background: false,
            ..self.file_options()
        };
        if self.read_only {
            let source = ReadSource {
                file: pool.file().try_clone().map_err(refused)?,
                log_place: None,
            };
            let image = as_formed(medium::File::image_on(&*pool, Some(log), options, false)?)?;
            return self.finish(path, image, Instant::now(), None, Some(source));
        }
        self.open_on_file(
            path,
            medium::File::open(pool, log, options)?,
            Instant::now(),
            None,
        )
    }

    fn open_on_file(
        &self,
        path: &Path,
        mut medium: medium::File,
        start: Instant,
        place: Option<FilePlace>,
    ) -> Result<Store> {
        // The log keeps lines whole, so either form works.
        let wanted = self.line_store.map(form_of);
        match (Identity::of_medium(&medium)?, wanted) {
            (Some(pool), Some(wanted)) if pool.line_form != wanted => {
                return Err(ErrorKind::LineForm {
                    pool: pool.line_form,
                    medium: wanted,
                }
                .into());
            }
            (Some(pool), _) => medium.set_line_form(pool.line_form),
            (None, wanted) => medium.set_line_form(wanted.unwrap_or(LineForm::Single)),
        }
        if medium.survives() < self.require {
            // The log is written back and removed, as it is no longer needed.
            medium.finish()?;
            return Err(ErrorKind::NotDurable {
                required: self.require,
                found: medium.describe(),
            }
            .into());
        }
        self.finish(path, medium, start, place, None)
    }

    fn open_dax(
        &self,
        path: &Path,
        place: &FilePlace,
        file: File,
        blank: bool,
        start: Instant,
    ) -> Result<Store> {
        if medium::File::needs_log(&file, pool::MEDIUM_LINE).map_err(medium::MediumError::from)? {
            // The pool was last open on the file medium: its log is written back first.
            let again = file.try_clone().map_err(refused)?;
            self.open_beside(place, again, blank)?.finish()?;
        }
        let asked = self.medium == MediumChoice::Dax;
        medium::File::remove_unneeded_log(&file, &log_place(place), pool::MEDIUM_LINE, asked)
            .map_err(medium::MediumError::from)?;
        if !blank {
            // The number is written before recovery, which may take long: see `open_beside`.
            pool::set_holder_of_file(&file)?;
        }
        self.check_instructions()?;
        let identity = Identity::of_file(&file)?;
        let line_store = self.choose_line_store(identity.map(|identity| identity.line_form))?;
        let flush = self.flush.unwrap_or_else(FlushKind::detect);
        let options = DaxOptions {
            flush,
            line_store,
            limit_bytes: self.limit_bytes,
        };
        let dax = Dax::new(file, options)?.lying_at(place.clone());
        let store = self.finish(path, dax, start, Some(place.clone()), None)?;
        if blank {
            // A new file is durable only once its folder is synced. The file medium does that when
            // it makes the log.
            let action = "make the new file durable in its folder";
            place.folder().sync().map_err(Error::io(action))?;
        }
        Ok(store)
    }

    /// Refuses instructions that this processor lacks, whether or not the medium will use them.
    fn check_instructions(&self) -> Result<()> {
        if let Some(flush) = self.flush.filter(|flush| !flush.is_supported()) {
            return Err(ErrorKind::Unsupported {
                what: format!("flush {flush}"),
            }
            .into());
        }
        match self.line_store.filter(|store| !store.is_supported()) {
            Some(store) => Err(ErrorKind::Unsupported {
                what: format!("line store {store}"),
            }
            .into()),
            None => Ok(()),
        }
    }

    fn choose_line_store(&self, pool: Option<LineForm>) -> Result<LineStore> {
        let store = match (self.line_store, pool) {
            (Some(store), _) => store,
            (None, Some(LineForm::Twin)) => LineStore::Twin,
            (None, _) => LineStore::detect(),
        };
        match pool {
            Some(pool) if pool != form_of(store) => Err(ErrorKind::LineForm {
                pool,
                medium: form_of(store),
            }
            .into()),
            _ => Ok(store),
        }
    }

    /// Takes a medium; `place` is where the pool lies, `source` is the file that the medium is an
    /// image of, if the store is only read.
    fn finish<M: Host>(
        &self,
        path: &Path,
        medium: M,
        start: Instant,
        place: Option<FilePlace>,
        source: Option<ReadSource>,
    ) -> Result<Store> {
        // Whether a new file survives loss of power is known only when some of it is mapped.
        medium.grow(pool::SLAB_BYTES)?;
        if medium.survives() < self.require {
            return Err(ErrorKind::NotDurable {
                required: self.require,
                found: medium.describe(),
            }
            .into());
        }
        // A store that is only read has no epochs to end, and is dropped without a clean close.
        let (close_cleanly, epoch) = match source {
            Some(_) => (false, EpochLength::Manual),
            None => (self.close_cleanly, self.epoch),
        };
        let pool_options = PoolOptions {
            close_on_drop: close_cleanly,
            read_bitmaps_later: true,
            ..PoolOptions::default()
        };
        let pool = Pool::open(medium, pool_options)?;
        if self.verify {
            pool.verify_reads();
        }
        let opening = StoreOpening {
            engines: self.engines,
            threads: self.recovery_threads,
            epoch,
            close_cleanly,
            settings: self.settings.clone(),
            transaction_attempts: self.transaction_attempts,
            versions: Versions::new::<M>(self.old_values_bytes_max(), pool.process()),
        };
        let terms = Terms {
            opening: &opening,
            is_only_read: source.is_some(),
            start,
        };
        let recovered = recovery::recover(&pool, terms)?;
        let backend = Box::new(pool);
        Ok(Store::on(path, backend, opening, recovered, place, source))
    }
}

/// The largest log, new or idle, whose size is not given.
const FOLLOWING_LOG_BYTES_MAX: u64 = 1 << 20;

/// The file of a pool, and where it lies.
pub(crate) struct NamedPool {
    pub(crate) file: File,
    pub(crate) place: FilePlace,
}

/// The file of a pool, where it lies, and the lock on it. Only the lock's own descriptor has the
/// lock: mappings of the file, and copies of its descriptor, do not keep it locked.
pub(crate) struct LockedPool {
    pub(crate) file: File,
    pub(crate) place: FilePlace,
    pub(crate) lock: FileLock,
}

impl LockedPool {
    /// Gives the lock up.
    pub(crate) fn unlock(self) -> NamedPool {
        let Self { file, place, lock } = self;
        drop(lock);
        NamedPool { file, place }
    }
}

impl NamedPool {
    /// Locks the pool, alone or beside other readers; `None` if the place does not lead to the file
    /// any more, because another process has removed or replaced it.
    pub(crate) fn lock(self, operation: FlockOperation) -> Result<Option<LockedPool>> {
        let Self { file, place } = self;
        // On some file systems a file that is to be locked alone must be open for writing.
        let is_written = operation == FlockOperation::NonBlockingLockExclusive;
        let again = match place.open(is_written) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            again => again.map_err(refused)?,
        };
        let Some(found) = FileLock::on(again, &file).map_err(refused)? else {
            return Ok(None);
        };
        lock(&found, operation)?;
        if !is_in_place(&place, &file)? {
            return Ok(None);
        }
        Ok(Some(LockedPool {
            file,
            place,
            lock: found,
        }))
    }
}

/// The file of a pool that is to be opened for writing.
struct OpenedFile {
    pool: NamedPool,
    /// Whether this process has just made it.
    is_new: bool,
}

/// Whether a file still has the name under which it was opened. Otherwise another process has
/// removed or replaced it.
fn is_in_place(place: &FilePlace, file: &File) -> Result<bool> {
    Ok(place.displacement(file).map_err(refused)?.is_none())
}

/// The error if that never was so.
fn never_in_place() -> Error {
    refused(io::Error::other("its path leads to another file each time"))
}

/// Removes a new file that could not be locked, unless another process has written to it.
fn remove_if_empty(place: &FilePlace, file: &File) {
    let is_empty = file.metadata().is_ok_and(|file| file.len() == 0);
    if is_empty {
        // If this fails, an empty file stays, which the next open takes for a new pool.
        let _ = place.remove(file);
    }
}

/// An image of a pool, with lines of the pool's form.
fn as_formed(mut image: Dax) -> Result<Dax> {
    let identity = Identity::of_medium(&image)?.ok_or_else(|| not_a_pool(NEVER_WRITTEN))?;
    image.set_line_form(identity.line_form);
    Ok(image)
}

fn form_of(store: LineStore) -> LineForm {
    if store == LineStore::Twin {
        LineForm::Twin
    } else {
        LineForm::Single
    }
}

/// The path of the log of the pool at `path`: beside the file itself if `path` is a link.
#[must_use]
pub fn log_path(path: &Path) -> PathBuf {
    let path = match path.canonicalize() {
        Ok(path) => path,
        // It does not exist yet; but a link may lead to it.
        Err(_) => match FilePlace::find(path) {
            Ok(place) => place.path().to_owned(),
            Err(_) => path.to_owned(),
        },
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".log");
    path.with_file_name(name)
}

/// Where the log of a pool lies.
pub(crate) fn log_place(pool: &FilePlace) -> FilePlace {
    pool.with_suffix(".log")
}

/// Why a file of zeros, or without any content, is no pool.
const NEVER_WRITTEN: &str = "nothing was ever written to it";

fn not_a_pool(why: &str) -> Error {
    ErrorKind::NotAPool {
        why: why.to_owned(),
    }
    .into()
}

fn no_file(found: &Metadata) -> Error {
    not_a_pool(if found.is_dir() {
        "it is a folder"
    } else {
        "it is no regular file"
    })
}

/// The file at `path`, opened to be read and locked beside other readers.
pub(crate) fn locked_to_read(path: &Path) -> Result<LockedPool> {
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => Error::from(ErrorKind::NoSuchPool),
        _ => Error::io("open the pool")(source),
    };
    for _ in 0..ATTEMPTS_MAX {
        let found = std::fs::metadata(path).map_err(refused)?;
        if !found.is_file() {
            return Err(no_file(&found));
        }
        let place = FilePlace::find(path).map_err(refused)?;
        let file = place.open(false).map_err(refused)?;
        let operation = FlockOperation::NonBlockingLockShared;
        if let Some(locked) = (NamedPool { file, place }).lock(operation)? {
            return Ok(locked);
        }
    }
    Err(never_in_place())
}

/// Whether only readers keep a pool locked.
fn is_kept_by_readers(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Locked { readers: true, .. })
}

/// The error for a file that the system does not open for writing.
fn refused(source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorKind::NotWritable { source }.into()
        }
        _ => Error::io("open the pool")(source),
    }
}

/// Whether a process with this number is visible from here.
fn is_alive(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) != Err(rustix::io::Errno::SRCH))
}

/// Takes the lock by which one process, and within it one store, writes to a pool at a time, or
/// several read it. The system releases it when the process ends, however it ends.
fn lock(of: &FileLock, how: FlockOperation) -> Result<()> {
    let file = of.file();
    grant(SystemCall::Lock).map_err(Error::io("lock the pool"))?;
    match rustix::io::retry_on_intr(|| flock(file, how)) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            // If readers can still get the lock, its holders are readers.
            let readers = flock(file, FlockOperation::NonBlockingLockShared).is_ok();
            if readers {
                // If the unlock fails, the lock is kept until the file is closed, which comes soon.
                let _ = flock(file, FlockOperation::Unlock);
            }
            // Until the holder has written its number, the file names the holder before it.
            let holder = pool::holder_of_file(file).filter(|holder| {
                // In another container a process may have the number of this one.
                let is_namesake = *holder == std::process::id() && !of.is_open_elsewhere_here();
                !readers && is_alive(*holder) && !is_namesake
            });
            Err(ErrorKind::Locked { holder, readers }.into())
        }
        Err(errno) => Err(Error::io("lock the pool")(errno.into())),
    }
}
