use medium::Dax;
use pool::{Pool, PoolOptions};
use proptest::prelude::*;

use super::*;

fn pool() -> Pool<Dax> {
    let pool = Pool::open(Dax::plain(1 << 28).unwrap(), PoolOptions::default()).unwrap();
    pool.verify_reads();
    pool
}

/// Lengths on both sides of each limit of the short header.
const LENGTHS: [(usize, usize); 7] = [
    (0, 0),
    (24, 150),
    (4095, 16_383),
    (4096, 0),
    (0, 16_384),
    (KEY_BYTES_MAX, 100),
    (3, 300_000),
];

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|index| (index as u8).wrapping_mul(31) ^ seed)
        .collect()
}

/// The key and the value that a read of a record returns.
fn read(guard: &Guard<'_, Dax>, offset: u64) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut entry = Vec::new();
    let key_length = Record::copy_entry(guard, offset, &mut entry)?;
    let mut value = Vec::new();
    Record::at(guard, offset)?.copy_value(guard, &mut value)?;
    let copied = entry.split_off(key_length);
    assert_eq!(copied, value);
    Ok((entry, value))
}

#[test]
fn records_of_all_lengths_are_read_as_they_were_written() {
    let pool = pool();
    let guard = pool.pin();
    for (key_length, value_length) in LENGTHS {
        let key = bytes(key_length, 1);
        let value = bytes(value_length, 2);
        let offset = write(&guard, &key, &value).unwrap();
        assert_eq!(read(&guard, offset).unwrap(), (key.clone(), value));
        let record = Record::at(&guard, offset).unwrap();
        assert!(record.is_sound(&guard).unwrap());
        assert!(record.compare(&guard, &key).unwrap().is_eq());
        record.expect_key(&guard).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No flipped bit of a record goes unnoticed: of its lengths, its checks, its key, its value or
    /// its padding.
    #[test]
    fn a_flipped_bit_is_noticed(which in 0..LENGTHS.len(), place in any::<prop::sample::Index>()) {
        let (key_length, value_length) = LENGTHS[which];
        let pool = pool();
        let guard = pool.pin();
        let offset = write(&guard, &bytes(key_length, 3), &bytes(value_length, 4)).unwrap();
        let count = Record::at(&guard, offset).unwrap().words();
        let bit = place.index(count * 64);
        let word = &guard.words(offset, count).unwrap()[bit / 64];
        word.store(&guard, word.load(&guard) ^ 1 << (bit % 64));
        let read = read(&guard, offset);
        prop_assert!(read.is_err_and(|error| error.is_corrupt()));
        let is_sound = Record::at(&guard, offset).and_then(|record| record.is_sound(&guard));
        prop_assert!(!is_sound.unwrap_or(false));
    }
}

/// A comparison relies on the key alone, so a long value need not be read for it.
#[test]
fn the_key_of_a_long_record_has_a_check_of_its_own() {
    let pool = pool();
    let guard = pool.pin();
    let offset = write(&guard, b"a key", &bytes(100_000, 5)).unwrap();
    let record = Record::at(&guard, offset).unwrap();
    let value_word = &guard.words(offset + 64, 1).unwrap()[0];
    value_word.store(&guard, !value_word.load(&guard));
    record.expect_key(&guard).unwrap();
    assert!(record.copy_value(&guard, &mut Vec::new()).is_err());
    let key_word = &guard.words(offset + 16, 1).unwrap()[0];
    key_word.store(&guard, key_word.load(&guard) ^ 1);
    assert!(record.expect_key(&guard).is_err());
}

/// New memory of a pool holds zeros, which are no record.
#[test]
fn zeros_are_no_record() {
    let pool = pool();
    let guard = pool.pin();
    let offset = guard.allocate(64).unwrap();
    assert!(read(&guard, offset).is_err());
}

#[test]
fn keys_of_records_compare_as_their_bytes() {
    let pool = pool();
    let guard = pool.pin();
    let keys: [&[u8]; 11] = [
        b"",
        b"\0",
        b"a",
        b"a\0",
        b"a\0\0\0\0\0\0\0",
        b"a\0\0\0\0\0\0\0\0",
        b"all of it",
        b"all of it\0",
        b"all of it is longer than a word",
        b"b",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    let record = |key: &[u8]| Record::at(&guard, write(&guard, key, b"value").unwrap()).unwrap();
    for one in keys {
        for other in keys {
            let compared = record(one).compare_keys(&guard, &record(other)).unwrap();
            assert_eq!(compared, one.cmp(other), "{one:?} and {other:?}");
        }
    }
}
