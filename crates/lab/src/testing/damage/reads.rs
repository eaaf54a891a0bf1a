//! Plain reads of a damaged pool, compared with the entries that were stored.
//!
//! A read returns the stored value, or an error, or the damage is silent. Silent damage has two
//! forms. A read is *wrong* if it returns another value than the stored one, or a key that the tree
//! does not have. A read *misses* a key if it leaves the key out without an error.

use std::collections::{BTreeMap, BTreeSet};

use engines::index::Direction;
use everleaf::{CodecKind, Error, Range, Tree};
use serde::{Deserialize, Serialize};

use super::{REMOVED, TreeContent, removed_key};

/// Keys that one call of [`Tree::get_many`] reads, and keys of one short range.
const KEYS_TOGETHER: usize = 32;
/// One key in this many has a neighbour that is looked for, and that the tree does not have.
const KEYS_BY_NEIGHBOUR: usize = 8;
/// Errors in a row, without an entry between them, after which a range is taken not to get past the
/// damage.
const ERRORS_IN_A_ROW_MAX: usize = 1_000;

/// A kind of read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadKind {
    /// [`Tree::get`], key by key.
    Get,
    /// [`Tree::get_many`], some keys at a time.
    GetMany,
    /// A range over the whole tree.
    Range,
    /// The same from its end.
    RangeInReverse,
    /// Ranges over some keys, which begin all over the tree.
    ShortRange,
    /// The same from their ends.
    ShortRangeInReverse,
}

impl ReadKind {
    fn direction(self) -> Direction {
        match self {
            Self::RangeInReverse | Self::ShortRangeInReverse => Direction::Reverse,
            _ => Direction::Forward,
        }
    }
}

/// The keys of silent answers.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct SilentKeys {
    /// The number of keys, each counted once.
    pub keys: usize,
    /// The number of silent answers of each kind of read.
    pub answers: BTreeMap<ReadKind, usize>,
    /// The first of the keys, as text.
    pub first: Option<String>,
}

/// The results of all reads.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct ReadFindings {
    /// Keys that were returned with another value than the stored one, or that the tree does not
    /// have.
    pub wrong: SilentKeys,
    /// Keys that were left out without an error. A range also misses a key that it returns out of
    /// its order.
    pub missed: SilentKeys,
    /// Errors that reads returned.
    pub errors: usize,
    /// The first of them.
    pub first_error: Option<String>,
}

impl ReadFindings {
    /// Whether each read returned the stored entries, without an error.
    #[must_use]
    pub fn are_right(&self) -> bool {
        self.wrong.keys == 0 && self.missed.keys == 0 && self.errors == 0
    }

    /// The findings if there is no tree: all keys are missed.
    pub(super) fn without_tree(content: &TreeContent) -> Self {
        let mut missed = SilentAnswers::default();
        for key in content.keys() {
            missed.add(ReadKind::Get, key);
        }
        Self {
            missed: missed.into_keys(),
            ..Self::default()
        }
    }

    /// The findings if the tree does not open.
    pub(super) fn unopened(error: &Error) -> Self {
        Self {
            errors: 1,
            first_error: Some(error.to_string()),
            ..Self::default()
        }
    }
}

/// Silent answers, while reads are compared.
#[derive(Default)]
struct SilentAnswers {
    keys: BTreeSet<Vec<u8>>,
    answers: BTreeMap<ReadKind, usize>,
    first: Option<String>,
}

impl SilentAnswers {
    fn add(&mut self, read: ReadKind, key: &[u8]) {
        if self.first.is_none() {
            self.first = Some(key.escape_ascii().to_string());
        }
        self.keys.insert(key.to_vec());
        *self.answers.entry(read).or_default() += 1;
    }

    fn into_keys(self) -> SilentKeys {
        SilentKeys {
            keys: self.keys.len(),
            answers: self.answers,
            first: self.first,
        }
    }
}

/// A stored entry.
#[derive(Clone, Copy)]
struct Entry<'c> {
    key: &'c [u8],
    value: &'c [u8],
}

/// Reads a tree in all ways, and compares the answers with the stored entries.
pub(super) fn read_all(tree: &Tree, content: &TreeContent) -> ReadFindings {
    let mut entries = Vec::with_capacity(content.len());
    for (key, value) in content {
        entries.push(Entry { key, value });
    }
    let mut comparison = Comparison {
        tree,
        wrong: SilentAnswers::default(),
        missed: SilentAnswers::default(),
        errors: 0,
        first_error: None,
    };
    comparison.get_each(&entries);
    comparison.get_absent(&absent_keys(tree.kind().codec, content));
    comparison.get_many(&entries);
    comparison.read_range(ReadKind::Range, tree.iter(), &entries);
    comparison.read_range(ReadKind::RangeInReverse, tree.iter(), &entries);
    comparison.read_short_ranges(ReadKind::ShortRange, &entries);
    comparison.read_short_ranges(ReadKind::ShortRangeInReverse, &entries);
    ReadFindings {
        wrong: comparison.wrong.into_keys(),
        missed: comparison.missed.into_keys(),
        errors: comparison.errors,
        first_error: comparison.first_error,
    }
}

/// Keys that the tree does not have: those that were removed, and neighbours of keys that it has.
fn absent_keys(codec: CodecKind, content: &TreeContent) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for index in 0..REMOVED {
        keys.push(removed_key(codec, index));
    }
    for key in content.keys().step_by(KEYS_BY_NEIGHBOUR) {
        let mut neighbour = key.clone();
        if let Some(last) = neighbour.last_mut() {
            *last = last.wrapping_add(1);
        }
        keys.push(neighbour);
    }
    keys.retain(|key| !content.contains_key(key));
    keys
}

/// The comparison of answers with the stored entries.
struct Comparison<'t> {
    tree: &'t Tree,
    wrong: SilentAnswers,
    missed: SilentAnswers,
    errors: usize,
    first_error: Option<String>,
}

impl Comparison<'_> {
    fn note_error(&mut self, error: &Error) {
        if self.first_error.is_none() {
            self.first_error = Some(error.to_string());
        }
        self.errors += 1;
    }

    fn compare(&mut self, read: ReadKind, stored: Entry<'_>, found: Option<&[u8]>) {
        match found {
            None => self.missed.add(read, stored.key),
            Some(value) if value != stored.value => self.wrong.add(read, stored.key),
            Some(_) => {}
        }
    }

    fn get_each(&mut self, entries: &[Entry<'_>]) {
        for entry in entries {
            match self.tree.get(entry.key) {
                Ok(found) => self.compare(ReadKind::Get, *entry, found.as_deref()),
                Err(error) => self.note_error(&error),
            }
        }
    }

    fn get_absent(&mut self, keys: &[Vec<u8>]) {
        for key in keys {
            match self.tree.get(key) {
                Ok(None) => {}
                Ok(Some(_)) => self.wrong.add(ReadKind::Get, key),
                Err(error) => self.note_error(&error),
            }
        }
    }

    fn get_many(&mut self, entries: &[Entry<'_>]) {
        for together in entries.chunks(KEYS_TOGETHER) {
            let keys: Vec<&[u8]> = together.iter().map(|entry| entry.key).collect();
            match self.tree.get_many(&keys) {
                Ok(found) => {
                    for (entry, found) in together.iter().zip(&found) {
                        self.compare(ReadKind::GetMany, *entry, found.as_deref());
                    }
                }
                Err(error) => self.note_error(&error),
            }
        }
    }

    fn read_short_ranges(&mut self, read: ReadKind, entries: &[Entry<'_>]) {
        for together in entries.chunks(KEYS_TOGETHER) {
            if let [first, .., last] = together {
                let range = self.tree.range(first.key..=last.key);
                self.read_range(read, range, together);
            }
        }
    }

    /// Reads a range, which should return these entries, to its end. After an error it goes on
    /// behind the damage.
    fn read_range(&mut self, read: ReadKind, mut range: Range<'_>, entries: &[Entry<'_>]) {
        let mut progress = RangeProgress::new(entries, read.direction());
        let mut errors_in_a_row = 0;
        while errors_in_a_row < ERRORS_IN_A_ROW_MAX {
            let found = match read.direction() {
                Direction::Forward => range.next_entry(),
                Direction::Reverse => range.next_entry_back(),
            };
            match found {
                Ok(None) => break,
                Ok(Some((key, value))) => {
                    errors_in_a_row = 0;
                    let is_stored = progress
                        .go_to(key)
                        .is_some_and(|stored| stored.value == value);
                    if !is_stored {
                        self.wrong.add(read, key);
                    }
                }
                Err(error) => {
                    errors_in_a_row += 1;
                    self.note_error(&error);
                    progress.is_interrupted = true;
                    range.skip_damage();
                }
            }
        }
        for entry in progress.missed() {
            self.missed.add(read, entry.key);
        }
    }
}

/// The progress of a range over the entries that it should return.
struct RangeProgress<'r, 'c> {
    entries: &'r [Entry<'c>],
    direction: Direction,
    /// For each entry, whether the range returned it in its order, or returned an error between the
    /// entries around it.
    is_answered: Vec<bool>,
    /// The entries that the range has not come to yet.
    ahead: std::ops::Range<usize>,
    /// Whether the range has returned an error since the last entry.
    is_interrupted: bool,
}

impl<'r, 'c> RangeProgress<'r, 'c> {
    fn new(entries: &'r [Entry<'c>], direction: Direction) -> Self {
        Self {
            entries,
            direction,
            is_answered: vec![false; entries.len()],
            ahead: 0..entries.len(),
            is_interrupted: false,
        }
    }

    /// The range returned this key. Returns the stored entry; `None` if the range should not return
    /// the key.
    fn go_to(&mut self, key: &[u8]) -> Option<Entry<'c>> {
        let found = self.entries.binary_search_by(|entry| entry.key.cmp(key));
        let place = found.ok()?;
        let is_in_order = self.ahead.contains(&place);
        if is_in_order {
            let passed = match self.direction {
                Direction::Forward => self.ahead.start..place,
                Direction::Reverse => place + 1..self.ahead.end,
            };
            self.pass(passed);
            match self.direction {
                Direction::Forward => self.ahead.start = place + 1,
                Direction::Reverse => self.ahead.end = place,
            }
        }
        self.is_answered[place] = is_in_order;
        Some(self.entries[place])
    }

    /// The range left out these entries. An error answers for them.
    fn pass(&mut self, passed: std::ops::Range<usize>) {
        if self.is_interrupted {
            self.is_answered[passed].fill(true);
        }
        self.is_interrupted = false;
    }

    /// The entries that the range, which has ended, missed.
    fn missed(mut self) -> Vec<Entry<'c>> {
        self.pass(self.ahead.clone());
        let mut missed = Vec::new();
        for (entry, is_answered) in self.entries.iter().zip(&self.is_answered) {
            if !is_answered {
                missed.push(*entry);
            }
        }
        missed
    }
}
