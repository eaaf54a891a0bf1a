//! B+-trees whose inner nodes are volatile: a chain of leaves, and an index over it that recovery
//! rebuilds.

use std::cell::RefCell;

use crate::toy::{Exhibit, Insert, Memory, Remove, Toy, line};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// A split flushes the new leaf and the old bitmap, but not the line in which the next leaf is
    /// named.
    NextUnflushed,
    /// A split does not flush the new leaf.
    SiblingUnflushed,
    /// A split makes the old leaf's half durable before the new leaf.
    OldLeafFirst,
    /// An entry is flushed before it is written.
    FlushedBeforeWritten,
    /// Recovery walks the chain without counting its leaves, and keeps the last.
    IndexStuck,
    /// Recovery forgets leaves without entries.
    EmptyForgotten,
}

/// A leaf has three lines: two entries; a bitmap of them; the next leaf. The first leaf is at line
/// 3.
struct Chain {
    fault: Fault,
    /// Leaves that the index knows, in order.
    index: RefCell<Vec<u64>>,
    /// Leaves of the chain that are empty, to be filled later.
    spare: RefCell<Vec<u64>>,
}

const LEAF: u64 = line(3);
const ENTRIES: u64 = 2;

fn chain(memory: &Memory<'_>) -> Vec<u64> {
    let mut leaves = vec![LEAF];
    while let next @ 1.. = memory.load(leaves[leaves.len() - 1] + line(2)) {
        leaves.push(next);
    }
    leaves
}

fn bitmap(memory: &Memory<'_>, leaf: u64) -> u64 {
    memory.load(leaf + line(1))
}

fn entries_of(memory: &Memory<'_>, leaf: u64) -> Vec<(u64, u64)> {
    let taken = (0..ENTRIES).filter(|slot| bitmap(memory, leaf) >> slot & 1 == 1);
    let mut entries: Vec<_> = taken
        .map(|slot| {
            (
                memory.load(leaf + 16 * slot),
                memory.load(leaf + 16 * slot + 8),
            )
        })
        .collect();
    entries.sort_unstable();
    entries
}

impl Chain {
    fn new(fault: Fault) -> Self {
        Self {
            fault,
            index: RefCell::default(),
            spare: RefCell::default(),
        }
    }

    fn leaf_of(&self, memory: &Memory<'_>, key: u64) -> u64 {
        let index = self.index.borrow();
        let fits = |leaf: &&u64| {
            entries_of(memory, **leaf)
                .first()
                .is_some_and(|least| least.0 <= key)
        };
        *index.iter().rev().find(fits).unwrap_or(&index[0])
    }

    /// Moves the larger of two entries to a new leaf.
    fn split(&self, memory: &Memory<'_>, leaf: u64) {
        let largest = entries_of(memory, leaf)[1];
        let slot = (0..ENTRIES)
            .find(|slot| memory.load(leaf + 16 * slot) == largest.0)
            .expect("it is there");
        let new = LEAF + LEAF * chain(memory).len() as u64;
        memory.store(new, largest.0);
        memory.store(new + 8, largest.1);
        memory.store(new + line(1), 1);
        memory.store(new + line(2), memory.load(leaf + line(2)));
        let flush_new = || {
            for offset in [new, new + line(1), new + line(2)] {
                memory.flush(offset);
            }
            memory.fence();
        };
        let shorten = || memory.publish(leaf + line(1), bitmap(memory, leaf) & !(1 << slot));
        match self.fault {
            Fault::SiblingUnflushed => {}
            Fault::OldLeafFirst => shorten(),
            _ => flush_new(),
        }
        if self.fault == Fault::OldLeafFirst {
            flush_new();
        }
        memory.store(leaf + line(2), new);
        if self.fault != Fault::NextUnflushed {
            memory.persist(leaf + line(2));
        }
        if self.fault != Fault::OldLeafFirst {
            shorten();
        }
        let mut index = self.index.borrow_mut();
        let position = index
            .iter()
            .position(|known| *known == leaf)
            .expect("a known leaf");
        index.insert(position + 1, new);
    }
}

impl Toy for Chain {
    fn open(&self, memory: &Memory<'_>) {
        let leaves = chain(memory);
        // A split was interrupted: the old leaf still has the entries that moved to the new one.
        for pair in leaves.windows(2) {
            let moved = entries_of(memory, pair[1]);
            let twice = |slot: &u64| {
                moved
                    .iter()
                    .any(|entry| entry.0 == memory.load(pair[0] + 16 * slot))
            };
            let kept: u64 = (0..ENTRIES)
                .filter(|slot| !twice(slot))
                .map(|slot| 1 << slot)
                .sum();
            memory.publish(pair[0] + line(1), bitmap(memory, pair[0]) & kept);
        }
        let mut index = Vec::new();
        let mut spare = Vec::new();
        for leaf in leaves {
            match () {
                () if self.fault == Fault::IndexStuck => index = vec![leaf],
                () if leaf == LEAF || bitmap(memory, leaf) != 0 => index.push(leaf),
                () if self.fault == Fault::EmptyForgotten => {}
                () => spare.push(leaf),
            }
        }
        *self.index.borrow_mut() = index;
        *self.spare.borrow_mut() = spare;
    }

    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let mut leaf = self.leaf_of(memory, key);
        if bitmap(memory, leaf) == (1 << ENTRIES) - 1 {
            self.split(memory, leaf);
            leaf = self.leaf_of(memory, key);
        }
        let slot = u64::from(bitmap(memory, leaf).trailing_ones());
        if self.fault == Fault::FlushedBeforeWritten {
            memory.persist(leaf + 16 * slot);
        }
        memory.store(leaf + 16 * slot, key);
        memory.store(leaf + 16 * slot + 8, value);
        if self.fault != Fault::FlushedBeforeWritten {
            memory.persist(leaf + 16 * slot);
        }
        memory.publish(leaf + line(1), bitmap(memory, leaf) | 1 << slot);
    }

    fn remove(&self, memory: &Memory<'_>, key: u64) {
        let leaf = self.leaf_of(memory, key);
        let is_it = |slot: &u64| {
            bitmap(memory, leaf) >> slot & 1 == 1 && memory.load(leaf + 16 * slot) == key
        };
        let slot = (0..ENTRIES).find(is_it).expect("a key that is present");
        memory.publish(leaf + line(1), bitmap(memory, leaf) & !(1 << slot));
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        self.index
            .borrow()
            .iter()
            .flat_map(|leaf| entries_of(memory, *leaf))
            .collect()
    }

    fn check(&self, memory: &Memory<'_>) -> Result<(), String> {
        let linked = chain(memory).len();
        let known = self.index.borrow().len() + self.spare.borrow().len();
        match linked == known {
            true => Ok(()),
            false => Err(format!(
                "space leaks: {linked} leaves are linked, {known} are known"
            )),
        }
    }
}

fn show(fault: Fault, complaint: &str) {
    let setup = &[Insert(1, 10), Insert(2, 20)];
    let operations = &[Insert(3, 30)];
    Exhibit {
        setup,
        operations,
        then: &[Remove(2), Insert(4, 40)],
        complaint,
    }
    .show(&Chain::new(fault), &Chain::new(Fault::Nothing));
}

/// `LN::flush` writes back slot array and entries; the pointer to the next leaf lies behind them. A
/// split is acknowledged, and after a crash the right half is gone.
///
/// Source: liumx10/ICPP-RNTree, `include/rtm_tree.h`, `LN::flush` and `generateNextLeaf` (RNTree's
/// own code).
#[test]
fn rntree_next_leaf_lies_outside_what_is_flushed() {
    show(Fault::NextUnflushed, "but it should be one of");
}

/// A split flushes the old leaf and forgets the new one.
///
/// Source: liumx10/ICPP-RNTree, `include/wbtree.h`, `generateNextLeaf` (its wB+-tree).
#[test]
fn wbtree_new_sibling_is_never_flushed() {
    show(Fault::SiblingUnflushed, "but it should be one of");
}

/// A split flushes the old leaf before the new one; a crash between the two loses the entries that
/// moved.
///
/// Source: tarides/cactus#1.
#[test]
fn cactus_split_flushes_the_old_leaf_first() {
    show(Fault::OldLeafFirst, "but it should be one of");
}

/// An insertion flushes the slot, then writes it, then publishes it by the bitmap.
///
/// Source: liumx10/ICPP-RNTree, `include/fptree.h`, `modify` (its FPTree).
#[test]
fn fptree_flushes_an_entry_before_writing_it() {
    Exhibit {
        setup: &[],
        operations: &[Insert(1, 10)],
        then: &[],
        complaint: "after recovery {0: 0} was found, but it should be one of [{}, {1: 10}]",
    }
    .show(
        &Chain::new(Fault::FlushedBeforeWritten),
        &Chain::new(Fault::Nothing),
    );
}

/// Recovery collects the leaves in an array whose index never advances. Only the last leaf is known
/// afterwards.
///
/// Source: liumx10/ICPP-RNTree, `include/nv_tree.h`, `rebuild` (its NVTree; the other trees of the
/// repository have the same).
#[test]
fn nvtree_rebuild_keeps_the_last_leaf_only() {
    show(Fault::IndexStuck, "but it should be one of");
}

/// Recovery skips leaves without keys, which stay linked and are never used again.
///
/// Source: pmem/pmemkv#10.
#[test]
fn pmemkv_recovery_forgets_empty_leaves() {
    Exhibit {
        setup: &[Insert(1, 10), Insert(2, 20), Insert(3, 30)],
        operations: &[Remove(3), Remove(2)],
        then: &[],
        complaint: "space leaks: 2 leaves are linked, 1 are known",
    }
    .show(
        &Chain::new(Fault::EmptyForgotten),
        &Chain::new(Fault::Nothing),
    );
}
