//! The reductions of the search of all schedules lose nothing: on random programs it shows the same
//! outcomes as a search that stops threads before each access and tries everything, and it finds
//! the same flaws.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use everleaf_sim::{
    Complaint, Concurrent, ExplorationOptions, Explorer, Images, Program, Rules, Scheduling,
    Search, SecondCrash, Stats, Subject,
};
use medium::sim::Sim;
use medium::sync::Mutex;
use medium::{Medium, MediumGuard};

use crate::common::{setting, text};

/// Registers, two in each line.
const REGISTERS: u64 = 4;

/// Where a register lies.
fn offset(register: u64) -> u64 {
    64 + register / 2 * 64 + register % 2 * 8
}

fn below(state: &mut u64, bound: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

/// Threads, two or three, of one to two operations each.
fn threads<O: Clone>(state: &mut u64, mut operation: impl FnMut(&mut u64) -> O) -> Program<O> {
    let lengths: &[usize] = match below(state, 5) {
        0 => &[1, 1, 1],
        1 => &[1, 1],
        2 => &[2, 1],
        3 => &[1, 2],
        _ => &[2, 2],
    };
    Program::of(
        lengths
            .iter()
            .map(|length| (0..*length).map(|_| operation(state)).collect())
            .collect(),
    )
}

/// The seed.
fn start(seed: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// One step of an operation. An operation has one local value, at first 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    /// Combines the local value with the register's.
    Load(u64),
    /// Stores the local value plus one.
    Store(u64),
    /// Stores the local value plus one if the register has the local value; otherwise the local
    /// value becomes the register's.
    Exchange(u64),
    Flush(u64),
    Fence,
    Wait,
    /// Takes the one lock, until the operation ends.
    Lock,
    /// Skips the next step if the local value is even.
    Skip,
}

/// The outcomes of explorations of a program.
#[derive(Default, PartialEq, Eq, Debug)]
struct Shown {
    /// The final local values of the operations of whole runs.
    outcomes: BTreeSet<BTreeMap<u64, u64>>,
    /// The states found, after crashes and without.
    registers: BTreeSet<Vec<u64>>,
}

/// Executes steps. Every outcome is right; the outcomes are kept.
#[derive(Default)]
struct Steps {
    shown: Rc<RefCell<Shown>>,
    /// The final local values of the run's operations, by number.
    returned: RefCell<BTreeMap<u64, u64>>,
}

/// The number of an operation, and its steps.
type Numbered = (u64, Vec<Step>);

/// Registers, and a lock.
struct Opened {
    sim: Sim,
    lock: Mutex<()>,
}

impl Opened {
    fn new(sim: &Sim) -> Result<Self, Complaint> {
        sim.grow(256).map_err(text)?;
        Ok(Self {
            sim: sim.clone(),
            lock: Mutex::new(()),
        })
    }

    fn registers(&self) -> Result<Vec<u64>, Complaint> {
        let guard = MediumGuard::new(&self.sim);
        let load = |register| Ok(guard.words(offset(register), 1).map_err(text)?[0].load(&guard));
        (0..REGISTERS).map(load).collect()
    }
}

impl Subject for Steps {
    type Operation = Numbered;
    type Outcome = ();
    type State = ();
    type Instance = Opened;

    fn initial(&self) {}

    fn step(&self, _state: &mut (), _operation: &Numbered) {}

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        self.returned.borrow_mut().clear();
        Opened::new(sim)
    }

    fn apply(&self, opened: &mut Opened, operation: &Numbered) -> Result<(), Complaint> {
        self.call(opened, operation)
    }

    fn observe(&self, opened: &mut Opened) -> Result<(), Complaint> {
        self.shown
            .borrow_mut()
            .registers
            .insert(opened.registers()?);
        Ok(())
    }
}

impl Concurrent for Steps {
    fn call(&self, Opened { sim, lock }: &Opened, operation: &Numbered) -> Result<(), Complaint> {
        let (number, steps) = operation;
        let guard = MediumGuard::new(sim);
        let mut locked = None;
        let word = |register| &guard.words(offset(register), 1).expect("a register")[0];
        let mut value = 0_u64;
        let mut is_skipped = false;
        for step in steps {
            if std::mem::take(&mut is_skipped) {
                continue;
            }
            match *step {
                Step::Load(register) => {
                    value = value
                        .wrapping_mul(5)
                        .wrapping_add(word(register).load(&guard));
                }
                Step::Store(register) => word(register).store(&guard, value + 1),
                Step::Exchange(register) => {
                    value = word(register)
                        .compare_exchange(&guard, value, value + 1)
                        .unwrap_or_else(|found| found);
                }
                Step::Flush(register) => guard.flush(word(register)),
                Step::Fence => drop(guard.fence()),
                Step::Wait => guard.drain().map_err(text)?,
                Step::Lock if locked.is_none() => {
                    guard.interleave(lock);
                    locked = Some(lock.lock());
                }
                Step::Lock => {}
                Step::Skip => is_skipped = value.is_multiple_of(2),
            }
        }
        self.returned.borrow_mut().insert(*number, value);
        Ok(())
    }

    fn parts(
        &self,
        _start: &(),
        calls: &[(Numbered, Option<()>)],
    ) -> Vec<Vec<(u64, Numbered, Option<()>)>> {
        if calls.iter().all(|call| call.1.is_some()) {
            self.shown
                .borrow_mut()
                .outcomes
                .insert(self.returned.borrow().clone());
        }
        calls
            .iter()
            .map(|(operation, outcome)| vec![(0, operation.clone(), *outcome)])
            .collect()
    }
}

fn steps(seed: u64) -> Program<Numbered> {
    let mut numbers = 0..;
    let state = &mut start(seed);
    let registers = 2 + below(state, REGISTERS - 1);
    threads(state, |state| {
        let step = |_| {
            let register = below(state, registers);
            match below(state, 13) {
                0 | 1 => Step::Load(register),
                2..5 => Step::Store(register),
                5 => Step::Exchange(register),
                6 | 7 => Step::Flush(register),
                8 | 9 => Step::Fence,
                10 => Step::Wait,
                11 => Step::Lock,
                _ => Step::Skip,
            }
        };
        (
            numbers.next().expect("a number"),
            (0..5).map(step).collect(),
        )
    })
}

/// How far an operation makes its store durable before it returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Care {
    None,
    Flush,
    Fence,
    Drain,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    /// Counts up; not atomically, a load and a store.
    Add { atomic: bool },
    /// Reads; makes the value durable, or does not.
    Get,
    /// Adds the value of another counter to one.
    Collect { from: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Operation {
    register: u64,
    kind: Kind,
    care: Care,
    /// Under the one lock.
    locked: bool,
}

/// Counters, some operations on which are wrong.
struct Counters;

impl Subject for Counters {
    type Operation = Operation;
    type Outcome = u64;
    type State = Vec<u64>;
    type Instance = Opened;

    fn initial(&self) -> Vec<u64> {
        vec![0; REGISTERS as usize]
    }

    fn step(&self, state: &mut Vec<u64>, operation: &Operation) -> u64 {
        let before = state[operation.register as usize];
        let more = match operation.kind {
            Kind::Add { .. } => 1,
            Kind::Get => 0,
            Kind::Collect { from } => state[from as usize],
        };
        state[operation.register as usize] += more;
        before
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        Opened::new(sim)
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<u64, Complaint> {
        self.call(opened, operation)
    }

    fn observe(&self, opened: &mut Opened) -> Result<Vec<u64>, Complaint> {
        opened.registers()
    }
}

impl Concurrent for Counters {
    fn call(&self, opened: &Opened, operation: &Operation) -> Result<u64, Complaint> {
        let guard = MediumGuard::new(&opened.sim);
        guard.interleave(&opened.lock);
        let _locked = operation.locked.then(|| opened.lock.lock());
        let word = &guard.words(offset(operation.register), 1).map_err(text)?[0];
        let mut value = word.load(&guard);
        match operation.kind {
            Kind::Add { atomic: false } => word.store(&guard, value + 1),
            Kind::Add { atomic: true } => {
                while let Err(found) = word.compare_exchange(&guard, value, value + 1) {
                    value = found;
                }
            }
            Kind::Get => {}
            Kind::Collect { from } => {
                let more = guard.words(offset(from), 1).map_err(text)?[0].load(&guard);
                word.store(&guard, value + more);
            }
        }
        if operation.care >= Care::Flush {
            guard.flush(word);
        }
        match operation.care {
            Care::Drain => guard.drain().map_err(text)?,
            Care::Fence => drop(guard.fence()),
            Care::None | Care::Flush => {}
        }
        Ok(value)
    }
}

/// `flaws` of ten operations may have one.
fn counters(seed: u64, flaws: u64) -> Program<Operation> {
    let state = &mut start(seed);
    let registers = 1 + below(state, REGISTERS);
    threads(state, |state| {
        let is_wrong = below(state, 10) < flaws;
        let kind = match below(state, if is_wrong { 7 } else { 4 }) {
            0 | 1 => Kind::Add { atomic: true },
            2 | 3 => Kind::Get,
            4 => Kind::Add { atomic: false },
            _ => Kind::Collect {
                from: below(state, registers),
            },
        };
        let care = [Care::None, Care::Flush, Care::Fence, Care::Drain];
        let care = if is_wrong {
            care[below(state, 4) as usize]
        } else {
            Care::Drain
        };
        Operation {
            register: below(state, registers),
            kind,
            care,
            locked: below(state, 4) == 0,
        }
    })
}

/// Explores a program; returns whether something was wrong, and the counts.
fn explore<S: Concurrent + 'static>(
    subject: S,
    program: &Program<S::Operation>,
    extent: (Rules, u32),
    reduced: bool,
) -> (Option<String>, Stats) {
    let (rules, preemptions_max) = extent;
    let options = ExplorationOptions {
        rules,
        images: Images::All,
        second_crash: SecondCrash::Never,
        limit_bytes: 4096,
        shrink: false,
        ..ExplorationOptions::default()
    };
    let mut explorer = Explorer::new(subject, options).unwrap();
    let search = Search::Exhaustive { preemptions_max };
    let scheduling = Scheduling {
        search,
        reduced,
        ..Scheduling::default()
    };
    let verdict = explorer.explore_threads(program, &scheduling);
    (
        verdict.err().map(|failure| failure.to_string()),
        explorer.stats(),
    )
}

/// The outcomes that are seen while steps are explored.
fn shown(program: &Program<Numbered>, extent: (Rules, u32), reduced: bool) -> (Shown, Stats) {
    let subject = Steps::default();
    let shown = Rc::clone(&subject.shown);
    let (failure, stats) = explore(subject, program, extent, reduced);
    assert_eq!(failure, None);
    (shown.take(), stats)
}

const MODELS: [Rules; 3] = [Rules::Lines, Rules::Log, Rules::PersistentCaches];

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let first = setting("EVERLEAF_SEED", 0);
    first..first + setting("EVERLEAF_CASES", usual)
}

#[test]
fn what_is_left_out_shows_nothing_new() {
    let mut few = 0;
    let mut many = 0;
    let mut outcomes = 0;
    let preemptions = setting("EVERLEAF_PREEMPTIONS", 2) as u32;
    for seed in seeds(10) {
        let program = steps(seed);
        for extent in MODELS.map(|rules| (rules, if seed % 4 == 0 { preemptions } else { 1 })) {
            let (reduced, stats) = shown(&program, extent, true);
            let (all, all_stats) = shown(&program, extent, false);
            assert_eq!(reduced, all, "seed {seed}, {extent:?}: {program:?}");
            few += stats.schedules;
            many += all_stats.schedules;
            outcomes += all.registers.len() + all.outcomes.len();
        }
    }
    println!("{outcomes} outcomes and contents by {few} schedules and by all {many}");
    assert!(few * 2 < many && outcomes > 100);
}

#[test]
fn a_flaw_is_found_where_all_schedules_find_it() {
    let mut right = 0;
    let mut wrong = 0;
    for seed in seeds(16) {
        let program = counters(seed, seed % 2 * 4);
        for extent in MODELS.map(|rules| (rules, 1 + u32::from(seed % 8 == 1))) {
            let (reduced, _) = explore(Counters, &program, extent, true);
            let (all, _) = explore(Counters, &program, extent, false);
            assert_eq!(
                reduced.is_some(),
                all.is_some(),
                "seed {seed}, {extent:?}: {reduced:?}, {all:?}"
            );
            match all {
                Some(_) => wrong += 1,
                None => right += 1,
            }
        }
    }
    println!("{wrong} programs with a flaw, {right} without");
    assert!(wrong > 5 && right > 5);
}

/// A record and a word that says that it is there; and beside that word, in its line, another one.
struct Beside;

/// The operations of the two threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Side {
    /// Stores the neighbour, and makes the line durable.
    Neighbour,
    /// Stores record and word, if the neighbour is there; the word is in no group before the record
    /// is.
    Record,
}

impl Subject for Beside {
    type Operation = Side;
    type Outcome = ();
    type State = ();
    type Instance = Sim;

    fn initial(&self) {}

    fn step(&self, _state: &mut (), _side: &Side) {}

    fn open(&self, sim: &Sim) -> Result<Sim, Complaint> {
        sim.grow(256).map_err(text)?;
        Ok(sim.clone())
    }

    fn apply(&self, sim: &mut Sim, side: &Side) -> Result<(), Complaint> {
        self.call(sim, side)
    }

    fn observe(&self, sim: &mut Sim) -> Result<(), Complaint> {
        let guard = MediumGuard::new(&*sim);
        let [word, record] =
            [72, 128].map(|offset| guard.words(offset, 1).map(|words| words[0].load(&guard)));
        match (word.map_err(text)?, record.map_err(text)?) {
            (1, 0) => Err("a word without its record".to_owned()),
            _ => Ok(()),
        }
    }
}

impl Concurrent for Beside {
    fn call(&self, sim: &Sim, side: &Side) -> Result<(), Complaint> {
        let guard = MediumGuard::new(sim);
        let word = |offset| guard.words(offset, 1).map(|words| &words[0]).map_err(text);
        let neighbour = word(64)?;
        let record = word(128)?;
        let word = word(72)?;
        match side {
            Side::Neighbour => {
                // For a log the line's content at the fence matters.
                guard.flush(neighbour);
                neighbour.store(&guard, 1);
            }
            Side::Record if neighbour.load(&guard) == 1 => {
                word.store(&guard, 1);
                record.store(&guard, 1);
                guard.flush(record);
                guard.fence();
                guard.flush(word);
            }
            Side::Record => {}
        }
        guard.drain().map_err(text)
    }
}

/// A fence appends the lines' present content to the log, whichever thread stored it: two schedules
/// that differ only in the order of a fence and the other thread's store leave different logs.
#[test]
fn what_another_threads_fence_takes_along_is_found() {
    let program = Program::single(&[Side::Neighbour, Side::Record]);
    for reduced in [true, false] {
        let options = ExplorationOptions {
            rules: Rules::Log,
            ..ExplorationOptions::default()
        };
        let mut explorer = Explorer::new(Beside, options).unwrap();
        let found = explorer.explore_threads(
            &program,
            &Scheduling {
                reduced,
                ..Scheduling::default()
            },
        );
        let report = found.expect_err("a word without its record").to_string();
        assert!(report.contains("a word without its record"), "{report}");
        let alone = Program::of(vec![vec![Side::Neighbour, Side::Record]]);
        let alone = explorer.explore_threads(
            &alone,
            &Scheduling {
                reduced,
                ..Scheduling::default()
            },
        );
        alone.unwrap_or_else(|failure| panic!("{failure}"));
    }
}
