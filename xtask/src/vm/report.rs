//! What a run says in the end.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Args, MachineMedium};

/// How many violations are told in full.
const VIOLATIONS_TOLD: usize = 20;

/// The log of a pool on the medium `file`, as our command tells it.
#[derive(Deserialize)]
pub(super) struct LogStat {
    capacity_bytes: u64,
    written_bytes: u64,
    syncs: u64,
    groups: u64,
    checkpoints: u64,
    checkpoint_seconds: f64,
    replayed_bytes: u64,
    torn_tail: bool,
}

/// A writer's log shortly before its end.
#[derive(Deserialize)]
pub(super) struct LogFigures {
    seconds: f64,
    log_bytes_at_open: u64,
    #[serde(flatten)]
    log: LogStat,
}

/// What the logs of all lives did: a run whose log never grew, went around or was checkpointed
/// proves less.
#[derive(Serialize, Default)]
pub(super) struct Logs {
    /// Lives in which it grew.
    grown: u32,
    /// Lives in which more was written than it holds.
    recycled: u32,
    /// Lives with a checkpoint, and checkpoints.
    checkpointed: u32,
    checkpoints: u64,
    /// The share of the writers' time in which a checkpoint was under way, and so about the share
    /// of cuts that met one.
    checkpoints_time_share: f64,
    #[serde(skip)]
    checkpoint_seconds: f64,
    #[serde(skip)]
    seconds: f64,
    syncs: u64,
    groups: u64,
    written_bytes: u64,
    capacity_bytes_max: u64,
    /// Opens that found something to replay, and the most that it was.
    replays: u32,
    replayed_bytes_max: u64,
    /// Opens that found a torn tail.
    torn_tails: u32,
}

impl Logs {
    /// Adds what an open found, and what the writer after it told last.
    pub(super) fn add(&mut self, found: &LogStat, figures: Option<&LogFigures>) {
        self.replays += u32::from(found.replayed_bytes > 0);
        self.replayed_bytes_max = self.replayed_bytes_max.max(found.replayed_bytes);
        self.torn_tails += u32::from(found.torn_tail);
        let Some(LogFigures {
            seconds,
            log_bytes_at_open,
            log,
        }) = figures
        else {
            return;
        };
        self.grown += u32::from(log.capacity_bytes > *log_bytes_at_open);
        self.recycled += u32::from(log.written_bytes > log.capacity_bytes);
        self.checkpointed += u32::from(log.checkpoints > 0);
        self.checkpoints += log.checkpoints;
        self.checkpoint_seconds += log.checkpoint_seconds;
        self.seconds += seconds;
        self.checkpoints_time_share = self.checkpoint_seconds / self.seconds.max(1e-9);
        self.syncs += log.syncs;
        self.groups += log.groups;
        self.written_bytes += log.written_bytes;
        self.capacity_bytes_max = self.capacity_bytes_max.max(log.capacity_bytes);
    }

    fn words(&self) -> String {
        let bytes = self.capacity_bytes_max >> 10;
        format!(
            "log: of the lives it grew in {}, went around in {}, was checkpointed in {} ({} times, {:.0} % of the time); at \
             most {bytes} KiB; {} opens replayed it, {} found a torn tail\n",
            self.grown,
            self.recycled,
            self.checkpointed,
            self.checkpoints,
            100.0 * self.checkpoints_time_share,
            self.replays,
            self.torn_tails,
        )
    }
}

/// The one object of `--json`.
#[derive(Serialize, Default)]
pub(super) struct Report {
    pub(super) medium: &'static str,
    pub(super) file_system: &'static str,
    pub(super) engine: String,
    /// What its writers relied on.
    pub(super) durability: String,
    /// Whether the syncs were taken out.
    pub(super) no_sync: bool,
    /// What ran the guest: kvm or tcg.
    pub(super) accelerator: &'static str,
    /// Power cuts.
    pub(super) rounds: u32,
    /// Of these, before the writer wrote: while the pool was opened or read.
    pub(super) cuts_while_opening: u32,
    pub(super) operations: u64,
    pub(super) acknowledged: u64,
    pub(super) violations: u64,
    /// Operations under way when the power was cut: found done, and found not done.
    pub(super) pending_done: u64,
    pub(super) pending_undone: u64,
    /// Keys in the end.
    pub(super) keys: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log: Option<Logs>,
    /// From the start of the machine until its writer wrote.
    pub(super) boot_seconds_median: f64,
    pub(super) open_ns_median: u64,
    pub(super) open_ns_max: u64,
    /// The medium in the guest, as it describes itself, and what it says that it survives.
    pub(super) medium_description: String,
    pub(super) survives: String,
    pub(super) seconds: f64,
    pub(super) seed: u64,
    pub(super) replay: String,
    pub(super) proves: &'static str,
    pub(super) does_not_prove: &'static str,
    pub(super) first_violations: Vec<String>,
}

/// The median of some figures; 0 of none.
pub(super) fn median<T: Copy + PartialOrd + Default>(figures: &mut [T]) -> T {
    figures.sort_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

impl Report {
    pub(super) fn new(args: &Args, seed: u64, accelerator: &'static str) -> Self {
        let mut replay = format!(
            "cargo xtask vm --medium {} --fs {} --engine {} --rounds {} --seconds-per-round {} --threads {} --keys {} \
             --log-bytes {} --log-bytes-max {} --cpus {} --kernel {} --durability {} --seed {seed}",
            args.medium.name(),
            args.fs.name(),
            args.engine,
            args.rounds,
            args.seconds_per_round,
            args.threads,
            args.keys,
            args.log_bytes,
            args.log_bytes_max,
            args.cpus,
            args.kernel,
            args.durability,
        );
        if args.no_sync {
            replay += " --no-sync";
        }
        let (proves, does_not_prove) = claims(args.medium, args.no_sync);
        Self {
            medium: args.medium.name(),
            file_system: args.fs.name(),
            engine: args.engine.clone(),
            durability: args.durability.clone(),
            no_sync: args.no_sync,
            accelerator,
            seed,
            replay,
            proves,
            does_not_prove,
            ..Self::default()
        }
    }

    pub(super) fn is_violated(&self) -> bool {
        self.violations > 0
    }

    pub(super) fn add_violations(&mut self, round: u32, violations: Vec<String>) {
        self.violations += violations.len() as u64;
        let room = VIOLATIONS_TOLD - self.first_violations.len();
        let told = violations.into_iter().take(room);
        self.first_violations
            .extend(told.map(|violation| format!("cut {round}: {violation}")));
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }

    pub(super) fn words(&self) -> String {
        let milliseconds = |ns| Duration::from_nanos(ns).as_secs_f64() * 1e3;
        let mut words = format!(
            "{} power cuts in {:.0} s ({}, {}, {}, {}, {}; {} while the pool was opened): {} operations, {} of them \
             acknowledged; of those under way {} were done, {} were not\nopening took {:.1} ms (median), {:.1} ms \
             (longest); {} keys in the end\nmedium: {}; survives {}\nproves: {}\ndoes not prove: {}\n",
            self.rounds,
            self.seconds,
            self.engine,
            self.medium,
            self.file_system,
            self.accelerator,
            self.durability,
            self.cuts_while_opening,
            self.operations,
            self.acknowledged,
            self.pending_done,
            self.pending_undone,
            milliseconds(self.open_ns_median),
            milliseconds(self.open_ns_max),
            self.keys,
            self.medium_description,
            self.survives,
            self.proves,
            self.does_not_prove,
        );
        words += &self.log.as_ref().map(Logs::words).unwrap_or_default();
        for violation in &self.first_violations {
            words += &format!("violation: {violation}\n");
        }
        match (self.violations, self.no_sync) {
            (0, false) => words + "no violation",
            (0, true) => {
                words
                    + "NOTHING WAS NOTICED, although nothing was synced: this test is worth nothing"
            }
            (count, true) => {
                words + &format!("noticed: {count} violations without syncs, as there must be")
            }
            (count, false) => words + &format!("{count} VIOLATIONS; replay: {}", self.replay),
        }
    }
}

/// What a run shows, and what it cannot.
fn claims(medium: MachineMedium, no_sync: bool) -> (&'static str, &'static str) {
    match (medium, no_sync) {
        (_, true) => (
            "that this test notices lost data: the syncs were taken out",
            "anything about the medium",
        ),
        (MachineMedium::File, false) => (
            "that what was acknowledged had left the guest's page cache, log and file system metadata included, and that \
             the file system and the pool recover from a cut at any moment",
            "that a disk writes out its own cache when it is asked to, nor what a disk does that tears or reorders \
             sectors: each write that the guest's disk had taken is kept. The crash explorer's file model and the faulty \
             disk of the medium's tests cover these",
        ),
        (MachineMedium::Dax, false) => (
            "that MAP_SYNC is granted and used, that what was mapped is in the file after a cut, and that the file system \
             and the pool recover from a cut at any moment",
            "flushes and fences: the guest's memory is a file of the host, so a store is never lost in a cache. The crash \
             explorer covers these",
        ),
    }
}

#[cfg(test)]
mod tests;
