//! Names of instructions that a user chooses, sizes as a user reads them, and remedies for errors
//! of the system.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Bytes as a person writes them: `1 byte`, `56 KiB`, `19.9 MiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    match format!("{value:.1}").trim_end_matches(".0") {
        "1" if unit == "bytes" => "1 byte".to_owned(),
        number => format!("{number} {unit}"),
    }
}

/// The remedy for an error of the operating system, as a text for users.
#[must_use]
pub fn remedy(source: &io::Error) -> String {
    let remedy = match Errno::from_io_error(source) {
        Some(Errno::MFILE) => return files_limit(),
        Some(Errno::NFILE) => {
            "end other programs, or raise the system's limit of open files (`sysctl fs.file-max`)"
        }
        Some(Errno::NOLCK) => {
            "give a file system that has locks, such as NFS with its lock service running"
        }
        Some(Errno::AGAIN) => {
            "end other programs, or raise what `ulimit -u` and `ulimit -v` allow, then try it again"
        }
        _ => remedy_of(source.kind()),
    };
    remedy.to_owned()
}

fn remedy_of(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied => "give this user the permission",
        io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidFilename => "check the path",
        io::ErrorKind::AlreadyExists => "give a path where nothing is yet",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space",
        io::ErrorKind::ReadOnlyFilesystem => "give a file system that can be written",
        io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => {
            "end other programs, then try it again"
        }
        _ => "see that the file system and its device work, then try it again",
    }
}

/// The remedy if the process has as many files open as it may.
fn files_limit() -> String {
    let limit = match getrlimit(Resource::Nofile).current {
        Some(files) => format!("this process may have {files} files open"),
        None => "this process has too many files open".to_owned(),
    };
    format!(
        "{limit} (`ulimit -n`): raise that limit, or close stores; each has two files open, and its folder"
    )
}

/// A name that stands for nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such {what}: {given:?}; give one of {known}")]
pub struct UnknownName {
    /// The kind of thing that has the name.
    pub what: &'static str,
    /// The name that was given.
    pub given: String,
    /// The names that there are.
    pub known: String,
}

/// Gives the variants of an enum names that are shown and read, in upper or lower case.
macro_rules! named {
    ($type:ident, $what:literal: $($variant:ident = $name:literal),*) => {
        impl $type {
            const NAMES: &[&str] = &[$($name),*];

            /// All of them, best first.
            pub fn all() -> [Self; Self::NAMES.len()] {
                [$(Self::$variant),*]
            }

            /// The name that `from_str` reads.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownName;

            /// Reads a name. Says nothing about whether the processor has the instruction.
            fn from_str(given: &str) -> Result<Self, Self::Err> {
                let found = Self::all().into_iter().find(|one| one.name().eq_ignore_ascii_case(given));
                found.ok_or_else(|| $crate::UnknownName {
                    what: $what,
                    given: given.to_owned(),
                    known: Self::NAMES.join(", "),
                })
            }
        }
    };
}
pub(crate) use named;

#[cfg(test)]
mod tests;
