//! Ranges in both directions: one leaf after the other, each copied as a whole.
//!
//! A range goes on from the separator where the last leaf ended. A leaf's bounds never change. So
//! whatever was split or merged meanwhile, no key comes twice, and no key that is present for the
//! whole range is missed.

use std::cmp::Ordering as Compare;

use medium::{Lsn, Medium, kernels};
use pool::{Guard, Pool};

use super::BzTree;
use super::find::{DescentGoal, Step, VerifiedNodes, VisibleEntry};
use super::layout::{LEAF_STATUS, Leaf, LeafStatus, Pointer};
use super::runs::{self, EntryRun};
use crate::index::{Codec, Direction, EntryWords, HashBits, Moved, VisitWords};
use crate::kit::scan::{self, LeafCopy, Leaves, MovedNodes, WordBounds};
use crate::pmwcas::{Seen, VALUE_MASK};
use crate::{Error, Result};

/// Leaves behind the one that is read that are prefetched, as far as they have its parent.
const LEAVES_AHEAD: usize = 3;

type Snapshot = EntryRun<EntryWords>;

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// The visible entries of a leaf whose keys' first words are at least `from`, in the order of
    /// their keys. Calls `meanwhile` when their lines are on the way.
    fn snapshot(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
        from: u64,
        seen: &mut Seen,
        into: &mut Snapshot,
        meanwhile: impl FnOnce(),
    ) -> Result<()> {
        into.clear();
        let status = self.leaf_status(guard, leaf)?;
        let entries = leaf.entries(guard, status.count())?;
        kernels::prefetch_lines(entries);
        meanwhile();
        let mut sorted = 0;
        for (entry, cells) in entries.iter().enumerate() {
            if let Some(found) = self.read_cells(guard, cells, entry, seen)?
                && found.words[0] >= from
            {
                into.push(Self::with_fingerprint(guard, leaf, found));
            }
            if entry + 1 == status.sorted() {
                sorted = into.len();
            }
        }
        Self::prefetch_compared(guard, into.iter().copied(), sorted);
        let compare =
            |one: &EntryWords, other: &EntryWords| Self::compare_entries(guard, *one, *other);
        let order = runs::sort(into, sorted, compare)?;
        Self::expect_keys_beside(guard, into, order.late)?;
        if order.has_equal {
            // The key was removed and inserted again while its leaf was read: the later entry
            // counts.
            let mut kept = 0;
            for position in 0..into.len() {
                let is_replaced = position + 1 < into.len()
                    && Self::have_one_key(guard, into[position], into[position + 1])?;
                if !is_replaced {
                    into[kept] = into[position];
                    kept += 1;
                }
            }
            into.truncate(kept);
        }
        Ok(())
    }

    /// The words of an entry of a leaf, for records with the fingerprint as their hash.
    ///
    /// The fingerprint is read after the entry, which became visible after its fingerprint was set.
    /// It is 0 if the entry is gone meanwhile. It is never that of another key, because a leaf does
    /// not reserve an entry twice.
    #[inline(always)]
    fn with_fingerprint(guard: &Guard<'_, M>, leaf: Leaf<'_>, found: VisibleEntry) -> EntryWords {
        let [word, value] = found.words;
        if C::TIES {
            let fingerprint = leaf.fingerprint(guard, found.entry);
            [word, Self::part(value).0 | u64::from(fingerprint) << 48]
        } else {
            [word, value]
        }
    }

    /// Prefetches the records of entries that a sort compares by their keys, if all keys begin with
    /// the same word. The first `sorted` entries are in order.
    pub(super) fn prefetch_compared(
        guard: &Guard<'_, M>,
        mut entries: impl ExactSizeIterator<Item = EntryWords> + Clone,
        sorted: usize,
    ) {
        if !C::TIES || entries.len() == sorted {
            return;
        }
        let records = entries.clone();
        if let Some([first, _]) = entries.next()
            && entries.all(|[word, _]| word == first)
        {
            records.clone().for_each(|words| C::prefetch(guard, words));
            // Their keys are verified, with their values if the records are short.
            records.for_each(|words| C::prefetch_rest(guard, words));
        }
    }

    /// In a pool that verifies reads, refuses an order that rests on the key of a damaged record.
    /// `late` are the positions of the entries that were not in order before the sort.
    ///
    /// The other entries are in order whatever their records hold now: they were sorted when the
    /// leaf was made. So an entry is in its place if its key and those next to it are sound. A
    /// wrong key that is farther away may have decided some comparisons, but not the result.
    pub(super) fn expect_keys_beside(
        guard: &Guard<'_, M>,
        entries: &[EntryWords],
        late: u64,
    ) -> Result<()> {
        if !C::TIES || !guard.verifies() {
            return Ok(());
        }
        let mut is_verified = false;
        for (position, pair) in entries.windows(2).enumerate() {
            let is_beside_late = late >> position & 0b11 != 0;
            // Where first words differ they decide.
            if !is_beside_late || pair[0][0] != pair[1][0] {
                is_verified = false;
                continue;
            }
            if !is_verified {
                C::expect_key(guard, pair[0])?;
            }
            C::expect_key(guard, pair[1])?;
            is_verified = true;
        }
        Ok(())
    }

    /// Whether two entries have the same key. If one of them leads to the record of the other by
    /// damage, their fingerprints differ.
    fn have_one_key(guard: &Guard<'_, M>, one: EntryWords, other: EntryWords) -> Result<bool> {
        let [hash, other_hash] = [one, other].map(C::hash_of);
        let are_alike = hash == other_hash || hash == 0 || other_hash == 0;
        Ok(Self::compare_sound(guard, one, other)?.is_eq() && are_alike)
    }

    /// How the keys of two entries compare, which must be sound if first words tie.
    fn compare_sound(guard: &Guard<'_, M>, one: EntryWords, other: EntryWords) -> Result<Compare> {
        if one[0] == other[0] {
            C::expect_key(guard, one)?;
            C::expect_key(guard, other)?;
        }
        Self::compare_entries(guard, one, other)
    }

    /// The leaves that follow the one at the end of a path under the same parent, as far as they
    /// are read ahead.
    #[inline(always)]
    fn siblings<'g>(guard: &'g Guard<'_, M>, path: &[Step]) -> impl Iterator<Item = Leaf<'g>> {
        let parent = path
            .last()
            .and_then(|step| Some((Self::inner(guard, step.offset).ok()?, step.position)));
        parent.into_iter().flat_map(|(inner, position)| {
            let children = &inner.children[..=Self::header(guard, inner).separators()];
            let following = children.iter().skip(position + 1).take(LEAVES_AHEAD);
            following.filter_map(|child| {
                Self::leaf(guard, Pointer(child.load(guard) & VALUE_MASK).offset()).ok()
            })
        })
    }

    /// Prefetches the entries of a leaf whose first line, with their number, was prefetched before.
    #[inline(always)]
    fn prefetch_entries(guard: &Guard<'_, M>, leaf: Leaf<'_>) {
        let status = LeafStatus(leaf.head[LEAF_STATUS].load(guard) & VALUE_MASK);
        if let Ok(entries) = leaf.entries(guard, status.count()) {
            kernels::prefetch_lines(entries);
        }
    }

    /// Calls `visit` with the entries from `from` on, ascending and leaf by leaf, until it returns
    /// `false`. Returns the LSN at which everything that was read is durable.
    pub(super) fn visit_words(&self, from: u64, visit: &mut VisitWords<'_>) -> Result<Lsn>
    where
        C: for<'k> Codec<Key<'k> = u64>,
    {
        let mut resume = from;
        let mut snapshot = Snapshot::new();
        let mut seen = Seen::default();
        let mut verified = VerifiedNodes::new();
        loop {
            let (next, lsn) = {
                let guard = self.pool.pin();
                let (path, offset) =
                    self.descend_path(&guard, &DescentGoal::Key(resume), &mut seen)?;
                if guard.verifies() {
                    self.expect_way(&guard, &path, offset, &mut verified)?;
                }
                let mut siblings = Self::siblings(&guard, &path);
                let next = siblings.next();
                next.into_iter()
                    .chain(siblings)
                    .for_each(|leaf| kernels::prefetch_read(leaf.head));
                // The entries of this leaf are prefetched before those of the next: a processor
                // fetches only a few lines at a time.
                let meanwhile = || {
                    if let Some(leaf) = next {
                        Self::prefetch_entries(&guard, leaf);
                    }
                };
                self.snapshot(
                    &guard,
                    Self::leaf(&guard, offset)?,
                    resume,
                    &mut seen,
                    &mut snapshot,
                    meanwhile,
                )?;
                scan::expect_ascending(&snapshot, offset)?;
                let next = Self::upper_bound(&guard, &path)?.map(|separator| separator.word);
                (next, guard.left_to_caller(seen.lsn()))
            };
            if !snapshot.is_empty() && !visit(&snapshot, lsn) {
                return Ok(lsn);
            }
            match next {
                None => return Ok(lsn),
                Some(next) if next > resume => resume = next,
                Some(_) => return Err(Error::corrupt(self.anchor, "separators out of order")),
            }
        }
    }
}

impl<M: Medium, C: Codec> Leaves<M, C> for BzTree<M, C> {
    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    const HASH_BITS: HashBits = HashBits::FINGERPRINT;

    const MOVED_NODES: MovedNodes = MovedNodes::All;

    fn move_leaf(&self, low: &[u8]) -> Result<Moved> {
        self.relocate_nodes(C::bound(low))
    }

    fn copy_leaf(
        &self,
        guard: &Guard<'_, M>,
        goal: scan::Goal<'_>,
        direction: Direction,
        leaf: &mut LeafCopy,
    ) -> Result<Lsn> {
        let goal = match goal {
            scan::Goal::First => DescentGoal::First,
            scan::Goal::Last => DescentGoal::Last,
            scan::Goal::At(key) => DescentGoal::Key(C::bound(key)),
            scan::Goal::UpTo(key) => DescentGoal::Below(key, true),
            scan::Goal::Below(key) => DescentGoal::Below(key, false),
        };
        let mut seen = Seen::default();
        let mut snapshot = Snapshot::new();
        let (path, offset) = self.descend_path(guard, &goal, &mut seen)?;
        let mut range = WordBounds::default();
        if guard.verifies() {
            range = Self::expect_path(guard, &path, &mut VerifiedNodes::new())?;
        }
        self.snapshot(
            guard,
            Self::leaf(guard, offset)?,
            0,
            &mut seen,
            &mut snapshot,
            || {},
        )?;
        for end in snapshot.first().into_iter().chain(snapshot.last()) {
            range.expect(offset, end[0])?;
        }
        let lsn = guard.left_to_caller(seen.lsn());
        let end = match direction {
            Direction::Forward => Self::upper_bound(guard, &path)?,
            Direction::Reverse => Self::lower_bound(guard, &path)?,
        };
        leaf.offset = offset;
        leaf.entries.extend(snapshot);
        leaf.end = match end {
            Some(separator) => {
                let mut key = Vec::new();
                Self::copy_separator(guard, separator, &mut key)?;
                Some(key)
            }
            None => None,
        };
        Ok(lsn)
    }
}
