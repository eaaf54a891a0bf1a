use super::*;

#[test]
fn each_page_has_an_entry_of_its_own() {
    let mut next = 0;
    for chunk in 0..CHUNKS {
        assert_eq!(first_page_of(chunk), next);
        next += first_page_of(chunk).max(FIRST_CHUNK_PAGES);
        assert_eq!(chunk_of(first_page_of(chunk)), chunk);
        assert_eq!(chunk_of(next - 1), chunk);
    }
    assert_eq!(next, 1 << 34);
}

#[test]
fn pages_are_noted_and_forgotten() {
    let private = Private::new(u64::MAX);
    let pages = [0, 511, 512, 1023, 1024, 70_000];
    for page in pages {
        private.note_append(page, 1);
        private.note_store(page);
    }
    assert_eq!(private.noted(0).collect::<Vec<_>>(), pages);
    assert_eq!(private.noted(512).collect::<Vec<_>>(), pages[2..]);
    assert_eq!(private.bytes(), 6 * PAGE_BYTES);
    private.cut(1024 * PAGE_BYTES);
    assert_eq!(private.noted(0).collect::<Vec<_>>(), pages[..4]);
    // Beyond the largest pool there are no entries.
    private.note_store(1 << 34);
    assert_eq!(private.bytes(), 4 * PAGE_BYTES);
}

/// The table of a small pool was once as long as that of one of 1 TiB, and its first chunk took 256
/// KiB.
#[test]
fn a_small_pool_has_a_small_table() {
    let private = Private::new(u64::MAX);
    private.note_store(16);
    let entries: usize = private
        .chunks
        .iter()
        .filter_map(|chunk| chunk.get())
        .map(|chunk| chunk.len())
        .sum();
    assert_eq!(entries, 512);
    assert!(size_of::<Private>() < 2048);
}
