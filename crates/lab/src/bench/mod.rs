//! `everleaf bench`: throughput, latency, persists and memory of an engine, beside the standard
//! library's map and the floor of the machine, all measured in one process.

mod args;
mod compare;
mod disk;
mod epochs;
mod face;
mod inside;
mod key_shape;
mod keys;
mod line_stores;
mod once;
mod report;
mod scratch;
mod subject;
mod table;
mod turns;
mod workload;

use std::time::Instant;

pub use args::Args;
pub(crate) use args::{Distribution, PoolMedium, Workload};
pub(crate) use inside::{Shares, shares, split_ns, words};
pub use key_shape::{KeyShape, ShapedKey};

use crate::comparison::turns;
use crate::notes::{NoteReceiver, Said};
use compare::Baseline;
use keys::Keys;
pub(crate) use once::{Once, once};
use report::{LogShare, Report};
pub(crate) use subject::count_of;
use subject::{Bench, Measurement, Recoveries};
use terminal::failure::{Failure, Result};
pub(crate) use turns::{Sample, Series, Trees, fit_together, sample};
use workload::{Script, WorkloadStep};

/// The index of the tree in memory, of the two that take turns.
const IN_MEMORY: usize = 1;

/// How many steps a benchmark has; a note begins each.
pub fn steps(args: &Args) -> u64 {
    2 + args.runs as u64 + u64::from(face::is_measured(args)) + u64::from(args.count)
}

/// The arguments with the medium that an open would take, if none is named.
///
/// # Errors
/// [`Failure::Io`] if no pool can be made where it would lie.
pub fn with_medium(args: &Args) -> Result<Args> {
    if args.line_stores {
        // They are compared without a pool.
        return Ok(args.clone());
    }
    subject::with_medium(args)
}

/// Runs the benchmark.
pub fn run(args: &Args, notes: NoteReceiver<'_>) -> Result<Said> {
    let args = &with_medium(args)?;
    let _pages = args.take_pages()?;
    args.take_kernels()?;
    if args.line_stores {
        return line_stores::run(args);
    }
    args.validate()?;
    let keys = args.keys_drawn();
    let mut bench = Bench::create(args)?;
    bench.note_medium(notes);
    notes.note("loading the tree");
    let load_started = Instant::now();
    let prefill = args.keys - args.withheld();
    bench.load(args, &keys, prefill)?;
    let load_seconds = load_started.elapsed().as_secs_f64();
    let ram = in_memory(args, &keys, prefill)?;
    notes.note("loading the standard library's map");
    let mut baseline = Baseline::load(args, &keys, prefill);
    let mut report = Report::new(args);
    if args.workload != Workload::Load {
        report.load_mops = prefill as f64 / load_seconds / 1e6;
    }
    if args.medium == args::PoolMedium::File {
        report.disk = Some(disk::rates(bench.folder())?);
    }
    report.epochs.across_ns = epochs::across(args, &bench, &keys)?;
    for number in 0..args.runs {
        notes.note(format!("run {} of {}", number + 1, args.runs));
        if args.threads > 1 && args.workload != Workload::Load {
            let alone = Script::new(
                &Args {
                    threads: 1,
                    ..args.clone()
                },
                &keys,
                number,
            );
            report.alone_ns.push(bench.measure(&alone)?.ns());
            undo(args, &bench, &alone)?;
        }
        let script = Script::new(args, &keys, number);
        let finds = Script::finds(args, &keys, number);
        for series in turns(number, 2) {
            if series == IN_MEMORY {
                if let Some(ram) = &ram {
                    let found = turn(args, ram, &script, &finds, false, |measured| {
                        report.ram_ns.push(measured.ns());
                        Ok(())
                    })?;
                    report.ram_find_ns.push(found.ns());
                }
                continue;
            }
            let log_before = bench.log()?;
            let counters_before = bench.counters();
            // Sizes and recovery are measured on the tree of the last run.
            let is_kept = args.workload.only_adds() && number + 1 == args.runs;
            let found = turn(args, &bench, &script, &finds, is_kept, |measured| {
                report.run(&measured);
                report.log = log_before
                    .zip(bench.log()?)
                    .map(|(before, after)| LogShare::between(&before, &after));
                report.counters = bench.counters_since(&counters_before);
                Ok(())
            })?;
            report.find_ns.push(found.ns());
        }
        baseline.measure(args, &script, &mut report);
    }
    drop(ram);
    end(args, bench, &keys, &mut report, notes)?;
    if args.count {
        notes.note("counting");
        let counted = counted(&args.for_counting())?;
        report.counts = counted.counts.map(|counts| (counts, counted.operations));
    }
    Ok(Said {
        json: report.json(),
        text: report.text(),
    })
}

/// The measurements after the runs.
fn end(
    args: &Args,
    mut bench: Bench,
    keys: &Keys,
    report: &mut Report,
    notes: NoteReceiver<'_>,
) -> Result<()> {
    report.persist_ns = bench.persist_ns(args)?;
    report.sizes = Some(bench.sizes()?);
    report.epochs.pause_ns_max = bench.epoch_stat().map(|stat| stat.pause_ns_max);
    if args.recover {
        report.recoveries = Some(bench.recover()?);
        report.epochs.touches = bench.first_touches()?;
    }
    if let Some(pool) = bench.close()? {
        let file =
            std::fs::metadata(pool).map_err(Failure::io(format!("look at {}", pool.display())))?;
        report.file_bytes = Some(file.len());
        if face::is_measured(args) {
            notes.note("comparing finds through the store with finds through its engine");
            report.store_over_engine = face::store_over_engine(args, keys, pool)?;
        }
    }
    Ok(())
}

/// The same tree in memory, if it is measured as well.
fn in_memory(args: &Args, keys: &Keys, prefill: u64) -> Result<Option<Bench>> {
    let Some(args) = args.for_baseline() else {
        return Ok(None);
    };
    let mut bench = Bench::create(&args)?;
    bench.load(&args, keys, prefill)?;
    Ok(Some(bench))
}

/// Measures one run's operations, which `note` gets, then undoes them unless they are kept. Returns
/// the time of finds in the larger of the trees before and after.
fn turn(
    args: &Args,
    bench: &Bench,
    script: &Script,
    finds: &Script,
    is_kept: bool,
    note: impl FnOnce(Measurement) -> Result<()>,
) -> Result<Measurement> {
    note(bench.measure(script)?)?;
    let found = if args.workload.only_adds() {
        Some(bench.measure(finds)?)
    } else {
        None
    };
    if !is_kept {
        undo(args, bench, script)?;
    }
    found.map_or_else(|| bench.measure(finds), Ok)
}

/// A run that counts persists. It has a tree of its own, so that counting does not slow the timed
/// runs.
fn counted(args: &Args) -> Result<Measurement> {
    let keys = args.keys_drawn();
    let mut bench = Bench::create_counted(args)?;
    bench.load(args, &keys, args.keys - args.withheld())?;
    bench.measure(&Script::new(args, &keys, 0))
}

/// Measures the time of opening a tree with all keys.
pub(crate) fn recoveries(args: &Args) -> Result<Recoveries> {
    Bench::loaded(args)?.0.recover()
}

/// Undoes a run of inserts or removes, so that each run has the same tree.
fn undo(args: &Args, bench: &Bench, script: &Script) -> Result<()> {
    bench.together(|subject| {
        for step in script.steps() {
            match step {
                WorkloadStep::Insert(key) => drop(subject.remove(key)?),
                WorkloadStep::Remove(key) => drop(subject.put(key, key)?),
                WorkloadStep::Put(key) if args.distribution() == Distribution::Monotonic => {
                    let _ = subject.remove(key)?;
                }
                _ => {}
            }
        }
        Ok(())
    })
}
