//! Room that is given back, on a machine whose power fails.

use std::os::fd::AsRawFd;

use super::*;
use crate::RELEASE_BYTES;
use crate::presence::Presence;
use crate::testing::mutant::plant;

/// A unit, and the word that says whether it is in use.
const UNIT: u64 = RELEASE_BYTES;
const IN_USE: u64 = HERE;

fn store(guard: &MediumGuard<'_, File>, offset: u64, value: u64) {
    let words = guard.words(offset, 1).unwrap();
    words[0].store(guard, value);
    guard.flush_words(words);
}

fn load(file: &File, offset: u64) -> u64 {
    let guard = MediumGuard::new(file);
    guard.words(offset, 1).unwrap()[0].load(&guard)
}

/// A pool with a unit in use, all of it checkpointed.
fn with_a_unit(machine: &Arc<Machine>) -> File {
    let file = open(machine).unwrap();
    file.grow(4 * UNIT).unwrap();
    let guard = MediumGuard::new(&file);
    store(&guard, IN_USE, 1);
    store(&guard, UNIT, 7);
    store(&guard, 3 * UNIT, 8);
    let lsn = guard.fence();
    guard.wait(lsn).unwrap();
    drop(guard);
    file.checkpoint().unwrap();
    file
}

/// Calls `look` with the pool that a loss of power leaves at each moment from `from` on.
fn after_each_crash(machine: &Machine, from: usize, look: impl Fn(&File)) {
    let mut random = SmallRng::seed_from_u64(3);
    for moment in from..=machine.now() {
        let mut below = |count: usize| random.random_range(0..count);
        let crash = machine.crash(moment, 512);
        for choice in crash.samples(30, &mut below) {
            look(&open(&Machine::new(&crash.image(&choice))).unwrap());
        }
    }
}

fn a_unit_is_punched_when_what_freed_it_is_durable() {
    let machine = Machine::new(&Image::default());
    let file = with_a_unit(&machine);
    let from = machine.now();
    let guard = MediumGuard::new(&file);
    store(&guard, IN_USE, 0);
    let lsn = guard.fence();
    file.release(UNIT, UNIT);
    file.checkpoint().unwrap();
    let is_early = file.is_hole(UNIT);
    guard.wait(lsn).unwrap();
    file.checkpoint().unwrap();
    assert!(file.is_hole(UNIT) && !file.is_hole(2 * UNIT));
    after_each_crash(&machine, from, |file| match load(file, IN_USE) {
        1 => assert_eq!(
            load(file, UNIT),
            7,
            "punched before what freed it was durable"
        ),
        other => assert_eq!(other, 0),
    });
    assert!(!is_early);
    file.reserve(UNIT, UNIT).unwrap();
    assert!(!file.is_hole(UNIT));
}

#[test]
fn what_was_released_is_punched_and_reserved_again() {
    a_unit_is_punched_when_what_freed_it_is_durable();
}

#[test]
fn a_punch_that_comes_too_early_is_noticed() {
    plant(Some(Mutant::PunchedEarly));
    let explored = std::panic::catch_unwind(a_unit_is_punched_when_what_freed_it_is_durable);
    plant(None);
    assert!(explored.is_err());
}

#[test]
fn what_is_used_again_before_the_checkpoint_is_not_punched() {
    let machine = Machine::new(&Image::default());
    let file = with_a_unit(&machine);
    file.release(UNIT, UNIT);
    file.reserve(UNIT, UNIT).unwrap();
    file.checkpoint().unwrap();
    assert!(!file.is_hole(UNIT));
    assert_eq!(load(&file, UNIT), 7);
}

#[test]
fn a_pool_is_cut_while_a_thread_has_flushed_lines_of_its_tail() {
    let machine = Machine::new(&Image::default());
    let file = with_a_unit(&machine);
    let from = machine.now();
    let guard = MediumGuard::new(&file);
    store(&guard, 3 * UNIT, 9);
    store(&guard, IN_USE, 5);
    file.cut(2 * UNIT).unwrap();
    assert_eq!(file.extent().length(), 2 * UNIT);
    assert_eq!(machine.shown().files[0].len() as u64, 2 * UNIT);
    let lsn = guard.fence();
    guard.wait(lsn).unwrap();
    drop(guard);
    after_each_crash(&machine, from, |file| {
        assert!([1, 5].contains(&load(file, IN_USE)));
        assert_eq!(load(file, UNIT), 7);
    });
    file.grow(4 * UNIT).unwrap();
    assert_eq!(load(&file, 3 * UNIT), 0);
    let guard = MediumGuard::new(&file);
    store(&guard, 3 * UNIT, 11);
    let lsn = guard.fence();
    guard.wait(lsn).unwrap();
    drop(guard);
    let again = machine.now();
    after_each_crash(&machine, again, |file| assert_eq!(load(file, 3 * UNIT), 11));
    file.finish().unwrap();
    drop(file);
    let file = open(&machine).unwrap();
    assert_eq!((load(&file, IN_USE), load(&file, 3 * UNIT)), (5, 11));
}

/// The lock of a reader in another process.
fn reader_of(machine: &Arc<Machine>) -> Presence {
    let file = machine.io(Which::Pool);
    let path = format!("/proc/self/fd/{}", file.file().as_raw_fd());
    Presence::of_unmapped(std::fs::File::open(path).unwrap()).unwrap()
}

/// Content that a cut should have taken away is neither in memory nor in the file.
fn expect_zeros_after_a_growth(file: File, machine: &Arc<Machine>) {
    file.grow(4 * UNIT).unwrap();
    assert_eq!(load(&file, 3 * UNIT), 0);
    let guard = MediumGuard::new(&file);
    store(&guard, 2 * UNIT, 12);
    let lsn = guard.fence();
    guard.wait(lsn).unwrap();
    drop(guard);
    let from = machine.now();
    file.checkpoint().unwrap();
    after_each_crash(machine, from, |file| {
        assert_eq!((load(file, 2 * UNIT), load(file, 3 * UNIT)), (12, 0));
    });
    file.finish().unwrap();
    drop(file);
    let file = open(machine).unwrap();
    assert_eq!((load(&file, 2 * UNIT), load(&file, 3 * UNIT)), (12, 0));
}

#[test]
fn a_growth_over_a_cut_that_was_put_off_reads_as_zeros() {
    for ends_before in [false, true] {
        let machine = Machine::new(&Image::default());
        let file = with_a_unit(&machine);
        let mut reader = Some(reader_of(&machine));
        file.cut(2 * UNIT).unwrap();
        assert_eq!(machine.shown().files[0].len() as u64, 4 * UNIT);
        if ends_before {
            reader = None;
        }
        expect_zeros_after_a_growth(file, &machine);
        drop(reader);
    }
}

#[test]
fn a_growth_in_parts_over_a_cut_that_was_put_off_reads_as_zeros() {
    let machine = Machine::new(&Image::default());
    let file = with_a_unit(&machine);
    let _reader = reader_of(&machine);
    file.cut(UNIT).unwrap();
    file.grow(2 * UNIT).unwrap();
    assert_eq!(load(&file, UNIT), 0);
    file.grow(3 * UNIT).unwrap();
    expect_zeros_after_a_growth(file, &machine);
}

#[test]
fn what_a_reader_kept_from_being_punched_is_punched_later() {
    let machine = Machine::new(&Image::default());
    let file = with_a_unit(&machine);
    let reader = reader_of(&machine);
    file.release(UNIT, 3 * UNIT);
    file.checkpoint().unwrap();
    assert!(!file.is_hole(UNIT));
    assert_eq!(load(&file, UNIT), 7);
    // This one is taken into use meanwhile.
    file.reserve(3 * UNIT, UNIT).unwrap();
    file.checkpoint().unwrap();
    assert!(!file.is_hole(UNIT));
    drop(reader);
    file.checkpoint().unwrap();
    assert!(file.is_hole(UNIT) && file.is_hole(2 * UNIT));
    assert!(!file.is_hole(3 * UNIT));
    assert_eq!(load(&file, 3 * UNIT), 8);
}
