//! Level Hashing: slots with tokens that say which of them are taken.

use std::collections::BTreeMap;

use crate::toy::{Exhibit, Insert, Memory, Remove, Toy, Update, line};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// The token is stored before key and value are durable.
    TokenFirst,
    /// An update clears the old token and sets the new one, in two stores.
    TokensOneByOne,
    /// A movement sets one token and clears the other, and recovery does not search for duplicates.
    DuplicateKept,
    /// A movement sets a token of the bucket that it moves from.
    WrongToken,
}

/// Two levels of one bucket. Bucket b: its tokens, a bit each, in line b; slot s in line 2 + 2 b +
/// s.
struct Levels(Fault);

const SLOTS: u64 = 2;
const TOP: u64 = 0;
const BOTTOM: u64 = 1;

fn slot(bucket: u64, slot: u64) -> u64 {
    line(2 + SLOTS * bucket + slot)
}

fn tokens(memory: &Memory<'_>, bucket: u64) -> u64 {
    memory.load(line(bucket))
}

fn taken(memory: &Memory<'_>, bucket: u64) -> impl Iterator<Item = u64> {
    let tokens = tokens(memory, bucket);
    (0..SLOTS).filter(move |slot| tokens >> slot & 1 == 1)
}

fn find(memory: &Memory<'_>, key: u64) -> Option<(u64, u64)> {
    let is_it = |(bucket, index): &(u64, u64)| memory.load(slot(*bucket, *index)) == key;
    [TOP, BOTTOM]
        .into_iter()
        .flat_map(|bucket| taken(memory, bucket).map(move |slot| (bucket, slot)))
        .find(is_it)
}

impl Levels {
    fn fill(&self, memory: &Memory<'_>, bucket: u64, index: u64, entry: (u64, u64)) {
        let (key, value) = entry;
        let offset = slot(bucket, index);
        memory.store(offset, key);
        memory.store(offset + 8, value);
        memory.flush(offset);
        if self.0 != Fault::TokenFirst {
            memory.fence();
        }
        memory.store(line(bucket), tokens(memory, bucket) | 1 << index);
        memory.fence();
        memory.persist(line(bucket));
    }

    /// Moves the pair in a slot of the top level to the bottom.
    fn move_down(&self, memory: &Memory<'_>, index: u64) {
        let from = slot(TOP, index);
        let entry = (memory.load(from), memory.load(from + 8));
        let free = (0..SLOTS)
            .find(|slot| tokens(memory, BOTTOM) >> slot & 1 == 0)
            .expect("a free slot");
        if self.0 == Fault::WrongToken {
            memory.store(slot(BOTTOM, free), entry.0);
            memory.store(slot(BOTTOM, free) + 8, entry.1);
            memory.persist(slot(BOTTOM, free));
            memory.publish(line(TOP), tokens(memory, TOP) | 1 << free);
        } else {
            self.fill(memory, BOTTOM, free, entry);
        }
        memory.publish(line(TOP), tokens(memory, TOP) & !(1 << index));
    }
}

impl Toy for Levels {
    fn open(&self, memory: &Memory<'_>) {
        if self.0 == Fault::DuplicateKept {
            return;
        }
        let below: Vec<u64> = taken(memory, BOTTOM)
            .map(|index| memory.load(slot(BOTTOM, index)))
            .collect();
        for index in
            taken(memory, TOP).filter(|index| below.contains(&memory.load(slot(TOP, *index))))
        {
            memory.publish(line(TOP), tokens(memory, TOP) & !(1 << index));
        }
    }

    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        if tokens(memory, TOP) == (1 << SLOTS) - 1 {
            self.move_down(memory, 0);
        }
        let free = (0..SLOTS)
            .find(|slot| tokens(memory, TOP) >> slot & 1 == 0)
            .expect("a free slot");
        self.fill(memory, TOP, free, (key, value));
    }

    fn update(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let (bucket, old) = find(memory, key).expect("a key that is present");
        let new = (0..SLOTS)
            .find(|slot| tokens(memory, bucket) >> slot & 1 == 0)
            .expect("a free slot");
        memory.store(slot(bucket, new), key);
        memory.store(slot(bucket, new) + 8, value);
        memory.persist(slot(bucket, new));
        let cleared = tokens(memory, bucket) & !(1 << old);
        if self.0 == Fault::TokensOneByOne {
            memory.store(line(bucket), cleared);
        }
        memory.publish(line(bucket), cleared | 1 << new);
    }

    fn remove(&self, memory: &Memory<'_>, key: u64) {
        let (bucket, index) = find(memory, key).expect("a key that is present");
        memory.publish(line(bucket), tokens(memory, bucket) & !(1 << index));
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let mut entries = BTreeMap::new();
        for bucket in [BOTTOM, TOP] {
            entries.extend(taken(memory, bucket).map(|index| {
                (
                    memory.load(slot(bucket, index)),
                    memory.load(slot(bucket, index) + 8),
                )
            }));
        }
        entries.into_iter().collect()
    }
}

/// The token may be written back before key and value are: the slot counts as taken, and its
/// content is arbitrary.
///
/// Source: Witcher, bug 7 (Level Hashing, insert; bugs 8 to 16 are the same at other places).
#[test]
fn level_hashing_token_before_key_and_value() {
    Exhibit {
        setup: &[],
        operations: &[Insert(5, 50)],
        then: &[Insert(6, 60)],
        complaint: "after recovery {0: 0} was found",
    }
    .show(&Levels(Fault::TokenFirst), &Levels(Fault::Nothing));
}

/// The log-free update clears the token of the old slot, then sets that of the new one. Between the
/// two the key is in neither.
///
/// Source: Witcher, bugs 22 and 23 (Level Hashing, update).
#[test]
fn level_hashing_update_loses_the_key() {
    Exhibit {
        setup: &[Insert(5, 50)],
        operations: &[Update(5, 51)],
        then: &[Remove(5)],
        complaint: "after recovery {} was found, but it should be one of [{5: 50}, {5: 51}]",
    }
    .show(&Levels(Fault::TokensOneByOne), &Levels(Fault::Nothing));
}

/// A movement copies a pair to another bucket, then clears the old token. After a crash between the
/// two the pair is there twice; a removal takes one of them, and the other is found again.
///
/// Source: Witcher, bugs 19 to 21 (Level Hashing, movement).
#[test]
fn level_hashing_movement_leaves_a_duplicate() {
    Exhibit {
        setup: &[Insert(1, 10), Insert(2, 20)],
        operations: &[Insert(3, 30)],
        then: &[Remove(1)],
        complaint: "after recovery and [remove 1]",
    }
    .show(&Levels(Fault::DuplicateKept), &Levels(Fault::Nothing));
}

/// A movement sets a token of the bucket that it moves from, so the pair is in a slot that counts
/// as free. It needs no crash to be lost.
///
/// Source: Pfzuo/Level-Hashing#4.
#[test]
fn level_hashing_movement_sets_the_wrong_token() {
    Exhibit {
        setup: &[Insert(1, 10), Insert(2, 20)],
        operations: &[Insert(3, 30)],
        then: &[],
        complaint: "without a crash",
    }
    .show(&Levels(Fault::WrongToken), &Levels(Fault::Nothing));
}

/// A table that grows. Published: line 0 holds the capacity and the table's offset, two words.
/// Mended: one word holds both.
struct Growing {
    in_one_word: bool,
}

impl Growing {
    /// Capacity and offset of the table.
    fn table(&self, memory: &Memory<'_>) -> (u64, u64) {
        let word = memory.load(0);
        if self.in_one_word {
            (word & 63, word & !63)
        } else {
            (word, memory.load(8))
        }
    }

    fn publish(&self, memory: &Memory<'_>, capacity: u64, table: u64) {
        if self.in_one_word {
            return memory.publish(0, capacity | table);
        }
        memory.store(0, capacity);
        memory.publish(8, table);
    }
}

impl Toy for Growing {
    fn open(&self, memory: &Memory<'_>) {
        if memory.load(0) == 0 || self.table(memory).1 == 0 {
            self.publish(memory, 2, line(8));
        }
    }

    /// Grows, whatever is in the way.
    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let (capacity, table) = self.table(memory);
        let larger = 2 * capacity;
        let new = table + line(2 * capacity);
        for (key, value) in self.entries(memory).into_iter().chain([(key, value)]) {
            memory.store(new + line(key % larger), key);
            memory.store(new + line(key % larger) + 8, value);
            memory.flush(new + line(key % larger));
        }
        memory.fence();
        self.publish(memory, larger, new);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let (capacity, table) = self.table(memory);
        let slots = (0..capacity).map(|slot| table + line(slot));
        let entries = slots.map(|slot| (memory.load(slot), memory.load(slot + 8)));
        entries.filter(|entry| entry.0 != 0).collect()
    }

    fn get(&self, memory: &Memory<'_>, key: u64) -> Option<u64> {
        let (capacity, table) = self.table(memory);
        let slot = table + line(key % capacity);
        (key != 0 && memory.load(slot) == key).then(|| memory.load(slot + 8))
    }
}

/// Growing stores the new capacity first. After a crash the old table is searched with the new
/// capacity, and keys are searched for where they never were.
///
/// Source: Witcher, bug 17 (Level Hashing, expand).
#[test]
fn level_hashing_expansion_changes_the_capacity_first() {
    Exhibit {
        setup: &[Insert(6, 60)],
        operations: &[Insert(3, 30)],
        then: &[],
        complaint: "get 6 found None",
    }
    .show(
        &Growing { in_one_word: false },
        &Growing { in_one_word: true },
    );
}
