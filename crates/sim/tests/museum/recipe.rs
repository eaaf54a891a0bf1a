//! RECIPE's converted indexes: P-BwTree, P-CLHT, P-HOT.

use crate::toy::{Exhibit, Insert, Memory, Toy, line};

/// Records of a line, taken from memory in order. Line 0: where the next one goes. Line 1: slots
/// that lead to records.
pub(crate) struct Bump {
    /// The end of the memory in use is flushed together with the record.
    pub(crate) tail_flushed: bool,
}

impl Toy for Bump {
    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let record = memory.load(0).max(line(2));
        memory.store(0, record + line(1));
        if self.tail_flushed {
            memory.flush(0);
        }
        memory.store(record, key);
        memory.store(record + 8, value);
        memory.persist(record);
        let free = (0..8)
            .find(|slot| memory.load(line(1) + 8 * slot) == 0)
            .expect("a free slot");
        memory.publish(line(1) + 8 * free, record);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let records = (0..8)
            .map(|slot| memory.load(line(1) + 8 * slot))
            .filter(|record| *record != 0);
        records
            .map(|record| (memory.load(record), memory.load(record + 8)))
            .collect()
    }
}

/// Space is taken by an atomic subtraction that is not flushed. After a crash the same space is
/// given out again, and a write to it overwrites a record that is in use.
///
/// Source: Witcher, bug 28 (P-BwTree, `TryAllocate`).
#[test]
fn p_bwtree_allocation_tail_is_not_flushed() {
    Exhibit {
        setup: &[Insert(1, 10)],
        operations: &[Insert(2, 20)],
        then: &[Insert(3, 30)],
        complaint: "a scan found 3 twice",
    }
    .show(
        &Bump {
            tail_flushed: false,
        },
        &Bump { tail_flushed: true },
    );
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// For each bucket, the chain of the first one is flushed.
    WrongChain,
    /// The new table is flushed, but not fenced before the root leads to it.
    Unfenced,
    /// The flush covers a variable that points to the root, and not the root.
    AddressOfPointer,
}

/// A chained hash table that is written anew for each insertion, into one of two halves of the
/// memory. Line 0: the half. A half has two buckets, then overflow buckets: key, value, next.
struct Rewritten(Fault);

const HALF: u64 = line(16);

fn bucket(memory: &Memory<'_>, offset: u64) -> [u64; 3] {
    [0, 8, 16].map(|field| memory.load(offset + field))
}

fn flush_chain(memory: &Memory<'_>, mut offset: u64) {
    while offset != 0 {
        memory.flush(offset);
        offset = bucket(memory, offset)[2];
    }
}

impl Toy for Rewritten {
    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let mut entries = self.entries(memory);
        entries.push((key, value));
        let table = if memory.load(0) == HALF {
            2 * HALF
        } else {
            HALF
        };
        let mut fresh = table + line(2);
        (0..2).for_each(|first| memory.store(table + line(first), 0));
        for (key, value) in entries {
            let mut offset = table + line(key % 2);
            if memory.load(offset) != 0 {
                while let next @ 1.. = memory.load(offset + 16) {
                    offset = next;
                }
                memory.store(offset + 16, fresh);
                offset = fresh;
                fresh += line(1);
            }
            [key, value, 0]
                .into_iter()
                .zip([0, 8, 16])
                .for_each(|(word, field)| memory.store(offset + field, word));
        }
        for first in [table, table + line(1)] {
            memory.flush(first);
            flush_chain(
                memory,
                if self.0 == Fault::WrongChain {
                    table
                } else {
                    first
                },
            );
        }
        if self.0 != Fault::Unfenced {
            memory.fence();
        }
        memory.store(0, table);
        memory.fence();
        memory.persist(if self.0 == Fault::AddressOfPointer {
            line(1)
        } else {
            0
        });
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let table = memory.load(0);
        let mut entries = Vec::new();
        if table == 0 {
            return entries;
        }
        for first in [table, table + line(1)] {
            let mut offset = first;
            while offset != 0 {
                let [key, value, next] = bucket(memory, offset);
                entries.extend((key != 0).then_some((key, value)));
                offset = next;
            }
        }
        entries
    }
}

/// A resized table is flushed by a loop over its buckets that flushes, for each, the chain of the
/// first one.
///
/// Source: Witcher, bug 30 (P-CLHT, `clflush_next_check`).
#[test]
fn p_clht_flushes_the_chain_of_the_first_bucket() {
    Exhibit {
        setup: &[Insert(1, 10)],
        operations: &[Insert(3, 30)],
        then: &[Insert(5, 50)],
        complaint: "but it should be one of",
    }
    .show(&Rewritten(Fault::WrongChain), &Rewritten(Fault::Nothing));
}

/// A new node is flushed but not fenced before the pointer to it is swapped; the fence after that
/// comes too late.
///
/// Source: Witcher, bugs 36 and 37 (P-HOT, `TwoEntriesNode`, `addEntry`).
#[test]
fn p_hot_new_node_is_not_fenced() {
    Exhibit {
        setup: &[Insert(1, 10)],
        operations: &[Insert(2, 20)],
        then: &[Insert(4, 40)],
        complaint: "but it should be one of",
    }
    .show(&Rewritten(Fault::Unfenced), &Rewritten(Fault::Nothing));
}

/// One `&` too many: the flush covers the variable that holds the pointer's address, not the
/// pointer.
///
/// Source: Witcher, bug 38 (P-HOT, `insertNewValue`).
#[test]
fn p_hot_flushes_the_address_of_the_pointer() {
    Exhibit {
        setup: &[],
        operations: &[Insert(2, 20)],
        then: &[],
        complaint: "after recovery {} was found, but it should be one of [{2: 20}]",
    }
    .show(
        &Rewritten(Fault::AddressOfPointer),
        &Rewritten(Fault::Nothing),
    );
}

/// A bucket of a line: lock, then (key, value) three times; a key of zero is free.
struct Locked {
    /// Locks are released when the table is opened.
    initialised: bool,
}

impl Toy for Locked {
    fn open(&self, memory: &Memory<'_>) {
        if self.initialised {
            memory.store(0, 0);
        }
    }

    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        while memory.load(0) != 0 {}
        memory.store(0, 1);
        let free = [8, 24, 40]
            .into_iter()
            .find(|slot| memory.load(*slot) == 0)
            .expect("room");
        memory.store(free + 8, value);
        memory.publish(free, key);
        memory.store(0, 0);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let entries = [8, 24, 40].map(|slot| (memory.load(slot), memory.load(slot + 8)));
        entries.into_iter().filter(|entry| entry.0 != 0).collect()
    }
}

/// A lock that lies in persistent memory is found taken after a crash, and a thread that wants it
/// waits for ever.
///
/// Source: utsaslab/RECIPE#19 (P-CLHT, `clht_put`).
#[test]
fn p_clht_lock_is_held_across_the_crash() {
    Exhibit {
        setup: &[],
        operations: &[Insert(1, 10)],
        then: &[Insert(2, 20)],
        complaint: "did not end within the step limit",
    }
    .show(
        &Locked { initialised: false },
        &Locked { initialised: true },
    );
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reclamation {
    /// Blocks that nothing reaches after a crash are free.
    ByReach,
    /// The old table is freed, but the note of that is not durable, so it is freed again after a
    /// crash.
    OldestUnflushed,
    /// A block is taken before anything leads to it.
    TakenFirst,
}

/// Tables of a line, written anew for each insertion, in blocks that a bitmap gives out. Line 0:
/// the table in use, the one to be freed. Line 1: the bitmap. Block b is line 2 + b: count, then
/// (key, value) three times.
struct Blocks(Reclamation);

impl Blocks {
    fn collect(&self, memory: &Memory<'_>) {
        let oldest = memory.load(8);
        if oldest == 0 {
            return;
        }
        let bitmap = memory.load(line(1));
        let bit = 1 << (oldest / line(1) - 2);
        assert!(bitmap & bit != 0, "the block at {oldest:#x} is freed twice");
        memory.publish(line(1), bitmap & !bit);
        memory.store(8, 0);
        if self.0 != Reclamation::OldestUnflushed {
            memory.persist(8);
        }
    }
}

impl Toy for Blocks {
    fn open(&self, memory: &Memory<'_>) {
        if self.0 == Reclamation::ByReach {
            memory.publish(8, 0);
            let used = memory.load(0);
            memory.publish(
                line(1),
                if used == 0 {
                    0
                } else {
                    1 << (used / line(1) - 2)
                },
            );
        } else {
            self.collect(memory);
        }
    }

    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let mut entries = self.entries(memory);
        entries.push((key, value));
        let bitmap = memory.load(line(1));
        let block = bitmap.trailing_ones();
        memory.publish(line(1), bitmap | 1 << block);
        let table = line(2 + u64::from(block));
        memory.store(table, entries.len() as u64);
        for (index, (key, value)) in (0..).zip(entries) {
            memory.store(table + 8 + 16 * index, key);
            memory.store(table + 16 + 16 * index, value);
        }
        memory.persist(table);
        memory.store(8, memory.load(0));
        memory.publish(0, table);
        self.collect(memory);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let table = memory.load(0);
        let count = if table == 0 { 0 } else { memory.load(table) };
        let entry = |index| {
            (
                memory.load(table + 8 + 16 * index),
                memory.load(table + 16 + 16 * index),
            )
        };
        (0..count).map(entry).collect()
    }

    fn check(&self, memory: &Memory<'_>) -> Result<(), String> {
        let taken = memory.load(line(1)).count_ones();
        let reached = u32::from(memory.load(0) != 0);
        match taken == reached || self.0 == Reclamation::OldestUnflushed {
            true => Ok(()),
            false => Err(format!(
                "space leaks: {taken} blocks are taken, {reached} reached"
            )),
        }
    }
}

/// The garbage collector frees the old table and forgets it, but the forgetting is not flushed:
/// after a crash the table is freed again.
///
/// Source: utsaslab/RECIPE#24 (P-CLHT, `clht_gc_collect_cond`).
#[test]
fn p_clht_old_table_is_freed_twice() {
    Exhibit {
        setup: &[Insert(1, 10)],
        operations: &[Insert(2, 20)],
        then: &[],
        complaint: "is freed twice",
    }
    .show(
        &Blocks(Reclamation::OldestUnflushed),
        &Blocks(Reclamation::ByReach),
    );
}

/// A block is marked as taken before anything leads to it. After a crash between the two it is
/// lost: nothing owns it.
///
/// Source: microsoft/pmwcas#8 (PMwCAS: a crash during allocation may cause a memory leak).
#[test]
fn pmwcas_crash_during_allocation_leaks() {
    Exhibit {
        setup: &[Insert(1, 10)],
        operations: &[Insert(2, 20)],
        then: &[],
        complaint: "space leaks: 2 blocks are taken, 1 reached",
    }
    .show(
        &Blocks(Reclamation::TakenFirst),
        &Blocks(Reclamation::ByReach),
    );
}
