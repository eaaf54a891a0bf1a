//! Access to a tree: with a pass, which holds the epoch, or without one.
//!
//! What is freed in one epoch is reused in a later one only. So a reader without a pass remembers the epoch it began in;
//! if that is still running when it has all it wants, nothing that it saw was reused. Writers, and readers that were
//! overtaken by the end of an epoch, hold a pass.

use std::cell::Cell;
use std::time::{Duration, Instant};

use medium::sync::schedule::{Access, AccessKind, reach};
use medium::sync::{MutexGuard, Ordering, is_scheduled, thread_number};
use medium::{Medium, VolatileWord, kernels};
use pool::Guard;

use super::Core;
use super::barrier::{Long, Pass};
use super::epoch::Shard;
use super::layout::{
    Anchor, Border, EPOCH_MASK, INTERIOR, Interior, OFFSET_MASK, VERSION, WordBorder, stamped_epoch,
};
use super::version::{Lock, Version};
use crate::{Error, PoolError};

/// Why a walk ended without a result.
#[derive(Debug)]
pub(super) enum Stop {
    /// The tree changed under the walk: start again.
    Again,
    /// The walk needs a pass: a node is to be recovered, or the epoch ended.
    NeedsPass,
    /// There is no space before the epoch ends; if not then either, this is the error.
    Full(Error),
    /// An error.
    Failed(Error),
}

impl Stop {
    /// The error that it is, or what it is where a walk may not be started again.
    pub(super) fn error_or(self, otherwise: impl FnOnce() -> Error) -> Error {
        match self {
            Self::Full(error) | Self::Failed(error) => error,
            Self::Again | Self::NeedsPass => otherwise(),
        }
    }

    /// Whether the walk met damage.
    pub(super) fn is_corrupt(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_corrupt())
    }
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        match error.into() {
            error @ Error::Pool(PoolError::PoolFull { .. }) => Self::Full(error),
            error if error.is_full() => Self::Full(error),
            error => Self::Failed(error),
        }
    }
}

/// The result of a walk.
pub(super) type Walk<T> = Result<T, Stop>;

/// Attempts without a pass before a reader takes one.
const ATTEMPTS_WITHOUT_PASS: u32 = 64;
/// Attempts, each but the first few with the processor given away, before the time is looked at.
const ATTEMPTS_ALONE: u32 = 1 << 10;
/// Attempts after which a node is given up where there is no time.
const ATTEMPTS_SCHEDULED: u32 = 1 << 11;
/// Attempts after which the thread sleeps between two: the holder of the lock waits for a disk.
const ATTEMPTS_AWAKE: u32 = 1 << 12;
/// How long it is waited between two attempts after that, in microseconds.
const PAUSE_US: u64 = 100;
/// The most levels of one layer; a damaged tree may have circles.
pub(super) const HEIGHT_MAX: usize = 48;

/// How a tree is looked at.
pub(super) struct View<'t, M: Medium> {
    pub(super) core: &'t Core<M>,
    pub(super) guard: Guard<'t, M>,
    /// The epoch in which the look began.
    pub(super) epoch: u64,
    /// Whether a pass holds that epoch.
    pub(super) has_pass: bool,
    attempts: Cell<Attempts>,
}

/// What was tried in vain.
#[derive(Clone, Copy)]
pub(super) struct Attempts {
    count: u32,
    /// The node that was in the way last, 0 for none; its version; and how long it has that.
    blocked_by: u64,
    version: u64,
    since: Option<Instant>,
}

impl Attempts {
    const NONE: Self = Self { count: 0, blocked_by: 0, version: 0, since: None };
}

/// What a writer works with: its share of allocator and log. As long as it lives the epoch does not end.
pub(super) struct Work<'t> {
    pub(super) shard: MutexGuard<'t, Shard>,
    /// The phase in which the operation began: what is listed in it need not be listed again.
    pub(super) phase: u64,
}

/// A node.
pub(super) enum NodeRef<'v> {
    Border(&'v Border),
    Interior(&'v Interior),
}

impl<'v> NodeRef<'v> {
    pub(super) fn version(&self) -> &'v VolatileWord {
        match self {
            Self::Border(node) => &node.version,
            Self::Interior(node) => &node.version,
        }
    }
}

impl<M: Medium> Core<M> {
    /// Tells a scheduler that shares are about to be taken, or the epoch to be read (a load), or both to be kept from others
    /// (a store).
    #[inline(always)]
    pub(super) fn reach_barrier(&self, kind: AccessKind) {
        if is_scheduled::<M>() {
            reach(Access::something::<Self>(kind));
        }
    }

    /// A look without a pass.
    #[inline(always)]
    pub(super) fn look(&self) -> View<'_, M> {
        self.reach_barrier(AccessKind::Load);
        let epoch = self.barrier.running();
        self.view(epoch, false)
    }

    /// A look with a pass. Waits while an epoch ends.
    pub(super) fn enter(&self) -> (View<'_, M>, Work<'_>) {
        self.reach_barrier(AccessKind::Load);
        self.with_pass(self.barrier.enter(thread_number::<M>()))
    }

    /// As [`Core::enter`], for a thread that may be in a batch.
    ///
    /// # Errors
    /// [`Error::InBatch`] if that is of this tree, or if it would have to wait for a batch.
    #[inline(always)]
    pub(super) fn enter_beside_batches(&self) -> Result<(View<'_, M>, Work<'_>), Error> {
        if !self.is_in_any_batch() {
            return Ok(self.enter());
        }
        self.refuse_in_batch()?;
        self.reach_barrier(AccessKind::Load);
        let pass = self.barrier.enter_beside_long(thread_number::<M>());
        pass.map(|pass| self.with_pass(pass)).ok_or(Error::InBatch)
    }

    /// As [`Core::enter`], with a share whose external log needs no space of the pool, if there is one.
    #[cold]
    pub(super) fn enter_with_log(&self) -> (View<'_, M>, Work<'_>) {
        self.reach_barrier(AccessKind::Load);
        match self.barrier.enter_suitable(|shard| shard.log.has_space()) {
            Some(pass) => self.with_pass(pass),
            None => self.enter(),
        }
    }

    /// As [`Core::enter`], for longer than one operation. What comes third is dropped first.
    pub(super) fn enter_for_long(&self) -> (View<'_, M>, Work<'_>, Long<'_>) {
        self.reach_barrier(AccessKind::Load);
        let (pass, long) = self.barrier.enter_for_long(thread_number::<M>());
        let (view, work) = self.with_pass(pass);
        (view, work, long)
    }

    #[inline(always)]
    fn with_pass<'t>(&'t self, pass: Pass<'t, Shard>) -> (View<'t, M>, Work<'t>) {
        let Pass { shard, epoch, phase } = pass;
        let view = self.view(epoch, true);
        (view, Work { shard, phase })
    }

    #[inline(always)]
    fn view(&self, epoch: u64, has_pass: bool) -> View<'_, M> {
        View { core: self, guard: self.pool.peek(), epoch, has_pass, attempts: Cell::new(Attempts::NONE) }
    }
}

impl<M: Medium> View<'_, M> {
    /// Whether what was seen so far may be trusted.
    #[inline(always)]
    pub(super) fn is_valid(&self) -> bool {
        if self.has_pass {
            return true;
        }
        self.core.reach_barrier(AccessKind::Load);
        self.core.barrier.is_running(self.epoch)
    }

    /// An operation begins, maybe one of several: its attempts count by themselves.
    pub(super) fn begin_operation(&self) {
        self.attempts.set(Attempts::NONE);
    }

    /// The operation was begun with another look, which is given up: its attempts count with those of this one.
    pub(super) fn go_on_from(&self, attempts: Attempts) {
        self.attempts.set(attempts);
    }

    /// What [`View::go_on_from`] takes.
    pub(super) fn attempts(&self) -> Attempts {
        self.attempts.get()
    }

    /// Before something is tried again that a node was in the way of.
    #[cold]
    pub(super) fn retry_at(&self, node: u64) -> Walk<()> {
        self.note_blocked_by(node);
        self.retry()
    }

    fn note_blocked_by(&self, node: u64) {
        self.attempts.set(Attempts { blocked_by: node, ..self.attempts.get() });
    }

    /// Before something is tried again.
    #[cold]
    pub(super) fn retry(&self) -> Walk<()> {
        let mut attempts = self.attempts.get();
        attempts.count = attempts.count.saturating_add(1);
        self.attempts.set(attempts);
        if !self.has_pass && (attempts.count > ATTEMPTS_WITHOUT_PASS || !self.is_valid()) {
            return Err(Stop::NeedsPass);
        }
        if attempts.count > ATTEMPTS_ALONE {
            return self.retry_slowly(attempts);
        }
        if attempts.count > 16 {
            medium::sync::yield_now();
        } else {
            medium::sync::spin_loop();
        }
        Ok(())
    }

    /// The holder of the lock may wait for a disk. After [`MassTreeOptions::patience`](super::MassTreeOptions::patience) without a
    /// change of the node the operation gives up.
    fn retry_slowly(&self, mut attempts: Attempts) -> Walk<()> {
        let version = match attempts.blocked_by {
            0 => 0,
            node => self.guard.node::<VolatileWord>(node + VERSION)?.load(&self.guard, Ordering::Relaxed),
        };
        if attempts.since.is_none() || attempts.version != version {
            attempts = Attempts { count: ATTEMPTS_ALONE, version, since: Some(Instant::now()), ..attempts };
        }
        // A scheduler has no time.
        let is_over = match attempts.since {
            Some(since) if !M::SCHEDULED => since.elapsed() > self.core.patience,
            _ => attempts.count > ATTEMPTS_SCHEDULED,
        };
        if is_over {
            let offset = if attempts.blocked_by == 0 { self.core.anchor } else { attempts.blocked_by };
            return Err(Error::Contended { offset }.into());
        }
        self.attempts.set(attempts);
        if attempts.count > ATTEMPTS_AWAKE && !is_scheduled::<M>() {
            std::thread::sleep(Duration::from_micros(PAUSE_US));
        } else {
            medium::sync::yield_now();
        }
        Ok(())
    }

    /// A descent met a node that is no part of the tree any more, a layer's root or not.
    #[cold]
    pub(super) fn meet_deleted(&self, pointer: u64, is_root: bool) -> Walk<()> {
        if !is_root {
            return self.retry_at(pointer & OFFSET_MASK);
        }
        self.note_blocked_by(pointer & OFFSET_MASK);
        Err(Stop::Again)
    }

    /// The node whose version a word is.
    #[cold]
    fn node_of(&self, version: &VolatileWord) -> u64 {
        self.guard.offset_of(version) - VERSION
    }

    /// The anchor.
    #[inline(always)]
    pub(super) fn anchor(&self) -> Walk<&Anchor> {
        Ok(self.guard.node::<Anchor>(self.core.anchor)?)
    }

    /// The running epoch as the epoch words of nodes have it.
    #[inline(always)]
    pub(super) fn epoch_word(&self) -> u64 {
        self.epoch | self.core.stamp
    }

    /// Whether an epoch belongs to this execution, so that the node that carries it was touched in it.
    #[inline(always)]
    fn is_touched(&self, state: u64) -> bool {
        let Core { first, stamp, .. } = self.core;
        stamped_epoch(state).wrapping_sub(first | stamp) <= self.epoch.wrapping_sub(*first)
    }

    #[cold]
    fn touch(&self, pointer: u64, state: u64) -> Walk<()> {
        if !self.has_pass {
            return Err(Stop::NeedsPass);
        }
        let (epoch, first) = (state & EPOCH_MASK, self.core.first);
        // Also if that has come since.
        if epoch >= first {
            let what = format!("a node of epoch {epoch}, which had not begun before epoch {first}");
            return Err(Error::corrupt(pointer & OFFSET_MASK, what).into());
        }
        self.recover_node(pointer)
    }

    /// The border node that a pointer without its kind leads to; recovered, if a crash came before.
    #[inline(always)]
    pub(super) fn border(&self, pointer: u64) -> Walk<&Border> {
        let node = self.guard.node::<Border>(pointer & OFFSET_MASK)?;
        let state = node.epoch.load(&self.guard);
        if !self.is_touched(state) {
            self.touch(pointer, state)?;
        }
        Ok(node)
    }

    /// The interior node that a pointer leads to; recovered, if a crash came before.
    #[inline(always)]
    pub(super) fn interior(&self, pointer: u64) -> Walk<&Interior> {
        let node = self.guard.node::<Interior>(pointer & OFFSET_MASK)?;
        let state = node.epoch.load(&self.guard);
        if !self.is_touched(state) {
            self.touch(pointer, state)?;
        }
        Ok(node)
    }

    /// The node that a pointer leads to; recovered, if a crash came before.
    #[inline(always)]
    pub(super) fn node(&self, pointer: u64) -> Walk<NodeRef<'_>> {
        if pointer & INTERIOR == 0 {
            self.border(pointer).map(NodeRef::Border)
        } else {
            self.interior(pointer).map(NodeRef::Interior)
        }
    }

    /// Hints the processor to load a node.
    #[inline(always)]
    pub(super) fn prefetch(&self, pointer: u64) {
        if self.core.are_words && pointer & INTERIOR == 0 {
            if let Ok(node) = self.guard.node::<WordBorder>(pointer & OFFSET_MASK) {
                kernels::prefetch_lines(node);
            }
        } else if let Ok(node) = self.guard.node::<Border>(pointer & OFFSET_MASK) {
            kernels::prefetch_lines(node);
        }
    }

    /// Hints the processor to load the line of a word, if there is one.
    #[inline(always)]
    pub(super) fn prefetch_word(&self, offset: u64) {
        if let Ok(words) = self.guard.words(offset, 1) {
            words[0].prefetch();
        }
    }

    /// The version of a node that nobody restructures.
    #[inline(always)]
    pub(super) fn stable(&self, word: &VolatileWord) -> Walk<Version> {
        loop {
            let version = Version::now(&self.guard, word);
            if !version.is_dirty() {
                return Ok(version);
            }
            self.retry_at(self.node_of(word))?;
        }
    }

    /// The version at which a node is read again that has changed since `version`; `Again` if it does not cover what it
    /// covered then.
    pub(super) fn renew(&self, version: Version, word: &VolatileWord) -> Walk<Version> {
        self.retry()?;
        let now = self.stable(word)?;
        // Asked of the very version that counts from now on: the node may be split after any other look at it.
        if now.covers_as(version) { Ok(now) } else { Err(Stop::Again) }
    }

    /// Locks a node.
    pub(super) fn lock<'n>(&'n self, word: &'n VolatileWord) -> Walk<Lock<'n, M>> {
        loop {
            if let Some(lock) = Lock::try_new(&self.guard, word) {
                return Ok(lock);
            }
            self.retry_at(self.node_of(word))?;
        }
    }
}
