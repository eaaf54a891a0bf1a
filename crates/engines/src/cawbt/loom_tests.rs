//! Readers beside a writer under every interleaving and every weak ordering. See `medium::sync` for
//! how to run it.

use std::sync::Arc;

use loom::thread;
use medium::Dax;
use medium::sync::{AtomicU64, Ordering, model};

use super::versions::VersionTable;
use crate::kit::ids::Ids;

/// Two nodes of different stripes.
const PARENT: u64 = 64;
const CHILD: u64 = 128;
const NODES: usize = 2;
const ID: u32 = 1;
const REMOVED: [u64; 2] = [7, 70];
const ADDED: [u64; 2] = [9, 90];

/// Nodes of one word each, with the orderings of cells, and the versions against which readers
/// validate.
struct Tree {
    versions: VersionTable<Dax>,
    ids: Ids<Dax>,
    nodes: [AtomicU64; NODES],
}

impl Tree {
    fn new(nodes: [u64; NODES]) -> Arc<Self> {
        let ids = Ids::new(3).unwrap();
        assert_eq!(ids.claim().unwrap(), ID);
        ids.set(ID, REMOVED).unwrap();
        Arc::new(Self {
            versions: VersionTable::new().unwrap(),
            ids,
            nodes: nodes.map(AtomicU64::new),
        })
    }

    fn node(&self, offset: u64) -> &AtomicU64 {
        &self.nodes[(offset / 64 - 1) as usize]
    }

    fn change(&self, offsets: &[u64], node: u64, word: u64) {
        offsets
            .iter()
            .for_each(|offset| self.versions.raise(*offset));
        self.node(node).store(word, Ordering::Release);
        offsets
            .iter()
            .for_each(|offset| self.versions.lower(*offset));
    }
}

/// The reader is not pinned, and the ID is reused at once.
#[test]
fn a_node_that_is_still_the_same_has_the_entry_of_its_key() {
    model(|| {
        let tree = Tree::new([u64::from(ID), 0]);
        let writer = thread::spawn({
            let tree = Arc::clone(&tree);
            move || {
                tree.change(&[PARENT], PARENT, 0);
                tree.ids.set(ID, ADDED).unwrap();
            }
        });
        if let Some(version) = tree.versions.of(PARENT) {
            let id = tree.node(PARENT).load(Ordering::Acquire) as u32;
            let entry = tree.ids.entry(id);
            if tree.versions.is_still(PARENT, version) && id == ID {
                assert_eq!(entry, REMOVED);
            }
        }
        writer.join().unwrap();
    });
}

/// The child is merged, and its line becomes another node at once.
#[test]
fn a_descent_comes_to_the_node_that_was_meant() {
    const MEANT: u64 = 5;
    model(|| {
        let tree = Tree::new([CHILD, MEANT]);
        let writer = thread::spawn({
            let tree = Arc::clone(&tree);
            move || {
                tree.change(&[PARENT, CHILD], PARENT, 0);
                tree.node(CHILD).store(MEANT + 1, Ordering::Release);
            }
        });
        if let Some(above) = tree.versions.of(PARENT) {
            let child = tree.node(PARENT).load(Ordering::Acquire);
            if child == CHILD
                && let Some(version) = tree.versions.of(child)
                && tree.versions.is_still(PARENT, above)
            {
                let content = tree.node(child).load(Ordering::Acquire);
                if tree.versions.is_still(child, version) {
                    assert_eq!(content, MEANT);
                }
            }
        }
        writer.join().unwrap();
    });
}
