//! A write to a full pool: the store looks for space that is free but not known to be free, and
//! tries the write once more.

use std::time::Duration;

use engines::Result;

use super::OpenStore;
use crate::recovery::OpenTrees;

/// How long a writer waits for open ranges. After a crash the store cannot tell which space is in
/// use while a range is open. The wait is limited, because the writer's own thread may have one.
const RANGES_WAIT: Duration = Duration::from_millis(200);

impl OpenStore {
    /// A write, tried twice if the pool is full at first. It is ordered when this returns.
    #[inline(always)]
    pub(crate) fn ordered<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        // The attempt checks that this is the process of the store.
        self.expect_not_only_read()?;
        self.note_write();
        retry(attempt, || self.find_space())
    }

    /// Does the same as [`OpenStore::ordered`], for a caller that holds the lock of the store's
    /// trees.
    pub(crate) fn retry_if_full<T>(
        &self,
        trees: &OpenTrees,
        attempt: impl Fn() -> Result<T>,
    ) -> Result<T> {
        retry(attempt, || {
            self.has_recovered();
            self.find_space_of(trees);
        })
    }

    /// Finds space that is free after a crash, or that was removed in any tree and not yet reused.
    #[cold]
    pub(crate) fn find_space(&self) {
        // Other threads may open trees while this one waits, so it does not hold the lock of the
        // trees yet.
        self.has_recovered();
        self.find_space_of(&self.trees.lock());
    }

    fn find_space_of(&self, trees: &OpenTrees) {
        self.backend.reclaim();
        for tree in trees.values() {
            tree.index().reclaim();
        }
    }

    /// Waits until the space in use is known, or until only an open range prevents that. Returns
    /// whether it is known. In a child that was forked after the open there is nothing to wait for.
    pub(crate) fn has_recovered(&self) -> bool {
        if self.expect_own_process().is_err() {
            return true;
        }
        match &self.background {
            Some(background) => background.wait(RANGES_WAIT),
            None => true,
        }
    }
}

/// Attempts a write; once more after `find_space` if the pool is full.
#[inline(always)]
fn retry<T>(attempt: impl Fn() -> Result<T>, find_space: impl FnOnce()) -> Result<T> {
    match attempt() {
        Err(error) if error.is_full() => {
            find_space();
            attempt()
        }
        result => result,
    }
}
