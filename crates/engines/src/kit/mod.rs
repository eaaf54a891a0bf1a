//! The parts of engines: code that more than one engine needs is here, once.
//!
//! | part | gives |
//! | --- | --- |
//! | [`mod@write`] | whether a condition holds; an entry that is encoded when it is needed, and discarded unless it is published |
//! | [`search`] | where a key lies among sorted entries |
//! | [`load`] | the source of a bulk load, its order checked; its entries encoded, all of them given back if the load fails |
//! | [`scan`] | a cursor behind ranges in both directions, over batches of entries |
//! | [`gather`] | copies of the records of neighbouring entries, near each other in the pool |
//! | [`relocate`] | records that move out of slabs that are to be emptied |
//! | [`walk`] | every leaf of a chain once, whatever is damaged |
//! | [`salvage`] | the readable entries of a damaged tree |
//! | `epochs` | epochs that the trees of a pool share: a barrier, lists of changed lines, the set of failed epochs |
//! | [`latch`] | a reader-writer lock that readers do not write to |
//! | [`chain`] | inner nodes in memory over leaves that their owner keeps |
//! | [`ids`] | a table of IDs in memory |
//! | [`paged`] | a tree wholly in the pool, over a node format |
//! | [`prelude`] | all of these, and the other names that an engine's files use |
//! | [`entries`] | the methods of `Index` that follow from an engine's operations on entries |
//!
//! An engine is then its node layout, its operations on nodes with their persists, and the recovery
//! it needs.

pub mod chain;
pub(crate) mod copies;
pub mod entries;
pub(crate) mod epochs;
pub mod gather;
pub mod ids;
pub mod latch;
pub mod load;
pub mod paged;
pub mod prelude;
pub mod relocate;
pub mod salvage;
pub mod scan;
pub mod search;
pub mod shared_prefix;
pub mod walk;
pub mod write;

use std::panic::resume_unwind;

use medium::sync::Mutex;

use crate::Result;

/// Runs `work` on `threads` threads, this one among them; on fewer if the system gives no more.
/// Returns the results of all.
///
/// # Errors
/// An error that `work` has returned on some thread.
pub fn on_threads<T: Send>(threads: usize, work: impl Fn() -> Result<T> + Sync) -> Result<Vec<T>> {
    let results = Mutex::new(Vec::new());
    call_on_threads(threads, &|| {
        let result = work();
        results.lock().push(result);
    });
    let results = std::mem::take(&mut *results.lock());
    results.into_iter().collect()
}

/// Does the work of [`on_threads`]. It is not generic, so that it is compiled once.
fn call_on_threads(threads: usize, work: &(dyn Fn() + Sync)) {
    std::thread::scope(|scope| {
        let helper = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let helpers: Vec<_> = (1..threads).map_while(helper).collect();
        work();
        for helper in helpers {
            helper.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

/// The bits of a set, from the lowest on.
#[inline(always)]
pub fn bits(set: impl Into<u64>) -> Bits {
    Bits { rest: set.into() }
}

/// The iterator of [`bits`].
#[derive(Clone, Debug)]
pub struct Bits {
    /// The bits that are still to come.
    rest: u64,
}

impl Iterator for Bits {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.rest == 0 {
            return None;
        }
        let lowest = self.rest.trailing_zeros() as usize;
        self.rest &= self.rest - 1;
        Some(lowest)
    }
}

/// Calls `work` for each of some jobs, on at most `threads` threads. Returns the results in the
/// order of the jobs.
///
/// # Errors
/// An error that `work` has returned for some job.
pub fn map_on_threads<J: Send, T: Send>(
    threads: usize,
    jobs: impl IntoIterator<Item = J, IntoIter: ExactSizeIterator + Send>,
    work: impl Fn(J) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let jobs = jobs.into_iter();
    let mut results = Vec::new();
    results.resize_with(jobs.len(), || None);
    let threads = threads.min(jobs.len());
    let results = Mutex::new(results);
    let jobs = Mutex::new(jobs.enumerate());
    let next = || jobs.lock().next();
    on_threads(threads, || {
        while let Some((number, job)) = next() {
            let result = work(job)?;
            results.lock()[number] = Some(result);
        }
        Ok(())
    })?;
    let results = std::mem::take(&mut *results.lock());
    Ok(results.into_iter().flatten().collect())
}

/// A value of 48 bits with a check of 16 bits.
pub fn checked(value: u64) -> u64 {
    debug_assert!(value >> 48 == 0);
    value | (value ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xffff << 48
}

/// The value of a [`checked`] word; `None` if it is damaged.
pub fn unchecked(word: u64) -> Option<u64> {
    let value = word & ((1 << 48) - 1);
    (checked(value) == word).then_some(value)
}
