use clap::ValueEnum;

use super::*;

const SHAPE: EntryShape = EntryShape {
    entries: 1000,
    key_shape: KeyShape::Random,
    key_bytes: None,
    value_bytes: 150,
};

#[test]
fn keys_sort_as_their_indices_are_listed_and_values_differ() {
    let entries: Vec<_> = SHAPE
        .sorted()
        .into_iter()
        .map(|index| SHAPE.entry(u64::from(index), 0))
        .collect();
    assert!(entries.is_sorted_by(|(a, _), (b, _)| a < b));
    assert!(
        entries
            .iter()
            .all(|(key, value)| key.len() == 24 && value.len() == 150)
    );
    assert_ne!(SHAPE.entry(7, 0).1, SHAPE.entry(7, 1).1);
    assert_ne!(SHAPE.entry(7, 0).1, SHAPE.entry(8, 0).1);
}

#[test]
fn the_shuffled_order_has_each_index_once() {
    let mut indices: Vec<u64> = (0..SHAPE.entries)
        .map(|step| SHAPE.shuffled(step))
        .collect();
    indices.sort_unstable();
    assert_eq!(indices, (0..SHAPE.entries).collect::<Vec<_>>());
}

#[test]
fn the_value_of_an_account_says_how_often_it_was_updated() {
    for value_bytes in [8, 11, 16, 150] {
        let shape = EntryShape {
            value_bytes,
            ..SHAPE
        };
        let mut value = Vec::new();
        let mut expected = Vec::new();
        shape.value(7, 0, &mut value);
        let loaded = shape.account_state(7, &value, &mut expected).unwrap();
        assert_eq!(loaded.updates, 0);
        let written = AccountState {
            updates: 3,
            digest: 12345,
        };
        shape.account_value(7, written, &mut value);
        assert_eq!(value.len(), value_bytes);
        let read = shape.account_state(7, &value, &mut expected).unwrap();
        assert_eq!(read.updates, 3);
    }
}

#[test]
fn a_value_that_is_torn_or_of_another_account_is_that_of_no_state() {
    let mut first = Vec::new();
    let mut second = Vec::new();
    let mut expected = Vec::new();
    let state = |updates, digest| AccountState { updates, digest };
    SHAPE.account_value(7, state(1, 1), &mut first);
    SHAPE.account_value(7, state(1, 2), &mut second);
    for torn in [8, 16, 80] {
        let value = [&first[..torn], &second[torn..]].concat();
        let is_whole = SHAPE.account_state(7, &value, &mut expected).is_some();
        assert_eq!(is_whole, value == second);
    }
    assert_eq!(SHAPE.account_state(8, &first, &mut expected), None);
    assert_eq!(SHAPE.account_state(7, &first[..80], &mut expected), None);
}

/// The keys of figures that were measured before there were other shapes.
#[test]
fn random_keys_are_those_of_old() {
    let hex = |index| {
        let mut hex = String::new();
        for byte in SHAPE.entry(index, 0).0 {
            hex += &format!("{byte:02x}");
        }
        hex
    };
    assert_eq!(hex(0), "e220a8397b1dcdaf0000000000000000212c651b7771d9e4");
    assert_eq!(
        hex(12_345),
        "22118258a9d111a00000000000003039559a5ecdcb9a9703"
    );
}

#[test]
fn keys_of_each_shape_are_listed_in_their_order() {
    for key_shape in KeyShape::value_variants() {
        let shape = EntryShape {
            entries: 100_000,
            ..SHAPE.with_keys(*key_shape)
        };
        let key = |index: u32| {
            let mut key = Vec::new();
            shape.key(u64::from(index), &mut key);
            key
        };
        let sorted = shape.sorted();
        let keys: Vec<Vec<u8>> = sorted.iter().map(|index| key(*index)).collect();
        assert_eq!(keys.len(), 100_000);
        // Strictly, so no two are the same.
        assert!(keys.is_sorted_by(|a, b| a < b), "{key_shape:?}");
        let is_in_order_of_load = sorted.is_sorted();
        assert_eq!(
            is_in_order_of_load,
            key_shape.is_ascending(),
            "{key_shape:?}"
        );
        let mut expected = Vec::new();
        let (first, value) = shape.entry(7, 0);
        assert!(shape.is_entry(7, &first, &value, &mut expected));
        assert!(!shape.is_entry(8, &first, &value, &mut expected));
    }
}
