//! A pool that is only read: the file and its log, brought together in memory. Neither file is
//! written.
//!
//! The memory then has the state to which an open for writing would recover. That open makes the
//! state durable before it goes on. Here nothing is made durable, so a loss of power may take back
//! the end of the log.

use std::fs;
use std::sync::Arc;

use super::backup::advance;
use super::error::{LogError, refused};
use super::find::{LogAccess, LogFile, find, open_log, read_mark};
use super::layout::LogMark;
use super::log::{Log, LogSizes};
use super::open::replay_into;
use super::{CopyTarget, File, FileOptions};
use crate::folder::FilePlace;
use crate::io::{Disk, Io, write_all};
use crate::{Dax, Medium, MediumError};

/// Words that a copy writes at a time.
const PART_WORDS: usize = 128 << 10;

impl File {
    /// Reads the pool in `pool`, with the log at the place `log` if it needs that, into memory. `None`
    /// as the place: it needs none. The caller holds the pool's lock, or the file is a copy. A damaged line that names the log is an error, unless the user
    /// `asked` for a medium without a log and no log with data lies there.
    ///
    /// # Errors
    /// [`MediumError::Log`] if log and pool do not fit together, or one of them is damaged.
    pub fn image(
        pool: fs::File,
        log: Option<&FilePlace>,
        options: FileOptions,
        asked: bool,
    ) -> Result<Dax, MediumError> {
        let found = match log {
            Some(log) => open_log(log, LogAccess::Read)?,
            None => None,
        };
        let log = found.map(|log| Arc::new(Disk(log)) as Arc<dyn Io>);
        Self::image_on(&Disk(pool), log, options, asked)
    }

    /// Does the same as [`File::image`], with files that are open already.
    ///
    /// # Errors
    /// The same as those of [`File::image`].
    pub fn image_on(
        pool: &dyn Io,
        log: Option<Arc<dyn Io>>,
        options: FileOptions,
        asked: bool,
    ) -> Result<Dax, MediumError> {
        let mark = match read_mark(pool, options.mark_offset) {
            Err(LogError::Mark { .. }) if asked => LogMark(None),
            mark => mark?,
        };
        let (log, there) = match (log, mark) {
            (Some(log), _) => {
                let there = find(&*log, mark)?;
                (Some(log), there)
            }
            (None, LogMark(None)) => (None, LogFile::Fresh),
            (None, LogMark(Some(uuid))) => return Err(LogError::Missing { uuid }.into()),
        };
        let ram = Dax::plain_copy(pool.file())?;
        if let Some(log) = log
            && let LogFile::Log(newest) = there
        {
            let length = ram.extent().length();
            let expected = newest.header.pool_bytes;
            if length < expected {
                return Err(LogError::PoolTruncated { length, expected }.into());
            }
            let log = Log::new(
                log,
                newest.header.clone(),
                LogSizes::default(),
                options.sizes,
            );
            replay_into(&log, &newest, ram.mapping(), Some(&|_, _| {}))?;
        }
        Ok(ram)
    }

    /// Makes a copy of an image: a pool that needs no log, and is durable when this returns.
    /// Returns its bytes. Nothing was stored to the image since [`File::image`] gave it.
    ///
    /// # Errors
    /// [`MediumError::Log`] if the copy cannot be written.
    pub fn write_image(
        image: &Dax,
        target: &CopyTarget,
        mark_offset: u64,
    ) -> Result<u64, MediumError> {
        let extent = image.extent();
        let copy = &*target.copy;
        // A pool consists of whole words.
        let length = extent.length() / 8 * 8;
        let mut bytes = Vec::with_capacity(PART_WORDS * 8);
        for offset in (0..length).step_by(PART_WORDS * 8) {
            let count = PART_WORDS.min(((length - offset) / 8) as usize);
            bytes.clear();
            for word in extent.words(offset, count).unwrap_or_default() {
                bytes.extend_from_slice(&image.load(word).to_le_bytes());
            }
            write_all(copy, &bytes, offset).map_err(refused("write the copy"))?;
            advance(bytes.len() as u64)?;
        }
        target.finish(mark_offset)?;
        Ok(length)
    }
}
