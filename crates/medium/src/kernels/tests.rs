//! All back ends against plain loops, on edge cases and on random inputs.

use std::sync::atomic::AtomicU64;

use proptest::array::{uniform8, uniform32};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Kernels, SLOTS, UnsupportedKernels, insert_slot, portable, remove_slot};
use crate::line_store::{LineValue, TAG_MASK};

/// One back end.
struct Table {
    name: Kernels,
    match_byte: fn(&[AtomicU64; 8], u8) -> u64,
    compare_bytes: fn(&[AtomicU64; 8], u8) -> (u64, u64),
    rank_le: fn(&[AtomicU64; 32], usize, u64) -> usize,
    rank_lt: fn(&[AtomicU64; 32], usize, u64) -> usize,
    compare_entries: fn(&[[AtomicU64; 2]], u64) -> (u64, u64),
    compare_words: fn(&[AtomicU64], u64) -> (u32, u32),
    load_line: fn(&[AtomicU64; 8]) -> LineValue,
    store_line: fn(&[AtomicU64; 8], &LineValue),
    find_slot: fn(&LineValue, usize, u8) -> Option<usize>,
}

fn tables() -> Vec<Table> {
    #[allow(unused_mut, reason = "one back end only elsewhere")]
    let mut tables = vec![Table {
        name: Kernels::Portable,
        match_byte: portable::match_byte,
        compare_bytes: portable::compare_bytes,
        rank_le: portable::rank_le,
        rank_lt: portable::rank_lt,
        compare_entries: portable::compare_entries,
        compare_words: portable::compare_words,
        load_line: portable::load_line,
        store_line: portable::store_line,
        find_slot: portable::find_slot,
    }];
    #[cfg(target_arch = "x86_64")]
    for (kernels, table) in [
        (Kernels::Avx512, avx512_table as fn() -> Table),
        (Kernels::Avx2, avx2_table),
    ] {
        if kernels.is_supported() {
            tables.push(table());
        } else {
            println!("skipped: this processor has no {kernels}");
        }
    }
    tables
}

#[cfg(target_arch = "x86_64")]
macro_rules! vector_table {
    ($table:ident, $name:ident, $module:ident) => {
        // SAFETY (all of it): the table is made only where the instructions are supported; the
        // tests keep within the limits.
        #[allow(clippy::undocumented_unsafe_blocks, reason = "said once, above")]
        fn $table() -> Table {
            Table {
                name: Kernels::$name,
                match_byte: |line, byte| unsafe { crate::kernels::$module::match_byte(line, byte) },
                compare_bytes: |line, byte| unsafe {
                    crate::kernels::$module::compare_bytes(line, byte)
                },
                rank_le: |keys, count, key| unsafe {
                    crate::kernels::$module::rank_le(keys, count, key)
                },
                rank_lt: |keys, count, key| unsafe {
                    crate::kernels::$module::rank_lt(keys, count, key)
                },
                compare_entries: |entries, key| unsafe {
                    crate::kernels::$module::compare_entries(entries, key)
                },
                compare_words: |words, key| unsafe {
                    crate::kernels::$module::compare_words(words, key)
                },
                load_line: |line| unsafe { crate::kernels::$module::load_line(line) },
                store_line: |line, value| unsafe {
                    crate::kernels::$module::store_line(line, value)
                },
                find_slot: |line, count, slot| unsafe {
                    crate::kernels::$module::find_slot(line, count, slot)
                },
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vector_table!(avx512_table, Avx512, avx512);
#[cfg(target_arch = "x86_64")]
vector_table!(avx2_table, Avx2, avx2);

fn atomics<const N: usize>(words: [u64; N]) -> [AtomicU64; N] {
    words.map(AtomicU64::new)
}

fn check_line(words: [u64; 8], byte: u8) {
    let bytes = words.map(u64::to_le_bytes);
    let mask = |holds: &dyn Fn(u8) -> bool| {
        (0..64).fold(0, |mask, index| {
            mask | u64::from(holds(bytes.as_flattened()[index])) << index
        })
    };
    let below = mask(&|other| other < byte);
    let wanted = mask(&|other| other == byte);
    for table in tables() {
        assert_eq!(
            (table.compare_bytes)(&atomics(words), byte),
            (below, wanted),
            "{}",
            table.name
        );
        assert_eq!(
            (table.match_byte)(&atomics(words), byte),
            wanted,
            "{}",
            table.name
        );
        assert_eq!(
            (table.load_line)(&atomics(words)),
            LineValue(words),
            "{}",
            table.name
        );
        let stored = atomics([0; 8]);
        (table.store_line)(&stored, &LineValue(words));
        assert_eq!(stored.map(AtomicU64::into_inner), words, "{}", table.name);
    }
}

fn check_rank(keys: [u64; 32], count: usize, key: u64) {
    let wanted_le = keys[..count].iter().filter(|&&other| other <= key).count();
    let wanted_lt = keys[..count].iter().filter(|&&other| other < key).count();
    for table in tables() {
        assert_eq!(
            (table.rank_le)(&atomics(keys), count, key),
            wanted_le,
            "{}",
            table.name
        );
        assert_eq!(
            (table.rank_lt)(&atomics(keys), count, key),
            wanted_lt,
            "{}",
            table.name
        );
    }
}

fn check_entries(entries: &[[u64; 2]], key: u64) {
    let mask = |holds: &dyn Fn(u64) -> bool| {
        entries.iter().enumerate().fold(0, |mask, (index, entry)| {
            mask | u64::from(holds(entry[0])) << index
        })
    };
    let wanted = (mask(&|word| word < key), mask(&|word| word == key));
    let shared: Vec<[AtomicU64; 2]> = entries
        .iter()
        .map(|entry| entry.map(AtomicU64::new))
        .collect();
    for table in tables() {
        assert_eq!(
            (table.compare_entries)(&shared, key),
            wanted,
            "{}",
            table.name
        );
    }
}

/// The slots of a line, byte by byte; the tag bits of each word are ignored.
fn slots_of(line: &LineValue) -> Vec<u8> {
    line.0[1..]
        .iter()
        .flat_map(|word| (word & !TAG_MASK).to_le_bytes())
        .collect()
}

/// A line of these slots, with header and tags of `line`.
fn with_slots(line: &LineValue, slots: &[u8]) -> LineValue {
    let mut result = *line;
    for (word, bytes) in result.0[1..].iter_mut().zip(slots.as_chunks::<8>().0) {
        *word = *word & TAG_MASK | u64::from_le_bytes(*bytes);
    }
    result
}

fn check_slots(line: &LineValue, position: usize, slot: u8) {
    let slots = slots_of(line);
    let mut inserted = slots.clone();
    let mut removed = slots.clone();
    inserted.insert(position, slot);
    inserted.truncate(SLOTS);
    removed.remove(position);
    removed.push(0);
    assert_eq!(
        insert_slot(line, position, slot),
        with_slots(line, &inserted)
    );
    assert_eq!(remove_slot(line, position), with_slots(line, &removed));
    for table in tables() {
        let name = table.name;
        for count in [0, 1, position, position + 1, SLOTS] {
            let wanted = slots[..count].iter().position(|&other| other == slot);
            assert_eq!((table.find_slot)(line, count, slot), wanted, "{name}");
        }
    }
}

/// Words at the edges of signed and unsigned order, and near each other.
fn edge_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..4_u64,
        (0..4_u64).prop_map(|distance| u64::MAX - distance),
        (0..4_u64).prop_map(|distance| (1 << 63) - 2 + distance),
    ]
}

/// The words of a line whose bytes recur.
fn byte_words() -> impl Strategy<Value = [u64; 8]> {
    let byte = prop::sample::select(vec![0, 1, 0x7f, 0x80, 0x81, 0xff])
        .boxed()
        .prop_union(any::<u8>().boxed());
    vec(byte, 64).prop_map(|bytes| {
        std::array::from_fn(|word| u64::from_le_bytes(bytes.as_chunks::<8>().0[word]))
    })
}

proptest! {
    #[test]
    fn match_byte_and_load_line(words in byte_words(), byte in any::<u8>()) {
        check_line(words, byte);
        check_line(words, words[3] as u8);
    }

    #[test]
    fn rank(keys in uniform32(edge_word()), count in 0..=32_usize, key in edge_word(), sorted: bool) {
        let mut keys = keys;
        if sorted {
            keys.sort_unstable();
        }
        check_rank(keys, count, key);
        check_rank(keys, count, keys[count.saturating_sub(1)]);
    }

    #[test]
    fn compare_entries(entries in vec(uniform2(edge_word()), 0..=64), key in edge_word()) {
        check_entries(&entries, key);
        if let Some(last) = entries.last() {
            check_entries(&entries, last[0]);
        }
    }

    #[test]
    fn compare_words(words in vec(edge_word(), 0..=16), key in edge_word()) {
        // Guards beside the words must not count.
        let shared: Vec<AtomicU64> = words.iter().copied().chain([key; 16]).map(AtomicU64::new).collect();
        let bit = |holds: &dyn Fn(u64) -> bool| {
            words.iter().enumerate().map(|(index, word)| u32::from(holds(*word)) << index).sum::<u32>()
        };
        for table in tables() {
            let found = (table.compare_words)(&shared[..words.len()], key);
            prop_assert_eq!(found, (bit(&|word| word < key), bit(&|word| word == key)), "{}", table.name);
        }
    }

    #[test]
    fn slots(header in any::<u64>(), slots in vec(0..64_u8, SLOTS), tags in uniform8(0..4_u64),
             position in 0..SLOTS, slot in 0..64_u8) {
        let tagged = LineValue(std::array::from_fn(|index| tags[index] << 62));
        let mut line = with_slots(&tagged, &slots);
        line.0[0] = header;
        check_slots(&line, position, slot);
        check_slots(&line, position, slots[position]);
    }
}

fn uniform2(word: impl Strategy<Value = u64>) -> impl Strategy<Value = [u64; 2]> {
    proptest::array::uniform2(word)
}

#[test]
fn every_byte_in_every_place() {
    for byte in 0..=255 {
        check_line([u64::from_le_bytes([byte; 8]); 8], byte);
        for place in 0..64 {
            let mut words = [u64::from_le_bytes([byte ^ 1; 8]); 8];
            words[place / 8] ^= 1 << (8 * (place % 8));
            check_line(words, byte);
        }
    }
}

#[test]
fn rank_at_every_count_and_key() {
    let keys = std::array::from_fn(|index| (index as u64 / 2) << 59 | 7);
    for count in 0..=32 {
        for key in keys
            .into_iter()
            .flat_map(|key| [key - 1, key, key + 1])
            .chain([0, u64::MAX])
        {
            check_rank(keys, count, key);
        }
    }
}

#[test]
fn entries_at_every_length() {
    for length in 0..=64 {
        // The value words equal the key of the search: none may be taken for a key.
        let entries: Vec<[u64; 2]> = (0..length)
            .map(|index| [(index ^ 5) << 58, 9 << 58])
            .collect();
        for key in [0, 8 << 58, 9 << 58, (9 << 58) + 1, 63 << 58, u64::MAX] {
            check_entries(&entries, key);
        }
    }
}

#[test]
fn slots_at_every_position() {
    let slots: Vec<u8> = (0..SLOTS as u8).map(|slot| 63 - slot).collect();
    for tag in [0, 1, 2, 3] {
        let mut line = with_slots(&LineValue([tag << 62; 8]), &slots);
        line.0[0] = 0xff12_3456_789a_bcde;
        for position in 0..SLOTS {
            check_slots(&line, position, 62);
        }
    }
}

#[test]
fn the_public_functions_use_what_is_installed() {
    let line = atomics([0x0102_0304_0506_0708; 8]);
    let keys = atomics(std::array::from_fn::<u64, 32, _>(|index| index as u64));
    for kernels in Kernels::all() {
        if !kernels.is_supported() {
            assert_eq!(kernels.install(), Err(UnsupportedKernels(kernels)));
            continue;
        }
        kernels.install().unwrap();
        assert_eq!(Kernels::active(), kernels);
        let value = super::load_line(&line);
        assert_eq!(super::match_byte(&line, 8), 0x0101_0101_0101_0101);
        assert_eq!(
            (super::rank_le(&keys, 99, 31), super::rank_lt(&keys, 99, 31)),
            (32, 31)
        );
        assert_eq!(super::compare_entries(&[], 3), (0, 0));
        assert_eq!([0, 1 << 63, u64::MAX].map(super::count_ones), [0, 1, 64]);
        let inserted = insert_slot(&value, 0, 63);
        assert_eq!(super::find_slot(&inserted, 99, 63), Some(0));
        assert_eq!(remove_slot(&inserted, 0).0[..7], value.0[..7]);
    }
    Kernels::all()
        .into_iter()
        .find(|kernels| kernels.is_supported())
        .unwrap()
        .install()
        .unwrap();
}

#[test]
fn limits_are_checked() {
    let entries: Vec<[AtomicU64; 2]> = (0..65).map(|_| atomics([0, 0])).collect();
    assert!(std::panic::catch_unwind(|| super::compare_entries(&entries, 1)).is_err());
    assert!(std::panic::catch_unwind(|| insert_slot(&LineValue::ZERO, SLOTS, 1)).is_err());
    assert!(std::panic::catch_unwind(|| remove_slot(&LineValue::ZERO, SLOTS)).is_err());
}

#[test]
fn prefetches_take_anything() {
    super::prefetch_read("");
    super::prefetch_lines(&[0_u8; 1000][3..]);
    super::prefetch_first(&[0_u64; 4], usize::MAX);
    super::prefetch_lines::<[u64]>(&[]);
}
