//! Why a comparison ended early.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// A text that names the thing and the way out.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A file or folder that the system refuses; for `map_err`.
    pub(crate) fn path<'p>(action: &'p str, path: &'p Path) -> impl FnOnce(io::Error) -> Self + 'p {
        move |error| {
            Self(format!(
                "cannot {action} {}: {error}; check permissions and room, or choose another place",
                path.display()
            ))
        }
    }

    /// An error of a store; for `map_err`.
    pub(crate) fn store(
        store: &'static str,
        action: &'static str,
    ) -> impl FnOnce(Box<dyn Error + Send + Sync>) -> Self {
        move |error| {
            Self(format!(
                "{store}, {action}: {error}; leave it out with --store, or --workload, to measure the rest"
            ))
        }
    }

    /// A store that does not return what was stored.
    pub(crate) fn wrong(store: &'static str, action: &'static str, what: &str) -> Self {
        Self(format!(
            "{store}, {action}: WRONG ANSWER: {what}; this is a bug of the store or of its adapter in bench/src/peers"
        ))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Failure {}
