//! Errors of commands.

use std::io;

use everleaf::{Error, LogError};
use medium::MediumError;
use serde_json::{Map, Value, json};

use crate::interrupt::Interruption;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An error of the store.
    #[error("{store}{hint}", store = .0, hint = hint(.0))]
    Store(#[from] everleaf::Error),
    /// An error of the operating system.
    #[error("cannot {action}: {source}; {}", medium::remedy(source))]
    Io {
        /// The action that failed.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Output could not be written.
    #[error("cannot write the output: {0}; send it elsewhere, such as to another file")]
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
    /// A signal asked the command to end.
    #[error("interrupted")]
    Interrupted,
    /// Something had been done before the command failed.
    #[error("{failure}; before that, {words}")]
    Halfway {
        /// What was done, in words.
        words: String,
        /// The same for a script.
        done: Map<String, Value>,
        /// Why the rest failed.
        failure: Box<Failure>,
    },
}

/// The commands that help, which the library does not know of.
fn hint(error: &Error) -> &'static str {
    match error {
        Error::Corrupt { .. } => " (`everleaf check` lists it, `everleaf dump --salvage` saves the rest)",
        Error::Locked { .. } => " (`--wait SECONDS` waits for it)",
        Error::NoSuchPool { .. } => " (`everleaf put` and `everleaf load` make one)",
        Error::NoSuchTree { .. } => " (`everleaf trees` lists those there are)",
        Error::Medium { source: MediumError::Log(LogError::Mark { .. }), .. } => {
            " (`--medium dax` does that)"
        }
        Error::Version { .. } | Error::LineForm { .. } => " (`everleaf dump` there, `everleaf restore` here)",
        _ => "",
    }
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
    /// The exit code for wrong use.
    pub(crate) const USAGE: u8 = 2;

    /// A closure for `map_err`.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.get_ref() {
            Some(inner) if inner.is::<Interruption>() => Self::Interrupted,
            _ => Self::Io { action: action.into(), source },
        }
    }

    /// The failure, and what had been done before it: in words, and as an object of JSON.
    pub(crate) fn after(self, words: String, done: Value) -> Self {
        let Value::Object(done) = done else { return self };
        Self::Halfway { words, done, failure: Box::new(self) }
    }

    /// The exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.kind() == "usage" { Self::USAGE } else { 3 }
    }

    /// What kind of failure it is, for scripts.
    fn kind(&self) -> &'static str {
        match self {
            Self::Store(error) => match error {
                Error::Locked { .. } => "locked",
                Error::PoolFull { .. } => "full",
                Error::NoSuchPool { .. } | Error::NoSuchTree { .. } => "absent",
                Error::BadTreeName { .. } => "usage",
                _ if self.is_damage() => "damaged",
                _ => "store",
            },
            Self::Io { .. } => "io",
            Self::Output(_) => "output",
            Self::Line { .. } => "input",
            Self::Usage(_) => "usage",
            Self::Refused(_) => "refused",
            Self::Interrupted => "interrupted",
            Self::Halfway { failure, .. } => failure.kind(),
        }
    }

    /// The failure as an object.
    pub(crate) fn json(&self) -> Value {
        let mut object = match self {
            Self::Halfway { done, .. } => done.clone(),
            _ => Map::new(),
        };
        object.insert("error".to_owned(), self.to_string().into());
        object.insert("kind".to_owned(), self.kind().into());
        object.insert("exit_code".to_owned(), json!(self.exit_code()));
        Value::Object(object)
    }

    /// Whether the pool or its log is damaged, or the two do not belong together.
    pub(crate) fn is_damage(&self) -> bool {
        let Self::Store(error) = self else { return false };
        match error {
            Error::Corrupt { .. } | Error::Unopenable { .. } => true,
            Error::Medium { source: MediumError::Log(log), .. } => {
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
