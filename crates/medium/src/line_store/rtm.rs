//! Eight stores in one hardware transaction (RTM): the way of the papers.
//!
//! A transaction's stores become visible together, so the line's cached copy, and with it what is
//! written back, is never torn. But a transaction may abort, and no processor promises that any try
//! ever commits. Two traps:
//!
//! - **A clean line.** A transaction that writes a line which was written back (CLWB) and stayed
//!   cached aborts with 'conflict', again and again, until an ordinary store dirties the line:
//!   measured, 4% of such tries commit, and 99.98% after one ordinary store. So an aborted try is
//!   followed by [`dirty`]. The same store faults a page in, which no transaction can.
//! - **For ever.** Tries are bounded ([`TRIES_MAX`]). After that the caller must not fall back to
//!   eight plain stores, which tear; see [`LineNotStored`](super::LineNotStored).

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::AtomicU64;

#[cfg(target_arch = "x86_64")]
use super::LineValue;

/// Transactions that one line store may try. With the dirtying store nearly all commit at the first
/// try after it, and interrupts are rare: a thousand aborts in a row, some tens of microseconds,
/// mean that none is going to commit.
pub(super) const TRIES_MAX: u32 = 1000;

/// Tries that a line store may take in the probe for
/// [`LineStore::detect`](super::LineStore::detect) to offer RTM.
#[cfg(target_arch = "x86_64")]
const PROBE_TRIES_MAX: u32 = 64;

/// Tries a transaction until it commits, with a dirtying store after each abort. Says whether it
/// did.
#[inline(always)]
fn retry(tries_max: u32, mut try_once: impl FnMut() -> bool, mut dirty: impl FnMut()) -> bool {
    if try_once() {
        return true;
    }
    for _ in 1..tries_max {
        dirty();
        if try_once() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

/// Stores `value` to the line; `false` if no transaction committed, and the line is as it was.
///
/// # Safety
/// RTM exists; the line is 64-byte aligned and mapped writable.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) unsafe fn store(line: *const [AtomicU64; 8], value: &LineValue) -> bool {
    // SAFETY: the caller's contract, twice.
    retry(
        TRIES_MAX,
        || unsafe { transaction(line, value) },
        || unsafe { dirty(line) },
    )
}

/// One try; says whether it committed.
///
/// # Safety
/// RTM exists; the line is 64-byte aligned and mapped writable.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn transaction(line: *const [AtomicU64; 8], value: &LineValue) -> bool {
    const COMMITTED: u32 = u32::MAX; // no abort status has all bits set
    let mut status = COMMITTED;
    // SAFETY: reads 64 aligned bytes of `value`; between XBEGIN and XEND writes the 64 of the line,
    // for other threads eight atomic word stores. On abort the processor undoes them, restores the
    // registers, puts the status into EAX and jumps to the label; every path leaves at the end.
    // `AtomicU64` permits writing through a shared pointer.
    unsafe {
        asm!(
            "movaps {w0}, [{value}]",
            "movaps {w1}, [{value} + 16]",
            "movaps {w2}, [{value} + 32]",
            "movaps {w3}, [{value} + 48]",
            "xbegin 2f",
            "movaps [{line}], {w0}",
            "movaps [{line} + 16], {w1}",
            "movaps [{line} + 32], {w2}",
            "movaps [{line} + 48], {w3}",
            "xend",
            "2:",
            value = in(reg) value,
            line = in(reg) line,
            w0 = out(xmm_reg) _,
            w1 = out(xmm_reg) _,
            w2 = out(xmm_reg) _,
            w3 = out(xmm_reg) _,
            inout("eax") status,
            options(nostack),
        );
    }
    status == COMMITTED
}

/// Makes the line dirty in this core's cache without changing it: a locked OR of zero to its first
/// word.
///
/// Legal at any time: the word keeps its value, so readers notice nothing, and the set of values
/// that the medium may hold after a crash (the prefixes of the line's stores) stays the same. It is
/// locked, so that it undoes no store even if, against the rules, another thread writes the word
/// meanwhile. It is in `asm!`, because a compiler may turn an OR of zero into a load.
///
/// # Safety
/// The line is mapped writable.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn dirty(line: *const [AtomicU64; 8]) {
    // SAFETY: an atomic read-modify-write of the line's first word, which is mapped writable, says
    // the caller.
    unsafe { asm!("lock or qword ptr [{line}], 0", line = in(reg) line, options(nostack)) }
}

/// Whether 10,000 of 10,000 line stores commit in few tries each, every one right after a flush of
/// its line.
///
/// # Panics
/// Without RTM.
#[cfg(target_arch = "x86_64")]
pub(super) fn probe() -> bool {
    use crate::flush::{FlushKind, flush_range, store_fence};
    use std::sync::atomic::Ordering::Relaxed;

    #[derive(Default)]
    #[repr(align(64))]
    struct ProbeLine([AtomicU64; 8]);

    assert!(super::LineStore::Rtm.is_supported(), "no RTM to probe");
    let flush = FlushKind::detect();
    let lines: [ProbeLine; 16] = Default::default();
    (0..10_000_u64).all(|round| {
        let line: *const [AtomicU64; 8] = &raw const lines[round as usize % lines.len()].0;
        // SAFETY: `line` is one of the lines above, aligned, writable as atomics; RTM and the flush
        // are supported.
        unsafe {
            let committed = retry(
                PROBE_TRIES_MAX,
                || transaction(line, &LineValue([round; 8])),
                || dirty(line),
            );
            flush_range(flush, line.cast(), 64);
            store_fence(flush);
            committed && (*line).iter().all(|word| word.load(Relaxed) == round)
        }
    })
}

#[cfg(test)]
mod tests;
