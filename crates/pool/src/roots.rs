//! The root table: the named trees of a pool.
//!
//! Each tree has a slot (`slot`). The first slots lie in the pool's prefix, the others in pages
//! (`pages`). A name leads to its slot in memory (`names`).
//!
//! # Commit points
//!
//! - A tree is made by the state of its slot's first copy, once both copies are written and fenced.
//! - It is removed by the same word.
//! - It gets another name in three steps: a new slot with the same root words is published, whose
//!   state says that it replaces the old slot; the old slot is cleared; the new state is published
//!   once more without that. From the first step on the old slot counts as empty. The next change of
//!   the table takes the rest of the steps if a crash comes between them.
//! - It gets other encodings in the same three steps: the new slot has the same name.

mod copies;
mod encodings;
mod names;
mod pages;
mod slot;

use medium::{Medium, MediumGuard};

use crate::header::{StateWord, unchecked};
use crate::lost_copy::LostCopy;
use crate::space::Space;
use crate::{Error, ErrorKind, Result};
use copies::BadPart;
pub use encodings::{ENCODINGS_BYTES_MAX, Encodings, NewTree};
use names::{Replacement, RootNames};
use pages::RootPages;
use slot::{NewSlot, RootSlot, SlotState, UsedSlot};

/// The longest name of a tree, in bytes.
pub const TREE_NAME_BYTES_MAX: usize = 128;
/// Root words that an engine may keep.
pub const ROOT_WORDS: usize = 8;
/// The most trees in a pool.
pub const TREES_MAX: usize = pages::SLOTS_MAX;

/// A named tree as the root table has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeRoot {
    /// Its slot in the table.
    pub slot: usize,
    /// Its name.
    pub name: String,
    /// The engine that made it, by number.
    pub engine: u16,
    /// How its entries are coded, by number.
    pub codec: u16,
    /// The encodings of its keys and values; `None` if it is a tree of byte strings.
    pub encodings: Option<Encodings>,
    /// The root words of the engine, 48 bits each.
    pub words: [u64; ROOT_WORDS],
}

impl TreeRoot {
    /// Refuses the tree unless it was made by this engine, with this codec, and with the wanted
    /// nodes. `nodes` describes in words the nodes that it has, and those that are wanted.
    ///
    /// # Errors
    /// [`ErrorKind::TreeMismatch`].
    pub fn demand(&self, engine: u16, codec: u16, nodes: &[String; 2]) -> Result<()> {
        // The error names the first difference.
        let (found, wanted) = match () {
            () if self.engine != engine => (format!("engine {}", self.engine), engine.to_string()),
            () if self.codec != codec => (format!("codec {}", self.codec), codec.to_string()),
            () if nodes[0] != nodes[1] => (nodes[0].clone(), nodes[1].clone()),
            () => return Ok(()),
        };
        Err(ErrorKind::TreeMismatch {
            name: self.name.clone(),
            found,
            wanted,
        }
        .into())
    }

    /// The state of its slot, once it replaces no other.
    fn state(&self) -> SlotState {
        SlotState::InUse(UsedSlot {
            engine: self.engine,
            codec: self.codec,
            replaces: false,
        })
    }
}

/// A slot of the table that is damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedRoot {
    /// The name of its tree, if that can be read.
    pub name: Option<String>,
    /// Its slot in the table.
    pub slot: usize,
    /// The slot's offset in the file.
    pub offset: u64,
    /// The damage, in words.
    pub what: String,
    /// Its tree, under [`DamagedRoot::label`], if only the name or the encodings are damaged; damaged
    /// encodings are left out. `None` if the root words are damaged, so that the tree cannot be
    /// found.
    pub tree: Option<TreeRoot>,
}

impl DamagedRoot {
    /// The tree's name, or one that is made up from the slot.
    #[must_use]
    pub fn label(&self) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| slot::label_of(self.slot))
    }

    /// The damage as an error.
    #[must_use]
    pub fn error(&self) -> Error {
        Error::corrupt(self.offset, self.what.clone())
    }

    /// Whether its tree may be the one of this name.
    fn may_be(&self, name: &str) -> bool {
        self.name.as_deref().is_none_or(|own| own == name)
    }
}

/// All named trees of a pool.
#[derive(Clone, Default, Debug)]
pub struct Roots {
    /// Those that can be found, in the order of their slots.
    pub trees: Vec<TreeRoot>,
    /// Those that cannot.
    pub damaged: Vec<DamagedRoot>,
}

impl Roots {
    /// The tree `name`; `None` if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if there is no such tree, but a damaged slot that may be its slot.
    pub fn find(&self, name: &str) -> Result<Option<&TreeRoot>> {
        if let Some(tree) = self.trees.iter().find(|tree| tree.name == name) {
            return Ok(Some(tree));
        }
        match self.damaged.iter().find(|damaged| damaged.may_be(name)) {
            Some(damaged) => Err(damaged.error()),
            None => Ok(None),
        }
    }

    /// All trees whose root words are whole, including those whose names or encodings are damaged.
    pub fn all(&self) -> impl Iterator<Item = &TreeRoot> {
        self.trees.iter().chain(
            self.damaged
                .iter()
                .filter_map(|damaged| damaged.tree.as_ref()),
        )
    }
}

/// A tree that is to be entered in the root table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRoot<'t> {
    pub(crate) tree: NewTree<'t>,
    pub(crate) engine: u16,
    pub(crate) codec: u16,
    pub(crate) words: &'t [u64; ROOT_WORDS],
}

impl<'t> NewRoot<'t> {
    /// An existing tree with another name or with other encodings.
    fn of_existing(tree: NewTree<'t>, existing: &'t TreeRoot) -> Self {
        Self {
            tree,
            engine: existing.engine,
            codec: existing.codec,
            words: &existing.words,
        }
    }

    fn state(&self, replaces: bool) -> SlotState {
        SlotState::InUse(UsedSlot {
            engine: self.engine,
            codec: self.codec,
            replaces,
        })
    }
}

/// The number of slots that were ever used. The slots behind them begin with a zero. A used slot
/// that begins with a zero is damaged, for example because the disk lost its page.
fn slots_used<M: Medium>(guard: &MediumGuard<'_, M>) -> Result<usize> {
    let word = guard.words(StateWord::Slots.offset(), 1)?[0].load(guard);
    // If this word fails its check, such damage is not noticed.
    Ok(unchecked(word).unwrap_or(0) as usize)
}

/// The root table of an open pool. The caller serialises.
#[derive(Debug)]
pub(crate) struct RootTable {
    pages: RootPages,
    /// `None` until a name is first asked for.
    names: Option<RootNames>,
}

impl RootTable {
    /// The table of a pool whose space is open. After a crash it marks its own pages. O(pages).
    pub(crate) fn open<M: Medium>(guard: &MediumGuard<'_, M>, space: &Space) -> Result<Self> {
        let mut pages = RootPages::load(guard, slots_used(guard)?)?;
        if space.needs_mark() {
            pages.mark(guard, space);
        }
        Ok(Self { pages, names: None })
    }

    /// The allocations that the table takes.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.allocations()
    }

    /// The names of the table. O(slots) at the first call, then O(1).
    fn names<M: Medium>(&mut self, guard: &MediumGuard<'_, M>) -> Result<&mut RootNames> {
        let names = match self.names.take() {
            Some(names) => names,
            None => RootNames::load(guard, &self.pages, slots_used(guard)?),
        };
        Ok(self.names.insert(names))
    }

    /// All trees. O(slots).
    pub(crate) fn list<M: Medium>(&mut self, guard: &MediumGuard<'_, M>) -> Result<Roots> {
        let names = self.names(guard)?;
        let mut roots = Roots {
            trees: Vec::new(),
            damaged: names.damaged().to_vec(),
        };
        for slot in names.slots_in_use() {
            match self.pages.slot(guard, slot).read(guard, false) {
                RootSlot::Tree { tree, .. } => roots.trees.push(tree),
                RootSlot::Damaged(damaged) => roots.damaged.push(damaged),
                RootSlot::Free => {}
            }
        }
        Ok(roots)
    }

    /// The tree `name`; `None` if there is none. O(1), but for the first call.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if its slot is damaged, or if there is no such tree, but a damaged
    /// slot that may be its slot.
    pub(crate) fn find<M: Medium>(
        &mut self,
        guard: &MediumGuard<'_, M>,
        name: &str,
    ) -> Result<Option<TreeRoot>> {
        let names = self.names(guard)?;
        let Some(slot) = names.slot_of(name) else {
            return match names.damage_of(name) {
                Some(damaged) => Err(damaged.error()),
                None => Ok(None),
            };
        };
        match self.pages.slot(guard, slot).read(guard, false) {
            RootSlot::Tree { tree, .. } => Ok(Some(tree)),
            RootSlot::Damaged(damaged) => Err(damaged.error()),
            RootSlot::Free => Ok(None),
        }
    }

    /// Adds a tree whose nodes are flushed; durable when this returns. O(1).
    pub(crate) fn create<M: Medium>(
        &mut self,
        guard: &MediumGuard<'_, M>,
        space: &Space,
        new: &NewRoot<'_>,
    ) -> Result<TreeRoot> {
        self.finish_replacements(guard)?;
        self.enter(guard, space, new, None)
    }

    /// Gives a tree another name, and so another slot; durable when this returns. A crash leaves it
    /// with one of the two names. No thread has the tree open. O(1).
    pub(crate) fn rename<M: Medium>(
        &mut self,
        guard: &MediumGuard<'_, M>,
        space: &Space,
        tree: &TreeRoot,
        name: &str,
    ) -> Result<TreeRoot> {
        let renamed = NewTree {
            name,
            encodings: tree.encodings.as_ref(),
        };
        self.replace(guard, space, tree, renamed)
    }

    /// Gives a tree other encodings, and so another slot; durable when this returns. A crash leaves
    /// it with the old or with the new ones. The tree may be open. O(1).
    pub(crate) fn set_encodings<M: Medium>(
        &mut self,
        guard: &MediumGuard<'_, M>,
        space: &Space,
        tree: &TreeRoot,
        encodings: Option<&Encodings>,
    ) -> Result<TreeRoot> {
        let encoded = NewTree {
            name: &tree.name,
            encodings,
        };
        self.replace(guard, space, tree, encoded)
    }

    /// Enters an existing tree in another slot, with the name and the encodings of `new`.
    fn replace<M: Medium>(
        &mut self,
        guard: &MediumGuard<'_, M>,
        space: &Space,
        tree: &TreeRoot,
        new: NewTree<'_>,
    ) -> Result<TreeRoot> {
        self.finish_replacements(guard)?;
        let new = NewRoot::of_existing(new, tree);
        let entered = self.enter(guard, space, &new, Some(tree))?;
        self.finish_replacements(guard)?;
        Ok(entered)
    }

    /// Enters a tree in a free slot, in place of the tree `replaced`, if one is named.
    fn enter<M: Medium>(
        &mut self,
        guard: &MediumGuard<'_, M>,
        space: &Space,
        new: &NewRoot<'_>,
        replaced: Option<&TreeRoot>,
    ) -> Result<TreeRoot> {
        let NewTree { name, encodings } = new.tree;
        let length = name.len();
        if length == 0 || length > TREE_NAME_BYTES_MAX {
            return Err(ErrorKind::BadTreeName {
                length,
                limit: TREE_NAME_BYTES_MAX,
            }
            .into());
        }
        if let Some(encodings) = encodings {
            encodings.check()?;
        }
        let names = self.names(guard)?;
        let replaced_slot = replaced.map(|tree| tree.slot);
        let slot_of_name = names.slot_of(name);
        // A tree that gets other encodings keeps its name.
        if slot_of_name.is_some() && slot_of_name != replaced_slot {
            return Err(ErrorKind::TreeExists {
                name: name.to_owned(),
            }
            .into());
        }
        if let Some(damaged) = names.damage_of(name) {
            return Err(damaged.error());
        }
        let Some(slot) = names.free_slot() else {
            return Err(ErrorKind::TooManyTrees { limit: TREES_MAX }.into());
        };
        self.pages.reach(guard, space, slot)?;
        let copies = self.pages.slot(guard, slot);
        let state = new.state(replaced.is_some());
        copies.prepare(
            guard,
            &NewSlot {
                tree: new.tree,
                state,
                roots: new.words,
                replaced: replaced_slot,
            },
        );
        guard.fence();
        if slot >= slots_used(guard)? {
            // PERSIST: the slot holds no zeros any more; if this is lost, zeros that a disk leaves
            // there are not noticed.
            StateWord::Slots.publish(guard, slot as u64 + 1)?;
        }
        // PERSIST: both copies of the slot and the tree's first nodes are ordered before; if this
        // is lost, the tree does not exist.
        copies.publish_state(guard, state);
        if let Err(error) = guard.drain() {
            // The next open may find the tree or not. For this process it does not exist: the
            // caller owns its nodes again.
            copies.store_state(guard, SlotState::Free);
            return Err(error.into());
        }
        let tree = TreeRoot {
            slot,
            name: name.to_owned(),
            engine: new.engine,
            codec: new.codec,
            encodings: encodings.cloned(),
            words: *new.words,
        };
        let names = self.names(guard)?;
        if let Some(replaced) = replaced {
            names.replace(replaced, slot);
        }
        // Last, because the replaced tree may have the same name.
        names.enter(&tree);
        Ok(tree)
    }

    /// The copies of the table that are damaged or outdated while the other copy is whole. O(slots).
    pub(crate) fn lost_copies<M: Medium>(
        &mut self,
        guard: &MediumGuard<'_, M>,
    ) -> Result<Vec<LostCopy>> {
        let bad = self.bad_parts(guard)?;
        Ok(bad.iter().map(|part| self.describe(part)).collect())
    }

    /// Writes the copies that are damaged or outdated anew, each from the other copy. Durable when
    /// this returns. Returns the copies that it has written. O(slots).
    pub(crate) fn mend_copies<M: Medium>(
        &mut self,
        guard: &MediumGuard<'_, M>,
    ) -> Result<Vec<LostCopy>> {
        self.finish_replacements(guard)?;
        let mut mended = Vec::new();
        for part in self.bad_parts(guard)? {
            if self.mend(guard, &part)? {
                mended.push(self.describe(&part));
            }
        }
        guard.drain()?;
        Ok(mended)
    }

    /// Writes a part anew, and flushes it. Returns whether it could.
    fn mend<M: Medium>(&self, guard: &MediumGuard<'_, M>, part: &BadPart) -> Result<bool> {
        match *part {
            BadPart::OfSlot {
                slot, copy, part, ..
            } => {
                let copies = self.pages.slot(guard, slot).copies;
                let [Some(from), Some(to)] = [copies[1 - copy], copies[copy]] else {
                    return Ok(false);
                };
                copies::copy_part(guard, part, from, to);
            }
            BadPart::OfDirectory {
                offset,
                value: Some(value),
                ..
            } => copies::write_offset(guard, offset, value)?,
            BadPart::OfDirectory { value: None, .. } => return Ok(false),
        }
        Ok(true)
    }

    /// The parts of the table that are damaged or outdated in one copy.
    fn bad_parts<M: Medium>(&mut self, guard: &MediumGuard<'_, M>) -> Result<Vec<BadPart>> {
        let mut bad = self.pages.bad_parts(guard)?;
        let used = slots_used(guard)?;
        // If the number of slots in use is lost, the slots that hold zeros were never used.
        let end = if used == 0 { self.pages.slots() } else { used };
        let replacements = self.names(guard)?.replacements.clone();
        for slot in 0..end.min(self.pages.slots()) {
            // A slot that is replaced is empty, whatever it holds.
            if !replacements.iter().any(|other| other.replaced == slot) {
                bad.extend(self.pages.slot(guard, slot).bad_parts(guard));
            }
        }
        Ok(bad)
    }

    fn describe(&self, part: &BadPart) -> LostCopy {
        let slot_offset = match *part {
            BadPart::OfSlot { slot, copy, .. } => self.pages.offset_of(slot, copy),
            BadPart::OfDirectory { .. } => None,
        };
        part.describe(slot_offset)
    }

    /// Finishes renamings that were interrupted: clears the slots that are replaced, and then the
    /// mark of the replacement.
    fn finish_replacements<M: Medium>(&mut self, guard: &MediumGuard<'_, M>) -> Result<()> {
        while let Some(Replacement { slot, replaced }) = self.names(guard)?.replacements.pop() {
            // PERSIST: the new slot is durable; if this is lost, the old one is still replaced.
            self.pages
                .slot(guard, replaced)
                .publish_state(guard, SlotState::Free);
            guard.fence();
            let copies = self.pages.slot(guard, slot);
            if let RootSlot::Tree { tree, .. } = copies.read(guard, false) {
                // PERSIST: the old slot is empty; otherwise both names would lead to the tree.
                copies.publish_state(guard, tree.state());
            }
            // The fence comes before another tree can take the old slot.
            guard.fence();
            self.names(guard)?.free(replaced);
        }
        Ok(())
    }

    /// Removes a tree from the table; durable when this returns. O(1).
    pub(crate) fn remove<M: Medium>(
        &mut self,
        guard: &MediumGuard<'_, M>,
        tree: &TreeRoot,
    ) -> Result<()> {
        self.finish_replacements(guard)?;
        let copies = self.pages.slot(guard, tree.slot);
        // PERSIST: nothing must precede; if this is lost, the tree is still there.
        copies.publish_state(guard, SlotState::Free);
        if let Err(error) = guard.drain() {
            // The next open may find the tree or not. This process keeps it, because its nodes were
            // not freed.
            copies.store_state(guard, tree.state());
            return Err(error.into());
        }
        self.names(guard)?.remove(tree);
        Ok(())
    }
}
