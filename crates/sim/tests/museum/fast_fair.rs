//! FAST and FAIR, the sorted node: entries shift by word stores, and readers skip an entry whose
//! pointer equals the one to its left.

use crate::toy::{Exhibit, Insert, Memory, Remove, Toy, line};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// Nothing is repaired after a crash, and a removal takes the first entry with the key, skipped
    /// by readers or not.
    BlindRemoval,
    /// A removal flushes a line when it begins to write it, not when it is done with the one
    /// before.
    FlushAtLineStart,
    /// An insertion flushes the line that it leaves, without a fence.
    FlushUnordered,
    /// The objects that the constructor makes are not flushed.
    ConstructorUnflushed,
}

/// One node: the pointer to it in line 0; its leftmost pointer in line 1; entries (key, pointer),
/// four in a line, from line 2 on. The first entry without a pointer is the end.
struct Node(Fault);

const NODE: u64 = line(1);
const LEFTMOST: u64 = u64::MAX;

fn key_of(index: u64) -> u64 {
    line(2) + 16 * index
}

fn pointer_of(index: u64) -> u64 {
    key_of(index) + 8
}

fn left_pointer(memory: &Memory<'_>, index: u64) -> u64 {
    memory.load(if index == 0 {
        NODE
    } else {
        pointer_of(index - 1)
    })
}

fn count(memory: &Memory<'_>) -> u64 {
    (0..64)
        .find(|index| memory.load(pointer_of(*index)) == 0)
        .unwrap_or(64)
}

fn is_skipped(memory: &Memory<'_>, index: u64) -> bool {
    memory.load(pointer_of(index)) == left_pointer(memory, index)
}

fn starts_line(index: u64) -> bool {
    index.is_multiple_of(4)
}

impl Node {
    /// Shifts the entries to the right of an entry over it.
    fn shift_left(&self, memory: &Memory<'_>, index: u64) {
        let count = count(memory);
        memory.store(pointer_of(index), left_pointer(memory, index));
        for target in index..count {
            memory.store(key_of(target), memory.load(key_of(target + 1)));
            memory.store(pointer_of(target), memory.load(pointer_of(target + 1)));
            let flush = if self.0 == Fault::FlushAtLineStart {
                starts_line(target)
            } else {
                starts_line(target + 1)
            };
            if flush {
                memory.persist(key_of(target));
            }
        }
        (index..=count)
            .step_by(4)
            .for_each(|index| memory.flush(key_of(index)));
        memory.persist(key_of(count));
    }
}

impl Toy for Node {
    fn open(&self, memory: &Memory<'_>) {
        if memory.load(0) == 0 {
            memory.store(NODE, LEFTMOST);
            memory.store(pointer_of(0), 0);
            memory.store(0, NODE);
            if self.0 != Fault::ConstructorUnflushed {
                for offset in [NODE, pointer_of(0), 0] {
                    memory.persist(offset);
                }
            }
        }
        if self.0 != Fault::BlindRemoval {
            while let Some(index) = (0..count(memory)).find(|index| is_skipped(memory, *index)) {
                self.shift_left(memory, index);
            }
        }
    }

    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let count = count(memory);
        let position = (0..count)
            .find(|index| memory.load(key_of(*index)) > key)
            .unwrap_or(count);
        memory.store(pointer_of(count + 1), 0);
        if starts_line(count + 1) {
            memory.persist(key_of(count + 1));
        }
        for source in (position..count).rev() {
            memory.store(pointer_of(source + 1), memory.load(pointer_of(source)));
            memory.store(key_of(source + 1), memory.load(key_of(source)));
            if starts_line(source + 1) {
                memory.flush(key_of(source + 1));
                if self.0 != Fault::FlushUnordered {
                    memory.fence();
                }
            }
        }
        memory.store(pointer_of(position), left_pointer(memory, position));
        memory.store(key_of(position), key);
        memory.store(pointer_of(position), value);
        memory.persist(key_of(position));
    }

    fn remove(&self, memory: &Memory<'_>, key: u64) {
        let is_it = |index: &u64| memory.load(key_of(*index)) == key;
        let index = (0..count(memory))
            .find(is_it)
            .expect("a key that is present");
        self.shift_left(memory, index);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        (0..count(memory))
            .filter(|index| !is_skipped(memory, *index))
            .map(|index| (memory.load(key_of(index)), memory.load(pointer_of(index))))
            .collect()
    }
}

/// A search tolerates the entry that an interrupted insertion left behind; a removal finds it
/// first, removes it, and reports success, while the key is still there.
///
/// Source: Witcher, bug 4 (FAST_FAIR).
#[test]
fn fast_fair_ghost_after_tolerated_crash_state() {
    Exhibit {
        setup: &[Insert(1, 10), Insert(3, 30)],
        operations: &[Insert(2, 20)],
        then: &[Remove(3)],
        complaint: "after recovery and [remove 3]",
    }
    .show(&Node(Fault::BlindRemoval), &Node(Fault::Nothing));
}

/// A removal shifts to the left, but flushes as if it shifted to the right: a line may be durable
/// before the one to its left has received what it gives away.
///
/// Source: Witcher, bug 3 (FAST_FAIR, `remove_key`).
#[test]
fn fast_fair_removal_flushes_at_the_wrong_end_of_a_line() {
    Exhibit {
        setup: &[
            Insert(1, 10),
            Insert(2, 20),
            Insert(3, 30),
            Insert(4, 40),
            Insert(5, 50),
            Insert(6, 60),
        ],
        operations: &[Remove(2)],
        then: &[Insert(2, 21)],
        complaint: "a scan found 6 twice",
    }
    .show(&Node(Fault::FlushAtLineStart), &Node(Fault::Nothing));
}

/// FAST was written for CLFLUSH, which is ordered. With CLFLUSHOPT or CLWB a flush at a line's
/// border needs a fence: the line on the left may be durable before the one on the right has what
/// was shifted into it.
///
/// Source: utsaslab/RECIPE#9.
#[test]
fn fast_fair_shift_with_unordered_flushes() {
    Exhibit {
        setup: &[Insert(1, 10), Insert(2, 20), Insert(4, 40), Insert(5, 50)],
        operations: &[Insert(3, 30)],
        then: &[Remove(5)],
        complaint: "but it should be one of",
    }
    .show(&Node(Fault::FlushUnordered), &Node(Fault::Nothing));
}

/// The constructor flushes neither the root page nor the object that points to it: after a crash
/// the page has no leftmost pointer, or there is no page at all.
///
/// Source: DICL/FAST_FAIR#13.
#[test]
fn fast_fair_constructor_is_not_flushed() {
    Exhibit {
        setup: &[],
        operations: &[Insert(1, 10)],
        then: &[Insert(2, 20)],
        complaint: "after recovery {0: 18446744073709551615} was found",
    }
    .show(&Node(Fault::ConstructorUnflushed), &Node(Fault::Nothing));
}
