//! The arguments of `bench`.

use std::path::PathBuf;

use clap::ValueEnum;
use everleaf::{Engine, Settings};
use medium::SmallPages;
use medium::kernels::Kernels;
use medium::{Durability, LineStore};

use super::key_shape::KeyShape;
use super::keys::Keys;
use terminal::failure::{Failure, Result};
use terminal::values::{any_of, engine_of, parse_durability, parse_fill};

/// The most keys of a tree on which persists are counted.
const COUNTED_KEYS_MAX: u64 = 1_000_000;
/// More threads than any machine has cores for measure nothing.
const THREADS_MAX: usize = 1024;
/// Bytes of a random key, if none are asked for.
const KEY_SIZE: usize = 8;
/// Keys whose mean length stands for that of all.
const KEYS_SAMPLED: u64 = 10_000;

/// The workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Workload {
    /// Inserts into an empty tree
    Load,
    /// Inserts into a tree of --keys keys
    Insert,
    /// Point reads of present keys
    Find,
    /// Point reads, 16 at a time
    #[value(name = "get_many")]
    GetMany,
    /// Updates of present keys
    Update,
    /// Removes of present keys
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
    /// YCSB-D: 95% reads of the latest keys, 5% inserts
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
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The letter of a workload of YCSB.
    pub(crate) fn ycsb(self) -> Option<char> {
        match self {
            Self::A => Some('A'),
            Self::B => Some('B'),
            Self::C => Some('C'),
            Self::D => Some('D'),
            Self::E => Some('E'),
            Self::F => Some('F'),
            _ => None,
        }
    }

    /// Whether its operations choose among the keys of the tree, by a distribution.
    pub(crate) fn chooses_keys(self) -> bool {
        !matches!(self, Self::Load | Self::Insert | Self::Remove)
    }

    /// Whether a run only adds keys to the tree.
    pub(crate) fn only_adds(self) -> bool {
        matches!(self, Self::Load | Self::Insert | Self::D | Self::E)
    }

    /// The percentage of upserts, for workloads whose other operations are reads.
    pub(crate) fn upserts_percent(self) -> Option<u64> {
        match self {
            Self::ReadMostly | Self::ScanMostly => Some(10),
            Self::ReadHeavy => Some(25),
            Self::Balanced | Self::ScanBalanced => Some(50),
            _ => None,
        }
    }
}

/// The distribution of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Distribution {
    /// All keys equally often
    Uniform,
    /// Some much more often (scrambled, as in YCSB)
    Zipfian,
    /// Those inserted last more often
    Latest,
    /// In ascending order
    Sequential,
    /// In ascending order; keys are the numbers from 0 on, and upserts add keys above all others
    Monotonic,
}

impl Distribution {
    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The medium of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PoolMedium {
    /// The one that an open would take: dax if the file system grants MAP_SYNC, else file
    Auto,
    /// Memory of this process
    Ram,
    /// A mapped file with cache-line flushes: persistent memory, or its emulation
    Dax,
    /// A file with a log of lines beside it, on the disk
    File,
}

/// The size of the process's memory pages.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageSize {
    /// 2 MiB where the medium asks for them
    Huge,
    /// 4 KiB
    #[value(name = "4k")]
    Small,
}

impl PageSize {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        if self == Self::Huge { "huge" } else { "4k" }
    }
}

/// The tree to compare with.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BaselineChoice {
    /// The same engine in memory of this process
    Ram,
}

/// Measure throughput, latency, persists and memory
#[derive(clap::Args, Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct Args {
    /// The engine
    #[arg(long, value_name = "NAME", default_value = "rntree", value_parser = engine_of(crate::ENGINES))]
    pub(crate) engine: Engine,
    /// A setting of the engine, such as leaf-entries=16; `everleaf engines` lists them
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// How long an epoch of masstree lasts, in milliseconds
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epoch_ms: u64,
    /// The medium
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) medium: PoolMedium,
    /// Keys in the tree
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) keys: u64,
    /// Operations of a run, over all threads [default: a tenth of the keys, but 100,000 to
    /// 2,000,000]
    #[arg(long)]
    pub(crate) ops: Option<u64>,
    /// Threads
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// The workload
    #[arg(long, value_enum, default_value = "find")]
    pub(crate) workload: Workload,
    /// The distribution of keys [default: zipfian for the workloads of YCSB, but latest for D;
    /// uniform for all others]
    #[arg(long, value_enum)]
    pub(crate) distribution: Option<Distribution>,
    /// Skew of the zipfian distribution, 0 to 1 exclusive
    #[arg(long, default_value_t = 0.99)]
    pub(crate) theta: f64,
    /// The shape of keys; all but random need a tree of records
    #[arg(long, value_enum, value_name = "SHAPE", default_value = "random")]
    pub(crate) key_shape: KeyShape,
    /// Bytes of a random key, enough to tell all keys apart; keys and values of 8 bytes select the
    /// codec for words [default: 8]
    #[arg(long)]
    pub(crate) key_size: Option<usize>,
    /// Bytes of a value
    #[arg(long, default_value_t = 8)]
    pub(crate) value_size: usize,
    /// Nanoseconds added after each fence; 0 adds none, but uses the same instrumented medium
    #[arg(long)]
    pub(crate) persist_delay_ns: Option<u64>,
    /// Also count persists and flushes, on another tree of at most a million keys in emulated
    /// persistent memory, so that counting does not slow the timed runs
    #[arg(long)]
    pub(crate) count: bool,
    /// When an operation on the file medium is durable: immediate, sync (only at a sync), or a
    /// number of milliseconds (at most this much later)
    #[arg(long, default_value = "immediate", value_parser = parse_durability)]
    pub(crate) durability: Durability,
    /// Writes that each thread may have under way before it waits for the oldest; 0 waits for each
    #[arg(long, default_value_t = 0)]
    pub(crate) tickets: usize,
    /// Bytes of the log on the file medium [default: it grows with the pool]
    #[arg(long)]
    pub(crate) log_bytes: Option<u64>,
    /// The most microseconds for which a sync on the file medium waits for further writes [default:
    /// a quarter of the time of a sync]
    #[arg(long)]
    pub(crate) gather_max_us: Option<u64>,
    /// Use the numbers from 0 on as keys, so that neighbours are in one leaf
    #[arg(long)]
    pub(crate) ordered_keys: bool,
    /// The pool file, which must not exist; it is deleted at the end, with its log [default: a
    /// temporary file in the current folder; with --medium dax, in /dev/shm, if there is one]
    #[arg(long)]
    pub(crate) pool: Option<PathBuf>,
    /// The failure-atomic line store [default: the best one of this processor]
    #[arg(long, value_parser = any_of::<LineStore, _>(LineStore::all().map(LineStore::name)))]
    pub(crate) line_store: Option<LineStore>,
    /// The search kernels [default: the best ones of this processor]
    #[arg(long, value_parser = any_of::<Kernels, _>(Kernels::all().map(Kernels::name)))]
    pub(crate) kernels: Option<Kernels>,
    /// Bulk-load the initial keys with this fill factor of leaves, from 0.5 to 1, instead of
    /// inserting them one by one
    #[arg(long, value_name = "FILL", value_parser = parse_fill)]
    pub(crate) bulk_load: Option<f64>,
    /// Number of runs; the result is their median
    #[arg(long, default_value_t = 5)]
    pub(crate) runs: usize,
    /// Also measure recovery, after a clean close and after a crash
    #[arg(long)]
    pub(crate) recover: bool,
    /// Threads that recover a tree; all cores, if none are named.
    #[arg(skip)]
    pub(crate) recovery_threads: Option<usize>,
    /// The memory pages: huge ones if the medium asks for them and the system grants them, or 4 KiB
    /// for all, to compare media
    #[arg(long, value_enum, default_value = "huge")]
    pub(crate) pages: PageSize,
    /// Also measure this tree, run by run in turns, and print the ratio
    #[arg(long, value_enum)]
    pub(crate) baseline: Option<BaselineChoice>,
    /// Use the codec for records for all sizes
    #[arg(long)]
    pub(crate) records: bool,
    /// Read records without their check (`Options::verify(false)`)
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Seed of keys and choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Compare the four line stores instead, and print a table
    #[arg(long)]
    pub(crate) line_stores: bool,
}

impl Args {
    /// The distribution of keys: the one that was asked for, or else the workload's own.
    pub(crate) fn distribution(&self) -> Distribution {
        match (self.distribution, self.workload) {
            (Some(distribution), _) => distribution,
            (None, Workload::D) => Distribution::Latest,
            (None, workload) if workload.ycsb().is_some() => Distribution::Zipfian,
            (None, _) => Distribution::Uniform,
        }
    }

    /// Sets the size of the process's memory pages, for as long as the result lives.
    pub(crate) fn take_pages(&self) -> Result<Option<SmallPages>> {
        match self.pages {
            PageSize::Huge => Ok(None),
            PageSize::Small => match SmallPages::take() {
                Some(pages) => Ok(Some(pages)),
                None => Err(Failure::Usage(
                    "--pages 4k: the system has no such switch".to_owned(),
                )),
            },
        }
    }

    /// Selects the search kernels.
    pub(crate) fn take_kernels(&self) -> Result<()> {
        let install = |kernels: Kernels| {
            kernels
                .install()
                .map_err(|error| Failure::Usage(error.to_string()))
        };
        self.kernels.map_or(Ok(()), install)
    }

    /// Refuses arguments that contradict each other.
    pub(crate) fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Failure::Usage(what.to_owned()));
        if self.keys < 1000 || self.threads == 0 || self.runs == 0 || self.ops == Some(0) {
            return refuse(
                "a benchmark needs at least 1,000 keys, one thread, one run and one operation",
            );
        }
        if self.threads > THREADS_MAX {
            return refuse(&format!("--threads is at most {THREADS_MAX}"));
        }
        if self.withheld() > self.keys / 2 {
            return refuse(
                "these workloads need at least twice as many keys as operations: raise --keys or lower --ops",
            );
        }
        self.validate_keys()?;
        self.settings()?;
        if self.recover && (self.medium == PoolMedium::Ram || self.is_transient()) {
            return refuse(
                "--recover needs a tree that can be opened again: not --medium ram, nor a transient mode of the engine",
            );
        }
        if self.baseline.is_some() && self.medium == PoolMedium::Ram {
            return refuse("--baseline ram goes with another --medium than ram");
        }
        if !(self.theta > 0.0 && self.theta < 1.0) {
            return refuse("--theta must be above 0 and below 1");
        }
        if self.bulk_load.is_some() && self.workload == Workload::Load {
            return refuse(
                "--bulk-load goes with a workload that finds keys in the tree; load inserts them itself",
            );
        }
        if self.persist_delay_ns.is_some() && self.medium != PoolMedium::Dax {
            return refuse("--persist-delay-ns goes with --medium dax");
        }
        Ok(())
    }

    /// Refuses keys that contradict the tree, or that cannot all be distinct.
    fn validate_keys(&self) -> Result<()> {
        let refuse = |what: &str| Err(Failure::Usage(what.to_owned()));
        let keys = self.keys;
        if self.key_shape == KeyShape::Random {
            let size = self.key_size();
            if size < 2 {
                return refuse("--key-size must be at least 2, to tell 1,000 keys apart");
            }
            if self.distinct_keys().is_none() {
                return refuse(&format!(
                    "{size} bytes do not tell {keys} keys apart: raise --key-size, or lower --keys to at most {}",
                    1_u128 << (8 * size)
                ));
            }
            return Ok(());
        }
        let shape = self.key_shape.name();
        if self.key_size.is_some() {
            return refuse(&format!(
                "--key-size goes with random keys; those of --key-shape {shape} have lengths of their own: leave out \
                 one of the two"
            ));
        }
        if self.words() {
            return refuse(&format!(
                "--key-shape {shape} is for trees of records, and values of 8 bytes select the codec for words: add \
                 --records, or another --value-size; and the same to a run with random keys that you compare with"
            ));
        }
        if self.distinct_keys().is_none() {
            return refuse(&format!(
                "there are no {keys} different keys of the shape {shape}: lower --keys to at most {}",
                1_u128 << self.key_shape.bits()
            ));
        }
        Ok(())
    }

    /// The same arguments for a tree in memory of this process, if that is to be measured.
    pub(crate) fn for_baseline(&self) -> Option<Self> {
        self.baseline.map(|BaselineChoice::Ram| Self {
            medium: PoolMedium::Ram,
            pool: None,
            persist_delay_ns: None,
            line_store: None,
            ..self.clone()
        })
    }

    /// The settings of the engine.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let settings = self
            .engine
            .parse_settings(self.set.iter().map(String::as_str));
        settings.map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Whether the tree is one that cannot be opened again.
    pub(crate) fn is_transient(&self) -> bool {
        self.set.iter().any(|set| set == "mode=transient")
    }

    /// These arguments with fewer keys, and fewer operations in proportion.
    pub(crate) fn for_counting(&self) -> Self {
        let keys = self.keys.min(COUNTED_KEYS_MAX);
        let operations =
            (u128::from(self.operations()) * u128::from(keys) / u128::from(self.keys)) as u64;
        Self {
            keys,
            ops: Some(operations.max(1)),
            pool: None,
            medium: PoolMedium::Dax,
            ..self.clone()
        }
    }

    /// Operations of a run.
    pub(crate) fn operations(&self) -> u64 {
        match self.workload {
            Workload::Load => self.keys,
            Workload::Scan | Workload::Scan10 | Workload::E => {
                self.ops.unwrap_or((self.keys / 50).clamp(20_000, 200_000))
            }
            // These workloads may add half as many keys as the tree has.
            Workload::Insert | Workload::Mixed => self.ops.unwrap_or(
                (self.keys / 10)
                    .clamp(100_000, 2_000_000)
                    .min(self.keys / 2),
            ),
            _ => self
                .ops
                .unwrap_or((self.keys / 10).clamp(100_000, 2_000_000)),
        }
    }

    /// The number of keys that the load leaves out, for a run to insert.
    pub(crate) fn withheld(&self) -> u64 {
        match self.workload {
            Workload::Load => 0,
            Workload::Insert | Workload::Mixed => self.operations(),
            Workload::D | Workload::E => self.operations() / 10,
            workload
                if workload.upserts_percent().is_some()
                    && self.distribution() == Distribution::Monotonic =>
            {
                // Half of the operations, and some more, as they are drawn at random.
                self.operations() / 2 + self.operations() / 8
            }
            _ => 0,
        }
    }

    /// The keys.
    pub(crate) fn keys_drawn(&self) -> Keys {
        self.distinct_keys().expect("arguments that were validated")
    }

    /// The keys; `None` if this many keys cannot all be distinct.
    fn distinct_keys(&self) -> Option<Keys> {
        let ordered = self.ordered_keys
            || self.distribution() == Distribution::Monotonic
            || self.key_shape.is_ascending();
        let keys = if ordered {
            Keys::ordered(self.keys)
        } else {
            Keys::new(self.keys, self.seed)
        };
        match self.key_shape {
            KeyShape::Random => keys.of_bytes(self.key_size()),
            shape => keys.of_bits(shape.bits()),
        }
    }

    /// Bytes of a random key.
    pub(crate) fn key_size(&self) -> usize {
        self.key_size.unwrap_or(KEY_SIZE)
    }

    /// The mean length of a key in bytes.
    pub(crate) fn key_bytes_mean(&self) -> f64 {
        if self.key_shape == KeyShape::Random {
            return self.key_size() as f64;
        }
        let drawn = self.keys_drawn();
        let count = self.keys.min(KEYS_SAMPLED);
        let mut bytes = 0;
        for index in 0..count {
            bytes += self.key_shape.key(drawn.key(index)).len();
        }
        bytes as f64 / count as f64
    }

    /// Whether keys and values are words.
    pub(crate) fn words(&self) -> bool {
        self.key_size() == 8 && self.value_size == 8 && !self.records
    }
}

#[cfg(test)]
mod tests;
