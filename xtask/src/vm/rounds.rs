//! Power cuts, one after the other.
//!
//! Each boot reads what the cut before left, then writes until the next one. So a boot's channel
//! says two things: what was there, and what was done to it since; the next boot's channel says
//! what must follow from both.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;

use super::Args;
use super::failure::Failure;
use super::guest::Guest;
use super::machine::{FIGURES_AT, Left, RECORDS_AT, VirtualMachine};
use super::report::{LogFigures, LogStat, Report, median};

/// One cut in this many comes early: while the pool is opened, recovered or read.
const EARLY_EVERY: u32 = 8;
/// How long after the beginning of the open an early cut comes at most.
const EARLY_SECONDS: f64 = 0.5;

/// What a reader says.
#[derive(Deserialize)]
struct Reading {
    open_ns: u64,
    medium: String,
    survives: String,
    log: Option<LogStat>,
    violations: Vec<String>,
}

/// What the judge says.
#[derive(Deserialize)]
struct Verdict {
    operations: u64,
    acknowledged: u64,
    pending_done: u64,
    pending_undone: u64,
    keys: u64,
    violations: Vec<String>,
}

/// What happened so far.
struct Run<'a> {
    args: &'a Args,
    guest: &'a Guest,
    report: Report,
    /// The channel of the last boot whose reader came to its end.
    before: Option<PathBuf>,
    boots_seconds: Vec<f64>,
    opens_ns: Vec<u64>,
}

/// Cuts the power as often as the arguments say, or until something is lost.
pub(super) fn run(args: &Args, guest: &Guest) -> Result<Report, Failure> {
    let seed = args.seed.unwrap_or_else(rand::random);
    let start = Instant::now();
    let mut random = SmallRng::seed_from_u64(seed);
    let report = Report::new(args, seed, guest.accelerator.name());
    let boots_seconds = Vec::new();
    let opens_ns = Vec::new();
    let mut run = Run {
        args,
        guest,
        report,
        before: None,
        boots_seconds,
        opens_ns,
    };
    let bar = bar(args);
    for round in 1..=args.rounds {
        let left = run.live(round, &mut random)?;
        run.report.rounds = round;
        run.judge(round, &left)?;
        bar.inc(1);
        bar.set_message(format!(
            "{} operations acknowledged, {} violations",
            run.report.acknowledged, run.report.violations
        ));
        if run.report.is_violated() {
            break;
        }
    }
    if !run.report.is_violated() {
        // What the last cut left.
        let mut machine = VirtualMachine::start(args, guest, args.rounds + 1, seed)?;
        machine.wait_for(VirtualMachine::is_writing)?;
        let left = machine.cut()?;
        run.judge(args.rounds + 1, &left)?;
    }
    bar.finish_and_clear();
    let mut report = run.report;
    report.seconds = start.elapsed().as_secs_f64();
    report.boot_seconds_median = median(&mut run.boots_seconds);
    report.open_ns_max = run.opens_ns.iter().copied().max().unwrap_or_default();
    report.open_ns_median = median(&mut run.opens_ns);
    Ok(report)
}

fn bar(args: &Args) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(
        Some(args.rounds.into()),
        ProgressDrawTarget::stderr_with_hz(4),
    );
    if let Ok(style) = ProgressStyle::with_template("{bar:40} cut {pos} of {len}, {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

impl Run<'_> {
    /// One life of the machine, up to a random moment.
    fn live(&mut self, round: u32, random: &mut SmallRng) -> Result<Left, Failure> {
        let seed = random.random();
        let early = random.random_ratio(1, EARLY_EVERY);
        let life = random.random_range(
            0.0..if early {
                EARLY_SECONDS
            } else {
                self.args.seconds_per_round
            },
        );
        let start = Instant::now();
        let mut machine = VirtualMachine::start(self.args, self.guest, round, seed)?;
        if machine.wait_for(if early {
            VirtualMachine::is_opening
        } else {
            VirtualMachine::is_writing
        })? {
            if !early {
                self.boots_seconds.push(start.elapsed().as_secs_f64());
            }
            std::thread::sleep(Duration::from_secs_f64(life));
        }
        self.report.cuts_while_opening += u32::from(!machine.is_writing());
        machine.cut()
    }

    /// Judges what a boot found, and keeps what its writer said for the next one.
    fn judge(&mut self, round: u32, left: &Left) -> Result<(), Failure> {
        let line = left.channel[..RECORDS_AT as usize]
            .split_inclusive(|byte| *byte == b'\n')
            .next();
        let Some(line) = line.filter(|line| line.ends_with(b"\n")) else {
            // A reader that was cut off has said nothing, and no writer came after it.
            return left
                .ended
                .as_ref()
                .map_or(Ok(()), |end| Err(self.failed("ended by itself", end)));
        };
        // Two files in turn: the one that is not the channel before.
        let mut names = ["channel-a", "channel-b"]
            .map(|name| self.guest.folder.join(name))
            .into_iter();
        let after = names
            .find(|name| self.before.as_ref() != Some(name))
            .unwrap_or_default();
        let reading: Reading = serde_json::from_slice(line).map_err(|error| Failure::Command {
            command: "everleaf-workbench torture-reader".to_owned(),
            what: format!("said what is no reading: {error}"),
        })?;
        std::fs::write(&after, &left.channel).map_err(Failure::io("write", &after))?;
        self.opens_ns.push(reading.open_ns);
        if let Some(log) = &reading.log {
            let told = left.channel[FIGURES_AT as usize..]
                .split(|byte| *byte == b'\n')
                .next();
            // It may have been cut off while it was told.
            let figures: Option<LogFigures> =
                told.and_then(|told| serde_json::from_slice(told).ok());
            self.report
                .log
                .get_or_insert_default()
                .add(log, figures.as_ref());
        }
        let mut violations = match self.before.take() {
            // In the first boot there was nothing before.
            None => reading.violations,
            Some(before) => self.compare(&before, &after)?,
        };
        if violations.is_empty()
            && let Some(end) = &left.ended
        {
            violations.push(format!("the writer ended by itself: {end}"));
        }
        self.report.add_violations(round, violations);
        if !reading.medium.is_empty() {
            self.report.medium_description = reading.medium;
            self.report.survives = reading.survives;
        }
        if self.report.survives != "power-loss" && !self.args.no_sync && !self.report.is_violated()
        {
            return Err(self.failed(
                "got no medium that survives loss of power",
                &self.report.medium_description,
            ));
        }
        self.before = Some(after);
        Ok(())
    }

    fn failed(&self, what: &str, end: &str) -> Failure {
        let console = self.guest.folder.join("console");
        Failure::Guest {
            what: what.to_owned(),
            console,
            end: end.to_owned(),
        }
    }

    /// Asks the judge.
    fn compare(&mut self, before: &Path, after: &Path) -> Result<Vec<String>, Failure> {
        let mut command = Command::new(&self.guest.command);
        command.args(["--json", "torture-judge", "--engine", &self.args.engine]);
        command.args(["--durability", &self.args.durability]);
        command.args([
            "--threads",
            &self.args.threads.to_string(),
            "--keys",
            &self.args.keys.to_string(),
        ]);
        command
            .args(["--records-at", &RECORDS_AT.to_string()])
            .arg(before)
            .arg(after)
            .stderr(Stdio::inherit());
        let output = command
            .output()
            .map_err(Failure::io("run", &self.guest.command))?;
        let verdict: Verdict =
            serde_json::from_slice(&output.stdout).map_err(|error| Failure::Command {
                command: format!("{} torture-judge", self.guest.command.display()),
                what: format!(
                    "gave no verdict: {error}: {}",
                    String::from_utf8_lossy(&output.stdout)
                ),
            })?;
        self.report.operations += verdict.operations;
        self.report.acknowledged += verdict.acknowledged;
        self.report.pending_done += verdict.pending_done;
        self.report.pending_undone += verdict.pending_undone;
        self.report.keys = verdict.keys;
        Ok(verdict.violations)
    }
}
