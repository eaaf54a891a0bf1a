//! The end of a store: closed cleanly, or removed.

use std::fmt;

use engines::Error;
#[cfg(doc)]
use engines::ErrorKind;

use crate::Store;
use crate::open_store::OpenStore;

/// A store that could not be closed, and why.
///
/// The store is still open. It can be read, copied ([`Store::backup`]) and closed again; whether it
/// takes writes depends on the error: after [`ErrorKind::InUse`] it does, after an error of the
/// medium it does not. It is an [`Error`] for functions that return one: `store.close()?`.
pub struct CloseError {
    /// The store.
    pub store: Store,
    /// Why it could not be closed.
    pub error: Error,
}

impl fmt::Debug for CloseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl std::error::Error for CloseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// The error alone. The handle of the store is dropped.
impl From<CloseError> for Error {
    fn from(failed: CloseError) -> Self {
        failed.error
    }
}

impl Store {
    /// Closes the store cleanly: the next open need not find out which space is in use, and the
    /// file gives its free tail back. Durable when this returns. Dropping the last handle does the
    /// same, but cannot report an error.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("a.pool");
    /// let store = everleaf::Store::open(&path)?;
    /// let tree = store.tree("main")?;
    /// let failed = store.close().unwrap_err(); // the tree is still there
    /// drop(tree);
    /// failed.store.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A [`CloseError`] has the store, and one of these errors:
    /// - [`ErrorKind::InUse`] while another clone of the store, one of its trees, a range or a
    ///   [`Pending`](crate::Pending) result lives. If all of them are dropped, the store is closed
    ///   with the last one.
    /// - [`ErrorKind::Medium`] if the medium failed, or a file was moved or removed while the store
    ///   was open ([`MediumError::Displaced`](crate::MediumError::Displaced)).
    /// - [`ErrorKind::Forked`] in a child that was forked after the open: nothing is closed.
    pub fn close(mut self) -> std::result::Result<(), CloseError> {
        match self.inner.alone().and_then(OpenStore::close) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.not_closed(error)),
        }
    }

    /// Ends the store and removes its files, with everything in them: the log, then the pool, under
    /// the lock of the pool. A file whose name means another file by now stays. Durable when this
    /// returns. A crash meanwhile may leave the pool without its log, which then does not open.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// let store = everleaf::Store::open(&path)?;
    /// store.tree("stock")?.put("apple", "12")?;
    /// store.remove_files()?;
    /// assert!(!path.exists());
    /// assert!(!everleaf::log_path(&path).exists());
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Store::close`]; [`ErrorKind::ReadOnly`] if the store is only read;
    /// [`ErrorKind::Io`] if a file cannot be removed.
    pub fn remove_files(mut self) -> std::result::Result<(), CloseError> {
        match self.inner.alone().and_then(OpenStore::remove_files) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.not_closed(error)),
        }
    }

    fn not_closed(self, error: Error) -> CloseError {
        let error = self.inner.name_path(error);
        CloseError { store: self, error }
    }
}
