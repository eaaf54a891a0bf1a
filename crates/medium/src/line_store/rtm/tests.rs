use std::cell::Cell;

use super::retry;

/// The effect of a call of `retry`.
#[derive(PartialEq, Eq, Debug)]
struct Run {
    is_stored: bool,
    tries: u32,
    /// How many stores made the line dirty.
    dirtied: u32,
}

/// Runs `retry` against a transaction that commits at the given try.
fn run(tries_max: u32, commits_at: u32) -> Run {
    let tries = Cell::new(0);
    let dirtied = Cell::new(0);
    let try_once = || {
        tries.set(tries.get() + 1);
        tries.get() == commits_at
    };
    let is_stored = retry(tries_max, try_once, || dirtied.set(dirtied.get() + 1));
    Run {
        is_stored,
        tries: tries.get(),
        dirtied: dirtied.get(),
    }
}

/// A run that stored the line at the given try.
fn stored(tries: u32) -> Run {
    Run {
        is_stored: true,
        tries,
        dirtied: tries - 1,
    }
}

/// A run that gave up after so many tries.
fn gave_up(tries: u32) -> Run {
    Run {
        is_stored: false,
        tries,
        dirtied: tries - 1,
    }
}

#[test]
fn a_commit_ends_the_tries() {
    assert_eq!(run(10, 1), stored(1));
    assert_eq!(run(10, 2), stored(2));
    assert_eq!(run(10, 10), stored(10));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn dirtying_changes_nothing() {
    let line: [super::AtomicU64; 8] =
        std::array::from_fn(|word| super::AtomicU64::new(!(word as u64)));
    // SAFETY: a line of atomics of ours.
    unsafe { super::dirty(&raw const line) };
    assert!(
        line.into_iter()
            .enumerate()
            .all(|(word, found)| found.into_inner() == !(word as u64))
    );
}

#[test]
fn tries_are_bounded() {
    assert_eq!(run(10, 11), gave_up(10));
    assert_eq!(run(1, 2), gave_up(1));
    assert_eq!(run(super::TRIES_MAX, 0), gave_up(super::TRIES_MAX));
}
