//! A medium with several owners.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::line_store::LineValue;
use crate::{Extent, LineForm, Lsn, Medium, MediumError, Survives};

/// A medium that outlives the pool on it: what one owner wrote the next one opens again. With [`Ram`](crate::Ram) this
/// is a pool that is closed and reopened without a file; with a counter, figures that can be read from outside.
///
/// [`Medium::shrink`] does nothing while there is another owner.
// SAFETY: the inner medium keeps the contract, and lives as long as any of its owners.
unsafe impl<M: Medium> Medium for Arc<M> {
    type Notes = M::Notes;
    const LATE: bool = M::LATE;
    const DIRECT: bool = M::DIRECT;
    const SCHEDULED: bool = M::SCHEDULED;

    #[inline(always)]
    fn extent(&self) -> &Extent {
        (**self).extent()
    }

    fn grow(&self, length: u64) -> Result<(), MediumError> {
        (**self).grow(length)
    }

    fn shrink(&mut self, length: u64) -> Result<(), MediumError> {
        // Exclusive access is what makes shrinking sound.
        Self::get_mut(self).map_or(Ok(()), |only| only.shrink(length))
    }

    #[inline(always)]
    fn line_form(&self) -> LineForm {
        (**self).line_form()
    }

    #[inline(always)]
    fn load(&self, word: &AtomicU64) -> u64 {
        (**self).load(word)
    }

    #[inline(always)]
    #[track_caller]
    fn start_volatile(&self, word: &AtomicU64, value: u64) {
        (**self).start_volatile(word, value);
    }

    #[inline(always)]
    #[track_caller]
    fn store(&self, word: &AtomicU64, value: u64) {
        (**self).store(word, value);
    }

    #[inline(always)]
    #[track_caller]
    fn compare_exchange(&self, word: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        (**self).compare_exchange(word, current, new)
    }

    #[inline(always)]
    #[track_caller]
    fn store_line(
        &self,
        notes: &Self::Notes,
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError> {
        (**self).store_line(notes, line, value)
    }

    #[inline(always)]
    #[track_caller]
    fn store_copy(&self, notes: &Self::Notes, copy: &[AtomicU64; 8], value: &LineValue) {
        (**self).store_copy(notes, copy, value);
    }

    #[inline(always)]
    #[track_caller]
    fn flush(&self, notes: &Self::Notes, memory: &[AtomicU64]) {
        (**self).flush(notes, memory);
    }

    #[inline(always)]
    #[track_caller]
    fn fence(&self, notes: &Self::Notes) -> Lsn {
        (**self).fence(notes)
    }

    #[inline(always)]
    fn durable(&self) -> Lsn {
        (**self).durable()
    }

    #[inline(always)]
    #[track_caller]
    fn wait(&self, lsn: Lsn) -> Result<(), MediumError> {
        (**self).wait(lsn)
    }

    #[inline(always)]
    fn defer(&self, lsn: Lsn) -> Result<(), MediumError> {
        (**self).defer(lsn)
    }

    fn settle(&self, lsn: Lsn) -> Result<(), MediumError> {
        (**self).settle(lsn)
    }

    #[inline(always)]
    fn admit(&self) -> Result<(), MediumError> {
        (**self).admit()
    }

    fn finish(&self) -> Result<(), MediumError> {
        (**self).finish()
    }

    fn file(&self) -> Option<&crate::File> {
        (**self).file()
    }

    fn survives(&self) -> Survives {
        (**self).survives()
    }

    fn describe(&self) -> String {
        (**self).describe()
    }

    #[inline(always)]
    fn compare_entries(&self, entries: &[[AtomicU64; 2]], key: u64) -> (u64, u64) {
        (**self).compare_entries(entries, key)
    }

    #[inline(always)]
    fn load_line(&self, line: &[AtomicU64; 8]) -> LineValue {
        (**self).load_line(line)
    }
}
