use rustix::fs::{MemfdFlags, memfd_create};

use super::*;

/// Such a file was once mapped over the memory behind the range: the stacks and the heap of the
/// process.
#[test]
fn a_file_that_is_longer_than_the_addresses_is_refused() {
    let file = memfd_create("long", MemfdFlags::empty()).unwrap();
    let file = File::from(file);
    if let Err(error) = file.set_len((1 << 46) + 1) {
        eprintln!("skipped: no file may be so long here: {error}");
        return;
    }
    let refused = Mapping::private(Arc::new(crate::file::Disk(file)), u64::MAX).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.starts_with("cannot map a file of 70368744177665 bytes: the process has no free"),
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

/// A page of something else, mapped at a distance behind a mapping.
struct ForeignPage(*mut std::ffi::c_void);

impl ForeignPage {
    fn behind(mapping: &Mapping, distance: u64) -> Self {
        let wanted = mapping.address(distance);
        let bytes = page_bytes() as usize;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: a fresh page, where nothing else is mapped.
        let page = unsafe { mmap_anonymous(wanted, bytes, READ_WRITE, flags) }.unwrap();
        // SAFETY: just mapped.
        unsafe { page.cast::<u64>().write(7) };
        Self(page)
    }

    fn value(&self) -> u64 {
        // SAFETY: mapped until this is dropped.
        unsafe { self.0.cast::<u64>().read() }
    }
}

impl Drop for ForeignPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `behind`.
        let _ = unsafe { munmap(self.0, page_bytes() as usize) };
    }
}

fn assert_out_of_addresses(grown: Result<(), MediumError>, present: u64) {
    match grown.unwrap_err() {
        full @ MediumError::Full {
            by: LimitedBy::Addresses,
            limit,
            ..
        } => {
            assert_eq!(limit, present);
            let text = full.to_string();
            assert!(
                text.starts_with("out of addresses: growing the pool from"),
                "{text}"
            );
            assert!(text.contains("open it again"), "{text}");
        }
        other => panic!("{other}"),
    }
}

fn first_word(mapping: &Mapping) -> &AtomicU64 {
    &mapping.extent().words(0, 1).unwrap()[0]
}

fn memory_file(bytes: u64) -> File {
    let file = File::from(memfd_create("pool", MemfdFlags::empty()).unwrap());
    file.set_len(bytes).unwrap();
    file
}

/// Growing once replaced whatever was mapped behind the reserved addresses.
#[test]
fn a_growth_that_meets_a_foreign_mapping_is_refused_and_changes_nothing() {
    const LENGTH: u64 = 1 << 16;
    let disk = |file: &File| Arc::new(crate::file::Disk(file.try_clone().unwrap()));
    let file = memory_file(LENGTH);
    for kind in [
        "memory",
        "shared",
        "private",
        "private, growth mapped",
        "copy",
    ] {
        let mapping = match kind {
            "memory" => Mapping::memory(u64::MAX, Grown::Pool).unwrap(),
            "shared" => Mapping::shared(file.try_clone().unwrap(), u64::MAX).unwrap(),
            "copy" => Mapping::copy_of(&file).unwrap(),
            _ => Mapping::private(disk(&file), u64::MAX).unwrap(),
        };
        if kind == "private, growth mapped" {
            mapping.map_growth();
        }
        mapping.grow(LENGTH).unwrap();
        first_word(&mapping).store(5, Ordering::Relaxed);
        let foreign = ForeignPage::behind(&mapping, 3 * LENGTH);
        let before = file.metadata().unwrap().len();
        assert_out_of_addresses(mapping.grow(4 * LENGTH), LENGTH);
        assert_eq!(file.metadata().unwrap().len(), before, "{kind}");
        assert_eq!(mapping.extent().length(), LENGTH, "{kind}");
        assert_eq!(first_word(&mapping).load(Ordering::Relaxed), 5, "{kind}");
        assert_eq!(foreign.value(), 7, "{kind}");
        // Up to the foreign page it grows, and beyond it when the page is gone.
        mapping.grow(3 * LENGTH).unwrap();
        assert_out_of_addresses(mapping.grow(4 * LENGTH), 3 * LENGTH);
        drop(foreign);
        mapping.grow(4 * LENGTH).unwrap();
        let words = mapping
            .extent()
            .words(LENGTH, 3 * LENGTH as usize / 8)
            .unwrap();
        assert!(
            words.iter().all(|word| word.load(Ordering::Relaxed) == 0),
            "{kind}"
        );
        words[words.len() - 1].store(9, Ordering::Relaxed);
        drop(mapping);
        file.set_len(LENGTH).unwrap();
    }
}

/// The pages of a shared mapping are first mapped without the file.
#[test]
fn what_is_stored_to_a_grown_shared_mapping_reaches_the_file() {
    use std::os::unix::fs::FileExt;

    let file = memory_file(100);
    let mapping = Mapping::shared(file.try_clone().unwrap(), u64::MAX).unwrap();
    for (number, length) in [100, 5000, 20_000, 3 << 20, (3 << 20) + 9000]
        .into_iter()
        .enumerate()
    {
        mapping.grow(length).unwrap();
        let last = length / 8 - 1;
        let word = &mapping.extent().words(last * 8, 1).unwrap()[0];
        word.store(number as u64 + 1, Ordering::Relaxed);
        let mut found = [0; 8];
        file.read_exact_at(&mut found, last * 8).unwrap();
        assert_eq!(u64::from_le_bytes(found), number as u64 + 1);
    }
}

/// A mapping that was cut has pages of zeros behind its end, which a growth replaces.
#[test]
fn a_mapping_that_was_cut_grows_again() {
    use std::os::unix::fs::FileExt;

    const LENGTH: u64 = 1 << 16;
    let file = memory_file(4 * LENGTH);
    let mapping = Mapping::shared(file.try_clone().unwrap(), u64::MAX).unwrap();
    let word = || &mapping.extent().words(3 * LENGTH, 1).unwrap()[0];
    word().store(3, Ordering::Relaxed);
    mapping.cut(LENGTH).unwrap();
    assert_eq!(file.metadata().unwrap().len(), LENGTH);
    mapping.grow(6 * LENGTH).unwrap();
    assert_eq!(word().load(Ordering::Relaxed), 0);
    word().store(4, Ordering::Relaxed);
    let mut found = [0; 8];
    file.read_exact_at(&mut found, 3 * LENGTH).unwrap();
    assert_eq!(u64::from_le_bytes(found), 4);
}

/// A mapping once reserved up to 1 TiB of addresses, so that a process had some hundred.
#[test]
fn a_thousand_mappings_take_only_the_addresses_that_they_use() {
    let address_space = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        pages * page_bytes()
    };
    let before = address_space();
    let mappings: Vec<_> = (0..1000)
        .map(|_| Mapping::memory(u64::MAX, Grown::Pool).unwrap())
        .collect();
    for mapping in &mappings {
        mapping.grow(1 << 16).unwrap();
        first_word(mapping).store(1, Ordering::Relaxed);
    }
    // Other tests map memory at the same time.
    let taken = address_space().saturating_sub(before);
    assert!(taken < 8 << 30, "{taken}");
    for mapping in &mappings {
        mapping.grow(10 << 30).unwrap();
    }
}

/// A thread that made many trees once kept their address ranges for the next ones, until other
/// threads found no addresses.
#[test]
fn a_thread_keeps_little_memory() {
    keep_ranges(true);
    let memory = |length| {
        let mapping = Mapping::memory(1 << 40, Grown::Memory).unwrap();
        mapping.grow(length).unwrap();
        mapping
    };
    drop(memory(2 << 20));
    drop((0..600).map(|_| memory(1)).collect::<Vec<_>>());
    let kept: Vec<u64> = KEPT.with_borrow(|kept| {
        kept.iter()
            .flatten()
            .map(AddressRange::mapped_bytes)
            .collect()
    });
    keep_ranges(false);
    assert_eq!(kept.len(), KEPT_RANGES_MAX);
    assert!(kept.iter().all(|bytes| *bytes == 1 << 16), "{kept:?}");
}
