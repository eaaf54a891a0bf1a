//! Why there is no machine.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Why the power could not be cut.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{0}")]
    Usage(String),
    #[error("{program} is not installed; install it: apt-get install {package}")]
    Missing {
        program: String,
        package: &'static str,
    },
    #[error("`{command}` {what}")]
    Command { command: String, what: String },
    #[error("there is no package {package} ({why}); run `apt-get update`, or put its .deb into {}", folder.display())]
    NoPackage {
        package: String,
        why: String,
        folder: PathBuf,
    },
    #[error(
        "the kernel of {package} has no module {module}; choose another one with --kernel, such as linux-image-amd64"
    )]
    NoModule { package: String, module: String },
    #[error("the guest {what} ({}):\n{end}", console.display())]
    Guest {
        what: String,
        console: PathBuf,
        end: String,
    },
}

impl Failure {
    /// A closure for `map_err`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

/// Runs a command that must succeed; `package` has it.
pub(super) fn output(command: &mut Command, package: &'static str) -> Result<Output, Failure> {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .collect();
    let words = words
        .iter()
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::Missing {
            program: command.get_program().to_string_lossy().into_owned(),
            package,
        },
        _ => Failure::Command {
            command: words.clone(),
            what: format!("does not run: {error}"),
        },
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::Command {
        command: words,
        what: format!("ended with {}: {errors}", output.status),
    })
}
