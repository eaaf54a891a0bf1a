//! The external log: whole nodes as they were, for changes that no in-line log can take (section 4.2 of the paper).
//!
//! Each shard has a chain of segments. One shard gets its first segment when the tree is made, so that a full pool can be
//! emptied. The entries of an epoch begin in the first segment. Each is durable before the next is written, so the entries end
//! at the first one that is of another epoch or fails its checksum. The next epoch begins at the start again.

use std::sync::atomic::Ordering;

use medium::{Medium, Word};
use pool::Guard;

use super::access::{Stop, View, Walk, Work};
use super::layout::{Anchor, INTERIOR, OFFSET_MASK, checked, unchecked};
use super::{Core, Mode};
use crate::{Error, Result};

/// Bytes of a segment: a whole slab of the pool.
const SEGMENT_BYTES: usize = 65_472;
/// Bytes before the first entry of a segment; word 0 leads to the next segment.
const SEGMENT_HEADER_BYTES: u64 = 64;
/// Bytes before the node in an entry.
const ENTRY_HEADER_BYTES: u64 = 64;
/// Segments of one shard before an epoch is ended early, and a batch fails.
const SEGMENTS_MAX: usize = 1024;

/// Where a shard's next entry goes.
#[derive(Default)]
pub(super) struct LogCursor {
    /// The segments that are known; all of them are in the chain.
    segments: Vec<u64>,
    segment: usize,
    entry: u64,
}

impl LogCursor {
    /// Bytes of memory that it holds.
    pub(super) fn volatile_bytes(&self) -> usize {
        8 * self.segments.capacity()
    }

    /// Whether there is a segment for the next entry.
    pub(super) fn has_space(&self) -> bool {
        self.segment < self.segments.len()
    }

    /// An epoch has ended.
    pub(super) fn rewind(&mut self) {
        (self.segment, self.entry) = (0, 0);
    }
}

fn mix(state: u64, word: u64) -> u64 {
    (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl<M: Medium> View<'_, M> {
    /// The next free entry of the shard's log.
    fn log_entry(&self, work: &mut Work<'_>) -> Walk<u64> {
        if !work.shard.log.has_space() {
            if work.shard.log.segments.len() == SEGMENTS_MAX {
                let limit = SEGMENTS_MAX as u64 * self.core.entries_per_segment();
                return Err(Stop::Full(Error::EpochFull { limit }));
            }
            self.add_segment(work)?;
        }
        let log = &mut work.shard.log;
        let at = log.segments[log.segment] + self.core.entry_offset(log.entry);
        log.entry += 1;
        if log.entry == self.core.entries_per_segment() {
            (log.segment, log.entry) = (log.segment + 1, 0);
        }
        Ok(at)
    }

    /// The first segment of a new tree. In a full pool it is the one with which removals make room.
    pub(super) fn begin_log(&self, work: &mut Work<'_>) -> Walk<()> {
        if self.core.mode != Mode::Transient {
            self.add_segment(work)?;
            // As the first entry's fence would, which may never come.
            self.guard.fence();
        }
        Ok(())
    }

    fn add_segment(&self, work: &mut Work<'_>) -> Walk<()> {
        let anchor = self.anchor()?;
        let link = match work.shard.log.segments.last() {
            Some(before) => &self.guard.words(*before, 1)?[0],
            None => &anchor.logs[work.shard.index],
        };
        let segment = self.guard.allocate(SEGMENT_BYTES)?;
        // What a former owner left there is no entry.
        for at in std::iter::once(0)
            .chain((0..self.core.entries_per_segment()).map(|entry| self.core.entry_offset(entry)))
        {
            let words = self.guard.words(segment + at, 1)?;
            words[0].store(&self.guard, 0);
            self.guard.flush_words(words);
        }
        self.guard.fence();
        // PERSIST: the segment is empty; lost, it is in no chain and free. The fence of the first entry is this one's, too.
        link.publish(&self.guard, checked(segment));
        work.shard.log.segments.push(segment);
        Ok(())
    }

    /// Writes a node to the log. It is ordered before whatever is flushed after this.
    pub(super) fn log_node(&self, work: &mut Work<'_>, pointer: u64) -> Walk<()> {
        if self.core.mode == Mode::Transient {
            return Ok(());
        }
        let target = pointer & (OFFSET_MASK | INTERIOR);
        let bytes = self.core.node_bytes(target);
        let node = self.guard.words(pointer & OFFSET_MASK, bytes / 8)?;
        let at = self.log_entry(work)?;
        let entry = self.guard.words(at, (ENTRY_HEADER_BYTES as usize + bytes) / 8)?;
        let mut sum = mix(self.epoch, target);
        let logged = self.core.words_logged(target);
        for (index, (from, to)) in node.iter().zip(&entry[ENTRY_HEADER_BYTES as usize / 8..]).enumerate() {
            if logged >> index & 1 == 1 {
                let word = from.load(&self.guard);
                to.store(&self.guard, word);
                sum = mix(sum, word);
            }
        }
        entry[1].store(&self.guard, checked(target));
        entry[2].store(&self.guard, sum);
        entry[0].store(&self.guard, checked(self.epoch));
        self.guard.flush_words(entry);
        // PERSIST: the node as it is now; lost, the changes that follow could not be undone.
        self.guard.fence();
        self.core.figures.nodes_logged.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl<M: Medium> Core<M> {
    /// Bytes of an entry, whichever node it holds.
    fn entry_bytes(&self) -> u64 {
        ENTRY_HEADER_BYTES + self.border_bytes() as u64
    }

    fn entries_per_segment(&self) -> u64 {
        (SEGMENT_BYTES as u64 - SEGMENT_HEADER_BYTES) / self.entry_bytes()
    }

    /// Where an entry lies in its segment.
    fn entry_offset(&self, entry: u64) -> u64 {
        SEGMENT_HEADER_BYTES + entry * self.entry_bytes()
    }

    /// The segments of a shard's log.
    pub(super) fn log_segments(&self, guard: &Guard<'_, M>, shard: usize) -> Result<Vec<u64>> {
        let anchor = guard.node::<Anchor>(self.anchor)?;
        let (mut segments, mut link) = (Vec::new(), &anchor.logs[shard]);
        loop {
            let word = link.load(guard);
            if word == 0 {
                return Ok(segments);
            }
            let segment = unchecked(word).filter(|segment| segment % 64 == 0);
            let segment = segment.filter(|_| segments.len() < SEGMENTS_MAX);
            let Some(segment) = segment else {
                return Err(Error::corrupt(self.anchor, "the chain of the external log is damaged"));
            };
            segments.push(segment);
            link = &guard.words(segment, SEGMENT_BYTES / 8)?[0];
        }
    }

    /// Gives the segments that are in the chains to the shards.
    pub(super) fn adopt_segments(&self, guard: &Guard<'_, M>) -> Result<()> {
        for shard in self.barrier.shards() {
            let mut shard = shard.lock();
            shard.log.segments = self.log_segments(guard, shard.index)?;
        }
        Ok(())
    }

    /// Puts all nodes back that a shard's log has for `epoch`; flushed, not fenced. Returns their number.
    pub(super) fn restore_nodes(&self, guard: &Guard<'_, M>, shard: usize, epoch: u64) -> Result<u64> {
        let mut restored = 0;
        for segment in self.log_segments(guard, shard)? {
            for entry in 0..self.entries_per_segment() {
                let words =
                    guard.words(segment + self.entry_offset(entry), self.entry_bytes() as usize / 8)?;
                if !self.restore_node(guard, words, epoch)? {
                    return Ok(restored);
                }
                restored += 1;
            }
        }
        Ok(restored)
    }

    fn restore_node(&self, guard: &Guard<'_, M>, entry: &[Word], epoch: u64) -> Result<bool> {
        let header: [u64; 3] = std::array::from_fn(|index| entry[index].load(guard));
        let Some(target) = unchecked(header[1]).filter(|_| header[0] == checked(epoch)) else {
            return Ok(false);
        };
        let count = self.node_bytes(target) / 8;
        let (logged, words) = (self.words_logged(target), &entry[ENTRY_HEADER_BYTES as usize / 8..]);
        let kept = words.iter().take(count).enumerate().filter(|(index, _)| logged >> index & 1 == 1);
        let content: Vec<(usize, u64)> = kept.map(|(index, word)| (index, word.load(guard))).collect();
        if content.iter().fold(mix(epoch, target), |sum, (_, word)| mix(sum, *word)) != header[2] {
            return Ok(false);
        }
        let node = guard.words(target & OFFSET_MASK, count)?;
        for (index, word) in content {
            node[index].store(guard, word);
        }
        guard.flush_words(node);
        Ok(true)
    }
}
