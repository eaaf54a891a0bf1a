//! The error type of pools and of the trees in them: [`Error`] names the pool, [`ErrorKind`] what
//! went wrong.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use medium::{BadOffset, Forked, Grown, LimitedBy, LineForm, MediumError, Torn};

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An error: what failed, which pool it concerns, and a way out. [`Error::kind`] is what programs
/// match on; [`Error::is_full`], [`Error::is_corrupt`], [`Error::is_retryable`] and
/// [`Error::is_absent`] answer the frequent questions.
///
/// It has the size of a pointer, so that a result is as cheap to return as its value.
///
/// Code makes an error from its kind, `ErrorKind::InUse.into()`. The pool or the store that the
/// error leaves adds the path. [`Error::corrupt`], [`Error::torn`], [`Error::io`] and
/// [`Error::no_such_tree`] save the conversion of their arguments.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    /// The file of the pool, once the error has left a pool or a store.
    path: Option<Box<Path>>,
}

/// The kinds of failures.
///
/// There is one enum for all crates, so that programs have one to match on. The crate `pool` makes
/// the kinds about its file, its space and its table of trees. Kinds about keys, values, settings,
/// batches and loads are made only where these are known, in the crates that build on `pool`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused.
    #[error("cannot {action}: {source}; {}", medium::remedy(source))]
    Io {
        /// The action that failed, as in "open the pool".
        action: &'static str,
        /// The reason of the system.
        source: io::Error,
    },
    /// There is no such file, and the options say not to make one.
    #[error("no such pool; check the path, or allow the open to create it")]
    NoSuchPool,
    /// The file, its folder or its file system is read-only.
    #[error("{}", not_writable(source))]
    NotWritable {
        /// The error of the operating system.
        source: io::Error,
    },
    /// The store was opened with `read_only`, and this would write to it. Nothing was changed.
    #[error(
        "the store is open only for reading, so nothing was written; open it without `read_only`"
    )]
    ReadOnly,
    /// This machine lacks a feature that was asked for.
    #[error(
        "this processor has no {what}; let the program detect what the processor has, or use another machine"
    )]
    Unsupported {
        /// The feature that the caller asked for.
        what: String,
    },
    /// The pool cannot be copied while it is open.
    #[error("cannot copy an open pool: {why}; copy its file when it is closed")]
    NoBackup {
        /// The reason.
        why: String,
    },
    /// The file is not a pool.
    #[error("not an Everleaf pool: {why}; give the path of a pool, or of a new file")]
    NotAPool {
        /// The reason why it is none.
        why: String,
    },
    /// The pool was written by another version of the format.
    #[error(
        "the pool has format version {found}, but this program reads {supported}; dump it with the release that made it, and restore it here"
    )]
    Version {
        /// The pool's version.
        found: u32,
        /// This program's version.
        supported: u32,
    },
    /// The pool uses features that this program does not know.
    #[error(
        "the pool has features {unknown:#x}, which this program does not know; use a newer release"
    )]
    UnknownFeatures {
        /// The bits that are not known.
        unknown: u64,
    },
    /// Another process has the pool open, or another store of this process. A writer needs the pool
    /// alone; any number of readers share it.
    #[error("{}", held(*holder, *readers))]
    Locked {
        /// The process that has it open for writing, if that is known. It may be this one.
        holder: Option<u32>,
        /// Whether only readers have it open (`read_only`), and so keep a writer out.
        readers: bool,
    },
    /// Another process writes the pool, and it cannot be read beside that process, because no copy of
    /// it can be made.
    #[error("{} is writing this pool, and it cannot be read meanwhile: {why}", process(*holder))]
    NotBeside {
        /// The process that has it open, if that is known.
        holder: Option<u32>,
        /// The reason, and the way out.
        why: String,
    },
    /// The pool's lines have a form that this medium cannot write.
    #[error("the pool was created with {} lines, but this medium writes {} lines; choose a line store of the pool's form, or dump the pool on a machine that can open it", form(*pool), form(*medium))]
    LineForm {
        /// The form of the pool.
        pool: LineForm,
        /// The form of the medium.
        medium: LineForm,
    },
    /// The pool is damaged.
    #[error(
        "the pool is damaged at offset {offset:#x}: {what}; a check lists all damage, a salvage saves the rest"
    )]
    Corrupt {
        /// Where, in bytes from the start of the pool.
        offset: u64,
        /// The fault, in words.
        what: String,
    },
    /// The pool's content keeps it from being opened, so nothing of it can be read.
    #[error(
        "the pool cannot be opened: it is damaged at offset {offset:#x}: {what}; restore it from a dump or a backup"
    )]
    Unopenable {
        /// Where, in bytes from the start of the pool.
        offset: u64,
        /// The fault, in words.
        what: String,
    },
    /// No allocation can be so long.
    #[error(
        "an allocation of {bytes} bytes exceeds the limit of {limit} bytes; store the value in several parts"
    )]
    TooLong {
        /// The length that the caller asked for, in bytes.
        bytes: usize,
        /// The longest allocation.
        limit: usize,
    },
    /// No space is left for the operation; nothing was changed.
    #[error("{}", by.explain(*file, None, *wanted, *limit))]
    PoolFull {
        /// The length that the file would need.
        wanted: u64,
        /// The length that it may have: the configured limit, or its present length if the disk has
        /// no more room.
        limit: u64,
        /// Which limit is reached.
        by: LimitedBy,
        /// The file that was to grow: the pool's, or its log.
        file: Grown,
    },
    /// The tree was made with another engine or codec, or with nodes of other sizes.
    #[error(
        "tree {name:?} uses {found}, not {wanted}; open it with the engine, codec and node size that it was made with"
    )]
    TreeMismatch {
        /// The tree.
        name: String,
        /// The engine, codec or node size of the tree.
        found: String,
        /// The one that the caller asked for.
        wanted: String,
    },
    /// The tree has other encodings of keys or values than the types with which it was opened.
    #[error(
        "tree {name:?} holds {found}, not {wanted}; open it with its own types, or adopt it as these once with `Store::adopt`"
    )]
    TypeMismatch {
        /// The tree.
        name: String,
        /// The encodings of its keys and values.
        found: String,
        /// Those of the types that the caller named.
        wanted: String,
    },
    /// The tree has encodings of keys and values, and this would write bytes to it that may be
    /// none of them. Nothing was changed.
    #[error(
        "tree {name:?} holds {types}, and a handle for bytes only reads it; write to it as `Store::typed` opens it, or make it a tree of bytes once with `Store::adopt_as_bytes`"
    )]
    TypedTree {
        /// The tree.
        name: String,
        /// The encodings of its keys and values.
        types: String,
    },
    /// A tree cannot remember an encoding by this name.
    #[error("a tree cannot remember the encoding {name:?}: {why}; give the type another name")]
    BadEncoding {
        /// The name.
        name: String,
        /// The reason.
        why: String,
    },
    /// Bytes in a tree are not a key or a value of the type with which it was read.
    #[error(
        "tree {name:?} holds a {what} that is no {wanted}; read it with the type that it was written with"
    )]
    NotOfType {
        /// The tree.
        name: String,
        /// Key or value.
        what: &'static str,
        /// The type.
        wanted: &'static str,
    },
    /// A value has no encoding, for example because its own code for serde refuses. Nothing was
    /// written.
    #[error(
        "a value cannot be encoded, so nothing was written: {why}; mend the value, or the code that encodes it"
    )]
    NotEncodable {
        /// The reason.
        why: String,
    },
    /// A counter would exceed the numbers of its type. Nothing was changed.
    #[error(
        "a counter of tree {name:?} would exceed the numbers of its type, so it was not changed; count in a wider type"
    )]
    CounterOverflow {
        /// The tree.
        name: String,
    },
    /// No tree has this name.
    #[error("no tree {name:?} in this pool; check the name, or make the tree")]
    NoSuchTree {
        /// The name.
        name: String,
    },
    /// A batch, a snapshot or a transaction was given a tree of another store.
    #[error("tree {name:?} belongs to another store, {}; open the tree of that name in this store, or use the other store", other.display())]
    OfAnotherStore {
        /// The tree.
        name: String,
        /// The pool of the store that the tree belongs to.
        other: PathBuf,
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
    /// A handle of the pool or of the tree still exists.
    #[error(
        "the pool is still in use: a tree, a range, a snapshot, a transaction or another handle exists; drop it first"
    )]
    InUse,
    /// The store was opened before this process was forked, so it belongs to the parent. Nothing
    /// was changed. A child opens stores of its own.
    #[error(
        "the store was opened before this process was forked, and belongs to the parent; open it in the child, after the fork"
    )]
    Forked,
    /// The medium survives less than the options require.
    #[error(
        "durability {required:?} is required, but this is {found}; use a file system that offers it, or require less"
    )]
    NotDurable {
        /// The failures that the caller requires the medium to survive.
        required: medium::Survives,
        /// A description of the medium.
        found: String,
    },
    /// The medium failed.
    #[error("{source}")]
    Medium {
        /// The error of the medium.
        source: MediumError,
    },
    /// An operation gave up after a bounded number of attempts: another thread held a node for too
    /// long, for example while it waited for a slow disk, or damage looks like a lock. Nothing was
    /// changed.
    #[error(
        "other threads blocked an operation for too long at offset {offset:#x}, and it changed nothing; try it again"
    )]
    Contended {
        /// The offset of the node in the pool, in bytes.
        offset: u64,
    },
    // From here on: kinds about keys, values, nodes, batches and loads. This crate never makes them.
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
        "a {what} of {length} bytes was given, but this tree holds words of exactly 8 bytes; make a tree with the record codec for other lengths"
    )]
    NotAWord {
        /// Key or value.
        what: &'static str,
        /// Its length.
        length: usize,
    },
    /// A node size is out of bounds.
    #[error("{size} {what} are out of bounds; take {least} to {most}")]
    NodeSize {
        /// The objects that are counted.
        what: &'static str,
        /// The number that the caller asked for.
        size: usize,
        /// The smallest possible number.
        least: usize,
        /// The largest possible number.
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
        /// The objects that are counted.
        what: &'static str,
        /// The number of them in the batch.
        size: usize,
        /// The largest possible number.
        limit: usize,
    },
    /// An earlier batch could not be finished, so the pool takes no more writes. The next open
    /// finishes the batch or undoes it, unless a tree that it writes to is damaged: then the open
    /// lists the damage, and a salvage saves the undamaged entries. A batch also gets this error if
    /// the journal is full of such batches; single writes are still possible then.
    #[error(
        "a batch could not be finished, so nothing more is written; close the pool and open it again, which finishes the batch or undoes it; if a damaged tree is in its way, a salvage saves the rest"
    )]
    BatchUnfinished,
    /// The source of a bulk load calls something that waits for the end of that load: a batch or a
    /// transaction that writes to the tree, or another load of it. Nothing was changed.
    #[error(
        "this call comes from the source of a bulk load, and would wait for that load for ever; make it when the load has returned"
    )]
    InLoadSource,
    /// A thread that keeps an epoch from ending calls something that waits for its end. Only code
    /// that uses an engine without a store can do that, by `Epochs::within_epoch`. Nothing was
    /// changed.
    #[error(
        "this call would wait for ever for the end of an epoch that its own thread keeps running; make it when `within_epoch` has returned"
    )]
    WithinEpoch,
    /// Another write has changed something that the transaction has read, so nothing of the
    /// transaction was written.
    #[error("{}", conflict(tree, key.as_deref()))]
    Conflict {
        /// The tree.
        tree: String,
        /// The first key that has changed, which the transaction has read by itself or within a
        /// range; `None` if the whole tree has, by a bulk load.
        key: Option<Vec<u8>>,
    },
    /// The moment that is to be read is too old.
    ///
    /// - A snapshot or a transaction was open for so long that the values that it needs took too much
    ///   memory, so they were forgotten.
    /// - Or the store is only read, and the process that writes the pool has overtaken it.
    #[error("{}", too_old(*limit))]
    ViewTooOld {
        /// The most bytes that changes may take. `None` if another process has overtaken the store.
        limit: Option<usize>,
    },
    /// A batch changed more nodes than the log of an epoch takes. Its earlier writes stay.
    #[error(
        "the batch changes more nodes than the {limit} that one thread can log in an epoch; end it earlier, and write the rest in further batches"
    )]
    EpochFull {
        /// The most nodes that one thread can log in an epoch.
        limit: u64,
    },
    /// The tree has as many keys as its engine can number.
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
        /// The fault of the operation.
        what: String,
    },
}

fn not_writable(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "not writable, its file system is mounted read-only; mount it for writing, copy the pool elsewhere, or open it only to read".to_owned()
        }
        _ => format!("this user may not write it ({source}); give write permission, or open it only to read"),
    }
}

fn held(holder: Option<u32>, readers: bool) -> String {
    if readers {
        return "readers have the pool open and keep it locked, as a salvage does, and a writer needs it alone; close it there, or \
                open it here only to read"
            .to_owned();
    }
    if holder == Some(std::process::id()) {
        return format!(
            "process {} (this one) has it open already; clone the `Store` instead of opening it again",
            std::process::id()
        );
    }
    let holder = process(holder);
    format!(
        "{holder} is writing this pool, and no other process may write it meanwhile; wait for its end, or open it here only to read"
    )
}

fn process(holder: Option<u32>) -> String {
    match holder {
        Some(holder) => format!("process {holder}"),
        None => "another process".to_owned(),
    }
}

fn too_old(limit: Option<usize>) -> String {
    match limit {
        Some(limit) => format!(
            "the snapshot or transaction is too old: the changes made since it was opened take more than {limit} bytes \
             of memory; open another one and read faster, or allow more memory with `versions_bytes_max`"
        ),
        None => "the process that writes the pool has overtaken this store, so nothing more can be read from it; move to a newer \
                 moment with `refresh()`, or open the pool with `read_from_copy`"
            .to_owned(),
    }
}

fn conflict(tree: &str, key: Option<&[u8]>) -> String {
    let changed = match key {
        Some(key) => format!("key {} of tree {tree:?}", quoted(key)),
        None => format!("all of tree {tree:?}"),
    };
    format!(
        "another write has changed {changed}, which the transaction has read, so nothing was written; begin the transaction again"
    )
}

/// The most bytes of a key that an error names.
const KEY_BYTES_NAMED: usize = 64;

/// A key for a text: printable, and the beginning alone if it is long.
fn quoted(key: &[u8]) -> String {
    match key.get(..KEY_BYTES_NAMED) {
        Some(beginning) if key.len() > KEY_BYTES_NAMED => {
            format!("\"{}...\" ({} bytes)", beginning.escape_ascii(), key.len())
        }
        _ => format!("\"{}\"", key.escape_ascii()),
    }
}

fn form(form: LineForm) -> &'static str {
    if form == LineForm::Twin {
        "twin"
    } else {
        "single"
    }
}

impl ErrorKind {
    /// Whether the kind is about the caller's arguments, and not about a pool. Such an error has no
    /// path.
    fn is_about_the_call(&self) -> bool {
        matches!(
            self,
            Self::Unsupported { .. }
                | Self::TooLong { .. }
                | Self::BadTreeName { .. }
                | Self::KeyTooLong { .. }
                | Self::ValueTooLong { .. }
                | Self::NotAWord { .. }
                | Self::NotEncodable { .. }
                | Self::NodeSize { .. }
                | Self::Setting { .. }
                | Self::ConditionFailed { .. }
                | Self::BatchTooLarge { .. }
                | Self::InLoadSource
                | Self::WithinEpoch
                | Self::Conflict { .. }
                | Self::EpochFull { .. }
                | Self::TreeFull { .. }
                | Self::NotEmpty
                | Self::NotSorted { .. }
                | Self::BadOperation { .. }
        )
    }
}

impl Error {
    /// The kind of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The kind of the error, without the path.
    pub fn into_kind(self) -> ErrorKind {
        self.0.kind
    }

    /// The file of the pool that the error concerns. `None` if the error concerns an argument, or
    /// does not come from a store.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The offset in the pool that the error concerns, in bytes: where it is damaged, or which
    /// node other threads held.
    pub fn offset(&self) -> Option<u64> {
        match self.kind() {
            ErrorKind::Corrupt { offset, .. }
            | ErrorKind::Unopenable { offset, .. }
            | ErrorKind::Contended { offset } => Some(*offset),
            _ => None,
        }
    }

    /// Whether the pool is damaged: [`ErrorKind::Corrupt`], or [`ErrorKind::Unopenable`] if it is
    /// damaged where an open needs it.
    pub fn is_corrupt(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Corrupt { .. } | ErrorKind::Unopenable { .. }
        )
    }

    /// Whether there is no space left: [`ErrorKind::PoolFull`].
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), ErrorKind::PoolFull { .. })
    }

    /// Whether other threads or processes prevented the operation, so that it may succeed later:
    /// [`ErrorKind::Contended`] (other threads), [`ErrorKind::Locked`] and [`ErrorKind::NotBeside`]
    /// (another process),
    /// [`ErrorKind::Conflict`] and [`ErrorKind::ViewTooOld`] (the transaction has to be begun
    /// again). Nothing was changed.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Contended { .. }
                | ErrorKind::Locked { .. }
                | ErrorKind::NotBeside { .. }
                | ErrorKind::Conflict { .. }
                | ErrorKind::ViewTooOld { .. }
        )
    }

    /// Whether the pool or the tree does not exist: [`ErrorKind::NoSuchPool`],
    /// [`ErrorKind::NoSuchTree`].
    pub fn is_absent(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::NoSuchPool | ErrorKind::NoSuchTree { .. }
        )
    }

    /// The error of the medium, if that failed.
    pub fn medium(&self) -> Option<&MediumError> {
        match self.kind() {
            ErrorKind::Medium { source } => Some(source),
            _ => None,
        }
    }

    /// The text for a list of damage: without the pool and the way out, which are the same for all
    /// entries.
    #[must_use]
    pub fn what(&self) -> String {
        match self.kind() {
            ErrorKind::Corrupt { offset, what } => format!("damaged at offset {offset:#x}: {what}"),
            _ => self.to_string(),
        }
    }

    /// The error with the path of the pool that it concerns, unless it has one.
    #[must_use]
    pub fn at(self, path: &Path) -> Self {
        if self.path().is_some() {
            return self;
        }
        self.moved_to(path)
    }

    /// The error with this path of the pool, instead of the one that it has.
    #[doc(hidden)]
    #[must_use]
    pub fn moved_to(mut self, path: &Path) -> Self {
        if !self.kind().is_about_the_call() {
            self.0.path = Some(path.into());
        }
        self
    }

    /// Damage at `offset`.
    #[cold]
    pub fn corrupt(offset: u64, what: impl Into<String>) -> Self {
        let what = what.into();
        ErrorKind::Corrupt { offset, what }.into()
    }

    /// The error of an operation on `key`: if a damaged pool is the reason, its text names the key.
    #[cold]
    #[must_use]
    pub fn of_key(self, key: &[u8]) -> Self {
        self.with_place(|| format!("found for key {}", quoted(key)))
    }

    /// The error of a range that has returned `key` before: if a damaged pool is the reason, its
    /// text names that key.
    #[cold]
    #[must_use]
    pub fn next_to_key(self, key: &[u8]) -> Self {
        self.with_place(|| format!("next to key {}", quoted(key)))
    }

    fn with_place(mut self, place: impl FnOnce() -> String) -> Self {
        if let ErrorKind::Corrupt { what, .. } = &mut self.0.kind {
            what.push_str(", ");
            what.push_str(&place());
        }
        self
    }

    /// No tree of this name.
    pub fn no_such_tree(name: &str) -> Self {
        let name = name.to_owned();
        ErrorKind::NoSuchTree { name }.into()
    }

    /// A closure for `map_err`: a torn line at `offset`.
    pub fn torn(offset: u64) -> impl FnOnce(Torn) -> Self {
        move |torn| Self::corrupt(offset, torn.to_string())
    }

    /// A closure for `map_err`: the operating system refused.
    pub fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| ErrorKind::Io { action, source }.into()
    }

    /// Turns damage into [`ErrorKind::Unopenable`]: the pool cannot be opened because of it.
    pub(crate) fn unopenable(mut self) -> Self {
        self.0.kind = match self.0.kind {
            ErrorKind::Corrupt { offset, what } => ErrorKind::Unopenable { offset, what },
            other => other,
        };
        self
    }
}

/// The pool, if it is known, and what went wrong there.
impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(path) = self.path() else {
            return self.kind().fmt(formatter);
        };
        match self.kind() {
            // The text names the file within: the pool's, or its log.
            ErrorKind::PoolFull {
                wanted,
                limit,
                by,
                file,
            } => formatter.write_str(&by.explain(*file, Some(path), *wanted, *limit)),
            kind => write!(formatter, "{}: {kind}", path.display()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Error")
            .field("kind", self.kind())
            .field("path", &self.path())
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind().source()
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(Inner { kind, path: None }))
    }
}

impl From<Forked> for Error {
    #[cold]
    fn from(_: Forked) -> Self {
        ErrorKind::Forked.into()
    }
}

impl From<BadOffset> for Error {
    fn from(bad: BadOffset) -> Self {
        Self::corrupt(bad.offset, bad.to_string())
    }
}

impl From<MediumError> for Error {
    fn from(source: MediumError) -> Self {
        let kind = match source {
            MediumError::Full {
                wanted,
                limit,
                by,
                file,
            } => ErrorKind::PoolFull {
                wanted,
                limit,
                by,
                file,
            },
            source => ErrorKind::Medium { source },
        };
        kind.into()
    }
}

#[cfg(test)]
mod tests;
