//! Reads the undamaged entries of a tree that is too damaged to be opened.
//!
//! A leaf is found by the nodes and leaves that lead to it. If these are damaged, it is found in
//! the slabs of the pool: a leaf that no tree leads to, although its space is in use, belongs to
//! the damaged tree. After a crash it may not be known which space is in use. Then the salvage may
//! find leaves that were removed before, and says so.

use std::collections::{HashSet, VecDeque};
use std::iter::Peekable;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::vec;

use medium::Medium;
use pool::{Guard, Pool, TreeRoot, Usage};

use super::walk::{BrokenChain, follow_chain};
use crate::engine::{Salvaged, Visit};
use crate::index::{Codec, EntryWords, KeysBetween, LeftOut, Part};
use crate::{Error, ErrorKind, Result};

/// A key and a value.
pub type OwnedEntry = (Vec<u8>, Vec<u8>);

/// How many entries are read ahead to decide whether one is out of order: several times those of a
/// line, so that a line of damaged keys does not outweigh those behind it.
const AHEAD: usize = 40;
/// The most bytes of entries that are read ahead.
const AHEAD_BYTES: usize = 32 << 20;

/// Damage between entries that were taken: which keys lie next to it is known once these are decided.
struct Gap {
    /// Its damage, by its number in the list.
    left_out: usize,
    /// The number of entries that lie before it.
    begin: u64,
    /// The number of the first entry that lies behind it.
    end: u64,
}

/// Calls `visit` with entries in ascending order of keys until it returns `false`, and collects the
/// damage because of which entries are left out.
pub struct Salvage<'v> {
    visit: &'v mut dyn FnMut(&[u8], &[u8]) -> bool,
    left_out: Vec<LeftOut>,
    /// Damage that lies behind all entries that are decided, in order.
    gaps: VecDeque<Gap>,
    /// Damage of which the last key before it is known.
    begun: Vec<Gap>,
    last: Option<Arc<[u8]>>,
    /// The number of entries that were taken.
    taken: u64,
    /// The number of entries that are decided.
    decided: u64,
    /// Entries that are not decided yet, each with the offset of its leaf.
    ahead: VecDeque<(u64, OwnedEntry)>,
    ahead_bytes: usize,
    /// Entries of nodes that nothing leads to, in ascending order of keys.
    lost: Peekable<vec::IntoIter<OwnedEntry>>,
    is_over: bool,
}

impl<'v> Salvage<'v> {
    /// A salvage that has read nothing yet.
    pub fn new(visit: &'v mut dyn FnMut(&[u8], &[u8]) -> bool) -> Self {
        Self::with_lost(visit, Vec::new())
    }

    /// A salvage that has read nothing yet, and that also visits the entries `lost`. A lost entry
    /// is skipped if the tree or an earlier lost entry has its key.
    pub fn with_lost(
        visit: &'v mut dyn FnMut(&[u8], &[u8]) -> bool,
        mut lost: Vec<OwnedEntry>,
    ) -> Self {
        lost.sort_by(|one, other| one.0.cmp(&other.0));
        lost.dedup_by(|one, other| one.0 == other.0);
        let lost = lost.into_iter().peekable();
        Self {
            visit,
            left_out: Vec::new(),
            gaps: VecDeque::new(),
            begun: Vec::new(),
            last: None,
            taken: 0,
            decided: 0,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            lost,
            is_over: false,
        }
    }

    /// Notes damage behind the entries that were taken so far, because of which entries are left out.
    pub fn leave_out(&mut self, offset: u64, part: Part, what: String) {
        self.note(LeftOut::new(offset, part, what));
    }

    /// Notes damage behind the entries that were taken so far.
    fn note(&mut self, left_out: LeftOut) {
        self.note_between(left_out, self.taken, self.taken);
    }

    /// Notes damage behind the first `begin` entries, and before the entry of the number `end`.
    fn note_between(&mut self, left_out: LeftOut, begin: u64, end: u64) {
        // Other damage lies at no known place among the entries.
        if left_out.part != Part::Unknown {
            self.gaps.push_back(Gap {
                left_out: self.left_out.len(),
                begin,
                end,
            });
        }
        self.left_out.push(left_out);
    }

    /// Names the last key before the damage that all decided entries lie before.
    fn begin_gaps(&mut self) {
        let decided = self.decided;
        while self.gaps.front().is_some_and(|gap| gap.begin <= decided) {
            if let Some(gap) = self.gaps.pop_front() {
                self.left_out[gap.left_out]
                    .keys
                    .above
                    .clone_from(&self.last);
                self.begun.push(gap);
            }
        }
    }

    /// Names the first key behind the damage that lies before the entry that is decided.
    fn end_gaps(&mut self, key: &Arc<[u8]>) {
        let number = self.decided;
        let left_out = &mut self.left_out;
        self.begun.retain(|gap| {
            let is_before = gap.end <= number;
            if is_before {
                left_out[gap.left_out].keys.below = Some(Arc::clone(key));
            }
            !is_before
        });
    }

    /// Takes the next entry of the leaf at `offset`, or the error if it cannot be read; returns
    /// `false` if no more are wanted.
    pub fn entry(&mut self, offset: u64, read: Result<OwnedEntry>) -> bool {
        match read {
            Ok(entry) => {
                self.ahead_bytes += entry.0.len() + entry.1.len();
                self.ahead.push_back((offset, entry));
                self.taken += 1;
            }
            Err(error) => self.note(unreadable_entry(offset, &error)),
        }
        while self.ahead.len() > AHEAD || self.ahead.len() > 1 && self.ahead_bytes > AHEAD_BYTES {
            self.decide();
        }
        !self.is_over
    }

    /// Takes the entries of the leaf at `offset`; returns `false` if no more are wanted. If they are
    /// `sorted`, they come in ascending order of keys, also those that cannot be read; unless the
    /// leaf is damaged.
    pub fn entries(&mut self, offset: u64, entries: Vec<Result<OwnedEntry>>, sorted: bool) -> bool {
        let keys = entries.iter().flatten().map(|(key, _)| key);
        if sorted && keys.is_sorted() {
            return entries.into_iter().all(|entry| self.entry(offset, entry));
        }
        let mut whole = Vec::new();
        let mut unreadable = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => whole.push(entry),
                Err(error) => unreadable.push(unreadable_entry(offset, &error)),
            }
        }
        whole.sort_by(|one, other| one.0.cmp(&other.0));
        // Entries that cannot be read have no key, so each may lie anywhere in the leaf.
        let begin = self.taken;
        let end = begin + whole.len() as u64;
        for left_out in unreadable {
            self.note_between(left_out, begin, end);
        }
        whole.into_iter().all(|entry| self.entry(offset, Ok(entry)))
    }

    /// Decides the oldest entry. It is out of order if its key is not above the last one, or if it
    /// is above most of the keys behind it that are above the last one.
    fn decide(&mut self) {
        let Some((offset, (key, value))) = self.ahead.pop_front() else {
            return;
        };
        self.ahead_bytes -= key.len() + value.len();
        self.begin_gaps();
        let is_above = |key: &[u8]| self.last.as_deref().is_none_or(|last| key > last);
        let in_its_way = self
            .ahead
            .iter()
            .filter(|(_, (next, _))| is_above(next) && *next <= key)
            .count();
        if !is_above(&key) || 2 * in_its_way > self.ahead.len() {
            let what = "an entry out of order".to_owned();
            let left_out = LeftOut::new(offset, Part::Entry, what);
            self.begun.push(Gap {
                left_out: self.left_out.len(),
                begin: self.decided,
                end: self.decided + 1,
            });
            self.left_out.push(LeftOut {
                keys: KeysBetween {
                    above: self.last.clone(),
                    below: None,
                },
                ..left_out
            });
        } else {
            self.visit_lost(Some(&key));
            self.lost.next_if(|(lost, _)| *lost == key);
            self.is_over = self.is_over || !(self.visit)(&key, &value);
            let key = Arc::from(key);
            self.end_gaps(&key);
            self.last = Some(key);
        }
        self.decided += 1;
    }

    /// Visits the lost entries that are left, up to a key.
    fn visit_lost(&mut self, end: Option<&[u8]>) {
        while !self.is_over
            && let Some((key, value)) = self
                .lost
                .next_if(|(key, _)| end.is_none_or(|end| &key[..] < end))
        {
            self.is_over = !(self.visit)(&key, &value);
        }
    }

    /// Decides the remaining entries. Returns the damage because of which entries were left out.
    pub fn finish(mut self) -> Vec<LeftOut> {
        while !self.ahead.is_empty() && !self.is_over {
            self.decide();
        }
        if !self.is_over {
            self.begin_gaps();
        }
        self.visit_lost(None);
        self.left_out
    }
}

/// The note that entries were saved from nodes that nothing leads to any more. If it is not known
/// which nodes were in use, some of the entries may be outdated.
pub fn note_lost(lost: usize, offset: u64, may_be_stale: bool) -> LeftOut {
    let (entries, them, some) = if lost == 1 {
        ("entry is", "it", "it")
    } else {
        ("entries are", "them", "some")
    };
    let mut what =
        format!("{lost} {entries} whole, but no node leads to {them}; a salvage saves {them}");
    if may_be_stale {
        what += &format!("; {some} may be old or removed");
    }
    LeftOut::new(offset, Part::Unknown, what)
}

/// An entry of the leaf at `offset` that cannot be read.
fn unreadable_entry(offset: u64, error: &Error) -> LeftOut {
    let what = format!("an entry: {}", what_of(error));
    LeftOut::new(offset, Part::Entry, what)
}

/// The damage that an error names, without its offset.
pub fn what_of(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Corrupt { what, .. } => what.clone(),
        _ => error.to_string(),
    }
}

/// An entry whose record, if it has one, passes its check, and whose first word is that of its key.
fn read_whole<M: Medium, C: Codec>(guard: &Guard<'_, M>, words: EntryWords) -> Result<OwnedEntry> {
    let mut key = Vec::new();
    let mut value = Vec::new();
    if !C::is_sound(guard, words)? {
        return Err(Error::corrupt(0, "its record fails its check"));
    }
    C::copy_key(guard, words, &mut key)?;
    C::copy_value(guard, words, &mut value)?;
    if C::word(C::key(&key)?) != words[0] {
        return Err(Error::corrupt(0, "it leads to the record of another key"));
    }
    Ok((key, value))
}

/// Damage at which the path to leaves ends.
pub struct LedDamage {
    /// The number of leaves that lie before it.
    pub leaves_before: usize,
    /// The damage.
    pub left_out: LeftOut,
}

/// The leaves that a tree leads to, in order, each once; and the damage that may cut off others.
#[derive(Default)]
pub struct Led {
    /// Their offsets.
    pub leaves: Vec<u64>,
    /// The damage at which the path ends, in order.
    pub damage: Vec<LedDamage>,
    /// Whether a damaged leaf may have led on to the wrong one.
    pub is_doubtful: bool,
}

impl Led {
    /// Follows a chain: `read` adds the leaf at an offset, and returns the next one, 0 after the
    /// last.
    pub fn follow(&mut self, first: u64, mut read: impl FnMut(u64, &mut Self) -> Result<u64>) {
        let walked = follow_chain(first, |offset| read(offset, self));
        if let Err(BrokenChain { leaf, error }) = walked {
            self.note(
                leaf,
                Part::Node,
                "the link from a leaf to the next one",
                &error,
            );
        }
    }

    /// Whether there may be leaves that the tree does not lead to.
    fn is_broken(&self) -> bool {
        self.is_doubtful || !self.damage.is_empty()
    }

    /// Notes an error at an offset, and which part of the tree it cuts off.
    pub fn note(&mut self, offset: u64, part: Part, what: &str, error: &Error) {
        let what = format!("{what}: {}", what_of(error));
        self.push(LeftOut::new(offset, part, what));
    }

    /// Notes damage behind the leaves that were found so far.
    pub fn push(&mut self, left_out: LeftOut) {
        let leaves_before = self.leaves.len();
        self.damage.push(LedDamage {
            leaves_before,
            left_out,
        });
    }
}

/// A tree that is salvaged leaf by leaf, and that need not open.
pub trait Leafy<M: Medium, C: Codec>: Sized {
    /// Whether a leaf of words has a check of its whole content, which distinguishes it from other
    /// memory. Leaves of records are recognised by their records' checks.
    const IS_CHECKED: bool;
    /// Whether [`Leafy::entries`] gives the entries of a leaf in ascending order of keys.
    const ARE_SORTED: bool = false;
    /// Whether a leaf begins with a [`medium::Line`].
    const HAS_LINE: bool = false;

    /// The tree at a root. Nothing is recovered or written.
    fn at_root(pool: &Pool<M>, root: &TreeRoot) -> Result<Self>;

    /// How many bytes a leaf has.
    fn leaf_bytes(&self) -> RangeInclusive<usize>;

    /// The leaves that the tree leads to.
    fn leaves(&self, guard: &Guard<'_, M>) -> Led;

    /// Whether memory that nothing leads to may be a leaf in use, by its content.
    fn may_be_leaf(&self, _guard: &Guard<'_, M>, _offset: u64) -> bool {
        true
    }

    /// The entries of a leaf. For other memory the result is arbitrary.
    fn entries(&self, guard: &Guard<'_, M>, leaf: u64) -> Result<Vec<Result<EntryWords>>>;
}

/// The readable part of a leaf.
#[derive(Default)]
struct Whole {
    /// Its entries; an error for one that cannot be read.
    entries: Vec<Result<OwnedEntry>>,
    /// How many other entries it lists whose records were freed, because the entries were removed
    /// or replaced.
    freed: usize,
}

impl Whole {
    /// Reads a leaf.
    fn read<M: Medium, C: Codec, T: Leafy<M, C>>(
        guard: &Guard<'_, M>,
        usage: &Usage<'_>,
        tree: &T,
        leaf: u64,
    ) -> Result<Self> {
        let mut whole = Self::default();
        for words in tree.entries(guard, leaf)? {
            let record = words.as_ref().ok().and_then(|words| C::record(*words));
            let entry = words.and_then(|words| read_whole::<M, C>(guard, words));
            match record {
                Some(record) if entry.is_ok() && usage.is_free(record) => whole.freed += 1,
                _ => whole.entries.push(entry),
            }
        }
        Ok(whole)
    }
}

/// Implements [`Build::salvage_at`](crate::engine::Build::salvage_at).
pub fn salvage_leaves<M: Medium, C: Codec, T: Leafy<M, C>>(
    pool: &Pool<M>,
    root: &TreeRoot,
    visit: &mut Visit<'_>,
) -> Salvaged {
    let guard = pool.pin();
    let tree = T::at_root(pool, root)?;
    let usage = guard.usage()?;
    let led = tree.leaves(&guard);
    let mut lost = Vec::new();
    let mut notes = Vec::new();
    if led.is_broken() && (C::TIES || T::IS_CHECKED) {
        (lost, notes) = lost_entries(pool, root, &usage, &tree, &led.leaves)?;
    }
    let mut salvage = Salvage::with_lost(visit, lost);
    for note in notes {
        salvage.note(note);
    }
    let mut damage = led.damage.into_iter().peekable();
    for (number, leaf) in led.leaves.into_iter().enumerate() {
        while let Some(found) = damage.next_if(|found| found.leaves_before <= number) {
            salvage.note(found.left_out);
        }
        match Whole::read::<M, C, T>(&guard, &usage, &tree, leaf) {
            Ok(Whole { entries, freed }) => {
                if freed > 0 {
                    salvage.leave_out(leaf, Part::Unknown, freed_of_leaf(freed));
                }
                if !salvage.entries(leaf, entries, T::ARE_SORTED) {
                    break;
                }
            }
            Err(error) => {
                let what = format!("the entries of a leaf: {}", what_of(&error));
                salvage.leave_out(leaf, Part::Node, what);
            }
        }
    }
    for found in damage {
        salvage.note(found.left_out);
    }
    Ok(Some(salvage.finish()))
}

/// The note that a leaf lists entries that were removed or replaced.
fn freed_of_leaf(freed: usize) -> String {
    let (entries, were) = if freed == 1 {
        ("entry", "was")
    } else {
        ("entries", "were")
    };
    format!(
        "a damaged leaf lists {freed} {entries} that {were} removed or replaced; a salvage leaves that out"
    )
}

/// The entries of leaves that no tree leads to, and notes that say so; entries that may be outdated
/// or removed have notes of their own.
fn lost_entries<M: Medium, C: Codec, T: Leafy<M, C>>(
    pool: &Pool<M>,
    root: &TreeRoot,
    usage: &Usage<'_>,
    tree: &T,
    leaves: &[u64],
) -> Result<(Vec<OwnedEntry>, Vec<LeftOut>)> {
    let guard = pool.pin();
    let mut reached = leaves.iter().copied().collect::<HashSet<u64>>();
    let mut is_other_broken = false;
    // A leaf of records passes the check of a leaf of words, too. But a leaf of words has no whole
    // records.
    let is_like =
        |other: &TreeRoot| other.engine == root.engine && (other.codec == root.codec || !C::TIES);
    for other in pool
        .roots()?
        .all()
        .filter(|other| is_like(other) && other.slot != root.slot)
    {
        // Leaves of the other codec are found in the same way.
        let other = TreeRoot {
            codec: root.codec,
            ..other.clone()
        };
        let theirs = T::at_root(pool, &other)
            .map(|tree| tree.leaves(&guard))
            .unwrap_or_default();
        is_other_broken |= theirs.is_broken() || theirs.leaves.is_empty();
        reached.extend(theirs.leaves);
    }
    let is_lost = |leaf: &u64| !reached.contains(leaf) && tree.may_be_leaf(&guard, *leaf);
    let places = guard.places(usage, tree.leaf_bytes(), T::HAS_LINE);
    let mut in_use = LostEntries::default();
    let mut may_be_stale = LostEntries::default();
    for (leaf, is_in_use) in places.into_iter().filter(|(leaf, _)| is_lost(leaf)) {
        let Ok(whole) = Whole::read::<M, C, T>(&guard, usage, tree, leaf) else {
            continue;
        };
        let lost = if is_in_use && !is_other_broken {
            &mut in_use
        } else {
            &mut may_be_stale
        };
        if lost.entries.is_empty() {
            lost.first_leaf = leaf;
        }
        lost.entries.extend(whole.entries.into_iter().flatten());
    }
    let mut notes = Vec::new();
    if !in_use.entries.is_empty() {
        notes.push(in_use.note(false));
    }
    if !may_be_stale.entries.is_empty() {
        notes.push(may_be_stale.note(true));
    }
    // Of two entries with one key the first counts.
    let mut entries = in_use.entries;
    entries.extend(may_be_stale.entries);
    Ok((entries, notes))
}

/// Entries of leaves that no tree leads to.
#[derive(Default)]
struct LostEntries {
    entries: Vec<OwnedEntry>,
    first_leaf: u64,
}

impl LostEntries {
    fn note(&self, may_be_stale: bool) -> LeftOut {
        note_lost(self.entries.len(), self.first_leaf, may_be_stale)
    }
}

#[cfg(test)]
mod tests;
