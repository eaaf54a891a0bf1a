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
    let guard = crate::Guard::new(&dax);
    assert!(guard.words(0, 1 << 13).unwrap().iter().all(|word| word.load(&guard) == 0));
}

/// A store to a hole of a full disk would be a signal.
#[test]
fn a_file_whose_growth_was_cut_short_gets_its_blocks() {
    let file: File = memfd_create("everleaf", MemfdFlags::CLOEXEC).unwrap().into();
    let blocks = || file.metadata().unwrap().blocks();
    file.set_len(1 << 20).unwrap();
    assert_eq!(blocks(), 0);
    let _dax = Dax::new(file.try_clone().unwrap(), DaxOptions::default()).unwrap();
    assert_eq!(blocks(), (1 << 20) / 512);
}
