//! Architectures without a known flush: media on memory work, and survive the process but no loss
//! of power.

use std::sync::atomic::{Ordering, fence};

use super::FlushKind;

pub(super) fn detect() -> FlushKind {
    FlushKind::Nothing
}

pub(super) fn is_supported(_kind: FlushKind) -> bool {
    false
}

/// # Safety
/// None to keep.
#[inline(always)]
pub(super) unsafe fn flush_range(_kind: FlushKind, _first: *const u8, _length: usize) {}

#[inline(always)]
pub(super) fn store_fence(_kind: FlushKind) {
    fence(Ordering::SeqCst);
}
