use std::collections::HashSet;

use clap::ValueEnum;

use super::*;

#[test]
fn keys_of_each_shape_differ_and_words_stay_words() {
    for shape in KeyShape::value_variants() {
        let keys = TortureKeys {
            shape: Some(*shape),
        };
        let all: HashSet<Vec<u8>> = (0..50_000).map(|key| keys.bytes(0, key)).collect();
        assert_eq!(all.len(), 50_000, "{shape:?}");
        let is_of_shape = |key: &Vec<u8>| shape.key_bytes().contains(&key.len());
        assert!(all.iter().all(is_of_shape), "{shape:?}");
        assert_eq!(keys.bytes(1, 7), key_bytes(1, 7));
    }
    let mixture = TortureKeys { shape: None };
    assert!((0..1000).all(|key| mixture.bytes(0, key) == key_bytes(0, key)));
}
