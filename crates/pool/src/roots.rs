//! The root table: the named trees of a pool.
//!
//! ```text
//! a slot of 256 bytes, in words
//!  0      state: engine, codec and "in use", or nothing, with a check: published last; 0 before the first use. While a tree
//!         gets another name also the number of its old slot, plus one: that slot holds nothing any more, whatever is in it
//!  1      length of the name in bytes
//!  2..18  the name, UTF-8, padded with zeros
//! 18..26  root words, each 48 bits with a check: what the engine needs to find its tree
//! 26      CRC32C of words 1..18
//! 27      the exclusive or of words 1..27: one of them that is damaged follows from the others
//! 28      engine, codec and "in use" once more, with a check; 0 once the tree is gone
//! ```

use medium::{Medium, MediumGuard, Word};

use crate::header::{PREFIX_BYTES, ROOT_TABLE, StateWord, checked, unchecked};
use crate::{Error, ErrorKind, Result};

/// The longest name of a tree, in bytes.
pub const TREE_NAME_BYTES_MAX: usize = 128;
/// Root words that an engine may keep.
pub const ROOT_WORDS: usize = 8;
/// The most trees in a pool.
pub const TREES_MAX: usize = ((PREFIX_BYTES - ROOT_TABLE) / SLOT_BYTES) as usize;

const SLOT_BYTES: u64 = 256;
const SLOT_WORDS: usize = 32;
const NAME_LENGTH: usize = 1;
const NAME: usize = 2;
const ROOTS: usize = 18;
const CHECK: usize = 26;
const PARITY: usize = 27;
const STATE_AGAIN: usize = 28;
const IN_USE: u64 = 1 << 32;
/// Where a state has the number of the slot that it replaces, plus one.
const REPLACES: u32 = 40;

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
    /// What is wrong.
    pub what: String,
    /// Its tree, under [`DamagedRoot::label`], if only the name is damaged. `None` if the root
    /// words are damaged, so that the tree cannot be found.
    pub tree: Option<TreeRoot>,
}

impl DamagedRoot {
    /// The tree's name, or one that is made up from the slot.
    #[must_use]
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| label_of(self.slot))
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
        let tree = self.trees.iter().find(|tree| tree.name == name);
        match self.damaged.iter().find(|damaged| damaged.may_be(name)) {
            Some(damaged) if tree.is_none() => Err(damaged.error()),
            _ => Ok(tree),
        }
    }

    /// All trees whose root words are whole, including those whose names are damaged.
    pub fn all(&self) -> impl Iterator<Item = &TreeRoot> {
        self.trees.iter().chain(
            self.damaged
                .iter()
                .filter_map(|damaged| damaged.tree.as_ref()),
        )
    }
}

/// The label of a tree whose name is damaged.
fn label_of(slot: usize) -> String {
    format!("damaged-slot-{slot}")
}

/// What a slot holds.
enum RootSlot {
    Free,
    Tree(TreeRoot),
    Damaged(DamagedRoot),
}

fn slot_words<'g, M: Medium>(guard: &'g MediumGuard<'_, M>, slot: usize) -> Result<&'g [Word]> {
    Ok(guard.words(ROOT_TABLE + slot as u64 * SLOT_BYTES, SLOT_WORDS)?)
}

fn name_check(words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    u64::from(crc32c::crc32c(&bytes))
}

/// The name in the words of a slot, or what is wrong with it.
fn name(words: &[u64]) -> std::result::Result<String, &'static str> {
    if words[CHECK] != name_check(&words[NAME_LENGTH..ROOTS]) {
        return Err("the name fails its checksum");
    }
    let bytes: Vec<u8> = words[NAME..ROOTS]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let name = bytes
        .get(..words[NAME_LENGTH] as usize)
        .ok_or("the name is too long")?;
    String::from_utf8(name.to_vec()).map_err(|_| "the name is not UTF-8")
}

fn parity(words: &[u64]) -> u64 {
    words[NAME_LENGTH..PARITY]
        .iter()
        .fold(0, |parity, word| parity ^ word)
}

/// Whether name and roots pass their checks.
fn is_whole(words: &[u64]) -> bool {
    words[CHECK] == name_check(&words[NAME_LENGTH..ROOTS])
        && words[ROOTS..CHECK]
            .iter()
            .all(|word| unchecked(*word).is_some())
}

/// Mends one damaged word of a slot as it was read.
fn mend(words: &mut [u64]) {
    let difference = parity(words) ^ words[PARITY];
    if is_whole(words) {
        return;
    }
    for index in NAME_LENGTH..PARITY {
        words[index] ^= difference;
        if is_whole(words) {
            return;
        }
        words[index] ^= difference;
    }
}

/// The number of slots that were ever used. The slots behind them begin with a zero. A used slot
/// that begins with a zero is damaged, for example because the disk lost its page.
fn slots_used<M: Medium>(guard: &MediumGuard<'_, M>) -> Result<u64> {
    // If this word fails its check, such damage is not noticed.
    Ok(unchecked(guard.words(StateWord::Slots.offset(), 1)?[0].load(guard)).unwrap_or(0))
}

/// What `slot` holds.
fn read<M: Medium>(guard: &MediumGuard<'_, M>, slot: usize) -> Result<RootSlot> {
    let cells = slot_words(guard, slot)?;
    let is_zero = cells[0].load(guard) == 0;
    if is_zero && slot as u64 >= slots_used(guard)? {
        return Ok(RootSlot::Free);
    }
    let mut words: Vec<u64> = cells.iter().map(|cell| cell.load(guard)).collect();
    mend(&mut words);
    let damaged = |name: Option<String>, what: &str, tree: Option<TreeRoot>| {
        let offset = ROOT_TABLE + slot as u64 * SLOT_BYTES;
        let what = format!("root table slot {slot}: {what}");
        Ok(RootSlot::Damaged(DamagedRoot {
            name,
            slot,
            offset,
            what,
            tree,
        }))
    };
    let name = name(&words);
    let again = if words[STATE_AGAIN] == 0 {
        Some(0)
    } else {
        unchecked(words[STATE_AGAIN])
    };
    let Some(state) = unchecked(words[0]).or(again) else {
        return damaged(name.ok(), "the state fails its check", None);
    };
    if is_zero && state == 0 {
        return damaged(None, "it holds zeros", None);
    }
    if state & IN_USE == 0 {
        return Ok(RootSlot::Free);
    }
    let roots: Option<Vec<u64>> = words[ROOTS..CHECK]
        .iter()
        .map(|word| unchecked(*word))
        .collect();
    let roots = roots.and_then(|roots| <[u64; ROOT_WORDS]>::try_from(roots).ok());
    let engine = state as u16;
    let codec = (state >> 16) as u16;
    let tree = |name, words| TreeRoot {
        slot,
        name,
        engine,
        codec,
        words,
    };
    match (name, roots) {
        (Ok(name), Some(roots)) => Ok(RootSlot::Tree(tree(name, roots))),
        (Ok(name), None) => damaged(Some(name), "a root word fails its check", None),
        (Err(what), roots) => damaged(None, what, roots.map(|roots| tree(label_of(slot), roots))),
    }
}

/// The slots that replace another one, with the latter.
fn replacing<M: Medium>(guard: &MediumGuard<'_, M>) -> Result<Vec<(usize, usize)>> {
    let mut found = Vec::new();
    for slot in 0..TREES_MAX {
        let state = unchecked(slot_words(guard, slot)?[0].load(guard)).unwrap_or(0);
        // A state that names no slot replaces none.
        let replaced = (state >> REPLACES) as usize;
        found.extend(
            (1..=TREES_MAX)
                .contains(&replaced)
                .then_some((slot, replaced.wrapping_sub(1))),
        );
    }
    Ok(found)
}

/// All trees, in the order of their slots.
pub(crate) fn list<M: Medium>(guard: &MediumGuard<'_, M>) -> Result<Roots> {
    let mut roots = Roots::default();
    let replacing = replacing(guard)?;
    let is_replaced = |slot: usize| replacing.iter().any(|(_, replaced)| *replaced == slot);
    for slot in (0..TREES_MAX).filter(|slot| !is_replaced(*slot)) {
        match read(guard, slot)? {
            RootSlot::Free => {}
            RootSlot::Tree(tree) => roots.trees.push(tree),
            RootSlot::Damaged(damaged) => roots.damaged.push(damaged),
        }
    }
    Ok(roots)
}

/// Gives a tree another name, and so another slot; durable when this returns. A crash leaves it
/// with one of the two names. The caller serialises, and no thread has the tree open.
pub(crate) fn rename<M: Medium>(
    guard: &MediumGuard<'_, M>,
    tree: &TreeRoot,
    name: &str,
) -> Result<TreeRoot> {
    let renamed = create(
        guard,
        name,
        tree.engine,
        tree.codec,
        &tree.words,
        Some(tree.slot),
    )?;
    clear_replaced(guard)?;
    Ok(renamed)
}

/// Finishes interrupted renames: clears the slots that are replaced, and then the mark of the
/// replacement.
fn clear_replaced<M: Medium>(guard: &MediumGuard<'_, M>) -> Result<()> {
    for (slot, replaced) in replacing(guard)? {
        // PERSIST: the new slot is durable; if this is lost, this one is still replaced.
        clear(guard, replaced)?;
        guard.fence();
        let state = &slot_words(guard, slot)?[0];
        let kept = unchecked(state.load(guard)).unwrap_or(0) & ((1 << REPLACES) - 1);
        // PERSIST: the old slot is empty; otherwise both names would lead to the tree.
        state.publish(guard, checked(kept));
        // The fence comes before another tree can take the old slot.
        guard.fence();
    }
    Ok(())
}

/// Adds a tree whose nodes are flushed, in place of that in the slot `replaced`, if one is named;
/// durable when this returns. The caller serialises.
pub(crate) fn create<M: Medium>(
    guard: &MediumGuard<'_, M>,
    name: &str,
    engine: u16,
    codec: u16,
    roots: &[u64; ROOT_WORDS],
    replaced: Option<usize>,
) -> Result<TreeRoot> {
    clear_replaced(guard)?;
    if name.is_empty() || name.len() > TREE_NAME_BYTES_MAX {
        return Err(ErrorKind::BadTreeName {
            length: name.len(),
            limit: TREE_NAME_BYTES_MAX,
        }
        .into());
    }
    let mut free = None;
    for slot in (0..TREES_MAX).rev() {
        match read(guard, slot)? {
            RootSlot::Tree(tree) if tree.name == name => {
                return Err(ErrorKind::TreeExists {
                    name: name.to_owned(),
                }
                .into());
            }
            RootSlot::Damaged(damaged) if damaged.may_be(name) => return Err(damaged.error()),
            RootSlot::Tree(_) | RootSlot::Damaged(_) => {}
            RootSlot::Free => free = Some(slot),
        }
    }
    let slot = free.ok_or(ErrorKind::TooManyTrees { limit: TREES_MAX })?;
    let cells = slot_words(guard, slot)?;
    let mut words = [0; SLOT_WORDS];
    words[NAME_LENGTH] = name.len() as u64;
    for (word, chunk) in words[NAME..ROOTS].iter_mut().zip(name.as_bytes().chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(bytes);
    }
    for (word, root) in words[ROOTS..CHECK].iter_mut().zip(roots) {
        *word = checked(*root);
    }
    words[CHECK] = name_check(&words[NAME_LENGTH..ROOTS]);
    words[PARITY] = parity(&words);
    words[STATE_AGAIN] = checked(IN_USE | u64::from(codec) << 16 | u64::from(engine));
    words[0] = checked(0);
    cells
        .iter()
        .zip(words)
        .for_each(|(cell, word)| cell.store(guard, word));
    guard.flush_words(cells);
    guard.fence();
    // PERSIST: the slot and the tree's first nodes are ordered before; if this is lost, the tree
    // does not exist.
    let replaced = replaced.map_or(0, |slot| slot as u64 + 1) << REPLACES;
    if slot as u64 >= slots_used(guard)? {
        // PERSIST: the slot holds no zeros any more; if this is lost, zeros that a disk leaves
        // there are not noticed.
        StateWord::Slots.publish(guard, slot as u64 + 1)?;
    }
    cells[0].publish(
        guard,
        checked(replaced | IN_USE | u64::from(codec) << 16 | u64::from(engine)),
    );
    if let Err(error) = guard.drain() {
        // The next open may find the tree or not. For this process it does not exist: the caller
        // owns its nodes again.
        cells[0].store(guard, checked(0));
        return Err(error.into());
    }
    Ok(TreeRoot {
        slot,
        name: name.to_owned(),
        engine,
        codec,
        words: *roots,
    })
}

/// Removes a tree from the table; durable when this returns.
pub(crate) fn remove<M: Medium>(guard: &MediumGuard<'_, M>, slot: usize) -> Result<()> {
    clear_replaced(guard)?;
    let state = &slot_words(guard, slot)?[0];
    let listed = state.load(guard);
    // PERSIST: nothing must precede; if this is lost, the tree is still there.
    clear(guard, slot)?;
    // After a failed drain the next open may find the tree or not. This process keeps it, because
    // its nodes were not freed.
    guard.drain().inspect_err(|_| state.store(guard, listed))?;
    Ok(())
}

/// Clears both states of a slot. The second one counts only if the first is damaged.
fn clear<M: Medium>(guard: &MediumGuard<'_, M>, slot: usize) -> Result<()> {
    let cells = slot_words(guard, slot)?;
    cells[STATE_AGAIN].publish(guard, 0);
    cells[0].publish(guard, checked(0));
    Ok(())
}
