//! Removal: of a key, of nodes that it leaves empty, of layers that they leave empty.
//!
//! Nodes are not merged: a node is removed with its last key, an interior node with its last child,
//! and a layer with its last node. Then the layer's entry in the layer above is removed, which may
//! be the last of its node, and so on up. The first layer keeps one border node. A root with a
//! single child is replaced by the child.

use medium::Medium;

use super::access::{TreeAccess, Walk};
use super::find::{BorderEntry, LockedBorder};
use super::in_line_log::BorderChange;
use super::permutation::Permutation;
use super::shard::Work;
use super::split::{EntryLock, InteriorLock, Parent, RootLock};
use super::version::Lock;

/// Locks of nodes that are removed.
type Doomed<'v, M> = Vec<Lock<'v, M>>;

impl<M: Medium> TreeAccess<'_, M> {
    /// Removes the entry of a key from a locked border node.
    pub(super) fn remove(
        &self,
        work: &mut Work<'_>,
        place: LockedBorder<'_, M>,
        entry: BorderEntry,
        key: &[u8],
    ) -> Walk<()> {
        let LockedBorder {
            lock,
            node,
            depth,
            permutation,
            ..
        } = place;
        let own = EntryLock {
            lock,
            node,
            slot: entry.slot,
        };
        if permutation.count(self.core.width) > 1 {
            self.remove_entry(work, &own)?;
            drop(own);
        } else {
            self.remove_nodes(work, key, depth, own)?;
        }
        // The value of a word lies in the node.
        if self.core.are_words {
            Ok(())
        } else {
            self.free(work, entry.value)
        }
    }

    fn remove_entry(&self, work: &mut Work<'_>, entry: &EntryLock<'_, M>) -> Walk<()> {
        self.prepare(work, entry.node, BorderChange::Remove)?;
        let permutation = Permutation(entry.node.permutation.load(&self.guard));
        let position = permutation.position(entry.slot);
        if position < permutation.count(self.core.width) {
            // PERSIST: nothing; durable with the epoch, and undone by the permutation log if that
            // fails.
            entry.node.permutation.store(
                &self.guard,
                permutation.removed(position, self.core.width).0,
            );
        }
        Ok(())
    }

    /// Removes the last entry of a border node, and all nodes that become empty by that. Locks
    /// upwards, up to the first node that stays.
    fn remove_nodes<'v>(
        &'v self,
        work: &mut Work<'_>,
        key: &[u8],
        depth: usize,
        mut last: EntryLock<'v, M>,
    ) -> Walk<()> {
        let mut child = self.guard.offset_of(last.node);
        let mut doomed = Doomed::new();
        loop {
            match self.lock_parent(key, depth, child)? {
                Parent::Interior(parent) if self.separators(&parent) == 0 => {
                    child = self.pointer_to(parent.node);
                    doomed.push(parent.lock);
                }
                Parent::Interior(parent) => {
                    let mut root = None;
                    if self.separators(&parent) == 1
                        && let Parent::Root(place) =
                            self.lock_parent(key, depth, self.pointer_to(parent.node))?
                    {
                        root = Some(place);
                    }
                    doomed.push(last.lock);
                    self.remove_child(work, parent, root, &mut doomed)?;
                    break;
                }
                Parent::Root(RootLock::Entry(entry)) => {
                    child = self.guard.offset_of(entry.node);
                    doomed.push(std::mem::replace(&mut last, entry).lock);
                    if Permutation(last.node.permutation.load(&self.guard)).count(self.core.width)
                        > 1
                    {
                        self.remove_entry(work, &last)?;
                        break;
                    }
                }
                // The border node of the first layer stays without a key, as its root.
                Parent::Root(mut root) => {
                    self.remove_entry(work, &last)?;
                    let pointer = self.guard.offset_of(last.node);
                    if self.anchor()?.root.value.load(&self.guard) != pointer {
                        self.set_root(work, &mut root, pointer)?;
                    }
                    break;
                }
            }
        }
        // All of them are removed, whether or not their space can be given back.
        doomed.iter_mut().for_each(Lock::delete);
        doomed
            .into_iter()
            .try_for_each(|lock| self.free(work, lock.node()))
    }

    /// Removes a child of an interior node. If that is a root, whose place is `root`, the child
    /// that is left becomes the root.
    fn remove_child<'v>(
        &'v self,
        work: &mut Work<'_>,
        parent: InteriorLock<'v, M>,
        root: Option<RootLock<'v, M>>,
        doomed: &mut Doomed<'v, M>,
    ) -> Walk<()> {
        let InteriorLock {
            mut lock,
            node,
            position,
            ..
        } = parent;
        if let Some(root) = &root {
            self.prepare_root(work, root)?;
        }
        self.prepare_interior(work, node)?;
        lock.begin_change();
        let mut parts = self.parts(node);
        parts.children.remove(position);
        parts.separators.remove(position.saturating_sub(1));
        match root {
            None => self.store_parts(node, &parts.separators, &parts.children),
            Some(mut root) => {
                self.set_root(work, &mut root, parts.children[0])?;
                doomed.push(lock);
            }
        }
        Ok(())
    }
}
