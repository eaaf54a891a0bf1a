//! Errors of commands.

use std::io;

use everleaf::{Error, LogError, PoolError};
use medium::MediumError;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
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
    /// The arguments contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The command refuses, for another reason.
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

    /// Whether the pool or its log is damaged, or the two do not belong together.
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

    /// Whether the reader of the output closed it, as `head` does.
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The answer of a command that finished.
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
