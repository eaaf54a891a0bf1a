use super::*;

const SEED: u64 = 7;
const COUNT: u64 = 100_000;

/// The keys of these indices.
fn keys(shape: KeyShape, indices: impl Iterator<Item = u64>) -> Vec<Vec<u8>> {
    let key = |index| shape.key(shape.word(index, SEED)).to_vec();
    indices.map(key).collect()
}

#[test]
fn keys_are_distinct_and_the_same_each_time() {
    for shape in KeyShape::value_variants() {
        let near_the_end = u64::from(u32::MAX) - 1000..u64::from(u32::MAX) + 1000;
        let all = keys(*shape, (0..COUNT).chain(near_the_end.clone()));
        assert_eq!(all, keys(*shape, (0..COUNT).chain(near_the_end)));
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{shape:?}");
        let is_another = shape.word(5, SEED) != shape.word(5, SEED + 1);
        assert_eq!(is_another, !shape.is_ascending(), "{shape:?}");
    }
}

#[test]
fn keys_sort_as_their_words() {
    for shape in KeyShape::value_variants() {
        let mut words: Vec<u64> = (0..COUNT).map(|index| shape.word(index, SEED)).collect();
        words.push(u64::MAX);
        words.sort_unstable();
        let keys: Vec<ShapedKey> = words.iter().map(|word| shape.key(*word)).collect();
        assert!(keys.is_sorted_by(|a, b| **a < **b), "{shape:?}");
    }
}

/// Bits behind those that count change nothing, and each bit that counts does.
#[test]
fn all_bits_that_count_are_in_the_key() {
    for shape in KeyShape::value_variants() {
        let unused = u64::BITS - shape.bits();
        for word in [0, u64::MAX, shape.word(3, SEED)] {
            for bit in 0..u64::BITS {
                let is_same = *shape.key(word) == *shape.key(word ^ 1 << bit);
                assert_eq!(is_same, bit < unused, "{shape:?}, bit {bit}");
            }
        }
    }
}

#[test]
fn lengths_vary_where_that_is_said() {
    for shape in KeyShape::value_variants() {
        let lengths: Vec<usize> = keys(*shape, 0..COUNT).iter().map(Vec::len).collect();
        let shortest = *lengths.iter().min().unwrap();
        let longest = *lengths.iter().max().unwrap();
        assert_eq!(shortest..=longest, shape.key_bytes(), "{shape:?}");
    }
    for shape in [KeyShape::Urls, KeyShape::Words] {
        let bytes = shape.key_bytes();
        assert!(bytes.end() - bytes.start() >= 12, "{shape:?}");
    }
}

#[test]
fn keys_with_a_time_ascend() {
    let ascending = keys(KeyShape::Time, 0..COUNT);
    assert!(ascending.is_sorted_by(|a, b| a < b));
    assert_eq!(ascending[123], b"event/2026-11-27T000000000123");
}

#[test]
fn keys_look_as_the_help_shows_them() {
    let shown = |shape: KeyShape, number: u64| {
        let word = number << (u64::BITS - shape.bits());
        String::from_utf8(shape.key(word).to_vec()).unwrap()
    };
    let tenants = (3 << 41 | 1 << 39) + 123_456;
    let urls = 7 << 38 | 15 << 34 | 14 << 24 | 0x01_f3c9;
    // Letters of syllables, and then their rimes.
    let syllables = [(0, 2), (1, 3), (6, 1), (10, 0), (12, 1), (5, 3)];
    let words = syllables
        .into_iter()
        .fold(0, |number, (onset, rime)| number << 6 | onset << 2 | rime);
    for (shape, number, expected) in [
        (
            KeyShape::Prefix,
            0x9f86_d081_884c_7d65,
            "tenant42/user/9f86d081884c7d65",
        ),
        (KeyShape::Tenants, tenants, "tenant3/invoice/000000123456"),
        (KeyShape::Time, 123_456, "event/2026-11-27T000000123456"),
        (
            KeyShape::Urls,
            urls,
            "https://www.example-07.com/wiki/amber-forest-01f3c9",
        ),
        (KeyShape::Words, words, "bistdolenratenko"),
    ] {
        assert_eq!(shown(shape, number), expected);
        let named = shape.to_possible_value().unwrap();
        let help = named.get_help().unwrap().to_string();
        let key = expected.strip_prefix("https://").unwrap_or(expected);
        assert!(help.contains(key), "{help}");
        assert_eq!(named.get_name(), shape.name());
    }
}

/// The keys of figures that were measured before there were other shapes.
#[test]
fn random_keys_are_those_of_old() {
    let old = Keys::new(1_000_000, 1).of_bytes(24).unwrap();
    let known = [
        (0, 0xb381_129b_d6c6_369a),
        (1, 0x1c39_02b8_e63e_dfee),
        (12_345, 0x93d1_ccca_7105_d132),
    ];
    for (index, word) in known {
        assert_eq!(old.key(index), word);
        assert_eq!(KeyShape::Random.word(index, 1), word);
        assert_eq!(*KeyShape::Random.key(word), word.to_be_bytes());
    }
}
