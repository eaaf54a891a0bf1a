//! The places of a pool and its log: whether the two files still have the names under which they
//! were opened.
//!
//! Another program may move, remove or replace the files of an open store. Everything here goes by
//! the descriptor of their folder, so a folder that is renamed changes nothing. The names are
//! compared at a sync of the log, at most once a second, and when the pool is closed. If one of
//! them is lost, writing ends ([`Core::end_writing`]):
//!
//! 1. All that is appended is synced.
//! 2. All of the log is checkpointed, so the pool's file has every acknowledged write.
//! 3. The log's header says that the log holds nothing, and the pool's mark that it needs no log.
//!    So wherever the two files are now, the pool opens, with or without the log beside it.
//! 4. From now on writes are refused. Reads go on: everything that they find is durable in the
//!    pool's file, if that still has a name.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::layout::LogMark;
use super::open::write_mark;
use super::{Core, File};
use crate::Grown;
use crate::folder::{DisplacedFile, FilePlace};

/// The names are compared at most this often while the pool is open.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How often frames that other threads append while writing ends are made durable as well.
const LAST_SYNCS_MAX: u32 = 8;

/// The places of the files of an open pool.
#[derive(Debug)]
pub(super) struct StorePlaces {
    /// `None` if the caller opened the pool without naming it.
    pub(super) pool: Option<FilePlace>,
    pub(super) log: FilePlace,
    opened_at: Instant,
    /// When the names were last compared, in milliseconds since `opened_at`.
    checked_ms: AtomicU64,
}

impl StorePlaces {
    pub(super) fn new(pool: Option<FilePlace>, log: FilePlace) -> Self {
        Self {
            pool,
            log,
            opened_at: Instant::now(),
            checked_ms: AtomicU64::new(0),
        }
    }

    /// Whether the last comparison is long ago. If so, this one counts as made.
    fn is_due(&self) -> bool {
        let now_ms = self.opened_at.elapsed().as_millis() as u64;
        let since_ms = now_ms.saturating_sub(self.checked_ms.load(Ordering::Relaxed));
        if since_ms < CHECK_EVERY.as_millis() as u64 {
            return false;
        }
        self.checked_ms.store(now_ms, Ordering::Relaxed);
        true
    }
}

/// The file, if it has lost the name that it had at `place`. If the system does not tell, it counts
/// as being in place: a server that does not answer for a while must not end all writing.
fn displaced(place: &FilePlace, file: &std::fs::File, which: Grown) -> Option<DisplacedFile> {
    let Ok(Some(how)) = place.displacement(file) else {
        return None;
    };
    Some(DisplacedFile {
        file: which,
        path: place.path().to_owned(),
        how,
    })
}

impl Core {
    /// The pool's file, if it has lost its name.
    pub(super) fn displaced_pool(&self) -> Option<DisplacedFile> {
        let place = self.places.as_ref()?.pool.as_ref()?;
        displaced(place, self.pool.file(), Grown::Pool)
    }

    /// A file that has lost its name; `None` also if that was asked a moment ago.
    pub(super) fn displaced_if_due(&self) -> Option<DisplacedFile> {
        let places = self.places.as_ref()?;
        if !places.is_due() {
            return None;
        }
        let log = || displaced(&places.log, self.log.io.file(), Grown::Log);
        self.displaced_pool().or_else(log)
    }

    /// Ends writing, in the steps that the module's documentation lists. Only the leader calls
    /// this.
    pub(super) fn end_writing(&self, displaced: DisplacedFile) -> io::Result<()> {
        for _ in 0..LAST_SYNCS_MAX {
            if self.commit.durable() == self.end() {
                break;
            }
            self.write_and_sync()?;
        }
        self.checkpoint_and_end_log(None)?;
        write_mark(&*self.pool, self.mark_offset, LogMark(None)).map_err(io::Error::other)?;
        self.commit.fail_displaced(displaced);
        Ok(())
    }

    /// Removes the log, unless its name means another file by now. Returns whether it was removed.
    pub(super) fn remove_log(&self) -> io::Result<bool> {
        match &self.places {
            Some(places) => places.log.remove(self.log.io.file()),
            None => Ok(false),
        }
    }
}

impl File {
    /// The pool's file.
    pub fn pool_file(&self) -> &std::fs::File {
        self.core.pool.file()
    }

    /// Ends writing for ever, and removes the log: for a pool whose file the caller removes. What
    /// it holds is lost. A log whose name means another file by now stays.
    ///
    /// # Errors
    /// If the log cannot be removed.
    pub fn abandon(&self) -> io::Result<()> {
        self.core.end_duties();
        // The drop must not remove another log that is made at the same place.
        self.core.marked.store(true, Ordering::Relaxed);
        self.core.commit.fail("the pool was removed".to_owned());
        self.core.remove_log().map(drop)
    }
}
