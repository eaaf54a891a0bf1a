//! The faults that no exploration notices, and why they do no harm.

use engines::engine::Engine;

/// The change at a place.
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

/// A change that no exploration notices, with the argument why that is right.
#[derive(Clone, Copy, Debug)]
pub struct Justified {
    /// The call that is changed: file from `crates/` on, function, name of the call, and which of
    /// the calls of that name in the function it is, from 1. Comments and formatting may change.
    /// `cargo xtask mutants` prints this of every fault that survives.
    pub place: &'static str,
    /// The changes that do no harm.
    pub changes: &'static [Change],
    /// For a swap, the end of the path of the first persist's file; empty for any.
    pub after: &'static str,
    /// The reason why the changes do no harm.
    pub why: &'static str,
}

impl Justified {
    const fn after(self, file: &'static str) -> Self {
        Self {
            after: file,
            ..self
        }
    }
}

const fn justified(
    place: &'static str,
    changes: &'static [Change],
    why: &'static str,
) -> Justified {
    Justified {
        place,
        changes,
        after: "",
        why,
    }
}

/// The justified faults of an engine.
pub(super) struct Known {
    /// The engine: another one of the same number, with other settings, has justifications of its
    /// own.
    pub(super) engine: Engine,
    /// The folders whose justifications its trials must all need.
    pub(super) folders: &'static [&'static str],
    /// The justifications of its own, and of engines like it.
    pub(super) justified: &'static [&'static [Justified]],
}

/// The engines with harmless faults. An engine without any need not be listed.
pub(super) const ENGINES: &[Known] = &[
    Known {
        engine: Engine::RNTREE,
        folders: &["engines/src/rntree/", "pool/src/", "medium/src/"],
        justified: &[RNTREE],
    },
    Known {
        engine: Engine::BZTREE,
        folders: &["engines/src/bztree/", "engines/src/pmwcas/"],
        justified: &[BZTREE],
    },
    Known {
        engine: Engine::MASSTREE,
        folders: &["engines/src/masstree/", "engines/src/kit/epochs"],
        justified: &[MASSTREE],
    },
    Known {
        engine: Engine::WBTREE,
        folders: OF_WBTREE,
        justified: &[PAGED, WBTREE],
    },
    Known {
        engine: crate::WBTREE_BITMAP_LEAVES,
        folders: OF_WBTREE,
        justified: &[PAGED, ONE_WORD],
    },
    Known {
        engine: crate::WBTREE_SLOT_ONLY,
        folders: OF_WBTREE,
        justified: &[PAGED, ONE_WORD, WBTREE_SLOT_ONLY],
    },
    Known {
        engine: Engine::CAWBT,
        folders: &["engines/src/cawbt/", "engines/src/kit/ids"],
        justified: &[CAWBT],
    },
    Known {
        engine: crate::SORTED_CHAIN,
        folders: &["lab/src/sorted_chain"],
        justified: &[SORTED_CHAIN],
    },
];

const NO_PUBLISH: &str = "no publish: this store initializes a node that is not reachable yet, in one persist with the \
                          rest of the node";
const TORN_TWIN: &str = "needed if a second store, after a recovery, is torn so that it completes the first one. That takes a \
                         crash after a crash: crates/sim/tests/models/twin_line.rs fails without the repair";
const NEVER_CUT: &str = "the mark that was there is higher, and the new one is above all that is in use; needed where the file is cut, \
                         and a Sim never is";
const NO_CLASS: &str = "recovery finds a slab without a class empty, and frees it";
const BITMAP: &str = "a bitmap that fails its check costs a mark, nothing else";
const CLEAN: &str = "a clean flag that is lost costs a mark, nothing else; the wait keeps the file from being truncated \
                     too early, and a Sim is never truncated";
const STATE_LINE: &str =
    "the words of the state line are flushed together, once more, before the fence";
const BEING_MADE: &str = "a pool that is being made: its state words do not depend on each other or on the second \
                          header, and nothing was allocated yet";
const ROLLED: &str = "the persist before it is the pool's own: the value of a word follows from the descriptor alone, which \
                      stays until the word is durable";
const UNCLEAN: &str = "the next open then treats an epoch as failed in which nothing was written";
const REMEMBERED: &str =
    "the next sweep searches once more for nodes of epochs that have none left";
const TOUCHED_AGAIN: &str = "alone, a node that is recovered once more at each touch stays as it is, and its first change \
                             stores an epoch; beside others its version would be made anew under them";
const ALL_DURABLE: &str = "what changed in the epoch, or was swept, is durable before either, and so there is nothing left \
                           to be put back";
const TWICE: &str = "the word is there twice, against damage; a crash loses neither";
const RESTORED_AGAIN: &str = "as long as the next epoch has not begun, each open restores the nodes, with any content of the set";
const NOTHING_ALLOCATED: &str =
    "nothing was allocated yet, so a pool that still says that it is clean is";
/// `waits_of_readers_are_found_missing` shows it.
const SEEN_ALONE: &str = "alone, a reader meets nothing late but splits and merges, which change nothing for it; beside a \
                          writer it is needed, and schedules show it";
const NOT_IN_ROOTS: &str = "this is planted where a tree is made, and that is in no root table before both; where a log of a \
                            tree in use gets a segment the fence between is needed, and two threads show it";
const BOTH_BEFORE: &str =
    "both persists come before the publish that needs them, and neither needs the other";
const NO_COPY_YET: &str = "nothing leads to the copy before a publish that comes after both";
const INVALID: &str = "a slot array may be called invalid at any time before it changes: the bitmap lists the same entries, \
                       and the redo log writes it together with a slot array that is as it was";

const EITHER_FIRST: &str = "the stores lie in one interval between fences: a crash may leave any of them, and recovery finishes the others";
const COUNTED: &str = "alone, a caller has waited for all that is counted; `what_is_counted_is_durable` fails without it";

const BEFORE_EPOCH_ENDS: &str =
    "the entry names an epoch, and counts only if that ends, which is after both";

const NOT_LED_TO: &str =
    "of what was allocated nothing leads there before the epoch ends, which is after both";

/// The code that all engines share: the pool, the medium, and the kit.
pub(super) const SHARED: &[Justified] = &[
    justified(
        "engines/src/kit/relocate.rs relocate fence 1",
        &[Swapped],
        NO_COPY_YET,
    ),
    justified(
        "medium/src/cell.rs Line::recover flush 1",
        &[Flush],
        TORN_TWIN,
    ),
    justified(
        "medium/src/cell.rs Line::recover fence 1",
        &[Fence],
        TORN_TWIN,
    ),
    justified(
        "pool/src/space/bitmaps.rs Space::write_bitmaps publish 1",
        &[Flush, Store],
        NO_CLASS,
    ),
    justified(
        "pool/src/space/bitmaps.rs Space::write_bitmaps publish 1",
        &[DoneFirst],
        BOTH_BEFORE,
    ),
    justified(
        "pool/src/space/bitmaps.rs Space::write_bitmaps store 1",
        &[Store],
        BITMAP,
    ),
    justified(
        "pool/src/space/bitmaps.rs Space::write_bitmaps store 2",
        &[Store],
        BITMAP,
    ),
    justified(
        "pool/src/space.rs Space::raise_high_water fence 1",
        &[Fence],
        "the thread that takes slabs fences through the same guard for their class before it publishes anything in them; the \
         fence is needed if one thread takes slabs below a mark that another thread has raised and not yet fenced",
    ),
    justified(
        "pool/src/space.rs Space::raise_high_water publish 1",
        &[DoneFirst],
        "slabs above the mark that was there have no class, or bitmaps that fail their check",
    ),
    justified(
        "pool/src/space.rs Space::raise_high_water fence 1",
        &[Swapped],
        "slabs above the mark that was there have no class, or bitmaps that fail their check",
    ),
    justified(
        "pool/src/space.rs Space::open_slab fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "pool/src/space.rs Space::allocate_span publish 1",
        &[DoneFirst],
        BOTH_BEFORE,
    ),
    justified(
        "pool/src/space.rs Space::allocate_span fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "pool/src/space.rs Space::allocate_span fence 1",
        &[Fence],
        "rntree and bztree fence through the same guard before they publish what they took; masstree publishes at the end of \
         an epoch, and needs it: crates/sim/tests/engines/masstree.rs fails without it",
    ),
    justified(
        "pool/src/roots.rs RootTable::enter fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "pool/src/roots.rs RootTable::enter publish 1",
        &[Store, Flush, DoneFirst],
        "how many slots were ever used tells zeros that a disk leaves there from a slot that was never used: no crash leaves any; \
         crates/everleaf/tests/everyday/bad_input.rs fails without it",
    ),
    justified(
        "pool/src/roots/slot.rs SlotCopies::publish_state publish 1",
        &[DoneFirst],
        "a tree is made once in this run; crates/sim/tests/models/pool_protocol.rs, which explores the root table, fails in seven \
         tests if the state comes before the fence",
    ),
    justified(
        "pool/src/roots.rs RootTable::enter drain 1",
        &[Wait],
        "the explorer makes a lost tree again, as empty as it was; the wait is needed by callers that are told the tree \
         exists: crates/sim/tests/models/pool_protocol.rs fails without it",
    ),
    justified(
        "pool/src/roots.rs RootTable::remove drain 1",
        &[Wait],
        "the explorer makes another tree at once, and waits for that; a caller that makes none needs this wait: \
         crates/sim/tests/models/pool_protocol.rs fails without it",
    ),
    justified(
        "pool/src/pool.rs Pool::try_open wait 1",
        &[Wait],
        "the next open makes a lost pool again, as empty as it was; every operation acknowledged in it waits for a later LSN",
    ),
    justified(
        "pool/src/pool.rs Pool::try_open fence 1",
        &[Fence, Swapped],
        BEING_MADE,
    ),
    justified(
        "pool/src/pool.rs Pool::try_open publish 1",
        &[Flush],
        STATE_LINE,
    ),
    justified(
        "pool/src/pool.rs Pool::try_open publish 1",
        &[DoneFirst],
        BEING_MADE,
    ),
    justified(
        "pool/src/pool.rs Pool::try_open publish 2",
        &[Flush],
        STATE_LINE,
    ),
    justified(
        "pool/src/pool.rs Pool::try_open publish 2",
        &[Store, DoneFirst],
        "the holder's process id is shown in error messages only, while that process lives",
    ),
    justified(
        "pool/src/space.rs Space::mend_high_water publish 1",
        &[Flush, Store, DoneFirst],
        "a mark that is damaged still is taken from the file's length once more",
    ),
    justified(
        "pool/src/pool.rs Shared::try_close publish 1",
        &[Flush, Store, DoneFirst],
        NEVER_CUT,
    ),
    justified(
        "pool/src/pool.rs Shared::try_close publish 2",
        &[Flush, Store],
        CLEAN,
    ),
    justified(
        "pool/src/pool.rs Shared::try_close drain 2",
        &[Fence, Wait],
        CLEAN,
    ),
];

const OF_WBTREE: &[&str] = &["engines/src/wbtree/", "engines/src/kit/paged/"];

/// The kit's tree below a node format.
const PAGED: &[Justified] = &[
    justified(
        "engines/src/kit/paged/log.rs Redo::commit fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/kit/paged/log.rs Redo::commit fence 3",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/kit/paged/log.rs Redo::write fence 1",
        &[Swapped],
        "a pool with a log to be finished was not closed, and so says already that it is not clean",
    )
    .after("pool/src/pool.rs"),
    justified(
        "engines/src/kit/paged/insert.rs Paged::store fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/kit/paged/recover.rs Paged::create fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
];

/// `wbtree`, whose slot arrays can be invalid.
const WBTREE: &[Justified] = &[
    justified(
        "engines/src/wbtree/change.rs Layout::invalidate publish 1",
        &[DoneFirst],
        INVALID,
    ),
    justified(
        "engines/src/wbtree/change.rs Layout::invalidate fence 1",
        &[Swapped],
        INVALID,
    ),
];

/// `wbtree` with leaves whose head is one word: a bitmap or a slot array.
const ONE_WORD: &[Justified] = &[justified(
    "engines/src/wbtree/change.rs Layout::add_entry fence 1",
    &[Swapped],
    BOTH_BEFORE,
)];

/// `wbtree` with slot-only nodes.
const WBTREE_SLOT_ONLY: &[Justified] = &[
    justified(
        "engines/src/kit/paged/change.rs Paged::write_node flush_words 2",
        &[Flush],
        "a node of three entries is one line, which is flushed with its head; a larger one needs it",
    ),
    justified(
        "engines/src/kit/paged/remove.rs Paged::erase end 1",
        &[Wait],
        SEEN_ALONE,
    ),
];

/// `cawbt`.
const CAWBT: &[Justified] = &[
    justified(
        "engines/src/cawbt/remove.rs CawbTree::take_out publish 2",
        &[DoneFirst],
        EITHER_FIRST,
    ),
    justified(
        "engines/src/cawbt/log.rs CawbTree::apply publish 3",
        &[DoneFirst],
        EITHER_FIRST,
    ),
    justified(
        "engines/src/cawbt/mod.rs CawbTree::figures settle 1",
        &[Wait],
        COUNTED,
    ),
    justified(
        "engines/src/cawbt/insert.rs CawbTree::replace fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/cawbt/insert.rs CawbTree::add fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/cawbt/log.rs CawbTree::carry_out fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/cawbt/relocate.rs CawbTree::relocate_way end 1",
        &[Wait],
        "a move changes no content, so no answer rests on it",
    ),
    justified(
        "engines/src/cawbt/relocate.rs CawbTree::relocate_below store_one 1",
        &[Fence],
        "in these scripts the move of a later leaf fences before the old node is used again. If no leaf moves later the \
         fence is needed: crates/sim/tests/engines/moved_last.rs fails without it",
    ),
    justified(
        "engines/src/cawbt/relocate.rs CawbTree::relocate_below fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/cawbt/load.rs CawbTree::load fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/cawbt/recover.rs CawbTree::create fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
];

/// The journal of batches.
pub(super) const BATCHES: &[Justified] = &[
    justified(
        "engines/src/kit/epochs/mod.rs TreeEpochs::flush_beside_others fence 1",
        &[Swapped],
        BEFORE_EPOCH_ENDS,
    ),
    justified(
        "engines/src/masstree/external_log.rs ExternalLog::append fence 1",
        &[Swapped],
        BEFORE_EPOCH_ENDS,
    ),
    justified(
        "engines/src/kit/epochs/words.rs write_failed fence 1",
        &[Swapped],
        "the next open drops the entry as well, for its epoch is in the set of failed ones",
    ),
    justified(
        "engines/src/batch/journal.rs publish fence 1",
        &[Swapped],
        NOTHING_ALLOCATED,
    )
    .after("pool/src/pool.rs"),
    justified(
        "engines/src/batch/journal.rs write_entry fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
];

/// The sorted chain.
const SORTED_CHAIN: &[Justified] = &[
    justified(
        "lab/src/sorted_chain.rs SortedChain::write fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "lab/src/sorted_chain.rs SortedChain::create fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
];

/// `rntree`.
const RNTREE: &[Justified] = &[
    justified(
        "engines/src/rntree/mod.rs RnTree::create fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/rntree/split.rs RnTree::build_behind init 1",
        &[DoneFirst],
        NO_PUBLISH,
    ),
    justified(
        "engines/src/rntree/relocate.rs RnTree::build_copy fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/rntree/split.rs RnTree::absorb fence 1",
        &[Swapped],
        NO_COPY_YET,
    ),
    justified(
        "engines/src/rntree/insert.rs RnTree::attempt fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/rntree/load.rs RnTree::write_slots init 1",
        &[DoneFirst],
        NO_PUBLISH,
    ),
    justified(
        "engines/src/rntree/load.rs RnTree::publish_with fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "pool/src/pool.rs Guard::keep_pace fence 1",
        &[Fence],
        "the fence before the line that publishes the load orders the same lines; this one is for the disk's pace",
    ),
    justified(
        "pool/src/pool.rs Guard::keep_pace fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/rntree/remove.rs RnTree::erase left_to_caller 1",
        &[Wait],
        SEEN_ALONE,
    ),
    justified(
        "engines/src/rntree/remove.rs RnTree::erase left_to_caller 2",
        &[Wait],
        SEEN_ALONE,
    ),
];

/// `bztree`, and what it is made of.
const BZTREE: &[Justified] = &[
    justified(
        "engines/src/bztree/recover.rs BzTree::create fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/bztree/load.rs BzTree::load fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/pmwcas/execute.rs Pmwcas::run_in fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/pmwcas/recover.rs Pmwcas::open fence 1",
        &[Swapped],
        ROLLED,
    ),
    justified(
        "engines/src/pmwcas/execute.rs Pmwcas::flush_ended flush 1",
        &[Flush],
        "every guard here fences what it flushed; needed where a guard ends before a fence",
    ),
    justified(
        "pool/src/pool.rs Shared::try_close fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/pmwcas/seen.rs clean compare_exchange 1",
        &[Store],
        "a reader that meets the dirty bit of a durable word finds the commit durable and does not wait",
    ),
    justified(
        "engines/src/pmwcas/seen.rs clean compare_exchange 1",
        &[DoneFirst],
        "recovery makes nothing of the dirty bit; readers do, and tests/pmwcas.rs misses the wait before it",
    ),
    justified(
        "engines/src/bztree/image.rs BzTree::freeze compare_exchange 1",
        &[DoneFirst],
        "in either order a crash may leave a leaf frozen or not: the operation that replaces it freezes it once more",
    ),
    justified(
        "engines/src/bztree/insert.rs BzTree::reserve compare_exchange 1",
        &[DoneFirst],
        "an entry that a crash left reserved is used again if the status does not count it, and ended if it does",
    ),
    justified(
        "engines/src/pmwcas/layout.rs DescriptorNode::format publish 1",
        &[DoneFirst],
        NO_PUBLISH,
    ),
    justified(
        "engines/src/pmwcas/layout.rs DescriptorNode::forget_writers publish 1",
        &[DoneFirst],
        NO_PUBLISH,
    ),
    justified(
        "engines/src/pmwcas/layout.rs DescriptorNode::fill store 2",
        &[Store],
        "a line that names an earlier operation was not written whole either; needed when a descriptor is filled again as \
         it is, after an operation that no other thread saw: tests/pmwcas.rs does that",
    ),
    justified(
        "engines/src/pmwcas/layout.rs DescriptorNode::fill store 6",
        &[Store],
        "a descriptor then counts as torn that is damaged: the tests in recover.rs damage some",
    ),
    justified(
        "engines/src/pmwcas/recover.rs Pmwcas::skip_numbers store 1",
        &[Store],
        "needed where a crash comes while a descriptor is filled, and another while it is filled again: tests/pmwcas.rs \
         does that",
    ),
    justified(
        "engines/src/pmwcas/recover.rs roll publish 1",
        &[DoneFirst],
        ROLLED,
    ),
    justified(
        "engines/src/pmwcas/recover.rs roll publish 2",
        &[DoneFirst],
        ROLLED,
    ),
    justified(
        "engines/src/pmwcas/recover.rs Pmwcas::open publish 1",
        &[Flush, Store],
        "needed when the descriptor is filled again and that is crashed: tests/pmwcas.rs does that, where operations have \
         enough words",
    ),
    justified(
        "engines/src/pmwcas/recover.rs Pmwcas::open drain 1",
        &[Fence],
        "needed when the descriptor is filled again and that is crashed: tests/pmwcas.rs does that, where operations have \
         enough words",
    ),
    justified(
        "engines/src/pmwcas/recover.rs Pmwcas::open drain 1",
        &[Wait],
        "what fills the descriptor again comes later in the log: a crash that loses what was rolled loses that, too, and the \
         next open rolls it again",
    ),
    justified(
        "engines/src/pmwcas/recover.rs roll flush 1",
        &[Flush],
        "after a crash all that is left is durable; needed where only the process ended: tests/pmwcas.rs does that",
    ),
];

/// `masstree`.
const MASSTREE: &[Justified] = &[
    justified(
        "engines/src/kit/epochs/mod.rs TreeEpochs::list_new start 1",
        &[Store],
        "the node is listed twice",
    ),
    justified(
        "engines/src/masstree/in_line_log.rs TreeAccess::prepare store 1",
        &[Store],
        "the mark is of this process alone, and says that a fence is due, which came before and comes once more",
    ),
    justified(
        "engines/src/kit/epochs/words.rs write_clean publish 1",
        &[Flush, Store],
        UNCLEAN,
    ),
    justified(
        "engines/src/kit/epochs/words.rs write_clean fence_at_rest 1",
        &[Fence],
        UNCLEAN,
    ),
    justified(
        "engines/src/kit/epochs/words.rs write_clean wait 1",
        &[Wait],
        UNCLEAN,
    ),
    justified(
        "engines/src/masstree/recover.rs Core::recover_node store 1",
        &[Store],
        TOUCHED_AGAIN,
    ),
    justified(
        "engines/src/kit/epochs/mod.rs TreeEpochs::flush_beside_others fence 1",
        &[Fence, Swapped],
        "the fence before the epoch's number orders the same lines",
    ),
    justified(
        "engines/src/kit/epochs/words.rs write_clean publish 1",
        &[DoneFirst],
        ALL_DURABLE,
    ),
    justified(
        "engines/src/kit/epochs/words.rs write_clean fence_at_rest 1",
        &[Swapped],
        ALL_DURABLE,
    ),
    justified(
        "engines/src/masstree/core.rs Core::note_swept publish_twice 1",
        &[DoneFirst],
        ALL_DURABLE,
    ),
    justified(
        "engines/src/masstree/core.rs Core::note_swept fence 1",
        &[Swapped],
        ALL_DURABLE,
    ),
    justified(
        "engines/src/kit/epochs/words.rs write_failed publish 1",
        &[DoneFirst],
        RESTORED_AGAIN,
    ),
    justified(
        "engines/src/kit/epochs/words.rs write_failed fence 1",
        &[Swapped],
        RESTORED_AGAIN,
    ),
    justified(
        "engines/src/masstree/external_log.rs ExternalLog::restore fence 1",
        &[Swapped],
        NOTHING_ALLOCATED,
    ),
    justified(
        "engines/src/masstree/recover.rs Core::recover_border fence 1",
        &[Swapped],
        "what is restored follows from the set of failed epochs, which is durable before both; whether the next epoch has \
         begun by then, says nothing of it",
    ),
    justified(
        "pool/src/space/release.rs Space::compact publish 1",
        &[Flush, Store],
        NEVER_CUT,
    ),
    justified(
        "pool/src/space/release.rs Space::compact fence 1",
        &[Fence],
        NEVER_CUT,
    ),
    justified(
        "engines/src/masstree/external_log.rs ExternalLog::add_segment publish 1",
        &[Store],
        TWICE,
    ),
    justified(
        "engines/src/masstree/allocator.rs TreeSpace::new_run store 3",
        &[Store],
        "it names the tree of the run; only a salvage that finds the chain of runs damaged reads it",
    ),
    justified(
        "engines/src/masstree/core.rs Core::create fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/masstree/external_log.rs ExternalLog::begin fence 1",
        &[Swapped],
        NOT_IN_ROOTS,
    ),
    justified(
        "engines/src/masstree/external_log.rs ExternalLog::add_segment publish 1",
        &[DoneFirst],
        NOT_IN_ROOTS,
    ),
    justified(
        "engines/src/masstree/external_log.rs ExternalLog::add_segment fence 1",
        &[Swapped],
        BOTH_BEFORE,
    ),
    justified(
        "engines/src/masstree/external_log.rs ExternalLog::append fence 1",
        &[Swapped],
        NOT_LED_TO,
    ),
    justified(
        "engines/src/masstree/in_line_log.rs TreeAccess::prepare fence 1",
        &[Swapped],
        NOT_LED_TO,
    )
    .after("pool/src/space.rs"),
    justified(
        "pool/src/pool.rs Shared::try_close fence 1",
        &[Swapped],
        "bitmaps count only with the clean flag, which comes after both",
    ),
    justified(
        "engines/src/masstree/core.rs Core::note_swept publish_twice 1",
        &[Flush, Store],
        REMEMBERED,
    ),
    justified(
        "engines/src/masstree/core.rs Core::note_swept fence 1",
        &[Fence],
        REMEMBERED,
    ),
    justified(
        "engines/src/masstree/core.rs Core::note_swept settle 1",
        &[Wait],
        REMEMBERED,
    ),
    justified(
        "engines/src/masstree/external_log.rs ExternalLog::add_segment store 2",
        &[Store],
        TWICE,
    ),
    justified(
        "engines/src/kit/epochs/of_pool.rs PoolEpochs::settle settle_without_waking 1",
        &[Wait],
        "explorations hold no tickets, to which the epoch counts as durable then; in tests/masstree/everyday.rs \
         an_epoch_that_another_tree_ends_is_not_durable_if_the_disk_fails needs it",
    ),
];
