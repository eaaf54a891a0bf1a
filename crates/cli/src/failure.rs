//! Why a command did not do what it was asked for.

use std::io;

use everleaf::{Error, LogError, PoolError};
use medium::MediumError;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
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
    /// Output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// An input line is malformed.
    #[error("{input}, line {number}: {what}")]
    Line {
        /// The name of the input.
        input: String,
        /// Its line, from 1.
        number: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The arguments make no sense together.
    #[error("{0}")]
    Usage(String),
    /// Something else is in the way.
    #[error("{0}")]
    Refused(String),
}

impl From<lab::failure::Failure> for Failure {
    fn from(failure: lab::failure::Failure) -> Self {
        match failure {
            lab::failure::Failure::Store(error) => Self::Store(error),
            lab::failure::Failure::Io { action, source } => Self::Io { action, source },
            lab::failure::Failure::Usage(what) => Self::Usage(what),
        }
    }
}

impl Failure {
    /// A closure for `map_err`.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action: action.into(), source }
    }

    /// Whether what is stored is not what may be there: the pool or its log is damaged, or they are not each other's.
    pub(crate) fn is_damage(&self) -> bool {
        let Self::Store(error) = self else { return false };
        match error.root() {
            Error::Pool(PoolError::Corrupt { .. } | PoolError::Unopenable { .. }) => true,
            Error::Pool(PoolError::Medium(MediumError::Log(log))) => {
                !matches!(log, LogError::Io { .. } | LogError::Overrun | LogError::Unsettled)
            }
            _ => false,
        }
    }

    /// Whether only the reader of the output went away, as `head` does.
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The answer of a command that ran to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Yes, or done: exit code 0.
    Yes,
    /// No, or violations were found: exit code 1.
    No,
    /// A child process has answered, with this exit code.
    Child(u8),
}

impl Answer {
    pub(crate) fn from_bool(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

/// What a command returns.
pub(crate) type Outcome = Result<Answer, Failure>;
