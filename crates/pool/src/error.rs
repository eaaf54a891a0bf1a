//! What can go wrong with a pool and the trees in it.

use std::fmt;
use std::io;
use std::path::Path;

use medium::{BadOffset, Grown, LimitedBy, LineForm, MediumError, Torn};

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

/// The pool that an error concerns. Errors that come from a store name it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct At(Option<Box<Path>>);

impl At {
    /// For an error that does not know its pool.
    pub const UNKNOWN: Self = Self(None);
}

/// `a.pool: `, or nothing.
impl fmt::Display for At {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .as_ref()
            .map_or(Ok(()), |path| write!(formatter, "{}: ", path.display()))
    }
}

/// What can go wrong: what failed, where, and a way out. [`Error::path`] is the file that it
/// concerns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{at}cannot {action}: {source}; {}", medium::remedy(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
        /// The pool.
        at: At,
    },
    /// There is no such file, and none was to be made.
    #[error("{at}no such pool; check the path, or allow the open to create it")]
    NoSuchPool {
        /// The pool.
        at: At,
    },
    /// The file, its folder or its file system is read-only.
    #[error("{at}{}", not_writable(source))]
    NotWritable {
        /// What the operating system said.
        source: io::Error,
        /// The pool.
        at: At,
    },
    /// The store was opened with `read_only`, and this would write to it. Nothing was changed.
    #[error(
        "{at}the store is open to be read only, so nothing was written; open it without `read_only`"
    )]
    ReadOnly {
        /// The pool.
        at: At,
    },
    /// This machine cannot do what was asked for.
    #[error(
        "this processor has no {what}; leave the choice to be detected, or use another machine"
    )]
    Unsupported {
        /// What was asked for.
        what: String,
    },
    /// The pool cannot be copied while it is open.
    #[error("{at}cannot copy an open pool: {why}; copy its file when it is closed")]
    NoBackup {
        /// Why not.
        why: String,
        /// The pool.
        at: At,
    },
    /// The file is something else.
    #[error("{at}not an Everleaf pool: {why}; give the path of a pool, or of a new file")]
    NotAPool {
        /// What was found.
        why: String,
        /// The file.
        at: At,
    },
    /// The pool was written by another version of the format.
    #[error(
        "{at}format version {found}, and this program reads {supported}; dump it with the release that made it, and restore it here"
    )]
    Version {
        /// The pool's version.
        found: u32,
        /// This program's version.
        supported: u32,
        /// The pool.
        at: At,
    },
    /// The pool uses features that this program does not know.
    #[error(
        "{at}the pool has features {unknown:#x}, which this program does not know; use a newer release"
    )]
    UnknownFeatures {
        /// The bits that are not known.
        unknown: u64,
        /// The pool.
        at: At,
    },
    /// The pool is open: a writer is alone, and readers are beside readers only.
    #[error("{at}{}", held(*holder, *readers))]
    Locked {
        /// The process that has it open for writing, if that is known.
        holder: Option<u32>,
        /// Whether only readers have it open (`read_only`), and so keep a writer out.
        readers: bool,
        /// The pool.
        at: At,
    },
    /// The pool's lines have a form that this medium cannot write.
    #[error("{at}created with {} lines, but this medium writes {} lines; choose a line store of that form, or dump it where it works", form(*pool), form(*medium))]
    LineForm {
        /// The form of the pool.
        pool: LineForm,
        /// The form of the medium.
        medium: LineForm,
        /// The pool.
        at: At,
    },
    /// The pool is corrupt.
    #[error(
        "{at}the pool is damaged at offset {offset:#x}: {what}; a check lists all damage, a salvage saves the rest"
    )]
    Corrupt {
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: String,
        /// The pool.
        at: At,
    },
    /// The pool's content keeps it from being opened, so nothing of it can be read.
    #[error(
        "{at}the pool cannot be opened: it is damaged at offset {offset:#x}: {what}; restore it from a dump or a backup"
    )]
    Unopenable {
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: String,
        /// The pool.
        at: At,
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
    #[error("{}", by.explain(*file, at.0.as_deref(), *wanted, *limit))]
    PoolFull {
        /// The length that the file would need.
        wanted: u64,
        /// The length that it may have: by the limit, or because it has it and the disk gives no
        /// more.
        limit: u64,
        /// What is full: the limit is met, or the disk.
        by: LimitedBy,
        /// The file that was to grow: the pool's, or its log.
        file: Grown,
        /// The pool.
        at: At,
    },
    /// The tree was made with another engine or codec, or with nodes of other sizes.
    #[error("{at}tree {name:?} uses {found}, not {wanted}; open it with what it was made with")]
    TreeMismatch {
        /// The tree.
        name: String,
        /// What it uses.
        found: String,
        /// What was asked for.
        wanted: String,
        /// The pool.
        at: At,
    },
    /// Bytes in a tree are those of no key or value of the type that it was read with.
    #[error(
        "{at}tree {name:?} holds a {what} that is no {wanted}; read it with the type that it was written with"
    )]
    NotOfType {
        /// The tree.
        name: String,
        /// Key or value.
        what: &'static str,
        /// The type.
        wanted: &'static str,
        /// The pool.
        at: At,
    },
    /// No tree has this name.
    #[error("{at}no tree {name:?} in this pool; check the name, or make the tree")]
    NoSuchTree {
        /// The name.
        name: String,
        /// The pool.
        at: At,
    },
    /// A tree of this name exists.
    #[error("{at}tree {name:?} exists already; open it, or take another name")]
    TreeExists {
        /// The name.
        name: String,
        /// The pool.
        at: At,
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
        "{at}the pool holds {limit} trees already, the most that a pool can hold; use another pool, or prefix keys within one tree"
    )]
    TooManyTrees {
        /// The most trees that a pool holds.
        limit: usize,
        /// The pool.
        at: At,
    },
    /// Something still uses the pool, or the tree.
    #[error(
        "{at}the pool is still in use: a tree, a range or another handle exists; drop it first"
    )]
    InUse {
        /// The pool.
        at: At,
    },
    /// What was asked for is weaker than what was required.
    #[error(
        "{at}durability {required:?} is required, but this is {found}; use a file system that offers it, or require less"
    )]
    NotDurable {
        /// What was required.
        required: medium::Survives,
        /// What the medium is.
        found: String,
        /// The pool.
        at: At,
    },
    /// The medium failed.
    #[error("{at}{source}")]
    Medium {
        /// Why.
        source: MediumError,
        /// The pool.
        at: At,
    },
    /// An operation gave up after a bounded number of attempts: another thread held a node for too
    /// long, for example while it waited for a slow disk, or damage looks like a lock. Nothing was
    /// changed.
    #[error(
        "{at}other threads blocked an operation for too long at offset {offset:#x}, and it changed nothing; try it again"
    )]
    Contended {
        /// Where.
        offset: u64,
        /// The pool.
        at: At,
    },
    /// A key is too long.
    #[error(
        "a key of {length} bytes is too long, the limit is {limit}; shorten it, or move a part of it into the value"
    )]
    KeyTooLong {
        /// The key's length.
        length: usize,
        /// The longest key.
        limit: usize,
    },
    /// A value is too long.
    #[error(
        "a value of {length} bytes is too long, the limit is {limit}; split it over several keys"
    )]
    ValueTooLong {
        /// The value's length.
        length: usize,
        /// The longest value.
        limit: usize,
    },
    /// A tree of words was given bytes of another length.
    #[error(
        "a {what} of {length} bytes, but this tree holds words of exactly 8; make a tree with the record codec for other lengths"
    )]
    NotAWord {
        /// Key or value.
        what: &'static str,
        /// Its length.
        length: usize,
    },
    /// A node size out of bounds.
    #[error("{size} {what} are out of bounds; take {least} to {most}")]
    NodeSize {
        /// What is counted.
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
        /// The engine, the setting, and the possible values.
        what: String,
    },
    /// The tree was made by an engine or with a codec that this program does not know.
    #[error(
        "{at}tree {name:?} was made by engine number {engine} with codec number {codec}, which this program does not know; use a newer release"
    )]
    UnknownEngine {
        /// The tree.
        name: String,
        /// The engine's number.
        engine: u16,
        /// The codec's number.
        codec: u16,
        /// The pool.
        at: At,
    },
    /// A condition of a batch does not hold, and nothing of the batch was written.
    #[error(
        "condition {index} of the batch does not hold, on a key of tree {tree:?}, so nothing was written; read it again, and build another batch"
    )]
    ConditionFailed {
        /// The tree.
        tree: String,
        /// Which of the batch's conditions it is, from 0 on.
        index: usize,
    },
    /// A batch is too large. Nothing of it was written.
    #[error(
        "a batch of {size} {what} is too large, the limit is {limit}; write it in several batches"
    )]
    BatchTooLarge {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        size: usize,
        /// The most.
        limit: usize,
    },
    /// An earlier batch could not be finished, so the pool takes no more writes. The next open
    /// finishes the batch or undoes it, unless a tree that it writes to is damaged: then the open
    /// lists that, and what is whole can be saved.
    #[error(
        "{at}a batch could not be finished, so nothing more is written; close the pool and open it again, which finishes the batch or undoes it; if a damaged tree is in its way, a salvage saves the rest"
    )]
    BatchUnfinished {
        /// The pool.
        at: At,
    },
    /// The operation would wait for ever: it is called while its own thread holds what it would
    /// wait for, as by the source of a bulk load that writes a batch to the tree being loaded.
    #[error(
        "the operation would wait for its own thread for ever; call it after the load, the salvage or the batch"
    )]
    InBatch,
    /// A batch changed more nodes than the log of an epoch takes. Its earlier writes stay.
    #[error(
        "the batch changes more nodes than the {limit} that one thread can log in an epoch; end it earlier, and write the rest in further batches"
    )]
    EpochFull {
        /// The most nodes that one thread can log in an epoch.
        limit: u64,
    },
    /// A tree of an engine that numbers its keys has as many as it has numbers.
    #[error(
        "the tree has as many keys as this engine can number, {limit}; remove some, or begin another tree"
    )]
    TreeFull {
        /// The most keys.
        limit: u64,
    },
    /// `bulk_load` needs an empty tree.
    #[error(
        "bulk load needs an empty tree, and this one has entries; put the others one by one, or load a new tree"
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
    /// An invalid operation on several words. Nothing was changed.
    #[error("invalid PMwCAS operation: {what}; build another one")]
    BadOperation {
        /// What is wrong with it.
        what: String,
    },
}

fn not_writable(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "not writable, its file system is mounted read-only; mount it to be written, copy the pool elsewhere, or open it only to read".to_owned()
        }
        _ => format!("this user may not write it ({source}); give write permission, or open it only to read"),
    }
}

fn held(holder: Option<u32>, readers: bool) -> String {
    if readers {
        return "the pool is open to be read, and a writer must be alone; close it there, or open it only to read, too"
            .to_owned();
    }
    let holder = holder.map_or_else(
        || "another process".to_owned(),
        |holder| format!("process {holder}"),
    );
    format!(
        "{holder} is writing this pool, and no other process may open it meanwhile; wait for its end, or back the pool up and open the copy"
    )
}

fn form(form: LineForm) -> &'static str {
    if form == LineForm::Twin {
        "twin"
    } else {
        "single"
    }
}

/// The place of an error, if its kind has one.
macro_rules! place {
    ($error:expr) => {
        match $error {
            Error::Io { at, .. }
            | Error::NoSuchPool { at }
            | Error::NotWritable { at, .. }
            | Error::ReadOnly { at }
            | Error::NoBackup { at, .. }
            | Error::NotAPool { at, .. }
            | Error::Version { at, .. }
            | Error::UnknownFeatures { at, .. }
            | Error::Locked { at, .. }
            | Error::LineForm { at, .. }
            | Error::Corrupt { at, .. }
            | Error::Unopenable { at, .. }
            | Error::PoolFull { at, .. }
            | Error::TreeMismatch { at, .. }
            | Error::NotOfType { at, .. }
            | Error::NoSuchTree { at, .. }
            | Error::TreeExists { at, .. }
            | Error::TooManyTrees { at, .. }
            | Error::InUse { at }
            | Error::NotDurable { at, .. }
            | Error::Medium { at, .. }
            | Error::Contended { at, .. }
            | Error::BatchUnfinished { at }
            | Error::UnknownEngine { at, .. } => Some(at),
            _ => None,
        }
    };
}

impl Error {
    /// The file of the pool that the error concerns. `None` if it concerns none, but an argument,
    /// or if it does not come from a store.
    pub fn path(&self) -> Option<&Path> {
        place!(self)?.0.as_deref()
    }

    /// The error with the path of the pool that it concerns, unless it has one.
    #[must_use]
    pub fn at(mut self, path: &Path) -> Self {
        if let Some(at) = place!(&mut self) {
            at.0.get_or_insert_with(|| path.into());
        }
        self
    }

    /// The error with this path of the pool, instead of the one that it has.
    #[doc(hidden)]
    #[must_use]
    pub fn moved_to(mut self, path: &Path) -> Self {
        if let Some(at) = place!(&mut self) {
            at.0 = Some(path.into());
        }
        self
    }

    /// Damage at `offset`.
    pub fn corrupt(offset: u64, what: impl Into<String>) -> Self {
        Self::Corrupt {
            offset,
            what: what.into(),
            at: At::UNKNOWN,
        }
    }

    /// No tree of this name.
    pub fn no_such_tree(name: &str) -> Self {
        Self::NoSuchTree {
            name: name.to_owned(),
            at: At::UNKNOWN,
        }
    }

    /// Something still uses the pool, or the tree.
    pub fn in_use() -> Self {
        Self::InUse { at: At::UNKNOWN }
    }

    /// Other threads blocked an operation for too long.
    pub fn contended(offset: u64) -> Self {
        Self::Contended {
            offset,
            at: At::UNKNOWN,
        }
    }

    /// For opening a pool: what is damaged keeps it from being opened.
    pub(crate) fn unopenable(self) -> Self {
        match self {
            Self::Corrupt { offset, what, at } => Self::Unopenable { offset, what, at },
            other => other,
        }
    }

    /// A closure for `map_err`: a torn line at `offset`.
    pub fn torn(offset: u64) -> impl FnOnce(Torn) -> Self {
        move |torn| Self::corrupt(offset, torn.to_string())
    }

    /// A closure for `map_err`: the operating system refused.
    pub fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action,
            source,
            at: At::UNKNOWN,
        }
    }

    /// What is wrong, for a list of damage: without the pool and the way out, which are the same
    /// for all of it.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::Corrupt { offset, what, .. } => format!("damaged at offset {offset:#x}: {what}"),
            other => other.to_string(),
        }
    }

    /// The error of the medium, if that failed.
    pub fn medium(&self) -> Option<&MediumError> {
        if let Self::Medium { source, .. } = self {
            Some(source)
        } else {
            None
        }
    }

    /// Whether the pool is damaged: [`Error::Corrupt`].
    pub fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    /// Whether there is no space left: [`Error::PoolFull`].
    pub fn is_full(&self) -> bool {
        matches!(self, Self::PoolFull { .. })
    }
}

impl From<BadOffset> for Error {
    fn from(bad: BadOffset) -> Self {
        Self::corrupt(bad.offset, bad.to_string())
    }
}

impl From<MediumError> for Error {
    fn from(source: MediumError) -> Self {
        let at = At::UNKNOWN;
        match source {
            MediumError::Full {
                wanted,
                limit,
                by,
                file,
            } => Self::PoolFull {
                wanted,
                limit,
                by,
                file,
                at,
            },
            source => Self::Medium { source, at },
        }
    }
}

#[cfg(test)]
mod tests;
