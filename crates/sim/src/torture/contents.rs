//! The content of the trees.

use serde::{Deserialize, Serialize};

use super::{TortureWorkload, ValueVersion};

/// A key of a tree, both by number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct TreeKey {
    pub(super) tree: u8,
    pub(super) key: u32,
}

/// The content of the trees: versions by key number, 0 for absent.
#[derive(Clone, Serialize, Deserialize)]
pub struct Contents {
    versions: Vec<Vec<ValueVersion>>,
}

impl Contents {
    /// The content of empty trees.
    pub fn empty(workload: &TortureWorkload) -> Self {
        let keys = workload.key_count() as usize;
        let trees = usize::from(workload.tree_count());
        Self {
            versions: vec![vec![0; keys]; trees],
        }
    }

    /// This content.
    #[cfg(test)]
    pub(super) fn of(versions: Vec<Vec<ValueVersion>>) -> Self {
        Self { versions }
    }

    /// Whether it has a place for each key of each tree.
    pub fn is_of(&self, workload: &TortureWorkload) -> bool {
        let keys = workload.key_count() as usize;
        self.versions.len() == usize::from(workload.tree_count())
            && self.versions.iter().all(|versions| versions.len() == keys)
    }

    /// The versions of a tree, by key number.
    pub fn of_tree(&mut self, tree: u8) -> &mut [ValueVersion] {
        &mut self.versions[usize::from(tree)]
    }

    /// The version of a key; 0 if it is absent.
    pub(super) fn version(&self, tree: u8, key: u32) -> ValueVersion {
        self.versions[usize::from(tree)][key as usize]
    }

    /// Changes the version of a key.
    pub(super) fn set_version(&mut self, tree: u8, key: u32, version: ValueVersion) {
        self.versions[usize::from(tree)][key as usize] = version;
    }

    /// How many keys a tree has.
    pub fn count(&self, tree: u8) -> u64 {
        let versions = &self.versions[usize::from(tree)];
        versions.iter().filter(|version| **version != 0).count() as u64
    }
}
