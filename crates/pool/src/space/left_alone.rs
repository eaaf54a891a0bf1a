//! Slabs whose class word is damaged although trees reach into them. Their slot size is not known,
//! so they are left as they are: their content is read as before, none of their space is reused,
//! and the rest of the pool is not affected.

use medium::Medium;
use medium::sync::Ordering;

use super::{
    MediumGuard, SPAN_HEADER_BYTES, SPAN_SLABS_MAX, Slab, Space, UNMARKED, slab_of, slab_start,
};
use crate::Result;
use crate::header::unchecked;
use crate::limits::SLAB_BYTES;

/// The description of such a slab.
pub(super) const CLASS_DAMAGED: &str =
    "the class word of a slab, which tells how it is cut up, fails its check";

/// State of a slab that is left alone. `used` says how many slabs from here on may be one
/// allocation.
pub(super) const LEFT_ALONE: u64 = 6;

impl Space {
    /// A tree reaches the old allocation at `offset`. Returns whether it lies in a slab that is
    /// left alone.
    pub(super) fn leave_alone<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        offset: u64,
    ) -> Result<bool> {
        let slab = slab_of(offset);
        let known = self.slabs.get(slab);
        match known.state.load(Ordering::Relaxed) {
            LEFT_ALONE => {}
            UNMARKED if known.class.load(Ordering::Relaxed) == 0 => {
                let is_hole = guard.medium().is_hole(slab_start(slab));
                if is_hole || unchecked(guard.words(slab_start(slab), 1)?[0].load(guard)).is_some()
                {
                    return Ok(false);
                }
                known.used.store(1, Ordering::Relaxed);
                known.state.store(LEFT_ALONE, Ordering::Relaxed);
                self.left_alone.lock().insert(slab);
            }
            _ => return Ok(false),
        }
        if offset % SLAB_BYTES == SPAN_HEADER_BYTES {
            known.used.store(SPAN_SLABS_MAX, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Whether a slab is left alone once all trees have marked: its class word is damaged, or no
    /// tree reaches it and it may belong to a large record that begins in an earlier slab. `rest`
    /// counts how many slabs may.
    pub(super) fn is_left_alone(known: &Slab, rest: &mut u64) -> bool {
        let used = known.used.load(Ordering::Relaxed);
        if known.state.load(Ordering::Relaxed) == LEFT_ALONE {
            *rest = used - 1;
            return true;
        }
        *rest = if used == 0 { rest.saturating_sub(1) } else { 0 };
        if *rest > 0 {
            known.class.store(0, Ordering::Relaxed);
            known.used.store(1, Ordering::Relaxed);
            known.state.store(LEFT_ALONE, Ordering::Relaxed);
        }
        *rest > 0
    }

    /// The offsets of the class words that are known to be damaged.
    pub(crate) fn classes_damaged(&self) -> Vec<u64> {
        self.left_alone
            .lock()
            .iter()
            .map(|slab| slab_start(*slab))
            .collect()
    }
}
