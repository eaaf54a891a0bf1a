//! What may be left out, done first or swapped unnoticed, and why.

/// What is done to the place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A flush is left out.
    Flush,
    /// A fence is left out.
    Fence,
    /// A wait is left out.
    Wait,
    /// A store is left out.
    Store,
    /// A publish is done before the persist that comes before it.
    DoneFirst,
    /// Two adjacent persists are swapped; the place is the second one's fence.
    Swapped,
}

use Change::{DoneFirst, Fence, Flush, Store, Swapped, Wait};

/// A change that nobody notices, with the argument why that is right.
#[derive(Clone, Copy, Debug)]
pub struct Justified {
    /// What may be done.
    pub changes: &'static [Change],
    /// The end of the file's path.
    pub file: &'static str,
    /// A piece of the source that ends in the line of the place, its lines joined by spaces.
    pub snippet: &'static str,
    /// Of a swap the end of the first one's file; empty for any.
    pub after: &'static str,
    /// Why it does not matter.
    pub why: &'static str,
}

impl Justified {
    const fn after(self, file: &'static str) -> Self {
        Self { after: file, ..self }
    }
}

const fn justified(
    file: &'static str,
    snippet: &'static str,
    changes: &'static [Change],
    why: &'static str,
) -> Justified {
    Justified { changes, file, snippet, after: "", why }
}

const NO_PUBLISH: &str = "no publish: it gives a node its first value, in one persist with the rest of the node, and \
                          nothing leads there yet";
const TORN_TWIN: &str = "needed where a second store, after a recovery, is torn so that it completes the first, which takes a \
                         crash in what follows a crash: tests/twin_line.rs misses the mending there";
const NO_CLASS: &str = "a slab without a class is looked at, found empty, and freed";
const BITMAP: &str = "a bitmap that fails its check costs a mark, nothing else";
const CLEAN: &str = "a clean flag that is lost costs a mark, nothing else; the wait keeps the file from being cut \
                     before, and a Sim is never cut";
const STATE_LINE: &str = "the words of the state line are flushed together, once more, before the fence";
const BEING_MADE: &str = "a pool that is being made: its state words do not depend on each other or on the second \
                          header, and nothing was allocated yet";
const EPOCH: &str = "two lives of a tree in one epoch: a reservation that a crash left looks like one that is under way, so \
                     who meets it waits a bounded time before he ends it, and nothing else";
const EPOCH_FIRST: &str = "nothing has to be durable before an epoch begins";
const RESERVED: &str = "an entry that a crash left reserved is passed over, whether the status counts it or not, and used \
                        again if it does not";
const ROLLED: &str = "what comes before is the pool's own: what a word is to be, follows from the descriptor alone, which \
                      stays until the word is durable";
const UNCLEAN: &str = "the next open takes an epoch for failed in which nothing was done";
const REMEMBERED: &str = "the next sweep looks once more for what is left of epochs of which nothing is left";
const TOUCHED_AGAIN: &str = "alone, a node that is recovered once more at each touch stays as it is, and its first change \
                             stores an epoch; beside others its version would be made anew under them";
const ALL_DURABLE: &str = "what changed in the epoch, or was swept, is durable before either, and so there is nothing left \
                           to be put back";
const RESTORED_AGAIN: &str =
    "as long as the next epoch has not begun, each open puts the nodes back, whatever the set says";
const NOTHING_ALLOCATED: &str = "nothing was allocated yet, so a pool that still says that it is clean is";
/// `waits_of_readers_are_found_missing` shows it.
const SEEN_ALONE: &str = "alone, a reader meets nothing late but splits and merges, which change nothing for it; beside a \
                          writer it is needed, and schedules show it";
const NOT_IN_ROOTS: &str = "this is planted where a tree is made, and that is in no root table before both; where a log of a \
                            tree in use gets a segment the fence between is needed, and two threads show it";
const BOTH_BEFORE: &str =
    "both persists come before the publish that needs them, and neither needs the other";
const INVALID: &str = "a slot array may be called invalid at any time before it changes: the bitmap lists the same entries, \
                       and the redo log writes it together with a slot array that is as it was";

const NOT_LED_TO: &str =
    "of what was allocated nothing leads there before the epoch ends, which is after both";

/// What all engines share: the pool and the medium.
pub(super) const SHARED: &[Justified] = &[
    justified("medium/src/cell.rs", "&twin::repair(tag)); guard.flush(other)", &[Flush], TORN_TWIN),
    justified("medium/src/cell.rs", "guard.flush(other); guard.fence()", &[Fence], TORN_TWIN),
    justified("pool/src/space/bitmaps.rs", "publish(guard, checked(0))", &[Flush, Store], NO_CLASS),
    justified("pool/src/space/bitmaps.rs", "publish(guard, checked(0))", &[DoneFirst], BOTH_BEFORE),
    justified("pool/src/space/bitmaps.rs", "words[1].store(guard, bitmap_check(&bitmap))", &[Store], BITMAP),
    justified("pool/src/space/bitmaps.rs", "word.store(guard, *bits)", &[Store], BITMAP),
    justified(
        "pool/src/space.rs",
        "State::HighWater.publish(guard, u64::from(high_water))?; guard.fence()",
        &[Fence],
        "who takes slabs fences through the same guard for their class, before anything in them is published; needed with \
         threads of which one takes slabs below a mark that another one has raised and not fenced",
    ),
    justified(
        "pool/src/space.rs",
        "State::HighWater.publish(guard, u64::from(high_water))",
        &[DoneFirst],
        "slabs above the mark that was there have no class, or bitmaps that fail their check",
    ),
    justified(
        "pool/src/space.rs",
        "State::HighWater.publish(guard, u64::from(high_water))?; guard.fence()",
        &[Swapped],
        "slabs above the mark that was there have no class, or bitmaps that fail their check",
    ),
    justified(
        "pool/src/space.rs",
        "publish(guard, checked(class.index() as u64 + 1))",
        &[DoneFirst],
        BOTH_BEFORE,
    ),
    justified(
        "pool/src/space.rs",
        "publish(guard, checked(class.index() as u64 + 1)); guard.fence()",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified("pool/src/space.rs", "publish(guard, checked(SPAN + count))", &[DoneFirst], BOTH_BEFORE),
    justified(
        "pool/src/space.rs",
        "publish(guard, checked(SPAN + count)); guard.fence()",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "pool/src/space.rs",
        "publish(guard, checked(SPAN + count)); guard.fence()",
        &[Fence],
        "rntree and bztree fence through the same guard before they publish what they took; masstree publishes at the end of \
         an epoch, and needs it: tests/masstree.rs misses it",
    ),
    justified("pool/src/roots.rs", "guard.flush_words(cells); guard.fence()", &[Swapped], BOTH_BEFORE),
    justified(
        "pool/src/roots.rs",
        "checked(IN_USE | u64::from(codec) << 16 | u64::from(engine))); if let Err(error) = guard.drain()",
        &[Wait],
        "a tree that is lost is made again by whoever explores, as empty as it was; needed by those who are told that \
         there is one: tests/pool_protocol.rs misses it",
    ),
    justified(
        "pool/src/roots.rs",
        "state.publish(guard, 0); // As above: here it is there, for its nodes are not given back. guard.drain()",
        &[Wait],
        "who explores makes another tree at once, and waits for that; needed by those who do not: tests/pool_protocol.rs \
         misses it",
    ),
    justified(
        "pool/src/pool.rs",
        "let lsn = guard.fence(); if blank { guard.wait(lsn)",
        &[Wait],
        "a pool that is lost is made again by whoever opens it, as empty as it was: what is acknowledged in it waits for more",
    ),
    justified(
        "pool/src/pool.rs",
        "u64::from(std::process::id()))?; let lsn = guard.fence()",
        &[Swapped],
        BEING_MADE,
    ),
    justified(
        "pool/src/pool.rs",
        "so nobody has to wait here. State::Clean.publish(&guard, 0)",
        &[Flush],
        STATE_LINE,
    ),
    justified(
        "pool/src/pool.rs",
        "so nobody has to wait here. State::Clean.publish(&guard, 0)",
        &[DoneFirst],
        BEING_MADE,
    ),
    justified("pool/src/pool.rs", "State::Holder.publish(&guard", &[Flush], STATE_LINE),
    justified(
        "pool/src/pool.rs",
        "State::Holder.publish(&guard",
        &[Store, DoneFirst],
        "who holds the pool is for people to read, while the process lives",
    ),
    justified(
        "pool/src/space.rs",
        "publish(guard, u64::from(self.unowned.lock().high_water))",
        &[Flush, Store, DoneFirst],
        "a mark that is damaged still is taken from the file's length once more",
    ),
    justified(
        "pool/src/pool.rs",
        "State::HighWater.publish(&guard, u64::from(end))",
        &[Flush, Store, DoneFirst],
        "the mark that was there is higher, and the new one is above all that is in use; needed where the file is cut, \
         and a Sim never is",
    ),
    justified("pool/src/pool.rs", "State::Clean.publish(&guard, 1)", &[Flush, Store], CLEAN),
    justified("pool/src/pool.rs", "State::Clean.publish(&guard, 1)?; guard.drain()", &[Fence, Wait], CLEAN),
];

/// The sorted chain.
/// `wbtree`, and the kit's tree below it.
pub(super) const WBTREE: &[Justified] = &[
    justified("kit/paged/find.rs", "guard.wait_for(lsn)", &[Wait], SEEN_ALONE),
    justified(
        "kit/paged/log.rs",
        "ordered before it; lost, nothing happened. guard.fence();",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "kit/paged/log.rs",
        "ordered before the commit record; lost, nothing happened. guard.fence();",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "kit/paged/log.rs",
        "lost, recovery writes them again. guard.fence();",
        &[Swapped],
        "a pool with a log to be finished was not closed, and so says already that it is not clean",
    )
    .after("pool/src/pool.rs"),
    justified("kit/paged/insert.rs", "lost, the old value counts. guard.fence();", &[Swapped], BOTH_BEFORE),
    justified("kit/paged/recover.rs", "lost, there is no tree. guard.fence();", &[Swapped], BOTH_BEFORE),
    justified("wbtree/change.rs", "leaf.head[BITMAP].publish(guard, sealed(bits))", &[DoneFirst], INVALID),
    justified("wbtree/change.rs", "publish(guard, sealed(bits)); guard.fence();", &[Swapped], INVALID),
];

pub(super) const SORTED_CHAIN: &[Justified] = &[
    justified("sorted_chain.rs", "lost, the other image counts. guard.fence();", &[Swapped], BOTH_BEFORE),
    justified("sorted_chain.rs", "lost, there is no tree. guard.fence();", &[Swapped], BOTH_BEFORE),
];

/// `rntree`.
pub(super) const RNTREE: &[Justified] = &[
    justified(
        "rntree/mod.rs",
        "&Slots::identity(0, 0, EntrySum::default()).0); guard.fence()",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified("rntree/split.rs", "Slots(leaf.slots.init(guard", &[DoneFirst], NO_PUBLISH),
    justified("rntree/insert.rs", "nobody misses them. guard.fence();", &[Swapped], BOTH_BEFORE),
    justified("rntree/load.rs", "Slots(leaf.slots.init(guard", &[DoneFirst], NO_PUBLISH),
    justified("rntree/load.rs", "sealed(&old, sum); guard.fence();", &[Swapped], BOTH_BEFORE),
    justified(
        "pool/src/pool.rs",
        "fn keep_pace(&self) -> Result<()> { let lsn = self.inner.fence()",
        &[Fence],
        "the fence before the line that publishes the load orders the same lines; this one is for the disk's pace",
    ),
    justified(
        "pool/src/pool.rs",
        "fn keep_pace(&self) -> Result<()> { let lsn = self.inner.fence()",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified("rntree/find.rs", "guard.wait_for(", &[Wait], SEEN_ALONE),
    justified("rntree/remove.rs", "return guard.wait_for(seen.lsn)", &[Wait], SEEN_ALONE),
    justified("rntree/remove.rs", "return guard.wait_for(record.lsn())", &[Wait], SEEN_ALONE),
];

/// `bztree`, and what it is made of.
pub(super) const BZTREE: &[Justified] = &[
    justified("bztree/recover.rs", "node.epoch.store(&guard, 0)", &[Store], "any number does"),
    justified("bztree/recover.rs", "cell.publish(&guard, epoch)", &[Flush, Store], EPOCH),
    justified("bztree/recover.rs", "cell.publish(&guard, epoch); guard.drain()", &[Fence, Wait], EPOCH),
    justified("bztree/recover.rs", "cell.publish(&guard, epoch)", &[DoneFirst], EPOCH_FIRST),
    justified("bztree/recover.rs", "cell.publish(&guard, epoch); guard.drain()", &[Swapped], EPOCH_FIRST),
    justified("bztree/recover.rs", "another guard's. guard.fence()", &[Swapped], BOTH_BEFORE),
    justified("bztree/load.rs", "another guard's. guard.fence()", &[Swapped], BOTH_BEFORE),
    justified("pmwcas/execute.rs", "// Fence 1. guard.fence()", &[Swapped], BOTH_BEFORE),
    justified("pmwcas/recover.rs", "lost, they are rolled again. guard.fence()", &[Swapped], ROLLED),
    justified(
        "pmwcas/execute.rs",
        "Phase::Freed => guard.flush(",
        &[Flush],
        "every guard here fences what it flushed; needed where a guard ends before a fence",
    ),
    justified(
        "pool/src/pool.rs",
        "State::HighWater.publish(&guard, u64::from(end))?; guard.fence()",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "pmwcas/seen.rs",
        "compare_exchange(guard, value | DIRTY, value)",
        &[Store],
        "who meets the dirty bit of what is durable finds its commit so, and waits for nothing",
    ),
    justified(
        "pmwcas/seen.rs",
        "compare_exchange(guard, value | DIRTY, value)",
        &[DoneFirst],
        "recovery makes nothing of the dirty bit; readers do, and tests/pmwcas.rs misses the wait before it",
    ),
    justified(
        "bztree/image.rs",
        "if cell.compare_exchange(guard, raw, frozen.0)",
        &[DoneFirst],
        "a crash may leave a leaf frozen or not whatever the order: what replaces it freezes it once more",
    ),
    justified(
        "bztree/insert.rs",
        "let new = status.reserved().0 | raw & !VALUE_MASK; if raw & VALUE_MASK != status.0 || cell.compare_exchange(",
        &[DoneFirst],
        RESERVED,
    ),
    justified(
        "bztree/insert.rs",
        "Ok(cells[META].compare_exchange(guard, raw, reserved)",
        &[DoneFirst],
        RESERVED,
    ),
    justified(
        "bztree/layout.rs",
        "match cell.compare_exchange(guard, word, new)",
        &[DoneFirst],
        "a fingerprint counts only once its entry is visible, and that is durable later than both",
    ),
    justified("pmwcas/layout.rs", "self.status.publish(guard, free.encode())", &[DoneFirst], NO_PUBLISH),
    justified("pmwcas/layout.rs", "line[WRITER].publish(guard, writer(NOBODY))", &[DoneFirst], NO_PUBLISH),
    justified(
        "pmwcas/layout.rs",
        "line[WRITER].store(guard, writer(NOBODY))",
        &[Store],
        "a line that names an earlier operation was not written whole either; needed when a descriptor is filled again as \
         it is, after an operation that nobody saw: tests/pmwcas.rs does that",
    ),
    justified(
        "pmwcas/layout.rs",
        "line[WRITER].store(guard, writer(sequence))",
        &[Store],
        "a descriptor then counts as torn that is damaged: the tests in recover.rs damage some",
    ),
    justified(
        "pmwcas/recover.rs",
        "node.status.store(guard, Status { sequence, ..status }.encode())",
        &[Store],
        "needed where a crash comes while a descriptor is filled, and another while it is filled again: tests/pmwcas.rs \
         does that",
    ),
    justified("pmwcas/recover.rs", "cell.publish(guard, if succeeded", &[DoneFirst], ROLLED),
    justified("pmwcas/recover.rs", "cell.publish(guard, target.old)", &[DoneFirst], ROLLED),
    justified(
        "pmwcas/recover.rs",
        "pmwcas.node(guard, operation.index)?.status.publish(guard, free)",
        &[Flush, Store],
        "needed when the descriptor is filled again and that is crashed: tests/pmwcas.rs does that, where operations have \
         enough words",
    ),
    justified(
        "pmwcas/recover.rs",
        "status.publish(guard, free); } guard.drain()",
        &[Fence, Wait],
        "the open of the tree drains as well, for its epoch, through the same guard and before anybody has seen anything",
    ),
    justified(
        "pmwcas/recover.rs",
        "before the descriptor goes, it must be durable. guard.flush(cell)",
        &[Flush],
        "after a crash all that is left is durable; needed where only the process ended",
    ),
];

/// `masstree`.
pub(super) const MASSTREE: &[Justified] = &[
    justified(
        "masstree/epoch.rs",
        "listed.start(&self.guard, work.phase << LINES_BITS | all_lines(bytes))",
        &[Store],
        "the node is listed twice",
    ),
    justified(
        "masstree/in_line_log.rs",
        "state &= !TOUCHED; node.epoch.store(&self.guard, state)",
        &[Store],
        "the mark is of this process alone, and says that a fence is due, which came before and comes once more",
    ),
    justified("masstree/mod.rs", "clean.publish(&guard, checked(1))", &[Flush, Store], UNCLEAN),
    justified(
        "masstree/mod.rs",
        "clean.publish(&guard, checked(1)); Ok(guard.drain()",
        &[Fence, Wait],
        UNCLEAN,
    ),
    justified(
        "masstree/recover.rs",
        "the version is visible. node.epoch.store(&self.guard, self.epoch_word())",
        &[Store],
        TOUCHED_AGAIN,
    ),
    justified(
        "masstree/epoch.rs",
        "does now, while others work. guard.fence()",
        &[Fence, Swapped],
        "the fence before the epoch's number orders the same lines",
    ),
    justified("masstree/mod.rs", "clean.publish(&guard, checked(1))", &[DoneFirst], ALL_DURABLE),
    justified(
        "masstree/mod.rs",
        "clean.publish(&guard, checked(1)); Ok(guard.drain()",
        &[Swapped],
        ALL_DURABLE,
    ),
    justified("masstree/sweep.rs", "range[0].publish(&guard, 0)", &[DoneFirst], ALL_DURABLE),
    justified("masstree/sweep.rs", "range[0].publish(&guard, 0); } guard.drain()", &[Swapped], ALL_DURABLE),
    justified(
        "masstree/recover.rs",
        "range[1].publish(guard, checked(failed))",
        &[DoneFirst],
        RESTORED_AGAIN,
    ),
    justified(
        "masstree/recover.rs",
        "the set of failed epochs is full\")); } guard.fence()",
        &[Swapped],
        RESTORED_AGAIN,
    ),
    justified("masstree/recover.rs", "of an epoch that is. guard.fence()", &[Swapped], NOTHING_ALLOCATED),
    justified(
        "masstree/recover.rs",
        "would mean another epoch. guard.flush(&node.values); guard.fence()",
        &[Swapped],
        "what is put back follows from the set of failed epochs, which is durable before both; whether the next epoch has \
         begun by then, says nothing of it",
    ),
    justified(
        "masstree/mod.rs",
        "anchor.running.publish(&guard, checked(core.first)); guard.fence()",
        &[Swapped],
        NOTHING_ALLOCATED,
    ),
    justified("masstree/mod.rs", "this and the first epoch. guard.fence()", &[Swapped], BOTH_BEFORE),
    justified(
        "masstree/external_log.rs",
        "which may never come. self.guard.fence()",
        &[Swapped],
        NOT_IN_ROOTS,
    ),
    justified(
        "masstree/external_log.rs",
        "link.publish(&self.guard, checked(segment))",
        &[DoneFirst],
        NOT_IN_ROOTS,
    ),
    justified(
        "masstree/external_log.rs",
        "self.guard.flush_words(words); } self.guard.fence()",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified("masstree/external_log.rs", "could not be undone. self.guard.fence()", &[Swapped], NOT_LED_TO),
    justified(
        "masstree/in_line_log.rs",
        "mean another. self.guard.flush(&node.epoch); self.guard.fence()",
        &[Swapped],
        NOT_LED_TO,
    )
    .after("pool/src/space.rs"),
    justified(
        "pool/src/pool.rs",
        "State::HighWater.publish(&guard, u64::from(end))?; guard.fence()",
        &[Swapped],
        "bitmaps count only with the clean flag, which comes after both",
    ),
    justified("masstree/sweep.rs", "range[0].publish(&guard, 0)", &[Flush, Store], REMEMBERED),
    justified(
        "masstree/sweep.rs",
        "range[0].publish(&guard, 0); } guard.drain()",
        &[Fence, Wait],
        REMEMBERED,
    ),
];
