//! How a pool is opened.

use crate::limits::SLABS_MAX;

/// How a pool is opened.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// The least by which the file grows, in slabs of 64 KiB.
    pub step_slabs_min: u32,
    /// Whether retired memory waits for readers. If not, it is reused at once: for single-threaded
    /// exploration, where that makes addresses reproducible.
    pub reclaim_by_epoch: bool,
    /// Whether dropping the last handle closes the pool cleanly, as
    /// [`Pool::close`](crate::Pool::close) does.
    pub close_on_drop: bool,
    /// The most slabs that the pool can have.
    pub slabs_max: u32,
    /// Whether the caller calls [`Pool::read_bitmaps`](crate::Pool::read_bitmaps) later, while
    /// trees already work. Otherwise, or if there are few slabs, the open reads the bitmaps:
    /// O(slabs).
    pub read_bitmaps_later: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            step_slabs_min: 16,
            reclaim_by_epoch: true,
            close_on_drop: true,
            slabs_max: SLABS_MAX,
            read_bitmaps_later: false,
        }
    }
}
