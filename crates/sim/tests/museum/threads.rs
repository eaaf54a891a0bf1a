//! Bugs that need two threads: one returns a value that another has made visible but not yet
//! durable.

use everleaf_sim::{
    Complaint, Concurrent, ExplorationOptions, Explorer, Program, Schedule, Scheduling, Search,
    Subject, ThreadsFailure,
};
use medium::Medium;
use medium::sim::Sim;
use medium::sync::{Mutex, MutexGuard};

use crate::toy::{MEMORY_BYTES, Memory, line};

/// Memory, and the lock that its threads share.
struct Opened {
    sim: Sim,
    lock: Mutex<()>,
}

impl Opened {
    fn memory(&self) -> Memory<'_> {
        Memory::new(&self.sim)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    /// Adds the key if it is absent; returns the value that it had.
    Insert(u64),
    /// Sets the value, 0 to remove the key; returns the value that it had.
    Put(u64),
    /// Returns the value.
    Get,
    /// Moves everything to a larger table.
    Double,
}

use Operation::{Double, Get, Insert, Put};

/// A persistent map of one key, in memory of zeros. The value 0 stands for an absent key.
trait OneKey: 'static {
    /// Sets the value, or only if the key is absent. Returns the value that it had.
    fn write(&self, opened: &Opened, value: u64, if_absent: bool) -> u64;

    /// The value.
    fn get(&self, opened: &Opened) -> u64;

    /// Moves everything to a larger table.
    fn double(&self, _opened: &Opened) {
        unreachable!("this toy does not grow")
    }
}

/// A toy under exploration. (Not generic over the toy: the explorer is compiled for each subject.)
struct Shown(Box<dyn OneKey>);

impl Subject for Shown {
    type Operation = Operation;
    type Outcome = u64;
    type State = u64;
    type Instance = Opened;

    fn initial(&self) -> u64 {
        0
    }

    fn step(&self, state: &mut u64, operation: &Operation) -> u64 {
        let before = *state;
        match operation {
            Insert(value) if before == 0 => *state = *value,
            Put(value) => *state = *value,
            Double => return 0,
            Insert(_) | Get => {}
        }
        before
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        sim.grow(MEMORY_BYTES).map_err(|error| error.to_string())?;
        Ok(Opened {
            sim: sim.clone(),
            lock: Mutex::new(()),
        })
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<u64, Complaint> {
        self.call(opened, operation)
    }

    fn observe(&self, opened: &mut Opened) -> Result<u64, Complaint> {
        Ok(self.0.get(opened))
    }
}

impl Concurrent for Shown {
    fn call(&self, opened: &Opened, operation: &Operation) -> Result<u64, Complaint> {
        match *operation {
            Insert(value) => Ok(self.0.write(opened, value, true)),
            Put(value) => Ok(self.0.write(opened, value, false)),
            Get => Ok(self.0.get(opened)),
            Double => {
                self.0.double(opened);
                Ok(0)
            }
        }
    }
}

/// How a bug is shown: the operations before, those of two threads, and the text that the report
/// must have.
struct Exhibit<'e> {
    setup: &'e [Operation],
    threads: [Operation; 2],
    complaint: &'e str,
}

impl Exhibit<'_> {
    fn explore(
        &self,
        toy: Box<dyn OneKey>,
        program: &Program<Operation>,
        search: Search,
        options: ExplorationOptions,
    ) -> Result<(), Box<ThreadsFailure<Operation>>> {
        let mut explorer = Explorer::new(Shown(toy), options).unwrap();
        explorer
            .set_up(self.setup)
            .unwrap_or_else(|failure| panic!("{failure}"));
        explorer.explore_threads(
            program,
            &Scheduling {
                search,
                ..Scheduling::default()
            },
        )?;
        assert_eq!(explorer.stats().cut_short, 0);
        Ok(())
    }

    /// The toy as published must fail with the complaint, under some schedule and some crash, and
    /// in the same way when both are repeated; the sweep, which is made for such bugs, must find it
    /// as well. The mended one must pass under all.
    fn show<T: OneKey>(&self, toy: impl Fn(bool) -> T) {
        self.show_to(&|mended| Box::new(toy(mended)), true);
    }

    /// Does the same as [`Exhibit::show`], also for bugs that the sweep is not made for.
    fn show_to(&self, toy: &dyn Fn(bool) -> Box<dyn OneKey>, sweep: bool) {
        let options = ExplorationOptions {
            command: "cargo test -p everleaf-sim --test museum".to_owned(),
            ..ExplorationOptions::default()
        };
        let program = Program::single(&self.threads);
        let all = Search::Exhaustive { preemptions_max: 2 };
        let failure = self.explore(toy(false), &program, all.clone(), options.clone());
        let failure = failure.expect_err("the bug was not noticed");
        println!("{failure}\n");
        assert!(
            failure.what.contains(self.complaint),
            "another complaint: {failure}"
        );
        let schedule: Schedule = failure.schedule.to_string().parse().unwrap();
        // Some go wrong without a crash.
        let crash = failure.replay().to_string();
        let replay = (!crash.is_empty()).then(|| crash.parse().unwrap());
        let search = Search::Replay(schedule);
        let again = self
            .explore(
                toy(false),
                &failure.program,
                search,
                ExplorationOptions {
                    replay,
                    ..options.clone()
                },
            )
            .expect_err("the replay passed");
        assert_eq!(
            (&again.what, again.replay()),
            (&failure.what, failure.replay())
        );
        if sweep {
            let swept = self.explore(toy(false), &program, Search::Sweep, options.clone());
            let swept = swept.expect_err("the sweep did not notice the bug");
            assert!(
                swept.what.contains(self.complaint),
                "another complaint: {swept}"
            );
        }
        for search in [all, Search::Sweep] {
            self.explore(toy(true), &program, search, options.clone())
                .unwrap_or_else(|failure| panic!("mended: {failure}"));
        }
    }
}

/// The value in line 0, written under a lock.
struct Slot {
    unlocks_first: bool,
    checks_unlocked: bool,
}

impl OneKey for Slot {
    fn write(&self, opened: &Opened, value: u64, if_absent: bool) -> u64 {
        let memory = opened.memory();
        if if_absent && self.checks_unlocked && memory.load(0) != 0 {
            return memory.load(0);
        }
        let lock = opened.lock();
        let found = memory.load(0);
        if !(if_absent && found != 0) {
            memory.store(0, value);
            if self.unlocks_first {
                drop(lock);
            }
            memory.persist(0);
        }
        found
    }

    fn get(&self, opened: &Opened) -> u64 {
        let _lock = opened.lock();
        opened.memory().load(0)
    }
}

/// A writer releases its lock, and flushes after that. A thread that takes the lock in between
/// returns a value that a crash takes back.
///
/// Source: schencoding/lbtree#2 (LB+-tree).
#[test]
fn lbtree_unlocks_before_it_flushes() {
    let complaint = "after recovery 0 was found, but it should be one of [7]";
    let exhibit = Exhibit {
        setup: &[],
        threads: [Put(7), Get],
        complaint,
    };
    exhibit.show(|mended| Slot {
        unlocks_first: !mended,
        checks_unlocked: false,
    });
}

/// An insertion is refused because the key is there; after a crash it is not.
///
/// Source: cuhk-mass/SEPH#1 (its Level Hashing).
#[test]
fn level_hashing_insert_is_refused_by_a_key_that_is_not_durable() {
    let complaint = "after recovery 0 was found, but it should be one of [7]";
    let exhibit = Exhibit {
        setup: &[],
        threads: [Insert(7), Insert(8)],
        complaint,
    };
    exhibit.show(|mended| Slot {
        unlocks_first: false,
        checks_unlocked: !mended,
    });
}

/// A leaf to which entries are appended: their count in line 0, each in a line of its own. The last
/// one counts.
struct AppendOnlyLeaf {
    readers_lock: bool,
}

impl AppendOnlyLeaf {
    fn last(memory: &Memory<'_>) -> u64 {
        match memory.load(0) {
            0 => 0,
            count => memory.load(line(count)),
        }
    }
}

impl OneKey for AppendOnlyLeaf {
    fn write(&self, opened: &Opened, value: u64, if_absent: bool) -> u64 {
        let memory = opened.memory();
        let _lock = opened.lock();
        let found = Self::last(&memory);
        if !(if_absent && found != 0) {
            let count = memory.load(0) + 1;
            memory.publish(line(count), value);
            memory.publish(0, count);
        }
        found
    }

    fn get(&self, opened: &Opened) -> u64 {
        let _lock = self.readers_lock.then(|| opened.lock());
        Self::last(&opened.memory())
    }
}

/// Readers read the count of entries without a lock, and may see it before it is durable.
///
/// Source: RNTree (ICPP 2019), section 3.5, on NVTree: the read-uncommitted anomaly.
#[test]
fn nvtree_reads_uncommitted() {
    let complaint = "after recovery 0 was found, but it should be one of [7]";
    let exhibit = Exhibit {
        setup: &[],
        threads: [Insert(7), Get],
        complaint,
    };
    exhibit.show(|readers_lock| AppendOnlyLeaf { readers_lock });
}

/// Two copies of the value, in lines 1 and 2, and in line 0 which of them counts. An update makes a
/// new copy and leads to it.
struct CopyOnWrite {
    readers_lock: bool,
}

impl CopyOnWrite {
    fn value(memory: &Memory<'_>) -> u64 {
        memory.load(line(1 + memory.load(0)))
    }
}

impl OneKey for CopyOnWrite {
    fn write(&self, opened: &Opened, value: u64, if_absent: bool) -> u64 {
        let memory = opened.memory();
        let _lock = opened.lock();
        let found = Self::value(&memory);
        if !(if_absent && found != 0) {
            let other = 1 - memory.load(0);
            memory.publish(line(1 + other), value);
            memory.publish(0, other);
        }
        found
    }

    fn get(&self, opened: &Opened) -> u64 {
        let _lock = self.readers_lock.then(|| opened.lock());
        Self::value(&opened.memory())
    }
}

/// A lock-free read follows the pointer to a new copy that the update has not made durable.
///
/// Source: cuhk-mass/SEPH#3 (its CCEH with copy-on-write).
#[test]
fn cceh_cow_get_returns_an_update_that_is_not_durable() {
    let complaint = "after recovery 5 was found, but it should be one of [7]";
    let exhibit = Exhibit {
        setup: &[Put(5)],
        threads: [Put(7), Get],
        complaint,
    };
    exhibit.show(|readers_lock| CopyOnWrite { readers_lock });
}

/// Two tables with a value each, in lines 1 and 2, and in line 0 which of them is in use. The value
/// is changed in place.
struct Directory {
    /// Whether the lock is held until it is durable that another table is in use.
    doubles_locked: bool,
    /// Whether writers look up under the lock which table that is.
    looks_locked: bool,
}

impl Directory {
    fn slot(memory: &Memory<'_>) -> u64 {
        line(1 + memory.load(0))
    }
}

impl OneKey for Directory {
    fn write(&self, opened: &Opened, value: u64, if_absent: bool) -> u64 {
        let memory = opened.memory();
        let early = (!self.looks_locked).then(|| Self::slot(&memory));
        let _lock = opened.lock();
        let slot = early.unwrap_or_else(|| Self::slot(&memory));
        let found = memory.load(slot);
        if !(if_absent && found != 0) {
            memory.publish(slot, value);
        }
        found
    }

    fn get(&self, opened: &Opened) -> u64 {
        let _lock = opened.lock();
        let memory = opened.memory();
        memory.load(Self::slot(&memory))
    }

    fn double(&self, opened: &Opened) {
        let memory = opened.memory();
        let lock = opened.lock();
        let other = 1 - memory.load(0);
        memory.publish(line(1 + other), memory.load(Self::slot(&memory)));
        memory.store(0, other);
        if !self.doubles_locked {
            drop(lock);
        }
        memory.persist(0);
    }
}

/// Other threads use a doubled directory before the switch to it is durable: entries that they add
/// are lost.
///
/// Source: cuhk-mass/SEPH#2 (CCEH, directory doubling).
#[test]
fn cceh_doubled_directory_is_used_before_it_is_durable() {
    let complaint = "after recovery 5 was found, but it should be one of [7]";
    let exhibit = Exhibit {
        setup: &[Put(5)],
        threads: [Double, Put(7)],
        complaint,
    };
    exhibit.show(|doubles_locked| Directory {
        doubles_locked,
        looks_locked: true,
    });
}

/// An entry is allocated in a leaf before a split and listed in it after the split has moved its
/// key range on: the write is acknowledged, but no thread finds it. The tables stand for the
/// leaves, the doubling for the split.
///
/// Source: RNTree (ICPP 2019), Algorithm 1, whose insert looks up the leaf, allocates, and only
/// then takes the leaf's lock.
#[test]
fn rntree_insert_lists_its_entry_in_a_leaf_that_was_split_meanwhile() {
    let complaint = "5 was found, but it should be one of [7]";
    let exhibit = Exhibit {
        setup: &[Put(5)],
        threads: [Put(7), Double],
        complaint,
    };
    exhibit.show_to(
        &|looks_locked| {
            Box::new(Directory {
                doubles_locked: true,
                looks_locked,
            })
        },
        false,
    );
}

/// The value in line 0. Readers take no lock; they make a value durable before they return it.
struct HelpingReaders {
    /// Whether they do so for an absent key, too.
    misses_help: bool,
}

impl OneKey for HelpingReaders {
    fn write(&self, opened: &Opened, value: u64, if_absent: bool) -> u64 {
        let memory = opened.memory();
        let _lock = opened.lock();
        let found = memory.load(0);
        if !(if_absent && found != 0) {
            memory.publish(0, value);
        }
        found
    }

    fn get(&self, opened: &Opened) -> u64 {
        let memory = opened.memory();
        let found = memory.load(0);
        if found != 0 || self.misses_help {
            memory.persist(0);
        }
        found
    }
}

/// A lookup finds that a key is gone before the removal is durable.
///
/// Source: utsaslab/RECIPE#13 (negative lookups), mended by utsaslab/RECIPE#12.
#[test]
fn recipe_negative_lookup_is_not_committed() {
    let complaint = "after recovery 5 was found, but it should be one of [0]";
    let exhibit = Exhibit {
        setup: &[Put(5)],
        threads: [Put(0), Get],
        complaint,
    };
    exhibit.show(|misses_help| HelpingReaders { misses_help });
}
