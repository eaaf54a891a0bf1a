use std::time::{Duration, Instant};

use super::Instrumented;
use crate::{Counts, Dax, Line, LineValue, Medium, MediumGuard};

fn counted() -> Instrumented {
    let medium = Instrumented::new(Dax::plain(1 << 16).unwrap()).counted();
    medium.grow(4096).unwrap();
    medium
}

#[test]
fn stores_flushes_fences_and_bits_are_counted() {
    let medium = counted();
    let guard = MediumGuard::new(&medium);
    let words = guard.words(64, 17).unwrap();
    let before = medium.counts().unwrap();
    words[0].store(&guard, 0b1011);
    words[0].store(&guard, 0b1000);
    assert_eq!(words[1].compare_exchange(&guard, 7, 8), Err(0));
    assert_eq!(words[1].compare_exchange(&guard, 0, 1), Ok(0));
    guard.flush_words(words);
    guard.drain().unwrap();
    let spent = medium.counts().unwrap() - before;
    let expected = Counts {
        words_stored: 3,
        lines_stored: 0,
        lines_flushed: 3,
        fences: 1,
        bits_flipped: 3 + 2 + 1,
    };
    assert_eq!(spent, expected, "{spent}");
}

#[test]
fn a_line_store_is_one_line_stored_and_flushed() {
    let medium = counted();
    let guard = MediumGuard::new(&medium);
    let line: &Line = guard.node(128).unwrap();
    let first = line.init(&guard, &LineValue::ZERO);
    let before = medium.counts().unwrap();
    line.publish(&guard, &first, &LineValue([3; 8])).unwrap();
    guard.fence();
    let spent = medium.counts().unwrap() - before;
    let expected = Counts {
        lines_stored: 1,
        lines_flushed: 1,
        fences: 1,
        bits_flipped: 16,
        ..spent
    };
    assert_eq!((spent, spent.words_stored), (expected, 0));
}

#[test]
fn threads_count_together() {
    let medium = counted();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let medium = &medium;
            scope.spawn(move || {
                let guard = MediumGuard::new(medium);
                let words = guard.words(1024 * thread, 1).unwrap();
                for value in 0..1000 {
                    words[0].publish(&guard, value);
                    guard.fence();
                }
            });
        }
    });
    let counts = medium.counts().unwrap();
    assert_eq!(
        (counts.words_stored, counts.lines_flushed, counts.fences),
        (4000, 4000, 4000)
    );
}

#[test]
fn fences_take_at_least_the_delay() {
    let medium = Instrumented::new(Dax::plain(1 << 16).unwrap()).delayed(2_000);
    medium.grow(4096).unwrap();
    let guard = MediumGuard::new(&medium);
    let start = Instant::now();
    for _ in 0..100 {
        guard.fence();
    }
    assert!(start.elapsed() >= Duration::from_micros(200));
    medium.set_delay_ns(0);
    assert!(medium.describe().ends_with("0 ns slower"));
}

#[test]
fn what_one_owner_wrote_another_one_reads() {
    let medium = Instrumented::new(Dax::plain(1 << 16).unwrap());
    medium.grow(4096).unwrap();
    let other = medium.clone();
    MediumGuard::new(&medium).words(64, 1).unwrap()[0].store(&MediumGuard::new(&medium), 7);
    drop(medium);
    let guard = MediumGuard::new(&other);
    assert_eq!(guard.words(64, 1).unwrap()[0].load(&guard), 7);
}
