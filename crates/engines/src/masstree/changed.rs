//! Whether the running epoch has changed the state of a key, so that a crash would take that state
//! back.
//!
//! A writer stores the epoch word of a node before it changes the node. It stores the epoch of the
//! root before the root. A reader goes down to a key, and reads the epoch of each node after it has
//! read the pointer to the next one. If all of these epochs are earlier ones, the nodes are as they
//! were when the running epoch began. So a crash would leave the way to the key and its state as
//! the reader found them, also if the key is absent.
//!
//! The answer is about whole nodes: a change of another key in one of the nodes on the way counts
//! as well. A removed node counts through the node that led to it.
//!
//! The first touch of a node after an open stores the running epoch, too, though it changes nothing
//! (`recover`). It does not count:
//!
//! - An interior node is in the external log, or new, in each epoch that has changed it. After a
//!   first touch it lacks that flag.
//! - A border node has the flag [`TOUCHED`] until the first update of a value. A change that needs
//!   the external log sets [`LOGGED`]. The changes that are left are inserts and removals. After
//!   these the permutation differs from the one at the beginning of the epoch, which is in the
//!   permutation log.

use std::sync::atomic::{Ordering, fence};

use medium::Medium;

use super::access::{HEIGHT_MAX, NodeRef, TreeAccess, Walk};
use super::core::Core;
use super::layout::{Border, EPOCH_MASK, Interior, LOGGED, TOUCHED};
use super::options::Mode;
use super::slice::Slice;
use crate::Result;

impl<M: Medium> TreeAccess<'_, M> {
    /// Does the work of [`Core::has_changed`], for the epoch in which the view began.
    fn has_changed(&self, key: &[u8]) -> Walk<bool> {
        let root = &self.anchor()?.root;
        let mut pointer = root.value.load(&self.guard);
        // ORDER: the root is loaded before its epoch; pairs with the releases in `set`.
        if root.epoch.load(&self.guard) == self.epoch {
            return Ok(true);
        }

        let layers_max = key.len() / 8 + 1;
        let mut layer = 0;
        for _ in 0..HEIGHT_MAX * layers_max {
            let node = self.node(pointer)?;
            let below = self.step(&node, Slice::of(Slice::rest(key, layer)));
            if self.has_node_changed(&node) {
                return Ok(true);
            }
            let Some((_, child)) = below else {
                return Ok(false);
            };
            if let NodeRef::Border(_) = node {
                layer += 1;
            }
            pointer = child;
        }
        // Only a circle has this many levels.
        Err(self.damaged(pointer, "a layer that is too high"))
    }

    /// Whether a node has changed in the running epoch. If not, the caller has read the node as it
    /// was when that epoch began.
    fn has_node_changed(&self, node: &NodeRef<'_>) -> bool {
        // ORDER: all earlier loads of the node, also the relaxed ones of kernels, come before that
        // of its epoch word. A writer stores that word first, and all stores are releases.
        fence(Ordering::Acquire);
        match node {
            NodeRef::Border(node) => self.has_border_changed(node),
            NodeRef::Interior(node) => self.has_interior_changed(node),
        }
    }

    fn has_interior_changed(&self, node: &Interior) -> bool {
        let state = node.epoch.load(&self.guard);
        state & EPOCH_MASK == self.epoch && state & LOGGED != 0
    }

    fn has_border_changed(&self, node: &Border) -> bool {
        let state = node.epoch.load(&self.guard);
        if state & EPOCH_MASK != self.epoch {
            return false;
        }
        if state & TOUCHED == 0 || state & LOGGED != 0 {
            return true;
        }
        let at_begin = node.permutation_log.load(&self.guard);
        node.permutation.load(&self.guard) != at_begin
    }
}

impl<M: Medium> Core<M> {
    /// Whether a node on the way to `key` has changed in the running epoch. If not, a crash would
    /// leave the key as it is. No thread writes to the key meanwhile. O(log n).
    pub(super) fn has_changed(&self, key: &[u8]) -> Result<bool> {
        if self.mode == Mode::Transient {
            // The tree is lost with its process, so the end of an epoch saves nothing.
            return Ok(false);
        }
        let view = self.look();
        let found = view.has_changed(key);
        let is_valid = view.is_valid();
        if let Ok(has_changed) = found
            && is_valid
        {
            return Ok(has_changed);
        }
        self.with_pass_held(|view| view.has_changed(key))
    }
}
