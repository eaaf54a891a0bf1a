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
    /// The pool refused: its file, its space or its medium is the reason.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Something in the pool was in an operation's way, and stayed so for long: another thread that waits for a slow disk, or
    /// damage to memory. Nothing was changed.
    #[error(
        "an operation gave up waiting for what another thread works on at offset {offset:#x}; try it again. If that does not help, open the pool anew, and see what `everleaf check` says"
    )]
    Contended {
        /// Where.
        offset: u64,
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

    /// What the medium says, if it failed.
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
                ("77 entries", "take one of"),
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
            (Error::InBatch, ("a batch", "use the batch there")),
            (Error::EpochFull { limit: 77 }, ("77 entries", "further batches")),
            (Error::NotEmpty, ("an empty tree", "load a new tree")),
            (Error::NotSorted { index: 77 }, ("entry 77", "sort them")),
            (Error::BadOperation { what: "77 words".to_owned() }, ("77 words", "put another one together")),
        ];
        for (error, (thing, way_out)) in errors {
            let text = error.to_string();
            assert!(text.contains(thing) && text.contains(way_out), "{text}");
            let (path, whole) = (std::path::Path::new("a.pool"), format!("a.pool: {text}"));
            assert_eq!(error.at(path).to_string(), whole);
        }
    }
}
