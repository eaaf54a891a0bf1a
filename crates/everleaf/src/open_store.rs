//! A store while it is open: shared by the handles of the store and of its trees.

use std::fs::File;
use std::path::PathBuf;
use std::task::Waker;

use engines::{Error, ErrorKind, Result};
use medium::Lsn;
use parking_lot::Mutex;

use crate::backend::{Backend, StoreOpening};
use crate::background::Background;
use crate::recovery::{OpenTrees, Recovery};

mod full_pool;

/// A pool, its open trees, and what opening it took.
pub(crate) struct OpenStore {
    pub(crate) path: PathBuf,
    pub(crate) recovery: Recovery,
    pub(crate) opening: StoreOpening,
    // It holds trees and the pool, so it goes before both.
    pub(crate) background: Option<Background>,
    // The trees hold the pool, so they go before it.
    pub(crate) trees: Mutex<OpenTrees>,
    pub(crate) backend: Box<dyn Backend>,
    /// The pool's file, with its lock, if the store is only read.
    pub(crate) source: Option<File>,
}

impl OpenStore {
    /// Waits until everything up to `lsn` is durable.
    pub(crate) fn settle(&self, lsn: Lsn) -> Result<()> {
        self.backend
            .settle(lsn)
            .map_err(|error| self.name_path(error))
    }

    pub(crate) fn durable(&self) -> Lsn {
        self.backend.durable()
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Checks that the store takes writes.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`].
    #[inline(always)]
    pub(crate) fn expect_writable(&self) -> Result<()> {
        if self.source.is_none() {
            Ok(())
        } else {
            Err(ErrorKind::ReadOnly.into())
        }
    }

    /// Whether trees may be made, renamed and dropped: not while a batch is unfinished, since the
    /// next open writes its rest to the trees that it names.
    pub(crate) fn expect_trees_may_change(&self) -> Result<()> {
        self.expect_writable()?;
        self.backend.expect_batches_finished()
    }

    /// Slows an operation down that does not wait for `lsn`, if the disk is far behind.
    pub(crate) fn keep_up(&self, lsn: Lsn) -> Result<()> {
        self.backend.keep_up(lsn)
    }

    /// Waits for an operation, unless the durability of operations is put off.
    pub(crate) fn wait_for(&self, lsn: Lsn) -> Result<()> {
        self.backend.wait_for(lsn)
    }

    /// Has `waker` called when everything up to `lsn` is durable; `false` if it is.
    pub(crate) fn wake_when_durable(&self, lsn: Lsn, waker: &Waker) -> Result<bool> {
        self.backend.wake_when_durable(lsn, waker)
    }

    /// The error with the path of this store.
    #[cold]
    pub(crate) fn name_path(&self, error: Error) -> Error {
        error.at(&self.path)
    }
}
