//! What one durable write of 4 KiB to a log costs on your disk, done in several ways.
//!
//! ```sh
//! cargo run --release --package everleaf-medium --example log_sync -- FOLDER
//! ```

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fdatasync};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 4096;
const DURATION: Duration = Duration::from_secs(2);

#[repr(align(4096))]
struct Block([u8; BLOCK]);

/// The state of the log's blocks before they are written.
#[derive(Clone, Copy)]
enum Prepared {
    Not,
    Allocated,
    Zeros,
}

fn prepare(path: &Path, prepared: Prepared, flags: OFlags) -> io::Result<File> {
    let _ = std::fs::remove_file(path);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)?;
    match prepared {
        Prepared::Not => {}
        Prepared::Allocated => fallocate(&file, FallocateFlags::empty(), 0, BLOCKS * BLOCK as u64)?,
        Prepared::Zeros => file.write_all_at(&vec![0; BLOCKS as usize * BLOCK], 0)?,
    }
    file.sync_all()?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Calls `write` with the numbers of blocks until the time is over; prints the time of one call.
fn measure(name: &str, mut write: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
    let mut times = Vec::new();
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < DURATION {
        let begin = Instant::now();
        write(number % BLOCKS)?;
        times.push(begin.elapsed().as_nanos() as u64);
        number += 1;
    }
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 100] as f64 / 1000.0;
    println!("| {name} | {rate:.0} | {:.0} | {:.0} |", at(50), at(99));
    Ok(())
}

fn with_uring(file: &File, block: &Block) -> io::Result<()> {
    let mut ring = IoUring::new(8)?;
    measure("zeros, io_uring: write linked to fdatasync", |number| {
        let fd = types::Fd(file.as_raw_fd());
        let write = opcode::Write::new(fd, block.0.as_ptr(), BLOCK as u32)
            .offset(number * BLOCK as u64)
            .build()
            .flags(squeue::Flags::IO_LINK);
        let sync = opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC)
            .build();
        // SAFETY: file and block outlive both entries, which are complete before this returns.
        unsafe { ring.submission().push_multiple(&[write, sync]) }.map_err(io::Error::other)?;
        ring.submit_and_wait(2)?;
        for entry in ring.completion() {
            if entry.result() < 0 {
                return Err(io::Error::from_raw_os_error(-entry.result()));
            }
        }
        Ok(())
    })
}

fn two_threads(path: &Path, block: &Block) -> io::Result<()> {
    let file = prepare(path, Prepared::Zeros, OFlags::empty())?;
    let run = |half: u64| -> io::Result<u64> {
        let start = Instant::now();
        let mut number = 0;
        while start.elapsed() < DURATION {
            let place = (half * BLOCKS / 2 + number % (BLOCKS / 2)) * BLOCK as u64;
            file.write_all_at(&block.0, place)?;
            fdatasync(&file)?;
            number += 1;
        }
        Ok(number)
    };
    let both = std::thread::scope(|scope| -> io::Result<u64> {
        let other = scope.spawn(|| run(1));
        Ok(run(0)? + other.join().expect("a thread")?)
    })?;
    println!(
        "| zeros, write + fdatasync, two threads | {:.0} | | |",
        both as f64 / DURATION.as_secs_f64()
    );
    Ok(())
}

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let path = Path::new(&folder).join(format!("log-sync-{}", std::process::id()));
    let block = Block([7; BLOCK]);
    println!("| way | a second | p50 (us) | p99 (us) |\n| --- | --- | --- | --- |");
    let synced = |file: &File, number: u64| {
        file.write_all_at(&block.0, number * BLOCK as u64)?;
        Ok(fdatasync(file)?)
    };
    let file = prepare(&path, Prepared::Not, OFlags::empty())?;
    let end = Cell::new(0);
    measure("append, write + fdatasync", |_| {
        // Unlike the other numbers this one does not start over.
        end.set(end.get() + 1);
        synced(&file, end.get())
    })?;
    let file = prepare(&path, Prepared::Allocated, OFlags::empty())?;
    measure("allocated, write + fdatasync", |number| {
        synced(&file, number)
    })?;
    let file = prepare(&path, Prepared::Zeros, OFlags::empty())?;
    measure("zeros, write + fdatasync", |number| synced(&file, number))?;
    for (name, flags) in [
        ("zeros, write with O_DSYNC", OFlags::DSYNC),
        (
            "zeros, write with O_DSYNC and O_DIRECT",
            OFlags::DSYNC | OFlags::DIRECT,
        ),
    ] {
        let file = prepare(&path, Prepared::Zeros, flags)?;
        measure(name, |number| {
            file.write_all_at(&block.0, number * BLOCK as u64)
        })?;
    }
    let file = prepare(&path, Prepared::Zeros, OFlags::empty())?;
    if let Err(error) = with_uring(&file, &block) {
        println!("| zeros, io_uring: write linked to fdatasync | not here: {error} | | |");
    }
    two_threads(&path, &block)?;
    std::fs::remove_file(&path)
}
