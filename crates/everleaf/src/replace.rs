//! A store that takes the place of another.

use std::fs::File;
use std::path::Path;

use engines::{Error, ErrorKind, Result};
use medium::file::FileId;
use rustix::fs::FlockOperation;

use crate::Store;
use crate::options::NamedPool;

impl Store {
    /// Closes this store cleanly, and then renames the file `new` to its path, durably. `new` holds
    /// another store, which is closed and lies on the same file system. If a crash comes meanwhile,
    /// the path leads to one of the two stores, whole. A process that waits for the pool gets the
    /// new one. If the folder of this store was renamed, `new` comes into that folder.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// # let new = folder.path().join("new.pool");
    /// use everleaf::Store;
    ///
    /// let store = Store::open(&path)?;
    /// store.tree("stock")?.put("apple", "12")?;
    /// let smaller = Store::open(&new)?;
    /// smaller.tree("stock")?.put("pear", "3")?;
    /// smaller.close()?;
    ///
    /// store.close_and_replace(&new)?;
    /// assert!(!new.exists());
    /// assert!(Store::open(&path)?.tree("stock")?.contains("pear")?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Store::close`]; [`ErrorKind::Locked`] if another process opens this store
    /// once it is closed; [`ErrorKind::Io`] if the system refuses, or another file has taken the
    /// path. After an error the path leads to this store, and `new` is where it was, unless only
    /// its place is not durable yet.
    pub fn close_and_replace(self, new: impl AsRef<Path>) -> Result<()> {
        self.at(self.inner.expect_own_process())?;
        let path = self.path().to_owned();
        let replaced = self.replace_by(new.as_ref());
        replaced.map_err(|error| error.at(&path))
    }

    fn replace_by(self, new: &Path) -> Result<()> {
        let refused = |source| Error::io("replace the pool")(source);
        let no_file = || refused(std::io::ErrorKind::NotFound.into());
        let place = self.inner.place.clone().ok_or_else(no_file)?;
        let own = self.inner.backend()?.pool_file().ok_or_else(no_file)?;
        let own = FileId::of(own).map_err(refused)?;
        // The new file may have been written through a mapping.
        File::open(new)
            .and_then(|new| new.sync_all())
            .map_err(refused)?;
        self.close()?;
        // The close removed the log of the old pool, so no open takes it for the new pool's log.
        let other_file = || {
            let what = "its path leads to another file, which was not touched";
            refused(std::io::Error::other(what))
        };
        let file = place.open(false).map_err(refused)?;
        if FileId::of(&file).map_err(refused)? != own {
            return Err(other_file());
        }
        let named = NamedPool {
            file,
            place: place.clone(),
        };
        let operation = FlockOperation::NonBlockingLockExclusive;
        let locked = named.lock(operation)?.ok_or_else(other_file)?;
        let holder = pool::holder_of_file(&locked.file);
        if holder != Some(std::process::id()) {
            // It was open in another process between the close and the lock, and may hold more than
            // it did.
            return Err(ErrorKind::Locked {
                holder,
                readers: false,
            }
            .into());
        }
        place.replace_by(new).map_err(refused)?;
        place.folder().sync().map_err(refused)
    }
}
