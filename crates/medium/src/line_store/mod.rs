//! The failure-atomic store of 64 bytes.
//!
//! RNTree and CAWBT commit by replacing one line at once: after a crash the line holds its old
//! value or its new one, whole. No processor promises this for ordinary stores; eight word stores
//! reach the memory as any prefix of themselves. There are four ways to get it, and [`LineStore`]
//! names the one in use:
//!
//! | form | how | known to be whole on |
//! | --- | --- | --- |
//! | [`LineStore::Movdir64b`] | one direct store, past the caches | all that have it, by architecture |
//! | [`LineStore::Avx512`] | one aligned 64-byte store, then a flush | Intel cores; others may split it |
//! | [`LineStore::Rtm`] | eight stores in a transaction, a flush | all that have it, once it commits |
//! | [`LineStore::Twin`] | two copies that validate themselves, in turns | everywhere: see [`twin`] |
//!
//! The first three write a line in place, the *single* form; they may be exchanged from one run to
//! the next. The twin form takes two lines and therefore belongs to the pool's format.
//!
//! **Order.** A direct store is not ordered by a later release store: a reader that saw a flag
//! stored after it may still read the old line. So the rule for every form is: a line store is
//! visible and durable *in order* only after the next store fence. It is not ordered after older
//! stores to other lines either, so everything that the new value leads to is fenced before.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod movdir64b;
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "the retry policy is tested everywhere")
)]
mod rtm;
#[cfg(target_arch = "x86_64")]
mod stream;
#[cfg(test)]
mod tests;
pub mod twin;
mod whole_load;

pub use whole_load::WholeLoad;

#[cfg(target_arch = "x86_64")]
use crate::flush::cpuid::CpuFeatures;
use crate::names::named;

/// The bits of each word of a line that belong to the medium: 62 and 63.
pub const TAG_MASK: u64 = 0b11 << 62;

/// A line's value: eight words. Bits 62 and 63 of each belong to the medium ([`TAG_MASK`]); the
/// other 496 bits are the engine's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct LineValue(pub [u64; 8]);

impl LineValue {
    /// All bits zero.
    pub const ZERO: Self = Self([0; 8]);

    /// The words of a line, loaded one by one.
    #[inline(always)]
    pub(crate) fn load(line: &[AtomicU64; 8], order: Ordering) -> Self {
        Self(std::array::from_fn(|index| line[index].load(order)))
    }

    /// Stores the words one by one, the first one first.
    #[inline(always)]
    pub(crate) fn store(&self, line: &[AtomicU64], order: Ordering) {
        for (word, value) in line.iter().zip(self.0) {
            word.store(value, order);
        }
    }
}

impl Default for LineValue {
    fn default() -> Self {
        Self::ZERO
    }
}

/// How a line is stored failure-atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineStore {
    /// One MOVDIR64B: whole by architecture. Bypasses the caches and needs no flush, only the
    /// fence.
    Movdir64b,
    /// One aligned AVX-512 store. Whole on Intel cores; a processor that splits it may tear it.
    Avx512,
    /// Eight stores in a hardware transaction.
    Rtm,
    /// Two self-validating copies.
    Twin,
}

impl LineStore {
    /// The best form that is known to be whole on this processor: the first of [`LineStore::all`]
    /// that [`LineStore::is_known_whole`].
    ///
    /// The first call costs up to some milliseconds where RTM has to be probed; later ones a load.
    /// Two threads may probe at the same time: neither waits for the other, which the child of a
    /// fork may not have.
    pub fn detect() -> Self {
        /// The place of the detected store in the list, from 1 on; 0 before.
        static DETECTED: AtomicUsize = AtomicUsize::new(0);
        let all = Self::all();
        let detected = DETECTED.load(Ordering::Relaxed);
        if detected > 0 {
            return all[detected - 1];
        }
        let found = all.iter().position(|store| store.is_known_whole());
        let Some(index) = found else {
            return Self::Twin;
        };
        DETECTED.store(index + 1, Ordering::Relaxed);
        all[index]
    }

    /// Whether no crash leaves a part of a line that is stored so, on this processor.
    ///
    /// MOVDIR64B wherever it is supported; AVX-512 only on a processor made by Intel; RTM only
    /// after a probe of 10,000 line stores, each right after a flush of its line, committed all of
    /// them in few tries; the twin form always. Up to some milliseconds for RTM, else some hundred
    /// cycles.
    pub fn is_known_whole(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        match self {
            Self::Movdir64b | Self::Twin => self.is_supported(),
            Self::Avx512 => self.is_supported() && CpuFeatures::read().intel,
            Self::Rtm => self.is_supported() && rtm::probe(),
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Twin
        }
    }

    /// Whether this processor can execute it. Unlike [`LineStore::detect`] this does not say that
    /// the store is whole: AVX-512 is supported on processors of other makers, where choosing it is
    /// the caller's own risk.
    pub fn is_supported(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        match self {
            Self::Movdir64b => CpuFeatures::read().movdir64b,
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
            Self::Rtm => CpuFeatures::read().rtm,
            Self::Twin => true,
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Twin
        }
    }
}

named!(LineStore, "line store": Movdir64b = "movdir64b", Avx512 = "avx512", Rtm = "rtm", Twin = "twin");

/// A line could not be stored: its old value stands, whole.
///
/// Only [`LineStore::Rtm`] fails like this, when every transaction aborted up to the bound and the
/// processor has no other store that is known to be whole. Plain stores are no way out: eight plain
/// stores can tear, and a pool in single form has no room for a second copy. The medium must fail
/// the operation, or stop as if it had crashed at this point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a line was not stored: {} transactions in a row aborted, and this processor has no other 64-byte store; \
     make the pool anew with `twin` lines",
    rtm::TRIES_MAX
)]
pub struct LineNotStored;

/// Stores `value` to the line with the given single-copy form. Does not flush, does not fence.
///
/// With [`LineStore::Rtm`] a store whose transactions all abort is done by MOVDIR64B or (Intel)
/// AVX-512 if the processor has one. The caller cannot tell which, so it flushes after an RTM store
/// in any case.
///
/// # Errors
/// [`LineNotStored`], from [`LineStore::Rtm`] only: the line holds its old value.
///
/// # Panics
/// For [`LineStore::Twin`], which is no single store.
///
/// # Safety
/// `line` is 64-byte aligned, mapped writable and accessed elsewhere only as eight atomic words;
/// `store` is supported ([`LineStore::is_supported`]).
#[inline(always)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(clippy::unnecessary_wraps, reason = "no single form there")
)]
pub(crate) unsafe fn store_single(
    store: LineStore,
    line: *const [AtomicU64; 8],
    value: &LineValue,
) -> Result<(), LineNotStored> {
    debug_assert!(line.addr().is_multiple_of(64), "a line at {line:p}");
    #[cfg(target_arch = "x86_64")]
    match store {
        // SAFETY: the caller ensures that the instruction exists, and that the line is aligned and
        // mapped as the instruction requires.
        LineStore::Movdir64b => unsafe { movdir64b::store(line, value) },
        // SAFETY: as above.
        LineStore::Avx512 => unsafe { avx512::store(line, value) },
        // SAFETY: as above.
        LineStore::Rtm => unsafe { return store_transaction(line, value) },
        LineStore::Twin => not_single(),
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (store, value);
        not_single();
    }
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unreachable_code, reason = "no single form there")
    )]
    Ok(())
}

/// Stores one copy of a twin line past the caches, where the processor can: then it needs no flush,
/// only the fence. `false`, and nothing is stored, elsewhere.
#[inline(always)]
pub(crate) fn stream(copy: &[AtomicU64; 8], value: &LineValue) -> bool {
    #[cfg(target_arch = "x86_64")]
    stream::store(copy, value);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (copy, value);
    cfg!(target_arch = "x86_64")
}

#[cold]
fn not_single() -> ! {
    panic!("a twin line is two lines: no single store writes it");
}

/// # Safety
/// The contract of [`store_single`]; and RTM is supported.
#[cfg(target_arch = "x86_64")]
unsafe fn store_transaction(
    line: *const [AtomicU64; 8],
    value: &LineValue,
) -> Result<(), LineNotStored> {
    // SAFETY: as the caller promises.
    if unsafe { rtm::store(line, value) } {
        return Ok(());
    }
    match [LineStore::Movdir64b, LineStore::Avx512]
        .into_iter()
        .find(|store| store.is_known_whole())
    {
        // SAFETY: what is known to be whole is supported; the line is the caller's promise.
        Some(other) => unsafe { store_single(other, line, value) },
        None => Err(LineNotStored),
    }
}
