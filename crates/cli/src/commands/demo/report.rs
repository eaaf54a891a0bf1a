//! The demo's results, in words and as JSON.

use std::path::Path;
use std::time::Duration;

use everleaf::{Store, Tree};
use serde::Serialize;

use super::Killed;
use super::listing::Listing;
use super::prove::Proof;
use super::writer::is_paced;
use terminal::context::survives_name;
use terminal::failure::Failure;
use terminal::violations::Violations;
use terminal::{progress, text};

/// Entries of the prefix scan that are shown.
const SHOWN: usize = 6;

/// All results of the demo; serialised, the one line of `--json`.
#[derive(Serialize, Default)]
pub(super) struct Report {
    pool: String,
    root: String,
    paths: u64,
    unreadable: u64,
    walk_seconds: f64,
    writer_process: u32,
    acknowledged: u64,
    /// `None` if the load was slowed down.
    write_per_second: Option<f64>,
    recovery_seconds: f64,
    /// The time from the start of the open to the open tree.
    reopen_seconds: f64,
    /// Leaves that were read to recover the tree; 0 for engines that need to read none.
    leaves_read: u64,
    in_flight_done: u64,
    in_flight_max: u64,
    #[serde(flatten)]
    violations: Violations,
    proof_seconds: f64,
    finished: u64,
    finish_per_second: f64,
    keys: u64,
    content_bytes_per_key: f64,
    pool_bytes_per_key: f64,
    volatile_bytes_per_key: f64,
    file_bytes: u64,
    medium: String,
    survives: &'static str,
    /// Commands to try next.
    pub(super) next: Vec<String>,
}

impl Report {
    pub(super) fn new(pool: &Path) -> Self {
        Self {
            pool: pool.display().to_string(),
            ..Self::default()
        }
    }

    /// Notes the walk; returns it in words.
    pub(super) fn walked(&mut self, root: &Path, listing: &Listing, duration: Duration) -> String {
        self.root = root.display().to_string();
        self.paths = listing.len() as u64;
        self.unreadable = listing.unreadable;
        self.walk_seconds = duration.as_secs_f64();
        let unreadable = match self.unreadable {
            0 => String::new(),
            count => format!(", {} could not be read", progress::count(count)),
        };
        let paths = progress::many(self.paths, "path");
        let duration = progress::duration(duration);
        format!("{paths} in {} in {duration}{unreadable}", self.root)
    }

    /// Notes the writer's work until it was killed; returns it in words.
    pub(super) fn killed(&mut self, killed: &Killed) -> String {
        self.writer_process = killed.process;
        self.acknowledged = killed.acknowledged.count as u64;
        let per_second = progress::per_second(self.acknowledged, killed.duration);
        self.write_per_second = (!is_paced(self.paths as usize)).then_some(per_second);
        let slowed = || " (slowed down, as there are so few)".to_owned();
        let rate = || format!(", {}", progress::rate(self.acknowledged, killed.duration));
        let rate = self.write_per_second.map_or_else(slowed, |_| rate());
        let acknowledged = progress::count(self.acknowledged);
        let paths = progress::many(self.paths, "path");
        format!(
            "SIGKILL to process {} in mid-write: {acknowledged} of {paths} acknowledged{rate}",
            self.writer_process
        )
    }

    /// Notes the time of recovery; returns it in words.
    pub(super) fn recovered(
        &mut self,
        store: &Store,
        tree: &Tree,
        duration: Duration,
    ) -> Result<String, Failure> {
        let recovery = store.recovery().duration;
        self.recovery_seconds = recovery.as_secs_f64();
        self.reopen_seconds = duration.as_secs_f64();
        let engine = tree.kind().engine;
        let reads_nothing = engine.marks_later;
        self.leaves_read = if reads_nothing {
            0
        } else {
            tree.stat()?.leaves
        };
        let read = match reads_nothing {
            true => "no node of the tree was read for that".to_owned(),
            false => format!(
                "{} read, free space found again",
                progress::many(self.leaves_read, "leaf")
            ),
        };
        Ok(format!(
            "reopened and recovered in {}: {read}",
            progress::duration(recovery)
        ))
    }

    /// Notes the proof; returns it in words.
    pub(super) fn proved(
        &mut self,
        mut proof: Proof,
        store: &Store,
        duration: Duration,
    ) -> Result<String, Failure> {
        self.proof_seconds = duration.as_secs_f64();
        self.in_flight_done = proof.in_flight_done as u64;
        self.in_flight_max = proof.in_flight_max as u64;
        for violation in store.check()? {
            proof.violations.add(violation);
        }
        self.violations = proof.violations;
        if !self.is_proved() {
            let count = progress::many(self.violations.count(), "violation").to_uppercase();
            return Ok(format!("{count}:\n{}", self.violations.told().join("\n")));
        }
        let done = progress::count(self.in_flight_done);
        let max = progress::count(self.in_flight_max);
        let others = match self.in_flight_done {
            0 => format!(
                "no other path is there (up to {max} could be: stored, but not yet acknowledged)"
            ),
            1 => format!(
                "of the others 1 is there, stored but not yet acknowledged (up to {max} could be)"
            ),
            _ => format!(
                "of the others {done} are there, stored but not yet acknowledged (up to {max} could be)"
            ),
        };
        let acknowledged = match self.acknowledged {
            1 => "the acknowledged path".to_owned(),
            count => format!("each of the {} acknowledged paths", progress::count(count)),
        };
        Ok(format!(
            "{acknowledged} is there, with its value\n{others}\nstructure verified; all of it read twice in {}",
            progress::duration(duration),
        ))
    }

    pub(super) fn is_proved(&self) -> bool {
        self.violations.is_empty()
    }

    /// Notes how many paths were stored afterwards; returns it in words.
    pub(super) fn finished(&mut self, added: usize, duration: Duration) -> String {
        self.finished = added as u64;
        self.finish_per_second = progress::per_second(self.finished, duration);
        let rate = progress::rate(self.finished, duration);
        match self.finished {
            0 => "nothing was left to store".to_owned(),
            count => format!(
                "{} from two threads, {rate}, all durable at the end",
                progress::many(count, "more path")
            ),
        }
    }

    /// Scans a prefix; returns some of its entries in words.
    pub(super) fn scanned(&mut self, tree: &Tree, prefix: &[u8]) -> Result<String, Failure> {
        let start = std::time::Instant::now();
        let count = tree.prefix(prefix).count();
        let duration = progress::duration(start.elapsed());
        let shown = text::escape(prefix).into_owned();
        let mut lines = vec![format!(
            "prefix {shown}: {} in {duration}",
            progress::many(count as u64, "entry")
        )];
        for entry in tree.prefix(prefix).take(SHOWN) {
            let (path, value) = entry?;
            let size = std::str::from_utf8(&value)
                .ok()
                .and_then(|value| value.split(' ').next()?.parse().ok());
            lines.push(format!(
                "  {:<52} {:>11}",
                text::escape(&path),
                progress::bytes(size.unwrap_or(0))
            ));
        }
        if count > SHOWN {
            lines.push("  ...".to_owned());
        }
        self.next = self.commands(prefix);
        Ok(lines.join("\n"))
    }

    fn commands(&self, prefix: &[u8]) -> Vec<String> {
        let program = std::env::args()
            .next()
            .unwrap_or_else(|| "everleaf".to_owned());
        let prefix = text::escape(prefix);
        let mut scan = vec![
            "scan",
            &self.pool,
            "--prefix",
            &prefix,
            "--reverse",
            "--limit",
            "5",
        ];
        if matches!(prefix, std::borrow::Cow::Owned(_)) {
            scan.push("--escaped");
        }
        let commands = [scan, vec!["stat", &self.pool], vec!["check", &self.pool]];
        commands
            .map(|arguments| text::command_line([&[program.as_str()], &arguments[..]].concat()))
            .into()
    }

    pub(super) fn summed_up(
        &mut self,
        store: &Store,
        tree: &Tree,
        listing: &Listing,
    ) -> Result<(), Failure> {
        let stat = store.stat()?;
        let tree_stat = tree.stat()?;
        let per_key = |bytes: u64| bytes as f64 / tree_stat.keys.max(1) as f64;
        self.keys = tree_stat.keys;
        self.content_bytes_per_key = per_key(listing.content_bytes());
        self.pool_bytes_per_key = per_key(stat.used_bytes);
        self.volatile_bytes_per_key = per_key(tree_stat.volatile_bytes);
        self.file_bytes = stat.file_bytes;
        self.medium = stat.medium;
        self.survives = survives_name(stat.survives);
        Ok(())
    }

    /// The figures at the end.
    pub(super) fn summary(&self) -> Vec<(&'static str, String)> {
        let (survives, not) = match self.survives {
            "power-loss" => (
                "the end of the process, a crash of the system, loss of power",
                "loss of the medium itself",
            ),
            "process-crash" => (
                "the end of the process, however it comes",
                "loss of power or a crash of the kernel: for that put the pool on a disk, and not into memory",
            ),
            _ => ("nothing", "the end of the process"),
        };
        let write = match self.write_per_second {
            None if self.finished > 0 => Some(self.finish_per_second),
            measured => measured,
        };
        let of_a_key = |bytes: f64| progress::bytes(bytes.round() as u64);
        let recovery = Duration::from_secs_f64(self.recovery_seconds);
        let mut summary = vec![("keys", progress::count(self.keys))];
        summary
            .extend(write.map(|rate| ("inserts per second", progress::count(rate.round() as u64))));
        summary.extend([
            ("time to recover", progress::duration(recovery)),
            (
                "bytes per key",
                format!(
                    "{} in the pool, {} of them path and value; {} of memory",
                    of_a_key(self.pool_bytes_per_key),
                    of_a_key(self.content_bytes_per_key),
                    of_a_key(self.volatile_bytes_per_key)
                ),
            ),
            ("medium", self.medium.clone()),
            ("survives", survives.to_owned()),
            ("does not survive", not.to_owned()),
            (
                "pool",
                format!("{}, {}", self.pool, progress::bytes(self.file_bytes)),
            ),
        ]);
        summary
    }
}
