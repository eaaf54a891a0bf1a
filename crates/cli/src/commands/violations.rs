//! Violations, in the one shape that all answers give them.

use everleaf::{LeftOut, StoreViolation};
use serde::Serialize;

use crate::context::Context;
use crate::progress;

/// A violation, and where it is, as far as that is known.
#[derive(Serialize, Clone, Debug)]
pub(super) struct ListedViolation {
    tree: Option<String>,
    offset: Option<u64>,
    what: String,
}

impl ListedViolation {
    /// Damage that a salvage of a tree found.
    pub(super) fn of_salvage(tree: &str, left_out: LeftOut) -> Self {
        Self {
            tree: Some(tree.to_owned()),
            offset: Some(left_out.offset),
            what: left_out.what,
        }
    }

    /// A tree as a whole.
    pub(super) fn of_tree(tree: &str, what: String) -> Self {
        Self {
            tree: Some(tree.to_owned()),
            offset: None,
            what,
        }
    }
}

impl From<StoreViolation> for ListedViolation {
    fn from(StoreViolation { tree, offset, what }: StoreViolation) -> Self {
        Self { tree, offset, what }
    }
}

impl From<String> for ListedViolation {
    fn from(what: String) -> Self {
        Self {
            tree: None,
            offset: None,
            what,
        }
    }
}

impl std::fmt::Display for ListedViolation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tree, offset, what } = self;
        StoreViolation {
            tree: tree.clone(),
            offset: *offset,
            what: what.clone(),
        }
        .fmt(formatter)
    }
}

/// The number of violations, and the first of them.
#[derive(Serialize, Default, Debug)]
pub(super) struct Violations {
    #[serde(rename = "violations")]
    count: u64,
    #[serde(rename = "first_violations")]
    first: Vec<ListedViolation>,
}

/// The most that an answer in JSON lists.
pub(super) const LISTED_MAX: usize = 100;
/// The most violations that a command prints one by one if checking is not its purpose.
const TOLD_MAX: usize = 20;

impl Violations {
    pub(super) fn add(&mut self, violation: impl Into<ListedViolation>) {
        self.count += 1;
        if self.first.len() < LISTED_MAX {
            self.first.push(violation.into());
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first few, one a line, and how many more there are.
    pub(super) fn told(&self) -> Vec<String> {
        let told = self.first.iter().take(TOLD_MAX).map(ToString::to_string);
        let more = self.count.saturating_sub(TOLD_MAX as u64);
        told.chain((more > 0).then(|| format!("and {} more", progress::count(more))))
            .collect()
    }

    /// Prints them as notes, each behind the text `what`.
    pub(super) fn note(&self, context: Context, what: &str) {
        for violation in self.told() {
            context.note(format!("{what}: {violation}"));
        }
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
