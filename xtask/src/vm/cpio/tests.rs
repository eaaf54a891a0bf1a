use super::*;

#[test]
fn headers_are_110_bytes_and_everything_is_aligned() {
    let mut archive = Archive::default();
    archive.folder("dev");
    archive.console();
    archive.file("init", b"hello");
    let bytes = archive.finish();
    assert_eq!(bytes.len() % 4, 0);
    let at = |offset: usize, length: usize| {
        std::str::from_utf8(&bytes[offset..offset + length]).unwrap()
    };
    assert_eq!((at(0, 6), at(110, 3), bytes[113]), ("070701", "dev", 0));
    // The second header begins at the next multiple of 4, and its device is 5:1.
    let second = 116;
    assert_eq!(
        (at(second, 6), at(second + 78, 8), at(second + 86, 8)),
        ("070701", "00000005", "00000001")
    );
    let file = at(0, bytes.len()).find("init").unwrap() - 110;
    assert_eq!(
        (at(file, 6), at(file + 54, 8), at(file + 94, 8)),
        ("070701", "00000005", "00000005")
    );
    assert_eq!(at((file + 115).next_multiple_of(4), 5), "hello");
    assert!(at(0, bytes.len()).contains("TRAILER!!!"));
}
