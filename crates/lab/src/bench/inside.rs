//! The parts of an engine's operations, for engines that measure them.

use std::time::Instant;

use engines::index::Profile;

use super::args::Args;
use super::subject::{Bench, Operations, count_of};
use super::workload::{Script, WorkloadStep, updated};
use crate::comparison::median;
use terminal::failure::{Failure, Result};

/// One operation in this many is measured part by part.
const TAKEN_APART: usize = 8;
/// Readings of the clock, whose median is used.
const READINGS: usize = 1001;

/// The parts of the time of operations, in percent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub(crate) leaf: f64,
    pub(crate) inner: f64,
    pub(crate) pmwcas: f64,
    pub(crate) rest: f64,
}

/// The time of reading the clock once.
fn clock_ns() -> u64 {
    let mut readings: Vec<u64> = (0..READINGS)
        .map(|_| Instant::now().elapsed().as_nanos() as u64)
        .collect();
    readings.sort_unstable();
    readings[READINGS / 2]
}

/// Runs a workload on one thread. The clock is read between the parts of one operation in eight,
/// and its own time is subtracted. The other operations run as usual, so that caches are as usual.
pub(crate) fn shares(args: &Args) -> Result<Shares> {
    let (bench, keys) = Bench::loaded(args)?;
    let script = Script::new(args, &keys, 0);
    let subject = bench.subject();
    let clock = clock_ns();
    let mut sum = Profile::default();
    let mut buffer = Vec::new();
    let mut stamps = script.stamps(0);
    for (number, step) in script.steps().enumerate() {
        let (key, value) = match step {
            WorkloadStep::Find(key) => (key, None),
            WorkloadStep::Put(key) => (key, Some(updated(key, number as u64 + 1))),
            _ => {
                return Err(Failure::Usage(
                    "only finds and upserts can be measured part by part".to_owned(),
                ));
            }
        };
        if !number.is_multiple_of(TAKEN_APART) {
            subject.step(step, stamps.take(), &mut buffer)?;
            continue;
        }
        let taken = subject.profile(key, value)?;
        let taken = taken.ok_or_else(|| {
            Failure::Usage("this engine's operations cannot be measured part by part".to_owned())
        })?;
        sum.inner_ns += taken.inner_ns.saturating_sub(clock);
        sum.leaf_ns += taken.leaf_ns.saturating_sub(clock);
        sum.pmwcas_ns += taken
            .pmwcas_ns
            .saturating_sub(if value.is_some() { clock } else { 0 });
        sum.total_ns += taken
            .total_ns
            .saturating_sub(clock * if value.is_some() { 6 } else { 4 });
    }
    let share = |ns: u64| 100.0 * ns as f64 / sum.total_ns.max(1) as f64;
    let leaf = share(sum.leaf_ns);
    let inner = share(sum.inner_ns);
    let pmwcas = share(sum.pmwcas_ns);
    Ok(Shares {
        leaf,
        inner,
        pmwcas,
        rest: (100.0 - leaf - inner - pmwcas).max(0.0),
    })
}

/// Nanoseconds that a split adds to an insert, for engines that count splits. Each insert of a
/// workload is timed alone. For each number of splits, the median of inserts with no split is
/// subtracted from that of inserts with this number.
pub(crate) fn split_ns(args: &Args) -> Result<f64> {
    let bench = Bench::create(args)?;
    let keys = args.keys_drawn();
    let script = Script::new(args, &keys, 0);
    let subject = bench.subject();
    let mut buffer = Vec::new();
    let splits = || count_of(&bench.counters(), "splits");
    let mut before = splits();
    let mut taken = Vec::<Vec<f64>>::new();
    let mut stamps = script.stamps(0);
    for step in script.steps() {
        let start = Instant::now();
        subject.step(step, stamps.take(), &mut buffer)?;
        let ns = start.elapsed().as_nanos() as f64;
        let after = splits();
        let made = (after - std::mem::replace(&mut before, after)) as usize;
        taken.resize_with(taken.len().max(made + 1), Vec::new);
        taken[made].push(ns);
    }
    let without = taken.first().map_or(f64::NAN, |none| median(none));
    let mut added = 0.0;
    let mut count = 0;
    for (made, ns) in taken
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(_, ns)| !ns.is_empty())
    {
        added += ns.len() as f64 * (median(ns) - without);
        count += ns.len() * made;
    }
    Ok(added / count as f64)
}

/// An operation, how many operations of PMwCAS it takes, and their words together.
pub(crate) type Words = (&'static str, u64, u64);

/// The counts of an operation.
#[derive(Clone, Copy, Default)]
struct Counted {
    attempts: u64,
    words: u64,
    changes: [u64; 3],
}

/// The operations of PMwCAS by purpose, from the engine's counters on one thread.
pub(crate) fn words(args: &Args) -> Result<Vec<Words>> {
    let (bench, keys) = Bench::loaded(args)?;
    let subject = bench.subject();
    let counted = |run: &dyn Fn(&Operations<'_>) -> Result<bool>| -> Result<Counted> {
        let before = bench.counters();
        run(&subject)?;
        let since = bench.counters_since(&before);
        let count = |name| count_of(&since, name);
        let changes = ["consolidations", "splits", "merges"].map(count);
        Ok(Counted {
            attempts: count("pmwcas_attempts"),
            words: count("pmwcas_words"),
            changes,
        })
    };
    let mut all: Vec<u64> = (0..args.keys).map(|index| keys.key(index)).collect();
    all.sort_unstable();
    let update = counted(&|subject| subject.put(all[0], 1))?;
    let mut insert = Counted::default();
    let mut remove = Counted::default();
    let mut changes = [None; 3];
    for key in &all {
        let one = counted(&|subject| subject.insert(key.wrapping_add(1), 1))?;
        note(one, &mut insert, &mut changes);
    }
    // Replaces one key by another, so that leaves fill up with dead entries.
    for key in &all {
        let one = counted(&|subject| subject.remove(*key))?;
        note(one, &mut remove, &mut changes);
        let one = counted(&|subject| subject.insert(key.wrapping_add(2), 1))?;
        note(one, &mut insert, &mut changes);
    }
    for key in &all {
        let one = counted(&|subject| subject.remove(key.wrapping_add(1)))?;
        note(one, &mut remove, &mut changes);
    }
    let mut found = vec![
        ("insert", insert.attempts, insert.words),
        ("remove", remove.attempts, remove.words),
        ("update", update.attempts, update.words),
    ];
    for (name, change) in ["consolidation", "split", "merge"].into_iter().zip(changes) {
        found.extend(change.map(|(attempts, words)| (name, attempts, words)));
    }
    Ok(found)
}

/// Notes the counts of an operation: its own, or those that one change of the structure added.
fn note(one: Counted, alone: &mut Counted, changes: &mut [Option<(u64, u64)>; 3]) {
    match one.changes.iter().sum::<u64>() {
        0 => *alone = one,
        1 if alone.attempts > 0 => {
            let more = (one.attempts - alone.attempts, one.words - alone.words);
            for (change, _) in changes
                .iter_mut()
                .zip(one.changes)
                .filter(|(_, count)| *count == 1)
            {
                change.get_or_insert(more);
            }
        }
        _ => {}
    }
}
