//! CCEH: extendible hashing with segments of a line.

use crate::toy::{Exhibit, Insert, Memory, Toy, line};

/// Line 0 points to the directory: global depth, then a segment for each prefix. A segment: local
/// depth, two entries. Keys have three bits, and the most significant ones select the segment.
struct Table {
    /// Doubling raises the local depth of the old segment in place, before there is a directory for
    /// it.
    depth_first: bool,
}

const KEY_BITS: u64 = 3;

fn entries_of(memory: &Memory<'_>, segment: u64) -> Vec<(u64, u64)> {
    let entries = [8, 24].map(|offset| {
        (
            memory.load(segment + offset),
            memory.load(segment + offset + 8),
        )
    });
    entries.into_iter().filter(|entry| entry.1 != 0).collect()
}

fn write(memory: &Memory<'_>, segment: u64, depth: u64, entries: &[(u64, u64)]) {
    memory.store(segment, depth);
    for (index, slot) in [8, 24].into_iter().enumerate() {
        let (key, value) = entries.get(index).copied().unwrap_or_default();
        memory.store(segment + slot, key);
        memory.store(segment + slot + 8, value);
    }
    memory.flush(segment);
}

impl Table {
    /// The segments, as recovery walks them: as many directory entries in one step as belong to one
    /// segment.
    fn segments(memory: &Memory<'_>) -> Vec<u64> {
        let directory = memory.load(0);
        let global = memory.load(directory);
        let mut prefix = 0;
        let mut segments = Vec::new();
        while prefix < 1 << global {
            let segment = memory.load(directory + 8 + 8 * prefix);
            segments.push(segment);
            prefix += (1 << global) >> memory.load(segment);
        }
        segments
    }

    fn double(&self, memory: &Memory<'_>, old: u64) {
        let old_directory = memory.load(0);
        let global = memory.load(old_directory);
        let directory = old_directory + line(3);
        let low = old_directory + line(4);
        let high = old_directory + line(5);
        let (is_low, is_high): (Vec<_>, Vec<_>) = entries_of(memory, old)
            .into_iter()
            .partition(|entry| entry.0 >> (KEY_BITS - global - 1) & 1 == 0);
        write(memory, high, global + 1, &is_high);
        memory.fence();
        if self.depth_first {
            memory.publish(old, global + 1);
        }
        write(memory, low, global + 1, &is_low);
        memory.store(directory, global + 1);
        memory.store(directory + 8, low);
        memory.store(directory + 16, high);
        memory.persist(directory);
        memory.publish(0, directory);
    }
}

impl Toy for Table {
    fn open(&self, memory: &Memory<'_>) {
        if memory.load(0) == 0 {
            memory.store(line(1) + 8, line(2));
            memory.persist(line(1));
            memory.publish(0, line(1));
        }
    }

    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let directory = memory.load(0);
        let segment = memory.load(directory + 8 + 8 * (key >> (KEY_BITS - memory.load(directory))));
        let free = [8, 24]
            .into_iter()
            .find(|offset| memory.load(segment + offset + 8) == 0);
        let Some(free) = free else {
            self.double(memory, segment);
            return self.insert(memory, key, value);
        };
        memory.store(segment + free, key);
        memory.publish(segment + free + 8, value);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        Self::segments(memory)
            .into_iter()
            .flat_map(|segment| entries_of(memory, segment))
            .collect()
    }
}

/// Doubling the directory begins by raising the local depth of the segment that is split. After a
/// crash the local depth is larger than the global depth, and the walk of recovery makes steps of
/// length 0. (In the toy, mended: both halves are new segments.)
///
/// Source: Witcher, bug 24, example 0 (CCEH, split).
#[test]
fn cceh_doubling_raises_the_local_depth_first() {
    Exhibit {
        setup: &[Insert(1, 10), Insert(5, 50)],
        operations: &[Insert(3, 30)],
        then: &[Insert(6, 60)],
        complaint: "did not end within the step limit",
    }
    .show(&Table { depth_first: true }, &Table { depth_first: false });
}

/// A segment of two slots, (key, value) each. An insertion takes an invalid slot by storing a
/// sentinel for its key.
struct Segment {
    /// Recovery makes slots with a sentinel invalid again.
    reverts: bool,
}

const INVALID: u64 = 0;
const SENTINEL: u64 = u64::MAX;
const SLOTS: [u64; 2] = [0, 16];

impl Toy for Segment {
    fn open(&self, memory: &Memory<'_>) {
        for slot in SLOTS {
            if self.reverts && memory.load(slot) == SENTINEL {
                memory.publish(slot, INVALID);
            }
        }
    }

    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let free = SLOTS.into_iter().find(|slot| memory.load(*slot) == INVALID);
        let free = free.expect("a segment of two slots has room for two keys");
        memory.store(free, SENTINEL);
        memory.store(free + 8, value);
        memory.publish(free, key);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let entries = SLOTS.map(|slot| (memory.load(slot), memory.load(slot + 8)));
        entries
            .into_iter()
            .filter(|entry| entry.0 != INVALID && entry.0 != SENTINEL)
            .collect()
    }
}

/// The sentinel with which an insertion takes a slot is durable, but the key is not. The slot can
/// never be used again.
///
/// Source: Witcher, bug 25 (CCEH, insertion into a segment).
#[test]
fn cceh_sentinel_outlives_the_crash() {
    Exhibit {
        setup: &[],
        operations: &[Insert(1, 10)],
        then: &[Insert(1, 10), Insert(2, 20)],
        complaint: "has room for two keys",
    }
    .show(&Segment { reverts: false }, &Segment { reverts: true });
}
