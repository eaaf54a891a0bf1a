//! A slot of the root table, which is kept in two copies.
//!
//! ```text
//! a copy of a slot: 512 bytes, in words
//!  0      state: engine, codec, "in use" and "replaces another slot", with a check: published last in the first copy;
//!         0 before the first use
//!  1      length of the name in bytes
//!  2..18  the name, UTF-8, padded with zeros
//! 18..26  root words, each 48 bits with a check: what the engine needs to find its tree
//! 26      CRC32C of words 1..18
//! 27      with a check: while the tree gets another name, the number of its old slot, which holds nothing any more
//! 28..64  the encodings of keys and values (`encodings`), with a check
//! ```
//!
//! The copies lie in different slabs. Each part of a slot has a check of its own, and is read from
//! the first copy in which it passes. So damage costs a tree only if it hits the same part of both.
//! The state of the first copy decides whether there is a tree; that of the second one counts only
//! if the first is damaged.

use medium::{Medium, MediumGuard, Word};

use super::copies::BadPart;
use super::encodings::{self, ENCODINGS, ENCODINGS_END, Encodings, NewTree};
use super::{DamagedRoot, ROOT_WORDS, TreeRoot};
use crate::bytes::{bytes_of, words_check};
use crate::header::{checked, unchecked};

/// Bytes of a copy of a slot.
pub(super) const SLOT_BYTES: u64 = 512;
/// Words of a copy of a slot.
pub(super) const SLOT_WORDS: usize = (SLOT_BYTES / 8) as usize;

const STATE: usize = 0;
const NAME_LENGTH: usize = 1;
const NAME: usize = 2;
const ROOTS: usize = 18;
const NAME_CHECK: usize = 26;
const REPLACED: usize = 27;
const _: () = assert!(ENCODINGS == REPLACED + 1 && ENCODINGS_END == SLOT_WORDS);

const CODEC_SHIFT: u32 = 16;
const IN_USE: u64 = 1 << 32;
const REPLACES: u64 = 1 << 33;

/// The state of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotState {
    /// It holds no tree.
    Free,
    /// It holds a tree.
    InUse(UsedSlot),
}

/// The state of a tree, from that of its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UsedSlot {
    pub(super) engine: u16,
    pub(super) codec: u16,
    /// Whether the slot that word 27 names counts as free, whatever is in it.
    pub(super) replaces: bool,
}

impl SlotState {
    fn encode(self) -> u64 {
        match self {
            Self::Free => checked(0),
            Self::InUse(used) => {
                let replaces = if used.replaces { REPLACES } else { 0 };
                let codec = u64::from(used.codec) << CODEC_SHIFT;
                checked(IN_USE | replaces | codec | u64::from(used.engine))
            }
        }
    }

    /// The state in a word; `None` if the word fails its check.
    fn decode(word: u64) -> Option<Self> {
        let value = unchecked(word)?;
        if value & IN_USE == 0 {
            return Some(Self::Free);
        }
        Some(Self::InUse(UsedSlot {
            engine: value as u16,
            codec: (value >> CODEC_SHIFT) as u16,
            replaces: value & REPLACES != 0,
        }))
    }
}

/// A part of a slot that has a check of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotPart {
    State,
    Name,
    /// A root word of the engine.
    Root(usize),
    /// The number of the slot that is replaced.
    Replaced,
    /// The encodings of its keys and values.
    Encodings,
}

impl SlotPart {
    /// The words of the part, within a copy of a slot.
    pub(super) fn words(self) -> Vec<usize> {
        match self {
            Self::State => vec![STATE],
            Self::Name => (NAME_LENGTH..ROOTS).chain([NAME_CHECK]).collect(),
            Self::Root(index) => vec![ROOTS + index],
            Self::Replaced => vec![REPLACED],
            Self::Encodings => (ENCODINGS..ENCODINGS_END).collect(),
        }
    }

    /// The first of its words.
    pub(super) fn first_word(self) -> usize {
        match self {
            Self::State => STATE,
            Self::Name => NAME_LENGTH,
            Self::Root(index) => ROOTS + index,
            Self::Replaced => REPLACED,
            Self::Encodings => ENCODINGS,
        }
    }

    /// The part in words.
    pub(super) fn name(self) -> String {
        match self {
            Self::State => "its state".to_owned(),
            Self::Name => "the name of its tree".to_owned(),
            Self::Root(index) => format!("root word {index}"),
            Self::Replaced => "the number of the slot that it replaces".to_owned(),
            Self::Encodings => "the encodings of its tree".to_owned(),
        }
    }

    /// Whether the part passes its check in a copy.
    fn is_whole<M: Medium>(self, guard: &MediumGuard<'_, M>, cells: &[Word]) -> bool {
        match self {
            Self::State => SlotState::decode(cells[STATE].load(guard)).is_some(),
            Self::Name => name_of(guard, cells).is_ok(),
            Self::Root(_) | Self::Replaced => {
                unchecked(cells[self.first_word()].load(guard)).is_some()
            }
            Self::Encodings => encodings::read(guard, cells).is_ok(),
        }
    }
}

/// The content of a slot.
pub(super) enum RootSlot {
    /// No tree.
    Free,
    /// A tree.
    Tree {
        tree: TreeRoot,
        /// The slot that this one replaces, while a tree gets another name.
        replaced: Option<usize>,
    },
    /// A tree that cannot be found, or whose name or encodings cannot be read.
    Damaged(DamagedRoot),
}

/// The two copies of a slot, in the pool. A copy is missing if the directory that leads to it is
/// damaged.
pub(super) struct SlotCopies<'g> {
    pub(super) slot: usize,
    /// The offset of the first copy, or of the directory's entry that should lead there.
    pub(super) offset: u64,
    pub(super) copies: [Option<&'g [Word]>; 2],
}

impl SlotCopies<'_> {
    /// Reads the slot. `is_new` says that it was never used: it then holds no tree, even if a
    /// creation that a crash interrupted has written to its second copy.
    pub(super) fn read<M: Medium>(&self, guard: &MediumGuard<'_, M>, is_new: bool) -> RootSlot {
        let Some(first) = self.there().next() else {
            if is_new {
                return RootSlot::Free;
            }
            return self.damaged(None, "the table's directory is damaged", None);
        };
        if is_new && first[STATE].load(guard) == 0 {
            return RootSlot::Free;
        }
        let used = match self.state(guard) {
            Some(SlotState::Free) => return RootSlot::Free,
            Some(SlotState::InUse(used)) => used,
            None if self.there().all(|cells| cells[STATE].load(guard) == 0) => {
                return self.damaged(None, "it holds zeros", None);
            }
            None => {
                let what = "the state fails its check in both copies";
                return self.damaged(self.name(guard).ok(), what, None);
            }
        };
        let name = self.name(guard);
        let label = match &name {
            Ok(name) => name.clone(),
            Err(_) => label_of(self.slot),
        };
        let encodings = self.encodings(guard);
        let tree = self.roots(guard).map(|words| TreeRoot {
            slot: self.slot,
            name: label,
            engine: used.engine,
            codec: used.codec,
            encodings: encodings.clone().unwrap_or(None),
            words,
        });
        match (name, tree) {
            (Ok(name), Some(tree)) => {
                if let Err(what) = encodings {
                    return self.damaged(Some(name), what, Some(tree));
                }
                let replaced = if used.replaces {
                    self.replaced(guard)
                } else {
                    None
                };
                RootSlot::Tree { tree, replaced }
            }
            (Ok(name), None) => {
                let what = "a root word fails its check in both copies";
                self.damaged(Some(name), what, None)
            }
            (Err(what), tree) => self.damaged(None, what, tree),
        }
    }

    /// The parts that are damaged or outdated in one copy, and whole in the other one. The slot was
    /// in use before. Nothing is found while a copy is missing.
    pub(super) fn bad_parts<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Vec<BadPart> {
        let mut parts = vec![SlotPart::State];
        // The other parts of a slot without a tree mean nothing.
        if let Some(SlotState::InUse(_)) = self.state(guard) {
            parts.push(SlotPart::Name);
            parts.extend((0..ROOT_WORDS).map(SlotPart::Root));
            parts.push(SlotPart::Replaced);
            parts.push(SlotPart::Encodings);
        }
        let mut bad = Vec::new();
        for part in parts {
            bad.extend(self.bad_copy(guard, part));
        }
        bad
    }

    /// The copy in which a part is damaged or outdated, if the part is whole in the other one.
    fn bad_copy<M: Medium>(&self, guard: &MediumGuard<'_, M>, part: SlotPart) -> Option<BadPart> {
        let [Some(first), Some(second)] = self.copies else {
            return None;
        };
        let is_first_whole = part.is_whole(guard, first);
        let is_second_whole = part.is_whole(guard, second);
        let mut words = part.words().into_iter();
        let is_same = words.all(|word| first[word].load(guard) == second[word].load(guard));
        let bad = |copy, is_outdated| {
            Some(BadPart::OfSlot {
                slot: self.slot,
                copy,
                part,
                is_outdated,
            })
        };
        match [is_first_whole, is_second_whole] {
            [true, true] if is_same => None,
            // The first copy counts.
            [true, true] => bad(1, true),
            [true, false] => bad(1, false),
            [false, true] => bad(0, false),
            [false, false] => None,
        }
    }

    /// The copies that are there, the first one first. The second one is read only where the first
    /// is damaged.
    fn there(&self) -> impl Iterator<Item = &[Word]> {
        self.copies.iter().copied().flatten()
    }

    fn state<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Option<SlotState> {
        self.there()
            .find_map(|cells| SlotState::decode(cells[STATE].load(guard)))
    }

    /// The name, or what is wrong with it.
    fn name<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Result<String, &'static str> {
        let mut name = Err("the name is missing");
        for cells in self.there() {
            name = name_of(guard, cells);
            if name.is_ok() {
                break;
            }
        }
        name
    }

    /// The encodings, or what is wrong with them.
    fn encodings<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
    ) -> Result<Option<Encodings>, &'static str> {
        let mut found = Err("the encodings are missing");
        for cells in self.there() {
            found = encodings::read(guard, cells);
            if found.is_ok() {
                break;
            }
        }
        found
    }

    /// All root words, each from the first copy in which it passes its check.
    fn roots<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Option<[u64; ROOT_WORDS]> {
        let mut roots = [0; ROOT_WORDS];
        for (index, root) in roots.iter_mut().enumerate() {
            *root = self.checked_word(guard, ROOTS + index)?;
        }
        Some(roots)
    }

    fn replaced<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Option<usize> {
        self.checked_word(guard, REPLACED).map(|slot| slot as usize)
    }

    /// The value of a word, from the first copy in which it passes its check.
    fn checked_word<M: Medium>(&self, guard: &MediumGuard<'_, M>, index: usize) -> Option<u64> {
        self.there()
            .find_map(|cells| unchecked(cells[index].load(guard)))
    }

    fn damaged(&self, name: Option<String>, what: &str, tree: Option<TreeRoot>) -> RootSlot {
        RootSlot::Damaged(DamagedRoot {
            name,
            slot: self.slot,
            offset: self.offset,
            what: format!("root table slot {}: {what}", self.slot),
            tree,
        })
    }

    /// Writes a new tree to both copies, and flushes them. The slot stays free, as the state of its
    /// first copy says so; [`SlotCopies::publish_state`] follows after a fence.
    pub(super) fn prepare<M: Medium>(&self, guard: &MediumGuard<'_, M>, new: &NewSlot<'_>) {
        let mut words = new.encode();
        for (copy, state) in self.copies.iter().zip([SlotState::Free, new.state]) {
            let Some(cells) = copy else {
                continue;
            };
            words[STATE] = state.encode();
            for (cell, word) in cells.iter().zip(words) {
                cell.store(guard, word);
            }
            guard.flush_words(cells);
        }
    }

    /// Stores and flushes the state in both copies; the caller fences.
    pub(super) fn publish_state<M: Medium>(&self, guard: &MediumGuard<'_, M>, state: SlotState) {
        // If the second copy alone is durable, the first one still counts.
        for cells in self.copies.iter().rev().flatten() {
            cells[STATE].publish(guard, state.encode());
        }
    }

    /// Takes back a state whose publication failed: for this process the slot has this state.
    pub(super) fn store_state<M: Medium>(&self, guard: &MediumGuard<'_, M>, state: SlotState) {
        for cells in self.copies.iter().flatten() {
            cells[STATE].store(guard, state.encode());
        }
    }
}

/// A tree that is about to be entered in a slot.
pub(super) struct NewSlot<'t> {
    pub(super) tree: NewTree<'t>,
    pub(super) state: SlotState,
    pub(super) roots: &'t [u64; ROOT_WORDS],
    /// The slot that this one replaces.
    pub(super) replaced: Option<usize>,
}

impl NewSlot<'_> {
    /// The words of a copy, without the state.
    fn encode(&self) -> [u64; SLOT_WORDS] {
        let mut words = [0; SLOT_WORDS];
        let name = self.tree.name.as_bytes();
        words[NAME_LENGTH] = name.len() as u64;
        for (word, chunk) in words[NAME..ROOTS].iter_mut().zip(name.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(bytes);
        }
        for (word, root) in words[ROOTS..NAME_CHECK].iter_mut().zip(self.roots) {
            *word = checked(*root);
        }
        words[NAME_CHECK] = words_check(&words[NAME_LENGTH..ROOTS]);
        words[REPLACED] = checked(self.replaced.unwrap_or(0) as u64);
        words[ENCODINGS..ENCODINGS_END].copy_from_slice(&encodings::encode(self.tree.encodings));
        words
    }
}

/// The label of a tree whose name is damaged.
pub(super) fn label_of(slot: usize) -> String {
    format!("damaged-slot-{slot}")
}

/// The name in a copy, or what is wrong with it.
fn name_of<M: Medium>(guard: &MediumGuard<'_, M>, cells: &[Word]) -> Result<String, &'static str> {
    let words: Vec<u64> = cells[NAME_LENGTH..ROOTS]
        .iter()
        .map(|cell| cell.load(guard))
        .collect();
    if cells[NAME_CHECK].load(guard) != words_check(&words) {
        return Err("the name fails its checksum");
    }
    let length = words[0] as usize;
    let bytes = bytes_of(&words[NAME - NAME_LENGTH..]);
    let Some(name) = bytes.get(..length) else {
        return Err("the name is too long");
    };
    match std::str::from_utf8(name) {
        Ok(name) => Ok(name.to_owned()),
        Err(_) => Err("the name is not UTF-8"),
    }
}
