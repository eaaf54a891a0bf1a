//! A store while it is open: shared by the handles of the store and of its trees.

use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

use engines::versions::StoreView;
use engines::{Error, ErrorKind, Result};
use medium::file::InPlace;
use medium::{FileLock, FilePlace, Lsn, MediumError, Process, Survives};
use parking_lot::{Mutex, MutexGuard};
use pool::LostCopy;

use crate::backend::{Backend, StoreOpening};
use crate::background::Background;
use crate::recovery::{OpenTrees, Recovered, Recovery};
use crate::store_duty::{DutyTurn, StoreDuty};
use crate::violation::StoreViolation;

mod full_pool;

/// The note of [`StoreStat::notes`](crate::StoreStat::notes) about a folder that cannot be synced.
const UNSYNCED_FOLDER: &str = "the file system cannot sync folders: if the power is lost a moment after a pool was made or closed, its file or \
                               its log may be missing, or a log that was removed may be back";

/// The note about a store that is read from a copy.
const READ_FROM_COPY: &str = "this is a copy of the pool, as it was at one moment of the open; a process that writes the pool may have \
                              changed it since";

/// The file that a store is only read from.
pub(crate) struct ReadSource {
    pub(crate) file: File,
    /// Where its log lies; `None` if it is a copy, which needs none.
    pub(crate) log_place: Option<FilePlace>,
}

/// Opens a store that is only read again.
pub(crate) type Reopen = Box<dyn Fn(&Path) -> Result<SharedStore> + Send + Sync>;

/// A pool, its open trees, and the report of its open.
///
/// In a child that was forked after the open, the pool and the trees belong to the parent. Each
/// operation of the store gets them by [`OpenStore::backend`] or [`OpenStore::trees`], which refuse
/// there; an operation of a tree is refused by the tree
/// ([`StripedTree`](engines::batch::StripedTree)).
pub(crate) struct OpenStore {
    pub(crate) path: PathBuf,
    /// Where the pool's file lies, if it has a name.
    pub(crate) place: Option<FilePlace>,
    pub(crate) recovery: Recovery,
    /// The copies of the numbers of epochs that were lost before the open, which may have mended them.
    lost_epochs: Vec<LostCopy>,
    pub(crate) opening: StoreOpening,
    /// The work that the store does by itself, if the options say so.
    duty: OnceLock<StoreDuty>,
    // It holds trees and the pool, so it goes before both.
    background: Option<Background>,
    // The trees hold the pool, so they go before it.
    trees: Mutex<OpenTrees>,
    /// Held while the store is compacted.
    compacting: Mutex<()>,
    backend: Box<dyn Backend>,
    /// The file that the store is read from, if it is only read.
    pub(crate) source: Option<ReadSource>,
    /// How the store finds out whether it was overtaken, if it is read in place. The pool goes before
    /// it.
    in_place: Option<InPlace>,
    /// How it is opened again, if it is only read.
    reopen: Option<Reopen>,
    process: Process,
    // The pool is locked until everything else of it is closed.
    lock: Option<FileLock>,
}

/// A handle of an open store. When the last one is dropped, the store is closed.
///
/// In a child that was forked after the open, the store is not dropped, and its memory stays taken:
/// the drop would wait for threads and locks of the parent, and write to its files.
///
/// A store that works by itself ([`StoreDuty`]) counts the handles of its users. The work has
/// handles, too, for the time of a turn. These do not keep the store open: the last user ends the
/// work, and waits for the end of its turn.
pub(crate) struct SharedStore {
    store: Arc<OpenStore>,
    holder: Holder,
}

/// The holder of a handle of a store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// A user.
    User,
    /// The store's own work.
    Duty,
}

impl Clone for SharedStore {
    fn clone(&self) -> Self {
        let clone = Self {
            store: Arc::clone(&self.store),
            holder: self.holder,
        };
        if let Some(duty) = clone.duty_of_user() {
            duty.add_user();
        }
        clone
    }
}

impl Deref for SharedStore {
    type Target = OpenStore;

    #[inline(always)]
    fn deref(&self) -> &OpenStore {
        &self.store
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        if !self.store.process.is_current() {
            // One more handle, which is never dropped, takes the place of this one.
            std::mem::forget(Arc::clone(&self.store));
            return;
        }
        if let Some(duty) = self.duty_of_user()
            && duty.remove_user()
        {
            // The work lets go of the store before this handle does, so the store is closed here.
            duty.end();
        }
    }
}

impl SharedStore {
    /// The first handle of a store.
    pub(crate) fn new(store: OpenStore) -> Self {
        Self {
            store: Arc::new(store),
            holder: Holder::User,
        }
    }

    /// A handle for a turn of the store's own work; `None` if the store is closed.
    pub(crate) fn for_duty(store: &Weak<OpenStore>) -> Option<Self> {
        Some(Self {
            store: store.upgrade()?,
            holder: Holder::Duty,
        })
    }

    pub(crate) fn downgrade(&self) -> Weak<OpenStore> {
        Arc::downgrade(&self.store)
    }

    /// Begins work that the store does by itself, a turn after each pause. This is its only handle,
    /// and it has no such work yet.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the system starts no thread.
    pub(crate) fn begin_duty(&self, pause: Duration, turn: DutyTurn) -> Result<()> {
        let duty = StoreDuty::begin(pause, turn)?;
        let is_first = self.store.duty.set(duty).is_ok();
        debug_assert!(is_first, "a store has one duty");
        Ok(())
    }

    /// The work of the store, if it has any, and if this is the handle of a user.
    fn duty_of_user(&self) -> Option<&StoreDuty> {
        match self.holder {
            Holder::User => self.store.duty.get(),
            Holder::Duty => None,
        }
    }

    /// Whether it is another handle of the same store.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.store, &other.store)
    }

    /// The store, if no user has another handle.
    pub(crate) fn get_mut(&mut self) -> Option<&mut OpenStore> {
        if let Some(duty) = self.duty_of_user()
            && duty.has_one_user()
        {
            duty.end();
        }
        Arc::get_mut(&mut self.store)
    }

    /// The store, if this is its only handle.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`]; [`ErrorKind::InUse`]: there is another handle.
    pub(crate) fn alone(&mut self) -> Result<&mut OpenStore> {
        self.expect_own_process()?;
        self.get_mut().ok_or_else(|| ErrorKind::InUse.into())
    }
}

impl OpenStore {
    /// A store on a pool that was recovered. `source` is the file that it is read from, if it is only
    /// read.
    pub(crate) fn new(
        path: &Path,
        place: Option<FilePlace>,
        backend: Box<dyn Backend>,
        opening: StoreOpening,
        recovered: Recovered,
        source: Option<ReadSource>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            place,
            recovery: recovered.recovery,
            lost_epochs: recovered.lost_epochs,
            opening,
            duty: OnceLock::new(),
            background: recovered.background,
            trees: Mutex::new(recovered.trees),
            compacting: Mutex::new(()),
            process: backend.process(),
            backend,
            source,
            in_place: None,
            reopen: None,
            lock: None,
        }
    }

    /// Says how the store finds out whether it was overtaken.
    pub(crate) fn rest_on(&mut self, in_place: InPlace) {
        self.in_place = Some(in_place);
    }

    /// Says how the store is opened again.
    pub(crate) fn reopen_by(&mut self, reopen: Reopen) {
        self.reopen = Some(reopen);
    }

    /// Opens a store that is only read again, as of a newer moment; `None` for any other store.
    pub(crate) fn reopened(&self) -> Result<Option<SharedStore>> {
        self.expect_own_process()?;
        match &self.reopen {
            Some(reopen) => reopen(self.absolute_path()).map(Some),
            None => Ok(None),
        }
    }

    /// A path that still leads to the pool if the working directory has changed since the open.
    pub(crate) fn absolute_path(&self) -> &Path {
        match &self.place {
            Some(place) if self.path.is_relative() => place.path(),
            _ => &self.path,
        }
    }

    /// Whether a process that writes the pool can overtake the store.
    pub(crate) fn is_in_place(&self) -> bool {
        self.in_place.is_some()
    }

    /// Passes on what was read, with the path of this store if it is an error. If the store was
    /// overtaken, neither a value nor an error counts.
    pub(crate) fn believe<T>(&self, found: Result<T>) -> Result<T> {
        let expected = self.expect_current();
        let believed = match expected {
            Ok(()) => found,
            Err(error) => Err(error),
        };
        believed.map_err(|error| self.name_path(error))
    }

    /// Checks that no process has overtaken the store.
    ///
    /// # Errors
    /// [`ErrorKind::ViewTooOld`].
    fn expect_current(&self) -> Result<()> {
        let Some(in_place) = &self.in_place else {
            return Ok(());
        };
        // In a child the operation has failed, or has read nothing.
        let is_current =
            !self.process.is_current() || in_place.is_current().map_err(MediumError::from)?;
        if is_current {
            Ok(())
        } else {
            Err(ErrorKind::ViewTooOld { limit: None }.into())
        }
    }

    /// Keeps the pool locked as long as the store is open.
    pub(crate) fn keep_locked(&mut self, lock: FileLock) {
        self.lock = Some(lock);
    }

    /// Refuses an operation in a child that was forked after the open.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`].
    #[inline(always)]
    pub(crate) fn expect_own_process(&self) -> Result<()> {
        Ok(self.process.expect_current()?)
    }

    /// The pool.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`].
    #[inline(always)]
    pub(crate) fn backend(&self) -> Result<&dyn Backend> {
        self.expect_own_process()?;
        Ok(&*self.backend)
    }

    /// Whether a copy of the numbers of epochs was lost before the open.
    pub(crate) fn had_lost_epochs(&self) -> bool {
        !self.lost_epochs.is_empty()
    }

    /// The copies that were lost before the open, those that the open has mended included.
    pub(crate) fn lost_before(&self) -> Result<Vec<LostCopy>> {
        let mut lost = Vec::new();
        lost.extend(self.backend()?.header_mended());
        lost.extend(self.lost_epochs.iter().cloned());
        Ok(lost)
    }

    /// Locks the open trees.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`]: a thread of the parent may hold the lock.
    pub(crate) fn trees(&self) -> Result<MutexGuard<'_, OpenTrees>> {
        self.expect_own_process()?;
        Ok(self.trees.lock())
    }

    /// Keeps other threads from compacting the store. The caller has checked that this is the process
    /// of the store.
    pub(crate) fn compacting(&self) -> MutexGuard<'_, ()> {
        self.compacting.lock()
    }

    /// The failures that the store survives, also in a child.
    pub(crate) fn survives(&self) -> Survives {
        self.backend.survives()
    }

    /// The damage that was found in the background.
    pub(crate) fn damage(&self) -> Option<StoreViolation> {
        match &self.background {
            Some(background) => background.damage(),
            None => None,
        }
    }

    /// Weaknesses of the system, in words.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let Some(place) = &self.place else {
            return notes;
        };
        if !place.folder().is_synced() {
            notes.push(UNSYNCED_FOLDER.to_owned());
        }
        let is_copy = self
            .source
            .as_ref()
            .is_some_and(|source| source.log_place.is_none());
        if is_copy {
            notes.push(READ_FROM_COPY.to_owned());
        }
        notes
    }

    /// Opens a view of the present moment.
    ///
    /// # Errors
    /// [`ErrorKind::BatchUnfinished`], [`ErrorKind::Forked`].
    #[track_caller]
    pub(crate) fn open_view(&self) -> Result<StoreView> {
        self.expect_own_process()?;
        self.opening.versions.open()
    }

    /// Waits until everything up to `lsn` is durable.
    pub(crate) fn settle(&self, lsn: Lsn) -> Result<()> {
        self.backend()
            .and_then(|backend| backend.settle(lsn))
            .map_err(|error| self.name_path(error))
    }

    /// Whether everything up to `lsn` is known to be durable. In a child it is not known.
    pub(crate) fn is_durable(&self, lsn: Lsn) -> bool {
        match self.backend() {
            Ok(backend) => backend.is_durable(lsn),
            Err(_) => false,
        }
    }

    /// Checks that the store takes writes.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`], [`ErrorKind::Forked`].
    #[inline(always)]
    pub(crate) fn expect_writable(&self) -> Result<()> {
        self.expect_own_process()?;
        self.expect_not_only_read()
    }

    /// Checks that the store was not opened to be only read.
    #[inline(always)]
    fn expect_not_only_read(&self) -> Result<()> {
        if self.source.is_none() {
            Ok(())
        } else {
            Err(ErrorKind::ReadOnly.into())
        }
    }

    /// Notes that a write begins, for the work that the store does by itself.
    #[inline(always)]
    pub(crate) fn note_write(&self) {
        if let Some(duty) = self.duty.get() {
            duty.note_write();
        }
    }

    /// How many writes have begun, in a store that works by itself; otherwise 0.
    pub(crate) fn writes_begun(&self) -> u64 {
        self.duty.get().map_or(0, StoreDuty::writes_begun)
    }

    /// Whether trees may be made, renamed and dropped: not while a batch is unfinished, since the
    /// next open writes its rest to the trees that it names.
    pub(crate) fn expect_trees_may_change(&self) -> Result<()> {
        self.expect_writable()?;
        self.backend()?.expect_batches_finished()
    }

    /// Slows an operation down that does not wait for `lsn`, if the disk is far behind.
    pub(crate) fn keep_up(&self, lsn: Lsn) -> Result<()> {
        self.backend()?.keep_up(lsn)
    }

    /// Waits for an operation, unless the durability of operations is put off. The operation has
    /// checked that this is the process of the store.
    pub(crate) fn wait_for(&self, lsn: Lsn) -> Result<()> {
        self.backend.wait_for(lsn)
    }

    /// Has `waker` called when everything up to `lsn` is durable; `false` if it is.
    pub(crate) fn wake_when_durable(&self, lsn: Lsn, waker: &Waker) -> Result<bool> {
        self.backend()?.wake_when_durable(lsn, waker)
    }

    /// Closes the store cleanly, unless it is only read. After an error it is still open.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.end_work();
        // A store that is only read is dropped without a clean close.
        if self.source.is_some() {
            return Ok(());
        }
        self.backend.close()
    }

    /// Removes the files of the store, under its lock.
    pub(crate) fn remove_files(&mut self) -> Result<()> {
        self.expect_writable()?;
        self.end_work();
        self.backend.abandon()?;
        let Some(place) = &self.place else {
            return Ok(());
        };
        let Some(file) = self.backend.pool_file() else {
            return Ok(());
        };
        let removed = place.remove(file).and_then(|_| place.folder().sync());
        removed.map_err(Error::io("remove the pool"))
    }

    /// Ends the thread in the background, and closes the trees. They are opened again when they are
    /// asked for.
    fn end_work(&mut self) {
        self.background = None;
        self.trees.get_mut().clear();
    }

    /// The error with the path of this store.
    #[cold]
    pub(crate) fn name_path(&self, error: Error) -> Error {
        error.at(&self.path)
    }
}
