//! Reading a tree as it was when a view was opened.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use medium::Lsn;

use super::changes::{ChangedKey, Stamp, TreeVersions};
use super::merge::{BeneathState, MergeSource, MergedScan};
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
        let Ok(mut found) = tree.read_many(keys) else {
            // The key that the tree cannot read may have an old value. Whatever the error is, to read
            // the keys one by one finds it again.
            return self.read_one_by_one(tree, versions, keys);
        };
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

    /// Does the same as [`StoreView::read_many`], but reads each key by itself: one that the tree
    /// cannot read is no obstacle if this view has an old value of it.
    #[cold]
    fn read_one_by_one(
        &self,
        tree: &dyn Index,
        versions: &TreeVersions,
        keys: &[&[u8]],
    ) -> Result<Observed<Vec<Option<Value>>>> {
        let mut values = Vec::with_capacity(keys.len());
        let mut lsn = Lsn::DURABLE;
        for key in keys {
            let found = self.read(tree, versions, key)?;
            lsn = lsn.max(found.lsn);
            values.push(found.value);
        }
        Ok(Observed { value: values, lsn })
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
        let scan = tree.cursor(bounds.clone(), direction)?;
        let mut scan = ViewScan::new(self, versions, scan, bounds, direction);
        if versions.is_made_after(self.stamp()) {
            scan.merged.end_beneath();
            scan.known = Known::All;
        }
        Ok(Box::new(scan))
    }
}

/// Up to where the changes of a range are known, for the part of the tree that was read.
#[derive(Debug)]
enum Known {
    Nothing,
    UpTo(Arc<[u8]>),
    All,
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
    /// The entries of the tree, and over them the keys that have changed since.
    merged: MergedScan<'i, Arc<[u8]>, Value>,
    /// The next keys that have changed, as far as they are known.
    changes: VecDeque<ChangedKey>,
    known: Known,
    lsn: Lsn,
}

impl<'i> ViewScan<'i> {
    fn new(
        view: &'i StoreView,
        versions: &'i Arc<TreeVersions>,
        scan: Box<dyn Scan + 'i>,
        bounds: Bounds,
        direction: Direction,
    ) -> Self {
        Self {
            view,
            versions,
            rest: bounds,
            merged: MergedScan::new(scan, direction),
            changes: VecDeque::new(),
            known: Known::Nothing,
            lsn: Lsn::DURABLE,
        }
    }

    /// Notes that the range goes on behind this key.
    fn go_on_behind(&mut self, key: &[u8]) {
        let behind = Bound::Excluded(key.to_vec());
        match self.merged.direction() {
            Direction::Forward => self.rest.lower = behind,
            Direction::Reverse => self.rest.upper = behind,
        }
    }

    /// Goes to the next entry of the tree. If that is the first of a new batch, or the end, the
    /// changes have to be read again.
    fn advance_tree(&mut self) -> Result<()> {
        let is_new_batch = self.merged.beneath().entries_ahead() == 0;
        let is_first = matches!(self.known, Known::Nothing);
        let faults = self.view.faults();
        let are_read_again = is_first || !faults.has(VersionsFault::RangeReadsChangesOnce);
        if is_new_batch && are_read_again {
            self.forget_changes();
        }
        if let Err(error) = self.merged.advance_beneath() {
            // This scan ends with that of the tree.
            self.merged.clear_entry();
            self.changes.clear();
            self.known = Known::All;
            return Err(error);
        }
        self.lsn = self.lsn.max(self.merged.beneath().lsn());
        Ok(())
    }

    /// Forgets the changes that are known, and notes the key behind which they are read again.
    fn forget_changes(&mut self) {
        // The last key that was returned or skipped lies before the next one of the changes, and
        // before the next entry of the tree.
        if let Some((last, _)) = self.merged.entry() {
            let last = last.to_vec();
            self.go_on_behind(&last);
        }
        // The scan of the tree has no entry while it advances, nor after an error.
        self.merged.clear_entry();
        self.changes.clear();
        self.known = Known::Nothing;
    }

    /// The entry of the tree that was not taken yet.
    fn tree_entry(&self) -> Option<&[u8]> {
        match self.merged.state() {
            BeneathState::AtEntry => Some(self.merged.beneath().entry().0),
            BeneathState::BeforeNext | BeneathState::Ended => None,
        }
    }

    /// Whether the changes are known up to the next key.
    fn are_changes_known(&self) -> bool {
        // All changes up to the last one of the list are in it.
        if !self.changes.is_empty() {
            return true;
        }
        match &self.known {
            Known::All => true,
            Known::Nothing => false,
            Known::UpTo(key) => match self.tree_entry() {
                Some(entry) => self.merged.direction().compare(entry, key).is_le(),
                None => false,
            },
        }
    }

    /// Reads more changes, behind those that are known: up to the last key that was read from the
    /// tree, if that is known, else up to the end of the range.
    fn read_changes(&mut self) {
        if let Known::UpTo(key) = &self.known {
            let key = Arc::clone(key);
            self.go_on_behind(&key);
        }
        let direction = self.merged.direction();
        let faults = self.view.faults();
        let mut bounds = self.rest.clone();
        let mut last_read: Option<Arc<[u8]>> = None;
        if let Some(entry) = self.tree_entry() {
            let (begin, end) = match direction {
                Direction::Forward => (&mut bounds.lower, &mut bounds.upper),
                Direction::Reverse => (&mut bounds.upper, &mut bounds.lower),
            };
            if !faults.has(VersionsFault::RangeReadsChangesOnce) {
                let last = self.merged.beneath().last_key_ahead().unwrap_or(entry);
                *end = Bound::Included(last.to_vec());
                last_read = Some(Arc::from(last));
            }
            if faults.has(VersionsFault::NoChangesBeforeFirst)
                && matches!(self.known, Known::Nothing)
            {
                *begin = Bound::Included(entry.to_vec());
            }
        }
        let found =
            self.versions
                .changes_within(&bounds, direction, self.view.stamp(), CHANGES_AT_ONCE);
        self.changes.extend(found.keys);
        self.known = match found.up_to.or(last_read) {
            Some(key) => Known::UpTo(key),
            None => Known::All,
        };
        if found.is_loaded_since {
            // What the tree holds came with the load.
            self.merged.end_beneath();
        }
    }

    /// Takes the next key from the changes and the tree. `false` at the end of both. The key may
    /// have been absent: then there is no entry.
    fn take_next(&mut self) -> Result<bool> {
        let ends_early = self.view.faults().has(VersionsFault::NoChangesBehindLast);
        if ends_early && self.merged.state() == BeneathState::Ended {
            self.changes.clear();
        }
        let changed = self.changes.front().map(|changed| &*changed.key);
        match self.merged.take_next(changed) {
            MergeSource::Neither => return Ok(false),
            MergeSource::Beneath => {}
            MergeSource::Over => {
                if let Some(changed) = self.changes.pop_front() {
                    self.take_changed(changed)?;
                }
            }
        }
        Ok(true)
    }

    fn take_changed(&mut self, changed: ChangedKey) -> Result<()> {
        let ChangedKey { key, old } = changed;
        self.go_on_behind(&key);
        let old = old.into_read()?;
        self.lsn = self.lsn.max(old.lsn);
        if let Some(value) = old.value {
            self.merged.set_over(key, value);
        }
        Ok(())
    }
}

impl Scan for ViewScan<'_> {
    fn advance(&mut self) -> Result<bool> {
        loop {
            if self.merged.state() == BeneathState::BeforeNext {
                self.advance_tree()?;
            }
            while !self.are_changes_known() {
                self.read_changes();
            }
            let is_there = self.take_next()?;
            self.view.end_read()?;
            if !is_there {
                return Ok(false);
            }
            if self.merged.has_entry() {
                return Ok(true);
            }
        }
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        self.merged.entry().unwrap_or_default()
    }

    fn lsn(&self) -> Lsn {
        self.lsn
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
