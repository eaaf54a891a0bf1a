//! PMwCAS: its cost, threads in contention, media that become durable late, damaged descriptors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everleaf_engines::pmwcas::{
    BadTarget, Pmwcas, Recycled, Recycling, Seen, VALUE_MASK, WORDS_MAX, is_name,
};
use everleaf_engines::{Error, ErrorKind};
use medium::testing::Late;
use medium::testing::late::Release;
use medium::{Dax, Instrumented, LineForm, Lsn, Word};
use pool::{Guard, Pool, PoolOptions};

const SLOTS: usize = 4;
/// Words under test, each in a line of its own.
const WORDS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(20);

struct Bank {
    pool: Pool<Instrumented>,
    pmwcas: Pmwcas,
    place: u64,
    lines: u64,
}

impl Bank {
    fn new(medium: Instrumented) -> Self {
        let options = PoolOptions {
            close_on_drop: false,
            ..PoolOptions::default()
        };
        Self::with_slots(Pool::open(medium, options).unwrap(), SLOTS)
    }

    fn with_slots(pool: Pool<Instrumented>, slots: usize) -> Self {
        let guard = pool.pin();
        let place = guard.allocate_lines(Pmwcas::bytes(slots)).unwrap();
        Pmwcas::format(&guard, place, slots).unwrap();
        let lines = guard.allocate_lines(64 * WORDS).unwrap();
        let words = guard.words(lines, 8 * WORDS).unwrap();
        words.iter().for_each(|word| word.store(&guard, 0));
        guard.flush_words(words);
        guard.drain().unwrap();
        let pmwcas = Pmwcas::open(&guard, place, slots).unwrap();
        drop(guard);
        Self {
            pool,
            pmwcas,
            place,
            lines,
        }
    }

    /// A word, perhaps in another pool with the same content.
    fn cell<'g>(&self, guard: &'g Guard<'_, Instrumented>, word: usize) -> &'g Word {
        &guard.words(self.lines + 64 * word as u64, 1).unwrap()[0]
    }

    fn swap(&self, words: &[(usize, u64, u64)]) -> bool {
        let guard = self.pool.pin();
        let mut swap = self.pmwcas.allocate();
        for (word, old, new) in words {
            swap.add_word(&guard, self.cell(&guard, *word), *old, *new)
                .unwrap();
        }
        swap.execute(&guard).unwrap()
    }

    fn value(&self, word: usize) -> u64 {
        let guard = self.pool.pin();
        self.pmwcas.read(&guard, self.cell(&guard, word)).unwrap() & VALUE_MASK
    }
}

fn ram() -> Instrumented {
    Instrumented::new(Dax::plain(1 << 20).unwrap())
}

fn late() -> Arc<Late> {
    Arc::new(Late::new(1 << 20, LineForm::Single).unwrap())
}

#[test]
fn three_fences_whatever_the_number_of_words() {
    let bank = Bank::new(ram().counted());
    let fences = |words: &[(usize, u64, u64)], succeeds: bool| {
        let before = bank.pool.medium().counts().unwrap();
        assert_eq!(bank.swap(words), succeeds);
        (bank.pool.medium().counts().unwrap() - before).fences
    };
    for round in 0..20 {
        for count in 1..=WORDS_MAX {
            let up: Vec<_> = (0..count).map(|word| (word, 0, 1 + round)).collect();
            let down: Vec<_> = up
                .iter()
                .map(|(word, old, new)| (*word, *new, *old))
                .collect();
            assert_eq!(fences(&up, true), 3, "{count} words");
            assert_eq!(fences(&down, true), 3, "{count} words");
        }
    }
    // An operation that fails takes the fence of its descriptor, and no more. If it fails at its
    // first word, it leaves nothing to be given back.
    for _ in 0..20 {
        assert_eq!(fences(&[(0, 5, 6), (1, 0, 1)], false), 1);
    }
    assert_eq!(fences(&[(0, 0, 6), (1, 5, 1)], false), 1);
    assert_eq!(bank.value(0), 0);
    assert_eq!(bank.pmwcas.stat().attempts, 20 * 16 + 21);
    assert_eq!(bank.pmwcas.stat().failures, 21);
}

/// A second flush of a line takes as long as another persist.
#[test]
fn words_of_one_line_are_flushed_together() {
    let bank = Bank::new(ram().counted());
    let guard = bank.pool.pin();
    let cells = guard.words(bank.lines, 2).unwrap();
    // Two operations of a kind in a row: the second one flushes what the first one has left.
    let flushed = |count: usize| {
        let swap = |old: u64| {
            let before = bank.pool.medium().counts().unwrap();
            let mut swap = bank.pmwcas.allocate();
            cells[..count]
                .iter()
                .for_each(|cell| swap.add_word(&guard, cell, old, 1 - old).unwrap());
            assert!(swap.execute(&guard).unwrap());
            (bank.pool.medium().counts().unwrap() - before).lines_flushed
        };
        swap(0);
        swap(1)
    };
    let one = flushed(1);
    assert_eq!(flushed(2), one);
}

/// A carried word in the line of a name is flushed with the name; in another line it takes a flush
/// of that line.
#[test]
fn carried_words_are_flushed_once_for_each_line_without_a_name() {
    let bank = Bank::new(ram().counted());
    let guard = bank.pool.pin();
    let cells = guard.words(bank.lines, 16).unwrap();
    let flushed = |old: u64, carried: &[usize]| {
        let before = bank.pool.medium().counts().unwrap();
        let mut swap = bank.pmwcas.allocate();
        swap.add_word(&guard, &cells[0], old, old + 1).unwrap();
        let carried: Vec<(&Word, u64)> = carried.iter().map(|cell| (&cells[*cell], old)).collect();
        let commit = swap.attempt_carrying(&guard, &carried).unwrap();
        commit
            .expect("the word is as expected")
            .wait(&guard)
            .unwrap();
        assert!(
            carried
                .iter()
                .all(|(cell, value)| cell.load(&guard) == *value)
        );
        (bank.pool.medium().counts().unwrap() - before).lines_flushed
    };
    flushed(0, &[]);
    let none = flushed(1, &[]);
    assert_eq!(flushed(2, &[1, 7]), none);
    assert_eq!(flushed(3, &[7, 8, 9]), none + 1);
}

#[test]
fn words_are_named_once_and_in_any_order() {
    let bank = Bank::new(ram());
    let guard = bank.pool.pin();
    let cell = |word| bank.cell(&guard, word);
    let mut swap = bank.pmwcas.allocate();
    for word in (0..WORDS_MAX).rev() {
        swap.add_word(&guard, cell(word), 0, 7).unwrap();
    }
    assert_eq!(
        swap.add_word(&guard, cell(9), 0, 1),
        Err(BadTarget::TooMany)
    );
    assert!(matches!(
        swap.add_word(&guard, cell(3), 0, 1),
        Err(BadTarget::Twice(_))
    ));
    swap.remove_word(&guard, cell(3)).unwrap();
    assert!(matches!(
        swap.remove_word(&guard, cell(3)),
        Err(BadTarget::Unknown(_))
    ));
    assert_eq!(
        swap.add_word(&guard, cell(3), 0, 1 << 61),
        Err(BadTarget::TooWide(1 << 61))
    );
    assert!(swap.execute(&guard).unwrap());
    let values: Vec<u64> = (0..WORDS_MAX).map(|word| bank.value(word)).collect();
    assert_eq!(values, [7, 7, 7, 0, 7, 7, 7, 7]);
}

#[test]
fn memory_is_recycled_as_the_policy_says() {
    let bank = Bank::new(ram());
    let guard = bank.pool.pin();
    let cell = bank.cell(&guard, 0);
    let other = bank.cell(&guard, 1);
    let before = bank.pool.stat().allocations;
    let reserve = |expected, other_expected| {
        let mut swap = bank.pmwcas.allocate();
        swap.reserve_entry(&guard, cell, expected, Recycling::FreeOne)
            .unwrap();
        swap.add_word(&guard, other, other_expected, other_expected)
            .unwrap();
        let memory = guard.allocate(100).unwrap();
        swap.fill_entry(&guard, cell, memory).unwrap();
        (swap, memory)
    };
    // An empty word leads to nothing, so the callback must not take its value for an offset.
    let (swap, first) = reserve(0, 0);
    let mut seen = Vec::new();
    assert!(
        swap.execute_with(&guard, |recycled| seen.push(recycled))
            .unwrap()
    );
    assert_eq!(seen, [Recycled::Replaced(0)]);
    // A failure and a discard free the new memory, a success retires the old.
    assert!(!reserve(first, 5).0.execute(&guard).unwrap());
    reserve(first, 0).0.discard(&guard);
    assert_eq!(bank.pool.stat().allocations, before + 1);
    let (swap, second) = reserve(first, 0);
    assert!(swap.execute(&guard).unwrap());
    assert_eq!(bank.value(0), second);
    drop(guard);
    bank.pool.reclaim();
    assert_eq!(bank.pool.stat().allocations, before + 1);
    assert_eq!(bank.pool.stat().frees_refused, 0);
    // An empty word leads to nothing, so there is nothing to retire.
    let guard = bank.pool.pin();
    let mut swap = bank.pmwcas.allocate();
    let memory = guard.allocate(100).unwrap();
    swap.add_recycling(&guard, bank.cell(&guard, 2), 0, memory, Recycling::FreeOne)
        .unwrap();
    assert!(swap.execute(&guard).unwrap());
    let mut swap = bank.pmwcas.allocate();
    swap.add_recycling(&guard, bank.cell(&guard, 2), 5, 0, Recycling::FreeOne)
        .unwrap();
    assert!(!swap.execute(&guard).unwrap());
    drop(guard);
    bank.pool.reclaim();
    assert_eq!(bank.pool.stat().frees_refused, 0);
    // A discard tells its callback as a failure does.
    let guard = bank.pool.pin();
    let mut swap = bank.pmwcas.allocate();
    swap.add_recycling(&guard, bank.cell(&guard, 2), 0, 48, Recycling::FreeOne)
        .unwrap();
    let mut seen = Vec::new();
    swap.discard_with(|recycled| seen.push(recycled));
    assert_eq!(seen, [Recycled::Unused(48)]);
    // An entry that was never filled is refused.
    let guard = bank.pool.pin();
    let mut swap = bank.pmwcas.allocate();
    swap.reserve_entry(&guard, bank.cell(&guard, 0), second, Recycling::FreeOne)
        .unwrap();
    assert!(swap.execute(&guard).is_err());
}

/// The descriptor of such an operation would say that it succeeded with no words, which every open
/// refuses.
#[test]
fn an_operation_without_words_leaves_nothing_that_no_open_takes() {
    let bank = Bank::new(ram());
    let guard = bank.pool.pin();
    let mut emptied = bank.pmwcas.allocate();
    emptied
        .add_word(&guard, bank.cell(&guard, 0), 0, 1)
        .unwrap();
    emptied.remove_word(&guard, bank.cell(&guard, 0)).unwrap();
    for operation in [bank.pmwcas.allocate(), emptied] {
        let refused = operation.execute(&guard).unwrap_err().to_string();
        assert!(
            refused.contains("without words") && !refused.contains("damaged"),
            "{refused}"
        );
    }
    assert!(Pmwcas::open(&guard, bank.place, SLOTS).is_ok());
}

/// A word whose two values are equal keeps the memory that it leads to, whether or not the
/// operation succeeds.
#[test]
fn memory_that_stays_where_it_is_is_not_recycled() {
    let bank = Bank::new(ram());
    let guard = bank.pool.pin();
    let memory = guard.allocate(100).unwrap();
    bank.cell(&guard, 0).store(&guard, memory);
    let named = |other_expected| {
        let mut swap = bank.pmwcas.allocate();
        swap.add_recycling(
            &guard,
            bank.cell(&guard, 0),
            memory,
            memory,
            Recycling::FreeOne,
        )
        .unwrap();
        swap.add_word(&guard, bank.cell(&guard, 1), other_expected, other_expected)
            .unwrap();
        swap
    };
    let before = bank.pool.stat().allocations;
    let mut seen = Vec::new();
    assert!(
        named(0)
            .execute_with(&guard, |recycled| seen.push(recycled))
            .unwrap()
    );
    assert!(
        !named(5)
            .execute_with(&guard, |recycled| seen.push(recycled))
            .unwrap()
    );
    named(0).discard_with(|recycled| seen.push(recycled));
    assert_eq!(seen, []);
    assert!(!named(5).execute(&guard).unwrap());
    named(0).discard(&guard);
    assert!(named(0).execute(&guard).unwrap());
    drop(guard);
    bank.pool.reclaim();
    assert_eq!(
        (bank.pool.stat().allocations, bank.pool.stat().frees_refused),
        (before, 0)
    );
}

/// A caller that names words wrongly gets an error that says so, and not that the pool is damaged.
#[test]
fn a_word_that_cannot_be_named_is_no_damage() {
    let bank = Bank::new(ram());
    let guard = bank.pool.pin();
    let nine = || -> Result<(), Error> {
        let mut swap = bank.pmwcas.allocate();
        for word in 0..=WORDS_MAX {
            swap.add_word(&guard, bank.cell(&guard, word), 0, 1)?;
        }
        Ok(())
    };
    let unfilled = || -> Result<(), Error> {
        let mut swap = bank.pmwcas.allocate();
        swap.reserve_entry(&guard, bank.cell(&guard, 0), 0, Recycling::FreeOne)?;
        swap.execute(&guard).map(drop)
    };
    for (refused, what) in [
        (nine().unwrap_err(), "at most 8 words"),
        (unfilled().unwrap_err(), "never filled"),
    ] {
        assert!(
            !matches!(refused.kind(), ErrorKind::Corrupt { .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains(what), "{refused}");
    }
}

const ACCOUNTS: usize = 5;
const MONEY: u64 = 1_000;

/// Threads move money between accounts: the sum never changes, and readers never see a word that is
/// no account.
fn transfers(bank: &Bank, threads: u64, moves: u64) {
    give_money(bank);
    move_money(bank, threads, moves);
}

fn give_money(bank: &Bank) {
    assert!(
        bank.swap(
            &(0..ACCOUNTS)
                .map(|word| (word, 0, MONEY))
                .collect::<Vec<_>>()
        )
    );
}

fn move_money(bank: &Bank, threads: u64, moves: u64) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut state = thread + 1;
                let mut below = |bound: u64| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) % bound
                };
                let mut done = 0;
                while done < moves {
                    let from = below(ACCOUNTS as u64) as usize;
                    let count = 2 + below(3) as usize;
                    let words: Vec<usize> =
                        (0..count).map(|step| (from + step) % ACCOUNTS).collect();
                    let values: Vec<u64> = words.iter().map(|word| bank.value(*word)).collect();
                    assert!(values.iter().all(|value| *value <= MONEY * ACCOUNTS as u64));
                    let given = below(20).min(values[0]);
                    let mut new = values.clone();
                    new[0] -= given;
                    new[1] += given;
                    let swap: Vec<_> = (0..count)
                        .map(|at| (words[at], values[at], new[at]))
                        .collect();
                    done += u64::from(bank.swap(&swap));
                }
            });
        }
    });
    let sum: u64 = (0..ACCOUNTS).map(|word| bank.value(word)).sum();
    assert_eq!(sum, MONEY * ACCOUNTS as u64);
}

#[test]
fn threads_that_meet_help_each_other() {
    // More threads than slots, too.
    let bank = Bank::new(ram());
    transfers(&bank, 6, 30_000);
    let stat = bank.pmwcas.stat();
    assert!(stat.attempts - stat.failures == 6 * 30_000 + 1);
}

/// One thread stops: before its names are in the words, behind that, and once it is decided.
#[test]
fn a_thread_that_meets_an_operation_ends_it() {
    for (fence, helps) in [(0, 0), (1, 1), (2, 1)] {
        let late = late();
        let bank = Bank::new(Instrumented::sharing(&late));
        late.hold_fence(fence);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| bank.swap(&[(0, 0, 7), (1, 0, 8)]));
            assert!(late.until_held(PATIENCE));
            let old = if helps == 1 { 8 } else { 0 };
            assert!(
                bank.swap(&[(1, old, 9), (2, 0, 1)]),
                "stopped at fence {fence}"
            );
            assert!(!first.is_finished());
            late.let_go();
            assert_eq!(first.join().unwrap(), helps == 1);
        });
        assert_eq!(bank.pmwcas.stat().helps, helps);
        assert_eq!(
            [0, 1, 2].map(|word| bank.value(word)),
            [if helps == 1 { 7 } else { 0 }, 9, 1]
        );
    }
}

/// The accounts that a crash leaves.
fn recovered(bank: &Bank, image: &medium::testing::late::LateImage) -> Vec<u64> {
    let crashed = Instrumented::new(Late::from_image(image, 1 << 20, LineForm::Single).unwrap());
    let pool = Pool::open(
        crashed,
        PoolOptions {
            close_on_drop: false,
            ..PoolOptions::default()
        },
    )
    .unwrap();
    let pmwcas = Pmwcas::open(&pool.pin(), bank.place, SLOTS).unwrap();
    let guard = pool.pin();
    let raw = |word| bank.cell(&guard, word).load(&guard);
    assert!(
        (0..ACCOUNTS).all(|word| !is_name(raw(word))),
        "a name that recovery left"
    );
    (0..ACCOUNTS)
        .map(|word| pmwcas.read(&guard, bank.cell(&guard, word)).unwrap() & VALUE_MASK)
        .collect()
}

#[test]
fn sums_survive_a_crash_of_a_late_medium() {
    let late = late();
    let bank = Bank::new(Instrumented::sharing(&late));
    late.set_release(Release::After {
        fences: 7,
        delay: Duration::from_micros(5),
    });
    // The crash comes in the middle of the work, with more or fewer groups durable. The worker goes
    // on until there are enough.
    let mut images = Vec::new();
    let is_enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            give_money(&bank);
            while !is_enough.load(Ordering::Relaxed) {
                move_money(&bank, 3, 50);
            }
        });
        let mut last = late.fenced();
        while images.len() < 150 {
            let fenced = late.fenced();
            if std::mem::replace(&mut last, fenced) == fenced {
                std::thread::yield_now();
                continue;
            }
            images.extend([
                late.durable_image(),
                late.image(Lsn(fenced.0.saturating_sub(3))),
                late.image(fenced),
            ]);
            std::thread::sleep(Duration::from_micros(200));
        }
        is_enough.store(true, Ordering::Relaxed);
    });
    let mut seen = std::collections::BTreeSet::new();
    for image in &images {
        let accounts = recovered(&bank, image);
        let sum: u64 = accounts.iter().sum();
        // Before the first deposit all accounts are empty.
        assert!([0, MONEY * ACCOUNTS as u64].contains(&sum), "{accounts:?}");
        seen.insert(accounts);
    }
    println!("{} images, {} of them different", images.len(), seen.len());
    assert!(seen.len() > 2);
    // Everything was acknowledged, so a crash now keeps it all.
    let acknowledged: Vec<u64> = (0..ACCOUNTS).map(|word| bank.value(word)).collect();
    assert_eq!(recovered(&bank, &late.durable_image()), acknowledged);
}

#[test]
fn a_reader_waits_for_what_a_crash_could_take_back() {
    let late = late();
    let bank = Bank::new(Instrumented::sharing(&late));
    late.set_release(Release::Manual);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(bank.swap(&[(0, 0, 7), (1, 0, 8)])));
        assert!(late.until_waiting(1, PATIENCE));
        // The value is visible, but dirty: a thread that returns an answer based on it waits first.
        let guard = bank.pool.pin();
        let raw = bank.pmwcas.read(&guard, bank.cell(&guard, 0)).unwrap();
        assert_eq!((raw & VALUE_MASK, raw == 7), (7, false));
        let reader = scope.spawn(|| {
            let guard = bank.pool.pin();
            let mut seen = Seen::default();
            assert_eq!(
                bank.pmwcas
                    .observe(&guard, bank.cell(&guard, 0), &mut seen)
                    .unwrap(),
                7
            );
            bank.pmwcas.settle(&guard, &seen).unwrap();
        });
        assert!(late.until_waiting(2, PATIENCE) && !reader.is_finished());
        // An operation that only expects the value gets as far as its own wait.
        scope.spawn(|| assert!(bank.swap(&[(0, 7, 9)])));
        assert!(late.until_waiting(3, PATIENCE));
        late.release_all();
    });
    let guard = bank.pool.pin();
    let mut seen = Seen::default();
    let observed = bank.pmwcas.observe(&guard, bank.cell(&guard, 0), &mut seen);
    assert_eq!(observed.unwrap(), 9);
    assert_eq!(seen.lsn(), Lsn::DURABLE, "there is nothing to wait for");
    assert_eq!(
        bank.pmwcas.read(&guard, bank.cell(&guard, 0)).unwrap(),
        9,
        "clean, once a reader has found it durable"
    );
}

/// If the words stayed dirty, every reader would wait without need.
#[test]
fn a_failure_leaves_its_words_as_clean_as_they_were() {
    let bank = Bank::new(Instrumented::sharing(&late()));
    assert!(!bank.swap(&[(0, 0, 1), (1, 5, 6)]));
    let guard = bank.pool.pin();
    assert_eq!(bank.cell(&guard, 0).load(&guard), 0);
}

/// If a descriptor is left, its words may be cut off with the file's free tail. Then the pool would
/// not open any more.
#[test]
fn a_pool_is_closed_without_operations_whatever_became_of_them() {
    let bank = Bank::new(Instrumented::new(Dax::plain(1 << 30).unwrap()));
    assert!(bank.swap(&[(0, 0, 1), (1, 0, 1)]));
    assert!(!bank.swap(&[(0, 1, 2), (1, 0, 2)]));
    assert!(!bank.swap(&[(0, 0, 3), (1, 1, 3)]));
    let guard = bank.pool.pin();
    bank.pmwcas.finish(&guard).unwrap();
    for descriptor in guard
        .words(bank.place, Pmwcas::bytes(SLOTS) / 8)
        .unwrap()
        .chunks(32)
    {
        assert_eq!(
            descriptor[0].load(&guard) & 3,
            0,
            "a descriptor that is not free"
        );
    }
}

#[test]
fn damaged_descriptors_are_refused_by_name() {
    let bank = Bank::new(ram());
    assert!(bank.swap(&[(0, 0, 1), (1, 0, 1), (2, 0, 1)]));
    // The thread's descriptor is decided and not given back yet: one of them stands for three
    // words.
    let guard = bank.pool.pin();
    let words = guard.words(bank.place, Pmwcas::bytes(SLOTS) / 8).unwrap();
    let used = (0..2 * SLOTS)
        .find(|index| words[32 * index + 2].load(&guard) != 0)
        .unwrap();
    let refusal = |word: usize, value: u64| {
        let cell = &words[32 * used + word];
        let before = cell.load(&guard);
        cell.store(&guard, value);
        let outcome = Pmwcas::open(&guard, bank.place, SLOTS);
        cell.store(&guard, before);
        outcome
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let name = format!("PMwCAS descriptor {used}: ");
    for bit in 0..64 {
        let status = words[32 * used].load(&guard) ^ 1 << bit;
        assert!(
            refusal(0, status).contains(&(name.clone() + "the status fails its check")),
            "bit {bit}"
        );
        // An offset outside of the pool, a word that is named twice, a value that is too wide: the
        // check notices each before the words are read.
        for word in 1..11 {
            let damaged = words[32 * used + word].load(&guard) ^ 1 << bit;
            assert!(
                refusal(word, damaged).contains(&name),
                "word {word}, bit {bit}"
            );
        }
    }
    assert!(Pmwcas::open(&guard, bank.place, SLOTS).is_ok());
    assert!(Pmwcas::open(&guard, bank.place, 0).is_err());
    assert!(Pmwcas::open(&guard, bank.place, 1_000).is_err());
    // A word that names a descriptor which does not name it is an error, not a loop.
    for raw in [1 << 63, 1 << 62, 1 << 63 | 1 << 26, 1 << 63 | 0x3e8] {
        bank.cell(&guard, 5).store(&guard, raw);
        assert!(matches!(
            bank.pmwcas.read(&guard, bank.cell(&guard, 5)), Err(error) if error.is_corrupt()));
    }
}

/// The only slot is taken by a thread that stopped after it had put its name into the words.
#[test]
fn a_reader_needs_no_slot() {
    for (fence, names) in [(0, false), (1, true), (2, true)] {
        let late = late();
        let pool = Pool::open(Instrumented::sharing(&late), PoolOptions::default());
        let bank = Bank::with_slots(pool.unwrap(), 1);
        late.hold_fence(fence);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(bank.swap(&[(0, 0, 7), (1, 0, 8)])));
            assert!(late.until_held(PATIENCE));
            let guard = bank.pool.pin();
            assert_eq!(bank.cell(&guard, 0).load(&guard) >> 62 != 0, names);
            let reader = scope.spawn(|| (bank.value(0), bank.value(1)));
            let deadline = std::time::Instant::now() + PATIENCE;
            while !reader.is_finished() && std::time::Instant::now() < deadline {
                std::thread::yield_now();
            }
            let is_done = reader.is_finished();
            late.let_go();
            assert!(
                is_done,
                "a reader that waits for one that stopped at its fence {fence}"
            );
            // The operation is decided only at the last fence.
            assert_eq!(
                reader.join().unwrap(),
                if fence == 2 { (7, 8) } else { (0, 0) }
            );
        });
        assert_eq!((bank.value(0), bank.value(1)), (7, 8));
    }
}
