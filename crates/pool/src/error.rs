//! What can go wrong with a pool and the trees in it.

use std::io;
use std::path::PathBuf;

use medium::{BadOffset, LimitedBy, LineForm, MediumError, Torn};

/// The result of an operation on a pool.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong, what it concerns, and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error that concerns the pool at `path`.
    #[error("{}: {source}", path.display())]
    At {
        /// The pool's file.
        path: PathBuf,
        /// What is wrong.
        source: Box<Error>,
    },
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
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
        "the pool cannot be written ({source}), and opening one writes to it even if only to read; give write permission, or open a copy"
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
    #[error("the pool is open in {}; one process at a time", match holder { Some(pid) => format!("process {pid}"), None => "another process".to_owned() })]
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
    /// The pool's content cannot be.
    #[error(
        "the pool is damaged at offset {offset:#x}: {what}; `everleaf check` lists all damage, `everleaf dump --salvage` saves the rest"
    )]
    Corrupt {
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: String,
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
    /// A key is too long.
    #[error("a key of {length} bytes; the limit is {limit}")]
    KeyTooLong {
        /// The key's length.
        length: usize,
        /// The longest key.
        limit: usize,
    },
    /// A value is too long.
    #[error("a value of {length} bytes; the limit is {limit}")]
    ValueTooLong {
        /// The value's length.
        length: usize,
        /// The longest value.
        limit: usize,
    },
    /// A tree of words was given bytes of another length.
    #[error(
        "a {what} of {length} bytes, but this tree holds words: keys and values of exactly 8 bytes; create the tree with the record codec for other lengths"
    )]
    NotAWord {
        /// Key or value.
        what: &'static str,
        /// Its length.
        length: usize,
    },
    /// The tree was made with another engine or codec.
    #[error("tree {name:?} was made with {found}, not with {wanted}; open it as what it is")]
    TreeMismatch {
        /// The tree.
        name: String,
        /// What it is.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// The tree was made by an engine or with a codec that this program does not know.
    #[error(
        "tree {name:?} was made by engine number {engine} with codec number {codec}, which this program does not know; use a newer release"
    )]
    UnknownEngine {
        /// The tree.
        name: String,
        /// The engine's number.
        engine: u16,
        /// The codec's number.
        codec: u16,
    },
    /// The engine cannot keep several writes together across a crash.
    #[error("engine {engine} has no batches; make the tree with engine masstree")]
    NoBatches {
        /// The engine.
        engine: &'static str,
    },
    /// An operation that would wait for the end of the batch it is called from.
    #[error(
        "the tree was used inside of a batch of its own; use the batch there, the tree when it has ended"
    )]
    InBatch,
    /// No tree has this name.
    #[error("no tree {name:?} in this pool; `everleaf trees` lists those there are")]
    NoSuchTree {
        /// The name.
        name: String,
    },
    /// A tree of this name exists.
    #[error("tree {name:?} exists")]
    TreeExists {
        /// The name.
        name: String,
    },
    /// A tree's name is empty or too long.
    #[error("a tree name of {length} bytes; names have 1 to {limit} bytes")]
    BadTreeName {
        /// The name's length.
        length: usize,
        /// The longest name.
        limit: usize,
    },
    /// The root table is full.
    #[error(
        "the pool holds {limit} trees, and that is the limit; use another pool, or prefix keys within one tree"
    )]
    TooManyTrees {
        /// The most trees that a pool holds.
        limit: usize,
    },
    /// `bulk_load` needs an empty tree.
    #[error("bulk load needs an empty tree; this one has entries")]
    NotEmpty,
    /// `bulk_load` needs sorted input.
    #[error("bulk load needs keys in strictly ascending order; entry {index} is not above the one before")]
    NotSorted {
        /// The first entry out of order, from 0.
        index: u64,
    },
    /// Somebody still uses the pool, or the tree.
    #[error("it is still in use: a tree, a range or another handle of it lives; drop that first")]
    InUse,
    /// What was asked for is weaker than what was required.
    #[error(
        "durability {required:?} is required, but this is {found}; use a file system that gives it, or require less"
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
    /// The error with the path of the pool that it concerns.
    #[must_use]
    pub fn at(self, path: &std::path::Path) -> Self {
        match self {
            Self::At { .. } => self,
            other => Self::At { path: path.to_owned(), source: Box::new(other) },
        }
    }

    /// Damage at `offset`.
    pub fn corrupt(offset: u64, what: impl Into<String>) -> Self {
        Self::Corrupt { offset, what: what.into() }
    }

    /// A closure for `map_err`: a torn line at `offset`.
    pub fn torn(offset: u64) -> impl FnOnce(Torn) -> Self {
        move |torn| Self::corrupt(offset, torn.to_string())
    }

    /// The error without its path.
    pub fn root(&self) -> &Self {
        match self {
            Self::At { source, .. } => source.root(),
            other => other,
        }
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
