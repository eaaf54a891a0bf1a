//! Root splits: two stores that cannot both come first.

use std::collections::BTreeSet;

use crate::toy::{Exhibit, Insert, Memory, Toy, line};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// A root that was split and has no parent yet stays so after a crash.
    RootOrphaned,
}

/// A B-link tree of at most two levels. Line 0: the root, its lowest bit set if it is an inner
/// node. A leaf is a line: sibling, count, two entries. The inner node: count, then (least key,
/// child).
struct Tree(Fault);

const INNER: u64 = line(15);
const FIRST: u64 = line(1);

fn sibling_of(memory: &Memory<'_>, leaf: u64) -> u64 {
    memory.load(leaf)
}

/// The leaf's entries: those that did not move to its sibling.
fn entries_of(memory: &Memory<'_>, leaf: u64) -> Vec<(u64, u64)> {
    let sibling = sibling_of(memory, leaf);
    let end = if sibling == 0 {
        u64::MAX
    } else {
        memory.load(sibling + 16)
    };
    (0..memory.load(leaf + 8))
        .map(|index| {
            (
                memory.load(leaf + 16 + 16 * index),
                memory.load(leaf + 24 + 16 * index),
            )
        })
        .filter(|entry| entry.0 < end)
        .collect()
}

fn leaves(memory: &Memory<'_>) -> Vec<u64> {
    let mut leaves = vec![FIRST];
    while let sibling @ 1.. = sibling_of(memory, leaves[leaves.len() - 1]) {
        leaves.push(sibling);
    }
    leaves
}

fn write(memory: &Memory<'_>, leaf: u64, entries: &[(u64, u64)]) {
    for (index, (key, value)) in (0..).zip(entries) {
        memory.store(leaf + 16 + 16 * index, *key);
        memory.store(leaf + 24 + 16 * index, *value);
    }
    memory.store(leaf + 8, entries.len() as u64);
    memory.persist(leaf);
}

/// Makes the parent know a leaf; makes a parent of the root, if it is `left` that was split.
fn adopt(memory: &Memory<'_>, left: u64, leaf: u64) {
    let root = memory.load(0);
    if root == left {
        for (offset, word) in [
            (0, 2),
            (8, memory.load(left + 16)),
            (16, left),
            (24, memory.load(leaf + 16)),
            (32, leaf),
        ] {
            memory.store(INNER + offset, word);
        }
        memory.persist(INNER);
        memory.publish(0, INNER | 1);
        return;
    }
    assert!(root & 1 == 1, "the leaf that was split has no parent");
    let count = memory.load(INNER);
    memory.store(INNER + 8 + 16 * count, memory.load(leaf + 16));
    memory.store(INNER + 16 + 16 * count, leaf);
    memory.persist(INNER + 16 + 16 * count);
    memory.publish(INNER, count + 1);
}

impl Toy for Tree {
    fn open(&self, memory: &Memory<'_>) {
        if memory.load(0) == 0 {
            memory.publish(0, FIRST);
        }
        if self.0 == Fault::Nothing {
            let adopted: BTreeSet<u64> = match memory.load(0) & 1 {
                0 => BTreeSet::from([memory.load(0)]),
                _ => (0..memory.load(INNER))
                    .map(|index| memory.load(INNER + 16 + 16 * index))
                    .collect(),
            };
            for pair in leaves(memory)
                .windows(2)
                .filter(|pair| !adopted.contains(&pair[1]))
            {
                adopt(memory, pair[0], pair[1]);
            }
        }
    }

    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let leaves = leaves(memory);
        let fits = |leaf: &&u64| {
            entries_of(memory, **leaf)
                .first()
                .is_none_or(|least| least.0 < key)
        };
        let leaf = *leaves.iter().rev().find(fits).unwrap_or(&FIRST);
        let mut entries = entries_of(memory, leaf);
        entries.push((key, value));
        entries.sort_unstable();
        if entries.len() <= 2 {
            return write(memory, leaf, &entries);
        }
        let right = line(1) + line(leaves.len() as u64);
        memory.store(right, sibling_of(memory, leaf));
        write(memory, right, &entries[1..]);
        // PERSIST: the sibling; from here on readers find its keys through it.
        memory.publish(leaf, right);
        write(memory, leaf, &entries[..1]);
        adopt(memory, leaf, right);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        leaves(memory)
            .into_iter()
            .flat_map(|leaf| entries_of(memory, leaf))
            .collect()
    }
}

/// A root splits: the sibling is linked, and a crash comes before the new root is. All keys are
/// found, for readers follow the link; but the sibling has no parent, so when it splits in turn no
/// parent can be updated.
///
/// Source: Witcher, bug 5 (FAST_FAIR, `store`) and bug 39 (P-Masstree, `split`), which is the same.
#[test]
fn fast_fair_root_split_leaves_a_sibling_without_a_parent() {
    Exhibit {
        setup: &[Insert(1, 10), Insert(2, 20)],
        operations: &[Insert(3, 30)],
        then: &[Insert(4, 40)],
        complaint: "the leaf that was split has no parent",
    }
    .show(&Tree(Fault::RootOrphaned), &Tree(Fault::Nothing));
}
