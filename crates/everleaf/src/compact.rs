//! Compacting a store while it is in use.
//!
//! 1. *Choose* slabs: of each size class the emptiest ones, as far as their content fits into the
//!    free slots of the others. No thread allocates from them until the pass ends.
//! 2. *Move*: for each tree, the records and leaves in these slabs are copied to other slabs, one at
//!    a time, under the stripe of their key (`engines/src/kit/relocate.rs`).
//! 3. *Free* the old records, once no reader is left that can see them. A slab without allocations
//!    is free.
//! 4. Passes are repeated until no slab can be emptied. Then the room of free slabs is given back,
//!    and the free tail of the file is cut off.
//!
//! None of this changes what the trees hold, so a crash at any time loses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use engines::index::{Index, MoveCount, OwnSpace};
use engines::{Error, ErrorKind, Result};
use pool::Evacuate;

use crate::Store;

/// A slab in which something is left is tried once more: a thread may have written there meanwhile.
const TRIES_MAX: u32 = 2;
/// How long the mover sleeps at most before it asks whether to go on.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// The most passes: threads that write meanwhile leave new sparse slabs again and again.
const PASSES_MAX: u32 = 8;

/// How a store is compacted: for [`Store::compact_with`].
///
/// ```
/// # let store = everleaf::Store::in_memory()?;
/// use everleaf::CompactOptions;
///
/// let texts = store.tree("texts")?;
/// for number in 0..4000_u32 {
///     texts.put(number.to_be_bytes(), [b'x'; 200])?;
/// }
/// texts.remove_range(..3000_u32.to_be_bytes())?;
/// let options = CompactOptions::new().moves_per_second(1_000_000);
/// let compaction = store.compact_with(options)?;
/// assert!(compaction.unfinished.is_none());
/// assert_eq!(texts.len()?, 1000);
/// # Ok::<(), everleaf::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactOptions {
    moves_per_second: Option<u64>,
}

impl CompactOptions {
    /// Moves records as fast as possible.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves at most this many records and nodes a second, on average, and leaves the disk and the processor
    /// to other threads meanwhile; at least one.
    #[must_use]
    pub fn moves_per_second(mut self, moves: u64) -> Self {
        self.moves_per_second = Some(moves.max(1));
        self
    }
}

/// The result of [`Store::compact`]: the moves, and the parts of the store that stay as they were.
#[derive(Debug, Default)]
pub struct Compaction {
    /// Bytes that the pool's file took on its disk before; 0 in memory.
    pub disk_bytes_before: u64,
    /// Bytes that it takes now.
    pub disk_bytes_after: u64,
    /// Bytes of the 64 KiB slabs that held something before.
    pub used_bytes_before: u64,
    /// Bytes of the slabs that hold something now.
    pub used_bytes_after: u64,
    /// Records that were moved.
    pub records_moved: u64,
    /// Nodes that were moved, or merged with others instead.
    pub nodes_moved: u64,
    /// Slabs that should have been emptied, and that still hold something: nodes of engines that do
    /// not move them; damaged records and nodes; those of trees that do not open.
    pub slabs_kept: u64,
    /// Allocations in these slabs.
    pub allocations_kept: u64,
    /// The slabs of trees of [`Engine::MASSTREE`](crate::Engine::MASSTREE), which has an allocator
    /// of its own, as the last pass has found them.
    pub own_space: OwnSpace,
    /// Trees whose records were not moved, and why.
    pub trees_left: Vec<TreeLeft>,
    /// Why the moves ended before everything was moved; `None` if it was.
    pub unfinished: Option<CompactStop>,
}

impl Compaction {
    fn moves(&self) -> u64 {
        self.records_moved + self.nodes_moved
    }

    /// How many bytes of the disk are free now that were not before.
    #[must_use]
    pub fn bytes_freed(&self) -> u64 {
        self.disk_bytes_before.saturating_sub(self.disk_bytes_after)
    }
}

/// A tree whose records a compaction has left where they were.
#[derive(Debug)]
pub struct TreeLeft {
    /// Its name.
    pub name: String,
    /// Why it does not open, or the damage that the compaction found.
    pub error: Error,
}

/// Why a compaction has moved less than it could have.
#[derive(Debug)]
pub enum CompactStop {
    /// It is not known which space is in use: recovery in the background has not ended
    /// ([`Store::finish_recovery`]), or a tree is damaged.
    Recovering,
    /// The caller has ended it. The room of free slabs was not given back.
    Interrupted,
    /// After eight passes there were still sparse slabs: other threads have left them meanwhile.
    Passes,
    /// There was no room for a copy ([`ErrorKind::PoolFull`], which says what is lacking), or a
    /// batch is unfinished ([`ErrorKind::BatchUnfinished`]).
    Refused(Error),
}

/// How moving the records of all trees ended.
enum PassEnd {
    Done,
    Stopped(CompactStop),
}

/// Keeps a mover to its rate.
struct Pace {
    started: Instant,
    moves_per_second: Option<u64>,
}

impl Pace {
    /// Sleeps until the rate allows this number of moves. Returns whether the caller wants to go on.
    fn keep(&self, moves: u64) -> bool {
        let Some(rate) = self.moves_per_second else {
            return true;
        };
        let due = Duration::from_secs_f64(moves as f64 / rate as f64);
        loop {
            let ahead = due.saturating_sub(self.started.elapsed());
            if ahead.is_zero() {
                return true;
            }
            std::thread::sleep(ahead.min(PAUSE_MAX));
            if !medium::progress::advance(0) {
                return false;
            }
        }
    }
}

impl Store {
    /// Gives the room of free space back to the file system. Records in sparse slabs of 64 KiB are
    /// moved together first, so that more slabs are free. Then all free slabs become holes in the
    /// file, and the free tail of the file is cut off. The pool is never larger afterwards, unless
    /// other threads have written to it.
    ///
    /// Leaves of [`Engine::RNTREE`](crate::Engine::RNTREE), and nodes of
    /// [`Engine::BZTREE`](crate::Engine::BZTREE) and [`Engine::CAWBT`](crate::Engine::CAWBT), are
    /// moved as well, or merged. Nodes of [`Engine::WBTREE`](crate::Engine::WBTREE) and
    /// [`Engine::MASSTREE`](crate::Engine::MASSTREE) stay where they are, and so do values whose
    /// records have slabs of their own. A slab that is more than seven eighths full is not emptied.
    /// Without this call the room of removed entries is given back gradually, as far as whole slabs
    /// are free, except for some MiB that are kept for reuse; and at a clean close.
    ///
    /// Other threads may go on. A record is moved while no batch holds its key, and a batch with the
    /// key waits for one copy. Threads that need new slabs wait for a moment at the beginning of each
    /// pass. Trees of [`Engine::MASSTREE`](crate::Engine::MASSTREE) stop while their free objects are
    /// counted. All trees are opened for this, and a tree cannot be dropped or renamed while its
    /// records are moved.
    ///
    /// A caller that wants to follow the progress, or to end it, calls this within
    /// `medium::progress::watched`: it reports records that were moved.
    ///
    /// O(entries) for each pass, of which there are a few; on a file also a checkpoint.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let texts = store.tree("texts")?;
    /// for number in 0..4000_u32 {
    ///     texts.put(number.to_be_bytes(), [b'x'; 200])?;
    /// }
    /// for number in (0..4000_u32).filter(|number| number % 8 > 0) {
    ///     texts.remove(number.to_be_bytes())?; // leaves one record of eight
    /// }
    /// let compaction = store.compact()?;
    /// assert!(compaction.records_moved > 0);
    /// assert!(compaction.used_bytes_after < compaction.used_bytes_before / 2);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Medium`] if the medium failed; [`ErrorKind::ReadOnly`] if the store is only
    /// read. A full disk, an unfinished batch and damaged trees are no errors: free slabs are given
    /// back nevertheless, and the result names these obstacles.
    pub fn compact(&self) -> Result<Compaction> {
        self.compact_with(CompactOptions::new())
    }

    /// Does the same as [`Store::compact`], with these options. [`CompactOptions`] has an example.
    ///
    /// # Errors
    /// Those of [`Store::compact`].
    pub fn compact_with(&self, options: CompactOptions) -> Result<Compaction> {
        self.at(self.try_compact(options))
    }

    fn try_compact(&self, options: CompactOptions) -> Result<Compaction> {
        self.inner.expect_writable()?;
        let backend = self.inner.backend()?;
        let _alone = self.inner.compacting();
        self.inner.find_space();
        let mut report = Compaction {
            disk_bytes_before: self.disk_bytes()?,
            used_bytes_before: backend.stat().used_bytes,
            ..Compaction::default()
        };
        report.unfinished = match self.move_out(options, &mut report)? {
            PassEnd::Done => None,
            PassEnd::Stopped(stop) => Some(stop),
        };
        if !matches!(report.unfinished, Some(CompactStop::Interrupted)) {
            backend.compact()?;
        }
        report.disk_bytes_after = self.disk_bytes()?;
        report.used_bytes_after = backend.stat().used_bytes;
        Ok(report)
    }

    /// Bytes that the pool's file takes on its disk. Its path may mean another file by now.
    fn disk_bytes(&self) -> Result<u64> {
        let file = self.inner.backend()?.pool_file();
        let metadata = file.and_then(|file| file.metadata().ok());
        Ok(512 * metadata.map_or(0, |metadata| metadata.blocks()))
    }

    /// Moves records out of sparse slabs, pass by pass.
    fn move_out(&self, options: CompactOptions, report: &mut Compaction) -> Result<PassEnd> {
        let backend = self.inner.backend()?;
        if let Err(unfinished) = backend.expect_batches_finished() {
            return Ok(PassEnd::Stopped(CompactStop::Refused(unfinished)));
        }
        if !self.inner.has_recovered() || backend.stat().marked.is_some() {
            return Ok(PassEnd::Stopped(CompactStop::Recovering));
        }
        let pace = Pace {
            started: Instant::now(),
            moves_per_second: options.moves_per_second,
        };
        let mut tries = BTreeMap::<u64, u32>::new();
        let mut obstacle = None;
        for _ in 0..PASSES_MAX {
            let excluded: BTreeSet<u64> = tries
                .iter()
                .filter(|(_, tries)| **tries >= TRIES_MAX)
                .map(|(slab, _)| *slab)
                .collect();
            let evacuation = backend.evacuate(Evacuate::Sparse, &excluded);
            let moved_before = report.moves();
            let mut own_slabs = 0;
            let has_slabs = !evacuation.is_empty();
            let ended = self.move_all_trees(&pace, has_slabs, &mut own_slabs, report)?;
            let has_moved = report.moves() > moved_before;
            if !has_slabs && (own_slabs == 0 || !has_moved) {
                return Ok(ended);
            }
            if matches!(ended, PassEnd::Stopped(CompactStop::Interrupted)) {
                return Ok(ended);
            }
            // Old records are freed when no reader is left that can see them.
            self.inner.find_space();
            let rest = evacuation.rest();
            drop(evacuation);
            backend.release();
            report.slabs_kept = rest.slabs.len() as u64 + excluded.len() as u64;
            report.allocations_kept = rest.allocations;
            for slab in rest.slabs {
                *tries.entry(slab).or_default() += 1;
            }
            obstacle = match ended {
                // The records that were moved before have made room meanwhile.
                PassEnd::Stopped(CompactStop::Refused(error)) if error.is_full() && has_moved => {
                    Some(CompactStop::Refused(error))
                }
                PassEnd::Stopped(stop) => return Ok(PassEnd::Stopped(stop)),
                PassEnd::Done => None,
            };
        }
        Ok(PassEnd::Stopped(obstacle.unwrap_or(CompactStop::Passes)))
    }

    /// Moves the records of all trees out of the slabs that are to be emptied, of which the pool has
    /// chosen some if `has_slabs`. Adds the slabs that the trees' own allocators have chosen to
    /// `own_slabs`.
    fn move_all_trees(
        &self,
        pace: &Pace,
        has_slabs: bool,
        own_slabs: &mut u64,
        report: &mut Compaction,
    ) -> Result<PassEnd> {
        report.own_space = OwnSpace::default();
        for info in self.trees()? {
            let Some(kind) = info.kind else {
                continue;
            };
            let has_own_allocator = kind.engine.is_buffered();
            if !has_slabs && !has_own_allocator {
                continue;
            }
            if !medium::progress::advance(0) {
                return Ok(PassEnd::Stopped(CompactStop::Interrupted));
            }
            let name = info.name;
            // Its handle is dropped when its records are moved.
            let moved = match self.open_tree(&name) {
                Ok(tree) => self.move_tree(tree.index(), pace, own_slabs, report),
                Err(error) => Err(error),
            };
            match moved {
                Ok(PassEnd::Done) => {}
                Ok(PassEnd::Stopped(stop)) => return Ok(PassEnd::Stopped(stop)),
                Err(error) => match error.kind() {
                    ErrorKind::PoolFull { .. } | ErrorKind::BatchUnfinished => {
                        return Ok(PassEnd::Stopped(CompactStop::Refused(error)));
                    }
                    ErrorKind::Medium { .. } | ErrorKind::Forked | ErrorKind::WithinEpoch => {
                        return Err(error);
                    }
                    // It was dropped meanwhile.
                    ErrorKind::NoSuchTree { .. } => {}
                    _ => {
                        let is_known = report.trees_left.iter().any(|left| left.name == name);
                        if !is_known {
                            report.trees_left.push(TreeLeft { name, error });
                        }
                    }
                },
            }
        }
        Ok(PassEnd::Done)
    }

    fn move_tree(
        &self,
        tree: &dyn Index,
        pace: &Pace,
        own_slabs: &mut u64,
        report: &mut Compaction,
    ) -> Result<PassEnd> {
        let backend = self.inner.backend()?;
        let before = report.records_moved;
        let moves_before = report.moves();
        let mut reported = 0;
        let mut count = MoveCount::default();
        let moved = tree.evacuate(Evacuate::Sparse, &mut count, &mut |count| {
            backend.keep_up(count.lsn)?;
            let goes_on = pace.keep(moves_before + count.moved + count.nodes_moved);
            let new = count.moved - reported;
            reported = count.moved;
            Ok(goes_on && medium::progress::advance(new))
        });
        report.records_moved = before + count.moved;
        report.nodes_moved += count.nodes_moved;
        report.own_space += count.own_space;
        *own_slabs += count.own_slabs;
        if moved? {
            Ok(PassEnd::Done)
        } else {
            Ok(PassEnd::Stopped(CompactStop::Interrupted))
        }
    }
}
