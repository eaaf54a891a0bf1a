//! Room that is given back: units of the pool's file are punched out of it once a checkpoint has
//! passed their last lines.
//!
//! A unit that was released waits until the stores that made it free are durable and written back:
//! before that a crash would bring back a state in which it is in use. A thread that flushed lines
//! of the unit before it was free may log them later. Then the unit takes room again, which does no
//! harm.
//!
//! While a reader in another process maps the file, nothing is punched out of it. Such units are tried
//! again at each later checkpoint, unless they are in use again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::error::refused;
use super::{Core, File};
use crate::holes::{Holes, units_of};
use crate::presence::unless_mapped;
use crate::testing::mutant::Mutant;
use crate::{MediumError, RELEASE_BYTES};

/// The units that were released.
#[derive(Debug)]
pub(super) struct Released {
    /// By its number, each unit that waits, and where the log ended when it was released.
    waiting: Mutex<BTreeMap<u64, u64>>,
    holes: Arc<Holes>,
}

impl Released {
    pub(super) fn new(holes: &Arc<Holes>) -> Self {
        Self {
            waiting: Mutex::default(),
            holes: Arc::clone(holes),
        }
    }

    pub(super) fn add(&self, start: u64, end: u64, log_end: u64) {
        self.waiting
            .lock()
            .extend(units_of(start, end).map(|unit| (unit, log_end)));
    }

    /// Whether the unit of this offset was punched.
    pub(super) fn has_hole(&self, offset: u64) -> bool {
        self.holes.has(offset)
    }

    /// Takes waiting units back: they are in use again.
    pub(super) fn take_back(&self, start: u64, end: u64) {
        let mut waiting = self.waiting.lock();
        for unit in units_of(start, end) {
            waiting.remove(&unit);
        }
    }
}

impl Core {
    /// Punches the units that were released before `position`, up to which the log is durable and
    /// checkpointed.
    pub(super) fn punch(&self, position: u64) {
        let mut waiting = self.released.waiting.lock();
        let position = if Mutant::PunchedEarly.is_planted() {
            u64::MAX
        } else {
            position
        };
        let mut due = Vec::new();
        waiting.retain(|unit, log_end| {
            let is_due = *log_end <= position;
            due.extend(is_due.then_some(*unit));
            !is_due
        });
        let holes = &self.released.holes;
        // Units that a reader kept from being punched earlier.
        for bytes in holes.punch_put_off(&*self.pool) {
            self.give_back_punched(bytes.start, bytes.end);
        }
        let mut run = 0..0;
        for unit in due.into_iter().chain([u64::MAX]) {
            if unit == run.end {
                run.end += 1;
                continue;
            }
            if !run.is_empty() {
                let start = run.start * RELEASE_BYTES;
                let end = run.end * RELEASE_BYTES;
                holes.punch(&*self.pool, start, end);
                self.give_back_punched(start, end);
            }
            run = unit..unit.wrapping_add(1);
        }
    }
}

impl File {
    /// Does what [`Medium::cut`](crate::Medium::cut) promises, in these steps:
    ///
    /// 1. The pool is shorter in memory. From now on no frame has lines beyond its length.
    /// 2. All frames before are made durable and checkpointed. The header of the log then has the
    ///    new length, and no line that it leads to lies beyond.
    /// 3. The file is cut. If a crash prevents this step, or a reader that maps the file, the file is
    ///    longer than it need be, and holds what it held there. The next growth cuts it or fills it with
    ///    zeros ([`Mapping::grow`](crate::mapping::Mapping::grow)).
    pub(super) fn cut_now(&self, length: u64) -> Result<(), MediumError> {
        let core = &*self.core;
        core.settle(core.end())?;
        let old = self.mapping.extent().length();
        if length < old {
            // Frames are appended under this lock.
            let _tail = core.tail.lock();
            self.mapping.cut(length)?;
            // SAFETY: as `Mapping::cut`: memory beyond stays mapped.
            unsafe { core.extent.set_length(length) };
            core.lines.private.cut(length);
            core.pool_bytes.store(length, Ordering::Relaxed);
        }
        core.settle(core.end())?;
        core.checkpoint()?;
        if length < old {
            let _no_checkpoint = core.checkpointing.lock();
            let update = core.log.update(|header| header.pool_bytes = length);
            let cut = update
                .and_then(|()| unless_mapped(core.pool.file(), || core.pool.truncate(length)));
            cut.map_err(refused("cut the pool's free tail off"))?;
        }
        Ok(())
    }
}
