//! How large a pool and its parts may be.

/// Bytes of a slab.
pub const SLAB_BYTES: u64 = 1 << 16;

/// The largest allocation: the longest record (16 MiB value, 64 KiB key) and its header.
pub const ALLOCATION_BYTES_MAX: usize = (16 << 20) + (128 << 10);

/// Slabs that 47-bit addresses can hold, as far as an arena's 32-bit indices go.
pub(crate) const SLABS_MAX: u32 = 1 << 26;
