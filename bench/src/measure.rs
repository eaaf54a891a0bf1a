//! One run of one store, in a process of its own: what it measures is printed as lines of JSON, for
//! the parent.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lab::bench::KeyShape;
use serde::{Deserialize, Serialize};

use crate::entries::{EntryShape, EntrySource, mix};
use crate::failure::{Failure, Result};
use crate::machine::{Memory, disk_bytes};
use crate::metric::{self, BATCH, PUT_THREADS, PeerWorkload, RANGE};
use crate::peers::{Peer, PeerKind, PeerReader};

/// The most reads of an untimed check after a workload that writes.
const CHECKS_MAX: u64 = 20_000;
/// Operations between two readings of the clock, where an operation takes about a microsecond.
const OPERATIONS_PER_LOOK: u64 = 64;
/// The longest wait for a store to become idle.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Sessions with a small store, of which the median counts.
const SMALL_SESSIONS: usize = 21;

/// The workloads and sizes of one run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) shape: EntryShape,
    /// Seconds of each timed workload except the loads.
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// A store is idle when the room that it takes on disk has not changed for this many seconds.
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) idle: f64,
    /// Only these workloads; all if it is left out.
    #[arg(long, value_name = "NAME", num_args = 1.., value_enum)]
    pub(crate) workload: Vec<PeerWorkload>,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number".to_owned())?;
    (0.01..=3600.0)
        .contains(&seconds)
        .then_some(seconds)
        .ok_or_else(|| "give 0.01 to 3600".to_owned())
}

impl Plan {
    /// Whether a workload is asked for.
    pub(crate) fn has(&self, workload: PeerWorkload) -> bool {
        self.workload.is_empty() || self.workload.contains(&workload)
    }

    /// Whether a workload needs the store that is filled in random order and read.
    fn fills_at_random(&self) -> bool {
        let has_own_store =
            |workload| matches!(workload, &PeerWorkload::Bulk | &PeerWorkload::Transaction);
        self.workload.is_empty() || !self.workload.iter().all(has_own_store)
    }

    /// The figures that a run gives.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = &'static metric::Metric> + '_ {
        metric::ALL
            .iter()
            .filter(|metric| self.has(metric.workload))
    }

    /// The same with keys of another shape.
    pub(crate) fn with_keys(&self, key_shape: KeyShape) -> Self {
        Self {
            shape: self.shape.with_keys(key_shape),
            ..self.clone()
        }
    }

    /// The arguments that repeat it, without the shape of keys.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Self {
            shape,
            seconds,
            idle,
            workload,
        } = self;
        let mut arguments = vec![
            format!("--entries={}", shape.entries),
            format!("--value-bytes={}", shape.value_bytes),
            format!("--seconds={seconds}"),
            format!("--idle={idle}"),
        ];
        if let Some(bytes) = shape.key_bytes {
            arguments.push(format!("--key-bytes={bytes}"));
        }
        let name = |workload: &PeerWorkload| {
            clap::ValueEnum::to_possible_value(workload).map(|it| it.get_name().to_owned())
        };
        arguments.extend(
            workload
                .iter()
                .filter_map(name)
                .map(|name| format!("--workload={name}")),
        );
        arguments
    }
}

/// A figure of one run, as the child prints it.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct FigureLine {
    pub(crate) metric: String,
    pub(crate) value: f64,
}

/// The argument that names shapes of keys.
pub(crate) fn key_shape_argument(shapes: &[KeyShape]) -> String {
    let names: Vec<&str> = shapes.iter().map(|shape| shape.name()).collect();
    format!("--key-shape={}", names.join(","))
}

/// The arguments of a child that measures.
#[derive(Args, Debug)]
pub(crate) struct MeasureArgs {
    #[arg(long, value_parser = crate::peers::parse)]
    pub(crate) store: &'static PeerKind,
    /// An empty folder.
    #[arg(long)]
    pub(crate) folder: PathBuf,
    #[arg(long, value_enum)]
    key_shape: KeyShape,
    #[command(flatten)]
    plan: Plan,
}

impl MeasureArgs {
    /// The workloads and sizes, with the shape of keys.
    pub(crate) fn plan(&self) -> Plan {
        self.plan.with_keys(self.key_shape)
    }
}

/// One run.
pub(crate) struct Run {
    pub(crate) kind: &'static PeerKind,
    pub(crate) plan: Plan,
    folder: PathBuf,
    /// The indices of loaded entries in the order of their keys.
    pub(crate) sorted: Vec<u32>,
    /// The index of the next new key.
    next_index: AtomicU64,
}

impl Run {
    pub(crate) fn new(args: MeasureArgs) -> Self {
        let plan = args.plan();
        let MeasureArgs {
            store: kind,
            folder,
            ..
        } = args;
        let sorted = plan.shape.sorted();
        let next_index = AtomicU64::new(plan.shape.entries);
        Self {
            kind,
            plan,
            folder,
            sorted,
            next_index,
        }
    }

    /// Measures the workloads that have no file of their own.
    pub(crate) fn measure(&self) -> Result {
        if self.plan.fills_at_random() {
            self.filled_at_random()?;
        }
        if self.plan.has(PeerWorkload::Bulk) || self.plan.has(PeerWorkload::Space) {
            self.filled_in_order()?;
        }
        self.small()
    }

    /// Prints a figure, if it is asked for.
    pub(crate) fn tell(&self, name: &str, value: f64) -> Result {
        if !metric::from_name(name).is_some_and(|metric| self.plan.has(metric.workload)) {
            return Ok(());
        }
        let line = serde_json::to_string(&FigureLine {
            metric: name.to_owned(),
            value,
        })
        .map_err(|error| Failure::new(format!("{name}: {error}; this is a bug of the program")))?;
        writeln!(io::stdout(), "{line}")
            .map_err(|error| Failure::new(format!("the parent reads no more: {error}")))
    }

    /// Makes an empty folder beside the others of this run.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        std::fs::create_dir(&folder).map_err(Failure::path("make", &folder))?;
        Ok(folder)
    }

    pub(crate) fn open(&self, folder: &std::path::Path) -> Result<Box<dyn Peer>> {
        (self.kind.open)(self.kind, folder).map_err(Failure::store(self.kind.name, "open"))
    }

    pub(crate) fn close(&self, peer: Box<dyn Peer>) -> Result {
        peer.close()
            .map_err(Failure::store(self.kind.name, "close"))
    }

    pub(crate) fn wrong(&self, action: &'static str, what: &str) -> Failure {
        Failure::wrong(self.kind.name, action, what)
    }

    /// The workloads on a store that was filled in random order.
    fn filled_at_random(&self) -> Result {
        let folder = self.folder("random")?;
        let before = Memory::now()?;
        let peer = self.open(&folder)?;
        let rate = self.load(&*peer, false)?;
        self.tell("load", rate)?;
        self.tell("disk-load", disk_bytes(&folder)?)?;
        if self.plan.has(PeerWorkload::Space)
            || self.plan.has(PeerWorkload::Get)
            || self.plan.has(PeerWorkload::Range)
        {
            self.tell("disk-idle", self.wait_until_idle(&folder)?)?;
        }
        self.check_all(&*peer)?;
        let memory = Memory::now()?.since(before);
        self.tell("memory", memory.resident)?;
        self.tell("memory-private", memory.private)?;
        if self.plan.has(PeerWorkload::Get) {
            self.tell("get-1", self.gets(&*peer, 1)?)?;
            self.tell("get-2", self.gets(&*peer, 2)?)?;
        }
        if self.plan.has(PeerWorkload::Range) {
            self.tell("range-random", self.ranges(&*peer)?)?;
        }
        self.close(peer)?;
        self.tell("disk-closed", disk_bytes(&folder)?)?;

        let start = Instant::now();
        let peer = self.open(&folder)?;
        self.read(&*peer, "open after a clean close", [(0, 0)], true)?;
        self.tell("open-clean", start.elapsed().as_secs_f64())?;
        self.check_all(&*peer)?;
        self.writes(&*peer)?;
        self.close(peer)?;
        std::fs::remove_dir_all(&folder).map_err(Failure::path("remove", &folder))
    }

    /// Sessions with a store of one entry.
    fn small(&self) -> Result {
        if !self.plan.has(PeerWorkload::Open) && !self.plan.has(PeerWorkload::Space) {
            return Ok(());
        }
        let folder = self.folder("small")?;
        let put = |peer: &dyn Peer, round: usize| {
            peer.put_durable(b"the only key of this store", &[round as u8; 150])
                .map_err(Failure::store(self.kind.name, "put"))
        };
        let peer = self.open(&folder)?;
        put(&*peer, 0)?;
        self.tell("disk-small", disk_bytes(&folder)?)?;
        self.close(peer)?;
        let mut seconds = Vec::new();
        for round in 0..SMALL_SESSIONS {
            let start = Instant::now();
            let peer = self.open(&folder)?;
            put(&*peer, round)?;
            self.close(peer)?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        seconds.sort_unstable_by(f64::total_cmp);
        self.tell("session-small", seconds[SMALL_SESSIONS / 2])?;
        std::fs::remove_dir_all(&folder).map_err(Failure::path("remove", &folder))
    }

    /// The workloads that write to a filled store, which was read as a whole.
    fn writes(&self, peer: &dyn Peer) -> Result {
        if self.plan.has(PeerWorkload::Put) {
            for (threads, name) in PUT_THREADS {
                self.tell(name, self.puts(peer, threads)?)?;
            }
        }
        if self.plan.has(PeerWorkload::Batch) {
            self.tell("batch-100", self.batches(peer)?)?;
        }
        let mut updates = 0;
        if self.plan.has(PeerWorkload::Update) {
            let rate;
            (rate, updates) = self.updates(peer)?;
            self.tell("update", rate)?;
        }
        if self.plan.has(PeerWorkload::Remove) {
            self.tell("remove", self.removes(peer, updates)?)?;
        }
        Ok(())
    }

    /// The workloads on a store that was filled in the order of keys.
    fn filled_in_order(&self) -> Result {
        let folder = self.folder("order")?;
        let peer = self.open(&folder)?;
        let rate = self.load(&*peer, true)?;
        self.tell("bulk", rate)?;
        self.wait_until_idle(&folder)?;
        self.check_all(&*peer)?;
        if self.plan.has(PeerWorkload::Bulk) {
            self.tell("range-bulk", self.ranges(&*peer)?)?;
        }
        self.close(peer)?;
        self.tell("disk-bulk", disk_bytes(&folder)?)?;
        std::fs::remove_dir_all(&folder).map_err(Failure::path("remove", &folder))
    }

    /// Fills the store; entries a second.
    pub(crate) fn load(&self, peer: &dyn Peer, in_order: bool) -> Result<f64> {
        let shape = self.plan.shape;
        let start = Instant::now();
        if in_order {
            let indices = self.sorted.iter().map(|index| u64::from(*index));
            peer.load_sorted(&mut EntrySource::new(shape, indices))
        } else {
            peer.load(&mut EntrySource::new(shape, 0..shape.entries))
        }
        .map_err(Failure::store(self.kind.name, "load"))?;
        Ok(shape.entries as f64 / start.elapsed().as_secs_f64())
    }

    /// Waits for work in the background; the bytes on disk afterwards.
    fn wait_until_idle(&self, folder: &std::path::Path) -> Result<f64> {
        let idle = Duration::from_secs_f64(self.plan.idle);
        let start = Instant::now();
        let mut changed = Instant::now();
        let mut bytes = disk_bytes(folder)?;
        while changed.elapsed() < idle && start.elapsed() < IDLE_MAX.max(idle) {
            thread::sleep(Duration::from_millis(50).min(idle));
            let now = disk_bytes(folder)?;
            if now.to_bits() != bytes.to_bits() {
                changed = Instant::now();
                bytes = now;
            }
        }
        Ok(bytes)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs_f64(self.plan.seconds)
    }

    /// Runs the same on each thread at once; returns the sum of their operations a second.
    pub(crate) fn timed(
        &self,
        threads: u64,
        work: impl Fn(u64, Instant) -> Result<u64> + Sync,
    ) -> Result<f64> {
        let barrier = Barrier::new(threads as usize);
        let one = |thread| {
            barrier.wait();
            let start = Instant::now();
            Ok((start, work(thread, self.deadline())?, Instant::now()))
        };
        let panicked = |_| Err(self.wrong("threads", "a thread panicked"));
        let ends: Vec<(Instant, u64, Instant)> = thread::scope(|scope| {
            let one = &one;
            let handles: Vec<_> = (0..threads)
                .map(|thread| scope.spawn(move || one(thread)))
                .collect();
            let ends = handles
                .into_iter()
                .map(|handle| handle.join().unwrap_or_else(panicked));
            ends.collect::<Result<_>>()
        })?;
        let start = ends.iter().map(|end| end.0).min();
        let end = ends.iter().map(|end| end.2).max();
        let elapsed = start
            .zip(end)
            .map_or(0.0, |(start, end)| (end - start).as_secs_f64());
        Ok(ends.iter().map(|end| end.1).sum::<u64>() as f64 / elapsed)
    }

    pub(crate) fn reader<'p>(&self, peer: &'p dyn Peer) -> Result<Box<dyn PeerReader + 'p>> {
        peer.reader()
            .map_err(Failure::store(self.kind.name, "begin to read"))
    }

    /// Gets of random entries a second. Each value is compared.
    fn gets(&self, peer: &dyn Peer, threads: u64) -> Result<f64> {
        let shape = self.plan.shape;
        self.timed(threads, |thread, deadline| {
            let mut reader = self.reader(peer)?;
            let mut key = Vec::new();
            let mut expected = Vec::new();
            let mut count = 0;
            while Instant::now() < deadline {
                for _ in 0..OPERATIONS_PER_LOOK {
                    let index = mix(count ^ ((thread + 1) << 48)) % shape.entries;
                    count += 1;
                    shape.key(index, &mut key);
                    let mut is_right = false;
                    let mut see =
                        |value: &[u8]| is_right = shape.is_value(index, 0, value, &mut expected);
                    reader
                        .get(&key, &mut see)
                        .map_err(Failure::store(self.kind.name, "get"))?;
                    if !is_right {
                        return Err(self.wrong(
                            "get",
                            &format!("entry {index} is missing or has another value"),
                        ));
                    }
                }
            }
            Ok(count)
        })
    }

    /// Ranges from random entries a second. Each key and value is compared.
    fn ranges(&self, peer: &dyn Peer) -> Result<f64> {
        self.timed(1, |_, deadline| {
            let mut reader = self.reader(peer)?;
            let mut first = Vec::new();
            let mut expected = Vec::new();
            let mut count = 0;
            while Instant::now() < deadline {
                let start = mix(count) as usize % self.sorted.len();
                count += 1;
                self.plan
                    .shape
                    .key(u64::from(self.sorted[start]), &mut first);
                self.check_range(&mut *reader, start, RANGE, &first, &mut expected)?;
            }
            Ok(count)
        })
    }

    /// Reads a range that begins at a place in the order of keys, and compares it.
    fn check_range(
        &self,
        reader: &mut dyn PeerReader,
        start: usize,
        length: usize,
        first: &[u8],
        expected: &mut Vec<u8>,
    ) -> Result {
        let mut seen = 0;
        let mut is_right = true;
        let mut see = |key: &[u8], value: &[u8]| {
            let index = self.sorted.get(start + seen).map(|index| u64::from(*index));
            is_right &=
                index.is_some_and(|index| self.plan.shape.is_entry(index, key, value, expected));
            seen += 1;
        };
        reader
            .range(first, length, &mut see)
            .map_err(Failure::store(self.kind.name, "range"))?;
        if !is_right || seen != length.min(self.sorted.len() - start) {
            return Err(self.wrong(
                "range",
                &format!("of {length} entries from the {start}th, {seen} came, or others"),
            ));
        }
        Ok(())
    }

    /// Reads the whole store once, in the state after the load: later workloads find warm caches.
    fn check_all(&self, peer: &dyn Peer) -> Result {
        let mut reader = self.reader(peer)?;
        let mut first = Vec::new();
        let mut expected = Vec::new();
        // LMDB takes no empty key.
        self.plan.shape.key(u64::from(self.sorted[0]), &mut first);
        let all = self.sorted.len();
        self.check_range(&mut *reader, 0, all, &first, &mut expected)
    }

    /// Reads some of these entries, untimed, and compares each with its expected value or absence.
    pub(crate) fn read(
        &self,
        peer: &dyn Peer,
        action: &'static str,
        indices: impl IntoIterator<Item = (u64, u64)>,
        is_present: bool,
    ) -> Result {
        let mut reader = self.reader(peer)?;
        let mut key = Vec::new();
        let mut expected = Vec::new();
        for (index, updates) in indices {
            self.plan.shape.key(index, &mut key);
            let mut is_right = false;
            let mut see = |value: &[u8]| {
                is_right = self
                    .plan
                    .shape
                    .is_value(index, updates, value, &mut expected);
            };
            let found = reader
                .get(&key, &mut see)
                .map_err(Failure::store(self.kind.name, action))?;
            if found != is_present || found != is_right {
                return Err(self.wrong(action, &format!("entry {index} is not as it was written")));
            }
        }
        Ok(())
    }

    /// Durable puts of new keys a second.
    fn puts(&self, peer: &dyn Peer, threads: u64) -> Result<f64> {
        let base = self.next_index.load(Ordering::Relaxed);
        let counts: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
        let rate = self.timed(threads, |thread, deadline| {
            let mut key = Vec::new();
            let mut value = Vec::new();
            let mut count = 0;
            while Instant::now() < deadline {
                let index = base + count * threads + thread;
                self.plan.shape.key(index, &mut key);
                self.plan.shape.value(index, 0, &mut value);
                peer.put_durable(&key, &value)
                    .map_err(Failure::store(self.kind.name, "durable put"))?;
                count += 1;
            }
            counts[thread as usize].store(count, Ordering::Relaxed);
            Ok(count)
        })?;
        let counts: Vec<u64> = counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect();
        for (thread, count) in (0..).zip(&counts) {
            let step = (count * threads / CHECKS_MAX).max(1) as usize;
            let written = (0..*count)
                .step_by(step)
                .map(|number| (base + number * threads + thread, 0));
            self.read(peer, "durable put", written, true)?;
        }
        let most = counts.into_iter().max().unwrap_or(0);
        self.next_index
            .store(base + most * threads, Ordering::Relaxed);
        Ok(rate)
    }

    /// Entries in durable batches, a second.
    fn batches(&self, peer: &dyn Peer) -> Result<f64> {
        let base = self.next_index.load(Ordering::Relaxed);
        let rate = self.timed(1, |_, deadline| {
            let mut next = base;
            while Instant::now() < deadline {
                let batch: Vec<_> = (next..next + BATCH)
                    .map(|index| self.plan.shape.entry(index, 0))
                    .collect();
                peer.put_many_durable(&batch)
                    .map_err(Failure::store(self.kind.name, "durable batch"))?;
                next += BATCH;
            }
            self.next_index.store(next, Ordering::Relaxed);
            Ok(next - base)
        })?;
        let end = self.next_index.load(Ordering::Relaxed);
        let step = ((end - base) / CHECKS_MAX).max(1) as usize;
        self.read(
            peer,
            "durable batch",
            (base..end).step_by(step).map(|index| (index, 0)),
            true,
        )?;
        Ok(rate)
    }

    /// Single writes to loaded entries, in an order that is not that of the load, and one sync: how
    /// many a second, and how many.
    fn singles(
        &self,
        action: &'static str,
        max: u64,
        write: impl Fn(u64) -> crate::peers::Result + Sync,
        sync: impl Fn() -> crate::peers::Result + Sync,
    ) -> Result<(f64, u64)> {
        let done = AtomicU64::new(0);
        let rate = self.timed(1, |_, deadline| {
            let mut count = 0;
            while count < max && (count % OPERATIONS_PER_LOOK != 0 || Instant::now() < deadline) {
                write(self.plan.shape.shuffled(count))
                    .map_err(Failure::store(self.kind.name, action))?;
                count += 1;
            }
            sync().map_err(Failure::store(self.kind.name, "sync"))?;
            done.store(count, Ordering::Relaxed);
            Ok(count)
        })?;
        Ok((rate, done.load(Ordering::Relaxed)))
    }

    /// Updates a second, and how many entries now have the second value: the first ones of the
    /// shuffled order.
    fn updates(&self, peer: &dyn Peer) -> Result<(f64, u64)> {
        let shape = self.plan.shape;
        let update = |index| {
            let (key, value) = shape.entry(index, 1);
            peer.put(&key, &value)
        };
        let (rate, count) = self.singles("update", shape.entries, update, || peer.sync())?;
        let steps = (0..shape.entries).step_by((shape.entries / CHECKS_MAX).max(1) as usize);
        let expected = steps.map(|step| (shape.shuffled(step), u64::from(step < count)));
        self.read(peer, "update", expected, true)?;
        Ok((rate, count))
    }

    /// Removes a second, of at most half of the entries.
    fn removes(&self, peer: &dyn Peer, updates: u64) -> Result<f64> {
        let shape = self.plan.shape;
        let remove = |index| {
            let mut key = Vec::new();
            shape.key(index, &mut key);
            peer.remove(&key)
        };
        let (rate, count) = self.singles("remove", shape.entries / 2, remove, || peer.sync())?;
        let step = (shape.entries / CHECKS_MAX).max(1) as usize;
        let gone = (0..count)
            .step_by(step)
            .map(|step| (shape.shuffled(step), 0));
        self.read(peer, "remove", gone, false)?;
        let left = (count..shape.entries).step_by(step);
        let left = left.map(|step| (shape.shuffled(step), u64::from(step < updates)));
        self.read(peer, "remove", left, true)?;
        Ok(rate)
    }
}
