//! What can be read of a tree that is too damaged to be opened.

use medium::Medium;
use pool::{Error, Guard, Pool, Result, TreeRoot};

use super::layout::{Leaf, Slots};
use super::{ROOT_HEAD, RnTree};
use crate::index::{Codec, Violation};

impl<M: Medium, C: Codec, const N: usize> RnTree<M, C, N> {
    /// Calls `visit` with the entries of all leaves that pass their checks, in ascending order of keys, until it returns
    /// `false`. Returns what was left out. Writes nothing, and needs no tree that is open. O(n).
    ///
    /// A leaf that fails its check is left out, and the leaf that it names is gone on with; where a leaf names none that
    /// can be read, all behind it is left out.
    ///
    /// # Errors
    /// [`Error::TreeMismatch`], as [`RnTree::open`].
    pub fn salvage(
        pool: &Pool<M>,
        root: &TreeRoot,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<Violation>> {
        Self::demand(root)?;
        let guard = pool.pin();
        let leaves_max = guard.medium().extent().length() / size_of::<Leaf<N>>() as u64;
        let (mut offset, mut seen) = (root.words[ROOT_HEAD], 0);
        let (mut left_out, mut last) = (Vec::new(), None);
        let mut leave_out = |offset, what: String| left_out.push(Violation { offset, what });
        while offset != 0 {
            seen += 1;
            let (leaf, slots) = match Self::read_leaf(&guard, offset) {
                Ok(read) if seen <= leaves_max => read,
                Ok(_) => {
                    leave_out(offset, "the chain of leaves runs in a circle".to_owned());
                    break;
                }
                Err(error) => {
                    leave_out(offset, format!("this leaf and all behind it: {}", what_of(&error)));
                    break;
                }
            };
            let count = slots.count();
            let entries = (0..count).map(|position| leaf.entry(&guard, &slots, position));
            if let Err(error) = slots.verify(leaf.sum(&guard, &slots, 0), offset) {
                leave_out(offset, format!("{count} entries: {}", what_of(&error)));
            } else {
                for words in entries {
                    match Self::read_entry(&guard, words) {
                        Ok((key, _)) if last.as_ref().is_some_and(|last| key <= *last) => {
                            leave_out(offset, "an entry out of order".to_owned());
                        }
                        Ok((key, value)) => {
                            if !visit(&key, &value) {
                                return Ok(left_out);
                            }
                            last = Some(key);
                        }
                        Err(error) => leave_out(offset, format!("an entry: {}", what_of(&error))),
                    }
                }
            }
            offset = slots.next();
        }
        Ok(left_out)
    }

    fn read_leaf<'g>(guard: &'g Guard<'_, M>, offset: u64) -> Result<(&'g Leaf<N>, Slots)> {
        let leaf = guard.node::<Leaf<N>>(offset)?;
        let slots = Slots(leaf.slots.load(guard).map_err(Error::torn(offset))?);
        slots.validate(N, offset)?;
        Ok((leaf, slots))
    }

    fn read_entry(guard: &Guard<'_, M>, words: [u64; 2]) -> Result<(Vec<u8>, Vec<u8>)> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        if !C::is_sound(guard, words)? {
            return Err(Error::corrupt(0, "its record fails its check"));
        }
        C::copy_key(guard, words, &mut key)?;
        C::copy_value(guard, words, &mut value)?;
        Ok((key, value))
    }
}

fn what_of(error: &Error) -> String {
    match error {
        Error::Corrupt { what, .. } => what.clone(),
        other => other.to_string(),
    }
}
