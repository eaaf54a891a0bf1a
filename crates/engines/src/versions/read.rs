//! Reading a tree as it was when a view was opened.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use medium::Lsn;

use super::changes::{ChangedKey, OldValue, Stamp, TreeVersions};
use super::{PlantedFault, StoreView, VersionsFault};
use crate::Result;
use crate::index::{Bounds, Direction, Index, Observed, Scan, Value};

/// The most changed keys that a range reads at once.
const CHANGES_AT_ONCE: usize = 256;

impl StoreView {
    /// The view has the writes with stamps up to this one.
    #[inline]
    pub(super) fn stamp(&self) -> Stamp {
        self.state.stamp
    }

    fn faults(&self) -> PlantedFault {
        self.versions.faults
    }

    /// The first step of a read.
    #[inline]
    fn begin_read(&self) -> Result<()> {
        if self.faults().has(VersionsFault::LastCheckFirst) {
            return self.expect_whole();
        }
        Ok(())
    }

    /// The last step of a read: checks that the view was not ended meanwhile.
    #[inline]
    fn end_read(&self) -> Result<()> {
        if self.faults().has(VersionsFault::LastCheckFirst) {
            return Ok(());
        }
        self.expect_whole()
    }

    /// The value of `key` in this view. Does not wait. O(log n).
    ///
    /// # Errors
    /// [`ErrorKind::ViewTooOld`](crate::ErrorKind::ViewTooOld); those of a read of the tree.
    pub fn read(
        &self,
        tree: &dyn Index,
        versions: &TreeVersions,
        key: &[u8],
    ) -> Result<Observed<Option<Value>>> {
        if versions.is_made_after(self.stamp()) {
            return Ok(Observed::durable(None));
        }
        self.begin_read()?;
        let are_changes_first = self.faults().has(VersionsFault::ChangesBeforeTree);
        let too_early = are_changes_first.then(|| versions.value_at(key, self.stamp()));
        // The tree first: see the module.
        let in_tree = tree.read(key);
        let changed = too_early.unwrap_or_else(|| versions.value_at(key, self.stamp()));
        let found = match changed {
            Some(old) => old.into_read(),
            None => in_tree,
        };
        self.end_read()?;
        found
    }

    /// The values of many keys in this view, in their order. Does not wait.
    ///
    /// # Errors
    /// Those of [`StoreView::read`].
    pub fn read_many(
        &self,
        tree: &dyn Index,
        versions: &TreeVersions,
        keys: &[&[u8]],
    ) -> Result<Observed<Vec<Option<Value>>>> {
        if versions.is_made_after(self.stamp()) {
            return Ok(Observed::durable(vec![None; keys.len()]));
        }
        self.begin_read()?;
        let mut found = tree.read_many(keys)?;
        if !versions.is_unchanged_since(self.stamp()) {
            for (key, value) in keys.iter().zip(&mut found.value) {
                if let Some(old) = versions.value_at(key, self.stamp()) {
                    let old = old.into_read()?;
                    *value = old.value;
                    found.lsn = found.lsn.max(old.lsn);
                }
            }
        }
        self.end_read()?;
        Ok(found)
    }

    /// The entries of this view within `bounds`. Does not wait.
    ///
    /// # Errors
    /// Those of [`StoreView::read`].
    pub fn cursor<'i>(
        &'i self,
        tree: &'i dyn Index,
        versions: &'i Arc<TreeVersions>,
        bounds: Bounds,
        direction: Direction,
    ) -> Result<Box<dyn Scan + 'i>> {
        let is_empty = versions.is_made_after(self.stamp());
        let scan = tree.cursor(bounds.clone(), direction)?;
        Ok(Box::new(ViewScan {
            view: self,
            versions,
            rest: bounds,
            direction,
            tree: TreeSide {
                scan,
                state: if is_empty {
                    TreeState::Ended
                } else {
                    TreeState::BeforeNext
                },
            },
            changes: VecDeque::new(),
            known: if is_empty { Known::All } else { Known::Nothing },
            entry: ScanEntry::None,
            lsn: Lsn::DURABLE,
        }))
    }
}

/// Up to where the changes of a range are known, for the part of the tree that was read.
#[derive(Debug)]
enum Known {
    Nothing,
    UpTo(Arc<[u8]>),
    All,
}

/// The entry to which a scan went last.
enum ScanEntry {
    None,
    /// It is that of the tree.
    OfTree,
    /// A key that has changed since, and its old value.
    Changed(Arc<[u8]>, Value),
}

/// Where the scan of the tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TreeState {
    /// Its next entry was not asked for yet.
    BeforeNext,
    /// It is at an entry that was not returned yet.
    AtEntry,
    Ended,
}

/// The scan of the tree beneath.
struct TreeSide<'i> {
    scan: Box<dyn Scan + 'i>,
    state: TreeState,
}

/// A range of a view: the entries of the tree, with the keys that have changed since as they were.
///
/// The tree is read some entries at a time. A batch of entries stands for the whole interval from
/// the batch before to its last key, or to the end of the range; the changes of that interval are
/// read after it.
struct ViewScan<'i> {
    view: &'i StoreView,
    versions: &'i Arc<TreeVersions>,
    /// The part of the range behind the last key that was returned or skipped. Kept up to date only
    /// where the changes are read.
    rest: Bounds,
    direction: Direction,
    tree: TreeSide<'i>,
    /// The next keys that have changed, as far as they are known.
    changes: VecDeque<ChangedKey>,
    known: Known,
    entry: ScanEntry,
    lsn: Lsn,
}

impl ViewScan<'_> {
    /// The order of two keys in the direction of the scan.
    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        match self.direction {
            Direction::Forward => one.cmp(other),
            Direction::Reverse => other.cmp(one),
        }
    }

    /// Notes that the range goes on behind this key.
    fn go_on_behind(&mut self, key: &[u8]) {
        let behind = Bound::Excluded(key.to_vec());
        match self.direction {
            Direction::Forward => self.rest.lower = behind,
            Direction::Reverse => self.rest.upper = behind,
        }
    }

    /// Goes to the next entry of the tree. If that is the first of a new batch, or the end, the
    /// changes have to be read again.
    fn advance_tree(&mut self) -> Result<()> {
        let is_new_batch = self.tree.scan.entries_ahead() == 0;
        let is_first = matches!(self.known, Known::Nothing);
        let faults = self.view.faults();
        let are_read_again = is_first || !faults.has(VersionsFault::RangeReadsChangesOnce);
        if is_new_batch && are_read_again {
            self.forget_changes();
        }
        let advanced = self.tree.scan.advance();
        if advanced.is_err() {
            // The scan of the tree does not say any more where it is, so this one ends.
            self.entry = ScanEntry::None;
            self.changes.clear();
            self.known = Known::All;
            self.tree.state = TreeState::Ended;
        }
        let is_there = advanced?;
        self.lsn = self.lsn.max(self.tree.scan.lsn());
        self.tree.state = if is_there {
            TreeState::AtEntry
        } else {
            TreeState::Ended
        };
        Ok(())
    }

    /// Forgets the changes that are known, and notes the key behind which they are read again.
    fn forget_changes(&mut self) {
        // The last key that was returned or skipped lies before the next one of the changes, and
        // before the next entry of the tree.
        let last = match &self.entry {
            ScanEntry::None => None,
            ScanEntry::OfTree => Some(self.tree.scan.entry().0.to_vec()),
            ScanEntry::Changed(key, _) => Some(key.to_vec()),
        };
        if let Some(last) = last {
            self.go_on_behind(&last);
        }
        // The scan of the tree has no entry while it advances, nor after an error.
        self.entry = ScanEntry::None;
        self.changes.clear();
        self.known = Known::Nothing;
    }

    /// Whether the changes are known up to the entry of the tree, or to the end.
    fn are_changes_known(&self) -> bool {
        match &self.known {
            Known::All => true,
            Known::Nothing => false,
            Known::UpTo(key) => {
                self.tree.state == TreeState::AtEntry
                    && self.compare(self.tree.scan.entry().0, key).is_le()
            }
        }
    }

    /// Reads more changes, behind those that are known: up to the last key that was read from the
    /// tree, if that is known, else up to the end of the range.
    fn read_changes(&mut self) {
        if let Known::UpTo(key) = &self.known {
            let key = Arc::clone(key);
            self.go_on_behind(&key);
        }
        let reads_all = self.view.faults().has(VersionsFault::RangeReadsChangesOnce);
        let last_read: Option<Arc<[u8]>> = match self.tree.state {
            TreeState::AtEntry if !reads_all => {
                let scan = &self.tree.scan;
                let last = scan.last_key_ahead().unwrap_or_else(|| scan.entry().0);
                Some(Arc::from(last))
            }
            TreeState::AtEntry | TreeState::BeforeNext | TreeState::Ended => None,
        };
        let mut bounds = self.rest.clone();
        if self.view.faults().has(VersionsFault::NoChangesBeforeFirst)
            && matches!(self.known, Known::Nothing)
            && self.tree.state == TreeState::AtEntry
        {
            let begin = match self.direction {
                Direction::Forward => &mut bounds.lower,
                Direction::Reverse => &mut bounds.upper,
            };
            *begin = Bound::Included(self.tree.scan.entry().0.to_vec());
        }
        if let Some(last) = &last_read {
            let end = match self.direction {
                Direction::Forward => &mut bounds.upper,
                Direction::Reverse => &mut bounds.lower,
            };
            *end = Bound::Included(last.to_vec());
        }
        let found = self.versions.changes_within(
            &bounds,
            self.direction,
            self.view.stamp(),
            CHANGES_AT_ONCE,
        );
        self.changes.extend(found.keys);
        self.known = match found.up_to.or(last_read) {
            Some(key) => Known::UpTo(key),
            None => Known::All,
        };
        if found.is_loaded_since {
            // What the tree holds came with the load.
            self.tree.state = TreeState::Ended;
        }
    }

    /// Takes the next key from the changes and the tree. `false` at the end of both. The key may
    /// have been absent: then the entry is [`ScanEntry::None`].
    fn take_next(&mut self) -> Result<bool> {
        let order = match self.changes.front() {
            None => Ordering::Greater,
            Some(_) if self.tree.state == TreeState::Ended => Ordering::Less,
            Some(change) => self.compare(&change.key, self.tree.scan.entry().0),
        };
        let ends_early = self.view.faults().has(VersionsFault::NoChangesBehindLast);
        if self.tree.state == TreeState::Ended && (order.is_gt() || ends_early) {
            return Ok(false);
        }
        if order.is_gt() {
            self.tree.state = TreeState::BeforeNext;
            self.entry = ScanEntry::OfTree;
            return Ok(true);
        }
        if order.is_eq() {
            self.tree.state = TreeState::BeforeNext;
        }
        if let Some(ChangedKey { key, old }) = self.changes.pop_front() {
            self.take_changed(key, old)?;
        }
        Ok(true)
    }

    fn take_changed(&mut self, key: Arc<[u8]>, old: OldValue) -> Result<()> {
        // It stays so if the old value cannot be read.
        self.entry = ScanEntry::None;
        self.go_on_behind(&key);
        let old = old.into_read()?;
        self.lsn = self.lsn.max(old.lsn);
        if let Some(value) = old.value {
            self.entry = ScanEntry::Changed(key, value);
        }
        Ok(())
    }
}

impl Scan for ViewScan<'_> {
    fn advance(&mut self) -> Result<bool> {
        loop {
            if self.tree.state == TreeState::BeforeNext {
                self.advance_tree()?;
            }
            while !self.are_changes_known() {
                self.read_changes();
            }
            let is_there = self.take_next()?;
            self.view.end_read()?;
            if !is_there {
                self.entry = ScanEntry::None;
                return Ok(false);
            }
            if !matches!(self.entry, ScanEntry::None) {
                return Ok(true);
            }
        }
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        match &self.entry {
            ScanEntry::None => (&[], &[]),
            ScanEntry::OfTree => self.tree.scan.entry(),
            ScanEntry::Changed(key, value) => (key, value),
        }
    }

    fn lsn(&self) -> Lsn {
        self.lsn
    }
}
