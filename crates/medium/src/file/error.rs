//! Errors of a log.

use std::io;
use std::path::PathBuf;

/// A log cannot be used with its pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system refused.
    #[error("cannot {action}: {source}; {}", crate::remedy(source))]
    Io {
        /// The action that failed, as in "open the log".
        action: &'static str,
        /// The reason of the system.
        source: io::Error,
    },
    /// The pool needs the log beside it, and there is none.
    #[error(
        "the log of the pool (uuid {uuid:032x}) is missing, and with it the last writes; put it back beside the pool, restore a backup, or salvage what the pool's file has"
    )]
    Missing {
        /// The log that the pool names.
        uuid: u128,
    },
    /// The log belongs to another pool, or to another copy of this one.
    #[error(
        "the log beside the pool has uuid {found:032x}, but the pool needs {expected:032x}; put the right log beside it, or salvage what the pool's file has"
    )]
    Foreign {
        /// The log that the pool names.
        expected: u128,
        /// The log that was found.
        found: u128,
    },
    /// The pool needs no log, but the one beside it holds something.
    #[error(
        "the pool needs no log, but the log beside it (uuid {found:032x}) holds data. It belongs to a newer copy of this pool, or to another pool; move it away to open the pool as it is"
    )]
    Unasked {
        /// The log that was found.
        found: u128,
    },
    /// The pool needs no log, but the one beside it holds something, and does not say what it
    /// belongs to.
    #[error(
        "the pool needs no log, but the log beside it holds data, and its header is damaged. It belongs to a newer copy of this pool, or to another pool; move it away to open the pool as it is"
    )]
    UnaskedDamaged,
    /// The file where the log should be is something else.
    #[error(
        "the file at the path of the log is not an Everleaf log, and was not changed; move it away"
    )]
    NotALog,
    /// A symbolic link lies where the log should be. It is not followed: the log gets the pool's
    /// owner and permissions, and a user with write access to the folder could redirect them to
    /// another file.
    #[error(
        "the log `{}` is a symbolic link, and is not followed; put the log itself there, or remove the link",
        path.display()
    )]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// The log has another version of the format.
    #[error(
        "the log has format version {found}, but this program reads {supported}; open it with the release that made it and close it cleanly"
    )]
    Version {
        /// The log's version.
        found: u64,
        /// This program's version.
        supported: u64,
    },
    /// The log is damaged in its durable part.
    #[error(
        "the log is damaged at byte {position:#x}: {what}; writes from there on are lost; restore a backup, or salvage the rest"
    )]
    Damaged {
        /// The position in the log's file.
        position: u64,
        /// The fault at that position.
        what: String,
    },
    /// The pool's file is damaged in the line that names its log.
    #[error(
        "the pool is damaged at offset {offset:#x}: the line that names its log fails its check; if it was closed cleanly, and so no log lies beside it, open it as mapped memory, which writes the line anew; otherwise restore a backup, or salvage the rest"
    )]
    Mark {
        /// The offset in the pool's file.
        offset: u64,
    },
    /// A copy was being made of a pool that another process writes, and the process used the space
    /// of its log again before the copy had read it.
    #[error(
        "the log was overwritten faster than it could be copied; copy the pool when less is written, or from within the process that has it open"
    )]
    Overrun,
    /// A copy was being made of a pool that another process has open, and one of the two copies of
    /// its log's header failed its check for a while. The process may be recovering the pool; it
    /// then writes both copies again.
    #[error(
        "a copy of the log's header fails its check: try again later, if the process that has the pool open is still recovering it; otherwise the header is damaged: close the pool and open it again"
    )]
    Unsettled,
    /// The pool's file is shorter than it was.
    #[error(
        "the pool was truncated: it has {length} bytes and had {expected}; restore a backup, or salvage the rest"
    )]
    PoolTruncated {
        /// Its length.
        length: u64,
        /// Its length at the last checkpoint.
        expected: u64,
    },
}

/// A closure for `map_err`.
pub(super) fn refused(action: &'static str) -> impl FnOnce(io::Error) -> LogError {
    move |source| LogError::Io { action, source }
}
