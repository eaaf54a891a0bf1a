//! Output of measurements: notes while they run, and the result.

use everleaf::Store;
use serde_json::Value;

/// Receives the notes of a measurement.
#[derive(Clone, Copy)]
pub struct NoteReceiver<'n> {
    /// Takes a line of text.
    pub line: &'n dyn Fn(&str),
    /// Takes a store on which something is measured.
    pub store: &'n dyn Fn(&Store),
}

impl NoteReceiver<'_> {
    pub(crate) fn note(self, text: impl AsRef<str>) {
        (self.line)(text.as_ref());
    }

    pub(crate) fn note_medium(self, store: &Store) {
        (self.store)(store);
    }
}

/// The result of a measurement.
pub struct Said {
    /// For a script.
    pub json: Value,
    /// For a reader.
    pub text: String,
}
