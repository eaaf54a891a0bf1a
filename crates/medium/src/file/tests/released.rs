//! Room that is given back, on a machine whose power fails.

use super::*;
use crate::RELEASE_BYTES;
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
