//! The arguments of `bench`.

use std::path::PathBuf;

use clap::ValueEnum;
use everleaf::{Engine, Settings};
use medium::kernels::Kernels;
use medium::{Durability, LineStore};

use super::keys::Keys;
use crate::arguments::{parse_any_engine, parse_durability, parse_fill};
use crate::failure::{Failure, Result};

/// The most keys of a tree on which persists are counted.
const COUNTED_KEYS_MAX: u64 = 1_000_000;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Workload {
    /// Inserts into an empty tree
    Load,
    /// Inserts into a tree of --keys keys
    Insert,
    /// Point reads of keys that are there
    Find,
    /// Point reads, 16 at a time
    #[value(name = "get_many")]
    GetMany,
    /// Updates of keys that are there
    Update,
    /// Removes of keys that are there
    Remove,
    /// Ranges of 100 entries
    Scan,
    /// Ranges of 10 entries
    #[value(name = "scan-10")]
    Scan10,
    /// A quarter each of find, insert, update, remove
    Mixed,
    /// YCSB-A: half reads, half updates
    A,
    /// YCSB-B: 95% reads, 5% updates
    B,
    /// YCSB-C: reads
    C,
    /// YCSB-D: 95% reads of what came last, 5% inserts
    D,
    /// YCSB-E: 95% ranges of up to 100, 5% inserts
    E,
    /// YCSB-F: half reads, half read-modify-writes
    F,
    /// 90% reads, 10% upserts
    ReadMostly,
    /// 75% reads, 25% upserts
    ReadHeavy,
    /// Half reads, half upserts
    Balanced,
    /// 90% ranges of up to 10 entries, 10% upserts
    ScanMostly,
    /// Half ranges of up to 10 entries, half upserts
    ScanBalanced,
}

impl Workload {
    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether a run leaves all keys in the tree that were there, and adds some.
    pub(crate) fn only_adds(self) -> bool {
        matches!(self, Self::Load | Self::Insert | Self::D | Self::E)
    }

    /// How many of a hundred operations are upserts, where the others read.
    pub(crate) fn upserts_percent(self) -> Option<u64> {
        match self {
            Self::ReadMostly | Self::ScanMostly => Some(10),
            Self::ReadHeavy => Some(25),
            Self::Balanced | Self::ScanBalanced => Some(50),
            _ => None,
        }
    }
}

/// Which keys are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Distribution {
    /// All equally
    Uniform,
    /// Some much more often (scrambled, as in YCSB)
    Zipfian,
    /// Those inserted last more often
    Latest,
    /// One after the other
    Sequential,
    /// One after the other; upserts add keys above all others, so keys are the numbers from 0 on
    Monotonic,
}

/// Where the pool lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum MediumChoice {
    /// Memory of this process
    Ram,
    /// A mapped file with cache-line flushes
    Dax,
    /// A file with a log of lines beside it, on the disk
    File,
}

/// The pages of memory that the process gets.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    /// Of 2 MiB where that is asked for
    Huge,
    /// Of 4 KiB
    #[value(name = "4k")]
    Small,
}

impl Pages {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        if self == Self::Huge { "huge" } else { "4k" }
    }
}

/// What is measured beside.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BaselineChoice {
    /// The same engine in memory of this process
    Ram,
}

/// Measure throughput, latency, persists and memory
#[derive(clap::Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Args {
    /// The engine
    #[arg(long, value_name = "NAME", default_value = "rntree", value_parser = parse_any_engine)]
    pub(crate) engine: Engine,
    /// Set something of the engine, such as leaf-entries=16; a name that it does not have lists those that it has
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// How long an epoch of masstree lasts, in milliseconds
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epoch_ms: u64,
    /// The medium
    #[arg(long, value_enum, default_value = "dax")]
    pub(crate) medium: MediumChoice,
    /// Keys in the tree
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) keys: u64,
    /// Operations of a run, over all threads [default: a tenth of the keys, but 100,000 to 2,000,000]
    #[arg(long)]
    pub(crate) ops: Option<u64>,
    /// Threads
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// What is measured
    #[arg(long, value_enum, default_value = "find")]
    pub(crate) workload: Workload,
    /// Which keys are asked for
    #[arg(long, value_enum, default_value = "uniform")]
    pub(crate) distribution: Distribution,
    /// Skew of the zipfian distribution, 0 to 1 exclusive
    #[arg(long, default_value_t = 0.99)]
    pub(crate) theta: f64,
    /// Bytes of a key, as many as it takes to tell the keys apart; 8 with values of 8 selects the codec for words
    #[arg(long, default_value_t = 8)]
    pub(crate) key_size: usize,
    /// Bytes of a value
    #[arg(long, default_value_t = 8)]
    pub(crate) value_size: usize,
    /// Nanoseconds added after each fence, 0 for none; all of these are measured on the same medium
    #[arg(long)]
    pub(crate) persist_delay_ns: Option<u64>,
    /// Count persists and flushes too: on a tree of its own in emulated persistent memory, of at most a million keys, so
    /// that counting slows nothing that is measured
    #[arg(long)]
    pub(crate) count: bool,
    /// When an operation on the file medium is durable: immediate, sync (only when asked for), or so many milliseconds
    /// later at most
    #[arg(long, default_value = "immediate", value_parser = parse_durability)]
    pub(crate) durability: Durability,
    /// Writes that each thread has under way before it waits for the oldest; 0 waits for each
    #[arg(long, default_value_t = 0)]
    pub(crate) tickets: usize,
    /// Bytes of the log on the file medium [default: it grows as it does for everybody]
    #[arg(long)]
    pub(crate) log_bytes: Option<u64>,
    /// Microseconds for which a sync on the file medium waits at most for others that are about to come [default: a quarter
    /// of what a sync takes]
    #[arg(long)]
    pub(crate) gather_max_us: Option<u64>,
    /// Keys are the numbers from 0 on, so that neighbours meet in one leaf
    #[arg(long)]
    pub(crate) ordered_keys: bool,
    /// The pool file, which must not exist, and is deleted at the end, with its log [default: a temporary one, in memory if the system has such a folder; with
    /// --medium file in the current folder]
    #[arg(long)]
    pub(crate) pool: Option<PathBuf>,
    /// How lines are stored failure-atomically [default: the best that this processor keeps whole]
    #[arg(long)]
    pub(crate) line_store: Option<LineStore>,
    /// The search kernels: avx512, avx2 or portable [default: the best that this processor has]
    #[arg(long)]
    pub(crate) kernels: Option<Kernels>,
    /// Load the keys that are there before in ascending order at once, leaves this full, from 0.5 to 1, instead of inserting
    /// them one by one
    #[arg(long, value_name = "FILL", value_parser = parse_fill)]
    pub(crate) bulk_load: Option<f64>,
    /// Runs, of which the median counts
    #[arg(long, default_value_t = 5)]
    pub(crate) runs: usize,
    /// Also measure recovery, after a clean close and after a crash
    #[arg(long)]
    pub(crate) recover: bool,
    /// The pages of memory: huge ones where a medium asks for them and the system grants them, or 4 KiB for all, so that
    /// media compare
    #[arg(long, value_enum, default_value = "huge")]
    pub(crate) pages: Pages,
    /// Measure the same on this as well, run by run in turns, and print the ratio
    #[arg(long, value_enum)]
    pub(crate) baseline: Option<BaselineChoice>,
    /// Use the codec for records whatever the sizes
    #[arg(long)]
    pub(crate) records: bool,
    /// Seed of keys and choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Instead compare the four line stores, as a table
    #[arg(long)]
    pub(crate) line_stores: bool,
}

impl Args {
    /// Gives the process the pages that are asked for.
    pub(crate) fn take_pages(&self) -> Result<()> {
        if self.pages == Pages::Small && !medium::disable_huge_pages() {
            return Err(Failure::Usage("--pages 4k: the system has no such switch".to_owned()));
        }
        Ok(())
    }

    /// Has the process search with the kernels that are asked for.
    pub(crate) fn take_kernels(&self) -> Result<()> {
        let install = |kernels: Kernels| kernels.install().map_err(|error| Failure::Usage(error.to_string()));
        self.kernels.map_or(Ok(()), install)
    }

    /// Refuses arguments that make no sense together.
    pub(crate) fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Failure::Usage(what.to_owned()));
        if self.keys < 1000 || self.threads == 0 || self.runs == 0 || self.ops == Some(0) {
            return refuse("a benchmark needs at least 1,000 keys, one thread, one run and one operation");
        }
        if self.withheld() > self.keys / 2 {
            return refuse(
                "these workloads need at least twice as many keys as operations: raise --keys or lower --ops",
            );
        }
        if self.key_size < 2 {
            return refuse("--key-size is at least 2: 1,000 keys do not differ in less");
        }
        self.settings()?;
        if self.recover && (self.medium == MediumChoice::Ram || self.is_transient()) {
            return refuse("--recover needs a file and an engine that can be opened again");
        }
        if self.keys_of_size().is_none() {
            let (keys, size) = (self.keys, self.key_size);
            return refuse(&format!(
                "{keys} keys do not differ in {size} bytes: raise --key-size, or lower --keys to at most {}",
                1_u128 << (8 * size)
            ));
        }
        if self.baseline.is_some() && self.medium == MediumChoice::Ram {
            return refuse("--baseline ram goes with another --medium than ram");
        }
        if !(self.theta > 0.0 && self.theta < 1.0) {
            return refuse("--theta lies between 0 and 1");
        }
        if self.bulk_load.is_some() && self.workload == Workload::Load {
            return refuse(
                "--bulk-load goes with a workload that finds keys in the tree; load inserts them itself",
            );
        }
        if self.persist_delay_ns.is_some() && self.medium != MediumChoice::Dax {
            return refuse("--persist-delay-ns goes with --medium dax");
        }
        Ok(())
    }

    /// The same on memory of this process, if that is asked for.
    pub(crate) fn for_baseline(&self) -> Option<Self> {
        self.baseline.map(|BaselineChoice::Ram| Self {
            medium: MediumChoice::Ram,
            pool: None,
            persist_delay_ns: None,
            line_store: None,
            ..self.clone()
        })
    }

    /// What is set of the engine.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let settings = self.engine.parse_settings(self.set.iter().map(String::as_str));
        settings.map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Whether the tree is one that cannot be opened again.
    pub(crate) fn is_transient(&self) -> bool {
        self.set.iter().any(|set| set == "mode=transient")
    }

    /// The same on fewer keys, with fewer operations in proportion.
    pub(crate) fn for_counting(&self) -> Self {
        let keys = self.keys.min(COUNTED_KEYS_MAX);
        let operations = (u128::from(self.operations()) * u128::from(keys) / u128::from(self.keys)) as u64;
        Self { keys, ops: Some(operations.max(1)), pool: None, medium: MediumChoice::Dax, ..self.clone() }
    }

    /// Operations of a run.
    pub(crate) fn operations(&self) -> u64 {
        match self.workload {
            Workload::Load => self.keys,
            Workload::Scan | Workload::Scan10 | Workload::E => {
                self.ops.unwrap_or((self.keys / 50).clamp(20_000, 200_000))
            }
            _ => self.ops.unwrap_or((self.keys / 10).clamp(100_000, 2_000_000)),
        }
    }

    /// Keys that are left out of the load, to be inserted by a run.
    pub(crate) fn withheld(&self) -> u64 {
        match self.workload {
            Workload::Load => 0,
            Workload::Insert | Workload::Mixed => self.operations(),
            Workload::D | Workload::E => self.operations() / 10,
            workload
                if workload.upserts_percent().is_some() && self.distribution == Distribution::Monotonic =>
            {
                // Half of the operations at most, and what chance adds.
                self.operations() / 2 + self.operations() / 8
            }
            _ => 0,
        }
    }

    /// The keys.
    pub(crate) fn keys_drawn(&self) -> Keys {
        self.keys_of_size().expect("arguments that were validated")
    }

    /// The keys; `None` if so many do not differ in so few bytes.
    fn keys_of_size(&self) -> Option<Keys> {
        let ordered = self.ordered_keys || self.distribution == Distribution::Monotonic;
        let keys = if ordered { Keys::ordered(self.keys) } else { Keys::new(self.keys, self.seed) };
        keys.of_bytes(self.key_size)
    }

    /// Whether keys and values are words.
    pub(crate) fn words(&self) -> bool {
        self.key_size == 8 && self.value_size == 8 && !self.records
    }
}
