//! Group commit under every interleaving and every weak ordering. See `crate::sync` for how to run
//! it.
//!
//! Two steps are not modelled: that a thread polls for the end of a sync before it sleeps, and that
//! it gathers the writes of other threads. Both only change how long a commit takes.

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;

use super::commit::GroupCommit;
use crate::MediumError;
use crate::sync::{AtomicU64, Ordering, model};

/// A log of which only the length is modelled.
struct Disk {
    commit: GroupCommit,
    appended: AtomicU64,
    /// The length that the disk holds. Only a leader writes it, so its accesses are relaxed: the
    /// commit alone orders them.
    synced: AtomicU64,
    /// The length from which on syncs fail.
    breaks_at: u64,
}

impl Disk {
    fn new(breaks_at: u64) -> Arc<Self> {
        let commit = GroupCommit::new(0, Some(Duration::ZERO));
        Arc::new(Self {
            commit,
            appended: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            breaks_at,
        })
    }

    /// Appends, and waits until that is durable.
    fn write(&self) -> (u64, Result<(), MediumError>) {
        let position = self.appended.fetch_add(1, Ordering::AcqRel) + 1;
        let settled = self.commit.settle(position, &|| {
            let end = self.appended.load(Ordering::Acquire);
            if end >= self.breaks_at {
                return self.commit.fail("the disk broke".to_owned());
            }
            self.synced.store(end, Ordering::Relaxed);
            self.commit.advance(end);
        });
        if settled.is_ok() {
            assert!(
                self.synced.load(Ordering::Relaxed) >= position,
                "acknowledged before the sync that covers it"
            );
        }
        (position, settled)
    }
}

/// Loom checks that all threads end: a lost wake-up is a deadlock.
fn write_in_threads(breaks_at: u64, threads: usize) -> Vec<(u64, Result<(), MediumError>)> {
    let disk = Disk::new(breaks_at);
    let others: Vec<_> = (1..threads)
        .map(|_| {
            let disk = Arc::clone(&disk);
            thread::spawn(move || disk.write())
        })
        .collect();
    let own = disk.write();
    others
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .chain([own])
        .collect()
}

#[test]
fn everybody_is_woken_and_nobody_before_the_sync() {
    model(|| {
        assert!(
            write_in_threads(u64::MAX, 3)
                .iter()
                .all(|(_, settled)| settled.is_ok())
        );
    });
}

#[test]
fn a_failure_reaches_all_whom_no_sync_served() {
    model(|| {
        for (position, settled) in write_in_threads(2, 3) {
            assert!(
                position < 2 || settled.is_err(),
                "acknowledged by a disk that broke"
            );
        }
    });
}
