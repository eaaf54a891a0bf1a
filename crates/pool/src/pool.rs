//! A pool on a medium, and the guard through which it is accessed.

use std::any::Any;
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use medium::sync::{self, Mutex};
use medium::{LineForm, Lsn, Medium, Process};

use crate::batch_slots::BatchSlots;
use crate::class::{CLASSES, Class};
use crate::header::{self, Identity, OpenedHeader, PREFIX_BYTES, StateWord};
use crate::limbo::{Limbo, RetiredBatch, Sink, free_batch};
use crate::limits::SLAB_BYTES;
use crate::lost_copy::LostCopy;
use crate::options::PoolOptions;
use crate::quarantine::Quarantine;
use crate::roots::{Encodings, NewRoot, NewTree, ROOT_WORDS, RootTable, Roots, TreeRoot};
use crate::space::{Evacuate, Evacuation, Space, Usage};
use crate::{Error, ErrorKind, FORMAT_VERSION, Result};

/// How often a full pool checks whether retired memory is free; with the pauses in between this
/// takes a fifth of a second.
const RECLAIM_LOOKS: usize = 200;
const RECLAIM_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// Figures about a pool.
#[derive(Clone, Debug)]
pub struct PoolStat {
    /// The identity of the pool.
    pub identity: Identity,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes up to the high-water mark.
    pub high_water_bytes: u64,
    /// Bytes of slabs that hold something, prefix included.
    pub used_bytes: u64,
    /// Allocations in use.
    pub allocations: u64,
    /// Those of them that hold a part of the root table.
    pub root_pages: u64,
    /// Frees whose offset was no allocation. It is not 0 only in a damaged pool.
    pub frees_refused: u64,
    /// The offsets of slabs whose class word is damaged and in which trees have nodes or records.
    /// Their content is read as before, and their space is not reused.
    pub classes_damaged: Vec<u64>,
    /// After a crash, until the mark has ended: how many allocations it has found so far.
    pub marked: Option<u64>,
}

struct Shared<M: Medium> {
    medium: M,
    identity: Identity,
    /// See [`Pool::header_mended`].
    header_mended: Option<LostCopy>,
    /// Shared with deferred calls, which must not keep the pool itself open.
    space: Arc<Space>,
    limbo: Limbo,
    roots: Mutex<RootTable>,
    options: PoolOptions,
    closed: bool,
    /// See [`Pool::leave_unclean`].
    is_unclean: AtomicBool,
    /// See [`Guard::verifies`].
    verifies: AtomicBool,
    batch_slots: Arc<BatchSlots>,
    /// See [`Pool::epochs`].
    epochs: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    /// See [`Pool::process`].
    process: Process,
}

/// A pool: cheap to clone, closed when the last clone is dropped.
pub struct Pool<M: Medium> {
    shared: Arc<Shared<M>>,
}

impl<M: Medium> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// Access to a pool by one thread: pins the epoch, so memory that is retired meanwhile stays
/// readable.
pub struct Guard<'p, M: Medium> {
    inner: medium::MediumGuard<'p, M>,
    shared: &'p Arc<Shared<M>>,
}

impl<'p, M: Medium> Deref for Guard<'p, M> {
    type Target = medium::MediumGuard<'p, M>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl Identity {
    /// The identity of the pool in `file`, from the file itself; `None` if the file is empty or
    /// blank. For choosing a medium before mapping.
    pub fn of_file(file: &File) -> Result<Option<Self>> {
        let io = |source| Error::io("read the pool's header")(source);
        let length = file.metadata().map_err(io)?.len();
        if length == 0 {
            return Ok(None);
        }
        let ram = medium::Dax::plain(PREFIX_BYTES).map_err(medium::MediumError::from)?;
        ram.grow(PREFIX_BYTES)?;
        let guard = medium::MediumGuard::new(&ram);
        let mut bytes = vec![0; PREFIX_BYTES.min(length) as usize];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0).map_err(io)?;
        crate::bytes::copy_in(&guard, guard.words(0, bytes.len().div_ceil(8))?, &bytes);
        // A creation that a crash cut off left exactly the prefix; a longer file of zeros is not a
        // pool.
        if length == PREFIX_BYTES && header::is_blank(&guard)? {
            return Ok(None);
        }
        let identity = header::find(&guard).map_err(Error::unopenable)?.identity;
        if length < PREFIX_BYTES {
            let what = "the file ends inside the header; it was truncated";
            return Err(Error::corrupt(length, what).unopenable());
        }
        Ok(Some(identity))
    }
}

impl Identity {
    /// The identity of the pool on `medium`; `None` if nothing was written there yet. For a medium
    /// whose file alone does not tell.
    pub fn of_medium(medium: &impl Medium) -> Result<Option<Self>> {
        read_identity(medium).map_err(Error::unopenable)
    }

    /// Gives the image of a pool whose header cannot be read another header: that of a pool of this
    /// release, with the lines of `medium`. For an image in memory that is only read.
    pub fn assume(medium: &impl Medium) -> Result<()> {
        let guard = medium::MediumGuard::new(medium);
        let identity = Self {
            version: FORMAT_VERSION,
            uuid: 0,
            line_form: medium.line_form(),
        };
        header::create(&guard, &identity)
    }
}

fn read_identity(medium: &impl Medium) -> Result<Option<Identity>> {
    let guard = medium::MediumGuard::new(medium);
    if medium.extent().length() == 0 || header::is_blank(&guard)? {
        return Ok(None);
    }
    Ok(Some(header::find(&guard)?.identity))
}

/// Whether the state line says that this is a pool, whose header may be lost: its words pass their
/// checks.
pub fn has_state(medium: &impl Medium) -> bool {
    let guard = medium::MediumGuard::new(medium);
    [StateWord::HighWater, StateWord::Clean, StateWord::Holder]
        .into_iter()
        .all(|word| word.load(&guard).is_ok())
}

/// The length that the pool on `medium` records, which may be more than the file has; `None` if it
/// records none.
pub fn bytes_expected(medium: &impl Medium) -> Option<u64> {
    StateWord::HighWater
        .load(&medium::MediumGuard::new(medium))
        .ok()
        .map(|slabs| slabs.saturating_mul(SLAB_BYTES))
}

/// The process that has the pool in `file` open, or had it last; `None` if the file does not say.
/// It serves to name the holder of a pool's lock.
pub fn holder_of_file(file: &File) -> Option<u32> {
    let mut bytes = [0; 8];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, StateWord::Holder.offset()).ok()?;
    header::unchecked(u64::from_le_bytes(bytes)).and_then(|holder| u32::try_from(holder).ok())
}

/// Writes to the pool in `file` that this process has it open: for a medium that writes to the file
/// itself only later.
pub fn set_holder_of_file(file: &File) -> Result<()> {
    let holder = header::checked(u64::from(std::process::id())).to_le_bytes();
    std::os::unix::fs::FileExt::write_all_at(file, &holder, StateWord::Holder.offset())
        .map_err(Error::io("write to the pool"))
}

impl<M: Medium> Pool<M> {
    /// Opens the pool on `medium`, or makes one there if nothing was written yet. O(slabs), or O(1)
    /// if [`PoolOptions::read_bitmaps_later`].
    ///
    /// # Errors
    /// [`ErrorKind::Unopenable`] if both copies of the header are damaged, or the file was
    /// truncated; [`ErrorKind::NotAPool`], [`ErrorKind::Version`], [`ErrorKind::UnknownFeatures`],
    /// [`ErrorKind::LineForm`] if this release or this medium cannot open it;
    /// [`ErrorKind::PoolFull`] if there is no room for a new one.
    pub fn open(medium: M, options: PoolOptions) -> Result<Self> {
        Self::try_open(medium, options).map_err(Error::unopenable)
    }

    fn try_open(medium: M, options: PoolOptions) -> Result<Self> {
        let length = medium.extent().length();
        let blank = length == 0
            || length >= PREFIX_BYTES && header::is_blank(&medium::MediumGuard::new(&medium))?;
        let header = if blank {
            OpenedHeader {
                identity: Self::create(&medium)?,
                mended: None,
            }
        } else {
            header::open(&medium::MediumGuard::new(&medium))?
        };
        let identity = header.identity;
        if identity.line_form != medium.line_form() {
            return Err(ErrorKind::LineForm {
                pool: identity.line_form,
                medium: medium.line_form(),
            }
            .into());
        }
        let guard = medium::MediumGuard::new(&medium);
        let space = if blank {
            Space::create(&options)?
        } else {
            Space::open(&guard, &options)?
        };
        if !options.read_bitmaps_later || space.is_small() {
            space.read_bitmaps(&guard, &|| true)?;
        }
        // PERSIST: nothing must precede; if this is lost, the pool is still clean, and nothing was
        // allocated from it yet. Every later store becomes durable after it, so no wait is needed
        // here.
        StateWord::Clean.publish(&guard, 0)?;
        let is_mended = space.mend_high_water(&guard)?;
        StateWord::Holder.publish(&guard, u64::from(std::process::id()))?;
        if blank || is_mended {
            let lsn = guard.fence();
            if blank {
                guard.wait(lsn)?;
            }
        } else {
            // A pool that is opened and closed, and not written meanwhile, stays as it is.
            guard.fence_at_rest();
        }
        let roots = Mutex::new(RootTable::open(&guard, &space)?);
        drop(guard);
        let limbo = Limbo::default();
        Ok(Self {
            shared: Arc::new(Shared {
                medium,
                identity,
                header_mended: header.mended,
                space: Arc::new(space),
                limbo,
                roots,
                options,
                closed: false,
                is_unclean: AtomicBool::new(false),
                verifies: AtomicBool::new(false),
                batch_slots: Arc::default(),
                epochs: Mutex::new(None),
                process: Process::current(),
            }),
        })
    }

    fn create(medium: &M) -> Result<Identity> {
        medium.grow(PREFIX_BYTES)?;
        let guard = medium::MediumGuard::new(medium);
        let identity = Identity {
            version: FORMAT_VERSION,
            uuid: medium::random_id(),
            line_form: medium.line_form(),
        };
        header::create(&guard, &identity)?;
        Ok(identity)
    }

    /// Pins the current thread and opens access.
    #[inline]
    pub fn pin(&self) -> Guard<'_, M> {
        Guard {
            inner: medium::MediumGuard::new(&self.shared.medium),
            shared: &self.shared,
        }
    }

    /// Opens access for reading without pinning ([`medium::MediumGuard::unpinned`]).
    #[inline(always)]
    pub fn peek(&self) -> Guard<'_, M> {
        Guard {
            inner: medium::MediumGuard::unpinned(&self.shared.medium),
            shared: &self.shared,
        }
    }

    /// The slots of the pool's prefix that lead to batches.
    pub fn batch_slots(&self) -> &Arc<BatchSlots> {
        &self.shared.batch_slots
    }

    /// Leaves a batch that is neither done nor undone to the next open: until then nothing is
    /// written. Records that the batch has written are not free yet, and now they stay so: a batch
    /// that gives up is still pinned, and an open gives up before it frees anything.
    pub fn give_up_batch(&self) {
        self.shared.batch_slots.give_up();
        self.leave_unclean_and_keep_all();
    }

    /// The epochs that trees of this pool end together, made when they are first asked for. The
    /// pool's prefix has room for one set of epochs ([`EPOCHS`](crate::EPOCHS)), so an open pool has
    /// one value of this kind, whose type is that of the layer above.
    ///
    /// # Panics
    /// If the pool was asked for epochs of another type before.
    pub fn epochs<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut slot = self.shared.epochs.lock();
        let epochs = slot.get_or_insert_with(|| Arc::new(T::default()));
        let epochs = Arc::clone(epochs);
        drop(slot);
        epochs
            .downcast()
            .unwrap_or_else(|_| panic!("the epochs of a pool have one type"))
    }

    /// The process that has opened the pool. In a child that was forked since, the pool and its
    /// trees must not be used, and their drops must write nothing.
    #[inline(always)]
    pub fn process(&self) -> Process {
        self.shared.process
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        &self.shared.medium
    }

    /// Returns the identity of the pool.
    pub fn identity(&self) -> Identity {
        self.shared.identity
    }

    /// All named trees. O(trees).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if any slot of the root table is damaged; [`Pool::roots`] has the
    /// others.
    pub fn trees(&self) -> Result<Vec<TreeRoot>> {
        let roots = self.roots()?;
        roots
            .damaged
            .first()
            .map_or(Ok(roots.trees), |damaged| Err(damaged.error()))
    }

    /// All named trees, and the slots of the root table that are damaged. While there are damaged
    /// slots, the space that their trees reach is not known, so after a crash the mark must not
    /// end. O(trees).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the file ends inside of the table.
    pub fn roots(&self) -> Result<Roots> {
        self.shared.roots.lock().list(&self.pin())
    }

    /// The copy of the header that was damaged, and that the open has written anew from the other one.
    pub fn header_mended(&self) -> Option<&LostCopy> {
        self.shared.header_mended.as_ref()
    }

    /// The copies of the root table that are damaged or outdated, while the other copy is whole.
    /// O(slots of the table).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the file ends inside of the table.
    pub fn lost_copies(&self) -> Result<Vec<LostCopy>> {
        self.shared.roots.lock().lost_copies(&self.pin())
    }

    /// Writes these copies anew, each from the other copy, and returns those that it has written.
    /// Durable when this returns. O(slots of the table).
    ///
    /// # Errors
    /// [`ErrorKind::Medium`] if the medium failed; [`ErrorKind::Corrupt`] if the file ends inside of
    /// the table.
    pub fn mend_copies(&self) -> Result<Vec<LostCopy>> {
        self.shared.roots.lock().mend_copies(&self.pin())
    }

    /// The tree `name`; `None` if there is none. O(trees) at the first call for any tree, then
    /// O(1).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the slot of the tree is damaged, or one that may be its slot.
    pub fn find_tree(&self, name: &str) -> Result<Option<TreeRoot>> {
        self.shared.roots.lock().find(&self.pin(), name)
    }

    /// Adds a named tree, whose first nodes are flushed and fenced: the table is written through a
    /// guard of its own. Durable when this returns.
    pub fn create_tree<'t>(
        &self,
        tree: impl Into<NewTree<'t>>,
        engine: u16,
        codec: u16,
        words: &[u64; ROOT_WORDS],
    ) -> Result<TreeRoot> {
        let new = NewRoot {
            tree: tree.into(),
            engine,
            codec,
            words,
        };
        let mut roots = self.shared.roots.lock();
        roots.create(&self.pin(), &self.shared.space, &new)
    }

    /// Removes a tree from the root table. The caller then frees its space. Durable when this
    /// returns.
    pub fn remove_tree(&self, tree: &TreeRoot) -> Result<()> {
        self.shared.roots.lock().remove(&self.pin(), tree)
    }

    /// Gives a tree another name; no thread may have it open. Durable when this returns; a crash
    /// leaves it with one of both names.
    ///
    /// # Errors
    /// [`ErrorKind::TreeExists`], [`ErrorKind::BadTreeName`]; [`ErrorKind::TooManyTrees`], as the
    /// table needs a free slot.
    pub fn rename_tree(&self, tree: &TreeRoot, name: &str) -> Result<TreeRoot> {
        let mut roots = self.shared.roots.lock();
        roots.rename(&self.pin(), &self.shared.space, tree, name)
    }

    /// Gives a tree other encodings, or none, so that it is a tree of byte strings. The tree may be
    /// open. Durable when this returns; a crash leaves it with the old or with the new ones.
    ///
    /// # Errors
    /// [`ErrorKind::BadEncoding`]: the names of the encodings are empty or too long;
    /// [`ErrorKind::TooManyTrees`], as the table needs a free slot.
    pub fn set_encodings(
        &self,
        tree: &TreeRoot,
        encodings: Option<&Encodings>,
    ) -> Result<TreeRoot> {
        let mut roots = self.shared.roots.lock();
        roots.set_encodings(&self.pin(), &self.shared.space, tree, encodings)
    }

    /// Whether the trees must mark what they reach, because the pool was not closed cleanly. They
    /// may do it when they are opened or later, beside writers; until all have and
    /// [`Pool::finish_marking`] was called, no space is reused that was in use before the open.
    pub fn needs_mark(&self) -> bool {
        self.shared.space.needs_mark()
    }

    /// Records that a tree reaches the allocation at `offset`. Any thread; idempotent.
    pub fn mark(&self, offset: u64) -> Result<()> {
        self.shared
            .space
            .mark(&medium::MediumGuard::unpinned(&self.shared.medium), offset)
    }

    /// Ends the mark: allocations that no tree marked are free. For trees that are not in use.
    /// O(slabs).
    pub fn finish_marking(&self) {
        self.shared.space.finish_marking();
    }

    /// Ends the mark while trees work, once every thread that is pinned now has unpinned. Until
    /// then a thread may still read, or be about to retire, an allocation that it made unreachable
    /// before the mark of its tree got there.
    pub fn finish_marking_later(&self) {
        let space = Arc::clone(&self.shared.space);
        let guard = self.pin();
        guard.after_readers(move || space.finish_marking());
        guard.inner.pin().flush();
    }

    /// Whether [`Pool::read_bitmaps`] is still to be called.
    pub fn has_bitmaps_to_read(&self) -> bool {
        self.shared.space.has_old() && !self.needs_mark()
    }

    /// After a clean close: reads which old allocations are in use, while trees may work. Until
    /// this returns, no old space is reused. Does nothing if the use is known already, or if trees
    /// must mark. Ends early, without having read anything, if `goes_on` returns `false`; the pool
    /// is then about to be closed. O(slabs).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a bitmap is damaged: space is reused again after the next open,
    /// which marks.
    pub fn read_bitmaps(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let guard = medium::MediumGuard::unpinned(&self.shared.medium);
        let damaged = self.shared.space.read_bitmaps(&guard, goes_on)?;
        let Some((offset, what)) = damaged else {
            return Ok(());
        };
        self.give_up_marking();
        let what = format!(
            "{what}, so nothing is reused that was in use before this open; close the pool and open it again, which finds out \
             what is free"
        );
        Err(Error::corrupt(offset, what))
    }

    /// Gives up the mark until the next open, because a tree is damaged. Old allocations that are
    /// freed until then stay taken.
    pub fn give_up_marking(&self) {
        self.shared.space.give_up_marking();
    }

    /// Frees retired memory that no pinned thread can still read, for a pool that is full. The
    /// calling thread must not be pinned: it would wait for itself.
    pub fn reclaim(&self) {
        self.reclaim_with(None);
    }

    /// Does the same as [`Pool::reclaim`], and also waits until the owner of quarantined memory may
    /// take it.
    pub fn reclaim_with(&self, quarantine: Option<&Quarantine>) {
        let guard = self.pin();
        if let Some(batch) = self.shared.limbo.take_batch() {
            guard.free_later(batch, &self.shared.space);
        }
        if let Some(quarantine) = quarantine {
            quarantine.close_batch(&guard);
        }
        drop(guard);
        // Each check advances the epoch by one step if every pinned thread has seen the last one. A
        // pinned thread may be waiting for a processor, or be in the middle of a long scan.
        for look in 0..RECLAIM_LOOKS {
            medium::pin().flush();
            if !self.shared.limbo.is_waiting()
                && quarantine.is_none_or(|quarantine| !quarantine.limbo.is_waiting())
            {
                break;
            }
            if look > 4 {
                std::thread::sleep(RECLAIM_PAUSE);
            }
        }
    }

    /// Runs `run` with slabs set aside: for each entry of `runs` that many adjacent ones. While the
    /// pool is full, the allocations of `run` come from them. Slabs that are left over are free
    /// afterwards. Calls must not be nested.
    ///
    /// # Errors
    /// [`ErrorKind::PoolFull`], and `run` is not called.
    pub fn with_set_aside<R>(&self, runs: &[u32], run: impl FnOnce() -> R) -> Result<R> {
        struct Ended<'s, M: Medium>(&'s Shared<M>);
        impl<M: Medium> Drop for Ended<'_, M> {
            fn drop(&mut self) {
                self.0.space.end_set_aside::<M>();
            }
        }
        self.shared
            .space
            .set_aside(&medium::MediumGuard::unpinned(&self.shared.medium), runs)?;
        let _ended = Ended(&self.shared);
        Ok(run())
    }

    /// Figures. O(slabs).
    pub fn stat(&self) -> PoolStat {
        let (used_bytes, high_water_bytes) = self.shared.space.bytes();
        PoolStat {
            identity: self.shared.identity,
            file_bytes: self.shared.medium.extent().length(),
            high_water_bytes,
            used_bytes,
            allocations: self.shared.space.allocations(),
            root_pages: self.shared.roots.lock().pages(),
            frees_refused: self.shared.space.frees_refused(),
            classes_damaged: self.shared.space.classes_damaged(),
            marked: self.shared.space.mark_progress(),
        }
    }

    /// Gives the room of free space back to the file system, once the stores that made it free are
    /// durable. O(free slabs).
    pub fn release(&self) {
        self.shared
            .space
            .release_all(&medium::MediumGuard::unpinned(&self.shared.medium));
    }

    /// Gives the room of all free space back now, and cuts the free tail of the file off. Other
    /// threads may go on; those that allocate wait. O(free slabs), and on a file a checkpoint.
    ///
    /// # Errors
    /// [`ErrorKind::Medium`] if the medium failed.
    pub fn compact(&self) -> Result<()> {
        self.shared
            .space
            .compact(&medium::MediumGuard::unpinned(&self.shared.medium))
    }

    /// Chooses slabs that are to be emptied, and keeps allocations away from them until the result
    /// is dropped. Trees then move what they have in these slabs ([`Guard::is_evacuated`]), and each
    /// slab is free when its last allocation has gone. `excluded` has the offsets of slabs that are
    /// not to be chosen. Chooses none while [`Pool::needs_mark`], or while the bitmaps are to be
    /// read. Nothing durable changes. O(slabs); threads that allocate wait.
    pub fn evacuate(&self, choice: Evacuate, excluded: &BTreeSet<u64>) -> Evacuation {
        let guard = medium::MediumGuard::unpinned(&self.shared.medium);
        self.shared.space.evacuate(&guard, choice, excluded)
    }

    /// From now on, trees verify every record that they read: see [`Guard::verifies`].
    pub fn verify_reads(&self) {
        self.shared.verifies.store(true, Ordering::Relaxed);
    }

    /// Makes the close leave the pool unclean, as a crash would: for a tree with unfinished work,
    /// which the next open finishes.
    pub fn leave_unclean(&self) {
        self.shared.is_unclean.store(true, Ordering::Relaxed);
    }

    /// Does the same as [`Pool::leave_unclean`], and frees nothing from now on: for work that the
    /// next open goes on with, and that refers to allocations which nothing else reaches.
    pub fn leave_unclean_and_keep_all(&self) {
        self.leave_unclean();
        self.shared.space.keep_all();
    }

    /// Closes the pool cleanly: writes the bitmaps, gives the file's free tail back. Durable when
    /// this returns.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] while another clone lives; the pool is then closed when that is
    /// dropped. [`ErrorKind::Medium`] if the medium failed, or the file has lost its name.
    pub fn close(mut self) -> Result<()> {
        self.close_in_place()
    }

    /// Does the same as [`Pool::close`], but keeps the pool, which can still be read after an
    /// error. After success nothing is written any more.
    ///
    /// # Errors
    /// The errors of [`Pool::close`].
    pub fn close_in_place(&mut self) -> Result<()> {
        match Arc::get_mut(&mut self.shared) {
            Some(shared) => shared.close(),
            None => Err(ErrorKind::InUse.into()),
        }
    }
}

impl<M: Medium> Shared<M> {
    fn close(&mut self) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        self.medium.prepare_finish()?;
        if self.is_unchanged() {
            self.finish()?;
        } else {
            self.try_close()?;
        }
        self.closed = true;
        Ok(())
    }

    /// Whether the pool's file is as the last clean close has left it, and is to stay so: nothing was
    /// written since, and no damage was found.
    fn is_unchanged(&self) -> bool {
        self.medium.is_at_rest()
            && self.space.was_closed()
            && !self.space.needs_mark()
            && !self.space.has_damaged_bitmap()
            && self.space.classes_damaged().is_empty()
            && !self.is_unclean.load(Ordering::Relaxed)
    }

    fn try_close(&mut self) -> Result<()> {
        for offset in self.limbo.drain() {
            self.space.free(offset);
        }
        let guard = medium::MediumGuard::new(&self.medium);
        let is_unclean = self.is_unclean.load(Ordering::Relaxed)
            || self.space.needs_mark()
            || !self.space.classes_damaged().is_empty();
        if self.space.read_bitmaps(&guard, &|| true)?.is_some() || is_unclean {
            // The pool stays unclean: a tree was not opened since a crash or its mark has not
            // ended, so its space is not known; or a tree asked for it; or bitmaps do not cover a
            // damaged slab.
            self.leave_at_rest(&guard)?;
            drop(guard);
            return self.finish();
        }
        self.space.release_all(&guard);
        let end = self.space.write_bitmaps(&guard)?;
        StateWord::HighWater.publish(&guard, u64::from(end))?;
        guard.fence();
        // PERSIST: all bitmaps are ordered before; if this is lost, the next open marks.
        StateWord::Clean.publish(&guard, 1)?;
        let drained = guard.drain();
        drop(guard);
        let ended = match drained {
            Ok(()) => self.finish_at(u64::from(end) * SLAB_BYTES),
            Err(error) => Err(error.into()),
        };
        if ended.is_err() {
            // The pool may be used further, unless its medium takes no more writes.
            let guard = medium::MediumGuard::new(&self.medium);
            StateWord::Clean.publish(&guard, 0)?;
            // PERSIST: the clean flag, in the same line. If this is lost, the pool seems truncated
            // behind its last slab in use, and nothing was published from behind it yet.
            let (_, high_water_bytes) = self.space.bytes();
            StateWord::HighWater.publish(&guard, high_water_bytes / SLAB_BYTES)?;
            guard.fence();
        }
        ended
    }

    /// Has the note that the pool is open become durable, if nothing has followed it yet: a pool that
    /// was found damaged must not seem to be closed.
    fn leave_at_rest(&self, guard: &medium::MediumGuard<'_, M>) -> Result<()> {
        if self.medium.is_at_rest() {
            // PERSIST: nothing must precede; if this is lost, the next open finds the same.
            StateWord::Clean.publish(guard, 0)?;
            guard.fence();
        }
        Ok(())
    }

    /// Cuts the free tail off, and ends the medium.
    fn finish_at(&mut self, length: u64) -> Result<()> {
        self.medium.shrink(length)?;
        self.finish()
    }

    fn finish(&self) -> Result<()> {
        Ok(self.medium.finish()?)
    }
}

impl<M: Medium> Drop for Shared<M> {
    fn drop(&mut self) {
        if self.options.close_on_drop && self.process.is_current() {
            // An error leaves the pool unclean, which costs a mark at the next open and nothing
            // else.
            let _ = self.close();
        }
    }
}

impl<M: Medium> Guard<'_, M> {
    /// Bytes before a node that begins with a line: room for the line's second copy.
    fn node_lead(&self) -> u64 {
        if self.shared.identity.line_form == LineForm::Twin {
            medium::LINE_BYTES as u64
        } else {
            0
        }
    }

    /// Space for `bytes` bytes, aligned to 16. Its content is arbitrary; a crash before its publish
    /// frees it.
    pub fn allocate(&self, bytes: usize) -> Result<u64> {
        self.inner.admit()?;
        self.shared.space.allocate(&self.inner, bytes, false)
    }

    /// Whether the calling thread is within [`Pool::with_set_aside`]: then it must make only
    /// allocations that it cannot do without.
    pub fn has_set_aside(&self) -> bool {
        self.shared.space.has_set_aside(&self.inner)
    }

    /// Space for `bytes` bytes on line boundaries, for a node without a [`medium::Line`]. In all
    /// else it is like [`Guard::allocate`].
    pub fn allocate_lines(&self, bytes: usize) -> Result<u64> {
        self.inner.admit()?;
        self.shared.space.allocate(&self.inner, bytes, true)
    }

    /// Space for a node of `bytes` bytes that begins with a [`medium::Line`].
    pub fn allocate_node(&self, bytes: usize) -> Result<u64> {
        self.inner.admit()?;
        let lead = self.node_lead();
        Ok(self
            .shared
            .space
            .allocate(&self.inner, bytes + lead as usize, true)?
            + lead)
    }

    /// Whether any slab is to be emptied ([`Pool::evacuate`]).
    pub fn evacuates(&self) -> bool {
        self.shared.space.evacuates()
    }

    /// Whether an allocation lies in a slab that is to be emptied ([`Pool::evacuate`]).
    pub fn is_evacuated(&self, offset: u64) -> bool {
        self.shared.space.is_evacuated(offset)
    }

    /// Which space is in use, as far as that is known. O(slabs).
    pub fn usage(&self) -> Result<Usage<'_>> {
        self.shared.space.usage(&self.inner)
    }

    /// The offsets at which nodes of `bytes` bytes may lie, on line boundaries. They begin with a
    /// [`medium::Line`] if `has_line`. Each comes with `true` if its space is known to be in use,
    /// and `false` if that is not known, as after a crash. O(pool).
    pub fn places(
        &self,
        usage: &Usage<'_>,
        bytes: RangeInclusive<usize>,
        has_line: bool,
    ) -> Vec<(u64, bool)> {
        let lead = if has_line { self.node_lead() } else { 0 };
        let class =
            |bytes: usize| Class::of(bytes + lead as usize, true).map_or(CLASSES, Class::index);
        let places = usage.places(class(*bytes.start())..=class(*bytes.end()));
        places
            .into_iter()
            .map(|(offset, is_known)| (offset + lead, is_known))
            .collect()
    }

    /// Gives back an allocation that was never published.
    pub fn free(&self, offset: u64) {
        self.interleave_memory();
        self.shared.space.free(offset);
    }

    /// Gives back a node that was never published.
    pub fn free_node(&self, offset: u64) {
        self.free(offset - self.node_lead());
    }

    /// Gives an allocation back once no thread that is pinned now can still read it. Whatever made
    /// it unreachable was fenced before.
    pub fn retire(&self, offset: u64) {
        self.retire_to(offset, &self.shared.limbo, &self.shared.space);
    }

    /// Gives `sink` an allocation once no thread that is pinned now can still read it.
    pub(crate) fn retire_to(&self, offset: u64, limbo: &Limbo, sink: &Arc<impl Sink>) {
        self.shared.space.mark_retired(&self.inner, offset);
        if sync::is_scheduled::<M>() {
            // Each allocation is freed by itself, as early as possible: a test that reads freed
            // space then fails.
            let sink = Arc::clone(sink);
            return self.inner.pin().defer(move || sink.accept(offset));
        }
        if !self.shared.options.reclaim_by_epoch {
            return sink.accept(offset);
        }
        if let Some(batch) = limbo.add(offset) {
            // Releases space that earlier batches freed.
            self.shared.space.release_if_many(&self.inner);
            self.free_later(batch, sink);
        }
    }

    /// Gives `sink` a batch once every thread that is pinned now has unpinned.
    pub(crate) fn free_later(&self, batch: RetiredBatch, sink: &Arc<impl Sink>) {
        let sink = Arc::clone(sink);
        self.pin().defer(move || free_batch(&batch, &*sink));
        // Without this, up to 64 batches wait in this thread until it retires something more.
        self.pin().flush();
    }

    /// Calls `call` once every thread that is pinned now has unpinned; at once in a pool that
    /// reuses retired memory at once.
    pub fn after_readers(&self, call: impl FnOnce() + Send + 'static) {
        if sync::is_scheduled::<M>() || self.shared.options.reclaim_by_epoch {
            self.inner.pin().defer(call);
        } else {
            call();
        }
    }

    /// Does the same as [`Guard::retire`], for a node that begins with a line.
    pub fn retire_node(&self, offset: u64) {
        self.retire(offset - self.node_lead());
    }

    /// Marks a node that begins with a line, as [`Pool::mark`] does.
    pub fn mark_node(&self, offset: u64) -> Result<()> {
        let start = offset
            .checked_sub(self.node_lead())
            .ok_or_else(|| Error::corrupt(offset, "no node"))?;
        self.shared.space.mark(&self.inner, start)
    }

    /// Whether the medium keeps nothing: see [`Medium::is_volatile`].
    #[inline(always)]
    pub fn is_volatile(&self) -> bool {
        self.inner.medium().is_volatile()
    }

    /// Whether a record that is read must pass its check.
    #[inline(always)]
    pub fn verifies(&self) -> bool {
        self.shared.verifies.load(Ordering::Relaxed)
    }

    /// Waits until everything up to `lsn` is durable.
    #[inline(always)]
    #[track_caller]
    pub fn wait_for(&self, lsn: Lsn) -> Result<()> {
        if M::LATE {
            self.inner.wait(lsn)?;
        }
        Ok(())
    }

    /// Does the same as [`Guard::wait_for`], but waits even if the durability of operations is put
    /// off.
    #[track_caller]
    pub fn settle(&self, lsn: Lsn) -> Result<()> {
        Ok(self.inner.settle(lsn)?)
    }

    /// Does the same as [`Guard::settle`], but wakes no task: for a caller that holds a lock which a
    /// waker could need. It calls [`Guard::settle`] once it holds the lock no more.
    #[track_caller]
    pub fn settle_without_waking(&self, lsn: Lsn) -> Result<()> {
        Ok(self.inner.settle_without_waking(lsn)?)
    }

    /// Orders everything flushed so far, and slows this thread down if the disk is far behind or
    /// memory is short. For long operations, at moments when they hold no lock.
    pub fn keep_pace(&self) -> Result<()> {
        let lsn = self.inner.fence();
        self.inner.await_memory()?;
        self.keep_up(lsn)
    }

    /// Slows this thread down if the disk is far behind `lsn`: for an operation that returns before
    /// it is durable.
    pub fn keep_up(&self, lsn: Lsn) -> Result<()> {
        Ok(self.inner.keep_up(lsn)?)
    }

    /// Whether everything up to `lsn` is durable. After a wait it need not be, because the wait may
    /// have been put off.
    #[inline(always)]
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        !M::LATE || self.inner.medium().durable() >= lsn
    }
}
