//! What can go wrong with a pool and the trees in it.

use std::io;

use medium::{BadOffset, LimitedBy, LineForm, MediumError, Torn};

/// The result of an operation on a pool.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong, what it concerns, and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action}: {source}; remove the cause, then try again")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// There is no such file, and none was to be made.
    #[error(
        "no such pool; check the path. `everleaf put` and `load` make one, and so does opening it with `create`"
    )]
    NoSuchPool,
    /// The file, its folder or its file system is read-only.
    #[error(
        "the pool is not writable ({source}), and every open writes to the pool; give write permission, or open a copy"
    )]
    ReadOnly {
        /// What the operating system said.
        source: io::Error,
    },
    /// This machine cannot do what was asked for.
    #[error("this processor has no {what}; leave the choice to be detected, or use another machine")]
    Unsupported {
        /// What was asked for.
        what: String,
    },
    /// The pool cannot be copied while it is open.
    #[error("no copy can be made while the pool is open: {why}; copy its file when it is closed")]
    NoBackup {
        /// Why not.
        why: String,
    },
    /// The file is something else.
    #[error("not an Everleaf pool: {why}; give the path of a pool, or of a new file")]
    NotAPool {
        /// What was found.
        why: String,
    },
    /// The pool was written by another version of the format.
    #[error(
        "the pool has format version {found}, this program reads {supported}; open it with the release that made it and `dump`, then `restore` here"
    )]
    Version {
        /// The pool's version.
        found: u32,
        /// This program's version.
        supported: u32,
    },
    /// The pool uses features that this program does not know.
    #[error("the pool has features {unknown:#x} that this program does not know; use a newer release")]
    UnknownFeatures {
        /// The bits that are not known.
        unknown: u64,
    },
    /// Another process has the pool open.
    #[error(
        "the pool is open in {}, and one process has it at a time; close it there, or copy it with `everleaf backup` meanwhile",
        holder.map_or_else(|| "another process".to_owned(), |holder| format!("process {holder}"))
    )]
    Locked {
        /// The other process.
        holder: Option<u32>,
    },
    /// The pool's lines have a form that this medium cannot write.
    #[error(
        "the pool holds {pool:?} lines, but the medium writes {medium:?} lines; choose a line store of that form, or `dump` where it works and `restore` here"
    )]
    LineForm {
        /// The form of the pool.
        pool: LineForm,
        /// The form of the medium.
        medium: LineForm,
    },
    /// The pool is corrupt.
    #[error(
        "the pool is damaged at offset {offset:#x}: {what}; `everleaf check` lists all damage, `everleaf dump --salvage` saves the rest"
    )]
    Corrupt {
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// The pool's content keeps it from being opened, so nothing of it can be read.
    #[error(
        "the pool cannot be opened: it is damaged at offset {offset:#x}: {what}; restore it from a dump or a backup"
    )]
    Unopenable {
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// No allocation can be so long.
    #[error(
        "an allocation of {bytes} bytes exceeds the limit of {limit} bytes; store the value in several parts"
    )]
    TooLong {
        /// What was asked for, in bytes.
        bytes: usize,
        /// The longest allocation.
        limit: usize,
    },
    /// No space is left for what was asked; nothing was changed.
    #[error("{}", by.explain(*wanted, *limit))]
    PoolFull {
        /// The length that the pool's file would need; that of its log, if it has none yet.
        wanted: u64,
        /// The length that it may have: by the limit, or because it has it and the disk gives no more.
        limit: u64,
        /// What is full: the limit is met, or the disk.
        by: LimitedBy,
    },
    /// The tree was made with another engine or codec.
    #[error("tree {name:?} was made with {found}, not with {wanted}; open it with what it was made with")]
    TreeMismatch {
        /// The tree.
        name: String,
        /// What it is.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// No tree has this name.
    #[error("no tree {name:?} in this pool; `everleaf trees` lists those there are")]
    NoSuchTree {
        /// The name.
        name: String,
    },
    /// A tree of this name exists.
    #[error("tree {name:?} exists already; open it, or take another name")]
    TreeExists {
        /// The name.
        name: String,
    },
    /// A tree's name is empty or too long.
    #[error("a tree name of {length} bytes; take one of 1 to {limit} bytes")]
    BadTreeName {
        /// The name's length.
        length: usize,
        /// The longest name.
        limit: usize,
    },
    /// The root table is full.
    #[error(
        "the pool holds {limit} trees already, the most that a pool can hold; use another pool, or prefix keys within one tree"
    )]
    TooManyTrees {
        /// The most trees that a pool holds.
        limit: usize,
    },
    /// Somebody still uses the pool, or the tree.
    #[error("the pool is still in use: a tree, a range or another handle exists; drop it first")]
    InUse,
    /// What was asked for is weaker than what was required.
    #[error(
        "durability {required:?} is required, but this is {found}; use a file system that offers it, or require less"
    )]
    NotDurable {
        /// What was required.
        required: medium::Survives,
        /// What the medium is.
        found: String,
    },
    /// The medium failed.
    #[error(transparent)]
    Medium(MediumError),
}

impl Error {
    /// Damage at `offset`.
    pub fn corrupt(offset: u64, what: impl Into<String>) -> Self {
        Self::Corrupt { offset, what: what.into() }
    }

    /// For opening a pool: what is damaged keeps it from being opened.
    pub(crate) fn unopenable(self) -> Self {
        match self {
            Self::Corrupt { offset, what } => Self::Unopenable { offset, what },
            other => other,
        }
    }

    /// A closure for `map_err`: a torn line at `offset`.
    pub fn torn(offset: u64) -> impl FnOnce(Torn) -> Self {
        move |torn| Self::corrupt(offset, torn.to_string())
    }
}

impl From<BadOffset> for Error {
    fn from(bad: BadOffset) -> Self {
        Self::Corrupt { offset: bad.offset, what: bad.to_string() }
    }
}

impl From<MediumError> for Error {
    fn from(error: MediumError) -> Self {
        match error {
            MediumError::Full { wanted, limit, by } => Self::PoolFull { wanted, limit, by },
            other => Self::Medium(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the text of an error must say: the thing concerned, and the way out.
    fn parts(error: &Error) -> (&'static str, &'static str) {
        match error {
            Error::Io { .. } => ("the lock", "put right"),
            Error::NoSuchPool => ("no such pool", "make one"),
            Error::ReadOnly { .. } => ("read-only", "give write permission, or open a copy"),
            Error::Unsupported { .. } => ("avx512", "use another machine"),
            Error::NoBackup { .. } => ("no log", "copy its file when it is closed"),
            Error::NotAPool { .. } => ("magic", "give the path"),
            Error::Version { .. } => ("version 77", "`restore`"),
            Error::UnknownFeatures { .. } => ("0x4d", "use a newer release"),
            Error::Locked { .. } => ("process 77", "close it there"),
            Error::LineForm { .. } => ("Twin", "choose a line store"),
            Error::Corrupt { .. } => ("0x4d: a leaf", "dump --salvage"),
            Error::Unopenable { .. } => ("0x4d: a header", "restore it from a dump or a backup"),
            Error::PoolFull { .. } => ("77 bytes", "raise the limit"),
            Error::TooLong { .. } => ("77 bytes", "split"),
            Error::TreeMismatch { .. } => ("\"t\"", "open it as what it is"),
            Error::NoSuchTree { .. } => ("\"t\"", "`everleaf trees` lists"),
            Error::TreeExists { .. } => ("\"t\"", "take another name"),
            Error::BadTreeName { .. } => ("77 bytes", "take one of"),
            Error::TooManyTrees { .. } => ("77 trees", "use another pool"),
            Error::InUse => ("a tree, a range or another handle", "drop that first"),
            Error::NotDurable { .. } => ("PowerLoss", "require less"),
            Error::Medium(_) => ("the disk is gone", "reopen the pool"),
        }
    }

    #[test]
    fn every_error_names_the_thing_and_a_way_out() {
        let source = || io::Error::other("the lock is in a state");
        let name = || "t".to_owned();
        let (length, limit, found) = (77, 7, || "what it is".to_owned());
        let errors = [
            Error::Io { action: "lock", source: source() },
            Error::NoSuchPool,
            Error::ReadOnly { source: io::ErrorKind::ReadOnlyFilesystem.into() },
            Error::Unsupported { what: "avx512".to_owned() },
            Error::NoBackup { why: "it has no log".to_owned() },
            Error::NotAPool { why: "the magic number is missing".to_owned() },
            Error::Version { found: 77, supported: 3 },
            Error::UnknownFeatures { unknown: 77 },
            Error::Locked { holder: Some(77) },
            Error::LineForm { pool: LineForm::Twin, medium: LineForm::Single },
            Error::corrupt(77, "a leaf"),
            Error::corrupt(77, "a header").unopenable(),
            Error::PoolFull { wanted: 77, limit: 7, by: LimitedBy::Limit },
            Error::TooLong { bytes: length, limit: 7 },
            Error::TreeMismatch { name: name(), found: found(), wanted: found() },
            Error::NoSuchTree { name: name() },
            Error::TreeExists { name: name() },
            Error::BadTreeName { length, limit },
            Error::TooManyTrees { limit: 77 },
            Error::InUse,
            Error::NotDurable { required: medium::Survives::PowerLoss, found: found() },
            Error::Medium(MediumError::Failed("the disk is gone".to_owned())),
        ];
        for error in &errors {
            let ((thing, way_out), text) = (parts(error), error.to_string());
            assert!(text.contains(thing) && text.contains(way_out), "{text}");
        }
        // Each kind once.
        let kinds = errors.iter().map(std::mem::discriminant);
        assert_eq!(kinds.collect::<std::collections::HashSet<_>>().len(), errors.len());
    }
}
