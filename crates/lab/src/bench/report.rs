//! Figures: medians over the runs, ratios within this process.

use everleaf::Contract;
use hdrhistogram::Histogram;
use medium::{Counts, FileStat};
use serde_json::{Value, json};

use super::args::{Args, Workload};
use super::disk::DiskRates;
use super::epochs::EpochFigures;
use super::key_shape::KeyShape;
use super::subject::{Measurement, Recoveries, TreeSizes};
use crate::comparison::{median, rounded};

/// The measurements so far. Times are those of one operation, one for each run.
pub(crate) struct Report {
    pub(super) args: Args,
    pub(crate) load_mops: f64,
    pub(super) ns: Vec<f64>,
    /// The times on one thread.
    pub(crate) alone_ns: Vec<f64>,
    pub(crate) find_ns: Vec<f64>,
    /// The times of the standard library's map.
    pub(crate) baseline_ns: Vec<f64>,
    pub(crate) baseline_find_ns: Vec<f64>,
    /// The times of the same tree in memory.
    pub(crate) ram_ns: Vec<f64>,
    pub(crate) ram_find_ns: Vec<f64>,
    pub(super) latency_ns: Histogram<u64>,
    /// The counts for [`Args::count`], and the number of operations.
    pub(crate) counts: Option<(Counts, u64)>,
    pub(crate) persist_ns: f64,
    pub(crate) sizes: Option<TreeSizes>,
    pub(crate) recoveries: Option<Recoveries>,
    pub(crate) store_over_engine: f64,
    pub(crate) disk: Option<DiskRates>,
    /// The length of the pool's file after a clean close.
    pub(crate) file_bytes: Option<u64>,
    /// The cost of the last run in the log.
    pub(crate) log: Option<LogShare>,
    /// The engine's counters of the last run.
    pub(crate) counters: Vec<(&'static str, u64)>,
    pub(crate) epochs: EpochFigures,
}

/// The cost of one run in the log.
pub(crate) struct LogShare {
    log_bytes: u64,
    checkpoint_bytes: u64,
    groups: u64,
    syncs: u64,
    private_bytes: u64,
}

impl LogShare {
    pub(crate) fn between(before: &FileStat, after: &FileStat) -> Self {
        Self {
            log_bytes: after.log_bytes - before.log_bytes,
            checkpoint_bytes: after.checkpoint_bytes - before.checkpoint_bytes,
            groups: after.groups - before.groups,
            syncs: after.syncs - before.syncs,
            private_bytes: after.private_bytes,
        }
    }
}

impl Report {
    pub(crate) fn new(args: &Args) -> Self {
        Self {
            args: args.clone(),
            load_mops: f64::NAN,
            ns: Vec::new(),
            alone_ns: Vec::new(),
            find_ns: Vec::new(),
            baseline_ns: Vec::new(),
            baseline_find_ns: Vec::new(),
            ram_ns: Vec::new(),
            ram_find_ns: Vec::new(),
            latency_ns: Histogram::new(3).expect("three digits are fine"),
            counts: None,
            persist_ns: 0.0,
            sizes: None,
            recoveries: None,
            store_over_engine: f64::NAN,
            disk: None,
            file_bytes: None,
            log: None,
            counters: Vec::new(),
            epochs: EpochFigures::default(),
        }
    }

    /// Adds the measurements of a run.
    pub(crate) fn run(&mut self, measured: &Measurement) {
        self.ns.push(measured.ns());
        self.latency_ns
            .add(&measured.latency_ns)
            .expect("histograms of one shape");
    }

    /// Ordered persists of one operation of this workload, by the engine's budget; not a number for
    /// mixes.
    pub(super) fn budget(&self) -> f64 {
        let (Contract::Immediate(persists) | Contract::Shifting(persists)) =
            self.args.engine.contract
        else {
            return 0.0;
        };
        let update = if self.args.words() {
            persists.update_words
        } else {
            persists.update
        };
        let [insert, update, remove] =
            [persists.insert, update, persists.remove].map(|persists| persists as f64);
        let upsert = insert.max(update);
        if let Some(upserts) = self.args.workload.upserts_percent() {
            return upsert * upserts as f64 / 100.0;
        }
        match self.args.workload {
            Workload::Load | Workload::Insert => insert,
            Workload::Update => update,
            Workload::Remove => remove,
            Workload::Find
            | Workload::GetMany
            | Workload::Scan
            | Workload::Scan10
            | Workload::C => 0.0,
            Workload::A | Workload::F => update / 2.0,
            Workload::B => update / 20.0,
            Workload::D | Workload::E => insert / 20.0,
            Workload::Mixed => (insert + update + remove) / 4.0,
            // The match above has returned the budget of these.
            _ => f64::NAN,
        }
    }

    /// The floor of an operation: a find, by this engine or half of one by the standard library's
    /// map, whichever is less; plus the budget of persists.
    pub(super) fn floor_ns(&self) -> f64 {
        let find = median(&self.find_ns).min(median(&self.baseline_find_ns) / 2.0);
        find + self.budget() * self.persist_ns
    }

    /// All figures, as one object.
    pub(crate) fn json(&self) -> Value {
        let args = &self.args;
        let ns = median(&self.ns);
        let latency = |quantile: f64| self.latency_ns.value_at_quantile(quantile);
        let counted = |count: fn(&Counts) -> u64| match &self.counts {
            Some((counts, operations)) => rounded(count(counts) as f64 / *operations as f64),
            None => Value::Null,
        };
        let per_key = |bytes: &dyn Fn(&TreeSizes) -> u64| match &self.sizes {
            Some(sizes) => rounded(bytes(sizes) as f64 / sizes.keys as f64),
            None => Value::Null,
        };
        let ms = |time: fn(&Recoveries) -> std::time::Duration| match &self.recoveries {
            Some(recoveries) => rounded(time(recoveries).as_secs_f64() * 1e3),
            None => Value::Null,
        };
        let name = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        // Single-threaded times are compared; for several threads, throughputs.
        let mut figures = json!({
            "engine": args.engine.name(),
            "medium": name(&args.medium),
            "medium_description": self.sizes.as_ref().map(|sizes| sizes.medium.clone()),
            "workload": args.workload.name(),
            "keys": args.keys,
            "ops": args.operations(),
            "runs": args.runs,
            "persist_delay_ns": args.persist_delay_ns.unwrap_or(0),
            "mops": rounded(1e3 / ns),
            "ns_per_op": rounded(ns),
            "ratio_to_btreemap": rounded(median(&self.baseline_ns) / ns),
            "ratio_to_one_thread": rounded(median(&self.alone_ns) / ns),
            "ratio_to_floor": rounded(ns / self.floor_ns()),
            "floor_ns": rounded(self.floor_ns()),
            "find_ns": rounded(median(&self.find_ns)),
            "btreemap_ns": rounded(median(&self.baseline_ns)),
            "btreemap_find_ns": rounded(median(&self.baseline_find_ns)),
            "persist_ns": rounded(self.persist_ns),
            "persists_per_op": counted(|counts| counts.fences),
            "flushes_per_op": counted(|counts| counts.lines_flushed),
            "words_per_op": counted(|counts| counts.words_stored),
            "p50_ns": latency(0.5),
            "p99_ns": latency(0.99),
            "p999_ns": latency(0.999),
            "max_ns": self.latency_ns.max(),
            "load_mops": rounded(self.load_mops),
            "bytes_per_key": per_key(&|sizes| sizes.used_bytes),
            "volatile_bytes_per_key": per_key(&|sizes| sizes.volatile_bytes),
            "file_bytes_per_key": self.file_bytes.map_or(Value::Null, |bytes| per_key(&|_| bytes)),
            "recover_clean_ms": ms(|recoveries| recoveries.clean),
            "store_over_engine": rounded(self.store_over_engine),
            "recover_crash_ms": ms(|recoveries| recoveries.crash),
            "recover_nodes_restored": self.recoveries.as_ref().and_then(|recoveries| recoveries.nodes_restored),
        });
        let counters = Value::Object(self.counters_json());
        for part in [
            self.setup_json(),
            self.replay_json(),
            counters,
            self.epochs.json(),
            self.ram_json(ns),
            self.log_json(ns),
        ] {
            if let Value::Object(figures) = &mut figures
                && let Value::Object(mut part) = part
            {
                figures.append(&mut part);
            }
        }
        figures
    }

    /// The setup of the run, besides its name.
    fn setup_json(&self) -> Value {
        let args = &self.args;
        let key_size = match args.key_shape {
            KeyShape::Random => json!(args.key_size()),
            _ => rounded(args.key_bytes_mean()),
        };
        json!({
            "settings": args.set,
            "kernels": medium::kernels::Kernels::active().name(),
            "distribution": args.distribution().name(),
            "ycsb": args.workload.ycsb(),
            "theta": args.theta,
            "threads": args.threads,
            "seed": args.seed,
            "key_shape": args.key_shape.name(),
            "key_size": key_size,
            "value_size": args.value_size,
            "pages": args.pages.name(),
        })
    }

    /// The throughput of this tree over that of the same tree in memory.
    fn ram_json(&self, ns: f64) -> Value {
        json!({
            "ratio_to_ram": rounded(median(&self.ram_ns) / ns),
            "ram_ns": rounded(median(&self.ram_ns)),
            "find_ratio_to_ram": rounded(median(&self.ram_find_ns) / median(&self.find_ns)),
            "ram_find_ns": rounded(median(&self.ram_find_ns)),
        })
    }

    /// The file medium's part of a recovery after a crash, and the time of the engine's part.
    fn replay_json(&self) -> Value {
        let Some(Recoveries {
            crash,
            replay: Some(replay),
            ..
        }) = &self.recoveries
        else {
            return Value::Null;
        };
        let ms = |time: std::time::Duration| rounded(time.as_secs_f64() * 1e3);
        json!({
            "replay_bytes": replay.bytes,
            "replay_ms": ms(replay.duration),
            "recover_engine_ms": ms(crash.saturating_sub(replay.duration)),
        })
    }

    /// The engine's counters of one run.
    fn counters_json(&self) -> serde_json::Map<String, Value> {
        let count = |name: &str| {
            self.counters
                .iter()
                .find(|(other, _)| *other == name)
                .map(|(_, count)| *count)
        };
        let mut figures: serde_json::Map<_, _> = self
            .counters
            .iter()
            .map(|(name, count)| ((*name).to_owned(), json!(count)))
            .collect();
        if let Some(attempts) = count("pmwcas_attempts")
            && let Some(failures) = count("pmwcas_failures")
        {
            let percent = 100.0 * failures as f64 / attempts.max(1) as f64;
            figures.insert("pmwcas_failures_percent".to_owned(), rounded(percent));
        }
        figures
    }

    /// When an operation is durable.
    fn durability(&self) -> String {
        let medium = format!("{:?}", self.args.durability).to_lowercase();
        match self.args.engine.contract {
            _ if self.args.is_transient() => "never".to_owned(),
            Contract::Epoch => format!("epochs of {} ms, each {medium}", self.args.epoch_ms),
            Contract::Immediate(_) | Contract::Shifting(_) => medium,
        }
    }

    /// The figures of the file medium.
    fn log_json(&self, ns: f64) -> Value {
        let of_log = |share: fn(&LogShare) -> f64, by: f64| match &self.log {
            Some(log) => rounded(share(log) / by),
            None => Value::Null,
        };
        let operations = self.args.operations() as f64;
        let only_writes = matches!(
            self.args.workload,
            Workload::Load | Workload::Insert | Workload::Update
        );
        let entry_bytes = self.args.key_bytes_mean() + self.args.value_size as f64;
        // A checkpoint writes the log's lines back. In a run without one only the log was written.
        let was_checkpointed = self
            .log
            .as_ref()
            .is_some_and(|log| log.checkpoint_bytes > 0);
        let user_bytes = if only_writes && was_checkpointed {
            operations * entry_bytes
        } else {
            f64::NAN
        };
        let of_disk = |rate: fn(&DiskRates) -> f64| self.disk.as_ref().map_or(f64::NAN, rate);
        let syncs_per_second = of_disk(|rates| rates.syncs_per_second);
        json!({
            "durability": self.durability(),
            "tickets": self.args.tickets,
            "ordered_keys": self.args.ordered_keys,
            "bulk_load": self.args.bulk_load,
            "disk_syncs_per_second": rounded(syncs_per_second),
            "disk_bytes_per_second": rounded(of_disk(|rates| rates.bytes_per_second)),
            "ops_per_disk_sync": rounded(1e9 / ns / syncs_per_second),
            "log_bytes_per_op": of_log(|log| log.log_bytes as f64, operations),
            "checkpoint_bytes_per_op": of_log(|log| log.checkpoint_bytes as f64, operations),
            "write_amplification": of_log(|log| (log.log_bytes + log.checkpoint_bytes) as f64, user_bytes),
            "groups_per_sync": of_log(|log| log.groups as f64 / log.syncs.max(1) as f64, 1.0),
            "private_bytes": of_log(|log| log.private_bytes as f64, 1.0),
        })
    }
}
