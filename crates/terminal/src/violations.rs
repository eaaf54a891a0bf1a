//! Violations and lost copies, in the one shape that all answers give them.

use std::collections::HashMap;
use std::fmt;

use everleaf::{CodecKind, KeysBetween, LeftOut, LostCopy, Part, StoreViolation};
use serde::Serialize;

use crate::context::Context;
use crate::{progress, text};

/// A violation, and where it is, as far as that is known. Violations that are the same in all words
/// are listed once, and counted.
#[derive(Serialize, Clone, Debug)]
pub struct ListedViolation {
    tree: Option<String>,
    offset: Option<u64>,
    what: String,
    /// The keys between which the lost ones lie. A command that can write keys as JSON adds them.
    #[serde(skip)]
    pub keys: Option<KeysOfTree>,
    /// The same in words.
    #[serde(skip)]
    keys_in_words: Option<String>,
    /// How often it was found.
    count: u64,
}

/// Keys between which others were lost, and the codec of their tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeysOfTree {
    /// The neighbours of the lost keys.
    pub between: KeysBetween,
    /// The codec of the tree.
    pub codec: CodecKind,
}

impl ListedViolation {
    fn new(tree: Option<String>, offset: Option<u64>, what: String) -> Self {
        Self {
            tree,
            offset,
            what,
            keys: None,
            keys_in_words: None,
            count: 1,
        }
    }

    /// Damage that a salvage of a tree found.
    pub fn of_salvage(tree: &str, codec: CodecKind, left_out: LeftOut) -> Self {
        let keys_in_words = keys_in_words(&left_out, codec);
        let keys = KeysOfTree {
            between: left_out.keys,
            codec,
        };
        Self {
            keys: Some(keys),
            keys_in_words,
            ..Self::new(Some(tree.to_owned()), Some(left_out.offset), left_out.what)
        }
    }

    /// A tree as a whole.
    pub fn of_tree(tree: &str, what: String) -> Self {
        Self::new(Some(tree.to_owned()), None, what)
    }

    /// Whether the other one says the same.
    fn says_the_same(&self, other: &Self) -> bool {
        self.offset == other.offset
            && self.tree == other.tree
            && self.what == other.what
            && self.keys == other.keys
    }
}

/// The lost keys of a part of a tree, named by their neighbours.
fn keys_in_words(left_out: &LeftOut, codec: CodecKind) -> Option<String> {
    let shown = |key: &[u8]| match (codec, key.first_chunk::<8>()) {
        (CodecKind::Word, Some(word)) => u64::from_be_bytes(*word).to_string(),
        _ => text::quoted(key),
    };
    let keys = if left_out.part == Part::Entry {
        "a key"
    } else {
        "keys"
    };
    match (&left_out.keys.above, &left_out.keys.below) {
        (Some(above), Some(below)) => Some(format!(
            "{keys} between {} and {}",
            shown(above),
            shown(below)
        )),
        (Some(above), None) => Some(format!("{keys} above {}", shown(above))),
        (None, Some(below)) => Some(format!("{keys} below {}", shown(below))),
        (None, None) => None,
    }
}

impl From<StoreViolation> for ListedViolation {
    fn from(StoreViolation { tree, offset, what }: StoreViolation) -> Self {
        Self::new(tree, offset, what)
    }
}

impl From<String> for ListedViolation {
    fn from(what: String) -> Self {
        Self::new(None, None, what)
    }
}

impl fmt::Display for ListedViolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let violation = StoreViolation {
            tree: self.tree.clone(),
            offset: self.offset,
            what: self.what.clone(),
        };
        write!(formatter, "{violation}")?;
        if let Some(keys) = &self.keys_in_words {
            write!(formatter, ": {keys}")?;
        }
        formatter.write_str(&times(self.count))
    }
}

/// How often a line came, behind the line.
fn times(count: u64) -> String {
    if count == 1 {
        String::new()
    } else {
        format!(" ({} times)", progress::count(count))
    }
}

/// Lines in the order in which they first came, each once, with how often it came.
pub fn counted_lines(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut found: HashMap<String, usize> = HashMap::new();
    let mut counted: Vec<CountedLine> = Vec::new();
    for line in lines {
        if let Some(number) = found.get(&line) {
            counted[*number].count += 1;
            continue;
        }
        found.insert(line.clone(), counted.len());
        counted.push(CountedLine { line, count: 1 });
    }
    let written = |CountedLine { line, count }| line + &times(count);
    counted.into_iter().map(written).collect()
}

/// A line, and how often it came.
struct CountedLine {
    line: String,
    count: u64,
}

/// A copy of something that the pool keeps twice.
#[derive(Serialize, Debug)]
pub struct ListedCopy {
    offset: u64,
    what: String,
}

impl From<&LostCopy> for ListedCopy {
    fn from(copy: &LostCopy) -> Self {
        Self {
            offset: copy.offset,
            what: copy.what.clone(),
        }
    }
}

impl fmt::Display for ListedCopy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "offset {:#x}: {}", self.offset, self.what)
    }
}

/// The number of violations, and the first of them.
#[derive(Serialize, Default, Debug)]
pub struct Violations {
    #[serde(rename = "violations")]
    count: u64,
    #[serde(rename = "first_violations")]
    first: Vec<ListedViolation>,
}

/// The most that an answer in JSON lists.
pub const LISTED_MAX: usize = 100;
/// The most violations that a command prints one by one if checking is not its purpose.
const TOLD_MAX: usize = 20;

impl Violations {
    /// Counts a violation, and lists it if the list is not full.
    pub fn add(&mut self, violation: impl Into<ListedViolation>) {
        self.count += 1;
        list(&mut self.first, violation.into());
    }

    /// The number of all violations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether there is no violation.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first few, one a line, and how many more there are.
    pub fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        let mut more = self.count;
        for violation in self.first.iter().take(TOLD_MAX) {
            more -= violation.count;
            told.push(violation.to_string());
        }
        if more > 0 {
            told.push(format!("and {} more", progress::count(more)));
        }
        told
    }

    /// Prints them as notes, each behind the text `what`.
    pub fn note(&self, context: Context, what: &str) {
        for violation in self.told() {
            context.note(format!("{what}: {violation}"));
        }
    }
}

/// Adds a violation to a list, unless that is full. One that is in the list is counted there.
pub fn list(listed: &mut Vec<ListedViolation>, violation: ListedViolation) {
    let same = listed
        .iter_mut()
        .find(|other| other.says_the_same(&violation));
    if let Some(same) = same {
        same.count += violation.count;
    } else if listed.len() < LISTED_MAX {
        listed.push(violation);
    }
}

impl<V: Into<ListedViolation>> FromIterator<V> for Violations {
    fn from_iter<I: IntoIterator<Item = V>>(violations: I) -> Self {
        let mut all = Self::default();
        for violation in violations {
            all.add(violation);
        }
        all
    }
}

#[cfg(test)]
mod tests;
