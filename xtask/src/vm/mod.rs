//! `cargo xtask vm`: cuts the power of a whole machine, again and again, and verifies what is left.
//!
//! The machine is virtual: a Debian kernel, busybox and our own command in an initramfs, run by
//! QEMU. Its writer says on a channel what it does and what was acknowledged; then QEMU is killed
//! at a random moment, and with it goes all that the kernel had not written out. The next boot
//! mounts the same images, reads the pool in every way there is, and the command's judge compares.
//!
//! The *channel* is a part of the guest's memory, which is a file of the host: what the guest has
//! stored there is with the host before the guest's next instruction. So no acknowledgement, and no
//! announcement of an operation, is lost or late.

mod cpio;
mod failure;
mod guest;
mod machine;
mod modules;
mod packages;
mod report;
mod rounds;

use std::process::ExitCode;

use clap::ValueEnum;

use failure::Failure;
use report::Report;

/// Which medium holds the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum MachineMedium {
    /// A file on a virtio disk, with its log
    File,
    /// A file on persistent memory, mapped with MAP_SYNC
    Dax,
}

/// The file system of the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FileSystem {
    Ext4,
    Xfs,
}

impl MachineMedium {
    fn name(self) -> &'static str {
        if self == Self::File { "file" } else { "dax" }
    }
}

impl FileSystem {
    fn name(self) -> &'static str {
        if self == Self::Ext4 { "ext4" } else { "xfs" }
    }
}

/// What is run.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The medium
    #[arg(long, value_enum, default_value = "file")]
    medium: MachineMedium,
    /// The file system
    #[arg(long, value_enum, default_value = "ext4")]
    fs: FileSystem,
    /// How often the power is cut
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..1 << 23))]
    rounds: u32,
    /// The longest life of a writer, in seconds; the power is cut at a random moment before
    #[arg(long, default_value_t = 4.0, value_parser = parse_seconds)]
    seconds_per_round: f64,
    /// The engine, one of those that `everleaf engines` lists
    #[arg(long, default_value = "rntree")]
    engine: String,
    /// What writers rely on: immediate, sync (durable only after one), so many milliseconds (and
    /// syncs), or tickets
    #[arg(long, default_value = "immediate")]
    durability: String,
    /// Threads of a writer
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,
    /// Keys that are used in each tree
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    keys: u32,
    /// Bytes of a new log of the medium `file`; small, so that it grows and goes around while the
    /// power is cut
    #[arg(long, default_value_t = 64 << 10)]
    log_bytes: u64,
    /// Bytes that this log grows to
    #[arg(long, default_value_t = 128 << 10)]
    log_bytes_max: u64,
    /// Processors of the guest
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    cpus: u8,
    /// Take the syncs out, so that data is lost: exit code 0 if that is noticed
    #[arg(long)]
    no_sync: bool,
    /// Debian's package of the guest's kernel
    #[arg(long, default_value = "linux-image-cloud-amd64")]
    kernel: String,
    /// Repeats the choices of an earlier run (moments of death differ all the same) [default:
    /// random]
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=10.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0.001 to 10".to_owned()),
    }
}

/// Exit code 0: no violation, or with `--no-sync` the loss was noticed. 1: otherwise. 2: the
/// machine cannot be run.
pub(crate) fn run(args: &Args) -> ExitCode {
    match try_run(args) {
        Ok(report) => {
            println!(
                "{}",
                if args.json {
                    report.json()
                } else {
                    report.words()
                }
            );
            ExitCode::from(u8::from(report.is_violated() != args.no_sync))
        }
        Err(failure) => {
            eprintln!("xtask vm: {failure}");
            ExitCode::from(2)
        }
    }
}

fn try_run(args: &Args) -> Result<Report, Failure> {
    if args.no_sync && args.medium == MachineMedium::Dax {
        return Err(Failure::Usage(
            "--no-sync goes with --medium file: on dax there is no sync to take out".into(),
        ));
    }
    let known =
        crate::report::engine_names(&[]).map_err(|failure| Failure::Usage(failure.to_string()))?;
    if !known.contains(&args.engine) {
        return Err(Failure::Usage(format!(
            "no engine {:?}; there are {}",
            args.engine,
            known.join(", ")
        )));
    }
    let guest = guest::Guest::prepare(args)?;
    rounds::run(args, &guest)
}
