//! What measurements say while they run, and at their end.

use everleaf::Store;
use serde_json::Value;

/// Where a measurement says what it is at.
#[derive(Clone, Copy)]
pub struct Notes<'n> {
    /// Takes a line of text.
    pub line: &'n dyn Fn(&str),
    /// Takes a store on which something is measured.
    pub store: &'n dyn Fn(&Store),
}

impl Notes<'_> {
    pub(crate) fn note(self, text: impl AsRef<str>) {
        (self.line)(text.as_ref());
    }

    pub(crate) fn note_medium(self, store: &Store) {
        (self.store)(store);
    }
}

/// What was measured.
pub struct Said {
    /// For a script.
    pub json: Value,
    /// For a reader.
    pub text: String,
}
