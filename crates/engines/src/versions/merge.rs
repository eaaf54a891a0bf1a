//! A scan with other entries over it.

use std::ops::Deref;

use crate::Result;
use crate::index::{Direction, Scan};

/// A scan, and entries that lie over those of the scan: one of them takes the place of the entry
/// beneath with the same key, or of no entry.
///
/// The caller has the entries over the scan. It tells their next key to [`MergedScan::take_next`],
/// which says where the next key comes from.
pub struct MergedScan<'i, K, V> {
    beneath: Box<dyn Scan + 'i>,
    state: BeneathState,
    direction: Direction,
    taken: Taken<K, V>,
}

/// Where the scan beneath is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BeneathState {
    /// Its next entry was not asked for yet.
    BeforeNext,
    /// It is at an entry that was not taken yet.
    AtEntry,
    /// It has no more entries.
    Ended,
}

/// Where a key comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeSource {
    /// The scan beneath.
    Beneath,
    /// The entries over the scan, whose next one the caller takes.
    Over,
    /// Both have ended.
    Neither,
}

/// The entry that was taken last.
enum Taken<K, V> {
    None,
    Beneath,
    Over { key: K, value: V },
}

impl<'i, K: Deref<Target = [u8]>, V: Deref<Target = [u8]>> MergedScan<'i, K, V> {
    /// A scan before its first entry.
    pub fn new(beneath: Box<dyn Scan + 'i>, direction: Direction) -> Self {
        Self {
            beneath,
            state: BeneathState::BeforeNext,
            direction,
            taken: Taken::None,
        }
    }

    /// Which way the entries come.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The scan beneath.
    pub fn beneath(&self) -> &dyn Scan {
        &*self.beneath
    }

    /// Where the scan beneath is.
    pub fn state(&self) -> BeneathState {
        self.state
    }

    /// Leaves out the entries beneath that were not taken yet.
    pub fn end_beneath(&mut self) {
        self.state = BeneathState::Ended;
    }

    /// Goes to the next entry beneath, if the one before was taken.
    ///
    /// # Errors
    /// Those of the scan beneath, which has ended then: it does not say any more where it is.
    pub fn advance_beneath(&mut self) -> Result<()> {
        if self.state != BeneathState::BeforeNext {
            return Ok(());
        }
        self.state = BeneathState::Ended;
        if self.beneath.advance()? {
            self.state = BeneathState::AtEntry;
        }
        Ok(())
    }

    /// Takes the next key, where `over` is the next one of the entries over the scan. The scan
    /// beneath is at its next entry, or has ended.
    pub fn take_next(&mut self, over: Option<&[u8]>) -> MergeSource {
        self.taken = Taken::None;
        let has_beneath = self.state == BeneathState::AtEntry;
        let Some(over) = over else {
            if !has_beneath {
                return MergeSource::Neither;
            }
            return self.take_beneath();
        };
        if has_beneath {
            let order = self.direction.compare(over, self.beneath.entry().0);
            if order.is_gt() {
                return self.take_beneath();
            }
            if order.is_eq() {
                // The entry over it takes its place.
                self.state = BeneathState::BeforeNext;
            }
        }
        MergeSource::Over
    }

    fn take_beneath(&mut self) -> MergeSource {
        self.state = BeneathState::BeforeNext;
        self.taken = Taken::Beneath;
        MergeSource::Beneath
    }

    /// Makes an entry over the scan the present one, after [`MergeSource::Over`].
    pub fn set_over(&mut self, key: K, value: V) {
        self.taken = Taken::Over { key, value };
    }

    /// Has no present entry any more.
    pub fn clear_entry(&mut self) {
        self.taken = Taken::None;
    }

    /// Whether the key that was taken last has an entry. It has none if it is absent.
    pub fn has_entry(&self) -> bool {
        !matches!(self.taken, Taken::None)
    }

    /// The key and the value of the entry that was taken last.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        match &self.taken {
            Taken::None => None,
            Taken::Beneath => Some(self.beneath.entry()),
            Taken::Over { key, value } => Some((key, value)),
        }
    }
}
