use super::*;

fn keys(keys: &[&str]) -> Vec<Vec<u8>> {
    keys.iter().map(|key| key.as_bytes().to_vec()).collect()
}

#[test]
fn keys_that_differ_in_their_first_words_share_nothing_that_is_left_out() {
    for list in [
        &["apple", "banana"][..],
        &["tenant1/", "tenant2/"],
        &["one"],
        &[],
    ] {
        let prefix = SharedPrefix::that_parts(&keys(list));
        assert_eq!(prefix, SharedPrefix::default(), "{list:?}");
    }
}

#[test]
fn as_few_bytes_are_left_out_as_part_all_neighbours() {
    let list = keys(&["tenant42/user/10", "tenant42/user/11", "tenant42/user/9"]);
    let prefix = SharedPrefix::that_parts(&list);
    assert_eq!(prefix.length(), "tenant42".len());
    let words: Vec<_> = list.iter().map(|key| prefix.word_behind(key)).collect();
    assert!(words.is_sorted() && words[0] < words[1]);
}

#[test]
fn no_more_bytes_are_left_out_than_all_keys_share() {
    let list = keys(&["tenant1/user/a", "tenant2/user/a", "tenant2/user/b"]);
    assert_eq!(SharedPrefix::that_parts(&list).length(), "tenant".len());
    let long = "x".repeat(3 * SHARED_BYTES_MAX);
    let list = keys(&[&format!("{long}a"), &format!("{long}b")]);
    assert_eq!(SharedPrefix::that_parts(&list).length(), SHARED_BYTES_MAX);
}

/// A key is compared with the bytes as it is with all keys that begin with them.
#[test]
fn a_key_lies_before_a_prefix_begins_with_it_or_lies_behind() {
    let bytes = b"tenant42/us\0\0er/and/more/than/one/line/of/it/..";
    for length in 0..=bytes.len() {
        let prefix = SharedPrefix::of(bytes, length);
        assert_eq!(prefix, SharedPrefix::from_words(length, prefix.words()));
        let shared = &bytes[..length];
        assert_eq!(prefix.compare(bytes), Ordering::Equal);
        for cut in 0..length {
            // A beginning of the bytes is below every key that begins with all of them.
            assert_eq!(prefix.compare(&bytes[..cut]), Ordering::Less);
            for byte in [
                0,
                bytes[cut].wrapping_sub(1),
                bytes[cut].wrapping_add(1),
                u8::MAX,
            ] {
                let mut other = bytes.to_vec();
                other[cut] = byte;
                assert_eq!(prefix.compare(&other), other[..length].cmp(shared));
                other.truncate(cut + 1);
                let expected = other[..].cmp(&shared[..=cut]);
                let is_short = cut + 1 < length;
                let expected = expected.then(if is_short {
                    Ordering::Less
                } else {
                    Ordering::Equal
                });
                assert_eq!(prefix.compare(&other), expected, "{length} {cut} {byte}");
            }
        }
    }
}
