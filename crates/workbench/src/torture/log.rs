//! Figures of the line log, from one process to another.

use everleaf::{FileStat, LogEnd};
use serde::{Deserialize, Serialize};

/// The line log of a pool on the file medium.
#[derive(Serialize, Deserialize)]
pub(super) struct LogReport {
    capacity_bytes: u64,
    used_bytes: u64,
    written_bytes: u64,
    groups: u64,
    lines: u64,
    syncs: u64,
    groups_per_sync_mean: f64,
    groups_per_sync_max: u64,
    /// Entry i counts the syncs of 2^i to 2^(i+1) - 1 groups.
    sync_sizes: Vec<u64>,
    checkpoints: u64,
    checkpoint_bytes: u64,
    checkpoint_seconds: f64,
    last_checkpoint_seconds_ago: Option<f64>,
    private_bytes: u64,
    replayed_bytes: u64,
    replayed_groups: u64,
    replayed_syncs: u64,
    torn_tail: bool,
}

impl LogReport {
    pub(super) fn of(stat: FileStat) -> Self {
        Self {
            capacity_bytes: stat.log_capacity_bytes,
            used_bytes: stat.log_used_bytes,
            written_bytes: stat.log_bytes,
            groups: stat.groups,
            lines: stat.lines,
            syncs: stat.syncs,
            groups_per_sync_mean: stat.sync_groups_mean,
            groups_per_sync_max: stat.sync_groups_max,
            sync_sizes: stat.sync_sizes,
            checkpoints: stat.checkpoints,
            checkpoint_bytes: stat.checkpoint_bytes,
            checkpoint_seconds: stat.checkpoint_time.as_secs_f64(),
            last_checkpoint_seconds_ago: stat
                .last_checkpoint
                .map(|time| time.elapsed().unwrap_or_default().as_secs_f64()),
            private_bytes: stat.private_bytes,
            replayed_bytes: stat.replay.bytes,
            replayed_groups: stat.replay.groups,
            replayed_syncs: stat.replay.syncs,
            torn_tail: stat.replay.end == LogEnd::Torn,
        }
    }
}
