//! The disk's own rates: one thread repeatedly writes to a file full of zeros, and syncs.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::scratch::new_scratch;
use terminal::failure::{Failure, Result};

/// Bytes of a durable write.
const BLOCK_BYTES: usize = 4096;
/// Bytes between two syncs when bandwidth is measured.
const STREAM_BYTES: usize = 8 << 20;
const FILE_BYTES: usize = 64 << 20;
const DURATION: Duration = Duration::from_secs(1);

/// The rates of a folder's disk, for one thread.
pub(crate) struct DiskRates {
    /// Durable writes of 4 KiB a second.
    pub(crate) syncs_per_second: f64,
    /// Bytes a second that become durable, 8 MiB at a time.
    pub(crate) bytes_per_second: f64,
}

/// Measures the disk of this folder.
pub(crate) fn rates(folder: &Path) -> Result<DiskRates> {
    let path = folder.join(format!("everleaf-bench-{}.disk", std::process::id()));
    let scratch = new_scratch(path)?;
    measure(scratch.path()).map_err(Failure::io(format!("sync {}", scratch.path().display())))
}

fn measure(path: &Path) -> std::io::Result<DiskRates> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&vec![0; FILE_BYTES], 0)?;
    file.sync_all()?;
    let blocks_per_second = |block: &[u8]| -> std::io::Result<f64> {
        let start = Instant::now();
        let mut blocks = 0_u64;
        while start.elapsed() < DURATION {
            file.write_all_at(block, blocks * block.len() as u64 % FILE_BYTES as u64)?;
            file.sync_data()?;
            blocks += 1;
        }
        Ok(blocks as f64 / start.elapsed().as_secs_f64())
    };
    let syncs_per_second = blocks_per_second(&[7; BLOCK_BYTES])?;
    let bytes_per_second = blocks_per_second(&vec![7; STREAM_BYTES])? * STREAM_BYTES as f64;
    Ok(DiskRates {
        syncs_per_second,
        bytes_per_second,
    })
}
