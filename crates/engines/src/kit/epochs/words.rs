//! The numbers of epochs in the pool: the running one, and those that failed. They are kept twice,
//! so that damage to one copy loses nothing.
//!
//! Both copies are durable before an epoch begins. If a crash comes between the two copies, either
//! is right: all changes of the epoch before were ordered first. So the copy with the later epoch
//! counts.

use medium::{Medium, Word, node};
use pool::{EPOCHS, Guard, LostCopy};

use crate::kit::copies::{lost_of, report_of, write_anew};
use crate::kit::{checked, unchecked};
use crate::{Error, Result};

/// The most failed epochs that the pool keeps.
pub(super) const FAILED_MAX: usize = 56;

node! {
    /// One copy. Each word has its check; 0 stands for none.
    struct EpochWords {
        /// The running epoch.
        running: Word,
        /// Present if all trees were closed, and nothing was written in the running epoch.
        clean: Word,
        /// The last failed epoch that was dropped although some tree may need it.
        dropped: Word,
        spare: [Word; 5],
        failed: [Word; FAILED_MAX],
    }
}

/// Words of a copy.
const EPOCH_WORDS: usize = size_of::<EpochWords>() / 8;

const _: () =
    assert!(size_of::<EpochWords>() == 512 && std::mem::offset_of!(EpochWords, failed) == 64);

/// The content of a copy; 0 stands for none.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochState {
    pub(super) running: u64,
    pub(super) is_clean: bool,
    pub(super) dropped: u64,
    /// Each failed epoch keeps its place, so that none is lost while another one is added or
    /// removed.
    pub(super) failed: [u64; FAILED_MAX],
}

impl Default for EpochState {
    fn default() -> Self {
        Self {
            running: 0,
            is_clean: false,
            dropped: 0,
            failed: [0; FAILED_MAX],
        }
    }
}

fn word_of(epoch: u64) -> u64 {
    if epoch == 0 { 0 } else { checked(epoch) }
}

impl EpochWords {
    /// The content; `None` if it is damaged.
    fn read<M: Medium>(&self, guard: &Guard<'_, M>) -> Option<EpochState> {
        let epoch = |cell: &Word| match cell.load(guard) {
            0 => Some(0),
            word => unchecked(word).filter(|epoch| (1..1 << 47).contains(epoch)),
        };
        let [running, clean, dropped] = [&self.running, &self.clean, &self.dropped].map(epoch);
        let mut written = EpochState {
            running: running?,
            is_clean: clean? != 0,
            dropped: dropped?,
            ..EpochState::default()
        };
        for (failed, cell) in written.failed.iter_mut().zip(&self.failed) {
            *failed = epoch(cell).filter(|failed| *failed <= written.running)?;
        }
        Some(written)
    }
}

/// The cells of both copies that `cell` names.
fn both<'g, M: Medium>(
    guard: &'g Guard<'_, M>,
    cell: impl Fn(&'g EpochWords) -> &'g Word,
) -> Result<[&'g Word; 2]> {
    let [first, second] = EPOCHS.map(|at| guard.node::<EpochWords>(at));
    Ok([cell(first?), cell(second?)])
}

/// Reads the later copy. The result has the failed epochs of both copies: one that a crash left in
/// one copy only may still be needed.
pub(super) fn read<M: Medium>(guard: &Guard<'_, M>) -> Result<EpochState> {
    let [first, second] = EPOCHS.map(|at| guard.node::<EpochWords>(at));
    let (mut later, other) = match (first?.read(guard), second?.read(guard)) {
        (Some(first), Some(second)) if first.running < second.running => (second, Some(first)),
        (Some(first), second) => (first, second),
        (None, Some(second)) => (second, None),
        (None, None) => {
            return Err(Error::corrupt(
                EPOCHS[0],
                "both copies of the epochs' numbers are damaged",
            ));
        }
    };
    if let Some(other) = other {
        later.is_clean &= other.is_clean || other.running < later.running;
        later
            .failed
            .iter_mut()
            .zip(other.failed)
            .for_each(|(failed, other)| *failed = (*failed).max(other));
    }
    Ok(later)
}

/// Writes the failed epochs; ordered when this returns.
pub(super) fn write_failed<M: Medium>(guard: &Guard<'_, M>, written: &EpochState) -> Result<()> {
    for (index, failed) in written.failed.into_iter().enumerate() {
        let word = word_of(failed);
        for cell in both(guard, |words| &words.failed[index])? {
            if cell.load(guard) != word {
                // PERSIST: adding an epoch needs nothing before it; if this is lost, the next open
                // adds it again. Removing one needs a finished sweep; if this is lost, the next
                // open sweeps again.
                cell.publish(guard, word);
            }
        }
    }
    guard.fence();
    Ok(())
}

/// Writes the failed epoch that is dropped; ordered when this returns.
pub(super) fn write_dropped<M: Medium>(guard: &Guard<'_, M>, written: &EpochState) -> Result<()> {
    for cell in both(guard, |words| &words.dropped)? {
        // PERSIST: nothing must precede; if this is lost, the epoch is still in the set.
        cell.publish(guard, word_of(written.dropped));
    }
    guard.fence();
    Ok(())
}

/// Writes the number of an epoch that begins, in a pool that is not clean from then on. The caller
/// fences.
pub(super) fn write_running<M: Medium>(guard: &Guard<'_, M>, running_epoch: u64) -> Result<()> {
    let clean = both(guard, |words| &words.clean)?;
    let running = both(guard, |words| &words.running)?;
    for copy in 0..2 {
        // The mark is cleared before the epoch begins. Both words lie in one line, so they reach
        // the medium in this order.
        if clean[copy].load(guard) != 0 {
            clean[copy].store(guard, 0);
        }
        // PERSIST: all that changed in the epoch before is ordered before; if this is lost, that
        // epoch has failed.
        running[copy].publish(guard, checked(running_epoch));
    }
    Ok(())
}

/// Writes that the running epoch has not failed, although it does not end. Durable when this
/// returns, if the beginning of the epoch is.
pub(super) fn write_clean<M: Medium>(guard: &Guard<'_, M>) -> Result<()> {
    for cell in both(guard, |words| &words.clean)? {
        // PERSIST: the last epoch is complete, and nothing was written since; if this is lost, an
        // empty epoch has failed.
        cell.publish(guard, checked(1));
    }
    let lsn = guard.fence_at_rest();
    Ok(guard.wait(lsn)?)
}

/// The report of a copy that is damaged while the other one is whole, and its number.
pub(super) fn lost_copy<M: Medium>(guard: &Guard<'_, M>) -> Result<Option<(usize, LostCopy)>> {
    let [first, second] = EPOCHS.map(|at| guard.node::<EpochWords>(at));
    let is_whole = [first?, second?].map(|copy| copy.read(guard).is_some());
    let Some(copy) = lost_of(is_whole) else {
        return Ok(None);
    };
    let lost = report_of(EPOCHS[copy], copy, "the numbers of epochs");
    Ok(Some((copy, lost)))
}

/// Writes a copy anew from the other one. No thread writes either of them meanwhile. The caller
/// fences.
pub(super) fn mend<M: Medium>(guard: &Guard<'_, M>, copy: usize) -> Result<()> {
    let lost = guard.words(EPOCHS[copy], EPOCH_WORDS)?;
    let whole = guard.words(EPOCHS[1 - copy], EPOCH_WORDS)?;
    write_anew(guard, lost, whole);
    Ok(())
}

/// Flushes both copies as they are. The caller fences.
pub(super) fn flush<M: Medium>(guard: &Guard<'_, M>) -> Result<()> {
    for copy in EPOCHS {
        guard.flush_words(guard.words(copy, EPOCH_WORDS)?);
    }
    Ok(())
}
