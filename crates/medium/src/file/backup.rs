//! A consistent copy of a pool while it is written.

use std::io;
use std::sync::Arc;

use super::File;
use super::checkpoint::write_home;
use super::io::{Io, read_all, write_all};
use super::layout::Mark;
use super::open::write_mark;
use crate::MediumError;

/// Bytes that are copied at a time.
const PART_BYTES: u64 = 4 << 20;

impl File {
    /// Copies the pool as it is at some moment of the call into `target`, which is empty: the base image, and what the
    /// log holds beyond it. The copy needs no log. Durable when this returns. Writers go on, but wait if the log fills
    /// up meanwhile, for no checkpoint frees its space. Returns the bytes of the copy.
    ///
    /// # Errors
    /// [`MediumError::Log`] if reading or writing fails; [`MediumError::Failed`] if this medium failed.
    pub fn backup(&self, target: &Arc<dyn Io>) -> Result<u64, MediumError> {
        let core = &*self.core;
        core.settle(core.end())?;
        // Without a checkpoint nobody writes the base image, and the log keeps its start.
        let _still = core.checkpointing.lock();
        let to = core.commit.durable();
        let copied = copy(&*core.pool, &**target).and_then(|length| {
            write_home(&core.log, &**target, core.mark_offset, core.log.start(), to).map(|_| length)
        });
        let length = copied.map_err(super::error::refused("copy the pool"))?;
        write_mark(&**target, self.options.mark_offset, Mark(None))?;
        Ok(length)
    }
}

fn copy(from: &dyn Io, to: &dyn Io) -> io::Result<u64> {
    let length = from.length()?;
    let mut part = vec![0; PART_BYTES.min(length) as usize];
    let mut offset = 0;
    while offset < length {
        let bytes = (length - offset).min(PART_BYTES) as usize;
        read_all(from, &mut part[..bytes], offset)?;
        write_all(to, &part[..bytes], offset)?;
        offset += bytes as u64;
    }
    Ok(length)
}
