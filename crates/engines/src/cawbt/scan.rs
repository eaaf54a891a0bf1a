//! Ranges: some leaves at once forward, along their links; one leaf at a time backward.

use medium::{Lsn, Medium};
use pool::{Guard, Pool};

use super::find::{At, Way, too_deep};
use super::layout::Node;
use super::{CawbTree, LEVELS_MAX};
use crate::Result;
use crate::index::{Codec, Direction, EntryWords};
use crate::kit::scan::{Goal, LeafCopy, Leaves};

/// Entries after which a forward scan has read enough at once.
const ENTRIES: usize = 32;

/// Entries as a reader has found them.
struct Found {
    offset: u64,
    entries: Vec<EntryWords>,
    /// The entry at which the scan goes on: that of the first key of the next leaf, or of the leaf's own first key.
    end: Option<EntryWords>,
    lsn: Lsn,
}

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Goes down to a leaf. Returns it, and whether it is the first one.
    fn descend(&self, guard: &Guard<'_, M>, way: &Way<C::Key<'_>>) -> Result<Option<(At, Node, bool)>> {
        let (Some(mut at), mut is_first) = (self.at_root(), true) else { return Ok(None) };
        for _ in 0..=LEVELS_MAX {
            let node = Node::load(guard, at.offset)?;
            if node.is_leaf() {
                return Ok(self.is_still(at).then_some((at, node, is_first)));
            }
            let (position, _) = self.rank_way(guard, &node, way)?;
            is_first &= position == 0;
            let Some(child) = self.go_on(at, node.pointer(position)) else { return Ok(None) };
            at = child;
        }
        Err(too_deep(at.offset))
    }

    fn entries(&self, node: &Node) -> impl Iterator<Item = EntryWords> {
        (0..node.count()).map(|position| self.ids.entry(node.id(position)))
    }

    /// Reads from a leaf on, until there are enough entries, a writer comes between, or the direction is backward.
    fn gather(
        &self,
        guard: &Guard<'_, M>,
        way: &Way<C::Key<'_>>,
        direction: Direction,
    ) -> Result<Option<Found>> {
        let Some((mut at, mut node, is_first)) = self.descend(guard, way)? else { return Ok(None) };
        let mut found = Found { offset: at.offset, entries: Vec::new(), end: None, lsn: Lsn::DURABLE };
        loop {
            found.entries.extend(self.entries(&node));
            found.lsn = found.lsn.max(self.versions.lsn(at.offset));
            if direction == Direction::Reverse {
                // The keys from its first one on are in this leaf and behind it.
                found.end = found.entries.first().copied().filter(|_| !is_first);
                return Ok(self.is_still(at).then_some(found));
            }
            if node.next() == 0 {
                return Ok(self.is_still(at).then_some(found));
            }
            let Some(next) = self.go_on(at, node.next()) else { return Ok(None) };
            let behind = Node::load(guard, next.offset)?;
            if found.entries.len() >= ENTRIES {
                found.end = self.entries(&behind).next();
                found.lsn = found.lsn.max(self.versions.lsn(next.offset));
                return Ok(self.is_still(next).then_some(found));
            }
            (at, node) = (next, behind);
        }
    }
}

impl<M: Medium, C: Codec> Leaves<M, C> for CawbTree<M, C> {
    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    fn copy_leaf(
        &self,
        guard: &Guard<'_, M>,
        goal: Goal<'_>,
        direction: Direction,
        copy: &mut LeafCopy,
    ) -> Result<()> {
        let way = match goal {
            Goal::First => Way::First,
            Goal::Last => Way::Last,
            // The bound of bytes that are too short for a word is the first word above them.
            Goal::UpTo(key) if !C::TIES && key.len() < 8 => Way::Below(C::bound(key)),
            Goal::Below(key) if !C::is_rounded(key) => Way::Below(C::bound(key)),
            Goal::At(key) | Goal::UpTo(key) | Goal::Below(key) => Way::Key(C::bound(key)),
        };
        let found = self.read(guard, || self.gather(guard, &way, direction))?;
        guard.wait_for(found.lsn)?;
        (copy.offset, copy.entries) = (found.offset, found.entries);
        if let Some(end) = found.end {
            C::copy_key(guard, end, copy.end.insert(Vec::new()))?;
        }
        Ok(())
    }
}
