//! The room that a batch may need: slabs to set aside.

use std::collections::BTreeMap;

use pool::SLAB_BYTES;

use super::journal::entry_bytes;
use super::{BatchRequest, Write};
use crate::engine::CodecKind;

/// Bytes of a slab that are sure to hold allocations: no size class wastes more than the rest.
const USABLE_BYTES: u64 = 2 * SLAB_BYTES / 3;
/// A record above this size may have slabs of its own.
const ALONE_BYTES: u64 = SLAB_BYTES / 8;
/// Bytes of a record beside key and value, at most.
const RECORD_HEADER_BYTES: u64 = 64;
/// Levels of nodes that a split may pass, and a new root.
const LEVELS_MAX: u64 = 16;
/// Bytes of a key that each layer of a trie takes.
const SLICE_BYTES: u64 = 8;

/// The adjacent slabs that these writes may take, run by run, in the worst case: every record is
/// new and in a class of its own size, every write splits a node, all open slabs of the pool are
/// full.
pub(super) fn runs(
    batch: &BatchRequest<'_>,
    by_epochs: &[Write<'_>],
    immediate: &[Write<'_>],
) -> Vec<u32> {
    let mut runs = Vec::new();
    let mut singles = 0;
    // Bytes of each class of sizes, of each tree by its number; of the journal without one.
    let mut classes = BTreeMap::<(Option<usize>, u64), u64>::new();
    let mut add = |owner: Option<usize>, bytes: u64| {
        if bytes > ALONE_BYTES {
            // An engine's own allocator may round sizes up to twice as much.
            runs.push((2 * bytes).div_ceil(SLAB_BYTES) as u32 + 1);
        } else {
            let class = (bytes + bytes / 4).next_power_of_two();
            *classes.entry((owner, class)).or_default() += class;
        }
    };
    if !immediate.is_empty() {
        let bytes = entry_bytes(immediate, |write| batch.has_record(write));
        add(None, bytes as u64);
    }
    for (index, tree) in batch.trees.iter().enumerate() {
        let own = || {
            by_epochs
                .iter()
                .chain(immediate)
                .filter(|write| write.tree == index)
        };
        let mut nodes = LEVELS_MAX;
        let node_bytes = u64::from(tree.room_per_write);
        for write in own() {
            nodes += 1;
            if tree.is_trie {
                nodes += write.key.len() as u64 / SLICE_BYTES;
            }
            if tree.codec == CodecKind::Record
                && let Some(value) = write.value
            {
                let bytes = (write.key.len() + value.len()) as u64;
                add(Some(index), bytes + RECORD_HEADER_BYTES);
            }
        }
        if own().next().is_some() {
            // Nodes of two kinds, each in slabs of its own.
            singles += (nodes * node_bytes).div_ceil(USABLE_BYTES) + 2;
        }
    }
    singles += classes
        .values()
        .map(|bytes| bytes.div_ceil(USABLE_BYTES))
        .sum::<u64>();
    runs.extend(std::iter::repeat_n(1, singles as usize));
    // Long runs come first, when most adjacent slabs are free.
    runs.sort_unstable_by(|one, other| other.cmp(one));
    runs
}
