//! The tree under measurement, for every engine, medium and codec.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engines::index::{
    Bounds, Condition, Direction, EpochStat, Index, IndexStat, Profile, WordIndex,
};
use everleaf::{CodecKind, Options, Pending, Replay, Store, Tree, TreeOptions};
use hdrhistogram::Histogram;
use medium::{Counts, Dax, DaxOptions, FileStat, Instrumented, Medium};
use smallvec::SmallVec;

use super::args::{Args, PoolMedium};
use super::epochs::{Touches, first_touches};
use super::key_shape::KeyShape;
use super::keys::{Keys, Random};
use super::workload::{Script, Stamps, WorkloadStep, updated};
use crate::comparison::median;
use crate::notes::NoteReceiver;
use terminal::failure::{Failure, Result};
use terminal::temporary::Scratch;

use super::scratch::new_scratch;

/// The tree's name in its pool.
pub(crate) const NAME: &str = "bench";
/// The region over which single persists are measured.
const PERSIST_REGION_BYTES: u64 = 512 << 20;
/// Single persists measured.
const PERSISTS: u64 = 200_000;
/// One operation in this many is timed alone.
const SAMPLED: usize = 128;
/// Longer times are recorded as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Finds of one batch.
const BATCH: usize = 16;

/// Trees that this process has made: each has a file of its own.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// The result of a run.
pub(crate) struct Measurement {
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) counts: Option<Counts>,
}

impl Measurement {
    /// Nanoseconds of one operation.
    pub(crate) fn ns(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.operations as f64
    }
}

/// Sizes at the end.
pub(crate) struct TreeSizes {
    pub(crate) keys: u64,
    pub(crate) used_bytes: u64,
    pub(crate) volatile_bytes: u64,
    pub(crate) medium: String,
}

/// Times of recovery.
pub(crate) struct Recoveries {
    pub(crate) clean: Duration,
    pub(crate) crash: Duration,
    /// The replay of the log after the crash, on the file medium.
    pub(crate) replay: Option<Replay>,
    /// Nodes restored from an external log after the crash, for engines with epochs.
    pub(crate) nodes_restored: Option<u64>,
}

/// One open: from opening the file to the first answer.
struct Opened {
    elapsed: Duration,
    replay: Option<Replay>,
    nodes_restored: Option<u64>,
}

/// A counter of an engine; 0 if it has no such counter.
pub(crate) fn count_of(counters: &[(&'static str, u64)], name: &str) -> u64 {
    counters
        .iter()
        .find(|(other, _)| *other == name)
        .map_or(0, |(_, count)| *count)
}

/// The tree that is measured, its store, and the file of both.
pub(crate) struct Bench {
    // The tree before its store, the store before its file.
    tree: Option<Tree>,
    store: Option<Store>,
    scratch: Option<Scratch>,
    /// The medium, if it counts or delays fences.
    instrumented: Option<Instrumented>,
    path: PathBuf,
    args: Args,
}

/// A folder in memory, if there is one.
fn default_folder() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        shared.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// The arguments with the medium that an open in this folder would take, if none is named.
pub(crate) fn with_medium(args: &Args) -> Result<Args> {
    if args.medium != PoolMedium::Auto {
        return Ok(args.clone());
    }
    let process = std::process::id();
    let number = CREATED.fetch_add(1, Ordering::Relaxed);
    let pool = match &args.pool {
        Some(pool) => pool.clone(),
        None => PathBuf::from(format!("./everleaf-bench-{process}-{number}.pool")),
    };
    let probe = new_scratch(pool.clone())?;
    let is_durable = Dax::survives_power_loss(&open_file(probe.path())?);
    Ok(Args {
        medium: if is_durable {
            PoolMedium::Dax
        } else {
            PoolMedium::File
        },
        pool: Some(pool),
        ..args.clone()
    })
}

pub(crate) fn open_file(path: &Path) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(Failure::io(format!("open {}", path.display())))
}

pub(crate) fn dax_options(args: &Args) -> Result<DaxOptions> {
    let options = DaxOptions::default();
    let line_store = args.line_store.unwrap_or(options.line_store);
    if !line_store.is_supported() {
        return Err(Failure::Usage(format!(
            "this processor has no {}",
            line_store.name()
        )));
    }
    Ok(DaxOptions {
        line_store,
        ..options
    })
}

fn store_options(args: &Args) -> Result<Options> {
    let medium = match args.medium {
        PoolMedium::Auto => everleaf::MediumChoice::Auto,
        PoolMedium::Ram => everleaf::MediumChoice::Ram,
        PoolMedium::Dax => everleaf::MediumChoice::Dax,
        PoolMedium::File => everleaf::MediumChoice::File,
    };
    let mut options = Store::options()
        .medium(medium)
        .durability(args.durability)
        .epoch(Duration::from_millis(args.epoch_ms))
        .settings(args.engine, args.settings()?)
        .engines(crate::ENGINES)
        .verify(!args.no_verify)
        // A pool with a log is dropped without a clean close.
        .close_cleanly(args.medium != PoolMedium::File);
    if let Some(line_store) = args.line_store {
        options = options.line_store(line_store);
    }
    if let Some(threads) = args.recovery_threads {
        options = options.recovery_threads(threads);
    }
    if let Some(bytes) = args.log_bytes {
        options = options.log_bytes(bytes);
    }
    if let Some(us) = args.gather_max_us {
        options = options.gather_max(Duration::from_micros(us));
    }
    Ok(options)
}

fn new_dax(path: &Path, args: &Args) -> Result<Dax> {
    Ok(Dax::new(open_file(path)?, dax_options(args)?).map_err(everleaf::Error::from)?)
}

fn open_store(path: &Path, args: &Args, options: &Options) -> Result<Store> {
    let Some(delay_ns) = args.persist_delay_ns else {
        return Ok(options.open(path)?);
    };
    Ok(options.open_with(Instrumented::new(new_dax(path, args)?).delayed(delay_ns))?)
}

impl Bench {
    /// An empty tree.
    pub(crate) fn create(args: &Args) -> Result<Self> {
        Self::new(args, false)
    }

    /// An empty tree in emulated persistent memory that counts flushes and fences.
    pub(crate) fn create_counted(args: &Args) -> Result<Self> {
        Self::new(args, true)
    }

    fn new(args: &Args, counted: bool) -> Result<Self> {
        let kind = if counted { "counted" } else { "pool" };
        let process = std::process::id();
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let name = format!("everleaf-bench-{process}-{number}.{kind}");
        let default = if args.medium == PoolMedium::File {
            PathBuf::from(".")
        } else {
            default_folder()
        };
        let path = args.pool.clone().unwrap_or_else(|| default.join(name));
        let scratch = if args.medium == PoolMedium::Ram {
            None
        } else {
            Some(new_scratch(path.clone())?)
        };
        let options = store_options(args)?;
        let instrumented = match args.persist_delay_ns {
            _ if counted => Some(Instrumented::new(new_dax(&path, args)?).counted()),
            Some(delay_ns) => Some(Instrumented::new(new_dax(&path, args)?).delayed(delay_ns)),
            None => None,
        };
        let store = match &instrumented {
            Some(instrumented) => options.open_with(instrumented.clone())?,
            None => options.open(&path)?,
        };
        let codec = if args.words() {
            CodecKind::Word
        } else {
            CodecKind::Record
        };
        let kind = TreeOptions {
            engine: args.engine,
            codec,
            ..TreeOptions::default()
        };
        let tree = store.tree_with(NAME, kind)?;
        Ok(Self {
            tree: Some(tree),
            store: Some(store),
            scratch,
            instrumented,
            path,
            args: args.clone(),
        })
    }

    fn tree(&self) -> &Tree {
        self.tree
            .as_ref()
            .expect("only `close` and `recover` take the tree")
    }

    fn store(&self) -> &Store {
        self.store
            .as_ref()
            .expect("only `close` and `recover` take the store")
    }

    /// A note if the medium is an emulation.
    pub(crate) fn note_medium(&self, notes: NoteReceiver<'_>) {
        notes.note_medium(self.store());
    }

    /// The path of the pool.
    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Figures of the log, if there is one.
    pub(crate) fn log(&self) -> Result<Option<FileStat>> {
        Ok(self.store().stat()?.log)
    }

    /// Runs operations without waiting for each, and then for all of them.
    pub(crate) fn together<T>(&self, run: impl FnOnce(Operations<'_>) -> Result<T>) -> Result<T> {
        let done = run(Operations {
            waits: false,
            ..self.subject()
        })?;
        self.store().sync()?;
        Ok(done)
    }

    /// The tree's operations.
    pub(crate) fn subject(&self) -> Operations<'_> {
        let tree = self.tree();
        let args = &self.args;
        Operations {
            tree,
            index: tree.index(),
            words: tree.index().words(),
            keys: KeyForm::of(args),
            value_size: args.value_size,
            waits: true,
            tickets: args.tickets,
        }
    }

    /// A tree with all keys except those that its runs insert; and all keys.
    pub(crate) fn loaded(args: &Args) -> Result<(Self, Keys)> {
        args.validate()?;
        let keys = args.keys_drawn();
        let mut bench = Self::create(args)?;
        bench.load(args, &keys, args.keys - args.withheld())?;
        Ok((bench, keys))
    }

    /// Loads the first `count` keys: inserts them on all threads, or all at once.
    pub(crate) fn load(&mut self, args: &Args, keys: &Keys, count: u64) -> Result<()> {
        if args.workload == super::args::Workload::Load {
            return Ok(());
        }
        if let Some(fill) = args.bulk_load {
            let mut sorted: Vec<u64> = (0..count).map(|index| keys.key(index)).collect();
            sorted.sort_unstable();
            let form = KeyForm::of(args);
            let entry = |key| (form.bytes(key), padded(key, args.value_size));
            self.tree().bulk_load(sorted.into_iter().map(entry), fill)?;
            return Ok(());
        }
        let load = |thread: u64| -> Result<()> {
            self.together(|subject| {
                (thread..count).step_by(args.threads).try_for_each(|index| {
                    let key = keys.key(index);
                    subject.insert(key, key).map(|_| ())
                })
            })
        };
        on_threads(args.threads, |thread| load(thread as u64))
            .into_iter()
            .collect()
    }

    fn counts(&self) -> Option<Counts> {
        self.instrumented.as_ref().and_then(Instrumented::counts)
    }

    /// Runs a script and measures it: from the first thread's start to the last one's end.
    pub(crate) fn measure(&self, script: &Script) -> Result<Measurement> {
        let before = self.counts();
        let barrier = Barrier::new(script.threads.len());
        let run = |thread: usize| {
            let subject = self.subject();
            barrier.wait();
            // Each thread reads the clock itself: a thread that waits for all of them may be woken
            // late.
            let start = Instant::now();
            let latency_ns = match &script.finds {
                Some(finds) if script.batched => subject.run_batched(&finds[thread]),
                Some(finds) => subject.run_finds(&finds[thread]),
                None if subject.tickets > 0 => {
                    subject.run_ticketed(&script.threads[thread], script.stamps(thread))
                }
                None => subject.run(&script.threads[thread], script.stamps(thread)),
            };
            latency_ns.map(|latency_ns| (start, Instant::now(), latency_ns))
        };
        let mut latency_ns = histogram();
        let mut spans = Vec::new();
        for result in on_threads(script.threads.len(), run) {
            let (start, end, latencies) = result?;
            latency_ns.add(latencies).expect("histograms of one shape");
            spans.push((start, end));
        }
        let start = spans.iter().map(|(start, _)| *start).min();
        let end = spans.iter().map(|(_, end)| *end).max();
        let elapsed = start
            .zip(end)
            .map_or(Duration::ZERO, |(start, end)| end - start);
        let counts = self
            .counts()
            .zip(before)
            .map(|(after, before)| after - before);
        self.verify(script)?;
        let operations = script.threads.iter().map(|steps| steps.len() as u64).sum();
        Ok(Measurement {
            operations,
            elapsed,
            latency_ns,
            counts,
        })
    }

    /// Verifies that keys have the values of their last updates in a script that has just run.
    ///
    /// # Errors
    /// [`Failure::Refused`] if one has another value, or none.
    pub(crate) fn verify(&self, script: &Script) -> Result<()> {
        let subject = self.subject();
        let mut buffer = Vec::new();
        for (key, expected) in script.last_updates() {
            let found = subject.value(key, &mut buffer)?;
            if !found.is_some_and(|found| expected.contains(&found)) {
                let key = KeyForm::of(&self.args).shown(key);
                return Err(Failure::Refused(format!(
                    "key {key} has {found:x?} after the run, and its last updates wrote {expected:x?}: an update was \
                     lost, or a value was changed"
                )));
            }
        }
        Ok(())
    }

    /// The time of one persist to a random line, on the same medium.
    pub(crate) fn persist_ns(&self, args: &Args) -> Result<f64> {
        if args.medium != PoolMedium::Dax {
            return Ok(0.0);
        }
        let path = self
            .folder()
            .join(format!("everleaf-bench-{}.region", std::process::id()));
        let scratch = new_scratch(path)?;
        let region = Instrumented::new(new_dax(scratch.path(), args)?);
        let region = region.delayed(args.persist_delay_ns.unwrap_or(0));
        region
            .grow(PERSIST_REGION_BYTES)
            .map_err(everleaf::Error::from)?;
        let guard = medium::MediumGuard::new(&region);
        let mut random = Random::new(args.seed);
        let mut persist = |count: u64| -> Result<f64> {
            let start = Instant::now();
            for _ in 0..count {
                let offset = random.below(PERSIST_REGION_BYTES / 64) * 64;
                let words = guard.words(offset, 1).map_err(everleaf::Error::from)?;
                words[0].publish(&guard, offset);
                guard.fence();
            }
            Ok(start.elapsed().as_nanos() as f64 / count as f64)
        };
        // Touches every page before the measurement.
        for offset in (0..PERSIST_REGION_BYTES).step_by(4096) {
            guard.words(offset, 1).map_err(everleaf::Error::from)?[0].store(&guard, 1);
        }
        let times = (0..5)
            .map(|_| persist(PERSISTS))
            .collect::<Result<Vec<_>>>()?;
        Ok(median(&times))
    }

    /// Figures of epochs, if the engine has any.
    pub(crate) fn epoch_stat(&self) -> Option<EpochStat> {
        self.tree().epoch_stat()
    }

    /// The engine's counters since it was opened.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.tree().index().counters()
    }

    /// The engine's counters since `before`.
    pub(crate) fn counters_since(
        &self,
        before: &[(&'static str, u64)],
    ) -> Vec<(&'static str, u64)> {
        self.counters()
            .iter()
            .zip(before)
            .map(|(after, before)| (after.0, after.1 - before.1))
            .collect()
    }

    /// The tree's figures.
    pub(crate) fn stat(&self) -> Result<IndexStat> {
        Ok(self.tree().index().stat()?)
    }

    pub(crate) fn sizes(&self) -> Result<TreeSizes> {
        let stat = self.store().stat()?;
        let keys = self.tree().len()?;
        let volatile_bytes = self.tree().stat()?.volatile_bytes;
        Ok(TreeSizes {
            keys,
            used_bytes: stat.used_bytes,
            volatile_bytes,
            medium: stat.medium,
        })
    }

    /// Bytes of slabs in use.
    pub(crate) fn used_bytes(&self) -> Result<u64> {
        Ok(self.store().stat()?.used_bytes)
    }

    /// Sets the delay of the medium's fences, if the medium can delay them.
    pub(crate) fn set_delay(&self, args: &Args) {
        if let Some(instrumented) = &self.instrumented
            && let Some(delay_ns) = args.persist_delay_ns
        {
            instrumented.set_delay_ns(delay_ns);
        }
    }

    /// Ends the running epoch, if the engine has epochs, so that nothing is left to be written
    /// back.
    pub(crate) fn end_epoch(&self) -> Result<()> {
        Ok(self.store().sync()?)
    }

    fn let_go(&mut self) {
        drop(self.tree.take());
        drop(self.store.take());
        self.instrumented = None;
    }

    /// Closes the tree cleanly, which ends the measurement. Returns its path, which exists until
    /// this is dropped.
    pub(crate) fn close(&mut self) -> Result<Option<&Path>> {
        self.let_go();
        if self.args.medium == PoolMedium::File {
            let store = store_options(&self.args)?
                .close_cleanly(true)
                .open(&self.path)?;
            store.finish_recovery();
            store.close().map_err(everleaf::Error::from)?;
        }
        Ok(self.scratch.as_ref().map(Scratch::path))
    }

    /// Times recovery, which ends the measurement.
    pub(crate) fn recover(&mut self) -> Result<Recoveries> {
        if self.scratch.is_none() {
            return Err(Failure::Usage(
                "--recover needs a file: memory is gone after a close".to_owned(),
            ));
        }
        let mut some_key = Vec::new();
        let mut first = self
            .tree()
            .index()
            .range(Bounds::all(), Direction::Forward)?;
        first.next_into(&mut some_key, &mut Vec::new())?;
        drop(first);
        self.let_go();
        if self.args.medium == PoolMedium::File {
            // All writes are in the log.
            let Opened {
                elapsed: crash,
                replay,
                nodes_restored,
            } = self.open(&some_key, true)?;
            return Ok(Recoveries {
                clean: self.open(&some_key, true)?.elapsed,
                crash,
                replay,
                nodes_restored,
            });
        }
        // The first open is left unclean, so that the second one follows a crash.
        let clean = self.open(&some_key, false)?.elapsed;
        if self.args.engine.is_buffered() {
            self.cut_an_epoch()?;
        }
        let Opened {
            elapsed: crash,
            replay,
            nodes_restored,
        } = self.open(&some_key, true)?;
        Ok(Recoveries {
            clean,
            crash,
            replay,
            nodes_restored,
        })
    }

    /// Times of the first gets after a crash, for engines that recover nodes at their first use.
    /// After `recover`.
    pub(crate) fn first_touches(&self) -> Result<Option<Touches>> {
        if !self.args.engine.is_buffered() {
            return Ok(None);
        }
        self.cut_an_epoch()?;
        // Epochs do not end by themselves, so nothing sweeps in the background.
        let options = store_options(&self.args)?
            .manual_epochs()
            .close_cleanly(true);
        let store = open_store(&self.path, &self.args, &options)?;
        first_touches(&store.open_tree(NAME)?, &self.args).map(Some)
    }

    fn open(&self, key: &[u8], close_cleanly: bool) -> Result<Opened> {
        let options = store_options(&self.args)?.close_cleanly(close_cleanly);
        let start = Instant::now();
        let store = open_store(&self.path, &self.args, &options)?;
        let tree = store.open_tree(NAME)?;
        tree.get(key)?;
        let elapsed = start.elapsed();
        store.finish_recovery();
        let nodes_restored = tree.epoch_stat().map(|epochs| epochs.nodes_restored);
        Ok(Opened {
            elapsed,
            replay: store.stat()?.log.map(|log| log.replay),
            nodes_restored,
        })
    }

    /// Updates random keys for the length of an epoch, which is left unfinished, as by a crash
    /// right before its end.
    fn cut_an_epoch(&self) -> Result<()> {
        let args = &self.args;
        let options = store_options(args)?.manual_epochs().close_cleanly(false);
        let store = open_store(&self.path, args, &options)?;
        let tree = store.open_tree(NAME)?;
        let keys = args.keys_drawn();
        let form = KeyForm::of(args);
        let mut random = Random::new(args.seed);
        let end = Instant::now() + Duration::from_millis(args.epoch_ms);
        while Instant::now() < end {
            let key = keys.key(random.below(args.keys - args.withheld()));
            tree.update(form.bytes(key), padded(!key, args.value_size))?;
        }
        Ok(())
    }
}

/// Runs `work` on `threads` threads with their numbers; returns the results in that order.
pub(crate) fn on_threads<T: Send>(threads: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let run = &run;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || run(thread)))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker panicked"))
            .collect()
    })
}

pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("three digits are fine")
}

/// Operations on 64-bit keys, which get the form asked for; values are padded.
#[derive(Clone, Copy)]
pub(crate) struct Operations<'t> {
    tree: &'t Tree,
    index: &'t dyn Index,
    words: Option<&'t dyn WordIndex>,
    keys: KeyForm,
    value_size: usize,
    /// Whether each operation waits until it is durable.
    waits: bool,
    /// How many writes are under way at the same time; 0 if each one is waited for.
    tickets: usize,
}

/// A write that is not durable yet.
struct UnderWay {
    pending: Pending<bool>,
    start: Instant,
}

/// A key or a value. Short ones need no heap allocation, which would be measured, too.
pub(crate) type Padded = SmallVec<[u8; 64]>;

pub(crate) fn padded(word: u64, bytes: usize) -> Padded {
    let mut padded = Padded::from_slice(&word.to_be_bytes());
    padded.resize(bytes, b'.');
    padded
}

/// How a word becomes the bytes of a key. The keys sort as the words do.
#[derive(Clone, Copy)]
pub(crate) struct KeyForm {
    shape: KeyShape,
    /// Bytes of a random key.
    size: usize,
}

impl KeyForm {
    pub(crate) fn of(args: &Args) -> Self {
        Self {
            shape: args.key_shape,
            size: args.key_size(),
        }
    }

    /// The key of a word.
    #[inline]
    pub(crate) fn bytes(self, word: u64) -> Padded {
        match self.shape {
            KeyShape::Random => padded(word, self.size),
            shape => Padded::from_slice(&shape.key(word)),
        }
    }

    /// The key of a word, for an error.
    fn shown(self, word: u64) -> String {
        match self.shape {
            KeyShape::Random => format!("{word:#x}"),
            shape => String::from_utf8_lossy(&shape.key(word)).into_owned(),
        }
    }
}

impl Operations<'_> {
    fn write(&self, key: u64, value: Option<u64>, condition: Condition<u64>) -> Result<bool> {
        if !self.waits {
            let written = self.write_pending(key, value, condition)?;
            return Ok(written.peek() == Some(&true));
        }
        if let Some(words) = self.words {
            return Ok(words.write_durably(key, value, condition)?);
        }
        let bytes = |value| padded(value, self.value_size);
        let value = value.map(bytes);
        let condition = condition.map(bytes);
        Ok(self.index.write_durably(
            &self.keys.bytes(key),
            value.as_deref(),
            condition.as_ref().map(Padded::as_slice),
        )?)
    }

    /// A write that returns before it is durable.
    fn write_pending(
        &self,
        key: u64,
        value: Option<u64>,
        condition: Condition<u64>,
    ) -> Result<Pending<bool>> {
        let tree = self.tree.pending();
        let key = self.keys.bytes(key);
        let Some(value) = value else {
            return Ok(tree.remove(key)?);
        };
        let value = padded(value, self.value_size);
        Ok(match condition {
            Condition::Absent => tree.insert(key, value)?,
            Condition::Present => tree.update(key, value)?,
            _ => tree.put(key, value)?.map(|()| true),
        })
    }

    pub(crate) fn insert(&self, key: u64, value: u64) -> Result<bool> {
        self.write(key, Some(value), Condition::Absent)
    }

    pub(crate) fn put(&self, key: u64, value: u64) -> Result<bool> {
        self.write(key, Some(value), Condition::Always)
    }

    pub(crate) fn remove(&self, key: u64) -> Result<bool> {
        self.write(key, None, Condition::Always)
    }

    fn update(&self, key: u64, value: u64) -> Result<bool> {
        self.write(key, Some(value), Condition::Present)
    }

    /// A find or an update in parts, if the engine can measure them.
    pub(crate) fn profile(&self, key: u64, value: Option<u64>) -> Result<Option<Profile>> {
        let key = self.keys.bytes(key);
        let value = value.map(|value| padded(value, self.value_size));
        Ok(self
            .index
            .measured()
            .map_or(Ok(None), |tree| tree.profile(&key, value.as_deref()))?)
    }

    fn find(&self, key: u64, buffer: &mut Vec<u8>) -> Result<u64> {
        match self.words {
            Some(words) => Ok(words.get(key)?.unwrap_or_default()),
            None => Ok(u64::from(
                self.index.get_into(&self.keys.bytes(key), buffer)?,
            )),
        }
    }

    /// The value of a key as it was before it was padded; `None` also if the padding is wrong.
    fn value(&self, key: u64, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        if let Some(words) = self.words {
            return Ok(words.get(key)?);
        }
        if !self.index.get_into(&self.keys.bytes(key), buffer)? {
            return Ok(None);
        }
        let Some(word) = buffer.first_chunk::<8>() else {
            return Ok(None);
        };
        let value = u64::from_be_bytes(*word);
        if padded(value, self.value_size).as_slice() == buffer.as_slice() {
            Ok(Some(value))
        } else {
            Ok(None)
        }
    }

    fn scan(&self, from: u64, entries: u32) -> Result<u64> {
        let mut sum = 0_u64;
        let mut left = entries;
        if let Some(words) = self.words {
            words.scan_each(from, |key, value| {
                sum = sum.wrapping_add(key ^ value);
                left -= 1;
                left > 0
            })?;
            return Ok(sum);
        }
        let lower = std::ops::Bound::Included(self.keys.bytes(from).into_vec());
        let bounds = Bounds {
            lower,
            upper: std::ops::Bound::Unbounded,
        };
        let mut scan = self.index.range(bounds, Direction::Forward)?;
        let mut key = Vec::new();
        let mut value = Vec::new();
        while left > 0 && scan.next_into(&mut key, &mut value)? {
            sum = sum.wrapping_add((key.len() + value.len()) as u64);
            left -= 1;
        }
        Ok(sum)
    }

    fn run(&self, steps: &[WorkloadStep], mut stamps: Stamps) -> Result<Histogram<u64>> {
        let mut latency_ns = histogram();
        let mut sum = 0_u64;
        let mut buffer = Vec::new();
        for chunk in steps.chunks(SAMPLED) {
            let start = Instant::now();
            sum = sum.wrapping_add(self.step(chunk[0], stamps.take(), &mut buffer)?);
            latency_ns.saturating_record(start.elapsed().as_nanos() as u64);
            for step in &chunk[1..] {
                sum = sum.wrapping_add(self.step(*step, stamps.take(), &mut buffer)?);
            }
        }
        std::hint::black_box(sum);
        Ok(latency_ns)
    }

    /// Does the same as `run`, with several writes under way. The time of a write is from its call
    /// until it is known to be durable.
    fn run_ticketed(&self, steps: &[WorkloadStep], mut stamps: Stamps) -> Result<Histogram<u64>> {
        let mut latency_ns = histogram();
        let mut sum = 0_u64;
        let mut buffer = Vec::new();
        let mut under_way = VecDeque::new();
        let wait = |write: UnderWay, latency_ns: &mut Histogram<u64>| -> Result<()> {
            write.pending.wait()?;
            latency_ns.saturating_record(write.start.elapsed().as_nanos() as u64);
            Ok(())
        };
        for step in steps {
            if under_way.len() == self.tickets
                && let Some(oldest) = under_way.pop_front()
            {
                wait(oldest, &mut latency_ns)?;
            }
            let start = Instant::now();
            let stamp = stamps.take();
            match self.write_of(*step, stamp, &mut buffer)? {
                Some(pending) => under_way.push_back(UnderWay { pending, start }),
                None => {
                    sum = sum.wrapping_add(self.step(*step, stamp, &mut buffer)?);
                    latency_ns.saturating_record(start.elapsed().as_nanos() as u64);
                }
            }
        }
        for write in under_way {
            wait(write, &mut latency_ns)?;
        }
        std::hint::black_box(sum);
        Ok(latency_ns)
    }

    /// Begins the write of a step; `None` if the step only reads.
    fn write_of(
        &self,
        step: WorkloadStep,
        stamp: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Pending<bool>>> {
        let pending = match step {
            WorkloadStep::Find(_) | WorkloadStep::Scan(..) => return Ok(None),
            WorkloadStep::Insert(key) => self.write_pending(key, Some(key), Condition::Absent)?,
            WorkloadStep::Update(key) => {
                self.write_pending(key, Some(updated(key, stamp)), Condition::Present)?
            }
            WorkloadStep::Remove(key) => self.write_pending(key, None, Condition::Always)?,
            WorkloadStep::Put(key) => {
                self.write_pending(key, Some(updated(key, stamp)), Condition::Always)?
            }
            WorkloadStep::ReadModifyWrite(key) => {
                std::hint::black_box(self.find(key, buffer)?);
                self.write_pending(key, Some(updated(key, stamp)), Condition::Present)?
            }
        };
        Ok(Some(pending))
    }

    /// Does the operation with this stamp.
    pub(crate) fn step(&self, step: WorkloadStep, stamp: u64, buffer: &mut Vec<u8>) -> Result<u64> {
        Ok(match step {
            WorkloadStep::Find(key) => self.find(key, buffer)?,
            WorkloadStep::Insert(key) => u64::from(self.insert(key, key)?),
            WorkloadStep::Update(key) => u64::from(self.update(key, updated(key, stamp))?),
            WorkloadStep::Remove(key) => u64::from(self.remove(key)?),
            WorkloadStep::Scan(key, entries) => self.scan(key, entries)?,
            WorkloadStep::Put(key) => u64::from(self.put(key, updated(key, stamp))?),
            WorkloadStep::ReadModifyWrite(key) => {
                std::hint::black_box(self.find(key, buffer)?);
                u64::from(self.update(key, updated(key, stamp))?)
            }
        })
    }

    fn run_finds(&self, keys: &[u64]) -> Result<Histogram<u64>> {
        let mut latency_ns = histogram();
        let mut sum = 0_u64;
        let mut buffer = Vec::new();
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

    fn run_batched(&self, keys: &[u64]) -> Result<Histogram<u64>> {
        let mut latency_ns = histogram();
        let mut values = [None; BATCH];
        for keys in keys.chunks(BATCH) {
            let start = Instant::now();
            if let Some(words) = self.words {
                words.get_many(keys, &mut values[..keys.len()])?;
            } else {
                let padded: Vec<_> = keys.iter().map(|key| self.keys.bytes(*key)).collect();
                let slices: Vec<&[u8]> = padded.iter().map(Padded::as_slice).collect();
                std::hint::black_box(self.index.get_many(&slices)?);
            }
            latency_ns.saturating_record(start.elapsed().as_nanos() as u64);
            std::hint::black_box(&values);
        }
        Ok(latency_ns)
    }
}

#[cfg(test)]
mod tests;
