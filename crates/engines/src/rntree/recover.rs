//! Recovery: the volatile half of the tree, rebuilt from the leaves.
//!
//! 1. One thread follows the chain of leaves, from slot line to slot line. It mends torn twin lines, refuses lines that
//!    no crash leaves, and takes empty leaves out of the chain with one line store each.
//! 2. All cores rebuild the leaves' volatile records: `live` and `claimed` from the slots, fingerprints from the
//!    entries, a separator from the first key. After a crash they mark leaf and records as in use.
//! 3. The inner nodes are built bottom-up.
//!
//! Nothing but step 1 writes to the pool, and each of its writes leaves a tree with the same content, so recovery may
//! itself be cut off anywhere.

use std::time::Instant;

use medium::sync::{Mutex, Ordering};
use medium::{Lsn, Medium};
use pool::{Error, Guard, Result};

use super::RnTree;
use super::layout::{Leaf, LeafRecord, Slots};
use crate::index::{Codec, EntryWords};
use crate::inner::Separator;

/// A leaf as the chain has it.
struct Link {
    offset: u64,
    slots: Slots,
}

/// Leaves that one thread rebuilds at a time, so that threads end together.
const CHUNK: usize = 4096;

impl<M: Medium, C: Codec, const N: usize> RnTree<M, C, N> {
    /// Rebuilds the volatile half of a tree whose first leaf is at `head`.
    pub(super) fn recover(&mut self, head: u64, threads: usize) -> Result<()> {
        let start = Instant::now();
        let chain = {
            let guard = self.pool.pin();
            self.follow_chain(&guard, head)?
        };
        let first = self.leaves.allocate_run(chain.len() as u32)?;
        self.head = first;
        let mut separators = vec![(Separator::default(), 0); chain.len()];
        if threads <= 1 || chain.len() <= CHUNK {
            let mut jobs: Vec<_> = separators.chunks_mut(CHUNK).enumerate().collect();
            while let Some((chunk, part)) = jobs.pop() {
                self.rebuild_records(&chain, chunk * CHUNK, first, part)?;
            }
        } else {
            self.rebuild_in_parallel(&chain, first, &mut separators, threads)?;
        }
        // Within a chunk whoever rebuilds a leaf gives the one before its high key.
        for start in (CHUNK..chain.len()).step_by(CHUNK) {
            self.set_high(first + start as u32 - 1, separators[start].0);
        }
        self.inner.build(&separators)?;
        self.recovery_ns = start.elapsed().as_nanos() as u64;
        Ok(())
    }

    fn rebuild_in_parallel(
        &self,
        chain: &[Link],
        first: u32,
        separators: &mut [(Separator, u32)],
        threads: usize,
    ) -> Result<()> {
        let jobs = Mutex::new(separators.chunks_mut(CHUNK).enumerate());
        let work = || -> Result<()> {
            loop {
                let job = jobs.lock().next();
                let Some((chunk, part)) = job else { return Ok(()) };
                self.rebuild_records(chain, chunk * CHUNK, first, part)?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mine = work();
            let theirs = workers.into_iter().map(|worker| match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            theirs.fold(mine, Result::and)
        })
    }

    /// Collects the chain from the head on, without empty leaves but the head.
    fn follow_chain(&self, guard: &Guard<'_, M>, head: u64) -> Result<Vec<Link>> {
        let mut chain: Vec<Link> = Vec::new();
        // More leaves than fit in the pool are a circle.
        let leaves_max = guard.medium().extent().length() / size_of::<Leaf<N>>() as u64;
        let mut offset = head;
        let mut seen = 0;
        while offset != 0 {
            seen += 1;
            if seen > leaves_max {
                return Err(Error::corrupt(offset, "the chain of leaves runs in a circle"));
            }
            let leaf = guard.node::<Leaf<N>>(offset)?;
            let slots = Slots(leaf.slots.recover(guard).map_err(Error::torn(offset))?);
            slots.validate(N, offset)?;
            match chain.last_mut() {
                Some(before) if slots.count() == 0 => {
                    let before_leaf = guard.node::<Leaf<N>>(before.offset)?;
                    let new = before.slots.with(before.slots.count(), slots.next());
                    // PERSIST: nothing must precede; lost, the empty leaf is still in the chain.
                    before.slots = Slots(before_leaf.slots.publish(guard, &before.slots.0, &new.0)?);
                    guard.fence();
                    if !self.recovered_from_crash {
                        guard.retire_node(offset);
                    }
                }
                _ => {
                    if self.recovered_from_crash {
                        guard.mark_node(offset)?;
                    }
                    chain.push(Link { offset, slots });
                }
            }
            offset = slots.next();
        }
        Ok(chain)
    }

    /// Rebuilds the records of the leaves from `start` on, as many as there are `separators`.
    fn rebuild_records(
        &self,
        chain: &[Link],
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
            let leaf = guard.node::<Leaf<N>>(link.offset)?;
            if let Some(ahead) = chain.get(position + 2)
                && let Ok(leaf) = guard.node::<Leaf<N>>(ahead.offset)
            {
                medium::kernels::prefetch_lines(leaf);
            }
            let number = first + position as u32;
            *separator = (self.rebuild_record(&guard, leaf, link, number, &mut last)?, number);
            if index > 0 {
                self.set_high(number - 1, separator.0);
            }
            let next = if position + 1 < chain.len() { number + 1 } else { 0 };
            self.leaves.get(number).set_next(next);
        }
        Ok(())
    }

    /// Gives a leaf the separator before the next one as its high key.
    fn set_high(&self, number: u32, separator: Separator) {
        let bound = if C::TIES { separator.tail } else { separator.word };
        self.leaves.get(number).high.store(bound, Ordering::Release);
    }

    fn last_entry(&self, guard: &Guard<'_, M>, link: &Link) -> Result<Option<EntryWords>> {
        let leaf = guard.node::<Leaf<N>>(link.offset)?;
        let last = link.slots.count().checked_sub(1);
        Ok(last.map(|position| self.entry_words(guard, leaf, &link.slots, position)))
    }

    /// Rebuilds one record; `last` is the entry before the leaf, and becomes its last one. Returns the separator before
    /// the leaf.
    fn rebuild_record(
        &self,
        guard: &Guard<'_, M>,
        leaf: &Leaf<N>,
        link: &Link,
        number: u32,
        last: &mut Option<EntryWords>,
    ) -> Result<Separator> {
        let record: &LeafRecord<M> = self.leaves.get(number);
        self.place(number, link.offset)?;
        record.reset(link.offset, &link.slots, (0, 0), Lsn::DURABLE);
        let mut separator = Separator::default();
        for position in 0..link.slots.count() {
            let words = self.entry_words(guard, leaf, &link.slots, position);
            if last.is_some_and(|last| if C::TIES { words[0] < last[0] } else { words[0] <= last[0] }) {
                return Err(Error::corrupt(link.offset, "entries out of order"));
            }
            if position == 0 {
                if let Some(last) = *last {
                    separator = self.separator_between(guard, last, words)?;
                } else if number != self.head {
                    separator = self.separator_from(guard, words)?;
                }
            }
            record.set_fingerprint(link.slots.entry(position), C::hash_of(words) as u8);
            if self.recovered_from_crash {
                C::mark(&self.pool, words)?;
            }
            *last = Some(words);
        }
        Ok(separator)
    }
}
