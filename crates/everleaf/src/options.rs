//! How a store is opened, and the opening itself.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use medium::{Dax, DaxOptions, FlushKind, LineForm, LineStore, Medium, Ram, Survives};
use pool::{Error, Identity, Pool, PoolOptions, Result};
use rustix::fs::{FlockOperation, flock};

use crate::Store;
use crate::backend::Backend;

/// Where a store's bytes become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum MediumChoice {
    /// What suits the file; today always [`MediumChoice::Dax`].
    #[default]
    Auto,
    /// The mapped file, its lines written back by the processor. On a file system that grants `MAP_SYNC` it
    /// survives loss of power. On any other it is an *emulation*: it survives the end of the process however that
    /// comes, but not loss of power or a kernel crash.
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
pub struct Options {
    create: bool,
    limit_bytes: u64,
    medium: MediumChoice,
    line_store: Option<LineStore>,
    flush: Option<FlushKind>,
    require: Survives,
    pub(crate) recovery_threads: Option<usize>,
    close_cleanly: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            limit_bytes: u64::MAX,
            medium: MediumChoice::Auto,
            line_store: None,
            flush: None,
            require: Survives::Nothing,
            recovery_threads: None,
            close_cleanly: true,
        }
    }
}

impl Options {
    /// The default: create what is missing, no limit, everything detected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a missing file is made, and an empty one taken for a new pool. Default: yes. Without, it is
    /// [`Error::NoSuchPool`] or [`Error::NotAPool`].
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// The largest length that the file may get, in bytes. An operation that would need more fails with
    /// [`Error::PoolFull`] and changes nothing; removes go on working. Default: what the disk holds.
    pub fn limit_bytes(mut self, limit_bytes: u64) -> Self {
        self.limit_bytes = limit_bytes;
        self
    }

    /// Where bytes become durable. Default: [`MediumChoice::Auto`].
    pub fn medium(mut self, medium: MediumChoice) -> Self {
        self.medium = medium;
        self
    }

    /// How a line of 64 bytes is stored failure-atomically. Default: the best that this processor has. A pool keeps
    /// the *form* it was made with: [`LineStore::Twin`], or any of the three others.
    pub fn line_store(mut self, line_store: LineStore) -> Self {
        self.line_store = Some(line_store);
        self
    }

    /// How lines are written back. Default: the best that this processor has. [`FlushKind::Nothing`] is for
    /// platforms whose caches are durable (eADR), which no processor tells.
    pub fn flush(mut self, flush: FlushKind) -> Self {
        self.flush = Some(flush);
        self
    }

    /// The least that must be survived; if the medium promises less, opening fails with [`Error::NotDurable`].
    /// Default: nothing is demanded.
    pub fn require(mut self, survives: Survives) -> Self {
        self.require = survives;
        self
    }

    /// How many threads recover a tree. Default: all cores.
    pub fn recovery_threads(mut self, threads: usize) -> Self {
        self.recovery_threads = Some(threads.max(1));
        self
    }

    /// Whether the store is closed cleanly when its last handle goes. Without, the next open recovers as after a
    /// crash: for tests.
    #[doc(hidden)]
    pub fn close_cleanly(mut self, close_cleanly: bool) -> Self {
        self.close_cleanly = close_cleanly;
        self
    }

    /// Opens the store at `path`, and makes it if it is missing. O(pool's slabs) after a clean close; after a crash
    /// O(leaves), on all cores.
    ///
    /// # Errors
    /// - [`Error::NoSuchPool`], [`Error::NotAPool`], [`Error::ReadOnly`], [`Error::Locked`], [`Error::Io`]: the file;
    /// - [`Error::Version`], [`Error::UnknownFeatures`], [`Error::LineForm`]: a pool of another release or machine;
    /// - [`Error::Corrupt`]: a damaged header, or a truncated file. A damaged *tree* fails when it is opened itself;
    /// - [`Error::NotDurable`], [`Error::Unsupported`]: this machine has not what was asked for;
    /// - [`Error::PoolFull`]: no room for a new pool.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        let path = path.as_ref();
        if self.medium == MediumChoice::Ram {
            return self.open_in_memory();
        }
        self.open_path(path).map_err(|error| error.at(path))
    }

    /// Makes a store in memory, on [`MediumChoice::Ram`].
    ///
    /// # Errors
    /// [`Error::NotDurable`] if anything is to be survived; [`Error::Medium`] if the system gives no memory.
    pub fn open_in_memory(&self) -> Result<Store> {
        let (path, start) = (Path::new("(memory)"), Instant::now());
        let ram = Ram::new(self.limit_bytes).map_err(medium::MediumError::from)?;
        self.finish(path, ram, start).map_err(|error| error.at(path))
    }

    fn open_path(&self, path: &Path) -> Result<Store> {
        let (file, made) = loop {
            let (file, made) = self.open_file(path)?;
            lock(&file)?;
            // The process that made it may have failed and removed it before this one had the lock.
            if file.metadata().map_err(refused)?.nlink() > 0 {
                break (file, made);
            }
        };
        if !made {
            return self.open_locked(path, file);
        }
        // A second handle keeps the lock until the end.
        let locked = file.try_clone().map_err(refused)?;
        self.open_locked(path, file).inspect_err(|_| {
            // Nothing can be in it yet; a file that is no pool would only puzzle.
            let _ = std::fs::remove_file(path);
            drop(locked);
        })
    }

    /// The file, and whether it was made by this call.
    fn open_file(&self, path: &Path) -> Result<(File, bool)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match std::fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                let what = if found.is_dir() { "a folder" } else { "no regular file" };
                return Err(Error::NotAPool { why: format!("it is {what}") });
            }
            Ok(_) => return options.open(path).map(|file| (file, false)).map_err(refused),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(refused(error)),
            Err(_) if !self.create => return Err(Error::NoSuchPool),
            Err(_) => {}
        }
        match options.clone().create_new(true).open(path) {
            Ok(file) => Ok((file, true)),
            // Another process was faster.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                options.open(path).map(|file| (file, false)).map_err(refused)
            }
            Err(error) => Err(refused(error)),
        }
    }

    fn open_locked(&self, path: &Path, file: File) -> Result<Store> {
        let start = Instant::now();
        let identity = Identity::of_file(&file)?;
        if identity.is_none() && !self.create {
            return Err(Error::NotAPool { why: "nothing was ever written to it".to_owned() });
        }
        let line_store = self.choose_line_store(identity.map(|identity| identity.line_form))?;
        let flush = self.flush.unwrap_or_else(FlushKind::detect);
        if !flush.is_supported() {
            return Err(Error::Unsupported { what: format!("flush {flush}") });
        }
        let options = DaxOptions { flush, line_store, limit_bytes: self.limit_bytes };
        let dax = Dax::new(file, options).map_err(medium::MediumError::from)?;
        let store = self.finish(path, dax, start)?;
        if identity.is_none() {
            // The pool exists durably only when its folder says so.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))
                .and_then(|folder| folder.sync_all())
                .map_err(|source| Error::Io { action: "make the new file durable in its folder", source })?;
        }
        Ok(store)
    }

    fn choose_line_store(&self, pool: Option<LineForm>) -> Result<LineStore> {
        let form = |store| if store == LineStore::Twin { LineForm::Twin } else { LineForm::Single };
        let store = match (self.line_store, pool) {
            (Some(store), _) if !store.is_supported() => {
                return Err(Error::Unsupported { what: format!("line store {store}") });
            }
            (Some(store), _) => store,
            (None, Some(LineForm::Twin)) => LineStore::Twin,
            (None, _) => LineStore::detect(),
        };
        match pool {
            Some(pool) if pool != form(store) => Err(Error::LineForm { pool, medium: form(store) }),
            _ => Ok(store),
        }
    }

    fn finish<M: Medium>(&self, path: &Path, medium: M, start: Instant) -> Result<Store> {
        // What a new file survives is known only when some of it is mapped.
        medium.grow(pool::SLAB_BYTES)?;
        if medium.survives() < self.require {
            return Err(Error::NotDurable { required: self.require, found: medium.describe() });
        }
        let pool_options = PoolOptions { close_on_drop: self.close_cleanly, ..PoolOptions::default() };
        let pool: Box<dyn Backend> = Box::new(Pool::open(medium, pool_options)?);
        Store::recover(path, pool, self.recovery_threads, start)
    }
}

/// What it means that the system does not open a file for writing.
fn refused(source: io::Error) -> Error {
    match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::ReadOnly { source },
        _ => Error::Io { action: "open the pool", source },
    }
}

/// One process, and within it one store, has a pool at a time. The system gives the lock back when the process ends,
/// however it ends.
fn lock(file: &File) -> Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked { holder: pool::holder_of_file(file) }),
        Err(errno) => Err(Error::Io { action: "lock the pool", source: errno.into() }),
    }
}
