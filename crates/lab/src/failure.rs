//! Why a measurement came to nothing.

use std::io;

/// A measurement that failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The store refused or is damaged.
    #[error(transparent)]
    Store(#[from] everleaf::Error),
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// Why not.
        source: io::Error,
    },
    /// The arguments make no sense together.
    #[error("{0}")]
    Usage(String),
}

/// The result of a measurement.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A closure for `map_err`.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action: action.into(), source }
    }
}
