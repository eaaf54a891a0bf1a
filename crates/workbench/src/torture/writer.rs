//! The writer process of `torture`: threads that announce and execute operations until they are
//! killed.

use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use everleaf::{Batch, Error, ErrorKind, Options, Pending, Store, Transaction, Tree, View as _};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use sim::torture::{
    Announcement, Move, OperationKind, TortureWorkload, Transfer, ValueVersion, ledger, owner,
    spread, value_bytes, version, version_of,
};

use super::channel::ChannelArgs;
use super::keys::TortureKeys;
use super::lists::{Lists, faults_of_transfers};
use super::promise::Promise;
use super::verify::open_trees;
use super::{WorkArgs, options_of};
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;

/// The exit code of a writer that found something wrong while it ran.
pub(super) const FOUND_WRONG: i32 = 3;
/// One operation in this many is followed by a short scan.
const SCAN_EVERY: u32 = 2000;
/// One operation in this many is followed by a compaction of the store, while other threads go on.
const COMPACT_EVERY: u32 = 3000;
/// If operations are not durable when they return, one in this many is a sync.
const SYNC_EVERY: u32 = 500;
/// One operation in this many waits for all tickets before it.
const WAIT_EVERY: u32 = 60;
/// How often a batch is chosen, if there are any; the other kinds together have about 100.
const BATCH_WEIGHT: u32 = 60;

/// For `torture` itself: writes until it is killed.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    round: u32,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    channel: ChannelArgs,
}

/// How often each kind of operation is chosen.
const MIXES: [[u32; 7]; 3] = [
    // insert, update, put, remove, exchange, exchange out, get
    [40, 15, 15, 10, 8, 2, 10],
    [10, 10, 5, 50, 5, 10, 10],
    [20, 20, 15, 20, 8, 7, 10],
];
const KINDS: [OperationKind; 8] = [
    OperationKind::Insert,
    OperationKind::Update,
    OperationKind::Put,
    OperationKind::Remove,
    OperationKind::Exchange,
    OperationKind::ExchangeOut,
    OperationKind::Get,
    OperationKind::Batch,
];

/// Keys in the hot spot.
const HOT_KEYS: u32 = 200;
/// The most operations between the open of a store and its close, if there are several.
const SESSION_MAX: u32 = 16;
/// Stores that a thread leaves open, for others to be opened meanwhile.
const LEFT_OPEN_MAX: usize = 40;

/// A store of the writer, and its trees.
#[derive(Clone)]
struct OpenedStore {
    number: u32,
    store: Store,
    trees: Vec<Tree>,
}

/// The keys of a store that one thread may use.
#[derive(Default)]
struct UsableKeys {
    all: Vec<u32>,
    /// Those in the hot spot of the round, in which threads contend, and leaves fill and empty
    /// often.
    hot: Vec<u32>,
}

impl UsableKeys {
    fn of(args: &Args, store: u32, thread: u8) -> Self {
        let work = &args.work;
        let hot_from = args.round.wrapping_mul(97) % work.keys;
        let mut usable = Self::default();
        for key in 0..work.keys {
            let is_usable = owner(key, work.threads).is_none_or(|owner| owner == thread);
            if work.store_of(key) != store || !is_usable {
                continue;
            }
            usable.all.push(key);
            if (key + work.keys - hot_from) % work.keys < HOT_KEYS {
                usable.hot.push(key);
            }
        }
        usable
    }
}

/// One writer thread.
struct Writer<'a> {
    args: &'a Args,
    workload: &'a TortureWorkload,
    opened: OpenedStore,
    keys: UsableKeys,
    /// Locked for each record, so that records are in the order of time.
    channel: &'a Mutex<File>,
    thread: u8,
    random: SmallRng,
    mix: [u32; 8],
    sequence: u32,
    answer: Option<bool>,
    seen: ValueVersion,
    value: Vec<u8>,
    /// Writes that were not waited for.
    pending: Vec<Pending<bool>>,
    /// The lists, if there are transactions.
    lists: Option<&'a Lists>,
}

/// Ends the process at once because an operation failed, before other threads write more. Damage is
/// a violation, as only kills have happened to the pool.
fn failed(failure: &Failure) -> ! {
    if failure.is_damage() {
        found_wrong(&failure.to_string());
    }
    let _ = writeln!(std::io::stderr(), "everleaf torture writer: {failure}");
    std::process::exit(1);
}

/// Ends the process at once because of a violation; standard error says which.
fn found_wrong(what: &str) -> ! {
    let _ = writeln!(std::io::stderr(), "everleaf torture writer: {what}");
    std::process::exit(FOUND_WRONG);
}

impl Writer<'_> {
    /// A key that this thread may use; `None` if the store that is open has none.
    fn choose_key(&mut self) -> Option<u32> {
        let is_hot = self.random.random_ratio(1, 5) && !self.keys.hot.is_empty();
        let keys = if is_hot {
            &self.keys.hot
        } else {
            &self.keys.all
        };
        keys.choose(&mut self.random).copied()
    }

    fn choose_kind(&mut self) -> OperationKind {
        let mut ticket = self.random.random_range(0..self.mix.iter().sum());
        for (kind, weight) in KINDS.into_iter().zip(self.mix) {
            if ticket < weight {
                return kind;
            }
            ticket -= weight;
        }
        OperationKind::Get
    }

    /// Reads a key's version; its value must be exactly a version.
    fn read(&mut self, tree: u8, key: &[u8]) -> everleaf::Result<ValueVersion> {
        if !self.opened.trees[usize::from(tree)].get_into(key, &mut self.value)? {
            return Ok(0);
        }
        let version = version_of(tree, &self.value);
        Ok(version.unwrap_or_else(|| {
            found_wrong(&format!("a read of {key:02x?} gave {:02x?}", self.value))
        }))
    }

    /// Writes a record to the channel. Once this returns, the record survives the end of this
    /// process.
    fn say(&self, record: &Announcement) -> std::io::Result<()> {
        self.channel
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(&record.encode())
    }

    /// Announces and executes an operation.
    fn step(&mut self) -> Result<(), Failure> {
        let mut kind = self.choose_kind();
        let Some(mut number) = self.choose_key() else {
            return Ok(());
        };
        let mut tree = self.random.random_range(0..self.workload.tree_count());
        self.sequence += 1;
        if self
            .sync_every()
            .is_some_and(|every| self.sequence.is_multiple_of(every))
        {
            kind = OperationKind::Sync;
        }
        if kind == OperationKind::Batch {
            // Records of batches are those of the thread's ledger in the first tree.
            tree = 0;
            number = ledger(self.workload, self.thread);
        }
        let key = self.args.work.keys().bytes(tree, number);
        let version = version(self.args.round, self.thread, self.sequence);
        let expected = match kind {
            OperationKind::Exchange | OperationKind::ExchangeOut => self.read(tree, &key)?,
            _ => 0,
        };
        let record = Announcement {
            thread: self.thread,
            answer: self.answer,
            seen: self.seen,
            kind,
            tree,
            key: number,
            version,
            expected,
        };
        self.say(&record)?;
        let answer = match kind {
            OperationKind::Get => {
                self.seen = self.read(tree, &key)?;
                self.seen != 0
            }
            OperationKind::Sync if self.args.work.durability == Promise::Ticket => {
                Pending::wait_all(self.pending.drain(..)).map(|_| true)?
            }
            OperationKind::Sync => self.opened.store.sync().map(|()| true)?,
            OperationKind::Batch if self.lists.is_some() => self.transfer_at_once(version)?,
            OperationKind::Batch => self.transfer(version)?,
            _ => self.write(kind, tree, &key, version, expected)?,
        };
        self.answer = Some(answer);
        if self.sequence.is_multiple_of(SCAN_EVERY) {
            self.scan(tree, &key)?;
        }
        if self.sequence.is_multiple_of(COMPACT_EVERY) {
            let compacted = self.opened.store.compact()?;
            if let Some(left) = compacted.trees_left.first() {
                found_wrong(&format!("a compaction met damage: {}", left.error));
            }
        }
        Ok(())
    }

    fn sync_every(&self) -> Option<u32> {
        match self.args.work.durability {
            Promise::Ticket => Some(WAIT_EVERY),
            Promise::Store(_) => (0..self.workload.tree_count())
                .any(|tree| self.workload.is_buffered(tree))
                .then_some(SYNC_EVERY),
        }
    }

    /// Writes a batch, on condition that its accounts are as they were read.
    fn transfer(&mut self, version: ValueVersion) -> everleaf::Result<bool> {
        let opened = self.opened.clone();
        let transfer = Transfer::of(version, self.workload);
        let keys = self.args.work.keys();
        let mut batch = Batch::new();
        for Move { tree, key, amount } in transfer.moves {
            let handle = &opened.trees[usize::from(tree)];
            let key = keys.bytes(tree, key);
            let bytes = |balance| (balance != 0).then(|| value_bytes(tree, balance));
            let before = self.read(tree, &key)?;
            batch.expect(handle, &key, bytes(before).as_deref());
            match bytes(before.wrapping_add(amount)) {
                Some(after) => batch.put(handle, &key, after),
                None => batch.remove(handle, &key),
            };
        }
        let ledger = ledger(self.workload, self.thread);
        for tree in transfer.trees {
            batch.put(
                &opened.trees[usize::from(tree)],
                keys.bytes(tree, ledger),
                value_bytes(tree, version),
            );
        }
        let written = if self.args.work.durability == Promise::Ticket {
            opened
                .store
                .write_pending(&batch)
                .map(|pending| self.pending.push(pending.map(|()| true)))
        } else {
            opened.store.write(&batch)
        };
        match written {
            Err(error) if matches!(error.kind(), ErrorKind::ConditionFailed { .. }) => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Does a transfer as a transaction, which also appends it to a list.
    fn transfer_at_once(&mut self, version: ValueVersion) -> everleaf::Result<bool> {
        let Some(lists) = self.lists else {
            return Ok(false);
        };
        let before = lists.committed_before(version);
        let opened = self.opened.clone();
        let transfer = Transfer::of(version, self.workload);
        let ledger = ledger(self.workload, self.thread);
        let keys = self.args.work.keys();
        let write = |transaction: &mut Transaction| {
            for Move { tree, key, amount } in &transfer.moves {
                let handle = &opened.trees[usize::from(*tree)];
                let key = keys.bytes(*tree, *key);
                let balance = match transaction.get(handle, &key)? {
                    Some(value) => version_of(*tree, &value).unwrap_or_else(|| {
                        found_wrong(&format!("a transaction has read {value:02x?}"))
                    }),
                    None => 0,
                };
                match balance.wrapping_add(*amount) {
                    0 => drop(transaction.remove(handle, &key)?),
                    balance => transaction.put(handle, &key, value_bytes(*tree, balance))?,
                }
            }
            for tree in &transfer.trees {
                let handle = &opened.trees[usize::from(*tree)];
                let value = value_bytes(*tree, version);
                transaction.put(handle, keys.bytes(*tree, ledger), value)?;
            }
            // A list would make a transfer between trees that are durable by epochs end the epoch.
            let is_listed = transfer
                .trees
                .iter()
                .any(|tree| !self.workload.is_buffered(*tree));
            if is_listed {
                return Ok(Some(lists.append(transaction, version)?));
            }
            Ok::<_, Error>(None)
        };
        let appended = if self.args.work.durability == Promise::Ticket {
            let pending = opened.store.transaction_pending(write)?;
            let appended = pending.peek().copied().flatten();
            self.pending.push(pending.map(|_| true));
            appended
        } else {
            opened.store.transaction(write)?
        };
        if let Some(appended) = appended
            && let Err(what) = lists.note_committed(appended, before)
        {
            found_wrong(&what);
        }
        Ok(true)
    }

    /// Writes, and keeps the pending result if the writer relies on tickets.
    fn write(
        &mut self,
        kind: OperationKind,
        tree: u8,
        key: &[u8],
        version: ValueVersion,
        expected: ValueVersion,
    ) -> everleaf::Result<bool> {
        let new = value_bytes(tree, version);
        let old = (expected != 0).then(|| value_bytes(tree, expected));
        let current = old.as_deref();
        let handle = &self.opened.trees[usize::from(tree)];
        if self.args.work.durability != Promise::Ticket {
            return match kind {
                OperationKind::Insert => handle.insert(key, &new),
                OperationKind::Update => handle.update(key, &new),
                OperationKind::Remove => handle.remove(key),
                OperationKind::Exchange => handle.compare_exchange(key, current, Some(&new)),
                OperationKind::ExchangeOut => handle.compare_exchange(key, current, None),
                OperationKind::Put
                | OperationKind::Get
                | OperationKind::Sync
                | OperationKind::Batch => handle.put(key, &new).map(|()| true),
            };
        }
        let handle = handle.pending();
        let pending = match kind {
            OperationKind::Insert => handle.insert(key, &new),
            OperationKind::Update => handle.update(key, &new),
            OperationKind::Remove => handle.remove(key),
            OperationKind::Exchange => handle.compare_exchange(key, current, Some(&new)),
            OperationKind::ExchangeOut => handle.compare_exchange(key, current, None),
            OperationKind::Put
            | OperationKind::Get
            | OperationKind::Sync
            | OperationKind::Batch => handle.put(key, &new).map(|pending| pending.map(|()| true)),
        }?;
        let answer = pending.peek() == Some(&true);
        self.pending.push(pending);
        Ok(answer)
    }

    /// Reads some entries from a key on, in either direction; checks that keys are in order and
    /// values whole.
    fn scan(&mut self, tree: u8, from: &[u8]) -> everleaf::Result<()> {
        let handle = &self.opened.trees[usize::from(tree)];
        let reverse = self.random.random_bool(0.5);
        let mut range = if reverse {
            handle.range(..=from)
        } else {
            handle.range(from..)
        };
        let mut last: Option<Vec<u8>> = None;
        for _ in 0..100 {
            let entry = if reverse {
                range.next_entry_back()?
            } else {
                range.next_entry()?
            };
            let Some((key, value)) = entry else { break };
            let in_order = last
                .as_deref()
                .is_none_or(|last| if reverse { key < last } else { key > last });
            if !in_order || version_of(tree, value).is_none() {
                found_wrong(&format!(
                    "a scan from {from:02x?} gave {key:02x?} after {last:02x?}"
                ));
            }
            last = Some(key.to_vec());
        }
        Ok(())
    }
}

/// Checks one snapshot after the other, until the process is killed.
fn audit(opened: &OpenedStore, lists: &Lists, workload: &TortureWorkload, keys: TortureKeys) {
    loop {
        let audited = opened.store.snapshot().and_then(|snapshot| {
            let mut faults = faults_of_transfers(&snapshot, &opened.trees, workload, keys)?;
            faults.extend(lists.faults(&snapshot)?);
            Ok(faults)
        });
        match audited {
            Ok(faults) => {
                if let Some(fault) = faults.first() {
                    found_wrong(fault);
                }
            }
            Err(error) => failed(&Failure::from(error)),
        }
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    match write(args) {
        Err(failure) => failed(&failure),
        Ok(()) => Ok(Answer::Yes),
    }
}

fn write(args: &Args) -> Result<(), Failure> {
    let channel = Mutex::new(args.channel.open()?);
    let options = options_of(&args.pool).durability(args.work.durability.durability());
    let workload = args.work.workload();
    let files = StoreFiles::new(args, &options, &workload);
    let first = files.open(0)?;
    let store = first.store.clone();
    let [insert, update, put, remove, exchange, exchange_out, get] =
        MIXES[(spread(args.seed ^ u64::from(args.round)) % 3) as usize];
    let batch = if workload.batches { BATCH_WEIGHT } else { 0 };
    let mix = [
        insert,
        update,
        put,
        remove,
        exchange,
        exchange_out,
        get,
        batch,
    ];
    let lists = if args.work.transactions {
        Some(Lists::open(&store)?)
    } else {
        None
    };
    std::thread::scope(|scope| {
        if let Some(lists) = &lists {
            let opened = &first;
            let workload = &workload;
            let keys = args.work.keys();
            Builder::new()
                .spawn_scoped(scope, move || audit(opened, lists, workload, keys))
                .map_err(Failure::io("start a thread that audits"))?;
        }
        let threads: Vec<_> = (0..args.work.threads)
            .map(|thread| {
                let seed = spread(args.seed ^ u64::from(args.round) << 8 ^ u64::from(thread) << 56);
                let mut writer = Writer {
                    args,
                    workload: &workload,
                    opened: first.clone(),
                    keys: UsableKeys::of(args, 0, thread),
                    channel: &channel,
                    thread,
                    random: SmallRng::seed_from_u64(seed),
                    mix,
                    sequence: 0,
                    answer: None,
                    seen: 0,
                    value: Vec::new(),
                    pending: Vec::new(),
                    lists: lists.as_ref(),
                };
                let files = &files;
                let write = move || {
                    let ended = if args.work.stores > 1 {
                        writer.write_to_stores(files)
                    } else {
                        writer.write_to_one()
                    };
                    if let Err(failure) = ended {
                        failed(&failure);
                    }
                };
                // The threads before write for ever, so the process ends here.
                Builder::new()
                    .spawn_scoped(scope, write)
                    .unwrap_or_else(|error| {
                        failed(&Failure::io("start a thread that writes")(error))
                    })
            })
            .collect();
        drop::<Vec<std::thread::ScopedJoinHandle<'_, ()>>>(threads);
        args.channel.tell_figures(&store)
    })
}

/// The files of the stores, of which one thread at a time has one open, unless there is only one.
struct StoreFiles<'a> {
    pools: Vec<PoolArgs>,
    options: &'a Options,
    workload: &'a TortureWorkload,
    /// Locked while the store is open.
    uses: Vec<Mutex<()>>,
}

impl<'a> StoreFiles<'a> {
    fn new(args: &Args, options: &'a Options, workload: &'a TortureWorkload) -> Self {
        let pools = args.work.pools(&args.pool);
        Self {
            uses: pools.iter().map(|_| Mutex::new(())).collect(),
            pools,
            options,
            workload,
        }
    }

    fn open(&self, number: u32) -> Result<OpenedStore, Failure> {
        let store = self.options.open(&self.pools[number as usize].pool)?;
        Ok(OpenedStore {
            number,
            trees: open_trees(&store, self.workload)?,
            store,
        })
    }
}

/// A store that a thread has left open.
struct LeftOpen<'f> {
    opened: OpenedStore,
    _use: MutexGuard<'f, ()>,
}

impl Writer<'_> {
    /// Writes to this store from now on.
    fn use_store(&mut self, opened: OpenedStore) {
        self.keys = UsableKeys::of(self.args, opened.number, self.thread);
        self.opened = opened;
    }

    fn write_to_one(&mut self) -> Result<(), Failure> {
        loop {
            self.step()?;
        }
    }

    /// Opens one store after the other, writes a little to it, and closes or drops it, or leaves it
    /// open for a while. The first store stays open.
    fn write_to_stores(&mut self, files: &StoreFiles<'_>) -> Result<(), Failure> {
        let first = self.opened.clone();
        let mut left: Vec<LeftOpen<'_>> = Vec::new();
        loop {
            let number = self.random.random_range(0..self.args.work.stores);
            if number == 0 {
                self.use_store(first.clone());
                self.step()?;
                continue;
            }
            // Another thread may have it, or this one has left it open.
            let Ok(in_use) = files.uses[number as usize].try_lock() else {
                continue;
            };
            self.use_store(files.open(number)?);
            for _ in 0..self.random.random_range(0..=SESSION_MAX) {
                self.step()?;
            }
            let opened = std::mem::replace(&mut self.opened, first.clone());
            match self.random.random_range(0..4) {
                0 => drop(opened),
                1 => left.push(LeftOpen {
                    opened,
                    _use: in_use,
                }),
                _ => {
                    let OpenedStore { store, trees, .. } = opened;
                    drop(trees);
                    store.close()?;
                }
            }
            if left.len() > LEFT_OPEN_MAX {
                let place = self.random.random_range(0..left.len());
                let old = left.swap_remove(place);
                self.use_store(old.opened);
                self.step()?;
                self.opened = first.clone();
            }
        }
    }
}
