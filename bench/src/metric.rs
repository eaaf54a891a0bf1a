//! The figures, as data: names, units, and what a worse figure means to a user.

use clap::ValueEnum;
use lab::comparison::digits;
use serde::{Deserialize, Serialize};

/// The workloads that can be chosen by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PeerWorkload {
    /// All entries in random order, durable at the end.
    Load,
    /// Reads of random entries, on 1 and on 2 threads.
    Get,
    /// Ranges of 100 after a load in random order.
    Range,
    /// Puts of new keys, each durable when it returns, from 1, 2, 8 and 64 threads.
    Put,
    /// Batches of 100 new keys, durable when they return.
    Batch,
    /// Single updates, durable together at the end.
    Update,
    /// Single removes, durable together at the end.
    Remove,
    /// All entries in the order of their keys, by the fastest way a store has; then ranges of 100.
    Bulk,
    /// Bytes on disk and in memory.
    Space,
    /// The time to open: after a clean close, and after SIGKILL.
    Open,
    /// Transactions of three reads and two writes, on a store of their own.
    Transaction,
}

/// The unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    /// More is better.
    PerSecond,
    /// Less is better.
    Bytes,
    /// Less is better.
    Seconds,
    /// How many for each transaction; may be 0. Less is better.
    Ratio,
}

/// A figure.
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) workload: PeerWorkload,
    /// The heading of its table.
    pub(crate) group: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
    /// What it means for a user if another store is better.
    pub(crate) loss: &'static str,
}

/// Threads of the durable puts, and the figures of each.
pub(crate) const PUT_THREADS: [(u64, &str); 4] =
    [(1, "put-1"), (2, "put-2"), (8, "put-8"), (64, "put-64")];
/// Threads of the durable transactions, and the figures of each.
pub(crate) const TRANSACTION_THREADS: [(u64, &str); 3] = [(1, "tx-1"), (8, "tx-8"), (64, "tx-64")];
/// Threads of the transactions that are durable together, and the figures of each.
pub(crate) const MEMORY_TRANSACTION_THREADS: [(u64, &str); 2] =
    [(1, "tx-memory-1"), (2, "tx-memory-2")];
/// Threads of the durable transactions on hot keys.
pub(crate) const HOT_THREADS: u64 = 64;
/// Entries of a durable batch.
pub(crate) const BATCH: u64 = 100;
/// Entries of a range.
pub(crate) const RANGE: usize = 100;

const READS: &str = "Reads";
const WRITES: &str = "Writes that are durable together, at the end";
pub(crate) const DURABLE: &str = "Writes that are durable when they return";
const TRANSACTIONS: &str = "Transactions of three reads and two writes";
const SPACE: &str = "Room on disk and in memory";
const OPENING: &str = "Opening";

const fn metric(
    name: &'static str,
    workload: PeerWorkload,
    unit: Unit,
    group: &'static str,
    title: &'static str,
    loss: &'static str,
) -> Metric {
    Metric {
        name,
        workload,
        group,
        title,
        unit,
        loss,
    }
}

use PeerWorkload::{Batch, Bulk, Get, Load, Open, Put, Range, Remove, Space, Transaction, Update};
use Unit::{Bytes, PerSecond, Ratio, Seconds};

/// All figures, in the order of the tables.
#[rustfmt::skip]
pub(crate) const ALL: &[Metric] = &[
    metric("get-1", Get, PerSecond, READS, "gets, 1 thread",
        "Programs that read single keys are faster there."),
    metric("get-2", Get, PerSecond, READS, "gets, 2 threads",
        "Programs that read single keys on several threads are faster there."),
    metric("range-random", Range, PerSecond, READS, "ranges of 100, after a load in random order",
        "Listing neighbours in a store that was filled in random order is slower here: a range goes to one place in memory after the other."),
    metric("range-bulk", Bulk, PerSecond, READS, "ranges of 100, after a load in order",
        "Even where neighbours lie side by side, ranges are faster there."),
    metric("load", Load, PerSecond, WRITES, "load in random order",
        "The first fill of a store, or an import that is not sorted, takes longer here."),
    metric("bulk", Bulk, PerSecond, WRITES, "load in order",
        "An import from a sorted source takes longer here."),
    metric("update", Update, PerSecond, WRITES, "single updates",
        "Programs that change values, and can lose the last moments, are faster there."),
    metric("remove", Remove, PerSecond, WRITES, "single removes",
        "Clearing out old entries one by one takes longer here."),
    metric("put-1", Put, PerSecond, DURABLE, "puts, 1 thread",
        "A single thread waits longer for each durable write here."),
    metric("put-2", Put, PerSecond, DURABLE, "puts, 2 threads",
        "Two threads that write durably get less done here."),
    metric("put-8", Put, PerSecond, DURABLE, "puts, 8 threads",
        "A server with some durable writers gets less done here."),
    metric("put-64", Put, PerSecond, DURABLE, "puts, 64 threads",
        "A server with many durable writers gets less done here."),
    metric("batch-100", Batch, PerSecond, DURABLE, "entries in batches of 100, 1 thread",
        "Writers that collect entries into durable batches are faster there."),
    metric("tx-1", Transaction, PerSecond, TRANSACTIONS, "durable transactions, 1 thread",
        "A single thread waits longer for each durable transaction here."),
    metric("tx-8", Transaction, PerSecond, TRANSACTIONS, "durable transactions, 8 threads",
        "A server whose requests are durable transactions serves fewer of them here when some run at once."),
    metric("tx-64", Transaction, PerSecond, TRANSACTIONS, "durable transactions, 64 threads",
        "A server whose requests are durable transactions serves fewer of them here when many run at once."),
    metric("tx-hot-64", Transaction, PerSecond, TRANSACTIONS, "durable transactions, hot keys, 64 threads",
        "A server gets fewer durable transactions done here if many of them use the same few keys."),
    metric("tx-hot-conflicts", Transaction, Ratio, TRANSACTIONS, "conflicts a transaction, hot keys, 64 threads",
        "Transactions that use the same keys at once are run again more often here, which costs the work of each failed attempt. \
        A store with one writer has no conflicts, since transactions wait for each other. Attempts are compared: one, and one for each conflict."),
    metric("tx-memory-1", Transaction, PerSecond, TRANSACTIONS, "transactions and one sync at the end, 1 thread",
        "Programs that need transactions, and can lose the last moments, are faster there."),
    metric("tx-memory-2", Transaction, PerSecond, TRANSACTIONS, "transactions and one sync at the end, 2 threads",
        "Programs with transactions on several threads, which can lose the last moments, are faster there."),
    metric("disk-load", Space, Bytes, SPACE, "on disk at the end of the load",
        "The same data need more room on the disk while a store is filled."),
    metric("disk-idle", Space, Bytes, SPACE, "on disk, open and idle",
        "The same data need more room on the disk while the store is open."),
    metric("disk-closed", Space, Bytes, SPACE, "on disk, closed",
        "The same data need more room on the disk for good, and in every copy of the files."),
    metric("disk-bulk", Space, Bytes, SPACE, "on disk, closed, after a load in order",
        "Data that were loaded in order need more room on the disk."),
    metric("memory", Space, Bytes, SPACE, "in memory, after load and a read of all",
        "Less memory is left for the rest of the machine while the store is open."),
    metric("memory-private", Space, Bytes, SPACE, "in memory, pages of the files left out",
        "The system cannot take this memory back when others need it, so a small machine holds a smaller store."),
    metric("disk-small", Space, Bytes, SPACE, "on disk, a store of one entry, open",
        "Programs with many small stores need more room on the disk."),
    metric("open-clean", Open, Seconds, OPENING, "open after a clean close, and the first get",
        "A program that starts often waits longer for its first answer."),
    metric("open-killed", Open, Seconds, OPENING, "open after SIGKILL, and the first get",
        "A service is away for longer after a crash."),
    metric("session-small", Open, Seconds, OPENING, "open, one durable put and close, a store of one entry",
        "A program that starts, writes a little and ends takes longer here."),
];

/// A figure by its name.
pub(crate) fn from_name(name: &str) -> Option<&'static Metric> {
    ALL.iter().find(|metric| metric.name == name)
}

impl Metric {
    /// How many times better `a` is than `b`: more than 1 if it is better.
    pub(crate) fn advantage(&self, a: f64, b: f64) -> f64 {
        match self.unit {
            PerSecond => a / b,
            Bytes | Seconds => b / a,
            // A ratio may be 0.
            Ratio => (1.0 + b) / (1.0 + a),
        }
    }

    /// A figure with its unit.
    pub(crate) fn figure(&self, value: f64) -> String {
        match self.unit {
            PerSecond if value >= 999_500.0 => format!("{} M/s", digits(value / 1e6)),
            PerSecond if value >= 999.5 => format!("{} k/s", digits(value / 1e3)),
            PerSecond => format!("{} /s", digits(value)),
            Bytes => format!("{} MiB", digits(value / f64::from(1 << 20))),
            Seconds if value >= 0.9995 => format!("{} s", digits(value)),
            Seconds => format!("{} ms", digits(value * 1e3)),
            Ratio => digits(value),
        }
    }
}

#[cfg(test)]
mod tests;
