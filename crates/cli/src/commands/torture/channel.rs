//! What a writer or a reader says goes to its parent's pipe; on a machine whose power will fail, to a device that keeps
//! it: a *channel* that holds what was written as soon as `write` returns.
//!
//! ```text
//! from 0              what the reader found, one line of JSON
//! from --records-at   the records of the writer; zeros behind them
//! ```

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::verify::Contents;
use crate::child;
use crate::failure::Failure;

/// Where to say it.
#[derive(clap::Args, Debug)]
pub(super) struct ChannelArgs {
    /// A device; standard output if none is named
    #[arg(long, requires = "records_at")]
    channel: Option<PathBuf>,
    /// Where in the device the records begin, in bytes
    #[arg(long, requires = "channel")]
    records_at: Option<u64>,
}

impl ChannelArgs {
    /// The channel, where records go.
    pub(super) fn open(&self) -> Result<File, Failure> {
        let Some(path) = &self.channel else { return Ok(child::raw_output()?) };
        let refused = || Failure::io(format!("open {}", path.display()));
        // What was written is there when the call returns.
        let flags = OFlags::SYNC.bits().cast_signed();
        let mut file = OpenOptions::new().write(true).custom_flags(flags).open(path).map_err(refused())?;
        file.seek(SeekFrom::Start(self.records_at.unwrap_or_default())).map_err(refused())?;
        Ok(file)
    }
}

/// What a reader found after a loss of power.
#[derive(Serialize, Deserialize, Default)]
pub(super) struct Reading {
    /// Nanoseconds that opening took.
    pub(super) open_ns: u64,
    /// The medium, as it describes itself.
    pub(super) medium: String,
    pub(super) survives: String,
    /// `None` if the pool does not open, or cannot be read.
    pub(super) contents: Option<Contents>,
    pub(super) violations: Vec<String>,
}
