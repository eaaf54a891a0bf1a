//! The leaf's protocol under every interleaving and every weak ordering. See `medium::sync` for how
//! to run it.

use std::sync::Arc;

use loom::thread;
use medium::Dax;
use medium::arena::Arena;
use medium::sync::{AtomicU64, Ordering, model};

use super::RnTree;
use super::layout::{EntrySum, LeafRecord, Slots};
use super::order::Scale;
use crate::index::WordCodec;
use crate::kit::chain::HeapGuard;

type Record = LeafRecord<Dax>;

const ENTRIES: usize = 2;

/// A leaf of two entries. Atomics with acquire loads and release stores stand for the cells of a
/// pool.
struct Leaf {
    records: Arena<Record>,
    entries: [[AtomicU64; 2]; ENTRIES],
}

fn fingerprint(key: u64) -> u8 {
    key as u8 + 100
}

/// The state that a write reads: which entries are live, which of them has the key, how they rank.
#[derive(PartialEq, Eq, Debug)]
struct Planned {
    live: u64,
    old: Option<(usize, u64)>,
    orders: (u64, u64),
}

impl Leaf {
    /// Key 1 with value 10, in entry 0.
    fn new() -> Arc<Self> {
        let cell = |value| AtomicU64::new(value);
        let leaf = Self {
            records: Arena::new(4).unwrap(),
            entries: [[cell(1), cell(10)], [cell(0), cell(0)]],
        };
        leaf.records.allocate().unwrap();
        leaf.record().reset(
            64,
            &Slots::identity(1, 0, EntrySum::default()),
            0,
            0,
            medium::Lsn::DURABLE,
        );
        leaf.record().set_fingerprint(0, fingerprint(1));
        Arc::new(leaf)
    }

    fn record(&self) -> &Record {
        self.records.get(1)
    }

    /// Sets a key as the engine does: claims, writes, and publishes under the lock; `old` is the
    /// entry it replaces.
    fn publish(&self, key: u64, value: u64, old: Option<usize>) {
        let leaf_record = self.record();
        let entry = match leaf_record.claim(ENTRIES) {
            Some(entry) => entry,
            None => {
                let lock = leaf_record.lock();
                leaf_record.recycle();
                drop(lock);
                leaf_record.claim(ENTRIES).expect("an entry was recycled")
            }
        };
        self.entries[entry][0].store(key, Ordering::Release);
        self.entries[entry][1].store(value, Ordering::Release);
        let lock = leaf_record.lock();
        let live = leaf_record.live.load(Ordering::Relaxed);
        let removed = old.map_or(0, |old| 1 << old);
        leaf_record.set_fingerprint(entry, fingerprint(key));
        leaf_record.set_order(entry, key);
        let slots = leaf_record.slots();
        leaf_record.change(&slots, || {
            leaf_record
                .live
                .store((live | 1 << entry) & !removed, Ordering::Release)
        });
        leaf_record.dead.store(
            leaf_record.dead.load(Ordering::Relaxed) | removed,
            Ordering::Relaxed,
        );
        drop(lock);
    }

    /// Fits the order bytes to other keys, as the engine does.
    fn rescale(&self) {
        let leaf_record = self.record();
        let lock = leaf_record.lock();
        let live = leaf_record.live.load(Ordering::Relaxed);
        let live = (0..ENTRIES).filter(|entry| live & 1 << entry != 0);
        let keys: Vec<_> = live
            .map(|entry| (entry, self.entries[entry][0].load(Ordering::Acquire)))
            .collect();
        leaf_record.rescale(Scale::covering(0, 2), keys);
        leaf_record.change(&leaf_record.slots(), || {});
        drop(lock);
    }

    /// The state that a write to `key` reads, and the sequence at which it reads that.
    fn plan(&self, key: u64) -> Option<(u64, Planned)> {
        let leaf_record = self.record();
        let sequence = leaf_record.sequence()?;
        let live = leaf_record.live.load(Ordering::Acquire);
        let matches = leaf_record.matches(fingerprint(key)) & live;
        let old = (0..ENTRIES)
            .filter(|entry| matches & 1 << entry != 0)
            .find_map(|entry| {
                let cells = &self.entries[entry];
                (cells[0].load(Ordering::Acquire) == key)
                    .then(|| (entry, cells[1].load(Ordering::Acquire)))
            });
        let (below, tied) = leaf_record.compare_orders(key);
        Some((
            sequence,
            Planned {
                live,
                old,
                orders: (below & live, tied & live),
            },
        ))
    }

    /// A point read, in the steps of the engine.
    fn get(&self, key: u64) -> Option<u64> {
        let leaf_record = self.record();
        loop {
            let version = leaf_record.version();
            let live = leaf_record.live.load(Ordering::Acquire);
            let matches = leaf_record.matches(fingerprint(key)) & live;
            let found = (0..ENTRIES)
                .filter(|entry| matches & 1 << entry != 0)
                .find_map(|entry| {
                    let cells = &self.entries[entry];
                    (cells[0].load(Ordering::Acquire) == key)
                        .then(|| cells[1].load(Ordering::Acquire))
                });
            if leaf_record.is_still(version) {
                return found;
            }
            thread::yield_now();
        }
    }
}

/// Two leaves; keys from 2 on belong to the right one. `left` and `right` are their numbers of
/// keys.
fn neighbours(left: usize, right: usize) -> Arc<Leaf> {
    let leaf = Leaf::new();
    leaf.records.allocate().unwrap();
    let (next, high) = if right == 0 { (0, 0) } else { (2, 2) };
    leaf.record().reset(
        64,
        &Slots::identity(left, 128, EntrySum::default()),
        next,
        high,
        medium::Lsn::DURABLE,
    );
    leaf.records.get(2).reset(
        128,
        &Slots::identity(1, 0, EntrySum::default()),
        0,
        0,
        medium::Lsn::DURABLE,
    );
    leaf.records.get(2).set_fingerprint(0, fingerprint(2));
    leaf
}

/// Whether a point read that starts in the left leaf finds `key`. There are no inner nodes: a
/// reader that finds a dead leaf starts again.
fn is_found(leaf: &Leaf, key: u64) -> bool {
    let heap = HeapGuard::without_heap();
    let mut index = 1;
    loop {
        let leaf_record = leaf.records.get(index);
        let version = leaf_record.version();
        let live = leaf_record.live.load(Ordering::Acquire);
        let is_here = leaf_record.matches(fingerprint(key)) & live != 0;
        let beyond = RnTree::<Dax, WordCodec>::beyond(&heap, leaf_record, key).unwrap();
        match (leaf_record.is_still(version), beyond) {
            (true, _) if Record::is_dead(version) => index = 1,
            (true, _) if is_here => return true,
            (true, None) => return false,
            (true, Some(next)) => {
                index = next;
                continue;
            }
            (false, _) => {}
        }
        thread::yield_now();
    }
}

/// The reader may have reached the left leaf before the split.
#[test]
fn a_reader_beside_a_merge_misses_no_key_of_the_right_leaf() {
    model(|| {
        let leaf = neighbours(1, 1);
        let merger = {
            let leaf = Arc::clone(&leaf);
            thread::spawn(move || {
                let left = leaf.record();
                let right = leaf.records.get(2);
                let locks = (left.lock(), right.lock());
                left.set_fingerprint(1, fingerprint(2));
                right.set_dead(true);
                left.extend(&Slots::identity(2, 0, EntrySum::default()), right);
                drop(locks);
            })
        };
        assert!(is_found(&leaf, 2));
        merger.join().unwrap();
        assert!(is_found(&leaf, 1) && is_found(&leaf, 2));
    });
}

#[test]
fn a_reader_that_finds_a_key_of_a_load_finds_all_of_them() {
    check_load(1, 2);
    check_load(2, 1);
}

/// Searches for one key, then for the other.
fn check_load(one: u64, other: u64) {
    model(move || {
        let leaf = neighbours(0, 0);
        let loader = {
            let leaf = Arc::clone(&leaf);
            thread::spawn(move || {
                let lock = leaf.record().lock();
                leaf.record()
                    .lead(&Slots::identity(1, 128, EntrySum::default()), 2, 2);
                drop(lock);
            })
        };
        let found = (is_found(&leaf, one), is_found(&leaf, other));
        assert!(found != (true, false), "{one}, and not {other}");
        loader.join().unwrap();
    });
}

#[test]
fn a_reader_beside_an_update_and_a_recycled_entry_finds_its_key() {
    model(|| {
        let leaf = Leaf::new();
        let writer = {
            let leaf = Arc::clone(&leaf);
            thread::spawn(move || {
                leaf.publish(1, 11, Some(0));
                // Entry 0 is free again, and another key takes it.
                leaf.publish(2, 20, None);
            })
        };
        let found = leaf.get(1);
        assert!(found == Some(10) || found == Some(11), "{found:?}");
        writer.join().unwrap();
        assert_eq!((leaf.get(1), leaf.get(2)), (Some(11), Some(20)));
    });
}

#[test]
fn two_writers_never_claim_one_entry() {
    model(|| {
        let leaf = Leaf::new();
        let claim = |leaf: &Arc<Leaf>| {
            let leaf = Arc::clone(leaf);
            thread::spawn(move || leaf.record().claim(ENTRIES))
        };
        let one = claim(&leaf);
        let other = claim(&leaf);
        let claims = [one.join().unwrap(), other.join().unwrap()];
        assert_eq!(claims.iter().flatten().count(), 1, "{claims:?}");
    });
}

#[test]
fn a_scan_sees_slots_and_next_leaf_of_one_moment() {
    model(|| {
        let leaf = Leaf::new();
        let writer = {
            let leaf = Arc::clone(&leaf);
            thread::spawn(move || {
                let lock = leaf.record().lock();
                leaf.record()
                    .change(&Slots::identity(1, 7 * 64, EntrySum::default()), || {
                        leaf.record().set_next(7)
                    });
                drop(lock);
            })
        };
        let leaf_record = leaf.record();
        let (slots, next) = loop {
            if let Some(sequence) = leaf_record.sequence() {
                let seen = (leaf_record.slots(), leaf_record.next());
                if leaf_record.is_still_in(sequence) {
                    break seen;
                }
            }
            thread::yield_now();
        };
        assert_eq!(slots.next(), 64 * u64::from(next));
        writer.join().unwrap();
    });
}

/// A write is planned without the lock; if the sequence is the same under it, so is the plan.
fn check_plan(key: u64, meanwhile: fn(&Leaf)) {
    model(move || {
        let leaf = Leaf::new();
        let other = {
            let leaf = Arc::clone(&leaf);
            thread::spawn(move || meanwhile(&leaf))
        };
        let early = leaf.plan(key);
        let lock = leaf.record().lock();
        if let Some((sequence, planned)) = early
            && leaf.record().is_still_in(sequence)
        {
            assert_eq!(Some((sequence, planned)), leaf.plan(key));
        }
        drop(lock);
        other.join().unwrap();
    });
}

#[test]
fn a_plan_that_holds_knows_of_each_entry_that_was_recycled() {
    check_plan(1, |leaf| {
        leaf.publish(1, 11, Some(0));
        // Entry 0 is free again, and another key takes it.
        leaf.publish(2, 20, None);
    });
}

#[test]
fn a_plan_that_holds_ranks_by_the_scale_of_the_leaf() {
    check_plan(2, Leaf::rescale);
}

/// In a split the high key is stored before `live`. A writer that goes to the next leaf by the high
/// key alone must write only when no reader finds the key in this leaf any more.
#[test]
fn a_writer_that_is_sent_on_by_a_split_has_seen_its_end() {
    model(|| {
        let leaf = Leaf::new();
        let splitter = {
            let leaf = Arc::clone(&leaf);
            thread::spawn(move || {
                let leaf_record = leaf.record();
                let lock = leaf_record.lock();
                leaf_record.shorten(&Slots::identity(0, 7 * 64, EntrySum::default()), 7, 1);
                drop(lock);
            })
        };
        let leaf_record = leaf.record();
        if leaf_record.high.load(Ordering::Acquire) != 0 && leaf_record.sequence().is_some() {
            assert_eq!(leaf_record.live.load(Ordering::Relaxed), 0);
        }
        splitter.join().unwrap();
    });
}

/// A reader that is not pinned may hold the index of a record that was retired and now stands for
/// another leaf.
#[test]
fn a_reader_never_takes_a_record_for_what_it_was_in_another_life() {
    model(|| {
        let leaf = Leaf::new();
        // Stand for the inner nodes: the index of the leaf that covers the key, and its offset.
        let root = Arc::new(AtomicU64::new(1));
        let writer = {
            let leaf = Arc::clone(&leaf);
            let root = Arc::clone(&root);
            thread::spawn(move || {
                let other = leaf.records.allocate().unwrap();
                leaf.records.get(other).reset(
                    64,
                    &Slots::identity(1, 0, EntrySum::default()),
                    0,
                    0,
                    medium::Lsn::DURABLE,
                );
                let lock = leaf.record().lock();
                leaf.record().set_dead(true);
                root.store(u64::from(other), Ordering::Release);
                drop(lock);
                leaf.records.free(1);
                let again = leaf.records.allocate().unwrap();
                assert_eq!(again, 1);
                leaf.records.get(again).reset(
                    128,
                    &Slots::identity(2, 0, EntrySum::default()),
                    0,
                    0,
                    medium::Lsn::DURABLE,
                );
            })
        };
        let offset = loop {
            let index = root.load(Ordering::Acquire);
            let leaf_record = leaf.records.get(index as u32);
            let version = leaf_record.version();
            let leads_there = root.load(Ordering::Acquire) == index;
            let offset = leaf_record.offset();
            if leads_there && !Record::is_dead(version) && leaf_record.is_still(version) {
                break offset;
            }
            thread::yield_now();
        };
        assert_eq!(offset, 64);
        writer.join().unwrap();
    });
}
