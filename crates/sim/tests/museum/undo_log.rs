//! Undo logs: before a change in place the old content is copied, and the copy is marked valid.

use crate::recipe::Bump;
use crate::toy::{Exhibit, Insert, Memory, Operation, Toy, line};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// The log is marked valid, durably, before its content is durable.
    ValidFirst,
    /// The log lies in volatile memory.
    Volatile,
    /// The log's content is flushed, the header that says where it belongs is not.
    HeaderUnflushed,
}

/// A sorted leaf that is changed in place: count in line 1, entries in line 2. The log: how many
/// records are active in line 3; where the record belongs, and a mark that it is valid, in line 4;
/// the old count in line 5, the old entries in line 6.
struct Leaf(Fault);

const LEAF: u64 = line(1);
const ACTIVE: u64 = line(3);
const HEADER: u64 = line(4);
const CONTENT: u64 = line(5);
const VALID: u64 = 18;

fn copy(memory: &Memory<'_>, from: u64, to: u64) {
    for word in 0..16 {
        memory.store(to + 8 * word, memory.load(from + 8 * word));
    }
    memory.flush(to);
    memory.flush(to + line(1));
}

impl Leaf {
    fn log(&self, memory: &Memory<'_>) {
        let mark = || {
            memory.store(HEADER, LEAF);
            memory.store(HEADER + 8, VALID);
            memory.flush(HEADER);
        };
        match self.0 {
            Fault::Volatile => return,
            Fault::ValidFirst => {
                mark();
                memory.publish(ACTIVE, 1);
                copy(memory, LEAF, CONTENT);
            }
            Fault::HeaderUnflushed => {
                memory.store(HEADER, LEAF);
                memory.store(HEADER + 8, VALID);
                copy(memory, LEAF, CONTENT);
                memory.fence();
                memory.store(ACTIVE, 1);
                memory.flush(ACTIVE);
            }
            Fault::Nothing => {
                mark();
                copy(memory, LEAF, CONTENT);
                memory.fence();
                memory.store(ACTIVE, 1);
                memory.flush(ACTIVE);
            }
        }
        memory.fence();
    }
}

impl Toy for Leaf {
    fn open(&self, memory: &Memory<'_>) {
        if memory.load(ACTIVE) == 1 {
            if memory.load(HEADER + 8) == VALID {
                copy(memory, CONTENT, memory.load(HEADER));
                memory.fence();
            }
            memory.publish(ACTIVE, 0);
        }
    }

    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let mut entries = self.entries(memory);
        entries.push((key, value));
        entries.sort_unstable();
        self.log(memory);
        memory.store(LEAF, entries.len() as u64);
        for (index, (key, value)) in (0..).zip(entries) {
            memory.store(LEAF + line(1) + 16 * index, key);
            memory.store(LEAF + line(1) + 16 * index + 8, value);
        }
        memory.flush(LEAF);
        memory.persist(LEAF + line(1));
        memory.publish(ACTIVE, 0);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let entry = |index| LEAF + line(1) + 16 * index;
        (0..memory.load(LEAF))
            .map(|index| (memory.load(entry(index)), memory.load(entry(index) + 8)))
            .collect()
    }
}

fn show(fault: Fault, setup: &[Operation]) {
    Exhibit {
        setup,
        operations: &[Insert(1, 10)],
        then: &[Insert(2, 20)],
        complaint: "but it should be one of",
    }
    .show(&Leaf(fault), &Leaf(Fault::Nothing));
}

/// A split logs the leaf. The log's slot line, whose count makes it valid, is flushed before its
/// entries: recovery restores entries that were never logged.
///
/// Source: liumx10/ICPP-RNTree, `include/rtm_tree.h`, `generateNextLeaf` and `LN::flush` (RNTree's
/// own code).
#[test]
fn rntree_split_log_is_valid_before_its_content() {
    show(Fault::ValidFirst, &[Insert(3, 30)]);
}

/// A full leaf is compacted in place, and the copy that would restore it lies on the heap.
///
/// Source: liumx10/ICPP-RNTree, `include/nv_tree.h`, `splitLeafNode` and `generateNextLeaf` (its
/// NVTree).
#[test]
fn nvtree_compaction_logs_to_the_heap() {
    show(Fault::Volatile, &[Insert(3, 30)]);
}

/// The external log flushes the content of a record, but not its header (size, address, validity).
///
/// Source: epfl-vlsc/Incll, `incll_extlog.hh`, `ExtNodeLogger::record`.
#[test]
fn incll_external_log_header_is_not_flushed() {
    show(Fault::HeaderUnflushed, &[]);
}

/// The pointer to the free end of persistent memory is moved and not flushed.
///
/// Source: epfl-vlsc/Incll, `kvthread_pallocator.hh`, `malloc_nvm`.
#[test]
fn incll_allocation_pointer_is_not_flushed() {
    Exhibit {
        setup: &[],
        operations: &[Insert(1, 10)],
        then: &[Insert(2, 20)],
        complaint: "a scan found 2 twice",
    }
    .show(
        &Bump {
            tail_flushed: false,
        },
        &Bump { tail_flushed: true },
    );
}
