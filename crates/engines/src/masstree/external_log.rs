//! The external log: whole nodes as they were, for changes that no in-line log can take (section
//! 4.2 of the paper).
//!
//! Each shard has a chain of segments. One shard gets its first segment when the tree is made, so
//! that a full pool can be emptied. The entries of an epoch begin in the first segment. Each is
//! durable before the next is written, so the entries end at the first one that is of another epoch
//! or fails its checksum. The next epoch begins at the start again.

use medium::sync::{AtomicU64, Ordering};
use medium::{Medium, Word};
use pool::{Guard, Pool};

use super::layout::{
    INTERIOR, OFFSET_MASK, ShardArea, border_bytes, border_words_logged, checked, interior_bytes,
    interior_words_logged, load_twice, shard_area, unchecked,
};
use super::shard::{Own, Work};
use crate::kit::epochs::Shard;
use crate::kit::on_threads;
use crate::{Error, ErrorKind, Result};

/// Bytes of a segment: a whole slab of the pool.
pub(super) const SEGMENT_BYTES: usize = 65_472;
/// Bytes before the first entry of a segment; words 0 and 1 lead to the next segment.
const SEGMENT_HEADER_BYTES: u64 = 64;
/// Bytes before the node in an entry.
const ENTRY_HEADER_BYTES: u64 = 64;
/// Segments of one shard before an epoch is ended early, and a batch fails.
pub(super) const SEGMENTS_MAX: usize = 1024;

/// The external log of a tree.
pub(super) struct ExternalLog {
    /// Where the anchor is.
    anchor: u64,
    shards: usize,
    /// Bytes of a border node, and of an interior one.
    node_bytes: [usize; 2],
    /// The words of each node that the log keeps, one bit for each.
    kept: [u128; 2],
    /// Nodes that were written.
    pub(super) nodes: AtomicU64,
}

fn mix(state: u64, word: u64) -> u64 {
    (state ^ word)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}

/// Which of two kinds of nodes a pointer leads to.
fn kind(pointer: u64) -> usize {
    usize::from(pointer & INTERIOR != 0)
}

impl ExternalLog {
    pub(super) fn new(anchor: u64, shards: usize, width: usize, are_words: bool) -> Self {
        Self {
            anchor,
            shards,
            node_bytes: [border_bytes(are_words), interior_bytes()],
            kept: [
                border_words_logged(width, are_words),
                interior_words_logged(width),
            ],
            nodes: AtomicU64::new(0),
        }
    }

    /// Bytes of an entry: enough for either kind of node.
    fn entry_bytes(&self) -> u64 {
        ENTRY_HEADER_BYTES + self.node_bytes[0] as u64
    }

    fn entries_per_segment(&self) -> u64 {
        (SEGMENT_BYTES as u64 - SEGMENT_HEADER_BYTES) / self.entry_bytes()
    }

    /// Where the entries of a segment lie.
    fn entries(&self, segment: u64) -> impl Iterator<Item = u64> {
        let bytes = self.entry_bytes();
        (0..self.entries_per_segment())
            .map(move |entry| segment + SEGMENT_HEADER_BYTES + entry * bytes)
    }

    /// Whether a shard has a segment for the next entry.
    pub(super) fn has_space(&self, shard: &Shard<Own>, epoch: u64) -> bool {
        let log = &shard.own.log;
        let written = if log.epoch == epoch { log.entries } else { 0 };
        written < log.segments.len() as u64 * self.entries_per_segment()
    }

    /// The next free entry of a shard's log.
    fn next_entry<M: Medium>(&self, guard: &Guard<'_, M>, work: &mut Work<'_>) -> Result<u64> {
        let per_segment = self.entries_per_segment();
        let log = &mut work.shard.own.log;
        if log.epoch != work.epoch {
            log.epoch = work.epoch;
            log.entries = 0;
        }
        if log.entries == log.segments.len() as u64 * per_segment {
            if log.segments.len() == SEGMENTS_MAX {
                return Err(ErrorKind::EpochFull {
                    limit: SEGMENTS_MAX as u64 * per_segment,
                }
                .into());
            }
            self.add_segment(guard, work)?;
        }
        let log = &mut work.shard.own.log;
        let segment = log.segments[(log.entries / per_segment) as usize];
        let entry = log.entries % per_segment;
        log.entries += 1;
        Ok(segment + SEGMENT_HEADER_BYTES + entry * self.entry_bytes())
    }

    /// The first segment of a new tree. In a full pool it is the one with which removals make room.
    pub(super) fn begin<M: Medium>(&self, guard: &Guard<'_, M>, work: &mut Work<'_>) -> Result<()> {
        self.add_segment(guard, work)?;
        // Without this fence only the first entry's fence would order the segment, and there may be
        // no entry.
        guard.fence();
        Ok(())
    }

    fn add_segment<M: Medium>(&self, guard: &Guard<'_, M>, work: &mut Work<'_>) -> Result<()> {
        let link = match work.shard.own.log.segments.last() {
            Some(before) => &guard.words(*before, 2)?.as_chunks().0[0],
            None => {
                &guard
                    .node::<ShardArea>(shard_area(self.anchor, work.shard.index))?
                    .log
            }
        };
        let segment = guard.allocate(SEGMENT_BYTES)?;
        // The former content of the space must not be read as an entry.
        for at in std::iter::once(segment).chain(self.entries(segment)) {
            let words = guard.words(at, 2)?;
            words.iter().for_each(|word| word.store(guard, 0));
            guard.flush_words(words);
        }
        guard.fence();
        // PERSIST: the segment is empty; if this is lost, it is in no chain, and free. The fence of
        // the first entry orders this, too.
        link[1].store(guard, checked(segment));
        link[0].publish(guard, checked(segment));
        work.shard.own.log.segments.push(segment);
        Ok(())
    }

    /// Writes a node to the log. It is durable before anything that is flushed later.
    pub(super) fn append<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        work: &mut Work<'_>,
        pointer: u64,
    ) -> Result<()> {
        let target = pointer & (OFFSET_MASK | INTERIOR);
        let bytes = self.node_bytes[kind(target)];
        let node = guard.words(pointer & OFFSET_MASK, bytes / 8)?;
        let at = self.next_entry(guard, work)?;
        let entry = guard.words(at, (ENTRY_HEADER_BYTES as usize + bytes) / 8)?;
        let mut sum = mix(work.epoch, target);
        let kept = self.kept[kind(target)];
        for (index, (from, to)) in node
            .iter()
            .zip(&entry[ENTRY_HEADER_BYTES as usize / 8..])
            .enumerate()
        {
            if kept >> index & 1 == 1 {
                let word = from.load(guard);
                to.store(guard, word);
                sum = mix(sum, word);
            }
        }
        entry[1].store(guard, checked(target));
        entry[2].store(guard, sum);
        entry[0].store(guard, checked(work.epoch));
        guard.flush_words(entry);
        // PERSIST: the node as it is now; if this is lost, the changes that follow could not be
        // undone.
        guard.fence();
        self.nodes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The segments of a shard's log.
    pub(super) fn segments<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        shard: usize,
    ) -> Result<Vec<u64>> {
        let mut segments = Vec::new();
        let mut link = &guard.node::<ShardArea>(shard_area(self.anchor, shard))?.log;
        let damaged = || Error::corrupt(self.anchor, "the chain of the external log is damaged");
        while let Some(segment) = load_twice(guard, link.each_ref(), damaged)? {
            if segment % 64 != 0 || segments.len() == SEGMENTS_MAX {
                return Err(damaged());
            }
            segments.push(segment);
            link = &guard.words(segment, SEGMENT_BYTES / 8)?.as_chunks().0[0];
        }
        Ok(segments)
    }

    /// Restores all nodes that the log has of `epoch`, on some threads. They are durable before
    /// anything that is flushed later. Returns their number.
    pub(super) fn restore<M: Medium>(
        &self,
        pool: &Pool<M>,
        epoch: u64,
        threads: usize,
    ) -> Result<u64> {
        let next_shard = std::sync::atomic::AtomicUsize::new(0);
        let restore = || -> Result<u64> {
            let guard = pool.peek();
            let mut restored = 0;
            let shards = std::iter::repeat_with(|| next_shard.fetch_add(1, Ordering::Relaxed));
            for shard in shards.take_while(|shard| *shard < self.shards) {
                restored += self.restore_shard(&guard, shard, epoch)?;
            }
            // The restored nodes are ordered before the epoch enters the set of failed ones; no
            // open reads the log of an epoch in the set.
            guard.fence();
            Ok(restored)
        };
        Ok(on_threads(threads.min(self.shards), restore)?
            .into_iter()
            .sum())
    }

    fn restore_shard<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        shard: usize,
        epoch: u64,
    ) -> Result<u64> {
        let mut restored = 0;
        for segment in self.segments(guard, shard)? {
            for entry in self.entries(segment) {
                let words = guard.words(entry, self.entry_bytes() as usize / 8)?;
                if !self.restore_node(guard, words, epoch)? {
                    return Ok(restored);
                }
                restored += 1;
            }
        }
        Ok(restored)
    }

    /// Restores a node from an entry; `false` if the entry is of another epoch, or fails its
    /// checksum.
    fn restore_node<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        entry: &[Word],
        epoch: u64,
    ) -> Result<bool> {
        let header: [u64; 3] = std::array::from_fn(|index| entry[index].load(guard));
        if header[0] != checked(epoch) {
            return Ok(false);
        }
        let Some(target) = unchecked(header[1]) else {
            return Ok(false);
        };
        let count = self.node_bytes[kind(target)] / 8;
        let kept = self.kept[kind(target)];
        let words = entry[ENTRY_HEADER_BYTES as usize / 8..]
            .iter()
            .take(count)
            .enumerate();
        let content: Vec<(usize, u64)> = words
            .filter(|(index, _)| kept >> index & 1 == 1)
            .map(|(index, word)| (index, word.load(guard)))
            .collect();
        if content
            .iter()
            .fold(mix(epoch, target), |sum, (_, word)| mix(sum, *word))
            != header[2]
        {
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
