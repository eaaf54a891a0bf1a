use rustix::fs::{MemfdFlags, memfd_create};

use super::*;

/// Such a file was once mapped over the memory behind the range: the stacks and the heap of the
/// process.
#[test]
fn a_file_that_is_longer_than_the_addresses_is_refused() {
    let file = memfd_create("long", MemfdFlags::empty()).unwrap();
    let file = File::from(file);
    if let Err(error) = file.set_len(RESERVE_BYTES_MAX + HUGE_PAGE_BYTES + 1) {
        eprintln!("skipped: no file may be so long here: {error}");
        return;
    }
    let refused = Mapping::private(Arc::new(crate::file::Disk(file)), u64::MAX).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.starts_with("cannot map a file of 70368746274817 bytes: the system gives addresses"),
        "{text}"
    );
}

/// A load from a hole of a file in memory once took a page, or ended the process if the file system
/// had none left.
#[test]
fn a_copy_reads_holes_without_room_for_them() {
    use std::os::unix::fs::{FileExt, MetadataExt};

    let file = File::from(memfd_create("holes", MemfdFlags::empty()).unwrap());
    file.set_len(1 << 20).unwrap();
    file.write_all_at(&[7; 100], 5000).unwrap();
    let before = file.metadata().unwrap().blocks();
    let mapping = Mapping::copy_of(&file).unwrap();
    let lines: Vec<_> = (0..(1 << 20) / 64)
        .map(|number| mapping.extent().line(number).unwrap())
        .collect();
    let written = lines
        .iter()
        .filter(|line| line.iter().any(|word| word.load(Ordering::Relaxed) != 0))
        .count();
    assert_eq!((written, file.metadata().unwrap().blocks()), (2, before));
}

#[test]
fn who_is_out_of_addresses_is_told_so() {
    let mut mapping = Mapping::memory(1 << 30).unwrap();
    mapping.limit_bytes = u64::MAX;
    let full = mapping.grow((1 << 30) + 1).unwrap_err().to_string();
    assert!(full.contains("ulimit -v"), "{full}");
}

/// A thread that made many trees once kept their address ranges for the next ones, until other
/// threads found no addresses.
#[test]
fn a_thread_keeps_few_addresses() {
    keep_ranges(true);
    drop(
        (0..12)
            .map(|_| Mapping::memory(1 << 40).unwrap())
            .collect::<Vec<_>>(),
    );
    let kept: u64 = KEPT.with_borrow(|kept| kept.iter().flatten().map(|range| range.bytes).sum());
    keep_ranges(false);
    assert!(kept > 0 && kept <= KEPT_ADDRESSES_MAX, "{kept}");
}
