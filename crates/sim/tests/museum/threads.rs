//! Bugs that need two threads: what one has made visible and not yet durable, another returns.

use everleaf_sim::{Complaint, Concurrent, Explorer, Options, Program, Scheduling, Search, Subject};
use medium::sim::Sim;
use medium::sync::Mutex;
use medium::{Guard, Medium, Word};

use crate::toy::line;

/// What a toy does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// A writer unlocks, then flushes.
    UnlocksFirst,
    /// Readers take no lock.
    ReadsUnlocked,
    /// An insertion looks for the key without the lock, and says that it is there.
    ChecksUnlocked,
    /// The new array is visible before it is durable that it is in use.
    ArrayVisibleFirst,
}

/// One key. Line 0: which array is in use, 0 or 1; its value in line 1 or 2, 0 if it is absent.
struct OneKey(Fault);

struct Opened {
    sim: Sim,
    lock: Mutex<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    /// Adds the key if it is absent; returns the value that it had.
    Insert(u64),
    /// Sets the value, 0 to remove the key; returns the value that it had.
    Put(u64),
    /// Returns the value.
    Get,
    /// Changes to the other array.
    Double,
}

use Operation::{Double, Get, Insert, Put};

fn word<'g>(guard: &'g Guard<'_, Sim>, offset: u64) -> &'g Word {
    &guard.words(offset, 1).expect("in bounds")[0]
}

impl OneKey {
    fn value<'g>(guard: &'g Guard<'_, Sim>) -> &'g Word {
        word(guard, line(1 + word(guard, 0).load(guard)))
    }

    fn write(&self, opened: &Opened, value: u64, if_absent: bool) -> u64 {
        let guard = Guard::new(&opened.sim);
        if if_absent && self.0 == Fault::ChecksUnlocked {
            let found = Self::value(&guard).load(&guard);
            if found != 0 {
                return found;
            }
        }
        let lock = opened.lock.lock();
        let slot = Self::value(&guard);
        let found = slot.load(&guard);
        if !(if_absent && found != 0) {
            slot.store(&guard, value);
            if self.0 == Fault::UnlocksFirst {
                drop(lock);
            }
            guard.flush(slot);
            guard.fence();
        }
        found
    }

    fn get(&self, opened: &Opened) -> u64 {
        let guard = Guard::new(&opened.sim);
        let _lock = (self.0 != Fault::ReadsUnlocked).then(|| opened.lock.lock());
        Self::value(&guard).load(&guard)
    }

    fn double(&self, opened: &Opened) {
        let guard = Guard::new(&opened.sim);
        let lock = opened.lock.lock();
        let array = 1 - word(&guard, 0).load(&guard);
        let slot = word(&guard, line(1 + array));
        slot.store(&guard, Self::value(&guard).load(&guard));
        guard.flush(slot);
        guard.fence();
        word(&guard, 0).store(&guard, array);
        if self.0 == Fault::ArrayVisibleFirst {
            drop(lock);
        }
        guard.flush(word(&guard, 0));
        guard.fence();
    }
}

impl Subject for OneKey {
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
        sim.grow(4096).map_err(|error| error.to_string())?;
        Ok(Opened { sim: sim.clone(), lock: Mutex::new(()) })
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<u64, Complaint> {
        self.call(opened, operation)
    }

    fn observe(&self, opened: &mut Opened) -> Result<u64, Complaint> {
        let guard = Guard::new(&opened.sim);
        Ok(Self::value(&guard).load(&guard))
    }
}

impl Concurrent for OneKey {
    fn call(&self, opened: &Opened, operation: &Operation) -> Result<u64, Complaint> {
        match *operation {
            Insert(value) => Ok(self.write(opened, value, true)),
            Put(value) => Ok(self.write(opened, value, false)),
            Get => Ok(self.get(opened)),
            Double => {
                self.double(opened);
                Ok(0)
            }
        }
    }
}

/// The toy as published must fail with the complaint, under some schedule and some crash; the mended one must pass.
fn show(fault: Fault, setup: &[Operation], threads: &[Operation], complaint: &str) {
    let explore = |fault| {
        let mut explorer = Explorer::new(OneKey(fault), Options::default()).unwrap();
        explorer.set_up(setup).unwrap_or_else(|failure| panic!("{failure}"));
        let search = Search::Exhaustive { preemptions_max: 2 };
        let scheduling = Scheduling { search, ..Scheduling::default() };
        explorer.explore_threads(&Program::single(threads), &scheduling)
    };
    let failure = explore(fault).expect_err("the bug was not noticed");
    println!("{failure}\n");
    assert!(failure.what.contains(complaint), "another complaint: {failure}");
    explore(Fault::Nothing).unwrap_or_else(|failure| panic!("mended: {failure}"));
}

/// A writer releases its lock and flushes then. Whoever takes the lock in between returns what a crash takes back.
///
/// Source: schencoding/lbtree#2 (LB+-tree).
#[test]
fn lbtree_unlocks_before_it_flushes() {
    show(Fault::UnlocksFirst, &[], &[Put(7), Get], "after recovery 0 was found, but it should be one of [7]");
}

/// Readers look at the count of entries without a lock, and may see it before it is durable.
///
/// Source: RNTree (ICPP 2019), section 3.5, on NVTree: the read-uncommitted anomaly.
#[test]
fn nvtree_reads_uncommitted() {
    show(
        Fault::ReadsUnlocked,
        &[],
        &[Insert(7), Get],
        "after recovery 0 was found, but it should be one of [7]",
    );
}

/// A lock-free read returns a new value that the update has not made durable.
///
/// Source: cuhk-mass/SEPH#3 (its CCEH with copy-on-write).
#[test]
fn cceh_cow_get_returns_an_update_that_is_not_durable() {
    let complaint = "after recovery 5 was found, but it should be one of [7]";
    show(Fault::ReadsUnlocked, &[Put(5)], &[Put(7), Get], complaint);
}

/// A lookup finds that a key is gone before it is durable that it is.
///
/// Source: utsaslab/RECIPE#13 (negative lookups), mended by utsaslab/RECIPE#12.
#[test]
fn recipe_negative_lookup_is_not_committed() {
    let complaint = "after recovery 5 was found, but it should be one of [0]";
    show(Fault::ReadsUnlocked, &[Put(5)], &[Put(0), Get], complaint);
}

/// An insertion is refused because the key is there; after a crash it is not.
///
/// Source: cuhk-mass/SEPH#1 (its Level Hashing).
#[test]
fn level_hashing_insert_is_refused_by_a_key_that_is_not_durable() {
    let complaint = "after recovery 0 was found, but it should be one of [7]";
    show(Fault::ChecksUnlocked, &[], &[Insert(7), Insert(8)], complaint);
}

/// A doubled directory is used by others before it is durable that it is the one in use: what they add to it is lost.
///
/// Source: cuhk-mass/SEPH#2 (CCEH, directory doubling).
#[test]
fn cceh_doubled_directory_is_used_before_it_is_durable() {
    let complaint = "after recovery 5 was found, but it should be one of [7]";
    show(Fault::ArrayVisibleFirst, &[Put(5)], &[Double, Put(7)], complaint);
}
