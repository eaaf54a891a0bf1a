//! The tree that is measured, whatever its medium and codec.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use engines::bztree::{BzTree, BzTreeOptions};
use engines::index::{Bounds, Codec, Condition, Direction, Index, RecordCodec, WordCodec, WordIndex};
use engines::masstree::{EpochLength, MassTree, MassTreeOptions, Mode, WIDTH, WIDTH_TRANSIENT};
use engines::rntree::{RnTree, RnTreeOptions};
use hdrhistogram::Histogram;
use medium::{Count, Counts, Dax, DaxOptions, Delay, FileOptions, FileStat, Lsn, Medium, Ram};
use pool::{Pool, PoolOptions, TreeRoot};

use super::args::{Args, MediumChoice};
use super::keys::{Keys, Random};
use super::workload::{Script, Step};
use crate::failure::Failure;

/// The most memory that a pool in memory may take.
const RAM_BYTES_MAX: u64 = 1 << 40;
/// The region over which single persists are measured.
const PERSIST_REGION_BYTES: u64 = 512 << 20;
/// Single persists measured.
const PERSISTS: u64 = 200_000;
/// One operation in this many is timed alone.
const SAMPLED: usize = 128;
/// Longer times count as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Finds of one batch.
const BATCH: usize = 16;

/// What a run measured.
pub(crate) struct Measured {
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) counts: Option<Counts>,
}

/// Sizes at the end.
pub(crate) struct Sizes {
    pub(crate) used_bytes: u64,
    pub(crate) volatile_bytes: u64,
    pub(crate) medium: String,
}

/// Times of recovery.
pub(crate) struct Recoveries {
    pub(crate) clean: Duration,
    pub(crate) crash: Duration,
}

/// A tree on some medium.
trait Subject: Send + Sync {
    fn index(&self) -> &dyn Index;
    fn counts(&self) -> Option<Counts>;
    fn sizes(&self) -> Result<Sizes, Failure>;
    fn recover(self: Box<Self>) -> Result<Recoveries, Failure>;
    fn settle(&self, lsn: Lsn) -> Result<(), Failure>;
    fn log(&self) -> Option<FileStat>;
}

type MakeMedium<M> = Box<dyn Fn() -> Result<M, Failure> + Send + Sync>;

/// How an engine makes and opens a tree.
trait Engine<M: Medium>: Send + Sync + 'static {
    type Tree: Index;
    fn create(&self, pool: &Pool<M>) -> pool::Result<Self::Tree>;
    fn open(&self, pool: &Pool<M>, root: &TreeRoot) -> pool::Result<Self::Tree>;
}

struct Rn<C>(PhantomData<fn() -> C>);

impl<M: Medium, C: Codec> Engine<M> for Rn<C>
where
    RnTree<M, C>: Index,
{
    type Tree = RnTree<M, C>;

    fn create(&self, pool: &Pool<M>) -> pool::Result<Self::Tree> {
        RnTree::create(pool, "bench", RnTreeOptions::default())
    }

    fn open(&self, pool: &Pool<M>, root: &TreeRoot) -> pool::Result<Self::Tree> {
        RnTree::open(pool, root, RnTreeOptions::default())
    }
}

struct Bz<C>(PhantomData<fn() -> C>);

impl<M: Medium, C: Codec> Engine<M> for Bz<C>
where
    BzTree<M, C>: Index,
{
    type Tree = BzTree<M, C>;

    fn create(&self, pool: &Pool<M>) -> pool::Result<Self::Tree> {
        BzTree::create(pool, "bench", BzTreeOptions::default())
    }

    fn open(&self, pool: &Pool<M>, root: &TreeRoot) -> pool::Result<Self::Tree> {
        BzTree::open(pool, root, BzTreeOptions { mark_later: true, ..BzTreeOptions::default() })
    }
}

struct Mass<C, const W: usize>(MassTreeOptions, PhantomData<fn() -> C>);

impl<M: Medium, C: Codec, const W: usize> Engine<M> for Mass<C, W> {
    type Tree = MassTree<M, C, W>;

    fn create(&self, pool: &Pool<M>) -> pool::Result<Self::Tree> {
        MassTree::create(pool, "bench", self.0)
    }

    fn open(&self, pool: &Pool<M>, root: &TreeRoot) -> pool::Result<Self::Tree> {
        // The first time is that after a clean close, the second that after a crash.
        MassTree::open(pool, root, MassTreeOptions { close_cleanly: false, ..self.0 })
    }
}

struct Tree<M: Medium, E: Engine<M>> {
    // Before the pool, which is closed after it.
    tree: E::Tree,
    pool: Pool<M>,
    engine: E,
    make: MakeMedium<M>,
    counts: fn(&M) -> Option<Counts>,
}

fn tree<M: Medium, E: Engine<M>>(
    engine: E,
    make: MakeMedium<M>,
    counts: fn(&M) -> Option<Counts>,
) -> Result<Box<dyn Subject>, Failure> {
    // A pool with a log is left as a kill would leave it.
    let options = PoolOptions { close_on_drop: !M::LATE, ..PoolOptions::default() };
    let pool = Pool::open(make()?, options)?;
    let tree = engine.create(&pool)?;
    Ok(Box::new(Tree { tree, pool, engine, make, counts }))
}

impl<M: Medium, E: Engine<M>> Subject for Tree<M, E> {
    fn index(&self) -> &dyn Index {
        &self.tree
    }

    fn counts(&self) -> Option<Counts> {
        (self.counts)(self.pool.medium())
    }

    fn sizes(&self) -> Result<Sizes, Failure> {
        let volatile_bytes = Index::stat(&self.tree)?.volatile_bytes;
        let medium = self.pool.medium().describe();
        Ok(Sizes { used_bytes: self.pool.stat().used_bytes, volatile_bytes, medium })
    }

    fn settle(&self, lsn: Lsn) -> Result<(), Failure> {
        Ok(self.pool.medium().settle(lsn).map_err(everleaf::Error::from)?)
    }

    fn log(&self) -> Option<FileStat> {
        self.pool.medium().file().map(medium::File::stat)
    }

    fn recover(self: Box<Self>) -> Result<Recoveries, Failure> {
        let Self { pool, tree, engine, make, .. } = *self;
        let mut some_key = Vec::new();
        Index::range(&tree, Bounds::all(), Direction::Forward)?.next_into(&mut some_key, &mut Vec::new())?;
        drop(tree);
        let open = |close_on_drop: bool| -> Result<Duration, Failure> {
            let start = Instant::now();
            let medium = make()?;
            let options = PoolOptions { close_on_drop, read_bitmaps_later: true, ..PoolOptions::default() };
            let pool = Pool::open(medium, options)?;
            let root = pool.trees()?.remove(0);
            let tree = engine.open(&pool, &root)?;
            tree.get(&some_key)?;
            let elapsed = start.elapsed();
            // What a store does beside the trees at work.
            pool.read_bitmaps()?;
            if pool.needs_mark() && tree.mark(&|| true)? {
                pool.finish_marking();
            }
            drop(tree);
            Ok(elapsed)
        };
        if M::LATE {
            // As after a kill, with all that is in the log.
            drop(pool);
            let crash = open(true)?;
            return Ok(Recoveries { clean: open(true)?, crash });
        }
        pool.close()?;
        // The first is left unclean, so that the second follows a crash.
        let clean = open(false)?;
        let crash = open(true)?;
        Ok(Recoveries { clean, crash })
    }
}

/// A file that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(log_of(&self.0));
    }
}

/// The tree that is measured, and its file.
pub(crate) struct Bench {
    subject: Option<Box<dyn Subject>>,
    scratch: Option<Scratch>,
    folder: PathBuf,
    sizes: (usize, usize),
    tickets: usize,
}

fn log_of(pool: &Path) -> PathBuf {
    let mut name = pool.as_os_str().to_owned();
    name.push(".log");
    name.into()
}

fn new_file_medium(path: &Path, args: &Args) -> Result<medium::File, Failure> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(Failure::io(format!("open {}", path.display())))?;
    let default = FileOptions::default();
    let options = FileOptions {
        durability: args.durability,
        log_bytes: args.log_bytes.unwrap_or(default.log_bytes),
        log_bytes_max: args.log_bytes.unwrap_or(default.log_bytes_max),
        mark_offset: pool::MEDIUM_LINE,
        ..default
    };
    Ok(medium::File::beside(file, &log_of(path), options).map_err(everleaf::Error::from)?)
}

/// Memory-backed if there is such a folder.
fn default_folder() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() }
}

fn new_file(path: &Path) -> Result<File, Failure> {
    let open = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    open.map_err(Failure::io(format!("create {}", path.display())))
}

pub(crate) fn dax_options(args: &Args) -> Result<DaxOptions, Failure> {
    let options = DaxOptions::default();
    let line_store = args.line_store.unwrap_or(options.line_store);
    if !line_store.is_supported() {
        return Err(Failure::Usage(format!("this processor has no {}", line_store.name())));
    }
    Ok(DaxOptions { line_store, ..options })
}

impl Bench {
    /// An empty tree.
    pub(crate) fn create(args: &Args) -> Result<Self, Failure> {
        Self::new(args, false)
    }

    /// An empty tree in emulated persistent memory that counts what reaches it.
    pub(crate) fn create_counted(args: &Args) -> Result<Self, Failure> {
        Self::new(args, true)
    }

    fn new(args: &Args, counted: bool) -> Result<Self, Failure> {
        let kind = if counted { "counted" } else { "pool" };
        let name = format!("everleaf-bench-{}.{kind}", std::process::id());
        let on_file = args.medium == MediumChoice::File;
        let default = if on_file { PathBuf::from(".") } else { default_folder() };
        let path = args.pool.clone().unwrap_or_else(|| default.join(name));
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        let sizes = (args.key_size, args.value_size);
        let ram = args.medium == MediumChoice::Ram;
        let scratch = if ram {
            None
        } else {
            drop(new_file(&path)?);
            Some(Scratch(path.clone()))
        };
        let options = dax_options(args)?;
        let path_of_pool = path.clone();
        let dax = move || -> Result<Dax, Failure> {
            let file = OpenOptions::new().read(true).write(true).open(&path);
            let file = file.map_err(Failure::io(format!("open {}", path.display())))?;
            Ok(Dax::new(file, options).map_err(medium::MediumError::from).map_err(everleaf::Error::from)?)
        };
        let ns = args.persist_delay_ns;
        let file_args = (path_of_pool, args.clone());
        let subject = match args.medium {
            _ if counted => {
                by_codec(args, Box::new(move || Ok(Count::new(dax()?))), |count| Some(count.counts()))?
            }
            MediumChoice::File => {
                by_codec(args, Box::new(move || new_file_medium(&file_args.0, &file_args.1)), |_| None)?
            }
            MediumChoice::Ram => by_codec(args, Box::new(new_ram), |_| None)?,
            MediumChoice::Dax if ns > 0 => {
                by_codec(args, Box::new(move || Ok(Delay::new(dax()?, ns))), |_| None)?
            }
            MediumChoice::Dax => by_codec(args, Box::new(dax), |_| None)?,
        };
        Ok(Self { subject: Some(subject), scratch, folder, sizes, tickets: args.tickets })
    }

    fn tree(&self) -> &dyn Subject {
        self.subject.as_deref().expect("only `recover` takes the tree")
    }

    /// Where the pool lies.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Figures of the log, if there is one.
    pub(crate) fn log(&self) -> Option<FileStat> {
        self.tree().log()
    }

    /// Returns when everything up to `lsn` is durable.
    pub(crate) fn settle(&self, lsn: Lsn) -> Result<(), Failure> {
        self.tree().settle(lsn)
    }

    /// The tree's operations.
    pub(crate) fn subject(&self) -> Operations<'_> {
        let index = self.tree().index();
        Operations {
            index,
            words: index.words(),
            sizes: self.sizes,
            subject: self.tree(),
            tickets: self.tickets,
        }
    }

    /// Inserts the first `count` keys, on all threads.
    pub(crate) fn load(&mut self, args: &Args, keys: &Keys, count: u64) -> Result<(), Failure> {
        if args.workload == super::args::Workload::Load {
            return Ok(());
        }
        let load = |thread: u64| -> Result<(), Failure> {
            let subject = self.subject();
            let (loaded, lsn) = medium::deferred(|| {
                (thread..count).step_by(args.threads).try_for_each(|index| {
                    let key = keys.key(index);
                    subject.insert(key, key).map(|_| ())
                })
            });
            loaded.and_then(|()| self.settle(lsn))
        };
        let load = &load;
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..args.threads as u64).map(|thread| scope.spawn(move || load(thread))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a loader panicked"))
        })
    }

    /// Runs a script and measures it.
    pub(crate) fn measure(&self, args: &Args, script: &Script) -> Result<Measured, Failure> {
        let before = self.tree().counts();
        let barrier = Barrier::new(script.threads.len() + 1);
        let (results, elapsed) = std::thread::scope(|scope| {
            let barrier = &barrier;
            let workers: Vec<_> = script
                .threads
                .iter()
                .enumerate()
                .map(|(thread, steps)| {
                    let subject = self.subject();
                    scope.spawn(move || {
                        barrier.wait();
                        match &script.finds {
                            Some(finds) if script.batched => subject.run_batched(&finds[thread]),
                            Some(finds) => subject.run_finds(&finds[thread]),
                            None if subject.tickets > 0 => subject.run_ticketed(steps),
                            None => subject.run(steps),
                        }
                    })
                })
                .collect();
            barrier.wait();
            let start = Instant::now();
            let results: Vec<_> =
                workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).collect();
            (results, start.elapsed())
        });
        let mut latency_ns = histogram();
        for result in results {
            latency_ns.add(result?).expect("histograms of one shape");
        }
        let counts = self.tree().counts().zip(before).map(|(after, before)| after - before);
        let operations = script.threads.iter().map(|steps| steps.len() as u64).sum();
        debug_assert!(args.threads > 0);
        Ok(Measured { operations, elapsed, latency_ns, counts })
    }

    /// The time of one persist to a random line, on the same medium.
    pub(crate) fn persist_ns(&self, args: &Args) -> Result<f64, Failure> {
        if args.medium != MediumChoice::Dax {
            return Ok(0.0);
        }
        let path = self.folder.join(format!("everleaf-bench-{}.region", std::process::id()));
        let file = new_file(&path)?;
        let _scratch = Scratch(path);
        let dax = Dax::new(file, dax_options(args)?).map_err(medium::MediumError::from);
        let dax = dax.map_err(everleaf::Error::from)?;
        let region = Delay::new(dax, args.persist_delay_ns);
        region.grow(PERSIST_REGION_BYTES).map_err(everleaf::Error::from)?;
        let guard = medium::Guard::new(&region);
        let mut random = Random::new(args.seed);
        let mut persist = |count: u64| -> Result<f64, Failure> {
            let start = Instant::now();
            for _ in 0..count {
                let offset = random.below(PERSIST_REGION_BYTES / 64) * 64;
                let words = guard.words(offset, 1).map_err(everleaf::Error::from)?;
                words[0].publish(&guard, offset);
                guard.fence();
            }
            Ok(start.elapsed().as_nanos() as f64 / count as f64)
        };
        // Every page is touched before the measurement.
        for offset in (0..PERSIST_REGION_BYTES).step_by(4096) {
            guard.words(offset, 1).map_err(everleaf::Error::from)?[0].store(&guard, 1);
        }
        let mut times = (0..5).map(|_| persist(PERSISTS)).collect::<Result<Vec<_>, _>>()?;
        times.sort_by(f64::total_cmp);
        Ok(times[2])
    }

    /// What the engine counted since it was opened.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.tree().index().counters()
    }

    pub(crate) fn sizes(&self) -> Result<Sizes, Failure> {
        self.tree().sizes()
    }

    /// Closes the tree, which ends the measurement; where it lies, until this is dropped.
    pub(crate) fn close(&mut self) -> Option<&Path> {
        self.subject = None;
        self.scratch.as_ref().map(|scratch| &*scratch.0)
    }

    /// Times recovery, which ends the measurement.
    pub(crate) fn recover(&mut self) -> Result<Recoveries, Failure> {
        if self.scratch.is_none() {
            return Err(Failure::Usage("--recover needs --medium dax: nothing is left of memory".to_owned()));
        }
        self.subject.take().expect("only `recover` takes the tree").recover()
    }
}

fn new_ram() -> Result<Ram, Failure> {
    Ok(Ram::new(RAM_BYTES_MAX).map_err(medium::MediumError::from).map_err(everleaf::Error::from)?)
}

fn by_codec<M: Medium>(
    args: &Args,
    make: MakeMedium<M>,
    counts: fn(&M) -> Option<Counts>,
) -> Result<Box<dyn Subject>, Failure> {
    if args.words() {
        by_engine::<M, WordCodec>(args, make, counts)
    } else {
        by_engine::<M, RecordCodec>(args, make, counts)
    }
}

fn by_engine<M: Medium, C: Codec>(
    args: &Args,
    make: MakeMedium<M>,
    counts: fn(&M) -> Option<Counts>,
) -> Result<Box<dyn Subject>, Failure>
where
    RnTree<M, C>: Index,
    BzTree<M, C>: Index,
{
    let epoch = EpochLength::Every(Duration::from_millis(args.epoch_ms));
    let mass = |mode| MassTreeOptions { epoch, mode, ..MassTreeOptions::default() };
    match args.engine.as_str() {
        "masstree" => tree(Mass::<C, WIDTH>(mass(Mode::InLine), PhantomData), make, counts),
        "masstree-logging" => tree(Mass::<C, WIDTH>(mass(Mode::Logging), PhantomData), make, counts),
        "masstree-transient" => {
            tree(Mass::<C, WIDTH_TRANSIENT>(mass(Mode::Transient), PhantomData), make, counts)
        }
        "bztree" => tree(Bz::<C>(PhantomData), make, counts),
        _ => tree(Rn::<C>(PhantomData), make, counts),
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("three digits are fine")
}

/// Operations on 64-bit keys, which are padded to the sizes asked for.
#[derive(Clone, Copy)]
pub(crate) struct Operations<'t> {
    index: &'t dyn Index,
    words: Option<&'t dyn WordIndex>,
    sizes: (usize, usize),
    subject: &'t dyn Subject,
    tickets: usize,
}

pub(crate) fn padded(word: u64, bytes: usize) -> Vec<u8> {
    let mut padded = word.to_be_bytes().to_vec();
    padded.resize(bytes, b'.');
    padded
}

impl Operations<'_> {
    fn write(&self, key: u64, value: Option<u64>, absent: bool) -> Result<bool, Failure> {
        if let Some(words) = self.words {
            let condition = if absent { Condition::Absent } else { Condition::Always };
            return Ok(words.write(key, value, condition)?);
        }
        let condition = if absent { Condition::Absent } else { Condition::Always };
        let value = value.map(|value| padded(value, self.sizes.1));
        Ok(self.index.write(&padded(key, self.sizes.0), value.as_deref(), condition)?)
    }

    pub(crate) fn insert(&self, key: u64, value: u64) -> Result<bool, Failure> {
        self.write(key, Some(value), true)
    }

    pub(crate) fn put(&self, key: u64, value: u64) -> Result<bool, Failure> {
        self.write(key, Some(value), false)
    }

    pub(crate) fn remove(&self, key: u64) -> Result<bool, Failure> {
        self.write(key, None, false)
    }

    fn update(&self, key: u64, value: u64) -> Result<bool, Failure> {
        match self.words {
            Some(words) => Ok(words.write(key, Some(value), Condition::Present)?),
            None => Ok(self.index.update(&padded(key, self.sizes.0), &padded(value, self.sizes.1))?),
        }
    }

    fn find(&self, key: u64, buffer: &mut Vec<u8>) -> Result<u64, Failure> {
        match self.words {
            Some(words) => Ok(words.get(key)?.unwrap_or_default()),
            None => Ok(u64::from(self.index.get_into(&padded(key, self.sizes.0), buffer)?)),
        }
    }

    fn scan(&self, from: u64, entries: u32) -> Result<u64, Failure> {
        let (mut sum, mut left) = (0_u64, entries);
        if let Some(words) = self.words {
            words.scan_each(from, |key, value| {
                sum = sum.wrapping_add(key ^ value);
                left -= 1;
                left > 0
            })?;
            return Ok(sum);
        }
        let lower = std::ops::Bound::Included(padded(from, self.sizes.0));
        let bounds = Bounds { lower, upper: std::ops::Bound::Unbounded };
        let mut scan = self.index.range(bounds, Direction::Forward)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while left > 0 && scan.next_into(&mut key, &mut value)? {
            sum = sum.wrapping_add(key.len() as u64 + u64::from(value[0]));
            left -= 1;
        }
        Ok(sum)
    }

    fn run(&self, steps: &[Step]) -> Result<Histogram<u64>, Failure> {
        let mut latency_ns = histogram();
        let (mut sum, mut buffer) = (0_u64, Vec::new());
        for chunk in steps.chunks(SAMPLED) {
            let start = Instant::now();
            sum = sum.wrapping_add(self.step(chunk[0], &mut buffer)?);
            latency_ns.saturating_record(start.elapsed().as_nanos() as u64);
            for step in &chunk[1..] {
                sum = sum.wrapping_add(self.step(*step, &mut buffer)?);
            }
        }
        std::hint::black_box(sum);
        Ok(latency_ns)
    }

    /// As `run`, with writes under way; the time of one is from its call until it is known to be durable.
    fn run_ticketed(&self, steps: &[Step]) -> Result<Histogram<u64>, Failure> {
        let mut latency_ns = histogram();
        let (mut sum, mut buffer, mut under_way) = (0_u64, Vec::new(), VecDeque::new());
        let mut wait = |(lsn, start): (Lsn, Instant)| -> Result<(), Failure> {
            self.subject.settle(lsn)?;
            latency_ns.saturating_record(start.elapsed().as_nanos() as u64);
            Ok(())
        };
        for step in steps {
            if under_way.len() == self.tickets {
                under_way.pop_front().map_or(Ok(()), &mut wait)?;
            }
            let start = Instant::now();
            let (done, lsn) = medium::deferred(|| self.step(*step, &mut buffer));
            sum = sum.wrapping_add(done?);
            under_way.push_back((lsn, start));
        }
        under_way.into_iter().try_for_each(wait)?;
        std::hint::black_box(sum);
        Ok(latency_ns)
    }

    fn step(&self, step: Step, buffer: &mut Vec<u8>) -> Result<u64, Failure> {
        Ok(match step {
            Step::Find(key) => self.find(key, buffer)?,
            Step::Insert(key) => u64::from(self.insert(key, key)?),
            Step::Update(key) => u64::from(self.update(key, key)?),
            Step::Remove(key) => u64::from(self.remove(key)?),
            Step::Scan(key, entries) => self.scan(key, entries)?,
            Step::Put(key) => u64::from(self.put(key, key)?),
            Step::ReadModifyWrite(key) => {
                let value = self.find(key, buffer)?;
                u64::from(self.update(key, value.wrapping_add(1))?)
            }
        })
    }

    fn run_finds(&self, keys: &[u64]) -> Result<Histogram<u64>, Failure> {
        let mut latency_ns = histogram();
        let (mut sum, mut buffer) = (0_u64, Vec::new());
        for chunk in keys.chunks(SAMPLED) {
            let start = Instant::now();
            sum = sum.wrapping_add(self.find(chunk[0], &mut buffer)?);
            latency_ns.saturating_record(start.elapsed().as_nanos() as u64);
            if let Some(words) = self.words {
                for key in &chunk[1..] {
                    sum = sum.wrapping_add(words.get(*key)?.unwrap_or_default());
                }
            } else {
                for key in &chunk[1..] {
                    sum = sum.wrapping_add(self.find(*key, &mut buffer)?);
                }
            }
        }
        std::hint::black_box(sum);
        Ok(latency_ns)
    }

    fn run_batched(&self, keys: &[u64]) -> Result<Histogram<u64>, Failure> {
        let mut latency_ns = histogram();
        let mut values = [None; BATCH];
        for keys in keys.chunks(BATCH) {
            let start = Instant::now();
            if let Some(words) = self.words {
                words.get_many(keys, &mut values[..keys.len()])?;
            } else {
                let padded: Vec<_> = keys.iter().map(|key| padded(*key, self.sizes.0)).collect();
                let slices: Vec<&[u8]> = padded.iter().map(Vec::as_slice).collect();
                std::hint::black_box(self.index.get_many(&slices)?);
            }
            latency_ns.saturating_record(start.elapsed().as_nanos() as u64);
            std::hint::black_box(&values);
        }
        Ok(latency_ns)
    }
}
