//! Copies of stores that are in use, by this process or by another.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use medium::MediumError;
use medium::file::{CopyTarget, Disk, PRIVATE_MODE, share_access, sync_folder};
use pool::{Error, Result};

use crate::options::log_path;
use crate::{Options, Store};

/// How often a copy is tried of a pool whose holder changes meanwhile.
const ATTEMPTS: u32 = 5;
/// How long to rest before the next one.
const REST: Duration = Duration::from_millis(20);

/// The file that a copy becomes.
pub(crate) struct NewCopy {
    path: PathBuf,
    pub(crate) target: CopyTarget,
}

fn refused(source: io::Error) -> Error {
    Error::Io { action: "make the copy", source }
}

impl NewCopy {
    /// Makes the file, and a second one beside it that has no name any more. Whoever may not read the pool may read
    /// neither.
    pub(crate) fn make(path: &Path, pool: &Path) -> Result<Self> {
        let make = |path: &Path| {
            let mut new = OpenOptions::new();
            new.read(true).write(true).create_new(true).mode(PRIVATE_MODE);
            new.open(path).map_err(refused).map_err(|error| error.at(path))
        };
        let copy = make(path)?;
        if let Ok(pool) = std::fs::metadata(pool) {
            // If it cannot be, only this user may read the copy.
            let _ = share_access(&copy, &pool);
        }
        let mut spool_path = path.as_os_str().to_owned();
        spool_path.push(".spool");
        let spool_path = PathBuf::from(spool_path);
        let spool = make(&spool_path).and_then(|spool| {
            std::fs::remove_file(&spool_path).map_err(refused)?;
            Ok(spool)
        });
        let spool = spool.inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })?;
        let target = CopyTarget { copy: Arc::new(Disk(copy)), spool: Arc::new(Disk(spool)) };
        Ok(Self { path: path.to_owned(), target })
    }

    /// Makes durable that there is a copy; or takes it away, if there is none.
    pub(crate) fn finish(self, copied: Result<Option<u64>>) -> Result<Option<u64>> {
        let copied = copied.and_then(|bytes| {
            sync_folder(&self.path).map_err(refused)?;
            Ok(bytes)
        });
        if !matches!(copied, Ok(Some(_))) {
            // Half a copy is none.
            let _ = std::fs::remove_file(&self.path);
        }
        copied
    }
}

impl Options {
    /// Copies the store at `path` into a new file, `target`, as it is at some moment of the call: also while another process
    /// has it open and writes. That goes on undisturbed, and everything it had acknowledged as durable when this was called is
    /// in the copy; what it holds back under another [`Durability`](crate::Durability) is not. If nobody has the store open, it
    /// is opened meanwhile, with these options, and recovered if need be. For the copy itself see [`Store::backup`]. O(file +
    /// log); the log is kept for the time being, in a file without a name beside `target`.
    ///
    /// # Errors
    /// - As [`Options::open`] and [`Store::backup`];
    /// - [`Error::NoBackup`] if another process has the store open on another medium than
    ///   [`MediumChoice::File`](crate::MediumChoice::File), or others keep opening and closing it;
    /// - [`Error::Medium`] with [`LogError::Overrun`](crate::LogError::Overrun) if the log beside the pool is so small, and so
    ///   much is written, that its space is used again before it was read.
    pub fn backup(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<u64> {
        let (path, target) = (path.as_ref(), target.as_ref());
        let options = self.clone().create(false);
        let mut holder = None;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(REST);
            }
            match options.open(path) {
                Ok(store) => return back_up_and_close(store, target),
                Err(error) => match error.root() {
                    Error::Locked { holder: found } => holder = *found,
                    _ => return Err(error),
                },
            }
            let new = NewCopy::make(target, path)?;
            let copied = copy_beside(path, &new.target);
            if let Some(bytes) = new.finish(copied).map_err(|error| error.at(path))? {
                return Ok(bytes);
            }
        }
        let holder =
            holder.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"));
        Err(Error::NoBackup { why: format!("{holder} has it open on a medium without a log") }.at(path))
    }
}

fn back_up_and_close(store: Store, target: &Path) -> Result<u64> {
    let bytes = store.backup(target)?;
    store.close()?;
    Ok(bytes)
}

/// Copies a pool that another process has open; `None` if it has no log.
fn copy_beside(path: &Path, target: &CopyTarget) -> Result<Option<u64>> {
    let pool = File::open(path).map_err(|source| Error::Io { action: "open the pool", source })?;
    let copied = medium::File::backup_beside(pool, &log_path(path), target, pool::MEDIUM_LINE);
    Ok(copied.map_err(MediumError::from)?)
}
