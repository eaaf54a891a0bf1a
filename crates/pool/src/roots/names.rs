//! The names of a root table, in memory: made when they are first needed, and kept up to date.

use std::collections::{BTreeSet, HashMap};

use medium::{Medium, MediumGuard};

use super::pages::{RootPages, SLOTS_MAX};
use super::slot::RootSlot;
use super::{DamagedRoot, TreeRoot};

/// A slot that replaces another one, because a renaming or a change of encodings was interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Replacement {
    pub(super) slot: usize,
    pub(super) replaced: usize,
}

/// The trees of a root table by name, and the slots that hold none.
#[derive(Debug)]
pub(super) struct RootNames {
    slots: HashMap<String, usize>,
    damaged: Vec<DamagedRoot>,
    /// Slots that hold no tree any more.
    free: BTreeSet<usize>,
    /// The number of slots that were ever used.
    used: usize,
    /// Renamings and changes of encodings that were interrupted.
    pub(super) replacements: Vec<Replacement>,
}

impl RootNames {
    /// Reads all slots of a table of which `used` slots were ever used. O(slots).
    pub(super) fn load<M: Medium>(
        guard: &MediumGuard<'_, M>,
        pages: &RootPages,
        used: usize,
    ) -> Self {
        let mut names = Self {
            slots: HashMap::new(),
            damaged: Vec::new(),
            free: BTreeSet::new(),
            used,
            replacements: Vec::new(),
        };
        // If the number of slots in use was lost, all of them are read. If it was not durable
        // before a crash, the slot behind them may be in use.
        let end = if used == 0 { pages.slots() } else { used + 1 };
        for slot in 0..end.min(pages.slots()) {
            match pages.slot(guard, slot).read(guard, slot >= used) {
                RootSlot::Free => {
                    names.free.insert(slot);
                }
                RootSlot::Tree { tree, replaced } => {
                    names.used = names.used.max(slot + 1);
                    names.slots.insert(tree.name, slot);
                    // A number that is no other slot's is damage, and replaces none.
                    if let Some(replaced) = replaced
                        && replaced != slot
                        && replaced < pages.slots()
                    {
                        names.replacements.push(Replacement { slot, replaced });
                    }
                }
                RootSlot::Damaged(damaged) => {
                    names.used = names.used.max(slot + 1);
                    names.damaged.push(damaged);
                }
            }
        }
        names.leave_out_replaced(guard, pages);
        let used = names.used;
        names.free.retain(|slot| *slot < used);
        names
    }

    /// Takes the slots that others replace for what they are: slots that hold no tree. They are not
    /// free before their replacement is finished.
    fn leave_out_replaced<M: Medium>(&mut self, guard: &MediumGuard<'_, M>, pages: &RootPages) {
        for Replacement { slot, replaced } in &self.replacements {
            let replaced = *replaced;
            self.free.remove(&replaced);
            self.damaged.retain(|damaged| damaged.slot != replaced);
            if let RootSlot::Tree { tree, .. } = pages.slot(guard, replaced).read(guard, false)
                && self.slots.get(&tree.name) == Some(&replaced)
            {
                self.slots.remove(&tree.name);
            }
            // Both slots have the same name if the tree got other encodings, and the replaced one
            // may have been read last.
            if let RootSlot::Tree { tree, .. } = pages.slot(guard, *slot).read(guard, false) {
                self.slots.insert(tree.name, *slot);
            }
        }
    }

    /// The slot of the tree `name`.
    pub(super) fn slot_of(&self, name: &str) -> Option<usize> {
        self.slots.get(name).copied()
    }

    /// A damaged slot that may be that of the tree `name`.
    pub(super) fn damage_of(&self, name: &str) -> Option<&DamagedRoot> {
        self.damaged.iter().find(|damaged| damaged.may_be(name))
    }

    /// The slots with trees, in ascending order.
    pub(super) fn slots_in_use(&self) -> Vec<usize> {
        let mut slots: Vec<usize> = self.slots.values().copied().collect();
        slots.sort_unstable();
        slots
    }

    /// Those that cannot be found, in the order of their slots.
    pub(super) fn damaged(&self) -> &[DamagedRoot] {
        &self.damaged
    }

    /// The first slot without a tree; `None` if the table is full.
    pub(super) fn free_slot(&self) -> Option<usize> {
        match self.free.first() {
            Some(slot) => Some(*slot),
            None if self.used < SLOTS_MAX => Some(self.used),
            None => None,
        }
    }

    /// The tree is entered in its slot.
    pub(super) fn enter(&mut self, tree: &TreeRoot) {
        self.free.remove(&tree.slot);
        self.used = self.used.max(tree.slot + 1);
        self.slots.insert(tree.name.clone(), tree.slot);
    }

    /// The tree `replaced` has another name or other encodings, in the slot `slot`.
    pub(super) fn replace(&mut self, replaced: &TreeRoot, slot: usize) {
        self.slots.remove(&replaced.name);
        self.replacements.push(Replacement {
            slot,
            replaced: replaced.slot,
        });
    }

    /// The tree is gone from its slot.
    pub(super) fn remove(&mut self, tree: &TreeRoot) {
        self.slots.remove(&tree.name);
        self.free(tree.slot);
    }

    /// The slot holds no tree, and may be used.
    pub(super) fn free(&mut self, slot: usize) {
        self.free.insert(slot);
    }
}
