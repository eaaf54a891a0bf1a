//! How a command answers: in words or in JSON, with notes or without.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use everleaf::{Store, Survives};
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Answer, Failure, Outcome};

/// The output of a command.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// JSON on standard output, one object a line.
    pub json: bool,
    /// Nothing on standard error but errors.
    pub quiet: bool,
}

impl Context {
    /// Standard output, buffered.
    pub fn output() -> BufWriter<io::StdoutLock<'static>> {
        BufWriter::with_capacity(64 << 10, io::stdout().lock())
    }

    /// Prints an answer, in JSON or in words.
    pub fn say(self, json: &impl Serialize, words: impl AsRef<str>) -> Result<(), Failure> {
        let mut output = Self::output();
        if self.json {
            write_json(&mut output, json)?;
        } else if !words.as_ref().is_empty() {
            writeln!(output, "{}", words.as_ref())?;
        }
        Ok(output.flush()?)
    }

    /// Prints an answer that is only yes or no. If it is no, prints the reason `no` on standard
    /// error.
    pub fn answer(self, json: &impl Serialize, yes: bool, no: &str) -> Outcome {
        self.say(json, "")?;
        if !yes && !self.json {
            self.note(no);
        }
        Ok(Answer::from_bool(yes))
    }

    /// Prints a note on standard error if the store would not survive a loss of power, for example
    /// on emulated persistent memory or on a file system in memory.
    pub fn note_medium(self, store: &Store) {
        if store.survives() == Survives::ProcessCrash {
            let medium = store
                .stat()
                .map_or_else(|_| "this medium".to_owned(), |stat| stat.medium);
            let kind = medium
                .split_once(':')
                .map_or(medium.as_str(), |(kind, _)| kind);
            self.note_volatile(
                store.path(),
                kind.split(['(', ',']).next().unwrap_or(kind).trim_end(),
            );
        }
    }

    /// Prints a note on standard error if the file would not survive a loss of power even when it
    /// is synced.
    pub fn note_file(self, path: &Path) {
        // A file that cannot be opened is reported elsewhere.
        let is_volatile = |file: File| medium::file::survives(&file) == Survives::ProcessCrash;
        if File::open(path).is_ok_and(is_volatile) {
            self.note_volatile(path, "file");
        }
    }

    fn note_volatile(self, path: &Path, medium: &str) {
        self.note(format!(
            "note: {} is volatile, on {medium}: it survives the end of a process, not loss of power",
            path.display()
        ));
    }

    /// Prints a note on standard error, unless the command is quiet.
    pub fn note(self, words: impl AsRef<str>) {
        if !self.quiet {
            // If the note cannot be written, the command goes on without it.
            let _ = writeln!(io::stderr(), "{}", words.as_ref());
        }
    }
}

/// One object on a line of its own. A field without a value is left out.
pub fn write_json(output: &mut impl Write, object: &impl Serialize) -> Result<(), Failure> {
    let object = serde_json::to_value(object)
        .map(without_null)
        .map_err(io::Error::from)?;
    Ok(writeln!(output, "{object}")?)
}

fn without_null(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                fields
                    .map(|(name, value)| (name, without_null(value)))
                    .collect(),
            )
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_null).collect()),
        other => other,
    }
}

/// The failures that a medium survives, in a word.
pub fn survives_name(survives: Survives) -> &'static str {
    match survives {
        Survives::Nothing => "nothing",
        Survives::ProcessCrash => "process-crash",
        Survives::PowerLoss => "power-loss",
    }
}
