//! Which thread syncs, when, and for which threads.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::*;

/// A log whose syncs take long, and when each began.
#[derive(Clone)]
struct Slow {
    io: Arc<dyn Io>,
    begun: Arc<Mutex<Vec<Instant>>>,
}

impl Slow {
    fn new(io: Arc<dyn Io>, takes: Duration) -> Self {
        let begun = Arc::new(Mutex::new(Vec::new()));
        let begins = Arc::clone(&begun);
        let hook = move |call| {
            if call == FileCall::Sync {
                begins.lock().push(Instant::now());
                std::thread::sleep(takes);
            }
        };
        Self {
            io: Arc::new(Hooked::new(io, hook)),
            begun,
        }
    }
}

fn publish(file: &File, line: u64, value: u64) -> Lsn {
    let guard = MediumGuard::new(file);
    guard.words(HERE + 64 * line, 1).unwrap()[0].publish(&guard, value);
    guard.fence()
}

#[test]
fn many_threads_share_syncs() {
    const ROUNDS: u64 = 20;
    let machine = Machine::new(&Image::default());
    let log = Slow::new(machine.io(Which::Log), Duration::from_millis(2));
    let file = File::open(machine.io(Which::Pool), log.io, options()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let file = &file;
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let lsn = publish(file, thread, round);
                    file.wait(lsn).unwrap();
                    assert!(file.durable() >= lsn);
                }
            });
        }
    });
    let stat = file.stat();
    assert_eq!((stat.groups, stat.lines), (8 * ROUNDS, 8 * ROUNDS));
    assert_eq!(stat.sync_sizes.iter().sum::<u64>(), stat.syncs);
    // Each write could have a sync of its own; but while one thread syncs, all others begin to
    // wait.
    assert!(
        stat.syncs < 5 * ROUNDS && stat.sync_groups_max > 2,
        "{stat:?}"
    );
    drop(file);
    let words = content(&open(&machine).unwrap());
    assert!((0..8).all(|thread| words[8 * thread] == ROUNDS));
}

#[test]
fn a_leader_gathers_as_long_as_it_is_told() {
    let syncs = |gather_max| {
        let machine = Machine::new(&Image::default());
        let log = Slow::new(machine.io(Which::Log), Duration::from_millis(2));
        let file = File::open(
            machine.io(Which::Pool),
            log.io,
            FileOptions {
                gather_max,
                ..options()
            },
        )
        .unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..30 {
                        file.wait(publish(file, thread, round)).unwrap();
                    }
                });
            }
        });
        file.stat().syncs
    };
    // A thread that a sync has served writes again too late for the next sync, unless the leader
    // gathers.
    let patient = syncs(Some(Duration::from_millis(5)));
    let impatient = syncs(Some(Duration::ZERO));
    assert!(
        patient < impatient,
        "{patient} syncs with a window of 5 ms, {impatient} without one"
    );
}

#[test]
fn what_nobody_waits_for_becomes_durable_in_the_background() {
    for durability in [
        Durability::Immediate,
        Durability::Buffered(Duration::from_millis(2)),
    ] {
        let machine = Machine::new(&Image::default());
        let options = FileOptions {
            background: true,
            durability,
            ..options()
        };
        let file = File::open(machine.io(Which::Pool), machine.io(Which::Log), options).unwrap();
        for round in 0..3 {
            let lsn = publish(&file, 0, round);
            let start = Instant::now();
            while file.durable() < lsn {
                assert!(start.elapsed() < Duration::from_secs(30), "{durability:?}");
                std::thread::yield_now();
            }
        }
    }
}

/// The time runs from the beginning of the last sync, not from its end. Otherwise a write right
/// after that beginning would have to wait for the rest of that sync, and then for all of its own
/// time.
#[test]
fn a_bound_in_time_does_not_begin_anew_after_each_sync() {
    const TAKES: Duration = Duration::from_millis(20);
    const BOUND: Duration = Duration::from_millis(25);
    let machine = Machine::new(&Image::default());
    let log = Slow::new(machine.io(Which::Log), TAKES);
    let options = FileOptions {
        background: true,
        durability: Durability::Buffered(BOUND),
        ..options()
    };
    let file = File::open(machine.io(Which::Pool), Arc::clone(&log.io), options).unwrap();
    let is_in_time = || {
        let begun = log.begun.lock();
        // The syncs of the open follow each other without a pause.
        begun
            .windows(2)
            .skip(4)
            .any(|pair| pair[1] - pair[0] < TAKES + BOUND && pair[1] - pair[0] >= BOUND)
    };
    let start = Instant::now();
    for round in 0.. {
        publish(&file, 0, round);
        if is_in_time() {
            break;
        }
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "no two syncs are as near as they should be"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// No thread is held up at a fence, where it may hold locks. It is held up where it would wait for
/// durability.
#[test]
fn a_writer_that_overtakes_the_disk_is_held_up_where_it_would_wait() {
    let machine = Machine::new(&Image::default());
    let options = FileOptions {
        log_bytes: 64 << 20,
        durability: Durability::OnSync,
        ..options()
    };
    let file = File::open(machine.io(Which::Pool), machine.io(Which::Log), options).unwrap();
    let fence = || {
        let guard = MediumGuard::new(&file);
        guard.words(HERE, 8).unwrap()[0].publish(&guard, 1);
        for _ in 0..8 {
            (0..WORDS).step_by(8).for_each(|word| {
                guard.flush_words(&guard.words(HERE, WORDS).unwrap()[word..=word]);
            });
            guard.fence();
        }
        guard.fence()
    };
    let before = file.durable();
    let mut last = fence();
    while last.0 - before.0 < 32 << 20 {
        last = fence();
    }
    assert_eq!(file.durable(), before, "a fence waited");
    // An operation whose wait is put off is held up there, too.
    let result = MediumGuard::new(&file).keep_up(last);
    result.unwrap();
    let behind = last.0 - file.durable().0;
    assert!(behind < 16 << 20, "{behind} bytes are not durable");
}

#[test]
fn deferred_durability_waits_only_when_asked() {
    let machine = Machine::new(&Image::default());
    let options = FileOptions {
        durability: Durability::OnSync,
        ..options()
    };
    let file = File::open(machine.io(Which::Pool), machine.io(Which::Log), options).unwrap();
    let guard = MediumGuard::new(&file);
    let before = file.durable();
    guard.words(HERE, 8).unwrap()[0].publish(&guard, 5);
    let lsn = guard.fence();
    guard.wait(lsn).unwrap();
    assert_eq!(file.durable(), before);
    file.settle(lsn).unwrap();
    assert!(file.durable() >= lsn);
}

pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Without the seal, damage to data that `sync()` made durable would pass for a torn tail.
#[test]
fn what_was_synced_is_sealed_soon_however_long_nobody_else_syncs() {
    for durability in [
        Durability::Buffered(Duration::from_secs(3600)),
        Durability::OnSync,
    ] {
        let machine = Machine::new(&Image::default());
        let options = FileOptions {
            background: true,
            durability,
            ..options()
        };
        let file = File::open(machine.io(Which::Pool), machine.io(Which::Log), options).unwrap();
        for round in 1..4 {
            file.settle(publish(&file, 0, round)).unwrap();
            wait_until("nobody seals", || file.stat().groups == 2 * round);
        }
    }
}

/// Without the seal, damage to the data would pass for a torn tail until something else is written,
/// if ever. A thread that calls `sync()` may have finished while the thread in the background still
/// wakes up.
#[test]
fn what_is_durable_before_the_background_looks_is_sealed_all_the_same() {
    let machine = Machine::new(&Image::default());
    let file = open(&machine).unwrap();
    let mut syncer = worker::Syncer::new(Arc::clone(&file.core), file.end().0);
    assert_eq!(syncer.timeout(), None, "nothing is to be done");
    let lsn = publish(&file, 0, 1);
    // The thread sees a write that is not durable, and then computes how long it may stay so.
    syncer.turn();
    file.wait(lsn).unwrap();
    for _ in 0..2 {
        assert!(
            syncer.timeout().is_some(),
            "it sleeps, and nothing is sealed"
        );
        syncer.turn();
    }
    assert_eq!((file.stat().groups, syncer.timeout()), (2, None));
}

#[test]
fn zeros_go_ahead_of_the_log() {
    let machine = Machine::new(&Image::default());
    let log_bytes = 8 * SIZES.fill_ahead_bytes;
    let options = FileOptions {
        background: true,
        log_bytes,
        log_bytes_max: log_bytes,
        ..options()
    };
    let file = open_with(&machine, options).unwrap();
    let log = &file.core.log;
    let has_zeros_until = |position| !log.wants_zeros(position);
    assert!(!has_zeros_until(1), "filled before anything is written");
    file.settle(publish(&file, 0, 1)).unwrap();
    assert!(has_zeros_until(log::FILLED_AT_FIRST));
    assert!(
        !has_zeros_until(SIZES.fill_ahead_bytes),
        "a small log costs as much as a large one"
    );
    let mut round = 0;
    while file.end().0 < log_bytes / 2 {
        round += 1;
        let guard = MediumGuard::new(&file);
        let words = guard.words(HERE, WORDS).unwrap();
        (0..WORDS)
            .step_by(8)
            .for_each(|word| words[word].publish(&guard, round));
        guard.drain().unwrap();
    }
    wait_until("nothing is filled ahead", || {
        has_zeros_until(file.end().0 + SIZES.fill_ahead_bytes / 2)
    });
}

/// A call for figures must not wait for a copy of the pool.
#[test]
fn figures_wait_for_no_checkpoint() {
    let machine = Machine::new(&Image::default());
    let file = open(&machine).unwrap();
    let _held_up = file.core.checkpointing.lock();
    assert_eq!(file.stat().checkpoints, 0);
}
