use super::retry;

/// Runs `retry` against a transaction that commits at the given try; counts tries and dirtying
/// stores.
fn run(tries_max: u32, commits_at: u32) -> (bool, u32, u32) {
    let mut tries = 0;
    let mut dirtied = 0;
    let try_once = || {
        tries += 1;
        tries == commits_at
    };
    (retry(tries_max, try_once, || dirtied += 1), tries, dirtied)
}

#[test]
fn a_commit_ends_the_tries() {
    assert_eq!(run(10, 1), (true, 1, 0));
    assert_eq!(run(10, 2), (true, 2, 1));
    assert_eq!(run(10, 10), (true, 10, 9));
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
    assert_eq!(run(10, 11), (false, 10, 9));
    assert_eq!(run(1, 2), (false, 1, 0));
    assert_eq!(
        run(super::TRIES_MAX, 0),
        (false, super::TRIES_MAX, super::TRIES_MAX - 1)
    );
}
