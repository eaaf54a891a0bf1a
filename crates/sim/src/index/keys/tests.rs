use super::*;

#[test]
fn numbers_keep_their_order_as_bytes() {
    for shape in [KeyShape::Words, KeyShape::Records, KeyShape::Layers] {
        let keys: Vec<Vec<u8>> = (0..600).map(|key| shape.key_bytes(key)).collect();
        assert!(keys.is_sorted());
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(shape.key_number(key), Some(number as u64));
            let value = shape.value_bytes(number as u64);
            assert_eq!(shape.value_number(&value), Some(number as u64));
        }
        assert_eq!(
            shape.value_number(&shape.value_bytes(LONG_VALUE)),
            Some(LONG_VALUE)
        );
    }
    assert_eq!(KeyShape::Records.key_number(b"kkkkkk\0\0\0\x01"), None);
    for bytes in [
        &b"k\0\0\0\0\0\0"[..],
        b"l\0\0\0\0\0\0\0",
        b"k\0\0\0\0\0\0\0~",
        b"k\0\0\0\0\0\0\0\x01",
    ] {
        assert_eq!(KeyShape::Layers.key_number(bytes), None);
    }
}

#[test]
fn keys_of_layers_share_slices_and_differ_by_zeros() {
    let shared = |one: u64, other: u64| {
        let [one, other] = [one, other].map(|key| KeyShape::Layers.key_bytes(key));
        one.iter()
            .zip(&other)
            .take_while(|(one, other)| one == other)
            .count()
    };
    let shares = [
        (50, 100),
        (10, 40),
        (0, 10),
        (10, 20),
        (20, 30),
        (30, 39),
        (1, 2),
    ];
    assert_eq!(
        shares.map(|(one, other)| shared(one, other)),
        [7, 8, 8, 24, 32, 40, 9]
    );
    assert_eq!(
        KeyShape::Layers.key_bytes(2),
        [&KeyShape::Layers.key_bytes(1)[..], &[0]].concat()
    );
}
