//! Figures of the system about this machine, this process and a folder.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use lab::comparison::median;
use serde::Serialize;

use crate::failure::{Failure, Result};

/// The load of a machine that has nothing else to do.
const LOAD_MAX: f64 = 0.5;

/// Memory of this process, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) resident: f64,
    /// The part of it that is no page of a file.
    pub(crate) private: f64,
}

impl Memory {
    pub(crate) fn now() -> Result<Self> {
        let status = read("/proc/self/status")?;
        let bytes = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok())
                .map_or(0.0, |kib| kib * 1024.0)
        };
        Ok(Self {
            resident: bytes("VmRSS"),
            private: bytes("RssAnon"),
        })
    }

    pub(crate) fn since(self, before: Self) -> Self {
        let grown = |now: f64, before: f64| (now - before).max(0.0);
        Self {
            resident: grown(self.resident, before.resident),
            private: grown(self.private, before.private),
        }
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|error| {
        Failure::new(format!(
            "cannot read {path}: {error}; this program needs Linux"
        ))
    })
}

/// The bytes that the files in a folder take on disk: allocated blocks, not lengths.
pub(crate) fn disk_bytes(folder: &Path) -> Result<f64> {
    let mut bytes = 0.0;
    for entry in fs::read_dir(folder).map_err(Failure::path("list", folder))? {
        let Ok(entry) = entry else { continue };
        // A store may remove a file meanwhile.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        bytes += if metadata.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            metadata.blocks() as f64 * 512.0
        };
    }
    Ok(bytes)
}

/// The data about a machine that a reader needs to judge the figures.
#[derive(Serialize, Clone)]
pub(crate) struct MachineDescription {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    pub(crate) filesystem: String,
    /// Threads that ran or waited to run, on average over the last minute.
    pub(crate) load: f64,
    /// The median of some appends of 4 KiB, each with an `fdatasync`.
    pub(crate) sync_us: f64,
}

impl MachineDescription {
    /// This machine; `folder` is where the stores will be.
    pub(crate) fn here(folder: &Path) -> Result<Self> {
        let value = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':'))
                .map_or("unknown", |(_, value)| value.trim())
                .to_owned()
        };
        let memory = value(&read("/proc/meminfo")?, "MemTotal");
        Ok(Self {
            processor: value(&read("/proc/cpuinfo")?, "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory.trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0)
                / f64::from(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            filesystem: filesystem(folder)?,
            load: read("/proc/loadavg")?
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
            sync_us: sync_us(folder)?,
        })
    }

    /// Why the figures may mislead.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.filesystem == "tmpfs" {
            let way_out = "choose a --dir on a disk";
            warnings.push(format!("the files are in memory: nothing survives a loss of power, and `durable` costs nothing; {way_out}"));
        }
        if self.load > LOAD_MAX {
            let way_out = "measure again on a quiet machine";
            let load = self.load;
            warnings.push(format!("other programs kept the machine busy (load {load}): waits for the disk are also waits for a core; {way_out}"));
        }
        warnings
    }
}

/// The type of the file system around a folder.
fn filesystem(folder: &Path) -> Result<String> {
    let folder = folder
        .canonicalize()
        .map_err(Failure::path("open", folder))?;
    let mounts = read("/proc/self/mountinfo")?;
    // Fields: ... root, mount point, options, ..., "-", type, source. The last of the longest mount
    // points counts.
    let found = mounts.lines().filter_map(|line| {
        let point = line.split(' ').nth(4)?;
        let kind = line.split_once(" - ")?.1.split(' ').next()?;
        folder
            .starts_with(point)
            .then(|| (point.len(), kind.to_owned()))
    });
    Ok(found
        .max_by_key(|(length, _)| *length)
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind))
}

fn sync_us(folder: &Path) -> Result<f64> {
    let path = folder.join("sync");
    let measure = || {
        let mut file = fs::File::create(&path)?;
        let mut times = Vec::new();
        for _ in 0..200 {
            let start = Instant::now();
            file.write_all(&[1; 4096])?;
            file.sync_data()?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        fs::remove_file(&path)?;
        Ok(median(&times))
    };
    measure().map_err(Failure::path("write", &path))
}

/// The version of a package that this program was built with.
pub(crate) fn version(package: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let after = lock
        .split_once(&format!("name = \"{package}\"\nversion = \""))
        .map_or("", |(_, after)| after);
    after.split('"').next().unwrap_or("")
}
