//! The sweep: recovers all nodes after a crash, so that the set of failed epochs can be emptied.
//!
//! It goes through the runs, object by object, and does not follow the tree. It recognises a border
//! node by its run. A free one is recovered as well, which does no harm. So the sweep ends whatever
//! is damaged. A damaged node stays as it is, for `check` to name.
//!
//! Each step locks all shards for a thousand objects, so no operation changes these meanwhile.

use std::sync::atomic::Ordering;

use medium::Medium;
use pool::Guard;

use super::allocator::{Objects, border_class};
use super::core::Core;
use super::layout::Border;
use super::permutation::Permutation;
use crate::Result;

/// Objects that are visited while the shards are locked.
const OBJECTS_TOGETHER: u32 = 1024;

/// How far a sweep has come: the objects that are left, run by run, as the first step found them.
/// Objects that were made since need no recovery.
pub(super) type Sweep = Option<Vec<Objects>>;

impl<M: Medium> Core<M> {
    /// Recovers all objects, makes that durable, and empties the set of failed epochs. Usable
    /// meanwhile.
    pub(super) fn sweep(&self) -> Result<()> {
        let mut sweep = Sweep::default();
        while self.sweep_on(&mut sweep)? {}
        Ok(())
    }

    /// Goes on with a sweep, for some objects; returns whether there is more to do. After an error
    /// it may be called again.
    pub(super) fn sweep_on(&self, sweep: &mut Sweep) -> Result<bool> {
        if !self.epochs.any_failed() || self.epochs.are_over() {
            return Ok(false);
        }
        if self.sweep_objects(sweep)? {
            return Ok(true);
        }
        if self.epochs.are_over() {
            return Ok(false);
        }
        self.advance()?;
        self.forget_failed()?;
        Ok(false)
    }

    /// Recovers some objects; returns whether there were any.
    fn sweep_objects(&self, sweep: &mut Sweep) -> Result<bool> {
        let _shards = self.epochs.stop();
        // Another thread may have swept meanwhile, and given runs back that `sweep` holds.
        if self.epochs.are_over() || !self.epochs.any_failed() {
            return Ok(false);
        }
        let guard = self.pool.peek();
        let space = self.space(&guard);
        let objects = match sweep {
            Some(objects) => objects,
            none => {
                space.recover_chain()?;
                none.insert(space.objects()?)
            }
        };
        let running = self.epochs.running();
        for count in 0..OBJECTS_TOGETHER {
            let (object, class) = loop {
                let Some(run) = objects.last_mut() else {
                    return Ok(count > 0);
                };
                match run.next() {
                    Some(object) => break (object, run.class),
                    None => drop(objects.pop()),
                }
            };
            match self.sweep_object(&guard, running, object, class) {
                Err(error) if !error.is_corrupt() => return Err(error),
                _ => {}
            }
        }
        Ok(true)
    }

    fn sweep_object(
        &self,
        guard: &Guard<'_, M>,
        running: u64,
        object: u64,
        class: usize,
    ) -> Result<()> {
        self.space(guard).sweep_link(object, running)?;
        if class == border_class(self.are_words) {
            self.recover_node(guard, running, object)?;
            let permutation = Permutation(guard.node::<Border>(object)?.permutation.load(guard));
            self.swept_keys
                .fetch_add(permutation.count(self.width) as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
