//! Radix trees: WOART's compressed paths, P-ART's counts.

use crate::toy::{Exhibit, Insert, Memory, Toy, line};

/// A radix tree over keys of three digits to the base four. Line 0: the root. A reference is an
/// offset, its lowest bit set if it leads to a leaf; line 1 counts the lines in use. A leaf: key,
/// value. A node: how many digits it skips, then a child for each digit; line k of the memory is
/// never used twice.
struct Woart {
    /// A path is split by two stores: the new node takes the place of the old one, and the old
    /// one's path gets shorter.
    in_place: bool,
}

fn digit(key: u64, depth: u64) -> u64 {
    key >> (2 * 2_u64.checked_sub(depth).expect("a key has three digits")) & 3
}

fn allocate(memory: &Memory<'_>) -> u64 {
    let used = memory.load(line(1)).max(2);
    memory.publish(line(1), used + 1);
    line(used)
}

fn leaf(memory: &Memory<'_>, key: u64, value: u64) -> u64 {
    let leaf = allocate(memory);
    memory.store(leaf, key);
    memory.store(leaf + 8, value);
    memory.persist(leaf);
    leaf | 1
}

/// Makes a node, flushed but not fenced.
fn node(memory: &Memory<'_>, skip: u64, children: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let node = allocate(memory);
    memory.store(node, skip);
    for (digit, child) in children {
        memory.store(node + 8 + 8 * digit, child);
    }
    memory.flush(node);
    node
}

/// Any leaf below: all of them share the digits that are skipped.
fn some_leaf(memory: &Memory<'_>, mut at: u64) -> u64 {
    while at & 1 == 0 {
        at = (0..4)
            .map(|digit| memory.load(at + 8 + 8 * digit))
            .find(|child| *child != 0)
            .expect("no empty node");
    }
    at - 1
}

impl Toy for Woart {
    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let mut reference = 0;
        let mut depth = 0;
        loop {
            let at = memory.load(reference);
            if at == 0 {
                return memory.publish(reference, leaf(memory, key, value));
            }
            let other = memory.load(some_leaf(memory, at));
            let common = (depth..3)
                .find(|depth| digit(key, *depth) != digit(other, *depth))
                .expect("another key");
            let is_leaf = at & 1 == 1;
            if !is_leaf && common >= depth + memory.load(at) {
                depth += memory.load(at);
                reference = at + 8 + 8 * digit(key, depth);
                depth += 1;
                continue;
            }
            let new = leaf(memory, key, value);
            let place = (digit(other, common), digit(key, common));
            let children = (0..4).map(|digit| (digit, memory.load((at & !1) + 8 + 8 * digit)));
            if is_leaf || self.in_place {
                let parent = node(memory, common - depth, [(place.0, at), (place.1, new)]);
                memory.fence();
                memory.store(reference, parent);
                if !is_leaf {
                    memory.store(at, depth + memory.load(at) - common - 1);
                    memory.flush(at);
                }
            } else {
                let shorter = node(memory, depth + memory.load(at) - common - 1, children);
                let parent = node(memory, common - depth, [(place.0, shorter), (place.1, new)]);
                memory.fence();
                memory.store(reference, parent);
            }
            return memory.persist(reference);
        }
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let mut entries = Vec::new();
        let mut stack = vec![memory.load(0)];
        while let Some(at) = stack.pop() {
            match (at, at & 1) {
                (0, _) => {}
                (_, 1) => entries.push((memory.load(at - 1), memory.load(at + 7))),
                _ => stack.extend((0..4).map(|digit| memory.load(at + 8 + 8 * digit))),
            }
        }
        entries
    }

    fn get(&self, memory: &Memory<'_>, key: u64) -> Option<u64> {
        let mut at = memory.load(0);
        let mut depth = 0;
        while at != 0 && at & 1 == 0 {
            depth += memory.load(at);
            at = memory.load(at + 8 + 8 * digit(key, depth));
            depth += 1;
        }
        (at != 0 && memory.load(at - 1) == key).then(|| memory.load(at + 7))
    }
}

/// Splitting a path stores the reference to the new node and the shorter path of the old one; a
/// crash may leave only one of the two, and then digits are skipped twice or not at all.
///
/// Source: Witcher, bug 2 (WOART); that recovery of paths is missing: SeKwonLee/WORT#2.
#[test]
fn woart_path_and_reference_are_not_atomic() {
    Exhibit {
        setup: &[Insert(4, 40), Insert(6, 60)],
        operations: &[Insert(9, 90)],
        then: &[Insert(10, 91)],
        complaint: "get 6 found None",
    }
    .show(&Woart { in_place: true }, &Woart { in_place: false });
}

/// A node of a line. N4: count, three keys, three children. An entry exists if its child does.
struct N4 {
    /// The count is stored after the child.
    count_last: bool,
}

impl Toy for N4 {
    fn insert(&self, memory: &Memory<'_>, key: u64, child: u64) {
        let count = memory.load(0);
        assert!(count < 3, "the node is full");
        memory.store(8 + 8 * count, key);
        if self.count_last {
            memory.store(32 + 8 * count, child);
            memory.store(0, count + 1);
        } else {
            memory.store(0, count + 1);
            memory.store(32 + 8 * count, child);
        }
        memory.persist(0);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let entries = (0..3).map(|index| (memory.load(8 + 8 * index), memory.load(32 + 8 * index)));
        entries.filter(|entry| entry.1 != 0).collect()
    }
}

/// Key, child and count lie in one line and are flushed at once; but a crash between them leaves a
/// child that readers find and that the count does not cover, so that the next insertion overwrites
/// it.
///
/// Source: Witcher, bug 27, example 0 (P-ART, `N4::insert`).
#[test]
fn p_art_n4_count_behind_its_children() {
    Exhibit {
        setup: &[Insert(1, 10)],
        operations: &[Insert(2, 20)],
        then: &[Insert(3, 30)],
        complaint: "after recovery and [insert 3=30]",
    }
    .show(&N4 { count_last: true }, &N4 { count_last: false });
}

/// N16: count and keys in line 0, children in line 1. Point reads look at keys and children, scans
/// at the count, too.
struct N16 {
    /// Point reads stop at the count as well.
    counted: bool,
}

impl Toy for N16 {
    fn insert(&self, memory: &Memory<'_>, key: u64, child: u64) {
        let count = memory.load(0);
        memory.publish(8 + 8 * count, key);
        memory.publish(line(1) + 8 * count, child);
        memory.publish(0, count + 1);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        (0..memory.load(0))
            .map(|index| (memory.load(8 + 8 * index), memory.load(line(1) + 8 * index)))
            .collect()
    }

    fn get(&self, memory: &Memory<'_>, key: u64) -> Option<u64> {
        let end = if self.counted { memory.load(0) } else { 7 };
        let is_it = |index: &u64| {
            memory.load(line(1) + 8 * index) != 0 && memory.load(8 + 8 * index) == key
        };
        (0..end)
            .find(is_it)
            .map(|index| memory.load(line(1) + 8 * index))
    }
}

/// A crash before the count leaves an entry that point reads find and scans do not.
///
/// Source: Witcher, bug 26 (P-ART, `N16::insert`, `N16::getChildren`).
#[test]
fn p_art_n16_scan_misses_what_get_finds() {
    Exhibit {
        setup: &[Insert(1, 10)],
        operations: &[Insert(2, 20)],
        then: &[Insert(3, 30)],
        complaint: "get 2 found Some(20), a scan found None",
    }
    .show(&N16 { counted: false }, &N16 { counted: true });
}
