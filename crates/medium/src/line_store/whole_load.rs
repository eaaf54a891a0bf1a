//! Loading a line as it is at one instant, beside a thread that writes it.
//!
//! A redo log captures lines that their owner goes on storing to. In a test, 3% of the captures by
//! eight word loads were no prefix of the stores; of those by one 64-byte load on an Intel core
//! none was wrong. Zen 4 tears such a pair of load and store like any other. A reader without a
//! [`WholeLoad`] locks the writer out instead.

use std::sync::atomic::AtomicU64;

use super::LineValue;

/// The right to load lines whole: exists only on processors that are known to do so.
#[derive(Clone, Copy, Debug)]
pub struct WholeLoad(());

impl WholeLoad {
    /// Asks the processor: AVX-512, made by Intel. Ask once, keep the answer.
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        {
            (super::CpuFeatures::read().intel && is_x86_feature_detected!("avx512f"))
                .then_some(Self(()))
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            None
        }
    }

    /// The line's words at one instant.
    ///
    /// # Panics
    /// If the line does not start at a multiple of 64 bytes.
    #[inline(always)]
    pub fn load(self, line: &[AtomicU64; 8]) -> LineValue {
        assert!(
            line.as_ptr().addr().is_multiple_of(64),
            "a line at {:p}",
            line.as_ptr()
        );
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: `self` exists only where AVX-512 does.
            unsafe { crate::kernels::avx512::load_line(line) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            unreachable!("{self:?} on a processor without it")
        }
    }
}
