//! On random programs the lazy explorer finds the same as a plain enumeration of all images.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use everleaf_sim::{
    Complaint, ExplorationOptions, Explorer, Images, Rules, SecondCrash, Stats, Subject,
};
use medium::sim::Sim;
use medium::{Line, LineForm, LineValue, Medium, MediumGuard};

/// Words of four lines; word 0 of line 1 leads the reader on.
const LINES: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    Store {
        line: u64,
        word: u64,
        value: u64,
    },
    StoreLine {
        line: u64,
        value: u64,
    },
    Flush {
        line: u64,
    },
    Fence,
    /// Waits for all fences up to here.
    Wait,
}

/// Runs a program and reads some of the memory: the words that it reads depend on the values found.
/// Every state is acceptable; the observations are kept.
struct Program {
    seen: Rc<RefCell<BTreeSet<Vec<u64>>>>,
    /// Whether opening stores a value, which depends on the values that it finds.
    repairs: bool,
}

fn word(guard: &MediumGuard<'_, Sim>, line: u64, word: u64) -> Result<u64, Complaint> {
    let words = guard
        .words(64 * line + 8 * word, 1)
        .map_err(|bad| bad.to_string())?;
    Ok(words[0].load(guard))
}

impl Subject for Program {
    type Operation = Operation;
    type Outcome = ();
    type State = ();
    type Instance = (Sim, u64);

    fn initial(&self) {}

    fn step(&self, _state: &mut (), _operation: &Operation) {}

    fn open(&self, sim: &Sim) -> Result<(Sim, u64), Complaint> {
        sim.grow(64 * (LINES + 1))
            .map_err(|error| error.to_string())?;
        let guard = MediumGuard::new(sim);
        let first = word(&guard, 1, 0)?;
        if self.repairs && first > 0 {
            for (line, value) in [(first, first + 3), (4, word(&guard, 2, 1)? + 5)] {
                let words = guard.words(64 * line, 3).map_err(|bad| bad.to_string())?;
                words[2].store(&guard, value);
                words[1].store(&guard, value + 1);
                guard.flush_words(words);
                guard.fence();
            }
        }
        Ok((sim.clone(), 0))
    }

    fn apply(&self, opened: &mut (Sim, u64), operation: &Operation) -> Result<(), Complaint> {
        let sim = &opened.0;
        if *operation == Operation::Wait {
            return MediumGuard::new(sim)
                .drain()
                .map_err(|error| error.to_string());
        }
        // One guard for each operation would leave nothing to fence.
        thread_local!(static GUARD: RefCell<Vec<Operation>> = const { RefCell::new(Vec::new()) });
        let fenced = GUARD.with(|waiting| {
            waiting.borrow_mut().push(*operation);
            (*operation == Operation::Fence).then(|| waiting.take())
        });
        let guard = MediumGuard::new(sim);
        for operation in fenced.unwrap_or_default() {
            match operation {
                Operation::Store { line, word, value } => {
                    let words = guard
                        .words(64 * line + 8 * word, 1)
                        .map_err(|bad| bad.to_string())?;
                    words[0].store(&guard, value);
                }
                Operation::StoreLine { line, value } => {
                    let line: &Line = guard.node(64 * line).map_err(|bad| bad.to_string())?;
                    line.publish(&guard, &LineValue::ZERO, &LineValue([value; 8]))
                        .map_err(|error| error.to_string())?;
                }
                Operation::Flush { line } => {
                    guard.flush_words(guard.words(64 * line, 8).map_err(|bad| bad.to_string())?);
                }
                Operation::Fence => drop(guard.fence()),
                Operation::Wait => unreachable!("done at once"),
            }
        }
        Ok(())
    }

    fn observe(&self, opened: &mut (Sim, u64)) -> Result<(), Complaint> {
        let sim = &opened.0;
        let guard = MediumGuard::new(sim);
        let mut seen = Vec::new();
        let mut line = 1;
        for _ in 0..3 {
            let first = word(&guard, line, 0)?;
            seen.extend([line, first, word(&guard, line, first % 3)?]);
            line = first % LINES + 1;
        }
        self.seen.borrow_mut().insert(seen);
        Ok(())
    }
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

fn program(seed: u64, count: usize) -> Vec<Operation> {
    let mut state = seed;
    // The lines stored since the last fence: a line that is stored as a whole gets no other store.
    let mut in_words = BTreeSet::new();
    let mut whole = BTreeSet::new();
    let operation = |_| {
        let kind = random(&mut state, 11);
        let line = random(&mut state, LINES) + 1;
        let word = random(&mut state, 3);
        let value = random(&mut state, 4);
        if kind == 9 {
            in_words.clear();
            whole.clear();
        }
        match kind {
            0..6 if !whole.contains(&line) => {
                in_words.insert(line);
                Operation::Store { line, word, value }
            }
            6 if !in_words.contains(&line) && whole.insert(line) => {
                Operation::StoreLine { line, value }
            }
            0..7 => Operation::Flush { line },
            7 | 8 => Operation::Flush { line },
            9 => Operation::Fence,
            _ => Operation::Wait,
        }
    };
    (0..count)
        .map(operation)
        .chain([Operation::Fence])
        .collect()
}

fn explore(operations: &[Operation], rules: Rules, images: Images) -> (BTreeSet<Vec<u64>>, Stats) {
    let second_crash = SecondCrash::Never;
    explore_by(
        operations,
        false,
        ExplorationOptions {
            rules,
            images,
            second_crash,
            ..ExplorationOptions::default()
        },
    )
}

fn explore_by(
    operations: &[Operation],
    repairs: bool,
    options: ExplorationOptions,
) -> (BTreeSet<Vec<u64>>, Stats) {
    let options = ExplorationOptions {
        line_form: LineForm::Single,
        limit_bytes: 4096,
        ..options
    };
    let seen = Rc::new(RefCell::new(BTreeSet::new()));
    let mut explorer = Explorer::new(
        Program {
            seen: Rc::clone(&seen),
            repairs,
        },
        options,
    )
    .unwrap();
    explorer.explore(operations).unwrap();
    (seen.take(), explorer.stats())
}

#[test]
fn the_lazy_explorer_sees_what_all_images_show() {
    let mut lazy_runs = 0;
    let mut eager_runs = 0;
    let mut outcomes = 0;
    for seed in 0..600 {
        let operations = program(seed, 14);
        let (lazy, lazy_stats) = explore(&operations, Rules::Lines, Images::All);
        let (eager, eager_stats) = explore(&operations, Rules::Lines, Images::Eager);
        assert_eq!(lazy, eager, "seed {seed}: {operations:?}");
        assert!(
            (eager_stats.recoveries as f64 - lazy_stats.images).abs() < 0.5,
            "seed {seed}"
        );
        let (some, _) = explore(&operations, Rules::Lines, Images::Some { random: 3 });
        assert!(some.is_subset(&lazy), "seed {seed}: {operations:?}");
        lazy_runs += lazy_stats.recoveries;
        eager_runs += eager_stats.recoveries;
        outcomes += lazy.len();
    }
    println!("{outcomes} outcomes in {lazy_runs} lazy and {eager_runs} eager recoveries");
    assert!(lazy_runs * 2 < eager_runs && outcomes > 1000);
}

#[test]
fn in_a_log_as_well_and_it_leaves_nothing_that_lines_do_not() {
    let mut outcomes = 0;
    let mut of_lines = 0;
    let mut images = 0.0;
    for seed in 0..600 {
        let operations = program(seed, 24);
        let (lazy, lazy_stats) = explore(&operations, Rules::Log, Images::All);
        let (eager, _) = explore(&operations, Rules::Log, Images::Eager);
        assert_eq!(lazy, eager, "seed {seed}: {operations:?}");
        let (some, _) = explore(&operations, Rules::Log, Images::Some { random: 3 });
        assert!(some.is_subset(&lazy), "seed {seed}: {operations:?}");
        let (lines, _) = explore(&operations, Rules::Lines, Images::All);
        assert!(lazy.is_subset(&lines), "seed {seed}: {operations:?}");
        outcomes += lazy.len();
        of_lines += lines.len();
        images += lazy_stats.images;
    }
    println!("{outcomes} outcomes of {images} images; {of_lines} outcomes with lines");
    assert!(outcomes > 1000 && of_lines > outcomes);
}

#[test]
fn second_crashes_show_what_all_images_of_both_show() {
    for rules in [Rules::Lines, Rules::Log] {
        let mut lazy_runs = 0;
        let mut eager_runs = 0;
        let mut outcomes = 0;
        let mut more = 0;
        for seed in 0..6_000 {
            let operations = program(seed, 14);
            let of = |images, second_crash| {
                let options = ExplorationOptions {
                    rules,
                    images,
                    second_crash,
                    ..ExplorationOptions::default()
                };
                explore_by(&operations, true, options)
            };
            let (lazy, lazy_stats) = of(Images::All, SecondCrash::InRecovery);
            let (eager, eager_stats) = of(Images::Eager, SecondCrash::InRecovery);
            assert_eq!(lazy, eager, "{rules:?}, seed {seed}: {operations:?}");
            lazy_runs += lazy_stats.recoveries;
            eager_runs += eager_stats.recoveries;
            outcomes += lazy.len();
            more += lazy.len() - of(Images::All, SecondCrash::Never).0.len();
        }
        println!(
            "{rules:?}: {outcomes} outcomes, {more} of them by a second crash, in {lazy_runs} lazy and {eager_runs} eager recoveries"
        );
        assert!(lazy_runs < eager_runs && more > 5);
    }
}

#[test]
fn no_crash_point_is_left_out_that_leaves_something_new() {
    for rules in [Rules::Lines, Rules::Log, Rules::PersistentCaches] {
        for second_crash in [SecondCrash::Never, SecondCrash::InRecovery] {
            let mut points = 0;
            let mut all_points = 0;
            for seed in 0..60 {
                let operations = program(seed, 14);
                let of = |reduced| {
                    let options = ExplorationOptions {
                        rules,
                        second_crash,
                        reduced,
                        ..ExplorationOptions::default()
                    };
                    let repairs = second_crash != SecondCrash::Never;
                    explore_by(&operations, repairs, options)
                };
                let (outcomes, stats) = of(true);
                let (all_outcomes, all_stats) = of(false);
                assert_eq!(
                    outcomes, all_outcomes,
                    "{rules:?}, {second_crash:?}, seed {seed}: {operations:?}"
                );
                points += stats.points;
                all_points += all_stats.points;
            }
            println!("{rules:?}, {second_crash:?}: {points} of {all_points} crash points");
            assert!(2 * points < all_points || rules == Rules::PersistentCaches);
        }
    }
}

/// Crash points that were explored with other options do not count as known.
#[test]
fn more_is_tried_when_the_options_ask_for_more() {
    for seed in 0..60 {
        let operations = program(seed, 14);
        let seen = Rc::new(RefCell::new(BTreeSet::new()));
        let program = Program {
            seen: Rc::clone(&seen),
            repairs: false,
        };
        let images = Images::Some { random: 0 };
        let second_crash = SecondCrash::Never;
        let few = ExplorationOptions {
            images,
            second_crash,
            limit_bytes: 4096,
            ..ExplorationOptions::default()
        };
        let mut explorer = Explorer::new(program, few).unwrap();
        explorer.explore(&operations).unwrap();
        explorer.options_mut().images = Images::All;
        explorer.explore(&operations).unwrap();
        assert_eq!(
            seen.take(),
            explore(&operations, Rules::Lines, Images::All).0,
            "seed {seed}"
        );
    }
}
