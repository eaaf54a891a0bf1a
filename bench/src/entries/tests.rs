use super::*;

const SHAPE: EntryShape = EntryShape {
    entries: 1000,
    key_bytes: 24,
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
