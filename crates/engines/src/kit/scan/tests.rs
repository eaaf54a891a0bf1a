//! Ranges over a leaf whose keys begin with the same word, one of whose entries is damaged.

use medium::Dax;
use pool::PoolOptions;

use super::*;
use crate::index::RecordCodec;

const KEYS: usize = 40;

/// A tree of one leaf, which never tells that it has not changed.
struct OneLeaf {
    pool: Pool<Dax>,
    entries: Vec<EntryWords>,
}

fn key(number: usize) -> Vec<u8> {
    format!("all keys begin so, {number:02}").into_bytes()
}

impl OneLeaf {
    fn new() -> Self {
        let medium = Dax::plain(16 << 20).unwrap();
        let pool = Pool::open(medium, PoolOptions::default()).unwrap();
        let guard = pool.pin();
        let entry = |number| RecordCodec::encode(&guard, &key(number), b"value").unwrap();
        let entries = (0..KEYS).map(entry).collect();
        drop(guard);
        Self { pool, entries }
    }

    /// The numbers of the keys that a range returns, and how many errors. The range ends.
    fn read(&self, bounds: Bounds, direction: Direction) -> (Vec<usize>, usize) {
        let mut cursor = LeafBatches::<_, Dax, RecordCodec>::cursor(self, bounds, direction);
        let mut numbers = Vec::new();
        let mut errors = 0;
        for _ in 0..10 * KEYS {
            match cursor.advance() {
                Ok(true) => {
                    let (found, _) = cursor.entry();
                    numbers.push((0..KEYS).find(|number| key(*number) == found).unwrap());
                }
                Ok(false) => return (numbers, errors),
                Err(error) => {
                    assert!(error.is_corrupt(), "{error}");
                    errors += 1;
                }
            }
        }
        panic!("the range does not end: {numbers:?}");
    }
}

impl Leaves<Dax, RecordCodec> for OneLeaf {
    fn pool(&self) -> &Pool<Dax> {
        &self.pool
    }

    fn copy_leaf(
        &self,
        _guard: &Guard<'_, Dax>,
        _goal: Goal<'_>,
        _direction: Direction,
        leaf: &mut LeafCopy,
    ) -> Result<Lsn> {
        leaf.entries.extend_from_slice(&self.entries);
        Ok(Lsn::DURABLE)
    }
}

#[test]
fn tied_keys_come_in_order_within_every_pair_of_bounds() {
    let leaf = OneLeaf::new();
    for low in 0..KEYS {
        for high in low..KEYS {
            let bounds = |lower, upper| Bounds { lower, upper };
            let included = bounds(Bound::Included(key(low)), Bound::Included(key(high)));
            let excluded = bounds(Bound::Excluded(key(low)), Bound::Excluded(key(high)));
            let expected: Vec<usize> = (low..=high).collect();
            let inner: Vec<usize> = (low + 1..high).collect();
            let forward = leaf.read(included.clone(), Direction::Forward);
            assert_eq!(forward, (expected.clone(), 0));
            let (mut reverse, errors) = leaf.read(included, Direction::Reverse);
            reverse.reverse();
            assert_eq!((reverse, errors), (expected, 0));
            assert_eq!(leaf.read(excluded, Direction::Forward), (inner, 0));
        }
    }
}

/// The order of a leaf does not say that a key lies within the range: a search that comes to a damaged
/// entry may end too early.
#[test]
fn a_range_with_a_damaged_entry_returns_no_key_outside_of_its_bounds() {
    for direction in [Direction::Forward, Direction::Reverse] {
        for damaged in 0..KEYS {
            for other in [0, 3, KEYS - 1] {
                let mut leaf = OneLeaf::new();
                leaf.entries[damaged][1] = leaf.entries[other][1];
                for start in [5, 10] {
                    let within = match direction {
                        Direction::Forward => start..KEYS,
                        Direction::Reverse => 0..KEYS - start,
                    };
                    let bounds = match direction {
                        Direction::Forward => Bounds {
                            lower: Bound::Included(key(start)),
                            upper: Bound::Unbounded,
                        },
                        Direction::Reverse => Bounds {
                            lower: Bound::Unbounded,
                            upper: Bound::Excluded(key(KEYS - start)),
                        },
                    };
                    let (numbers, _) = leaf.read(bounds, direction);
                    let is_outside = |number: &&usize| !within.contains(number);
                    assert_eq!(numbers.iter().find(is_outside), None);
                }
            }
        }
    }
}

/// A flipped bit in an entry's offset may lead to the sound record of another key with the same first
/// word. A range that returned it out of its place would leave out the keys between.
#[test]
fn a_range_refuses_an_entry_that_leads_to_the_record_of_another_key() {
    const HASH: u64 = 0xffff << 48;
    for damaged in 0..KEYS {
        for other in [0, KEYS / 2, KEYS - 1] {
            if other == damaged {
                continue;
            }
            let mut leaf = OneLeaf::new();
            leaf.pool.verify_reads();
            leaf.entries[damaged][1] =
                leaf.entries[damaged][1] & HASH | leaf.entries[other][1] & !HASH;
            for direction in [Direction::Forward, Direction::Reverse] {
                let mut expected: Vec<usize> = (1..KEYS).filter(|key| *key != damaged).collect();
                if direction == Direction::Reverse {
                    expected.reverse();
                }
                let bounds = Bounds {
                    lower: Bound::Excluded(key(0)),
                    upper: Bound::Unbounded,
                };
                let (numbers, errors) = leaf.read(bounds, direction);
                assert_eq!(numbers, expected, "{damaged} leads to {other}");
                assert!(errors > 0, "{damaged} leads to {other}");
            }
        }
    }
}

/// bztree reads a fingerprint of 0 for an entry that was removed while its leaf was read.
#[test]
fn a_missing_fingerprint_refuses_no_key_and_a_wrong_one_does() {
    for number in 0..KEYS {
        let key = key(number);
        let hash = RecordCodec::hash(&key);
        let fits = |hash: u16, bits: HashBits| {
            let entry = [RecordCodec::word(&key), u64::from(hash) << 48];
            RecordCodec::fits(entry, &key, bits)
        };
        let fingerprint = u16::from((hash as u8).max(1));
        assert!(fits(0, HashBits::FINGERPRINT));
        assert!(fits(fingerprint, HashBits::FINGERPRINT));
        assert!(!fits(fingerprint ^ 2, HashBits::FINGERPRINT));
        assert!(fits(hash, HashBits::ALL));
        assert!(!fits(hash ^ 0x8000, HashBits::ALL));
    }
}
