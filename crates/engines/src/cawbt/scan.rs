//! Ranges. A forward scan reads several leaves at once, along their links; a reverse scan reads one
//! leaf at a time.

use super::CawbTree;
use super::find::Around;
use super::layout::{LEAF_ENTRIES, LoadedNode};
use crate::index::{HashBits, Moved};
use crate::kit::prelude::*;
use crate::kit::scan::{MovedNodes, Way};

/// Entries after which a forward scan has read enough at once.
pub(super) const ENTRIES: usize = 32;

impl<M: Medium, C: Codec> CawbTree<M, C> {
    fn entries(&self, node: &LoadedNode) -> impl Iterator<Item = EntryWords> {
        (0..node.count()).map(|position| self.ids.entry(node.id(position)))
    }

    /// Reads from a leaf on, until there are enough entries, or the direction is backward. Returns
    /// the entry at which the scan goes on (that of the first key of the next leaf, or of the
    /// leaf's own first key), and the LSN at which everything that was read is durable. Notes the
    /// keys next to the way to the first leaf.
    fn gather(
        &self,
        guard: &Guard<'_, M>,
        way: &Way<C::Key<'_>>,
        direction: Direction,
        around: &mut Around,
        copy: &mut LeafCopy,
    ) -> Result<Option<(Option<EntryWords>, Lsn)>> {
        let Some((mut at, mut node, _, is_first)) = self.descend_noting(guard, way, around)? else {
            return Ok(None);
        };
        copy.offset = at.offset;
        copy.entries.clear();
        copy.entries.reserve(ENTRIES + LEAF_ENTRIES);
        let mut lsn = Lsn::DURABLE;
        loop {
            copy.entries.extend(self.entries(&node));
            lsn = lsn.max(self.versions.lsn(at.offset));
            if direction == Direction::Reverse || node.next() == 0 {
                // In a reverse scan the keys from the leaf's first one on are in this leaf and
                // behind it, so the scan goes on below it.
                let end = if direction == Direction::Reverse && !is_first {
                    copy.entries.first().copied()
                } else {
                    None
                };
                return Ok(self.is_still(at).then_some((end, lsn)));
            }
            let Some(next) = self.go_on(at, node.next()) else {
                return Ok(None);
            };
            if node.count() == 0 {
                return Ok(None);
            }
            at = next;
            node = LoadedNode::load(guard, next.offset)?;
            if copy.entries.len() >= ENTRIES {
                let end = self.entries(&node).next();
                return Ok(self
                    .is_still(at)
                    .then_some((end, lsn.max(self.versions.lsn(at.offset)))));
            }
        }
    }
}

impl<M: Medium, C: Codec> Leaves<M, C> for CawbTree<M, C> {
    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    const MOVED_NODES: MovedNodes = MovedNodes::All;

    fn move_leaf(&self, low: &[u8]) -> Result<Moved> {
        self.relocate_nodes(low)
    }

    fn copy_leaf(
        &self,
        guard: &Guard<'_, M>,
        goal: Goal<'_>,
        direction: Direction,
        copy: &mut LeafCopy,
    ) -> Result<Lsn> {
        let way = goal.way::<C>();
        let mut around = Around::default();
        let (end, lsn) = self.read(guard, || {
            self.gather(guard, &way, direction, &mut around, copy)
        })?;
        let lsn = guard.left_to_caller(lsn);
        self.expect_around(guard, &way, around)?;
        if let Some(end) = end {
            // The scan goes on from this key.
            C::expect_key(guard, end)?;
            let key = copy.end.insert(Vec::new());
            C::copy_key(guard, end, key)?;
            if guard.verifies() && !C::fits(end, C::key(key)?, HashBits::ALL) {
                return Err(Error::corrupt(
                    copy.offset,
                    "an entry that leads to the record of another key",
                ));
            }
        }
        Ok(lsn)
    }
}
