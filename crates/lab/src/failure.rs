//! Why a measurement failed.

use std::io;

use crate::output_file::OutputError;

/// A measurement that failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] everleaf::Error),
    /// An error of the operating system.
    #[error("cannot {action}: {source}")]
    Io {
        /// The action that failed.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// An output file was not made.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A tree does not hold what was written to it.
    #[error("{0}")]
    Wrong(String),
    /// The arguments contradict each other.
    #[error("{0}")]
    Usage(String),
}

/// The result of a measurement.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A closure for `map_err`.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action: action.into(),
            source,
        }
    }
}
