use super::size;

#[test]
fn sizes_are_as_people_write_them() {
    let sizes = [0, 1, 1023, 1024, 57_344, 1_048_575, 20_888_750, 3 << 40].map(size);
    let expected = [
        "0 bytes",
        "1 byte",
        "1023 bytes",
        "1 KiB",
        "56 KiB",
        "1 MiB",
        "19.9 MiB",
        "3 TiB",
    ];
    assert_eq!(sizes, expected);
}
