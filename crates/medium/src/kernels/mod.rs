//! Small loops over lines that engines spend their time in: searching keys, fingerprints and slot
//! arrays.
//!
//! Each search has an AVX-512, an AVX2 and a portable form. The best that the processor supports is
//! chosen once, at run time ([`Kernels`]). All forms give the same answer for every input.
//!
//! **They read memory that other threads write.** Their arguments are therefore atomics and their
//! loads relaxed: the portable form loads word by word, the others with `asm!`, where a load of 64
//! bytes stands for eight relaxed loads of eight bytes (an ordinary vector load would be a data
//! race, which is undefined behaviour). Nothing here relies on bytes beyond a word being loaded
//! *together*, and none of it orders anything: the caller brackets a search with its version check
//! or holds the node's lock, and has loaded whatever led it here with acquire. The result for a
//! node that changes meanwhile may be wrong, but it is in bounds and defined.
//!
//! The slot functions work on a [`LineValue`], a private copy.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::line_store::LineValue;
use crate::names::named;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod crc;
#[cfg(loom)]
mod modelled;
mod portable;
mod prefetch;
mod slots;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(loom)]
pub use modelled::{compare_bytes, match_byte, rank_le, rank_lt, store_line};
pub use prefetch::{prefetch_first, prefetch_lines, prefetch_read, prefetch_write};
pub use slots::{SLOTS, insert_slot, remove_slot};

/// The loops in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kernels {
    /// 512-bit vectors (AVX-512 F, BW, DQ, and BMI2, POPCNT).
    Avx512 = 1,
    /// 256-bit vectors (AVX2, BMI2, POPCNT).
    Avx2 = 2,
    /// Word by word.
    Portable = 3,
}

/// The processor lacks the instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this processor does not have the instructions of the {0} kernels; use portable")]
pub struct UnsupportedKernels(pub Kernels);

/// The kernels in use, as a [`Kernels`]; 0 until the first call. Holds only what is supported.
static ACTIVE: AtomicU8 = AtomicU8::new(0);

impl Kernels {
    /// The kernels in use: the best that the processor has, unless [`Kernels::install`] chose
    /// others.
    pub fn active() -> Self {
        match active() {
            1 => Self::Avx512,
            2 => Self::Avx2,
            _ => Self::Portable,
        }
    }

    /// Uses these from now on, in the whole process: for comparisons, and for a user who distrusts
    /// one of them.
    pub fn install(self) -> Result<(), UnsupportedKernels> {
        if !self.is_supported() {
            return Err(UnsupportedKernels(self));
        }
        ACTIVE.store(self as u8, Ordering::Relaxed);
        Ok(())
    }

    /// Whether this processor has the instructions.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Avx512 => has_avx512(),
            Self::Avx2 => has_avx2(),
            Self::Portable => true,
        }
    }
}

named!(Kernels, "search kernels": Avx512 = "avx512", Avx2 = "avx2", Portable = "portable");

/// The number of the kernels in use.
#[inline(always)]
fn active() -> u8 {
    match ACTIVE.load(Ordering::Relaxed) {
        0 => choose(),
        active => active,
    }
}

/// Makes the first choice. Harmless beside another: an installed choice stays.
#[cold]
fn choose() -> u8 {
    let best = Kernels::all()
        .into_iter()
        .find(|kernels| kernels.is_supported());
    let best = best.unwrap_or(Kernels::Portable) as u8;
    ACTIVE
        .compare_exchange(0, best, Ordering::Relaxed, Ordering::Relaxed)
        .map_or_else(|found| found, |_| best)
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

/// Calls the form of a kernel that is in use.
macro_rules! dispatch {
    ($kernel:ident($($argument:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        {
            let active = active();
            if active == Kernels::Avx512 as u8 {
                // SAFETY: only a processor that has the instructions gets there.
                return unsafe { avx512::$kernel($($argument),*) };
            }
            if active == Kernels::Avx2 as u8 {
                // SAFETY: as above.
                return unsafe { avx2::$kernel($($argument),*) };
            }
        }
        portable::$kernel($($argument),*)
    }};
}

/// Which of the line's 64 bytes equal `byte`: bit i stands for byte i. O(1).
#[cfg(not(loom))]
#[inline(always)]
pub fn match_byte(line: &[AtomicU64; 8], byte: u8) -> u64 {
    dispatch!(match_byte(line, byte))
}

/// Which of the line's 64 bytes are below `byte`, unsigned, and which equal it: bit i stands for
/// byte i. O(1).
#[cfg(not(loom))]
#[inline(always)]
pub fn compare_bytes(line: &[AtomicU64; 8], byte: u8) -> (u64, u64) {
    dispatch!(compare_bytes(line, byte))
}

/// How many of the first `count` keys are less than or equal to `key`, unsigned. O(1).
///
/// With sorted keys that is the position after the last key `<= key`. A `count` above 32 means 32.
/// Fastest if `keys` starts at a line.
#[cfg(not(loom))]
#[inline(always)]
pub fn rank_le(keys: &[AtomicU64; 32], count: usize, key: u64) -> usize {
    dispatch!(rank_le(keys, count.min(32), key))
}

/// How many of the first `count` keys are less than `key`, unsigned. O(1). In all else it is like
/// [`rank_le`].
#[cfg(not(loom))]
#[inline(always)]
pub fn rank_lt(keys: &[AtomicU64; 32], count: usize, key: u64) -> usize {
    dispatch!(rank_lt(keys, count.min(32), key))
}

/// Compares the key words of up to 64 entries (pairs of key word and value word), unsigned: which
/// are less than `key`, and which equal it. Bit i of each mask stands for entry i. O(entries).
/// Fastest if `entries` starts at a line.
///
/// # Panics
/// For more than 64 entries.
#[inline(always)]
pub fn compare_entries(entries: &[[AtomicU64; 2]], key: u64) -> (u64, u64) {
    assert!(
        entries.len() <= 64,
        "{} entries do not fit a mask of 64 bits",
        entries.len()
    );
    dispatch!(compare_entries(entries, key))
}

/// Compares up to 16 words, unsigned: which are less than `key`, and which equal it. Bit i of each
/// mask stands for word i. O(words).
///
/// # Panics
/// For more than 16 words.
#[inline(always)]
pub fn compare_words(words: &[AtomicU64], key: u64) -> (u32, u32) {
    assert!(
        words.len() <= 16,
        "{} words do not fit a mask of 16 bits",
        words.len()
    );
    dispatch!(compare_words(words, key))
}

/// How many bits of a word are set. O(1). One instruction where the processor has it, which
/// compilers do not assume.
#[inline(always)]
pub fn count_ones(word: u64) -> usize {
    #[cfg(target_arch = "x86_64")]
    if active() != Kernels::Portable as u8 {
        let count: u64;
        // SAFETY: both other forms are chosen only where the instruction exists. It touches no
        // memory.
        unsafe {
            std::arch::asm!("popcnt {count}, {word}", word = in(reg) word, count = lateout(reg) count,
                            options(pure, nomem, nostack));
        }
        return count as usize;
    }
    word.count_ones() as usize
}

/// The line's words: eight relaxed loads, as one load of 64 bytes where possible. O(1). No
/// snapshot: beside a writer it may be half old and half new; see [`WholeLoad`](crate::WholeLoad).
#[inline(always)]
pub fn load_line(line: &[AtomicU64; 8]) -> LineValue {
    dispatch!(load_line(line))
}

/// Stores the line's words: eight relaxed stores, as one store of 64 bytes where possible. O(1).
/// Not failure-atomic.
#[cfg(not(loom))]
#[inline(always)]
pub fn store_line(line: &[AtomicU64; 8], value: &LineValue) {
    dispatch!(store_line(line, value));
}

/// The first position, below `count`, that holds `slot` (below 64), whatever the tags. A `count`
/// above [`SLOTS`] means [`SLOTS`]. O(1).
#[inline(always)]
pub fn find_slot(line: &LineValue, count: usize, slot: u8) -> Option<usize> {
    debug_assert!(slot < 64, "slot {slot} reaches into the tag bits");
    dispatch!(find_slot(line, count.min(SLOTS), slot))
}
