//! Recovery: the volatile half of the tree, rebuilt from the leaves.
//!
//! 1. One thread follows the chain of leaves, from slot line to slot line, and refuses lines that a
//!    crash cannot leave.
//! 2. All cores verify the leaves' checks and rebuild their volatile records: `live` and `claimed`
//!    from the slots, fingerprints from the entries, a separator from the first key. After a crash
//!    they mark leaf and records as in use.
//! 3. Torn twin lines are mended, and empty leaves taken out of the chain, with one line store for
//!    those that follow one another.
//! 4. The inner nodes are built bottom-up.
//!
//! Only step 3 writes to the pool, after all leaves have passed their checks. Each of its writes
//! leaves a tree with the same content, so a crash may cut recovery off anywhere.

use std::time::Instant;

use medium::sync::Ordering;
use medium::{Lsn, Medium};
use pool::Guard;

use super::RnTree;
use super::layout::{EntrySum, Leaf, LeafRecord, Slots};
use crate::index::{Codec, EntryWords};
use crate::kit::{chain::Separator, map_on_threads};
use crate::{Error, Result};

/// A leaf of the chain.
struct ChainLink {
    offset: u64,
    slots: Slots,
}

/// The leaves from the head on, and the parts that recovery has to mend.
#[derive(Default)]
struct RecoveredChain {
    /// All leaves except empty ones, and always the head.
    links: Vec<ChainLink>,
    /// The links of which a crash tore the other copy of the slot line.
    torn: Vec<usize>,
    /// Empty leaves: the link before, and the offset.
    empty: Vec<(usize, u64)>,
}

/// Leaves that one thread rebuilds at a time. The chunks are small, so that all threads end at
/// about the same time.
const CHUNK: usize = 4096;

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Rebuilds the volatile half of a tree whose first leaf is at `head`.
    pub(super) fn recover(&mut self, head: u64, threads: usize) -> Result<()> {
        let start = Instant::now();
        let chain = self.follow_chain(&self.pool.pin(), head)?;
        let links = &chain.links[..];
        let first = self.leaves.allocate_run(links.len() as u32)?;
        self.head = first;
        let mut separators = vec![(Separator::default(), 0); links.len()];
        map_on_threads(
            threads,
            separators.chunks_mut(CHUNK).enumerate(),
            |(chunk, part)| self.rebuild_records(links, chunk * CHUNK, first, part),
        )?;
        self.mend_chain(&chain, first)?;
        // Within a chunk the thread that rebuilds a leaf sets the high key of the leaf before it.
        for start in (CHUNK..links.len()).step_by(CHUNK) {
            self.set_high(first + start as u32 - 1, separators[start].0);
        }
        self.inner.build(&separators)?;
        self.recovery_ns = start.elapsed().as_nanos() as u64;
        Ok(())
    }

    /// Collects the chain from the head on. Writes nothing.
    fn follow_chain(&self, guard: &Guard<'_, M>, head: u64) -> Result<RecoveredChain> {
        let mut chain = RecoveredChain::default();
        // If the chain has more leaves than the pool has room for, it is a circle.
        let leaves_max = guard.medium().extent().length() / size_of::<Leaf>() as u64;
        let mut offset = head;
        let mut seen = 0;
        while offset != 0 {
            seen += 1;
            if seen > leaves_max {
                return Err(Error::corrupt(
                    offset,
                    "the chain of leaves runs in a circle",
                ));
            }
            let found = guard
                .node::<Leaf>(offset)?
                .slots
                .inspect(guard)
                .map_err(Error::torn(offset))?;
            let slots = Slots(found.value);
            slots.validate(self.capacity, offset)?;
            if !found.is_whole && !self.recovered_from_crash {
                return Err(Error::corrupt(
                    offset,
                    "a torn line, and there was no crash",
                ));
            }
            match chain.links.len().checked_sub(1) {
                Some(before) if slots.count() == 0 => {
                    slots.verify(EntrySum::default(), offset)?;
                    chain.empty.push((before, offset));
                }
                _ => {
                    if !found.is_whole {
                        chain.torn.push(chain.links.len());
                    }
                    chain.links.push(ChainLink { offset, slots });
                }
            }
            offset = slots.next();
        }
        Ok(chain)
    }

    /// Mends torn lines, and takes empty leaves out of the chain.
    fn mend_chain(&self, chain: &RecoveredChain, first: u32) -> Result<()> {
        let guard = self.pool.pin();
        for position in &chain.torn {
            let offset = chain.links[*position].offset;
            guard
                .node::<Leaf>(offset)?
                .slots
                .recover(&guard)
                .map_err(Error::torn(offset))?;
        }
        for empty in chain.empty.chunk_by(|one, other| one.0 == other.0) {
            let position = empty[0].0;
            let ChainLink { offset, slots } = &chain.links[position];
            let next = chain.links.get(position + 1).map_or(0, |next| next.offset);
            let new = slots
                .with(slots.count(), next)
                .sealed(slots, EntrySum::default());
            // PERSIST: nothing must precede; if this is lost, the empty leaves are still in the
            // chain.
            let stored = guard
                .node::<Leaf>(*offset)?
                .slots
                .publish(&guard, &slots.0, &new.0)?;
            guard.fence();
            self.leaves
                .get(first + position as u32)
                .change(&Slots(stored), || {});
            if !self.recovered_from_crash {
                empty
                    .iter()
                    .for_each(|(_, offset)| guard.retire_node(*offset));
            }
        }
        Ok(())
    }

    /// Rebuilds the records of the leaves from `start` on, as many as there are `separators`.
    fn rebuild_records(
        &self,
        chain: &[ChainLink],
        start: usize,
        first: u32,
        separators: &mut [(Separator, u32)],
    ) -> Result<()> {
        let guard = self.pool.pin();
        let mut last = match start.checked_sub(1) {
            Some(before) => self.last_entry(&guard, &chain[before])?,
            None => None,
        };
        for (index, separator) in separators.iter_mut().enumerate() {
            let position = start + index;
            let link = &chain[position];
            let leaf = guard.node::<Leaf>(link.offset)?;
            if let Some(ahead) = chain.get(position + 2)
                && let Ok(leaf) = guard.node::<Leaf>(ahead.offset)
            {
                medium::kernels::prefetch_lines(leaf);
            }
            let number = first + position as u32;
            *separator = (
                self.rebuild_record(&guard, leaf, link, number, &mut last)?,
                number,
            );
            if index > 0 {
                self.set_high(number - 1, separator.0);
            }
            let next = if position + 1 < chain.len() {
                number + 1
            } else {
                0
            };
            self.leaves.get(number).set_next(next);
        }
        Ok(())
    }

    /// Gives a leaf the separator before the next one as its high key.
    fn set_high(&self, number: u32, separator: Separator) {
        let leaf_record = self.leaves.get(number);
        leaf_record.high.store(separator.0, Ordering::Release);
    }

    fn last_entry(&self, guard: &Guard<'_, M>, link: &ChainLink) -> Result<Option<EntryWords>> {
        let leaf = guard.node::<Leaf>(link.offset)?;
        let last = link.slots.count().checked_sub(1);
        Ok(last.map(|position| leaf.entry(guard, &link.slots, position)))
    }

    /// Rebuilds one record; `last` is the entry before the leaf, and becomes its last one. Returns
    /// the separator before the leaf.
    fn rebuild_record(
        &self,
        guard: &Guard<'_, M>,
        leaf: &Leaf,
        link: &ChainLink,
        number: u32,
        last: &mut Option<EntryWords>,
    ) -> Result<Separator> {
        let leaf_record: &LeafRecord<M> = self.leaves.get(number);
        link.slots
            .verify(leaf.sum(guard, &link.slots, 0), link.offset)?;
        if self.recovered_from_crash {
            guard.mark_node(link.offset)?;
        }
        self.place(number, link.offset)?;
        leaf_record.reset(link.offset, &link.slots, 0, 0, Lsn::DURABLE);
        let mut separator = Separator::default();
        for position in 0..link.slots.count() {
            let words = leaf.entry(guard, &link.slots, position);
            if last.is_some_and(|last| {
                if C::TIES {
                    words[0] < last[0]
                } else {
                    words[0] <= last[0]
                }
            }) {
                return Err(Error::corrupt(link.offset, "entries out of order"));
            }
            if position == 0 {
                if let Some(last) = *last {
                    separator = self.separator_between(guard, last, words)?;
                } else if number != self.head {
                    separator = self.separator_from(guard, words)?;
                }
            }
            leaf_record.set_fingerprint(link.slots.entry(position), C::hash_of(words) as u8);
            if self.recovered_from_crash {
                C::mark(&self.pool, words)?;
            }
            *last = Some(words);
        }
        Ok(separator)
    }
}
