//! A store that takes the place of another.

use std::fs::File;
use std::path::Path;

use engines::{Error, ErrorKind, Result};
use medium::FileLock;
use medium::file::sync_folder;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::Store;
use crate::options::lock;

impl Store {
    /// Closes this store cleanly, and then renames the file `new` to its path, durably. `new` holds
    /// another store, which is closed and lies on the same file system. If a crash comes meanwhile,
    /// the path leads to one of the two stores, whole. A process that waits for the pool gets the
    /// new one.
    ///
    /// # Errors
    /// The errors of [`Store::close`]; [`ErrorKind::Locked`] if another process opens this store
    /// once it is closed; [`ErrorKind::Io`] if the system refuses. After an error the path leads to
    /// this store, and `new` is where it was, unless only its place is not durable yet.
    pub fn close_and_replace(self, new: impl AsRef<Path>) -> Result<()> {
        self.at(self.inner.expect_own_process())?;
        let path = self.path().to_owned();
        let refused = |source| Error::io("replace the pool")(source);
        let replace = || {
            let place = path.canonicalize().map_err(refused)?;
            // The new file may have been written through a mapping.
            File::open(new.as_ref())
                .and_then(|new| new.sync_all())
                .map_err(refused)?;
            self.close()?;
            // The close removed the log of the old pool, so no open takes it for the new pool's
            // log.
            let file = File::open(&place).map_err(refused)?;
            let Some(locked) = FileLock::beside(&file, &place).map_err(refused)? else {
                // Another program has put another file in its place.
                return Err(refused(Errno::STALE.into()));
            };
            lock(locked.file(), FlockOperation::NonBlockingLockExclusive)?;
            let holder = pool::holder_of_file(&file);
            if holder != Some(std::process::id()) {
                // It was open in another process between the close and the lock, and may hold more
                // than it did.
                return Err(ErrorKind::Locked {
                    holder,
                    readers: false,
                }
                .into());
            }
            std::fs::rename(new.as_ref(), &place)
                .and_then(|()| sync_folder(&place))
                .map_err(refused)
        };
        replace().map_err(|error: Error| error.at(&path))
    }
}
