//! The scheduler, tested with a toy: each flaw is found, and the right toy passes. Values that are
//! visible before they are durable, and so are lost after other threads have read them, are in the
//! museum (`museum/threads.rs`).

use everleaf_sim::{
    Complaint, Concurrent, ExplorationOptions, Explorer, Images, Program, Schedule, Scheduling,
    Search, Subject, ThreadsFailure,
};
use medium::arena::Arena;
use medium::sim::Sim;
use medium::sync::{Atomic, Mutex, Ordering, pause};
use medium::{Medium, MediumGuard, volatile};

use crate::common::text;

/// The flaw of a toy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    /// Nothing.
    None,
    /// An increment loads and stores, with other threads in between.
    LostUpdate,
    /// The value is published before the copy that readers follow it to.
    PublishBeforeRecord,
    /// A reader does not check that the version is unchanged.
    NoVersionCheck,
    /// Two locks, taken in either order.
    Deadlock,
    /// A thread loops until another one has begun, which may never happen.
    Livelock,
    /// An assertion that fails if two threads are inside at the same time.
    Panic,
}

volatile! {
    struct Shared<M> {
        lock: Atomic<M>,
        version: Atomic<M>,
        /// The value once more, in two halves that only belong together.
        halves: [Atomic<M>; 2],
        inside: Atomic<M>,
    }
}

/// A counter of 32 bits at 64, and its copy, times 3, at 128.
struct Toy(Flaw);

struct Opened {
    sim: Sim,
    shared: Arena<Shared<Sim>>,
    first: Mutex<()>,
    second: Mutex<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    Increment,
    Get,
    /// Reads both volatile halves.
    Peek,
}

use Operation::{Get, Increment, Peek};

impl Opened {
    fn shared(&self) -> &Shared<Sim> {
        self.shared.get(1)
    }

    fn lock(&self) {
        let mut spins = 0;
        while self
            .shared()
            .lock
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            pause(&mut spins);
        }
    }

    fn unlock(&self) {
        self.shared().lock.store(0, Ordering::Release);
    }
}

impl Toy {
    fn increment(&self, opened: &Opened) -> Result<u64, Complaint> {
        let guard = MediumGuard::new(&opened.sim);
        let [counter, copy] =
            [64, 128].map(|offset| &guard.words(offset, 1).expect("in bounds")[0]);
        if self.0 != Flaw::LostUpdate {
            opened.lock();
        }
        let shared = opened.shared();
        let new = counter.load(&guard) + 1;
        shared.version.fetch_add(1, Ordering::Relaxed);
        if self.0 == Flaw::PublishBeforeRecord {
            counter.publish(&guard, new);
            guard.fence();
        }
        if self.0 != Flaw::LostUpdate {
            copy.publish(&guard, 3 * new);
            guard.fence();
        }
        if self.0 != Flaw::PublishBeforeRecord {
            counter.publish(&guard, new);
        }
        guard.drain().map_err(text)?;
        for half in &shared.halves {
            half.store(new, Ordering::Relaxed);
        }
        shared.version.fetch_add(1, Ordering::Release);
        if self.0 != Flaw::LostUpdate {
            opened.unlock();
        }
        Ok(new - 1)
    }

    fn get(&self, opened: &Opened) -> Result<u64, Complaint> {
        let guard = MediumGuard::new(&opened.sim);
        opened.lock();
        let value = guard.words(64, 1).map_err(text)?[0].load(&guard);
        opened.unlock();
        Ok(value)
    }

    fn peek(&self, opened: &Opened) -> Result<u64, Complaint> {
        let shared = opened.shared();
        let mut spins = 0;
        loop {
            let version = shared.version.load(Ordering::Acquire);
            let halves = [0, 1].map(|half: usize| shared.halves[half].load(Ordering::Acquire));
            let is_still =
                version.is_multiple_of(2) && shared.version.load(Ordering::Relaxed) == version;
            if is_still || self.0 == Flaw::NoVersionCheck {
                return match halves {
                    [one, other] if one == other => Ok(one),
                    _ => Err(format!("halves of two values: {halves:?}")),
                };
            }
            pause(&mut spins);
        }
    }

    fn take_both(&self, opened: &Opened, operation: Operation) {
        let guard = MediumGuard::new(&opened.sim);
        let locks = match (self.0, operation) {
            (Flaw::Deadlock, Get) => [&opened.second, &opened.first],
            _ => [&opened.first, &opened.second],
        };
        guard.interleave(locks[0]);
        let _one = locks[0].lock();
        guard.interleave(locks[1]);
        let _other = locks[1].lock();
    }
}

impl Subject for Toy {
    type Operation = Operation;
    type Outcome = u64;
    type State = u64;
    type Instance = Opened;

    fn initial(&self) -> u64 {
        0
    }

    fn step(&self, state: &mut u64, operation: &Operation) -> u64 {
        let before = *state;
        *state += u64::from(*operation == Increment);
        before
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        sim.grow(4096).map_err(text)?;
        let shared = Arena::new(16).map_err(text)?;
        let opened = Opened {
            sim: sim.clone(),
            shared,
            first: Mutex::new(()),
            second: Mutex::new(()),
        };
        opened.shared.allocate().map_err(text)?;
        let guard = MediumGuard::new(sim);
        let value = guard.words(64, 1).map_err(text)?[0].load(&guard);
        opened
            .shared()
            .halves
            .iter()
            .for_each(|half| half.store(value, Ordering::Relaxed));
        drop(guard);
        Ok(opened)
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<u64, Complaint> {
        self.call(opened, operation)
    }

    fn observe(&self, opened: &mut Opened) -> Result<u64, Complaint> {
        let guard = MediumGuard::new(&opened.sim);
        let [value, copy] =
            [64, 128].map(|offset| guard.words(offset, 1).map(|words| words[0].load(&guard)));
        let value = value.map_err(text)?;
        let copy = copy.map_err(text)?;
        match copy / 3 == value || copy / 3 == value + 1 || self.0 == Flaw::LostUpdate {
            true => Ok(value),
            false => Err(format!("the value is {value}, but its copy is {copy}")),
        }
    }
}

impl Concurrent for Toy {
    fn call(&self, opened: &Opened, operation: &Operation) -> Result<u64, Complaint> {
        self.take_both(opened, *operation);
        if self.0 == Flaw::Livelock && *operation == Get {
            while opened
                .shared()
                .version
                .fetch_add(2, Ordering::Relaxed)
                .is_multiple_of(2)
            {}
        }
        if self.0 == Flaw::Panic {
            let inside = &opened.shared().inside;
            assert_eq!(
                inside.fetch_add(1, Ordering::Relaxed),
                0,
                "two threads at once"
            );
            inside.store(0, Ordering::Relaxed);
        }
        match operation {
            Increment => self.increment(opened),
            Get => self.get(opened),
            Peek => self.peek(opened),
        }
    }
}

fn explore(
    flaw: Flaw,
    operations: &[Operation],
    search: Search,
) -> Result<(), Box<ThreadsFailure<Operation>>> {
    let options = ExplorationOptions {
        images: Images::All,
        ..ExplorationOptions::default()
    };
    let mut explorer = Explorer::new(Toy(flaw), options).unwrap();
    let scheduling = Scheduling {
        search,
        steps_max: 2000,
        ..Scheduling::default()
    };
    explorer.explore_threads(&Program::single(operations), &scheduling)
}

const TWO: Search = Search::Exhaustive { preemptions_max: 2 };

fn found(flaw: Flaw, operations: &[Operation]) -> Box<ThreadsFailure<Operation>> {
    explore(flaw, operations, TWO).expect_err("a flaw")
}

#[test]
fn what_is_right_passes() {
    for operations in [[Increment, Increment], [Increment, Get]] {
        explore(Flaw::None, &operations, TWO).unwrap_or_else(|failure| panic!("{failure}"));
        explore(Flaw::None, &operations, Search::Sweep)
            .unwrap_or_else(|failure| panic!("{failure}"));
    }
    explore(Flaw::None, &[Increment, Increment, Get], TWO)
        .unwrap_or_else(|failure| panic!("{failure}"));
    let random = Search::Random {
        runs: 200,
        depth: 3,
        seed: 7,
    };
    explore(Flaw::None, &[Increment, Increment, Get], random)
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_lost_update_is_found_with_one_preemption() {
    let failure = found(Flaw::LostUpdate, &[Increment, Increment, Increment]);
    assert!(
        failure.what.contains("no order of the operations explains"),
        "{failure}"
    );
    assert_eq!(failure.program.threads.len(), 2, "{failure}");
    let report = failure.to_string();
    assert!(
        report.contains("Search::Replay") && report.contains("models/schedule.rs"),
        "{report}"
    );
}

#[test]
fn a_lost_update_is_found_by_chance() {
    let random = Search::Random {
        runs: 500,
        depth: 2,
        seed: 0xbeef,
    };
    let failure = explore(Flaw::LostUpdate, &[Increment; 4], random).unwrap_err();
    assert!(
        failure.what.contains("no order of the operations explains"),
        "{failure}"
    );
    assert_eq!(failure.program.threads.len(), 2, "not shrunk: {failure}");
    assert!(
        failure
            .to_string()
            .contains("seed 0xbeef; replay: Search::Replay"),
        "{failure}"
    );
    let again = explore(
        Flaw::LostUpdate,
        &[Increment, Increment],
        Search::Replay(failure.schedule.clone()),
    );
    assert_eq!(again.unwrap_err().what, failure.what);
}

#[test]
fn a_failure_repeats_by_its_schedule() {
    let failure = found(Flaw::LostUpdate, &[Increment, Increment]);
    let schedule: Schedule = failure.schedule.to_string().parse().unwrap();
    let again = explore(
        Flaw::LostUpdate,
        &[Increment, Increment],
        Search::Replay(schedule),
    )
    .unwrap_err();
    assert_eq!(again.what, failure.what);
    assert!(
        again
            .schedule
            .switches
            .starts_with(&failure.schedule.switches),
        "{again}"
    );
}

/// Both threads do the same, so either may begin; the place where one stops is one of the threads'
/// operations, not of the opening.
#[test]
fn a_report_says_which_thread_began() {
    let Schedule { first, switches } = found(Flaw::LostUpdate, &[Increment, Increment]).schedule;
    for (first, other) in [(first, 1 - first), (1 - first, first)] {
        let turn = |(index, (step, _)): (usize, &(u32, u16))| (*step, [other, first][index % 2]);
        let schedule = Schedule {
            first,
            switches: switches.iter().enumerate().map(turn).collect(),
        };
        let again = explore(
            Flaw::LostUpdate,
            &[Increment, Increment],
            Search::Replay(schedule),
        )
        .unwrap_err();
        assert_eq!(again.schedule.first, first, "{again}");
        assert!(
            again
                .to_string()
                .contains(&format!("thread {first} begins")),
            "{again}"
        );
        let is_there = |place: &String| {
            place == "before its first store" || place.contains("models/schedule.rs")
        };
        assert!(again.places.iter().all(is_there), "{again}");
    }
}

#[test]
fn what_is_published_before_its_record_is_found() {
    let failure = found(Flaw::PublishBeforeRecord, &[Increment, Increment]);
    assert!(failure.what.contains("but its copy is"), "{failure}");
}

#[test]
fn a_reader_that_does_not_look_again_is_found() {
    let failure = found(Flaw::NoVersionCheck, &[Increment, Peek]);
    assert!(failure.what.contains("halves of two values"), "{failure}");
}

#[test]
fn a_deadlock_is_found() {
    let failure = found(Flaw::Deadlock, &[Increment, Get]);
    assert!(failure.what.contains("deadlock"), "{failure}");
}

#[test]
fn a_thread_that_never_ends_is_found() {
    let failure = found(Flaw::Livelock, &[Increment, Get]);
    assert!(failure.what.contains("livelock"), "{failure}");
}

#[test]
fn a_panic_is_found() {
    let failure = found(Flaw::Panic, &[Increment, Get]);
    assert!(failure.what.contains("two threads at once"), "{failure}");
}
