//! The version word of a node: its lock, and counts by which readers notice that they must read
//! again.
//!
//! ```text
//! bit 0        locked by a writer
//! bit 1        dirty: being restructured; readers wait
//! bit 2        deleted: readers start again
//! bits 3..32   counts inserts into slots that a reader may still read
//! bits 32..64  counts changes of what the node covers
//! ```
//!
//! It means nothing across a restart: the first touch of a node after that makes it anew
//! (`recover`).

use std::sync::atomic::{Ordering, fence};

use medium::{Medium, MediumGuard, VolatileWord};

use super::layout::VERSION;

const LOCKED: u64 = 1;
const DIRTY: u64 = 2;
const DELETED: u64 = 4;
const INSERT: u64 = 1 << 3;
const CHANGE: u64 = 1 << 32;

/// A version as a reader saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version(u64);

impl Version {
    /// The version now.
    #[inline(always)]
    pub(super) fn now<M: Medium>(guard: &MediumGuard<'_, M>, word: &VolatileWord) -> Self {
        // ORDER: pairs with the releases below; the stores before them are visible.
        Self(word.load(guard, Ordering::Acquire))
    }

    #[inline(always)]
    pub(super) fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    #[inline(always)]
    pub(super) fn is_deleted(self) -> bool {
        self.0 & DELETED != 0
    }

    /// Whether the node is neither locked nor deleted.
    pub(super) fn is_at_rest(self) -> bool {
        self.0 & (LOCKED | DIRTY | DELETED) == 0
    }

    /// Whether everything that was read since this version is of one state.
    #[inline(always)]
    pub(super) fn is_still<M: Medium>(
        self,
        guard: &MediumGuard<'_, M>,
        word: &VolatileWord,
    ) -> bool {
        // Orders all earlier loads, also the relaxed ones of kernels, before the load of the
        // version.
        fence(Ordering::Acquire);
        (self.0 ^ word.load(guard, Ordering::Acquire)) & !LOCKED == 0
    }

    /// Whether the node covers the same keys as at another version, and has not been deleted.
    pub(super) fn covers_as(self, other: Self) -> bool {
        (self.0 ^ other.0) & (!(CHANGE - 1) | DELETED) == 0
    }
}

/// A node locked by this thread; unlocked when dropped.
pub(super) struct Lock<'n, M: Medium> {
    guard: &'n MediumGuard<'n, M>,
    word: &'n VolatileWord,
    version: u64,
}

impl<'n, M: Medium> Lock<'n, M> {
    /// Locks the node unless it is locked.
    pub(super) fn try_new(guard: &'n MediumGuard<'n, M>, word: &'n VolatileWord) -> Option<Self> {
        let version = word.load(guard, Ordering::Relaxed);
        if version & LOCKED != 0 {
            return None;
        }
        // ORDER: pairs with the release of the unlock.
        let taken = word.compare_exchange(guard, version, version | LOCKED, Ordering::Acquire);
        taken.ok().map(|version| Self {
            guard,
            word,
            version,
        })
    }

    fn store(&self, version: u64) {
        // ORDER: before all later stores to the node, which are releases: a thread that sees one of
        // them sees this.
        self.word
            .store(self.guard, version | LOCKED, Ordering::Release);
    }

    /// Whether the node covers the same keys as at `version`, and has not been deleted.
    pub(super) fn covers_since(&self, version: Version) -> bool {
        (self.version ^ version.0) & !(CHANGE - 1) == 0 && self.version & DELETED == 0
    }

    /// The node.
    pub(super) fn node(&self) -> u64 {
        self.guard.offset_of(self.word) - VERSION
    }

    /// Whether the node is no part of the tree any more.
    pub(super) fn is_deleted(&self) -> bool {
        self.version & DELETED != 0
    }

    /// To be called before a slot is written that a reader may still read.
    pub(super) fn begin_insert(&mut self) {
        self.version = self.version.wrapping_add(INSERT);
        self.store(self.version);
    }

    /// To be called before the node is restructured; readers wait until it is unlocked.
    pub(super) fn begin_change(&mut self) {
        self.version = self.version.wrapping_add(CHANGE) | DIRTY;
        self.store(self.version);
    }

    /// Marks the node as deleted: it is no part of the tree any more.
    pub(super) fn delete(&mut self) {
        self.version = self.version.wrapping_add(CHANGE) | DELETED;
        self.store(self.version);
    }
}

impl<M: Medium> Drop for Lock<'_, M> {
    fn drop(&mut self) {
        // ORDER: pairs with the acquire of the next lock and with readers' loads.
        self.word.store(
            self.guard,
            self.version & !(LOCKED | DIRTY),
            Ordering::Release,
        );
    }
}
