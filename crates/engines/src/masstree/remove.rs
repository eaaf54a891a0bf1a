//! Removal: of a key, of nodes that it leaves empty, of layers that they leave empty.
//!
//! Nodes are not merged; a node goes when its last key goes. An interior node goes with its last child, a layer with its
//! last node, and its entry in the layer above with it, which may be the last of its node, and so on up. The first layer
//! keeps one border node. A root with a single child gives its place to that.

use medium::Medium;

use super::access::{View, Walk};
use super::find::{Entry, Locked};
use super::in_line_log::Change;
use super::layout::{Border, OFFSET_MASK};
use super::permutation::Permutation;
use super::shard::Work;
use super::split::{InteriorLock, Parent, RootLock};
use super::version::Lock;

/// A node that goes, locked.
struct Doomed<'v, M: Medium> {
    lock: Lock<'v, M>,
    pointer: u64,
    /// A border node, and the slot of its last entry.
    border: Option<(&'v Border, usize)>,
}

/// What becomes of the lowest node that stays.
enum Remainder<'v, M: Medium> {
    /// The border node of the first layer stays without a key, as its root.
    Empty(Doomed<'v, M>, RootLock<'v, M>),
    /// A border node loses an entry.
    Entry { lock: Lock<'v, M>, node: &'v Border, pointer: u64, slot: usize },
    /// An interior node loses a child; if it is a root with one child left, that becomes the root.
    Child(InteriorLock<'v, M>, Option<RootLock<'v, M>>),
}

impl<M: Medium> View<'_, M> {
    /// Removes the entry of a key from a locked border node.
    pub(super) fn remove(
        &self,
        work: &mut Work<'_>,
        place: Locked<'_, M>,
        entry: Entry,
        key: &[u8],
    ) -> Walk<()> {
        let mut doomed = Vec::new();
        let remainder = if place.permutation.count(self.core.width) > 1 {
            let Locked { lock, node, pointer, .. } = place;
            Remainder::Entry { lock, node, pointer, slot: entry.slot }
        } else {
            let Locked { lock, node, pointer, depth, .. } = place;
            let first = Doomed { lock, pointer, border: Some((node, entry.slot)) };
            self.find_remainder(key, depth, first, &mut doomed)?
        };
        self.prepare_remainder(work, &remainder)?;
        self.apply_remainder(work, remainder, &mut doomed)?;
        // All of them are gone, whether or not their space can be given back.
        doomed.iter_mut().for_each(|node| node.lock.delete());
        for node in doomed {
            self.free(work, node.pointer & OFFSET_MASK)?;
        }
        // The value of a word lies in the node.
        if self.core.are_words { Ok(()) } else { self.free(work, entry.value) }
    }

    /// Locks upwards what goes with an empty border node, and the first node that stays.
    fn find_remainder<'v>(
        &'v self,
        key: &[u8],
        mut depth: usize,
        first: Doomed<'v, M>,
        doomed: &mut Vec<Doomed<'v, M>>,
    ) -> Walk<Remainder<'v, M>> {
        let mut trail = Vec::new();
        if depth > 0 {
            self.place_along(key, depth, |layer, border| {
                trail.truncate(layer);
                trail.push(border);
            })?;
        }
        let mut child = first.pointer;
        doomed.push(first);
        loop {
            let known = match depth.checked_sub(1).and_then(|above| trail.get(above)) {
                Some(border) => self.lock_entry_of(key, depth, child, *border)?,
                None => None,
            };
            let parent = match known {
                Some(parent) => parent,
                None => self.lock_parent(key, depth, child)?,
            };
            match parent {
                Parent::Interior(parent) => {
                    let count = parent.node.shape.load(&self.guard) & 15;
                    if count > 0 {
                        let root =
                            if count == 1 { self.lock_if_root(key, depth, parent.pointer)? } else { None };
                        return Ok(Remainder::Child(parent, root));
                    }
                    child = parent.pointer;
                    doomed.push(Doomed { lock: parent.lock, pointer: child, border: None });
                }
                Parent::Root(RootLock::Entry { lock, node, pointer, slot }) => {
                    if Permutation(node.permutation.load(&self.guard)).count(self.core.width) > 1 {
                        return Ok(Remainder::Entry { lock, node, pointer, slot });
                    }
                    (child, depth) = (pointer, depth - 1);
                    doomed.push(Doomed { lock, pointer, border: Some((node, slot)) });
                }
                Parent::Root(root @ RootLock::Anchor(_)) => {
                    // The border node of this layer is the last one that was pushed.
                    let position = doomed.iter().rposition(|node| node.border.is_some()).unwrap_or(0);
                    return Ok(Remainder::Empty(doomed.remove(position), root));
                }
            }
        }
    }

    /// Locks the place of a layer's root, if `node` is that root.
    fn lock_if_root(&self, key: &[u8], depth: usize, node: u64) -> Walk<Option<RootLock<'_, M>>> {
        match self.lock_parent(key, depth, node)? {
            Parent::Root(root) => Ok(Some(root)),
            Parent::Interior(_) => Ok(None),
        }
    }

    fn prepare_remainder(&self, work: &mut Work<'_>, remainder: &Remainder<'_, M>) -> Walk<()> {
        match remainder {
            Remainder::Empty(node, _) => match node.border {
                Some((border, _)) => self.prepare(work, node.pointer, border, Change::Remove).map(drop),
                None => Ok(()),
            },
            Remainder::Entry { node, pointer, .. } => {
                self.prepare(work, *pointer, node, Change::Remove).map(drop)
            }
            Remainder::Child(parent, root) => {
                if let Some(root) = root {
                    self.prepare_root(work, root)?;
                }
                self.prepare_interior(work, parent.pointer, parent.node)
            }
        }
    }

    fn remove_entry(&self, node: &Border, slot: usize) {
        let permutation = Permutation(node.permutation.load(&self.guard));
        let position = permutation.position(slot);
        if position < permutation.count(self.core.width) {
            // PERSIST: nothing; durable with the epoch, and undone by the permutation log if that fails.
            node.permutation.store(&self.guard, permutation.removed(position, self.core.width).0);
        }
    }

    fn apply_remainder<'v>(
        &'v self,
        work: &mut Work<'_>,
        remainder: Remainder<'v, M>,
        doomed: &mut Vec<Doomed<'v, M>>,
    ) -> Walk<()> {
        match remainder {
            Remainder::Empty(node, mut root) => {
                let Some((border, slot)) = node.border else { return Ok(()) };
                self.remove_entry(border, slot);
                if self.anchor()?.root.value.load(&self.guard) != node.pointer {
                    self.set_root(work, &mut root, node.pointer)?;
                }
            }
            Remainder::Entry { node, slot, lock, .. } => {
                self.remove_entry(node, slot);
                drop(lock);
            }
            Remainder::Child(mut parent, root) => {
                parent.lock.begin_change();
                let mut parts = self.parts(parent.node);
                parts.remove(parent.position)?;
                match root {
                    None => self.store_parts(parent.node, &parts.separators, &parts.children),
                    Some(mut root) => {
                        self.set_root(work, &mut root, parts.children[0])?;
                        doomed.push(Doomed { lock: parent.lock, pointer: parent.pointer, border: None });
                    }
                }
            }
        }
        Ok(())
    }
}
