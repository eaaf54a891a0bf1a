//! The disk's own rate: what one thread gets that writes 4 KiB to a log full of zeros, and syncs, again and again.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::failure::Failure;

const BLOCK_BYTES: usize = 4096;
const LOG_BYTES: usize = 16 << 20;
const DURATION: Duration = Duration::from_secs(1);

/// Durable writes a second in this folder.
pub(crate) fn syncs_per_second(folder: &Path) -> Result<f64, Failure> {
    let path = folder.join(format!("everleaf-bench-{}.disk", std::process::id()));
    let measured = measure(&path).map_err(Failure::io(format!("sync {}", path.display())));
    let _ = std::fs::remove_file(&path);
    measured
}

fn measure(path: &Path) -> std::io::Result<f64> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all_at(&vec![0; LOG_BYTES], 0)?;
    file.sync_all()?;
    let (start, mut syncs, block) = (Instant::now(), 0_u64, [7; BLOCK_BYTES]);
    while start.elapsed() < DURATION {
        file.write_all_at(&block, syncs * BLOCK_BYTES as u64 % LOG_BYTES as u64)?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(syncs as f64 / start.elapsed().as_secs_f64())
}
