//! Why a medium fails, and which limit keeps it from growing.

use std::io;
use std::path::Path;

use crate::file::LogError;
use crate::folder::DisplacedFile;
use crate::line_store::LineNotStored;
use crate::{remedy, size};

/// The limit that keeps a file from growing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LimitedBy {
    /// The limit that the pool was opened with.
    Limit,
    /// The addresses behind it: another mapping of the process begins there.
    Addresses,
    /// The mappings that the system allows to this process.
    AddressSpace {
        /// The bytes of addresses that the process may have (`ulimit -v`, `RLIMIT_AS`); `None`
        /// without such a limit. Then the number of its mappings is limited (`vm.max_map_count`),
        /// or the memory that processes may ask for (`vm.overcommit_memory`).
        limit_bytes: Option<u64>,
    },
    /// The disk: its file system has no room.
    Disk {
        /// The free bytes of the disk for this user.
        free_bytes: u64,
    },
    /// The user's quota on the disk.
    Quota,
    /// The longest file that the file system or the process may have (`ulimit -f`). The latter ends
    /// a process that does not call [`ignore_file_size_signal`](crate::ignore_file_size_signal).
    FileSize,
}

impl LimitedBy {
    /// The limit that an error of growing `file` stands for; `None` if it is an error of another
    /// kind.
    pub fn of(error: &io::Error, file: &std::fs::File) -> Option<Self> {
        match error.kind() {
            io::ErrorKind::StorageFull => {
                let free_bytes = rustix::fs::fstatvfs(file)
                    .map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize));
                Some(Self::Disk { free_bytes })
            }
            io::ErrorKind::QuotaExceeded => Some(Self::Quota),
            io::ErrorKind::FileTooLarge => Some(Self::FileSize),
            _ => None,
        }
    }

    /// A message: what was wanted, what is full, the way out.
    #[must_use]
    pub fn explain(self, file: Grown, pool: Option<&Path>, wanted: u64, limit: u64) -> String {
        let mut name =
            pool.map_or_else(|| "the pool".to_owned(), |path| path.display().to_string());
        match file {
            Grown::Pool => {}
            Grown::Log => name = pool.map_or_else(|| "the log".to_owned(), |_| name + ".log"),
            Grown::Memory => name = format!("memory beside {name}"),
        }
        let [from, to] = [limit, wanted].map(size);
        let growing = match limit {
            _ if limit >= wanted => {
                format!("taking released space of {name} into use again failed")
            }
            0 => format!("creating {name} with {to} failed"),
            _ if from == to => format!(
                "growing {name}, of {from}, by {} failed",
                size(wanted - limit)
            ),
            _ => format!("growing {name} from {from} to {to} failed"),
        };
        // Nothing can be removed from a pool that could not be opened.
        let way_out = if limit == 0 {
            "free some space"
        } else {
            "free some space or remove entries"
        };
        match self {
            Self::Limit => {
                format!(
                    "pool full: growing {name} to {to} failed, its limit is {from}; raise the limit or remove entries"
                )
            }
            Self::Addresses => format!(
                "out of addresses: {growing}, because other memory of this process lies behind it; close the store and \
                 open it again, or have fewer stores open in one process, or remove entries"
            ),
            Self::AddressSpace { limit_bytes } => format!(
                "out of address space: {growing}, {}, or remove entries",
                refused_memory(limit_bytes)
            ),
            Self::Disk { free_bytes } => {
                format!(
                    "disk full: {growing}, with {} free; {way_out}",
                    size(free_bytes)
                )
            }
            Self::Quota => format!(
                "disk quota used up: {growing}; free some space, remove entries or have the quota raised"
            ),
            Self::FileSize => format!(
                "file too long: {growing}, the file system or `ulimit -f` allows less; raise that limit or remove entries"
            ),
        }
    }
}

/// Why the system gave no memory, and the way out.
fn refused_memory(limit_bytes: Option<u64>) -> String {
    match limit_bytes {
        Some(bytes) => format!(
            "`ulimit -v` (RLIMIT_AS) allows this process {}; raise that limit, close other stores",
            size(bytes)
        ),
        None => "the system gives this process no more; free memory, close other stores, raise `vm.max_map_count` (the \
                 mappings that a process may have)"
            .to_owned(),
    }
}

/// The bytes of addresses that this process may have (`RLIMIT_AS`); `None` without a limit.
pub(crate) fn address_space_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

/// The file or memory that grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grown {
    /// The pool's file, or its memory if it has no file.
    Pool,
    /// The log beside it.
    Log,
    /// The memory that this process takes beside the pool, and fills again at each open.
    Memory,
}

/// A medium failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediumError {
    /// The medium cannot grow: the disk or a configured limit is full. Nothing was changed.
    #[error("{}", by.explain(*file, None, *wanted, *limit))]
    Full {
        /// Bytes that the file would have had.
        wanted: u64,
        /// Bytes that it may have: the configured limit, or its present length if the disk has no
        /// more room.
        limit: u64,
        /// The file or memory that is full.
        by: LimitedBy,
        /// The file that was to grow.
        file: Grown,
    },
    /// Log and pool do not fit together, or one of them is damaged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Mapping or growing failed.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The processor could not store a line whole, and has no other instruction that could.
    #[error(transparent)]
    Line(#[from] LineNotStored),
    /// A file of the store was moved, removed or replaced while it was open. Nothing more is written;
    /// reads go on.
    #[error("{0}")]
    Displaced(DisplacedFile),
    /// Writes may not be durable; nothing is acknowledged any more.
    #[error(
        "the medium failed and accepts nothing more: {0}; reopen the pool to see what is durable"
    )]
    Failed(String),
}

/// The operating system refused a mapping.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {bytes} bytes: {source}; {}", way_out(source))]
pub struct MapError {
    /// The attempt, in words.
    pub action: &'static str,
    /// How much.
    pub bytes: u64,
    /// Why not.
    pub source: io::Error,
}

fn way_out(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::OutOfMemory => refused_memory(address_space_limit()),
        io::ErrorKind::Other => "close other stores of this process, then try it again".to_owned(),
        _ => remedy(source),
    }
}

impl MapError {
    /// The error of something that was to grow from `limit` to `wanted` bytes by this mapping.
    pub(crate) fn of_growth(self, limit: u64, wanted: u64, file: Grown) -> MediumError {
        if self.source.kind() != io::ErrorKind::OutOfMemory {
            return self.into();
        }
        let limit_bytes = address_space_limit();
        MediumError::Full {
            wanted,
            limit,
            by: LimitedBy::AddressSpace { limit_bytes },
            file,
        }
    }
}

/// Why a file could not grow.
pub(crate) fn not_allocated(
    source: io::Error,
    old: u64,
    length: u64,
    file: &std::fs::File,
) -> MediumError {
    match LimitedBy::of(&source, file) {
        Some(by) => MediumError::Full {
            wanted: length,
            limit: old,
            by,
            file: Grown::Pool,
        },
        None => MapError {
            action: "allocate",
            bytes: length - old,
            source,
        }
        .into(),
    }
}
