//! Figures about the log and its pool.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::commit::SIZES;
use super::{File, Replay};

/// Figures of the checkpoints so far.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    pub(super) checkpoints: u64,
    pub(super) log_bytes: u64,
    pub(super) written_back_bytes: u64,
    pub(super) time: Duration,
    /// When the last one ended, in seconds since 1970, also if another process made it; 0 if there
    /// was none.
    pub(super) last_s: u64,
}

/// Figures about a [`File`], since it was opened.
#[derive(Clone, Debug)]
pub struct FileStat {
    /// Bytes that the log can hold.
    pub log_capacity_bytes: u64,
    /// Bytes in the log that are not checkpointed yet.
    pub log_used_bytes: u64,
    /// Bytes appended.
    pub log_bytes: u64,
    /// Bytes appended that are not durable yet.
    pub backlog_bytes: u64,
    /// Groups of lines (one for each fence) appended.
    pub groups: u64,
    /// Lines in the groups.
    pub lines: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Groups that one sync made durable, on average.
    pub sync_groups_mean: f64,
    /// The most groups that one sync made durable.
    pub sync_groups_max: u64,
    /// Syncs by size: entry i counts those of 2^i to 2^(i+1) - 1 groups.
    pub sync_sizes: Vec<u64>,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Bytes that checkpoints wrote to the pool's file.
    pub checkpoint_bytes: u64,
    /// The time of all checkpoints.
    pub checkpoint_time: Duration,
    /// When the last checkpoint ended, to the second; also if another process made it.
    pub last_checkpoint: Option<SystemTime>,
    /// Bytes of memory in pages that were written, and not given back to the system since.
    pub private_bytes: u64,
    /// Bytes of such pages that were given back.
    pub given_back_bytes: u64,
    /// The limit of `private_bytes`.
    pub private_bytes_max: u64,
    /// The replay of the log by the open.
    pub replay: Replay,
}

impl File {
    /// Figures. O(1); does not wait for the disk or a checkpoint.
    pub fn stat(&self) -> FileStat {
        let core = &*self.core;
        let (groups, lines) = {
            let tail = core.tail.lock();
            (tail.appender.frames, tail.appender.lines)
        };
        let figures = &core.commit.figures;
        let load = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
        let syncs = load(&figures.syncs);
        let last = core.checkpoints.lock();
        // Read in this order, none is greater than the next.
        let start = core.log.start();
        let durable = core.commit.durable();
        let end = core.end();
        let mut sync_sizes: Vec<u64> = figures.sizes.iter().map(load).collect();
        let used = SIZES
            - sync_sizes
                .iter()
                .rev()
                .take_while(|count| **count == 0)
                .count();
        sync_sizes.truncate(used);
        FileStat {
            log_capacity_bytes: core.log.capacity(),
            log_used_bytes: end - start,
            log_bytes: load(&figures.bytes) + (end - durable),
            backlog_bytes: end.saturating_sub(durable),
            groups,
            lines,
            syncs,
            sync_groups_mean: load(&figures.groups) as f64 / syncs.max(1) as f64,
            sync_groups_max: load(&figures.groups_max),
            sync_sizes,
            checkpoints: last.checkpoints,
            checkpoint_bytes: last.written_back_bytes,
            checkpoint_time: last.time,
            // A damaged or forged header may name a time beyond the clock.
            last_checkpoint: UNIX_EPOCH
                .checked_add(Duration::from_secs(last.last_s))
                .filter(|time| *time > UNIX_EPOCH),
            private_bytes: core.lines.private.bytes(),
            given_back_bytes: core.lines.private.bytes_given_back(),
            private_bytes_max: self.options.private_bytes_max,
            replay: self.replay,
        }
    }
}
