//! Stores and examples: memcached-pmem, HSE, PMDK's array and hash map.

use crate::toy::{Exhibit, Insert, Memory, Toy, Update, line};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// The second part of an item is not flushed.
    Unflushed,
    /// The second part of an item is stored and flushed after the item is linked.
    AfterLink,
}

/// Items of two lines. The first one: its key, which links it. The second: its value.
struct Items(Fault);

fn items() -> impl Iterator<Item = u64> {
    (0..4).map(|item| line(2 * item))
}

impl Toy for Items {
    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let item = items().find(|item| memory.load(*item) == 0).expect("room");
        if self.0 != Fault::AfterLink {
            memory.store(item + line(1), value);
        }
        if self.0 == Fault::Nothing {
            memory.persist(item + line(1));
        }
        memory.publish(item, key);
        if self.0 == Fault::AfterLink {
            memory.publish(item + line(1), value);
        }
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let linked = items().filter(|item| memory.load(*item) != 0);
        linked
            .map(|item| (memory.load(item), memory.load(item + line(1))))
            .collect()
    }
}

fn show(fault: Fault, complaint: &str) {
    Exhibit {
        setup: &[],
        operations: &[Insert(1, 10)],
        then: &[Insert(2, 20)],
        complaint,
    }
    .show(&Items(fault), &Items(Fault::Nothing));
}

/// An item's CAS number (the toy's value) is never flushed: it is acknowledged and then lost.
///
/// Source: lenovo/memcached-pmem#4, bug 1 (and Witcher, bug 47).
#[test]
fn memcached_pmem_cas_number_is_never_flushed() {
    show(Fault::Unflushed, "after recovery {1: 0} was found");
}

/// An item is linked first and gets its CAS number afterwards. After a crash between the two it has
/// none.
///
/// Source: lenovo/memcached-pmem#4, bugs 2 and 3 (3: the item's time).
#[test]
fn memcached_pmem_item_is_linked_before_its_cas_number() {
    show(
        Fault::AfterLink,
        "after recovery {1: 0} was found, but it should be one of [{}, {1: 10}]",
    );
}

/// An allocated array is durable, but the descriptor that gives its size (the toy's value) is not.
///
/// Source: pmem/pmdk#4927 (libpmemobj's array example; removed by pmem/pmdk#5218).
#[test]
fn pmdk_array_outlives_its_descriptor() {
    show(Fault::Unflushed, "after recovery {1: 0} was found");
}

/// A hash map with a counter and a mark that the counter may be wrong. Line 0: counter; line 1:
/// mark; entries from line 2.
struct Counted {
    /// Opening calls the recovery that the mark is for.
    recovers: bool,
}

impl Counted {
    fn slots() -> impl Iterator<Item = u64> {
        (0..4).map(|slot| line(2) + 16 * slot)
    }
}

impl Toy for Counted {
    fn open(&self, memory: &Memory<'_>) {
        if self.recovers && memory.load(line(1)) == 1 {
            memory.publish(0, self.entries(memory).len() as u64);
            memory.publish(line(1), 0);
        }
    }

    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        memory.publish(line(1), 1);
        let slot = Self::slots()
            .find(|slot| memory.load(*slot) == 0)
            .expect("room");
        memory.store(slot + 8, value);
        memory.publish(slot, key);
        memory.publish(0, memory.load(0) + 1);
        memory.publish(line(1), 0);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let taken = Self::slots().filter(|slot| memory.load(*slot) != 0);
        taken
            .map(|slot| (memory.load(slot), memory.load(slot + 8)))
            .collect()
    }

    fn check(&self, memory: &Memory<'_>) -> Result<(), String> {
        let counter = memory.load(0);
        let entries = self.entries(memory).len() as u64;
        match counter == entries {
            true => Ok(()),
            false => Err(format!(
                "the counter says {counter}, there are {entries} entries"
            )),
        }
    }
}

/// `hashmap_atomic` marks its counter as dirty and has a recovery that counts anew; the program
/// that uses it never calls that.
///
/// Source: pmem/pmdk#5220 (mapcli), mended by pmem/pmdk#5273.
#[test]
fn pmdk_hashmap_atomic_recovery_is_never_called() {
    Exhibit {
        setup: &[Insert(1, 10)],
        operations: &[Insert(2, 20)],
        then: &[Insert(3, 30)],
        complaint: "the counter says 1, there are 2 entries",
    }
    .show(&Counted { recovers: false }, &Counted { recovers: true });
}

/// A log header: generation, key, value, checksum. Published: one copy, changed in place. Mended:
/// two copies, in turns.
struct Header {
    copies: u64,
}

impl Header {
    fn newest(&self, memory: &Memory<'_>) -> Option<[u64; 3]> {
        let copies = (0..self.copies)
            .map(|copy| [0, 8, 16, 24].map(|field| memory.load(line(copy) + field)));
        let sound = copies.filter(|copy| copy[3] == copy[0] ^ copy[1] ^ copy[2]);
        sound.map(|copy| [copy[0], copy[1], copy[2]]).max()
    }
}

impl Toy for Header {
    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64) {
        let generation = self.newest(memory).expect("a sound header")[0] + 1;
        let copy = line(generation % self.copies);
        for (field, word) in [
            (0, generation),
            (8, key),
            (16, value),
            (24, generation ^ key ^ value),
        ] {
            memory.store(copy + field, word);
        }
        memory.persist(copy);
    }

    fn update(&self, memory: &Memory<'_>, key: u64, value: u64) {
        self.insert(memory, key, value);
    }

    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)> {
        let [_, key, value] = self
            .newest(memory)
            .expect("no header with a sound checksum");
        if key == 0 {
            Vec::new()
        } else {
            vec![(key, value)]
        }
    }
}

/// A header is changed in place, its generation first and its checksum last. A crash between them
/// leaves nothing that opens.
///
/// Source: hse-project/hse#471 (`omf_mdc_loghdr_pack`).
#[test]
fn hse_log_header_is_changed_in_place() {
    Exhibit {
        setup: &[Insert(1, 10)],
        operations: &[Update(1, 11)],
        then: &[Update(1, 12)],
        complaint: "no header with a sound checksum",
    }
    .show(&Header { copies: 1 }, &Header { copies: 2 });
}
