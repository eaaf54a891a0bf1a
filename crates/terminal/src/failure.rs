//! Errors of commands.

use std::io;
use std::path::Path;

use everleaf::{CloseError, Error, ErrorKind, LogError};
use medium::MediumError;
use serde_json::{Map, Value, json};

use crate::interrupt::{self, Interruption};
use crate::output_file::OutputError;
use crate::text;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An error of the store.
    #[error("{}", words(.0))]
    Store(#[from] everleaf::Error),
    /// A damaged pool of which nothing can be saved.
    #[error("{0}")]
    Unsalvageable(everleaf::Error),
    /// A pool that is too damaged to be checked to the end.
    #[error("{}", uncheckable(.0))]
    Uncheckable(everleaf::Error),
    /// An error of the operating system.
    #[error("cannot {action}: {source}; {}", medium::remedy(source))]
    Io {
        /// The action that failed.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A disk has no room for a file.
    #[error("disk full: writing {file} failed, with {} free; free some space, or {elsewhere}", medium::size(*free_bytes))]
    DiskFull {
        /// The file.
        file: String,
        /// The free bytes of the disk for this user.
        free_bytes: u64,
        /// The advice where to write the file instead.
        elsewhere: &'static str,
    },
    /// An output file was not made, because of the file that exists there.
    #[error("{0}")]
    NotReplaced(OutputError),
    /// A child process failed.
    #[error("{error}")]
    Child {
        /// The error of the child process, in words.
        error: String,
        /// The kind of the failure, for scripts.
        kind: String,
    },
    /// Output could not be written.
    #[error("cannot write the output: {0}; send it elsewhere, such as to another file")]
    Output(#[from] io::Error),
    /// An input line is malformed.
    #[error("{input}, line {number}: {what}")]
    Line {
        /// The name of the input.
        input: String,
        /// The number of the line, from 1.
        number: u64,
        /// The fault of the line.
        what: String,
    },
    /// A line of a script failed.
    #[error("{input}, line {number}: {failure}")]
    AtLine {
        /// The name of the script.
        input: String,
        /// The number of the line, from 1.
        number: u64,
        /// Why it failed.
        failure: Box<Failure>,
    },
    /// The arguments contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The command refuses, for another reason.
    #[error("{0}")]
    Refused(String),
    /// A signal asked the command to end.
    #[error("interrupted{}", interrupt::consequence())]
    Interrupted,
    /// A part of the work had been done before the command failed.
    #[error("{failure}; before that, {words}")]
    Halfway {
        /// The work that was done, in words.
        words: String,
        /// The work that was done, as fields for a script.
        done: Map<String, Value>,
        /// Why the rest failed.
        failure: Box<Failure>,
    },
}

/// An error of the store, with the commands that help instead of the functions.
fn words(error: &Error) -> String {
    let at = error
        .path()
        .map_or_else(String::new, |path| format!("{}: ", path.display()));
    match error.kind() {
        ErrorKind::NoSuchPool => {
            format!(
                "{at}no such pool; check the path (`everleaf put` and `everleaf load` make a new one)"
            )
        }
        ErrorKind::TreeExists { name } => {
            format!("{at}tree {name:?} exists already; take another name, or drop that tree first")
        }
        ErrorKind::Corrupt { .. } => {
            format!(
                "{at}the pool is {}; `everleaf check` lists all damage, `everleaf dump --salvage` saves the rest",
                error.what()
            )
        }
        ErrorKind::Locked {
            holder,
            readers: false,
        } => {
            let holder = holder.map_or_else(
                || "another process".to_owned(),
                |process| format!("process {process}"),
            );
            format!(
                "{at}{holder} is writing this pool, and no other process may write it meanwhile; wait (`--wait SECONDS`), or read it \
                 (`everleaf get`, `scan` and others work meanwhile)"
            )
        }
        ErrorKind::NotWritable { source }
            if error
                .path()
                .is_some_and(|path| path.symlink_metadata().is_err()) =>
        {
            let path = error.path().unwrap_or(Path::new("the pool"));
            format!(
                "cannot create {}: {source}; {}",
                path.display(),
                medium::remedy(source)
            )
        }
        ErrorKind::TypeMismatch {
            name,
            found,
            wanted,
        } => {
            let found = text::types_of_error(found);
            let wanted = text::types_of_error(wanted);
            format!(
                "{at}tree {name:?} holds {found}, not {wanted}; give `--key-type` and `--value-type` as the tree has them, or \
                 leave them out; `everleaf adopt` gives a tree other types"
            )
        }
        ErrorKind::TypedTree { name, types } => {
            let types = text::types_of_error(types);
            format!(
                "{at}tree {name:?} holds {types}, and takes keys and values of these types only; give them in the form of \
                 these types, without `--hex`; a type of a program's own is written by that program only; \
                 `everleaf adopt --bytes` makes it a tree of byte strings"
            )
        }
        ErrorKind::TreeMismatch {
            name,
            found,
            wanted,
        } => {
            format!(
                "{at}tree {name:?} uses {found}, not {wanted}; leave `--engine` and `--codec` out, or give those of the tree"
            )
        }
        ErrorKind::ReadOnly => {
            format!(
                "{at}the pool is open only for reading, so nothing was written; leave out `--read-only`"
            )
        }
        ErrorKind::ViewTooOld { limit: Some(limit) } => {
            format!(
                "{at}the snapshot or transaction is too old: the changes made since it was opened take more than {} of memory; begin another one",
                medium::size(*limit as u64)
            )
        }
        ErrorKind::ViewTooOld { limit: None } => {
            format!(
                "{at}the process that writes the pool has overtaken this command again and again; try it again, or free room \
                 for a copy of the pool in its folder"
            )
        }
        ErrorKind::NotBeside { .. } => {
            // The library names its own option.
            let what = error
                .to_string()
                .replace("`MediumChoice::File`", "`--medium file`");
            format!("{what}{}", hint(error))
        }
        _ => format!("{error}{}", hint(error)),
    }
}

/// An error that ends a check.
fn uncheckable(error: &Error) -> String {
    let at = error
        .path()
        .map_or_else(String::new, |path| format!("{}: ", path.display()));
    format!(
        "{at}the pool is {}, so it was not checked to the end; `everleaf dump --salvage` saves all whole entries",
        error.what()
    )
}

const SALVAGE: &str = " (`everleaf dump --salvage` saves all whole entries)";

/// The commands that help. The library's own texts cannot name them.
fn hint(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Locked { .. } | ErrorKind::NotBeside { .. } => {
            " (`--wait SECONDS` waits for it)"
        }
        ErrorKind::NoSuchTree { .. } => " (`everleaf trees` lists those there are)",
        ErrorKind::Medium {
            source: MediumError::Log(LogError::Mark { .. }),
        } => " (`--medium dax` does that, `everleaf dump --salvage` saves all whole entries)",
        ErrorKind::Unopenable { .. } => SALVAGE,
        ErrorKind::Medium {
            source:
                MediumError::Log(
                    LogError::Missing { .. }
                    | LogError::Foreign { .. }
                    | LogError::Damaged { .. }
                    | LogError::PoolTruncated { .. },
                ),
        } => SALVAGE,
        ErrorKind::Version { .. } | ErrorKind::LineForm { .. } => {
            " (`everleaf dump` there, `everleaf restore` here)"
        }
        _ => "",
    }
}

/// The kind of a failure that the system reports.
fn of_system(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "full"
        }
        _ => "io",
    }
}

impl From<Interruption> for Failure {
    fn from(_: Interruption) -> Self {
        Self::Interrupted
    }
}

impl From<CloseError> for Failure {
    fn from(failed: CloseError) -> Self {
        Self::Store(failed.into())
    }
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::Io { path, source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Self::writing(&path, source)
            }
            OutputError::Io {
                action,
                path,
                source,
            } => Self::Io {
                action: format!("{action} {}", path.display()),
                source,
            },
            OutputError::IsInput { .. } => Self::Usage(error.to_string()),
            error => Self::NotReplaced(error),
        }
    }
}

impl Failure {
    /// The exit code for wrong use.
    pub const USAGE: u8 = 2;

    /// A closure for `map_err`.
    pub fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.get_ref() {
            Some(inner) if inner.is::<Interruption>() => Self::Interrupted,
            _ => Self::Io {
                action: action.into(),
                source,
            },
        }
    }

    /// The failure to write `file`.
    pub fn writing(file: &Path, source: io::Error) -> Self {
        let name = file.display().to_string();
        if source.kind() != io::ErrorKind::StorageFull {
            return Self::Io {
                action: format!("write {name}"),
                source,
            };
        }
        let system = rustix::fs::statvfs(medium::file::folder_of(file));
        let free_bytes = system.map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize));
        Self::DiskFull {
            file: name,
            free_bytes,
            elsewhere: "write it elsewhere",
        }
    }

    /// The failure of a salvage to open the pool, which must not advise to salvage it.
    #[must_use]
    pub fn of_salvage(self) -> Self {
        match self {
            Self::Store(error) if error.is_corrupt() => Self::Unsalvageable(error),
            other => other,
        }
    }

    /// The error of the parser of a command line, without the usage below it.
    pub fn of_parser(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        let lines: Vec<&str> = first
            .trim_start_matches("error: ")
            .lines()
            .map(str::trim)
            .collect();
        Self::Usage(lines.join(" "))
    }

    /// The failure of a check to read the pool, which must not advise a check.
    #[must_use]
    pub fn of_check(self) -> Self {
        match self {
            Self::Store(error) if matches!(error.kind(), ErrorKind::Corrupt { .. }) => {
                Self::Uncheckable(error)
            }
            other => other,
        }
    }

    /// The failure, at a line of a script.
    #[must_use]
    pub fn at_line(self, input: &str, number: u64) -> Self {
        Self::AtLine {
            input: input.to_owned(),
            number,
            failure: Box::new(self),
        }
    }

    /// The failure, and the work that had been done before it: in words, and as a JSON object.
    #[must_use]
    pub fn after(self, words: String, done: Value) -> Self {
        let Value::Object(done) = done else {
            return self;
        };
        Self::Halfway {
            words,
            done,
            failure: Box::new(self),
        }
    }

    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        if self.kind() == "usage" {
            Self::USAGE
        } else {
            3
        }
    }

    /// The kind of the failure, for scripts.
    fn kind(&self) -> &str {
        match self {
            Self::Store(error) => match error.kind() {
                ErrorKind::Locked { .. } | ErrorKind::NotBeside { .. } => "locked",
                _ if error.is_full() => "full",
                _ if error.is_absent() => "absent",
                ErrorKind::BadTreeName { .. } => "usage",
                ErrorKind::Io { source, .. }
                | ErrorKind::NotWritable { source }
                | ErrorKind::Medium {
                    source: MediumError::Log(LogError::Io { source, .. }),
                } => of_system(source),
                ErrorKind::Medium {
                    source: MediumError::Map(map),
                } => of_system(&map.source),
                ErrorKind::Medium {
                    source: MediumError::Displaced(_),
                } => "io",
                _ if self.is_damage() => "damaged",
                _ => "store",
            },
            Self::Unsalvageable(_) | Self::Uncheckable(_) => "damaged",
            Self::Io { source, .. } => of_system(source),
            Self::DiskFull { .. } => "full",
            Self::NotReplaced(OutputError::InUse { .. }) => "locked",
            Self::NotReplaced(_) => "io",
            Self::Child { kind, .. } => kind,
            Self::Output(_) => "output",
            Self::Line { .. } => "input",
            Self::Usage(_) => "usage",
            Self::Refused(_) => "refused",
            Self::Interrupted => "interrupted",
            Self::Halfway { failure, .. } | Self::AtLine { failure, .. } => failure.kind(),
        }
    }

    /// The failure as an object.
    pub fn json(&self) -> Value {
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
    pub fn is_damage(&self) -> bool {
        let Self::Store(error) = self else {
            return false;
        };
        match error.medium() {
            Some(MediumError::Log(log)) => !matches!(
                log,
                LogError::Io { .. } | LogError::Overrun | LogError::Unsettled
            ),
            _ => error.is_corrupt(),
        }
    }

    /// Whether the reader of the output closed it, as `head` does.
    pub fn is_closed_output(&self) -> bool {
        match self {
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::AtLine { failure, .. } => failure.is_closed_output(),
            _ => false,
        }
    }
}

/// The answer of a command that finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Yes, or done: exit code 0.
    Yes,
    /// No, or violations were found: exit code 1.
    No,
    /// A child process has answered, with this exit code.
    Child(u8),
}

impl Answer {
    /// Yes or no.
    pub fn from_bool(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

/// The result of a step of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// The result of a command.
pub type Outcome = Result<Answer>;

#[cfg(test)]
mod tests;
