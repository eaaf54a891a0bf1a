//! What can be read of a tree that is too damaged to be opened.

use medium::Medium;
use pool::{Error, Guard, Result};

use super::{Codec, EntryWords, Violation};

/// A key and a value.
type Entry = (Vec<u8>, Vec<u8>);

/// Calls `visit` with entries in ascending order of keys until it returns `false`, and collects what is left out.
pub(crate) struct Salvage<'v> {
    visit: &'v mut dyn FnMut(&[u8], &[u8]) -> bool,
    pub(crate) left_out: Vec<Violation>,
    last: Option<Vec<u8>>,
}

impl<'v> Salvage<'v> {
    pub(crate) fn new(visit: &'v mut dyn FnMut(&[u8], &[u8]) -> bool) -> Self {
        Self { visit, left_out: Vec::new(), last: None }
    }

    pub(crate) fn leave_out(&mut self, offset: u64, what: String) {
        self.left_out.push(Violation { offset, what });
    }

    /// The next entry of the leaf at `offset`, or why it cannot be read; `false` if no more are wanted.
    pub(crate) fn entry(&mut self, offset: u64, read: Result<Entry>) -> bool {
        match read {
            Ok((key, _)) if self.last.as_ref().is_some_and(|last| key <= *last) => {
                self.leave_out(offset, "an entry out of order".to_owned());
            }
            Ok((key, value)) => {
                if !(self.visit)(&key, &value) {
                    return false;
                }
                self.last = Some(key);
            }
            Err(error) => self.leave_out(offset, format!("an entry: {}", what_of(&error))),
        }
        true
    }
}

/// What an error says is damaged, without where that is.
pub(crate) fn what_of(error: &Error) -> String {
    match error.root() {
        Error::Corrupt { what, .. } => what.clone(),
        other => other.to_string(),
    }
}

/// An entry whose record, if it has one, passes its check.
pub(crate) fn read_whole<M: Medium, C: Codec>(guard: &Guard<'_, M>, words: EntryWords) -> Result<Entry> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    if !C::is_sound(guard, words)? {
        return Err(Error::corrupt(0, "its record fails its check"));
    }
    C::copy_key(guard, words, &mut key)?;
    C::copy_value(guard, words, &mut value)?;
    Ok((key, value))
}
