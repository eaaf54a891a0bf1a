//! Writes: conditions, and entries that are given back unless they are published.

use std::marker::PhantomData;

use medium::Medium;
use pool::Guard;

use crate::Result;
use crate::index::{Codec, Condition, EntryWords};

/// Whether `condition` holds for a key with this entry.
#[inline]
pub fn holds<M: Medium, C: Codec>(
    guard: &Guard<'_, M>,
    condition: Condition<C::Value<'_>>,
    entry: Option<EntryWords>,
) -> Result<bool> {
    Ok(match (condition, entry) {
        (Condition::Always, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => true,
        (Condition::Equals(value), Some(words)) => C::has_value(guard, words, value)?,
        (Condition::Written(record), found) => found.and_then(C::record) != Some(record),
        (Condition::Moved { from, .. }, found) => found.and_then(C::record) == Some(from),
        (Condition::Absent, Some(_)) | (Condition::Present | Condition::Equals(_), None) => false,
    })
}

/// The entry that a write with this condition is to take over: that of a record which a batch has
/// written, or of a copy of the key's record.
#[inline(always)]
pub fn written<C: Codec>(
    key: C::Key<'_>,
    condition: Condition<C::Value<'_>>,
) -> Option<EntryWords> {
    match condition {
        Condition::Written(record) | Condition::Moved { to: record, .. } => {
            C::with_record(key, record)
        }
        Condition::Always | Condition::Absent | Condition::Present | Condition::Equals(_) => None,
    }
}

/// The entry that an operation is to add. Its record, if it has one, is written when the entry is
/// first asked for, and given back unless the operation publishes it. A record that the caller has
/// written belongs to the caller until then.
pub struct Encoded<'g, 'p, 'k, 'v, M: Medium, C: Codec> {
    guard: &'g Guard<'p, M>,
    key: C::Key<'k>,
    value: C::Value<'v>,
    words: Option<EntryWords>,
    /// The caller has written the record.
    is_written: bool,
    codec: PhantomData<fn() -> C>,
}

impl<'g, 'p, 'k, 'v, M: Medium, C: Codec> Encoded<'g, 'p, 'k, 'v, M, C> {
    /// The entry of a write with this condition, not encoded yet.
    #[inline(always)]
    pub fn new(
        guard: &'g Guard<'p, M>,
        key: C::Key<'k>,
        value: C::Value<'v>,
        condition: Condition<C::Value<'_>>,
    ) -> Self {
        let words = written::<C>(key, condition);
        Self {
            guard,
            key,
            value,
            words,
            is_written: words.is_some(),
            codec: PhantomData,
        }
    }

    /// The entry's words. Its record is flushed, not fenced.
    #[inline(always)]
    pub fn words(&mut self) -> Result<EntryWords> {
        if let Some(words) = self.words {
            return Ok(words);
        }
        let words = C::encode(self.guard, self.key, self.value)?;
        self.words = Some(words);
        Ok(words)
    }

    /// Keeps the entry's record, because the tree reaches the entry now.
    #[inline(always)]
    pub fn published(&mut self) {
        self.words = None;
    }
}

impl<M: Medium, C: Codec> Drop for Encoded<'_, '_, '_, '_, M, C> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(words) = self.words
            && !self.is_written
        {
            C::discard(self.guard, words);
        }
    }
}

/// Space that nothing leads to yet, given back unless it is published.
pub struct Unpublished<'g, 'p, M: Medium> {
    guard: &'g Guard<'p, M>,
    offsets: Vec<u64>,
}

impl<'g, 'p, M: Medium> Unpublished<'g, 'p, M> {
    /// No space.
    pub fn new(guard: &'g Guard<'p, M>) -> Self {
        Self {
            guard,
            offsets: Vec::new(),
        }
    }

    /// Allocates space: see [`Guard::allocate`].
    pub fn allocate(&mut self, bytes: usize) -> Result<u64> {
        let offset = self.guard.allocate(bytes)?;
        Ok(self.adopt(offset))
    }

    /// Allocates space on line boundaries: see [`Guard::allocate_lines`].
    pub fn allocate_lines(&mut self, bytes: usize) -> Result<u64> {
        let offset = self.guard.allocate_lines(bytes)?;
        Ok(self.adopt(offset))
    }

    /// Takes over space that was allocated.
    pub fn adopt(&mut self, offset: u64) -> u64 {
        self.offsets.push(offset);
        offset
    }

    /// Keeps all of the space, because the tree reaches it now.
    pub fn published(&mut self) {
        self.offsets.clear();
    }
}

impl<M: Medium> Drop for Unpublished<'_, '_, M> {
    fn drop(&mut self) {
        self.offsets
            .drain(..)
            .for_each(|offset| self.guard.free(offset));
    }
}
