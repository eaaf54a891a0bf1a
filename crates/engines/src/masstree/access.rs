//! Access to a tree: with a pass, which holds the epoch, or without one.
//!
//! Memory that is freed in one epoch is reused only in a later one. So a reader without a pass
//! remembers the epoch in which it began. If that is still running at the end of the read, no
//! memory that it read was reused. Writers hold a pass, and so do readers during whose first
//! attempts an epoch ended.

use std::cell::Cell;
use std::time::{Duration, Instant};

use medium::sync::schedule::AccessKind;
use medium::sync::{Ordering, is_scheduled, pause, thread_number};
use medium::{Medium, VolatileWord, kernels};
use pool::Guard;

use super::core::Core;
use super::layout::{
    Anchor, Border, EPOCH_MASK, INTERIOR, Interior, LISTED, OFFSET_MASK, VERSION, WordBorder,
    stamped_epoch,
};
use super::options::Mode;
use super::shard::Work;
use super::version::{Lock, Version};
use crate::{Error, ErrorKind, Result};

/// Why a walk ended without a result.
#[derive(Debug)]
pub(super) enum Stop {
    /// The tree changed under the walk: start again.
    Again,
    /// The walk needs a pass: a node is to be recovered, or the epoch ended.
    NeedsPass,
    /// An error.
    Failed(Error),
}

impl Stop {
    /// The error. If the walk should start again, and the caller cannot do that, the error is
    /// `otherwise`.
    pub(super) fn error_or(self, otherwise: impl FnOnce() -> Error) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Again | Self::NeedsPass => otherwise(),
        }
    }
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The result of a walk.
pub(super) type Walk<T> = std::result::Result<T, Stop>;

/// Attempts without a pass before a reader takes one.
const ATTEMPTS_WITHOUT_PASS: u32 = 64;
/// Attempts before the time is measured. All but the first few yield the processor.
const ATTEMPTS_ALONE: u32 = 1 << 10;
/// Attempts after which an operation gives up under a scheduler, which has no time.
const ATTEMPTS_SCHEDULED: u32 = 1 << 11;
/// Attempts after which the thread sleeps between two: the holder of the lock waits for a disk.
const ATTEMPTS_AWAKE: u32 = 1 << 12;
/// How long a thread sleeps between two attempts after that.
const PAUSE: Duration = Duration::from_micros(100);
/// The most levels of one layer; a damaged tree may have circles.
pub(super) const HEIGHT_MAX: usize = 48;

/// A tree as one operation sees it.
pub(super) struct TreeAccess<'t, M: Medium> {
    pub(super) core: &'t Core<M>,
    pub(super) guard: Guard<'t, M>,
    /// The epoch in which the operation began.
    pub(super) epoch: u64,
    /// Whether a pass holds that epoch.
    pub(super) has_pass: bool,
    attempts: Cell<Attempts>,
}

/// Attempts that failed.
#[derive(Clone, Copy, Default)]
struct Attempts {
    count: u32,
    /// The node that blocked the last attempt, 0 for none; its version; and since when it has that
    /// version.
    blocked_by: u64,
    version: u64,
    since: Option<Instant>,
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
    /// A view for a reader without a pass.
    #[inline(always)]
    pub(super) fn look(&self) -> TreeAccess<'_, M> {
        self.view(self.epochs.running(), false)
    }

    /// A view with a pass. Waits while an epoch ends.
    #[inline(always)]
    pub(super) fn enter(&self) -> (TreeAccess<'_, M>, Work<'_>) {
        self.with_pass(self.epochs.enter(thread_number::<M>()))
    }

    /// A view with a pass, as [`Core::enter`] gives it; if possible, of a shard whose external log
    /// needs no space of the pool.
    #[cold]
    pub(super) fn enter_with_log(&self) -> (TreeAccess<'_, M>, Work<'_>) {
        let epoch = self.epochs.running();
        let suitable = self
            .epochs
            .enter_suitable(|shard| self.log.has_space(shard, epoch));
        self.with_pass(suitable.unwrap_or_else(|| self.epochs.enter(thread_number::<M>())))
    }

    #[inline(always)]
    fn with_pass<'t>(&'t self, work: Work<'t>) -> (TreeAccess<'t, M>, Work<'t>) {
        (self.view(work.epoch, true), work)
    }

    /// A view in the running epoch. It has a pass if the caller holds a shard, or all of them.
    #[inline(always)]
    pub(super) fn view(&self, epoch: u64, has_pass: bool) -> TreeAccess<'_, M> {
        let attempts = Cell::new(Attempts::default());
        TreeAccess {
            core: self,
            guard: self.pool.peek(),
            epoch,
            has_pass,
            attempts,
        }
    }

    /// The error of an operation that is not started again.
    pub(super) fn error_of(&self, stop: Stop) -> Error {
        stop.error_or(|| {
            ErrorKind::Contended {
                offset: self.anchor,
            }
            .into()
        })
    }

    /// Runs a read with a pass, until the tree does not change under it.
    #[cold]
    pub(super) fn with_pass_held<R>(
        &self,
        mut read: impl FnMut(&TreeAccess<'_, M>) -> Walk<R>,
    ) -> Result<R> {
        let (view, _work) = self.enter();
        if self.epochs.are_over() {
            return Err(ErrorKind::InUse.into());
        }
        loop {
            match read(&view) {
                Ok(found) => return Ok(found),
                Err(Stop::Again | Stop::NeedsPass) => {
                    view.retry().map_err(|stop| self.error_of(stop))?;
                }
                Err(stop) => return Err(self.error_of(stop)),
            }
        }
    }
}

impl<M: Medium> TreeAccess<'_, M> {
    /// Whether the epoch in which the operation began still runs: if so, no memory that it read was
    /// reused.
    #[inline(always)]
    pub(super) fn is_valid(&self) -> bool {
        self.has_pass
            || self
                .core
                .epochs
                .barrier(AccessKind::Load)
                .is_running(self.epoch)
    }

    /// Why a walk stops that has found damage: the memory that it read may have been reused
    /// meanwhile.
    #[cold]
    pub(super) fn damaged(&self, pointer: u64, what: &'static str) -> Stop {
        if self.is_valid() {
            Error::corrupt(pointer & OFFSET_MASK, what).into()
        } else {
            Stop::NeedsPass
        }
    }

    /// Waits before another attempt, after one that a node blocked.
    #[cold]
    pub(super) fn retry_at(&self, node: u64) -> Walk<()> {
        self.note_blocked_by(node);
        self.retry()
    }

    /// Notes which node has blocked this attempt.
    #[cold]
    pub(super) fn note_blocked_by(&self, node: u64) {
        self.attempts.set(Attempts {
            blocked_by: node,
            ..self.attempts.get()
        });
    }

    /// Waits before another attempt, longer each time.
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
        pause(&mut attempts.count);
        Ok(())
    }

    /// The holder of the lock may wait for a disk. After
    /// [`MassTreeOptions::patience`](super::MassTreeOptions::patience) without a change of the node
    /// the operation gives up.
    fn retry_slowly(&self, mut attempts: Attempts) -> Walk<()> {
        let version = match attempts.blocked_by {
            0 => 0,
            node => self
                .guard
                .node::<VolatileWord>(node + VERSION)?
                .load(&self.guard, Ordering::Relaxed),
        };
        if attempts.since.is_none() || attempts.version != version {
            attempts = Attempts {
                count: ATTEMPTS_ALONE,
                version,
                since: Some(Instant::now()),
                ..attempts
            };
        }
        // A scheduler has no time.
        let is_over = match attempts.since {
            Some(since) if !M::SCHEDULED => since.elapsed() > self.core.patience,
            _ => attempts.count > ATTEMPTS_SCHEDULED,
        };
        if is_over {
            let offset = if attempts.blocked_by == 0 {
                self.core.anchor
            } else {
                attempts.blocked_by
            };
            return Err(ErrorKind::Contended { offset }.into());
        }
        self.attempts.set(attempts);
        if attempts.count > ATTEMPTS_AWAKE && !is_scheduled::<M>() {
            std::thread::sleep(PAUSE);
        } else {
            medium::sync::yield_now();
        }
        Ok(())
    }

    /// The anchor.
    #[inline(always)]
    pub(super) fn anchor(&self) -> Walk<&Anchor> {
        Ok(self.guard.node::<Anchor>(self.core.anchor)?)
    }

    /// The running epoch with the stamp of this execution, as epoch words of nodes contain it.
    #[inline(always)]
    pub(super) fn epoch_word(&self) -> u64 {
        self.epoch | self.core.stamp
    }

    /// To be called before a node with this epoch word is used: recovers it, unless the epoch
    /// belongs to this execution.
    #[inline(always)]
    fn touch(&self, pointer: u64, state: u64) -> Walk<()> {
        let first = self.core.epochs.first;
        let stamp = self.core.stamp;
        let is_touched =
            stamped_epoch(state).wrapping_sub(first | stamp) <= self.epoch.wrapping_sub(first);
        if is_touched {
            Ok(())
        } else {
            self.touch_first(pointer, state)
        }
    }

    #[cold]
    fn touch_first(&self, pointer: u64, state: u64) -> Walk<()> {
        if !self.has_pass {
            return Err(Stop::NeedsPass);
        }
        let epoch = state & EPOCH_MASK;
        let first = self.core.epochs.first;
        // This also holds if that epoch has begun since.
        if epoch >= first {
            let what = format!("a node of epoch {epoch}, which had not begun before epoch {first}");
            return Err(Error::corrupt(pointer & OFFSET_MASK, what).into());
        }
        Ok(self.core.recover_node(&self.guard, self.epoch, pointer)?)
    }

    /// The border node that a pointer without its kind leads to; recovered, if a crash came before.
    #[inline(always)]
    pub(super) fn border(&self, pointer: u64) -> Walk<&Border> {
        let node = self.guard.node::<Border>(pointer & OFFSET_MASK)?;
        self.touch(pointer, node.epoch.load(&self.guard))?;
        Ok(node)
    }

    /// The interior node that a pointer leads to; recovered, if a crash came before.
    #[inline(always)]
    pub(super) fn interior(&self, pointer: u64) -> Walk<&Interior> {
        let node = self.guard.node::<Interior>(pointer & OFFSET_MASK)?;
        self.touch(pointer, node.epoch.load(&self.guard))?;
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

    /// Waits until no thread restructures the node, and returns its version.
    #[inline(always)]
    pub(super) fn stable(&self, word: &VolatileWord) -> Walk<Version> {
        loop {
            let version = Version::now(&self.guard, word);
            if !version.is_dirty() {
                return Ok(version);
            }
            self.retry_at(self.guard.offset_of(word) - VERSION)?;
        }
    }

    /// The current version of a node that has changed since `version`, for reading it again;
    /// `Again` if it no longer covers the same keys.
    pub(super) fn renew(&self, version: Version, word: &VolatileWord) -> Walk<Version> {
        self.retry()?;
        let now = self.stable(word)?;
        // The comparison is with the version that is returned: the node may be split right after
        // the version was loaded.
        if now.covers_as(version) {
            Ok(now)
        } else {
            Err(Stop::Again)
        }
    }

    /// Locks a node.
    pub(super) fn lock<'n>(&'n self, word: &'n VolatileWord) -> Walk<Lock<'n, M>> {
        loop {
            if let Some(lock) = Lock::try_new(&self.guard, word) {
                return Ok(lock);
            }
            self.retry_at(self.guard.offset_of(word) - VERSION)?;
        }
    }

    /// Lists lines of a locked node that change, to be flushed before the epoch ends.
    #[inline(always)]
    pub(super) fn list_node(&self, work: &mut Work<'_>, listed: &VolatileWord, lines: u64) {
        self.core.epochs.list_node(
            &self.guard,
            work,
            self.guard.offset_of(listed) - LISTED,
            listed,
            lines,
        );
    }

    /// Writes a node to the external log, unless the tree has none.
    pub(super) fn log_node(&self, work: &mut Work<'_>, pointer: u64) -> Walk<()> {
        if self.core.mode != Mode::Transient {
            self.core.log.append(&self.guard, work, pointer)?;
        }
        Ok(())
    }

    /// Gives an object back. It is reused in a later epoch.
    pub(super) fn free(&self, work: &mut Work<'_>, object: u64) -> Walk<()> {
        Ok(self.core.space(&self.guard).free(work, object)?)
    }

    /// Gives back the objects that an operation has allocated before it stopped.
    pub(super) fn give_up<T>(&self, work: &mut Work<'_>, objects: &[u64], stop: Stop) -> Walk<T> {
        objects
            .iter()
            .try_for_each(|object| self.free(work, *object))?;
        Err(stop)
    }

    /// Sets the root of the first layer. The caller has its lock.
    pub(super) fn set_first_root(&self, work: &mut Work<'_>, pointer: u64) -> Walk<()> {
        let root = &self.anchor()?.root;
        root.set(&self.guard, self.epoch, pointer);
        self.core.epochs.list(
            &mut work.shard,
            self.guard.offset_of(root),
            size_of_val(root) as u64,
        );
        Ok(())
    }
}
