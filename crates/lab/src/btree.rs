//! The B+-tree that the CAWBT paper compares with: sorted nodes whose entries shift, one flush for
//! each shift, a redo log.
//!
//! After Lee et al.: *CAWBT: NVM-Based B+Tree Index Structure Using Cache Line Sized Atomic Write*,
//! IEICE Transactions 2019, which calls it "B+tree, consistency ensured". Its degree, 4, 7 or 15 in
//! the paper, is chosen when a tree is made. On plain memory ([`Dax::plain`]) nothing is flushed,
//! fenced or logged: there it is the paper's B+-tree without consistency.
//!
//! ## Layout
//!
//! ```text
//! node of degree n, 16 + 16 n bytes (256 for 15)
//!   0  state    bits 0 to 7: how many entries; bits 8 to 15: 0, or 1 + the position from which on entries are shifting
//!   8  link     of a leaf the next leaf, of an inner node the first child
//!  16  entries  in ascending order: key word and value, or separator and child
//! ```
//!
//! Behind the entries of inner nodes whose keys can tie: n tails. The tree around the nodes is
//! [`paged`](engines::kit::paged).
//!
//! ## Invariants
//!
//! 1. If a node is not shifting, all of its entries are live and in order.
//! 2. If a leaf is shifting, all entries except one are live, and these are in order: `dead_entry`
//!    finds the dead one. Only a crash leaves that to readers. The next writer of the leaf makes it
//!    whole.
//! 3. An entry lies in one line. A shift to the right stores the value first, a shift to the left
//!    the key.
//!
//! ## Commit points
//!
//! | operation | persists, where n entries shift | commit point |
//! | --- | --- | --- |
//! | insert at the end of a leaf | 2: entry; state | the state |
//! | insert elsewhere | n + 3: the last entry behind itself; state (shifting); n - 1 shifts; entry; state | the second state |
//! | remove of the last entry | 1: state | the state |
//! | remove elsewhere | n + 2: state (shifting); n shifts; state | the first state |
//! | update | 1: value; with records 2: record; value | the value |
//!
//! Inner nodes change by the redo log alone: it takes all words of the shift, so it grows with the
//! degree.
//!
//! ## Recovery and concurrency
//!
//! Those of [`paged`](engines::kit::paged): the redo log; one writer at a time, readers beside each
//! other. The paper has a single thread.
//!
//! ## Where this departs from the paper
//!
//! The paper does not say how to distinguish a shift that a crash cuts off from a complete one: the
//! position in the state word is ours, and costs two of the persists above. Nodes that are full
//! split before an insert, the last leaf so that it keeps most of its entries.

use engines::index::WordCodec;
use engines::kit::paged::{
    Format, HEAD_WORDS_MAX, Item, NodeKind, NodeShape, Order, Paged, PagedNode, Redo,
};
use engines::kit::prelude::*;
use medium::Dax;

/// The B+-tree in the list of engines.
pub(crate) static ENTRY: EngineEntry = EngineEntry {
    id: engines::engine::OUTSIDE_IDS + 1,
    name: "btree",
    paper: "CAWBT, IEICE Transactions 2019: the B+-tree with consistency that it compares with",
    contract: Contract::Shifting(Persists {
        insert: 2,
        update: 2,
        update_words: 1,
        remove: 1,
    }),
    notices_damage: &[],
    marks_later: true,
    stores_lines: false,
    is_trie: false,
    room_per_write: 4_096,
    settings: &[Setting {
        name: "degree",
        help: "the most entries of a node; the paper has 4, 7 and 15",
        values: Values::Number(DEGREE_MIN, DEGREE_MAX),
        is_fixed: true,
        is_hidden: false,
    }],
    full: Nodes {
        leaf_entries: 15,
        children: 16,
        settings: &[("degree", 15)],
    },
    small: Nodes {
        leaf_entries: 4,
        children: 5,
        settings: &[("degree", 4)],
    },
    explored: &[],
    settings_of: BTree::<Dax, WordCodec>::settings_of,
    media: media_of!(BTree),
};

/// An inner node that is split leaves two children on either side.
const DEGREE_MIN: u64 = 3;
const DEGREE_MAX: u64 = 15;

/// A B+-tree with sorted nodes. Immediate durability.
pub type BTree<M, C> = Paged<M, C, Sorted>;

/// Nodes whose entries lie in the order of their keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sorted {
    degree: usize,
}

/// The state of a node with `count` entries.
const fn state(count: usize, shifting_from: Option<usize>) -> u64 {
    let shifting = match shifting_from {
        Some(position) => position as u64 + 1,
        None => 0,
    };
    count as u64 | shifting << 8
}

/// How many entries a node has, and the position from which on they are shifting.
#[inline(always)]
fn state_of<M: Medium>(guard: &Guard<'_, M>, node: &PagedNode<'_>) -> (usize, Option<usize>) {
    let state = node.head[0].load(guard);
    let count = ((state & 0xff) as usize).min(node.entries.len());
    (
        count,
        ((state >> 8 & 0xff) as usize)
            .checked_sub(1)
            .filter(|from| *from < count),
    )
}

/// The dead entry of a shifting leaf.
///
/// While entries move past each other, one of them is that of a neighbour already, or has its value
/// and the other neighbour's key. In trees of words keys are unique, in trees of records values
/// are, so no live entry looks like that, unless the one beside it is the same. If there is none,
/// the entry where the shift ends is being inserted or removed.
fn dead_entry<M: Medium>(
    guard: &Guard<'_, M>,
    leaf: &PagedNode<'_>,
    count: usize,
    from: usize,
) -> usize {
    let at = |index: usize| leaf.entries[index].each_ref().map(|word| word.load(guard));
    let is_passing = |index: &usize| {
        let [before, value_before] = at(index - 1);
        let [word, value] = at(*index);
        value == value_before && (word == before || index + 1 < count && word == at(index + 1)[0])
    };
    (from + 1..count).find(is_passing).unwrap_or(from)
}

/// Stores and flushes the state of a leaf; durable at the LSN.
fn publish_state<M: Medium>(guard: &Guard<'_, M>, leaf: &PagedNode<'_>, state: u64) -> Lsn {
    leaf.head[0].publish(guard, state);
    guard.fence()
}

/// Shifts the entries behind a position of a shifting leaf over it, then ends the shift; durable at
/// the LSN.
fn shift_left<M: Medium>(
    guard: &Guard<'_, M>,
    leaf: &PagedNode<'_>,
    position: usize,
    count: usize,
) -> Lsn {
    for pair in leaf.entries[position..count].windows(2) {
        let [[word, value], next] = [&pair[0], &pair[1]];
        word.store(guard, next[0].load(guard));
        value.store(guard, next[1].load(guard));
        guard.flush(&pair[0]);
        // PERSIST: the entry is ordered before the next one is overwritten; if this is lost, the
        // next one would be nowhere.
        guard.fence();
    }
    // PERSIST: all shifts are ordered before; if this is lost, the last entry is dead.
    publish_state(guard, leaf, state(count - 1, None))
}

impl Format for Sorted {
    const ENGINE: (u16, &'static str) = (ENTRY.id, ENTRY.name);
    /// All words of a parent's entries; two words of the node that is split, two counts.
    const LOG_WRITES_MAX: usize = 3 * DEGREE_MAX as usize + 3;

    fn of_root(word: u64) -> Option<Self> {
        (DEGREE_MIN..=DEGREE_MAX).contains(&word).then_some(Self {
            degree: word as usize,
        })
    }

    fn to_root(self) -> u64 {
        self.degree as u64
    }

    fn of_settings(settings: &Settings) -> Result<Self> {
        let degree = settings.get(0).unwrap_or(DEGREE_MAX);
        Self::of_root(degree).ok_or_else(|| {
            ErrorKind::Setting {
                what: format!("btree: no node has degree {degree}"),
            }
            .into()
        })
    }

    fn to_settings(self) -> Settings {
        Settings::NONE.with(0, self.to_root())
    }

    #[inline(always)]
    fn shape(self, _kind: NodeKind) -> NodeShape {
        NodeShape {
            head_words: 2,
            entries: self.degree,
            is_ordered: true,
        }
    }

    #[inline(always)]
    fn live<M: Medium>(self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> u64 {
        let (count, shifting_from) = state_of(guard, node);
        let all = (1 << count) - 1;
        shifting_from.map_or(all, |from| {
            all & !(1 << dead_entry(guard, node, count, from))
        })
    }

    #[inline(always)]
    fn order<M: Medium>(self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> Option<Order> {
        let (count, shifting_from) = state_of(guard, node);
        shifting_from.is_none().then(|| Order::of(0..count))
    }

    #[inline(always)]
    fn slot<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        position: usize,
    ) -> Option<usize> {
        state_of(guard, node).1.is_none().then_some(position)
    }

    fn head(self, _kind: NodeKind, order: &Order) -> [u64; HEAD_WORDS_MAX] {
        let mut head = [0; HEAD_WORDS_MAX];
        head[0] = state(order.count(), None);
        head
    }

    fn insert<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        order: Order,
        position: usize,
        item: Item,
    ) -> Lsn {
        let count = order.count();
        if position < count {
            leaf.write_item(guard, count, leaf.item(guard, count - 1));
            // PERSIST: the entry behind the last one is ordered before the state that counts it; if
            // this is lost, it is no entry.
            guard.fence();
            publish_state(guard, leaf, state(count + 1, Some(position)));
            for pair in leaf.entries[position..count].windows(2).rev() {
                let [previous, [word, value]] = [&pair[0], &pair[1]];
                value.store(guard, previous[1].load(guard));
                word.store(guard, previous[0].load(guard));
                guard.flush(&pair[1]);
                // PERSIST: the entry is ordered before the previous one is overwritten; if it were
                // lost, the previous one would be nowhere.
                guard.fence();
            }
        }
        // The value is stored first, as in a shift: with a new key and the old value this entry
        // would be taken for a neighbour's.
        let [word, value] = &leaf.entries[position];
        value.store(guard, item.value);
        word.store(guard, item.word);
        guard.flush(&leaf.entries[position]);
        // PERSIST: the entry and its record are ordered before the state that says that the entry
        // is live; if this is lost, it is not there.
        guard.fence();
        publish_state(guard, leaf, state(count + 1, None))
    }

    fn remove<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        order: Order,
        position: usize,
        _slot: usize,
    ) -> Lsn {
        let count = order.count();
        if position + 1 < count {
            // PERSIST: nothing must precede; if this is lost, the entry is still there.
            publish_state(guard, leaf, state(count, Some(position)));
        }
        shift_left(guard, leaf, position, count)
    }

    fn insert_separator<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        mut order: Order,
        position: usize,
        separator: Item,
        redo: &mut Redo,
    ) {
        let count = order.count();
        order.insert(count, count);
        let shifted = (position..count).map(|slot| (slot + 1, node.item(guard, slot)));
        set_items(
            guard,
            node,
            shifted.chain([(position, separator)]),
            &order,
            redo,
        );
    }

    fn remove_separator<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        mut order: Order,
        position: usize,
        redo: &mut Redo,
    ) {
        let shifted = (position + 1..order.count()).map(|slot| (slot - 1, node.item(guard, slot)));
        order.remove(order.count() - 1);
        set_items(guard, node, shifted, &order, redo);
    }

    fn mend<M: Medium>(self, guard: &Guard<'_, M>, leaf: &PagedNode<'_>, change: impl FnOnce()) {
        if let (count, Some(from)) = state_of(guard, leaf) {
            change();
            shift_left(guard, leaf, dead_entry(guard, leaf, count, from), count);
        }
    }

    fn fault<M: Medium>(self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> Option<&'static str> {
        let stored = node.head[0].load(guard);
        let (count, shifting_from) = state_of(guard, node);
        let is_sound = node.kind == NodeKind::Leaf || shifting_from.is_none();
        (!is_sound || state(count, shifting_from) != stored).then_some("a state that no node has")
    }
}

/// Adds the new entries of an inner node, and its new head, to the redo log.
fn set_items<M: Medium>(
    guard: &Guard<'_, M>,
    node: &PagedNode<'_>,
    items: impl Iterator<Item = (usize, Item)>,
    order: &Order,
    redo: &mut Redo,
) {
    for (slot, item) in items {
        redo.set(guard, &node.entries[slot][0], item.word);
        redo.set(guard, &node.entries[slot][1], item.value);
        if let Some(tail) = node.tails.get(slot) {
            redo.set(guard, tail, item.tail);
        }
    }
    redo.set(guard, &node.head[0], state(order.count(), None));
}
