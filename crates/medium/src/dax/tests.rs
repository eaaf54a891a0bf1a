use std::os::unix::fs::MetadataExt;

use rustix::fs::{MemfdFlags, memfd_create};

use super::*;

#[test]
fn an_empty_file_promises_what_it_keeps_when_it_has_grown() {
    let file = memfd_create("everleaf", MemfdFlags::CLOEXEC).unwrap();
    let file = file.into();
    let promised = Dax::survives_power_loss(&file);
    let dax = Dax::new(file, DaxOptions::default()).unwrap();
    assert_eq!(promised, dax.survives() == Survives::PowerLoss);
    let before = (dax.extent().length(), dax.survives());
    dax.grow(1 << 16).unwrap();
    assert_eq!(before, (0, dax.survives()));
    let guard = crate::MediumGuard::new(&dax);
    assert!(
        guard
            .words(0, 1 << 13)
            .unwrap()
            .iter()
            .all(|word| word.load(&guard) == 0)
    );
}

/// A store to a hole of a full disk would raise a signal. The user of the medium knows which whole
/// units are holes, so these may stay.
#[test]
fn holes_stay_holes_until_they_are_reserved_but_parts_get_their_blocks() {
    let file: File = memfd_create("everleaf", MemfdFlags::CLOEXEC)
        .unwrap()
        .into();
    let blocks = || file.metadata().unwrap().blocks();
    file.set_len((1 << 20) + 8192).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], 3 << 16).unwrap();
    assert_eq!(blocks(), 4096 / 512);
    let dax = Dax::new(file.try_clone().unwrap(), DaxOptions::default()).unwrap();
    // The unit that holds data, and the last part of the file.
    assert_eq!(blocks(), ((1 << 16) + 8192) / 512);
    let holes = || (0..16).filter(|unit| dax.is_hole(unit << 16)).count();
    assert_eq!((holes(), dax.is_hole(3 << 16)), (15, false));
    dax.reserve(5 << 16, 2 << 16).unwrap();
    assert_eq!((holes(), blocks()), (13, ((3 << 16) + 8192) / 512));
    dax.release(3 << 16, 1 << 16);
    assert_eq!((holes(), blocks()), (14, ((2 << 16) + 8192) / 512));
    dax.cut(4 << 16).unwrap();
    assert_eq!(
        (dax.extent().length(), file.metadata().unwrap().len()),
        (4 << 16, 4 << 16)
    );
    dax.grow(8 << 16).unwrap();
    assert_eq!((holes(), dax.is_hole(6 << 16)), (4, false));
}

#[test]
fn what_was_given_back_reads_as_zeros_when_it_is_there_again() {
    let mut ram = Dax::plain(1 << 30).unwrap();
    let length = (4 << 20) + 4096;
    for kept in [0, 64, 4096, 5000, 2 << 20, length - 8] {
        ram.grow(length).unwrap();
        let guard = crate::MediumGuard::new(&ram);
        let words = guard.words(0, length as usize / 8).unwrap();
        let first = (words.len() - 8..words.len()).chain([0, kept as usize / 8, 700, 1000]);
        first.for_each(|word| words[word].store(&guard, 7));
        drop(guard);
        ram.shrink(kept).unwrap();
        assert_eq!(ram.extent().length(), kept);
        ram.grow(length).unwrap();
        let guard = crate::MediumGuard::new(&ram);
        let words = guard.words(0, length as usize / 8).unwrap();
        let (before, after) = words.split_at(kept as usize / 8);
        assert!(
            after.iter().all(|word| word.load(&guard) == 0),
            "{kept} bytes kept"
        );
        assert!(
            before.first().is_none_or(|word| word.load(&guard) == 7),
            "{kept} bytes kept"
        );
    }
}
