//! Damages a pool in one place a round, and counts the damage that is noticed.
//!
//! ```text
//! cargo xtask damage --engine rntree --rounds 2000 --json
//! ```
//!
//! Each round runs in a child process, so that a panic, an abort and a loop are seen as such. A
//! round opens the damaged pool, reads it in all ways, checks it and salvages it.
//!
//! Exit code:
//!
//! - 0: all damage was noticed, no read returned a wrong value, the check reported damage wherever
//!   reads missed keys, and pools that the check called sound were saved.
//! - 1: not so, or a round panicked or went on for ever.
//! - 2: wrong usage.
//!
//! With `--codec word` damage may go unnoticed, because numbers have no check: silent damage, wrong
//! values and missed keys are counted, and are no failure.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use everleaf::{CodecKind, MediumChoice, TreeOptions};
use everleaf_lab::bench::KeyShape;
use everleaf_lab::testing::damage::{
    Damage, DamageFindings, KINDS, ReadFindings, SilentKeys, TreeContent, content,
    content_of_shape, damage, examine, make,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

/// Damage one place of a pool a round: a bit, a byte, a word, a line, a page, two lines swapped.
/// Count what is noticed.
#[derive(Parser, Clone)]
#[command(name = "cargo xtask damage", bin_name = "cargo xtask damage")]
struct Args {
    /// The engine.
    #[arg(long)]
    engine: String,
    /// The entries of the tree: records, or words.
    #[arg(long, default_value = "record", value_parser = codec_of)]
    codec: CodecKind,
    /// The shape of the keys of records [default: keys of many lengths, some of which begin as
    /// others do].
    #[arg(long, value_enum, value_name = "SHAPE")]
    key_shape: Option<KeyShape>,
    /// The medium.
    #[arg(long, value_enum, default_value = "dax")]
    medium: MediumArg,
    /// Rounds.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// What the content of the pool and all places follow from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this round alone, and say what was seen.
    #[arg(long)]
    round: Option<u64>,
    /// Seconds after which a round is taken to go on for ever.
    #[arg(long, default_value_t = 30)]
    patience: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// In the child process: the pool to damage a copy of.
    #[arg(long, hide = true)]
    pool: Option<PathBuf>,
}

fn codec_of(name: &str) -> Result<CodecKind, &'static str> {
    let codec = [CodecKind::Record, CodecKind::Word]
        .into_iter()
        .find(|codec| codec.name() == name);
    codec.ok_or("record or word")
}

#[derive(Clone, Copy, ValueEnum)]
enum MediumArg {
    Dax,
    File,
}

impl MediumArg {
    fn choice(self) -> MediumChoice {
        match self {
            Self::Dax => MediumChoice::Dax,
            Self::File => MediumChoice::File,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Dax => "dax",
            Self::File => "file",
        }
    }
}

/// The line that a child process prints.
#[derive(Serialize, Deserialize)]
struct Round {
    damage: Damage,
    seen: DamageFindings,
}

/// The figures of all rounds.
#[derive(Default, Serialize)]
struct Report {
    engine: String,
    codec: &'static str,
    medium: &'static str,
    key_shape: Option<KeyShape>,
    seed: u64,
    rounds: u64,
    unchanged: u64,
    found: u64,
    silent: u64,
    panics: u64,
    hangs: u64,
    /// Rounds of which the check called the pool sound, and the salvage did not save all, or named
    /// a damage.
    sound_not_saved: u64,
    /// Rounds of which the check called the pool sound, and a read failed.
    missed_by_check: u64,
    /// Wrong answers of reads.
    reads_wrong: WrongReads,
    /// Keys that reads missed without an error.
    reads_missed: MissedReads,
    /// Rounds of which reads missed keys, and the check called the pool sound.
    missed_unchecked: u64,
    /// Rounds of which a read returned an error.
    reads_errors: u64,
    /// The least number of entries that were saved after one flipped bit; and the round.
    saved_min: Option<usize>,
    saved_min_round: Option<u64>,
    /// The least number of entries that were saved after any damage; and the round.
    saved_min_any: Option<usize>,
    saved_min_any_round: Option<u64>,
    /// The most entries that a salvage returned and that were not in the tree; and the first such
    /// round.
    wrong_max: usize,
    wrong_max_round: Option<u64>,
    /// Rounds of each kind of damage, and how many of them were silent.
    kinds: BTreeMap<String, u64>,
    silent_kinds: BTreeMap<String, u64>,
    /// Rounds whose damage was not noticed or that were not saved, and rounds that panicked or went
    /// on for ever.
    survivors: Vec<String>,
}

/// Rounds of which reads returned wrong values, or keys that the tree does not have.
#[derive(Default, Serialize)]
struct WrongReads {
    rounds: u64,
    /// The number of these values and keys.
    values: usize,
}

/// Rounds of which reads missed keys without an error.
#[derive(Default, Serialize)]
struct MissedReads {
    rounds: u64,
    /// The number of keys, of all rounds.
    keys: usize,
    /// The most keys of one round; and the first such round.
    keys_max: usize,
    keys_max_round: Option<u64>,
    /// The rounds of each kind of damage.
    kinds: BTreeMap<String, u64>,
    /// Each of the rounds.
    details: Vec<String>,
}

impl Report {
    fn may_be_silent(&self) -> bool {
        self.codec == CodecKind::Word.name()
    }

    fn is_sound(&self) -> bool {
        let silent = if self.may_be_silent() {
            0
        } else {
            self.silent + self.reads_wrong.rounds + self.missed_unchecked
        };
        silent + self.panics + self.hangs + self.sound_not_saved + self.missed_by_check == 0
    }

    fn survivor(&mut self, bar: &ProgressBar, round: u64, what: &str) {
        let line = format!("--seed {} --round {round}: {what}", self.seed);
        bar.suspend(|| eprintln!("{line}"));
        self.survivors.push(line);
    }

    fn add(&mut self, bar: &ProgressBar, number: u64, round: &Round) {
        let Round {
            damage: Damage { kind, offset },
            seen,
        } = round;
        *self.kinds.entry(kind.clone()).or_default() += 1;
        match (&seen.found, seen.is_intact) {
            (Some(_), _) => self.found += 1,
            (None, true) => self.unchanged += 1,
            (None, false) => {
                self.silent += 1;
                *self.silent_kinds.entry(kind.clone()).or_default() += 1;
                if !self.may_be_silent() {
                    self.survivor(bar, number, &format!("silent: {kind} at {offset:#x}"));
                }
            }
        }
        if seen.is_sound_but_not_saved() {
            self.sound_not_saved += 1;
            self.survivor(
                bar,
                number,
                &format!("sound, but not all was saved: {kind} at {offset:#x}"),
            );
        }
        if seen.is_missed_by_check() {
            self.missed_by_check += 1;
            self.survivor(
                bar,
                number,
                &format!("sound, but a read failed: {kind} at {offset:#x}"),
            );
        }
        self.add_reads(bar, number, round);
        if *kind == KINDS[0] && self.saved_min.is_none_or(|saved| seen.saved < saved) {
            self.saved_min = Some(seen.saved);
            self.saved_min_round = Some(number);
        }
        if self.saved_min_any.is_none_or(|saved| seen.saved < saved) {
            self.saved_min_any = Some(seen.saved);
            self.saved_min_any_round = Some(number);
        }
        if seen.wrong > self.wrong_max {
            self.wrong_max = seen.wrong;
            self.wrong_max_round = Some(number);
        }
    }

    fn add_reads(&mut self, bar: &ProgressBar, number: u64, round: &Round) {
        let Round {
            damage: Damage { kind, offset },
            seen,
        } = round;
        let ReadFindings {
            wrong,
            missed,
            errors,
            ..
        } = &seen.reads;
        let place = format!("{kind} at {offset:#x}");
        if *errors > 0 {
            self.reads_errors += 1;
        }
        if wrong.keys > 0 {
            self.reads_wrong.rounds += 1;
            self.reads_wrong.values += wrong.keys;
            if !self.may_be_silent() {
                let what = format!("reads were wrong, {}: {place}", described(wrong));
                self.survivor(bar, number, &what);
            }
        }
        if missed.keys > 0 {
            let missed_reads = &mut self.reads_missed;
            missed_reads.rounds += 1;
            missed_reads.keys += missed.keys;
            if missed.keys > missed_reads.keys_max {
                missed_reads.keys_max = missed.keys;
                missed_reads.keys_max_round = Some(number);
            }
            *missed_reads.kinds.entry(kind.clone()).or_default() += 1;
            let detail = format!("round {number}: {}: {place}", described(missed));
            missed_reads.details.push(detail);
        }
        if seen.are_missed_keys_unchecked() {
            self.missed_unchecked += 1;
            if !self.may_be_silent() {
                let what = format!("sound, but reads missed {}: {place}", described(missed));
                self.survivor(bar, number, &what);
            }
        }
    }
}

/// The keys of silent answers, in words.
fn described(silent: &SilentKeys) -> String {
    let answers: Vec<String> = silent
        .answers
        .iter()
        .map(|(read, count)| format!("{count} by {read:?}"))
        .collect();
    format!("{} keys ({})", silent.keys, answers.join(", "))
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The folder lies in memory, if that is possible: a disk would sync at each open.
fn folder() -> std::io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
}

/// The entries of the tree.
fn content_of(args: &Args) -> TreeContent {
    match args.key_shape {
        Some(shape) => content_of_shape(shape, args.seed),
        None => content(args.codec, args.seed),
    }
}

/// The child process: one round.
fn run_round(args: &Args, pool: &Path, round: u64, content: &TreeContent) -> Outcome<Round> {
    let mut bytes = std::fs::read(pool)?;
    let damage = damage(&mut bytes, args.seed, round);
    let path = pool.with_extension("damaged");
    let _ = std::fs::remove_file(everleaf::log_path(&path));
    std::fs::write(&path, bytes)?;
    let seen = examine(&path, args.medium.choice(), content);
    Ok(Round { damage, seen })
}

/// Waits for a process to end; kills it after a while.
fn wait(child: &mut Child, patience: Duration) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn child_of(args: &Args, pool: &Path, round: u64) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([
        "--engine",
        &args.engine,
        "--seed",
        &args.seed.to_string(),
        "--round",
        &round.to_string(),
    ]);
    command
        .args(["--codec", args.codec.name(), "--medium", args.medium.name()])
        .arg("--pool")
        .arg(pool);
    if let Some(shape) = args.key_shape {
        command.args(["--key-shape", shape.name()]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
}

fn run_rounds(args: &Args) -> Outcome<Report> {
    let engine = everleaf_lab::engine_from_name(&args.engine).ok_or("there is no such engine")?;
    let folder = folder()?;
    if args.key_shape.is_some() && args.codec == CodecKind::Word {
        return Err("--key-shape goes with --codec record; words are numbers".into());
    }
    let content = content_of(args);
    let pool = folder.path().join("a.pool");
    let kind = TreeOptions {
        engine,
        codec: args.codec,
        ..TreeOptions::RECORDS
    };
    make(&pool, kind, args.medium.choice(), &content, args.seed)?;
    let bar = if args.round.is_some() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(args.rounds)
    };
    let style = "{msg} {bar:40} {percent:>3}%, {human_pos} of {human_len} rounds, {elapsed}";
    bar.set_style(ProgressStyle::with_template(style)?.progress_chars("\u{2588}\u{2593}\u{2591}"));
    bar.set_message(format!("damaging {}", args.engine));
    let mut report = Report {
        engine: args.engine.clone(),
        medium: args.medium.name(),
        key_shape: args.key_shape,
        ..Report::default()
    };
    report.seed = args.seed;
    report.codec = args.codec.name();
    let rounds = args.round.map_or(0..args.rounds, |round| round..round + 1);
    for round in rounds {
        let mut child = child_of(args, &pool, round)?;
        let status = wait(&mut child, Duration::from_secs(args.patience))?;
        let mut output = String::new();
        child
            .stdout
            .take()
            .ok_or("no output")?
            .read_to_string(&mut output)?;
        report.rounds += 1;
        match status {
            None => {
                report.hangs += 1;
                report.survivor(&bar, round, "went on for ever");
            }
            Some(status) if !status.success() => {
                report.panics += 1;
                report.survivor(&bar, round, &format!("panicked: {status}"));
            }
            Some(_) => {
                if args.round.is_some() {
                    eprintln!("{}", output.trim());
                }
                report.add(&bar, round, &serde_json::from_str(&output)?);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(report)
}

fn print(report: &Report) {
    let Report {
        engine,
        codec,
        medium,
        rounds,
        unchanged,
        found,
        silent,
        panics,
        hangs,
        ..
    } = report;
    println!(
        "{engine} ({codec}) on {medium}, {rounds} rounds: {unchanged} unchanged, {found} found"
    );
    println!("  {silent} silent, {panics} panics, {hangs} hangs");
    println!(
        "  {} called sound, but not saved as a whole",
        report.sound_not_saved
    );
    println!(
        "  {} called sound, though a read failed",
        report.missed_by_check
    );
    println!(
        "  reads: {} rounds with wrong values ({} values), {} rounds with errors",
        report.reads_wrong.rounds, report.reads_wrong.values, report.reads_errors
    );
    let missed = &report.reads_missed;
    println!(
        "  {} rounds in which reads missed keys without an error ({} keys, at most {} in one round)",
        missed.rounds, missed.keys, missed.keys_max
    );
    println!(
        "  {} of these were called sound by the check",
        report.missed_unchecked
    );
    if let Some(saved) = report.saved_min
        && let Some(round) = report.saved_min_round
    {
        println!(
            "  after one flipped bit at least {saved} of 20,000 entries were saved (round {round})"
        );
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(pool) = &args.pool
        && let Some(round) = args.round
    {
        // A panic of another thread ends the process, too.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            hook(panic);
            std::process::abort();
        }));
        let content = content_of(&args);
        let round = run_round(&args, pool, round, &content);
        let printed = round.and_then(|round| Ok(serde_json::to_string(&round)?));
        return match printed {
            Ok(line) => {
                println!("{line}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("damage: {error}");
                ExitCode::from(2)
            }
        };
    }
    match run_rounds(&args) {
        Ok(report) => {
            if args.json {
                println!(
                    "{}",
                    serde_json::to_string(&report).expect("a report is JSON")
                );
            } else {
                print(&report);
            }
            ExitCode::from(u8::from(!report.is_sound()))
        }
        Err(error) => {
            eprintln!("damage: {error}");
            ExitCode::from(2)
        }
    }
}
