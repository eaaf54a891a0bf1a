//! Buffered durability: a small table whose writes cost no flush, wrong in several ways, and right.
//!
//! Each cell is a line of three words: its value, the value that it had when the epoch began, and
//! the number of the epoch in which it was last written. Stores to one line arrive in order, so the
//! old value is there before the new one can be. A sync flushes the cells that were written and
//! then counts the epoch up; recovery takes back the writes of the epoch that did not end.

use std::collections::{BTreeMap, BTreeSet};

use everleaf_sim::{
    Complaint, DurabilityContract, ExplorationOptions, Explorer, SecondCrash, Stats, Subject,
};
use medium::sim::Sim;
use medium::{Medium, MediumGuard, Word};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    Set(u64, u64),
    Sync,
}

use Operation::{Set, Sync};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Nothing,
    /// The value is stored before the old one is kept.
    ValueFirst,
    /// The old value is overwritten at every write, not at the first of an epoch.
    LastWriteKept,
    /// The epoch is counted up before the cells are durable.
    EpochFirst,
    /// The epoch's number is not durable when the sync returns.
    EpochUnfenced,
    /// Recovery undoes nothing: writes of the unfinished epoch remain.
    NothingTakenBack,
    /// Each write is durable at once: more than promised, so a crash leaves writes of an unfinished
    /// epoch.
    DurableAtOnce,
}

struct Table {
    fault: Fault,
    /// Whether the specification allows an epoch to end at any time.
    lenient: bool,
}

struct Opened {
    sim: Sim,
    /// The running epoch: the one after the last that ended, whose number is at `EPOCH`.
    epoch: u64,
    /// Cells that are not durable.
    written: BTreeSet<u64>,
}

const EPOCH: u64 = 64;
const CELLS: u64 = 3;
const LENGTH: u64 = 4096;

fn words<'g>(
    guard: &'g MediumGuard<'_, Sim>,
    offset: u64,
    count: usize,
) -> Result<&'g [Word], Complaint> {
    guard.words(offset, count).map_err(|bad| bad.to_string())
}

fn cell<'g>(guard: &'g MediumGuard<'_, Sim>, number: u64) -> Result<&'g [Word], Complaint> {
    words(guard, 128 + 64 * number, 3)
}

impl Table {
    fn set(&self, table: &mut Opened, number: u64, value: u64) -> Result<(), Complaint> {
        let guard = MediumGuard::new(&table.sim);
        let [current, old, epoch] = cell(&guard, number)? else {
            unreachable!("three words")
        };
        table.written.insert(number);
        let before = current.load(&guard);
        if self.fault == Fault::ValueFirst {
            current.store(&guard, value);
        }
        if epoch.load(&guard) != table.epoch || self.fault == Fault::LastWriteKept {
            old.store(&guard, before);
            epoch.store(&guard, table.epoch);
        }
        current.store(&guard, value);
        if self.fault == Fault::DurableAtOnce {
            epoch.store(&guard, 0);
            guard.flush(current);
            guard.fence();
        }
        Ok(())
    }

    fn sync(&self, table: &mut Opened) -> Result<(), Complaint> {
        let guard = MediumGuard::new(&table.sim);
        let count = &words(&guard, EPOCH, 1)?[0];
        if self.fault == Fault::EpochFirst {
            count.publish(&guard, table.epoch);
            guard.fence();
        }
        for number in std::mem::take(&mut table.written) {
            guard.flush_words(cell(&guard, number)?);
        }
        guard.fence();
        count.publish(&guard, table.epoch);
        if self.fault != Fault::EpochUnfenced {
            guard.fence();
        }
        table.epoch += 1;
        Ok(())
    }
}

impl Subject for Table {
    type Operation = Operation;
    type Outcome = ();
    type State = BTreeMap<u64, u64>;
    type Instance = Opened;

    fn initial(&self) -> Self::State {
        (0..CELLS).map(|number| (number, 0)).collect()
    }

    fn step(&self, state: &mut Self::State, operation: &Operation) {
        if let Set(number, value) = operation {
            state.insert(*number, *value);
        }
    }

    fn durability(&self, operation: &Operation) -> DurabilityContract {
        match operation {
            Sync => DurabilityContract::OnReturn,
            Set(..) if self.lenient => DurabilityContract::AtAnyTime,
            Set(..) => DurabilityContract::WithEpoch,
        }
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        sim.grow(LENGTH).map_err(|error| error.to_string())?;
        let guard = MediumGuard::new(sim);
        // Epoch 0 is that of cells that were never written.
        let epoch = words(&guard, EPOCH, 1)?[0].load(&guard) + 1;
        for number in 0..CELLS {
            let [current, old, written] = cell(&guard, number)? else {
                unreachable!("three words")
            };
            if written.load(&guard) == epoch && self.fault != Fault::NothingTakenBack {
                // A crash before this is durable finds the old value once more.
                current.store(&guard, old.load(&guard));
            }
        }
        Ok(Opened {
            sim: sim.clone(),
            epoch,
            written: (0..CELLS).collect(),
        })
    }

    fn apply(&self, table: &mut Opened, operation: &Operation) -> Result<(), Complaint> {
        match *operation {
            Set(number, value) => self.set(table, number, value),
            Sync => self.sync(table),
        }
    }

    fn observe(&self, table: &mut Opened) -> Result<Self::State, Complaint> {
        let guard = MediumGuard::new(&table.sim);
        (0..CELLS)
            .map(|number| Ok((number, cell(&guard, number)?[0].load(&guard))))
            .collect()
    }

    fn follow_up(&self, _state: &Self::State, _recent: &[Operation]) -> Vec<Operation> {
        vec![Set(0, 70), Set(1, 71), Set(0, 72), Sync, Set(2, 73)]
    }
}

fn explore(fault: Fault, lenient: bool) -> Result<Stats, String> {
    let options = ExplorationOptions {
        second_crash: SecondCrash::Anywhere,
        command: "cargo test --release -p everleaf-sim --test models epochs::".to_owned(),
        ..ExplorationOptions::default()
    };
    let mut explorer = Explorer::new(Table { fault, lenient }, options).unwrap();
    let operations = [
        Set(0, 1),
        Set(1, 2),
        Set(0, 3),
        Sync,
        Set(0, 4),
        Set(2, 5),
        Set(0, 6),
        Sync,
        Set(1, 7),
    ];
    let result = explorer.explore(&operations);
    result
        .map(|()| explorer.stats())
        .map_err(|failure| failure.to_string())
}

#[test]
fn a_crash_leaves_the_end_of_the_last_epoch() {
    let stats = explore(Fault::Nothing, false).unwrap();
    println!("{stats}");
    assert!(stats.second_points > 100 && stats.cut_short == 0);
}

#[test]
fn each_fault_is_caught() {
    let faults = [
        Fault::ValueFirst,
        Fault::LastWriteKept,
        Fault::EpochFirst,
        Fault::EpochUnfenced,
        Fault::NothingTakenBack,
        Fault::DurableAtOnce,
    ];
    for fault in faults {
        let report = explore(fault, false).expect_err("a fault that was not noticed");
        println!("{fault:?}: {report}\n");
        assert!(
            report.contains("should be one of") && report.contains("  crash "),
            "{report}"
        );
    }
}

#[test]
fn an_epoch_that_may_end_at_any_time_leaves_more_to_choose() {
    // A write that is durable at once equals an epoch that ended by itself; half of a write does
    // not.
    explore(Fault::DurableAtOnce, true).unwrap();
    explore(Fault::Nothing, true).unwrap();
    for fault in [
        Fault::EpochFirst,
        Fault::EpochUnfenced,
        Fault::NothingTakenBack,
    ] {
        explore(fault, true).expect_err("a fault that was not noticed");
    }
}
