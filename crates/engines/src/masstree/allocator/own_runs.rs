//! Runs of a bulk load, which only that load allocates from.
//!
//! They form a chain of their own. If the load fails or a crash comes first, nothing leads to them;
//! they enter the chain of the tree within the epoch in which the load joins it.

use medium::Medium;

use super::{CLASSES, RUN_BYTES, SIZES, TreeSpace, Work, is_shared, run_of};
use crate::Result;
use crate::masstree::layout::{Anchor, checked};

/// Takes the next object of a class, if there is one.
fn carve(fresh: &mut [u64; CLASSES], class: usize) -> Option<u64> {
    let object = fresh[class];
    if object == 0 {
        return None;
    }
    let size = u64::from(SIZES[class]);
    let is_last = !is_shared(class) || object + 2 * size > run_of(object) + RUN_BYTES;
    fresh[class] = if is_last { 0 } else { object + size };
    Some(object)
}

impl<M: Medium> TreeSpace<'_, M> {
    /// Space for an object of a class, for the load that holds the shard.
    #[inline(never)]
    pub(super) fn allocate_own(&self, work: &mut Work<'_>, class: usize) -> Result<u64> {
        let own = work.shard.own.loading.get_or_insert_default();
        if let Some(object) = carve(&mut own.fresh, class) {
            return Ok(object);
        }
        let before = own.all.last().copied().unwrap_or(0);
        let first = self.new_run(work, class, before)?;
        let own = work.shard.own.loading.get_or_insert_default();
        own.all.push(run_of(first));
        own.fresh[class] = first;
        Ok(carve(&mut own.fresh, class).unwrap_or(first))
    }

    /// Adds the runs of the load that holds the shard to the chain. Returns the objects that were
    /// not carved out of them.
    pub(in crate::masstree) fn join_runs(
        &self,
        work: &mut Work<'_>,
    ) -> Result<impl Iterator<Item = u64> + use<M>> {
        let mut own = work.shard.own.loading.take().unwrap_or_default();
        if let Some(first) = own.all.first()
            && let Some(last) = own.all.last()
        {
            let _serial = self.runs.lock();
            let runs = &self.guard.node::<Anchor>(self.anchor)?.runs;
            self.guard.words(*first, 2)?[1].store(self.guard, checked(runs.value.load(self.guard)));
            self.epochs.list(&mut work.shard, *first, 64);
            self.set_last_run(work, *last)?;
        }
        Ok((0..CLASSES)
            .flat_map(move |class| std::iter::from_fn(move || carve(&mut own.fresh, class))))
    }
}
