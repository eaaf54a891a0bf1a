//! Verification of all leaves, their records, and the inner nodes above them.

use medium::sync::Ordering;
use medium::{Lsn, Medium};
use pool::Guard;

use super::RnTree;
use super::layout::{FAILS_CHECK, LeafRecord, Slots, low_bits};
use crate::index::{Codec, IndexStat, Violation};
use crate::kit::chain::{InnerTree, Separator};
use crate::kit::salvage::what_of;
use crate::{Error, Result};

/// Leaves that are verified under one pin: a longer pin would keep memory from being reused.
const LEAVES_PINNED: usize = 256;

/// Collects the violations of one leaf.
struct LeafReport<'v> {
    offset: u64,
    violations: &'v mut Vec<Violation>,
}

impl LeafReport<'_> {
    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(Violation {
                offset: self.offset,
                what: what(),
            });
        }
    }

    /// Adds the damage that kept the leaf from being verified.
    fn note(&mut self, error: &Error) {
        self.violations.push(Violation {
            offset: error.offset().unwrap_or(self.offset),
            what: what_of(error),
        });
    }
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Walks all leaves, each under its lock for a moment.
    pub(super) fn verify(&self) -> Result<Vec<Violation>> {
        let mut guard = self.pool.pin();
        let mut violations = Vec::new();
        let mut index = self.head;
        let mut looked_at = 0;
        // No key of the leaf may be below `low`; keys from `resume` on were not verified yet.
        let (mut low, mut resume): (Vec<u8>, Vec<u8>) = Default::default();
        // The lower bound of the first leaf that is verified under this pin.
        let mut pinned: Option<Vec<u8>> = None;
        while index != 0 {
            let leaf_record = self.leaves.get(index);
            let lock = leaf_record.lock();
            if LeafRecord::<M>::is_dead(leaf_record.version()) {
                // The leaf was merged away after its left neighbour, which took over its entries,
                // was verified.
                drop(lock);
                LeafRecord::<M>::wait();
                index = self.descend(&guard, C::bound(&resume))?;
                // The leaf that took the entries over may begin below them.
                low.clear();
                continue;
            }
            let mut report = LeafReport {
                offset: leaf_record.offset(),
                violations: &mut violations,
            };
            if let Err(error) = self.verify_leaf(&guard, leaf_record, &mut low, &mut report) {
                report.note(&error);
            }
            // The inner nodes need not lead to an empty leaf.
            if leaf_record.slots().count() > 0 {
                self.verify_inner(&guard, index, &low, &mut report)?;
            }
            if leaf_record.next() != 0 {
                let high = leaf_record.high.load(Ordering::Acquire);
                low.clear();
                let separator = Separator(high);
                InnerTree::<C>::copy_separator(&self.inner.heap(), separator, &mut low)?;
                resume.clone_from(&low);
            }
            index = leaf_record.next();
            looked_at += 1;
            if looked_at % LEAVES_PINNED == 0 && index != 0 {
                drop(lock);
                if pinned.is_some_and(|before| before >= resume) {
                    // In a damaged tree the inner nodes may lead back to a leaf that was verified
                    // before.
                    let what = "the keys from which leaves begin do not ascend".to_owned();
                    violations.push(Violation {
                        offset: self.leaves.get(index).offset(),
                        what,
                    });
                    break;
                }
                drop(guard);
                guard = self.pool.pin();
                index = self.descend(&guard, C::bound(&resume))?;
                low.clear();
                pinned = Some(resume.clone());
            }
        }
        Ok(violations)
    }

    /// Verifies a leaf whose keys begin at `low`.
    fn verify_leaf(
        &self,
        guard: &Guard<'_, M>,
        leaf_record: &LeafRecord<M>,
        low: &mut Vec<u8>,
        report: &mut LeafReport<'_>,
    ) -> Result<()> {
        let leaf = Self::leaf(guard, leaf_record)?;
        let slots = leaf_record.slots();
        let durable = leaf
            .slots
            .inspect(guard)
            .map_err(crate::Error::torn(leaf_record.offset()))?;
        report.expect(Slots(durable.value) == slots, || {
            "the transient slots are not the durable ones".to_owned()
        });
        report.expect(durable.is_whole, || {
            "a copy of the slot line is torn".to_owned()
        });
        slots.validate(self.capacity, leaf_record.offset())?;
        let sum = leaf.sum(guard, &slots, 0);
        report.expect(slots.verify(sum, leaf_record.offset()).is_ok(), || {
            FAILS_CHECK.to_owned()
        });
        let live = leaf_record.live.load(Ordering::Relaxed);
        let claimed = leaf_record.claimed.load(Ordering::Relaxed);
        let dead = leaf_record.dead.load(Ordering::Relaxed);
        report.expect(live == slots.bitmap(), || {
            "the live entries are not those in the slots".to_owned()
        });
        report.expect(claimed & (live | dead) == live | dead, || {
            "an entry in use is not claimed".to_owned()
        });
        report.expect(live & dead == 0, || {
            "an entry is both live and dead".to_owned()
        });
        report.expect(
            (claimed | live | dead) & !low_bits(self.capacity) == 0,
            || "bits beyond the last entry".to_owned(),
        );
        let next = match leaf_record.next() {
            0 => 0,
            next => self.leaves.get(next).offset(),
        };
        report.expect(slots.next() == next, || {
            "the next leaf is not the durable one".to_owned()
        });
        medium::progress::advance(slots.count() as u64);
        let mut key = Vec::new();
        let mut order_before = 0;
        for position in 0..slots.count() {
            let words = leaf.entry(guard, &slots, position);
            key.clear();
            C::copy_key(guard, words, &mut key)?;
            let above = if position == 0 {
                key >= *low
            } else {
                key > *low
            };
            report.expect(above, || {
                format!("key {position} is not above what lies before it")
            });
            let entry = slots.entry(position);
            let order = leaf_record.order(entry);
            report.expect(order >= order_before, || {
                format!("the order byte of entry {entry} is below that of the entry before it")
            });
            order_before = order;
            report.expect(
                leaf_record.fingerprint(entry) == C::hash_of(words) as u8,
                || format!("the fingerprint of entry {entry} is not its key's"),
            );
            report.expect(C::word(C::key(&key)?) == words[0], || {
                format!("the first word of entry {entry} is not its key's")
            });
            report.expect(C::hash_of(words) == C::hash(C::key(&key)?), || {
                format!("the hash of entry {entry} is wrong")
            });
            report.expect(C::is_sound(guard, words)?, || {
                format!("the record of entry {entry} fails its check")
            });
            low.clone_from(&key);
        }
        let heap = self.inner.heap();
        let beyond = slots.count() > 0 && Self::beyond(&heap, leaf_record, C::key(low)?)?.is_some();
        report.expect(!beyond, || {
            "the last key is not below the high key".to_owned()
        });
        Ok(())
    }

    /// Verifies that the inner nodes lead to a leaf by its last key.
    fn verify_inner(
        &self,
        guard: &Guard<'_, M>,
        index: u32,
        last: &[u8],
        report: &mut LeafReport<'_>,
    ) -> Result<()> {
        guard.interleave(&self.inner);
        // If one leaf was replaced by two, the second is reached through the first until its parent
        // knows it.
        let _settled = self.inner.structure();
        let found = self.descend(guard, C::bound(last))?;
        report.expect(found == index, || {
            "the inner nodes lead elsewhere".to_owned()
        });
        Ok(())
    }

    /// Counts keys and leaves; returns once the counted state is durable. O(leaves).
    pub(super) fn count(&self) -> Result<(u64, u64)> {
        let guard = self.pool.pin();
        let mut keys = 0;
        let mut leaves = 0;
        let mut lsn = Lsn::DURABLE;
        let mut index = self.head;
        while index != 0 {
            let leaf_record = self.leaves.get(index);
            // ORDER: acquire: the stamp was stored before.
            keys += u64::from(leaf_record.live.load(Ordering::Acquire).count_ones());
            lsn = lsn.max(leaf_record.lsn());
            leaves += 1;
            index = leaf_record.next();
        }
        guard.wait_for(lsn)?;
        Ok((keys, leaves))
    }

    pub(super) fn figures(&self) -> Result<IndexStat> {
        let (keys, leaves) = self.count()?;
        Ok(IndexStat {
            keys,
            leaves,
            height: self.inner.height(),
            volatile_bytes: self.inner.bytes()
                + self.leaves.bytes_used()
                + self.digits.bytes_used()
                + leaves * size_of_val(self.offsets.get(0)) as u64,
            recovery_ns: self.recovery_ns,
            recovered_from_crash: self.recovered_from_crash,
            leaf_bytes: size_of::<super::layout::Leaf>() as u64,
            ..IndexStat::default()
        })
    }
}
