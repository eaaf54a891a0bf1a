//! What can go wrong with a tree.

use std::path::PathBuf;

use medium::{BadOffset, MediumError, Torn};

/// What can go wrong with the file.
pub use pool::Error as PoolError;

/// The result of an operation on a tree.
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
    /// An error of the pool: its file, its space or its medium.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// An operation gave up after a bounded number of attempts: another thread blocked it for long, as one that waits for a slow
    /// disk, or memory is damaged. Nothing was changed.
    #[error(
        "other threads blocked an operation for too long at offset {offset:#x}, and it changed nothing; try it again. If that does not help, reopen the pool and run `everleaf check`"
    )]
    Contended {
        /// Where.
        offset: u64,
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
    #[error("a value of {length} bytes is too long, the limit is {limit}; split it over several keys")]
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
    /// The operation would wait for the end of the batch that it is called from, or for a batch of another thread, which may in
    /// turn wait for this one.
    #[error(
        "the operation would wait for ever inside of a batch; use only the batch there, and call this after the batch has ended"
    )]
    InBatch,
    /// A batch changed more nodes than the log of an epoch takes. Its earlier writes stay.
    #[error(
        "the batch changes more nodes than the log of one epoch takes from a thread, which has {limit} entries; end it earlier, and write the rest in further batches"
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

impl Error {
    /// The error with the path of the pool that it concerns.
    #[must_use]
    pub fn at(self, path: &std::path::Path) -> Self {
        match self {
            Self::At { .. } => self,
            other => Self::At { path: path.to_owned(), source: Box::new(other) },
        }
    }

    /// The error without its path.
    pub fn root(&self) -> &Self {
        match self {
            Self::At { source, .. } => source.root(),
            other => other,
        }
    }

    /// Damage at `offset`.
    pub fn corrupt(offset: u64, what: impl Into<String>) -> Self {
        PoolError::corrupt(offset, what).into()
    }

    /// A closure for `map_err`: a torn line at `offset`.
    pub fn torn(offset: u64) -> impl FnOnce(Torn) -> Self {
        move |torn| PoolError::torn(offset)(torn).into()
    }

    /// The error of the medium, if that failed.
    pub fn medium(&self) -> Option<&MediumError> {
        match self.root() {
            Self::Pool(PoolError::Medium(error)) => Some(error),
            _ => None,
        }
    }

    /// Whether the pool is damaged: [`PoolError::Corrupt`].
    pub fn is_corrupt(&self) -> bool {
        matches!(self.root(), Self::Pool(PoolError::Corrupt { .. }))
    }

    /// Whether there is no space left: [`PoolError::PoolFull`].
    pub fn is_full(&self) -> bool {
        matches!(self.root(), Self::Pool(PoolError::PoolFull { .. }))
    }
}

impl From<BadOffset> for Error {
    fn from(bad: BadOffset) -> Self {
        PoolError::from(bad).into()
    }
}

impl From<MediumError> for Error {
    fn from(error: MediumError) -> Self {
        PoolError::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_names_the_thing_and_a_way_out() {
        let (length, limit) = (77, 7);
        let errors = [
            (Error::Contended { offset: 77 }, ("offset 0x4d", "try it again")),
            (Error::KeyTooLong { length, limit }, ("a key of 77 bytes", "shorten it")),
            (Error::ValueTooLong { length, limit }, ("a value of 77 bytes", "split it")),
            (Error::NotAWord { what: "key", length }, ("a key of 77 bytes", "create the tree with")),
            (
                Error::NodeSize { what: "entries", size: 77, least: 4, most: 56 },
                ("77 entries", "take 4 to 56"),
            ),
            (
                Error::Setting { what: "rntree has no setting depth; it has none".to_owned() },
                ("no setting", "it has"),
            ),
            (
                Error::UnknownEngine { name: "t".to_owned(), engine: 77, codec: 1 },
                ("engine number 77", "use a newer release"),
            ),
            (Error::NoBatches { engine: "rntree" }, ("rntree", "engine masstree")),
            (Error::InBatch, ("a batch", "use only the batch there")),
            (Error::EpochFull { limit: 77 }, ("77 entries", "further batches")),
            (Error::TreeFull { limit: 77 }, ("keys as this engine can number, 77", "another tree")),
            (Error::NotEmpty, ("an empty tree", "load a new tree")),
            (Error::NotSorted { index: 77 }, ("entry 77", "sort them")),
            (Error::BadOperation { what: "77 words".to_owned() }, ("77 words", "build another one")),
        ];
        for (error, (thing, way_out)) in errors {
            let text = error.to_string();
            assert!(text.contains(thing) && text.contains(way_out), "{text}");
            let (path, whole) = (std::path::Path::new("a.pool"), format!("a.pool: {text}"));
            assert_eq!(error.at(path).to_string(), whole);
        }
    }
}
