use super::*;

#[test]
fn records_and_values_are_read_as_written() {
    let record = Announcement {
        thread: 3,
        answer: Some(true),
        seen: 7,
        kind: OperationKind::ExchangeOut,
        tree: 1,
        key: 99,
        version: version(5, 3, 17),
        expected: 4,
    };
    assert_eq!(Announcement::decode(&record.encode()), Some(record));
    let mut torn = record.encode();
    torn[24..].fill(0);
    assert_eq!(
        (
            Announcement::decode(&torn),
            Announcement::decode(&[0; ANNOUNCEMENT_BYTES])
        ),
        (None, None)
    );
    for sequence in 1..9000 {
        let version = version(1, 2, sequence);
        for tree in [0, 1] {
            let bytes = value_bytes(tree, version);
            assert_eq!(version_of(tree, &bytes), Some(version));
            assert_eq!(version_of(tree, &bytes[..bytes.len() - 1]), None);
        }
    }
}

#[test]
fn keys_differ() {
    for tree in [0, 1] {
        let keys: std::collections::HashSet<_> =
            (0..50_000).map(|key| key_bytes(tree, key)).collect();
        assert_eq!(keys.len(), 50_000);
    }
}
