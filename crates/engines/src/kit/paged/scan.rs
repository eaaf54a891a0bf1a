//! Ranges in both directions: one leaf after the other, each copied as a whole.

use crate::Result;
use medium::{Lsn, Medium};
use pool::{Guard, Pool};
use smallvec::SmallVec;

use super::find::Path;
use super::{Format, Item, NodeKind, Paged, PagedNode};
use crate::index::{Codec, Direction, EntryWords, VisitWords};
use crate::kit::scan::{Goal, LeafCopy, LeafVersion, Leaves, Tied, Way, expect_ascending};

type Entries = SmallVec<[EntryWords; 64]>;

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F> {
    /// The entries of a leaf, in order.
    fn copy_entries(
        &self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        entries: &mut Entries,
    ) -> Result<()> {
        let order = self.order(guard, leaf, self.format.live(guard, leaf))?;
        if order.count() == 0 {
            self.expect_entries(guard, leaf)?;
        }
        entries.clear();
        entries.extend(order.slots().map(|slot| {
            let [word, value] = &leaf.entries[slot];
            [word.load(guard), value.load(guard)]
        }));
        Ok(())
    }

    /// Calls `visit` with the entries from `from` on, ascending and leaf by leaf, until it returns
    /// `false`. Follows the links as long as no writer comes between. Returns the LSN at which
    /// everything that was read is durable.
    pub fn visit_words(&self, from: u64, visit: &mut VisitWords<'_>) -> Result<Lsn>
    where
        C: for<'k> Codec<Key<'k> = u64>,
    {
        let mut from = from;
        let mut entries = Entries::new();
        let mut seen = Lsn::DURABLE;
        let mut next: Option<(u64, u64)> = None;
        let mut was_empty = false;
        loop {
            let guard = self.pool.peek();
            let (version, link, lsn) = self.latch.read(&guard, |version| {
                let leaf = match next {
                    Some((before, offset)) if before == version => {
                        self.node(&guard, offset, NodeKind::Leaf)?
                    }
                    _ => {
                        let mut path = Path::new();
                        let way = Way::Key(from, Tied::UpTo);
                        let leaf = self.descend(&guard, &way, |step| path.push(step))?;
                        if guard.verifies() {
                            self.expect_path(&guard, &path)?;
                        }
                        leaf
                    }
                };
                let link = Self::offset_in(&leaf, leaf.link().load(&guard))?;
                self.prefetch(&guard, link, NodeKind::Leaf);
                self.copy_entries(&guard, &leaf, &mut entries)?;
                expect_ascending(&entries, leaf.offset)?;
                Ok((version, link, self.latch.lsn(leaf.offset)))
            })?;
            let lsn = guard.left_to_caller(lsn);
            seen = seen.max(lsn);
            let start = entries.partition_point(|[key, _]| *key < from);
            match &entries[start..] {
                // Damaged links may run in a circle, which shows in the separators. One leaf may be
                // empty.
                [] if next.is_some() && (was_empty || !entries.is_empty()) => {
                    let rest = Leaves::visit_words(self, from, visit)?;
                    return Ok(seen.max(rest));
                }
                [] => {}
                entries if !visit(entries, lsn) => return Ok(seen),
                _ => {}
            }
            was_empty = entries.is_empty();
            let above = match entries.last() {
                None => Some(from),
                Some([last, _]) => from.max(*last).checked_add(1),
            };
            let Some(above) = above else {
                return Ok(seen);
            };
            if link == 0 {
                return Ok(seen);
            }
            from = above;
            next = Some((version, link));
        }
    }
}

impl<M: Medium, C: Codec, F: Format> Leaves<M, C> for Paged<M, C, F> {
    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    fn copy_leaf(
        &self,
        guard: &Guard<'_, M>,
        goal: Goal<'_>,
        direction: Direction,
        copy: &mut LeafCopy,
    ) -> Result<Lsn> {
        let way = goal.way::<C>();
        let mut entries = Entries::new();
        let lsn = self.latch.read(guard, |version| {
            let mut path = Path::new();
            let leaf = self.descend(guard, &way, |step| path.push(step))?;
            self.copy_entries(guard, &leaf, &mut entries)?;
            copy.offset = leaf.offset;
            copy.version = Some(LeafVersion::OfTree(version));
            if guard.verifies() {
                let range = self.expect_path(guard, &path)?;
                for end in entries.first().into_iter().chain(entries.last()) {
                    range.expect(leaf.offset, end[0])?;
                }
            }
            let end = self.end_of(guard, &path, direction)?;
            copy.end = end
                .map(|end| Self::key_of(guard, NodeKind::Inner, end))
                .transpose()?;
            Ok(self.latch.lsn(leaf.offset))
        })?;
        copy.entries.extend(entries);
        Ok(guard.left_to_caller(lsn))
    }

    fn is_unchanged(&self, guard: &Guard<'_, M>, version: LeafVersion) -> bool {
        match version {
            LeafVersion::OfTree(version) => self.latch.is_still(guard, version),
            LeafVersion::OfLeaf { .. } => false,
        }
    }
}

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F> {
    /// The separator above a leaf, or for a reverse scan the one below it: the lowest on its path.
    fn end_of(
        &self,
        guard: &Guard<'_, M>,
        path: &Path,
        direction: Direction,
    ) -> Result<Option<Item>> {
        for step in path.iter().rev() {
            let node = self.node(guard, step.offset, NodeKind::Inner)?;
            let order = self.order(guard, &node, self.format.live(guard, &node))?;
            let position = step
                .position
                .checked_sub(usize::from(direction == Direction::Reverse));
            // A writer may have removed entries meanwhile; then the result of this read does not
            // count.
            if let Some(position) = position.filter(|position| *position < order.count()) {
                let end = node.item(guard, order.slot(position));
                Self::tail_of(&node, end)?;
                return Ok(Some(end));
            }
        }
        Ok(None)
    }
}
