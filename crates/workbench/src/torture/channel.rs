//! The reports of writers and readers: through a pipe to the parent, or, on a machine whose power
//! will be cut, through a *channel*, a device that keeps all bytes written when `write` returns.
//!
//! ```text
//! from 0              the reader's result, one line of JSON
//! from --figures-at   figures of the writer's log a moment ago, one line of JSON
//! from --records-at   the records of the writer; zeros behind them
//! ```

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use everleaf::Store;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use sim::torture::Contents;

use super::log::LogReport;
use terminal::child;
use terminal::context::write_json;
use terminal::failure::Failure;

/// How often a writer reports figures of its log.
const FIGURES_EVERY: Duration = Duration::from_millis(50);

/// The destination of reports.
#[derive(clap::Args, Debug)]
pub(super) struct ChannelArgs {
    /// A device; standard output if none is named
    #[arg(long, requires = "records_at")]
    channel: Option<PathBuf>,
    /// The offset of the records in the device, in bytes
    #[arg(long, requires = "channel")]
    records_at: Option<u64>,
    /// The offset of the log's figures in the device, in bytes
    #[arg(long, requires = "channel")]
    figures_at: Option<u64>,
}

/// Recent figures of a writer's log.
#[derive(Serialize)]
struct Figures {
    /// Seconds since the pool was opened.
    seconds: f64,
    log_bytes_at_open: u64,
    #[serde(flatten)]
    log: LogReport,
}

impl ChannelArgs {
    /// The channel, where records go.
    pub(super) fn open(&self) -> Result<File, Failure> {
        let Some(path) = &self.channel else {
            return Ok(child::raw_output()?);
        };
        let refused = || Failure::io(format!("open {}", path.display()));
        // The device keeps written bytes when the call returns.
        let flags = OFlags::SYNC.bits().cast_signed();
        let mut file = OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(path)
            .map_err(refused())?;
        file.seek(SeekFrom::Start(self.records_at.unwrap_or_default()))
            .map_err(refused())?;
        Ok(file)
    }

    /// Writes figures of the store's log to the channel again and again, if `--figures-at` is given
    /// and the store has a log.
    pub(super) fn tell_figures(&self, store: &Store) -> Result<(), Failure> {
        let Some(offset) = self.figures_at else {
            return Ok(());
        };
        let file = self.open()?;
        let start = Instant::now();
        let mut log_bytes_at_open = None;
        while let Some(log) = store.stat()?.log {
            let log_bytes_at_open = *log_bytes_at_open.get_or_insert(log.log_capacity_bytes);
            let seconds = start.elapsed().as_secs_f64();
            let mut told = Vec::new();
            write_json(
                &mut told,
                &Figures {
                    seconds,
                    log_bytes_at_open,
                    log: LogReport::of(log),
                },
            )?;
            file.write_all_at(&told, offset)
                .map_err(Failure::io("write to the channel"))?;
            std::thread::sleep(FIGURES_EVERY);
        }
        Ok(())
    }
}

/// The result of a reader after a loss of power.
#[derive(Serialize, Deserialize, Default)]
pub(super) struct Reading {
    /// Nanoseconds that opening took.
    pub(super) open_ns: u64,
    /// The medium, as it describes itself.
    pub(super) medium: String,
    pub(super) survives: String,
    /// The log as the open found it.
    pub(super) log: Option<LogReport>,
    /// `None` if the pool does not open, or cannot be read.
    pub(super) contents: Option<Contents>,
    pub(super) violations: Vec<String>,
}
