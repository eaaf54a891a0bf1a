//! Reading what is whole in a tree that is too damaged to be opened.

use std::collections::VecDeque;

use medium::Medium;
use pool::Guard;

use crate::index::{Codec, EntryWords, Violation};
use crate::{Error, Result};

/// A key and a value.
type Entry = (Vec<u8>, Vec<u8>);

/// How many entries are read ahead to decide whether one is out of order.
const AHEAD: usize = 4;

/// Calls `visit` with entries in ascending order of keys until it returns `false`, and collects what is left out.
pub struct Salvage<'v> {
    visit: &'v mut dyn FnMut(&[u8], &[u8]) -> bool,
    left_out: Vec<Violation>,
    last: Option<Vec<u8>>,
    /// Entries that are not decided yet, each with the offset of its leaf.
    ahead: VecDeque<(u64, Entry)>,
    is_over: bool,
}

impl<'v> Salvage<'v> {
    /// Nothing was read yet.
    pub fn new(visit: &'v mut dyn FnMut(&[u8], &[u8]) -> bool) -> Self {
        Self { visit, left_out: Vec::new(), last: None, ahead: VecDeque::new(), is_over: false }
    }

    /// Notes that something is left out.
    pub fn leave_out(&mut self, offset: u64, what: String) {
        self.left_out.push(Violation { offset, what });
    }

    /// The next entry of the leaf at `offset`, or why it cannot be read; `false` if no more are wanted.
    pub fn entry(&mut self, offset: u64, read: Result<Entry>) -> bool {
        match read {
            Ok(entry) => self.ahead.push_back((offset, entry)),
            Err(error) => self.leave_out(offset, format!("an entry: {}", what_of(&error))),
        }
        if self.ahead.len() > AHEAD {
            self.decide();
        }
        !self.is_over
    }

    /// Decides the oldest entry. It is out of order if its key is not above the last one, or if it is above most of the keys behind it
    /// that are above the last one.
    fn decide(&mut self) {
        let Some((offset, (key, value))) = self.ahead.pop_front() else { return };
        let is_above = |key: &Vec<u8>| self.last.as_ref().is_none_or(|last| key > last);
        let in_its_way = self.ahead.iter().filter(|(_, (next, _))| is_above(next) && *next <= key).count();
        if !is_above(&key) || 2 * in_its_way > self.ahead.len() {
            self.leave_out(offset, "an entry out of order".to_owned());
        } else {
            self.is_over = !(self.visit)(&key, &value);
            self.last = Some(key);
        }
    }

    /// Decides the remaining entries. Returns what was left out.
    pub fn finish(mut self) -> Vec<Violation> {
        while !self.ahead.is_empty() && !self.is_over {
            self.decide();
        }
        self.left_out
    }
}

/// The damage that an error names, without its offset.
pub fn what_of(error: &Error) -> String {
    match &error {
        Error::Corrupt { what, .. } => what.clone(),
        other => other.to_string(),
    }
}

/// An entry whose record, if it has one, passes its check.
pub fn read_whole<M: Medium, C: Codec>(guard: &Guard<'_, M>, words: EntryWords) -> Result<Entry> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    if !C::is_sound(guard, words)? {
        return Err(Error::corrupt(0, "its record fails its check"));
    }
    C::copy_key(guard, words, &mut key)?;
    C::copy_value(guard, words, &mut value)?;
    Ok((key, value))
}
