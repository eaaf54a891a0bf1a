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
    #[error("cannot {action}: {source}; put right what it names, then try again")]
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
    /// Something in the pool was in an operation's way, and stayed so for long: another thread that waits for a slow disk, or
    /// damage to memory. Nothing was changed.
    #[error(
        "an operation gave up waiting for what another thread works on at offset {offset:#x}; try it again. If that does not help, open the pool anew, and see what `everleaf check` says"
    )]
    Contended {
        /// Where.
        offset: u64,
    },
    /// The pool's content keeps it from being opened, so nothing of it can be read.
    #[error(
        "the pool cannot be opened, for it is damaged at offset {offset:#x}: {what}; restore it from a dump or a backup"
    )]
    Unopenable {
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
    #[error(
        "a key of {length} bytes, and {limit} are the limit; shorten it, or move a part of it into the value"
    )]
    KeyTooLong {
        /// The key's length.
        length: usize,
        /// The longest key.
        limit: usize,
    },
    /// A value is too long.
    #[error("a value of {length} bytes, and {limit} are the limit; split it over several keys")]
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
    /// No node can be so large, or so small.
    #[error("{size} {what}: there can be {least} to {most}; take one of these")]
    NodeSize {
        /// What there are so many of.
        what: &'static str,
        /// How many were asked for.
        size: usize,
        /// The fewest.
        least: usize,
        /// The most.
        most: usize,
    },
    /// An engine has no such setting, or the setting does not take this value.
    #[error("{what}")]
    Setting {
        /// The engine, the setting, and what is possible.
        what: String,
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
    /// An operation that would wait for the end of the batch it is called from, or for that of a thread that may do the same.
    #[error(
        "inside of a batch its tree, and what ends an epoch of another one, would wait for ever; use the batch there, the rest when it has ended"
    )]
    InBatch,
    /// A batch changed more nodes than the log of an epoch takes; what it wrote before stays.
    #[error(
        "the batch changes more nodes than fit in the log of one epoch, of which one thread has {limit} entries; end it earlier, and write the rest in further batches"
    )]
    EpochFull {
        /// The most nodes that one thread can log in an epoch.
        limit: u64,
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
        "the pool holds {limit} trees, and that is the limit; use another pool, or prefix keys within one tree"
    )]
    TooManyTrees {
        /// The most trees that a pool holds.
        limit: usize,
    },
    /// `bulk_load` needs an empty tree.
    #[error(
        "bulk load needs an empty tree, and this one has entries; put more one by one, or load a new tree"
    )]
    NotEmpty,
    /// `bulk_load` needs sorted input.
    #[error(
        "bulk load needs keys in strictly ascending order, and entry {index} is not above the one before; sort them first"
    )]
    NotSorted {
        /// The first entry out of order, from 0.
        index: u64,
    },
    /// An operation on several words that cannot be; nothing was changed.
    #[error("no such operation of PMwCAS: {what}; put another one together")]
    BadOperation {
        /// What is wrong with it.
        what: String,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What the text of an error must say: the thing concerned, and the way out.
    fn parts(error: &Error) -> (&'static str, &'static str) {
        match error {
            Error::At { .. } => ("a.pool", "put right"),
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
            Error::Contended { .. } => ("offset 0x4d", "try it again"),
            Error::Unopenable { .. } => ("0x4d: a header", "restore it from a dump or a backup"),
            Error::PoolFull { .. } => ("77 bytes", "raise the limit"),
            Error::KeyTooLong { .. } => ("a key of 77 bytes", "shorten it"),
            Error::ValueTooLong { .. } => ("a value of 77 bytes", "split it"),
            Error::NotAWord { .. } => ("a key of 77 bytes", "create the tree with"),
            Error::NodeSize { .. } => ("77 entries", "take one of"),
            Error::Setting { .. } => ("no setting", "it has"),
            Error::TreeMismatch { .. } => ("\"t\"", "open it as what it is"),
            Error::UnknownEngine { .. } => ("engine number 77", "use a newer release"),
            Error::NoBatches { .. } => ("rntree", "engine masstree"),
            Error::InBatch => ("a batch", "use the batch there"),
            Error::EpochFull { .. } => ("77 entries", "further batches"),
            Error::NoSuchTree { .. } => ("\"t\"", "`everleaf trees` lists"),
            Error::TreeExists { .. } => ("\"t\"", "take another name"),
            Error::BadTreeName { .. } => ("77 bytes", "take one of"),
            Error::TooManyTrees { .. } => ("77 trees", "use another pool"),
            Error::NotEmpty => ("an empty tree", "load a new tree"),
            Error::NotSorted { .. } => ("entry 77", "sort them"),
            Error::BadOperation { .. } => ("77 words", "put another one together"),
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
            Error::Io { action: "lock", source: source() }.at(std::path::Path::new("a.pool")),
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
            Error::Contended { offset: 77 },
            Error::corrupt(77, "a leaf"),
            Error::corrupt(77, "a header").unopenable(),
            Error::PoolFull { wanted: 77, limit: 7, by: LimitedBy::Limit },
            Error::KeyTooLong { length, limit },
            Error::ValueTooLong { length, limit },
            Error::NotAWord { what: "key", length },
            Error::NodeSize { what: "entries", size: 77, least: 4, most: 56 },
            Error::Setting { what: "rntree has no setting depth; it has none".to_owned() },
            Error::TreeMismatch { name: name(), found: found(), wanted: found() },
            Error::UnknownEngine { name: name(), engine: 77, codec: 1 },
            Error::NoBatches { engine: "rntree" },
            Error::InBatch,
            Error::EpochFull { limit: 77 },
            Error::NoSuchTree { name: name() },
            Error::TreeExists { name: name() },
            Error::BadTreeName { length, limit },
            Error::TooManyTrees { limit: 77 },
            Error::NotEmpty,
            Error::NotSorted { index: 77 },
            Error::BadOperation { what: "77 words".to_owned() },
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
