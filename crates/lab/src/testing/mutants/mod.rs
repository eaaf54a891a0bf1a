//! Mutants: each flush, fence, wait and store of an engine is left out, each publish is done first,
//! each two adjacent persists are swapped; one fault at a time. Each mutant must be caught, or be
//! in the list of justified ones, with an argument why it does no harm.

mod justified;
mod place;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use medium::sim::{Mutation, Site};
use parking_lot::Mutex;
use serde::Serialize;

use self::place::{CallPlace, Sources};

pub use self::justified::{Change, Justified};
pub use self::target::{MutationTarget, Trial, TrialOutcome};

/// Progress.
#[derive(Clone, Copy, Debug)]
pub struct MutantProgress {
    /// Mutants that were judged.
    pub done: usize,
    /// Mutants in total.
    pub mutants: usize,
    /// The mutant that was judged last, if no trial noticed it.
    pub survivor: Option<Mutation>,
}

/// A mutant that no trial noticed.
#[derive(Clone, Debug, Serialize)]
pub struct Survivor {
    /// The fault.
    pub mutant: String,
    /// The place as a justification names it.
    pub place: String,
    /// The reason why it does no harm; `None` if no justification covers it.
    pub why: Option<&'static str>,
}

/// The results of all mutants.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MutantReport {
    /// The engine.
    pub engine: String,
    /// Mutants that were planted.
    pub mutants: usize,
    /// The number of planted mutants of each kind.
    pub kinds: BTreeMap<&'static str, usize>,
    /// Mutants that were caught.
    pub killed: usize,
    /// Mutants that were not caught, and are justified.
    pub justified: usize,
    /// Mutants that were not caught, and are not justified.
    pub survived: usize,
    /// All mutants that were not caught.
    pub survivors: Vec<Survivor>,
    /// Entries of the list that justify nothing: to be deleted.
    pub unused: Vec<String>,
    /// An exploration failed without a fault; nothing else is known then.
    pub failure: Option<String>,
}

impl MutantReport {
    /// Whether every mutant was caught or is justified, and every argument is needed.
    pub fn is_sound(&self) -> bool {
        self.failure.is_none() && self.survived == 0 && self.unused.is_empty()
    }
}

fn kind(mutation: &Mutation) -> &'static str {
    match mutation {
        Mutation::DropFlush(_) => "flush left out",
        Mutation::DropFence(_) => "fence left out",
        Mutation::DropWait(_) => "wait left out",
        Mutation::DropStore(_) => "store left out",
        Mutation::PublishEarly(_) => "publish done first",
        Mutation::SwapPersists(..) => "persists swapped",
    }
}

/// Plants every fault for which the trials of a target have a place, one at a time, on `threads`
/// threads. The compiled source tree lies at `root`, to find the calls that justifications name.
pub fn run(
    target: &MutationTarget,
    root: &Path,
    threads: usize,
    progress: &(dyn Fn(&MutantProgress) + Sync),
) -> MutantReport {
    let mut report = MutantReport {
        engine: target.name.to_owned(),
        ..MutantReport::default()
    };
    let mutants = match places(target) {
        Ok(mutants) => mutants,
        Err(failure) => {
            report.failure = Some(failure);
            return report;
        }
    };
    let next = AtomicUsize::new(0);
    let done = Mutex::new(0);
    let survivors = Mutex::new(Vec::new());
    let work = || {
        while let Some((mutation, trials)) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let thorough = trials.iter().copied().chain(&target.suites);
            let is_noticed = target
                .quick
                .iter()
                .chain(thorough)
                .any(|trial| trial.notices(*mutation));
            let survivor = (!is_noticed).then_some(*mutation);
            survivors.lock().extend(survivor);
            let mut done = done.lock();
            *done += 1;
            progress(&MutantProgress {
                done: *done,
                mutants: mutants.len(),
                survivor,
            });
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    for (mutation, _) in &mutants {
        *report.kinds.entry(kind(mutation)).or_default() += 1;
    }
    report.mutants = mutants.len();
    judge(&mut report, survivors.into_inner(), target, root);
    report
}

/// The mutants of a target, each with the trials that have a place for it. Code that engines share
/// is judged once: a place that another engine's target reaches, and accounts for, is left to that
/// target.
fn places(target: &MutationTarget) -> Result<Vec<(Mutation, Vec<&Trial>)>, String> {
    let survey = |trial: &Trial| {
        trial
            .survey()
            .map_err(|failure| format!("{}: {failure}", trial.name))
    };
    // A trial that fails without a fault would seem to notice every one.
    for trial in target.quick.iter().chain(&target.suites) {
        survey(trial)?;
    }
    let mut places: BTreeMap<Mutation, Vec<&Trial>> = BTreeMap::new();
    for trial in &target.trials {
        for mutation in survey(trial)? {
            places.entry(mutation).or_default().push(trial);
        }
    }
    if let Some(other) = target.judged_by.map(MutationTarget::of) {
        for trial in &other.quick {
            survey(trial)?
                .iter()
                .filter(|mutation| other.has(mutation))
                .for_each(|mutation| {
                    places.remove(mutation);
                });
        }
    }
    places.retain(|mutation, _| mutation.to_string().contains(&target.only));
    if target.is_part {
        places.retain(|mutation, _| target.has_some(mutation));
    }
    Ok(places.into_iter().collect())
}

/// The places of a fault.
fn sites(mutation: &Mutation) -> [Site; 2] {
    match *mutation {
        Mutation::DropFlush(site)
        | Mutation::DropFence(site)
        | Mutation::DropWait(site)
        | Mutation::DropStore(site)
        | Mutation::PublishEarly(site) => [site; 2],
        Mutation::SwapPersists(first, second) => [first, second],
    }
}

fn judge(
    report: &mut MutantReport,
    mut survivors: Vec<Mutation>,
    target: &MutationTarget,
    root: &Path,
) {
    survivors.sort_unstable();
    report.killed = report.mutants - survivors.len();
    let mut used = BTreeSet::new();
    let justified = &target.justified;
    let mut sources = Sources::new(root);
    for mutation in survivors {
        let [_, site] = sites(&mutation);
        let place = sources.place(site);
        let covers =
            |justified: &Justified| place.is_some_and(|place| justified.covers(&mutation, place));
        let found = justified.iter().position(covers);
        used.extend(found);
        let why = found.map(|index| justified[index].why);
        let place = place.map(CallPlace::to_string).unwrap_or_default();
        report.survivors.push(Survivor {
            mutant: mutation.to_string(),
            place,
            why,
        });
    }
    report.justified = report
        .survivors
        .iter()
        .filter(|survivor| survivor.why.is_some())
        .count();
    report.survived = report.survivors.len() - report.justified;
    let unused = justified
        .iter()
        .enumerate()
        .filter(|(index, _)| !used.contains(index));
    let unused =
        unused.filter(|(_, justified)| target.only.is_empty() && target.accounts_for(justified));
    report.unused = unused
        .map(|(_, justified)| format!("{justified:?}"))
        .collect();
}

/// The change at the place of a fault.
fn change(mutation: &Mutation) -> Change {
    match mutation {
        Mutation::DropFlush(_) => Change::Flush,
        Mutation::DropFence(_) => Change::Fence,
        Mutation::DropWait(_) => Change::Wait,
        Mutation::DropStore(_) => Change::Store,
        Mutation::PublishEarly(_) => Change::DoneFirst,
        Mutation::SwapPersists(..) => Change::Swapped,
    }
}

impl Justified {
    /// Whether this entry is about the mutant, which is planted at `place`.
    fn covers(&self, mutation: &Mutation, place: &CallPlace) -> bool {
        let [first, _] = sites(mutation);
        self.changes.contains(&change(mutation))
            && first.file.ends_with(self.after)
            && self.place == place.to_string()
    }
}

#[cfg(test)]
mod tests;
