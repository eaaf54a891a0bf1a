//! Sorted chain: the smallest complete engine on the kit, of no paper. Sorted leaves in a chain,
//! each with room for two images, one lock. The conformance suite plants its flaws around it.
//!
//! ## Layout
//!
//! ```text
//! leaf, 24 + 32 * capacity bytes               image
//!   0  bits 0..8 count, 8 the valid image,       0  the next leaf; 0 after the last
//!      32..64 CRC-32C of these and the image     8  entries in ascending order of keys, two words each
//!   8  the images
//! ```
//!
//! ## Invariants
//!
//! 1. The chain from the first leaf, which never changes, reaches every entry exactly once, in
//!    ascending order.
//! 2. A leaf that is not the first has at least one entry.
//! 3. Memory holds a copy of all leaves, under the lock: reads do not touch the pool.
//!
//! ## Commit points and recovery
//!
//! Every change writes the image that is not valid, fences, and makes it valid by one store of the
//! leaf's header: two persists, also if leaves split or merge. The image of a split names a new
//! leaf; that of a merge has the entries of the next leaf, and names the one behind it. Recovery
//! follows the chain and verifies every leaf: O(n). Leaves and records that a crash has cut off are
//! free after the mark.

use std::{marker::PhantomData, ops::RangeInclusive};

use engines::kit::prelude::*;
use engines::medium::sync::{Mutex, MutexGuard};

pub(crate) static ENTRY: EngineEntry = EngineEntry {
    id: engines::engine::OUTSIDE_IDS,
    name: "sorted-chain",
    paper: "none: the smallest engine on the kit",
    contract: Contract::Immediate(Persists {
        insert: 2,
        update: 2,
        update_words: 2,
        remove: 2,
    }),
    notices_damage: &engines::engine::CodecKind::ALL,
    marks_later: false,
    stores_lines: false,
    is_trie: false,
    room_per_write: 4_096,
    settings: &[Setting::leaf_entries(2, 255)],
    full: Nodes {
        leaf_entries: 56,
        children: 1,
        settings: &[("leaf-entries", 56)],
    },
    small: Nodes {
        leaf_entries: 4,
        children: 1,
        settings: &[("leaf-entries", 4)],
    },
    explored: &[],
    settings_of: |root| Ok(Settings::NONE.with(0, root.words[ROOT_CAPACITY])),
    media: media_of!(SortedChain),
};

/// Root words: the offset of the first leaf, and the most entries of a leaf.
const ROOT_FIRST: usize = 0;
const ROOT_CAPACITY: usize = 1;
/// The bit of a leaf's header that selects the valid image.
const SECOND: u64 = 1 << 8;

/// A sorted chain. Immediate durability.
pub struct SortedChain<M: Medium, C: Codec> {
    pool: Pool<M>,
    first: u64,
    capacity: usize,
    state: Mutex<State>,
    codec: PhantomData<fn() -> C>,
}

#[derive(Default)]
struct State {
    leaves: Vec<Leaf>,
    /// The LSN at which all writes are durable.
    lsn: Lsn,
}

/// A leaf; `which` is [`SECOND`] or 0. The first one covers all keys below the second one's lowest,
/// and may be empty.
#[derive(Clone)]
struct Leaf {
    offset: u64,
    which: u64,
    next: u64,
    entries: Vec<EntryWords>,
}

/// Where a key belongs.
struct LocatedKey {
    /// The position of the leaf that covers the key.
    leaf: usize,
    /// The key's position among the entries of the leaf.
    index: usize,
    /// Its entry, if the key is there.
    entry: Option<EntryWords>,
}

impl Leaf {
    fn header(&self) -> u64 {
        let header = self.entries.len() as u64 | self.which;
        let words = [header, self.next]
            .into_iter()
            .chain(self.entries.iter().flatten().copied());
        header
            | u64::from(words.fold(0, |sum, word| {
                crc32c::crc32c_append(sum, &word.to_le_bytes())
            })) << 32
    }
}

impl<M: Medium, C: Codec> SortedChain<M, C> {
    const ENGINE: (u16, &'static str) = (ENTRY.id, ENTRY.name);

    /// The tree at a root, its leaves not read.
    fn unopened(pool: &Pool<M>, words: &[u64; ROOT_WORDS]) -> Self {
        let capacity = words[ROOT_CAPACITY].clamp(2, 255) as usize;
        let state = Mutex::new(State::default());
        Self {
            pool: pool.clone(),
            first: words[ROOT_FIRST],
            capacity,
            state,
            codec: PhantomData,
        }
    }

    /// Reads the leaves, and marks the allocations that they reach if the pool asks for that.
    fn recover(self) -> Result<Self> {
        let guard = self.pool.pin();
        let mut leaves = Vec::new();
        chain(self.first, |offset| {
            let leaf = self.read(&guard, offset)?;
            if self.pool.needs_mark() {
                self.pool.mark(offset)?;
                leaf.entries
                    .iter()
                    .try_for_each(|words| C::mark(&self.pool, *words))?;
            }
            leaves.push(leaf);
            Ok(leaves[leaves.len() - 1].next)
        })?;
        self.lock(&guard).leaves = leaves;
        drop(guard);
        Ok(self)
    }

    fn lock(&self, guard: &Guard<'_, M>) -> MutexGuard<'_, State> {
        guard.interleave(&self.state);
        self.state.lock()
    }

    /// Ends an operation that needs the lock no longer. Returns the LSN at which the state is
    /// durable: the caller of the operation waits for it.
    fn end(guard: &Guard<'_, M>, state: MutexGuard<'_, State>) -> Lsn {
        let lsn = state.lsn;
        drop(state);
        guard.left_to_caller(lsn)
    }

    fn leaf_bytes(&self) -> usize {
        8 * (1 + 2 * (1 + 2 * self.capacity))
    }

    /// A leaf's header, and the words of an image.
    fn words<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        offset: u64,
        which: u64,
    ) -> Result<(&'g Word, &'g [Word])> {
        let words = guard.words(offset, self.leaf_bytes() / 8)?;
        let (first, second) = words[1..].split_at(1 + 2 * self.capacity);
        Ok((&words[0], if which == 0 { first } else { second }))
    }

    fn read(&self, guard: &Guard<'_, M>, offset: u64) -> Result<Leaf> {
        let header = self.words(guard, offset, 0)?.0.load(guard);
        let words = self.words(guard, offset, header & SECOND)?.1;
        let pairs = words[1..].chunks_exact(2).take((header & 0xff) as usize);
        let entries = pairs
            .map(|pair| [pair[0].load(guard), pair[1].load(guard)])
            .collect();
        let leaf = Leaf {
            offset,
            which: header & SECOND,
            next: words[0].load(guard),
            entries,
        };
        if leaf.header() == header {
            Ok(leaf)
        } else {
            Err(Error::corrupt(offset, "a leaf fails its check"))
        }
    }

    /// Writes and flushes a leaf. If the chain reaches it, a crash leaves either the old content or
    /// the new one until the caller has fenced.
    fn write(&self, guard: &Guard<'_, M>, leaf: &Leaf, is_reached: bool) -> Result<()> {
        let (header, words) = self.words(guard, leaf.offset, leaf.which)?;
        let content = [leaf.next]
            .into_iter()
            .chain(leaf.entries.iter().flatten().copied());
        words
            .iter()
            .zip(content)
            .for_each(|(word, value)| word.store(guard, value));
        guard.flush_words(&words[..=2 * leaf.entries.len()]);
        if is_reached {
            // PERSIST: the image, and the leaves and records that it leads to, are ordered before
            // the header; if this is lost, the other image is valid.
            guard.fence();
        }
        header.publish(guard, leaf.header());
        Ok(())
    }

    /// The position of the leaf that covers the greatest keys below a key, and of the one that
    /// covers the key.
    fn positions(guard: &Guard<'_, M>, leaves: &[Leaf], key: C::Key<'_>) -> Result<[usize; 2]> {
        let lowest = |position: usize| leaves[position + 1].entries[0];
        let (below, is_lowest) = rank::<M, C>(guard, key, leaves.len() - 1, lowest)?;
        Ok([below, below + usize::from(is_lowest)])
    }

    fn locate(guard: &Guard<'_, M>, state: &State, key: C::Key<'_>) -> Result<LocatedKey> {
        let [_, leaf] = Self::positions(guard, &state.leaves, key)?;
        let entries = &state.leaves[leaf].entries;
        let (index, is_there) = rank::<M, C>(guard, key, entries.len(), |index| entries[index])?;
        Ok(LocatedKey {
            leaf,
            index,
            entry: is_there.then(|| entries[index]),
        })
    }

    /// Calls `visit` with the entry of a key.
    fn find<R>(
        &self,
        key: C::Key<'_>,
        visit: impl FnOnce(&Guard<'_, M>, EntryWords) -> Result<R>,
    ) -> Result<Observed<Option<R>>> {
        let guard = self.pool.pin();
        let state = self.lock(&guard);
        let place = Self::locate(&guard, &state, key)?;
        let lsn = Self::end(&guard, state);
        let value = match place.entry {
            Some(words) => Some(visit(&guard, words)?),
            None => None,
        };
        Ok(Observed { value, lsn })
    }

    fn find_many(
        &self,
        keys: &[C::Key<'_>],
        mut visit: impl FnMut(&Guard<'_, M>, usize, Option<EntryWords>) -> Result<()>,
    ) -> Result<Lsn> {
        let mut lsn = Lsn::DURABLE;
        for (index, key) in keys.iter().enumerate() {
            // Pinned, so that a record is not reused before it is read.
            let guard = self.pool.pin();
            let found = self.find(*key, |_, words| Ok(words))?;
            visit(&guard, index, found.value)?;
            lsn = lsn.max(found.lsn);
        }
        Ok(lsn)
    }

    fn store(
        &self,
        key: C::Key<'_>,
        value: C::Value<'_>,
        when: Condition<C::Value<'_>>,
    ) -> Result<Written> {
        self.set(key, Some(value), when)
    }

    fn erase(&self, key: C::Key<'_>, when: Condition<C::Value<'_>>) -> Result<Written> {
        self.set(key, None, when)
    }

    /// Sets the value of a key, or removes the key, if `when` holds.
    fn set(
        &self,
        key: C::Key<'_>,
        to: Option<C::Value<'_>>,
        when: Condition<C::Value<'_>>,
    ) -> Result<Written> {
        let guard = self.pool.pin();
        let mut new = to.map(|value| Encoded::<M, C>::new(&guard, key, value, when));
        let mut state = self.lock(&guard);
        let LocatedKey {
            leaf: position,
            index,
            entry,
        } = Self::locate(&guard, &state, key)?;
        let held = holds::<M, C>(&guard, when, entry)?;
        if held && (entry.is_some() || new.is_some()) {
            let words = match &mut new {
                Some(new) => Some(new.words()?),
                None => None,
            };
            let mut leaf = state.leaves[position].clone();
            let replaced = index..index + usize::from(entry.is_some());
            leaf.entries.splice(replaced, words);
            self.replace(&guard, &mut state, position, leaf)?;
            if let Some(new) = &mut new {
                new.published();
            }
        }
        let lsn = Self::end(&guard, state);
        if held && let Some(old) = entry {
            C::retire(&guard, old);
        }
        Ok(Written { held, lsn })
    }

    /// Gives a leaf these entries. Splits it if they are too many; merges it with the leaf before
    /// if both have become short.
    fn replace(
        &self,
        guard: &Guard<'_, M>,
        state: &mut State,
        at: usize,
        mut leaf: Leaf,
    ) -> Result<()> {
        let mut space = Unpublished::new(guard);
        let mut right = None;
        let mut freed = None;
        let count = leaf.entries.len();
        if count > self.capacity {
            let entries = leaf.entries.split_off(count / 2);
            let next = leaf.next;
            leaf.next = space.allocate(self.leaf_bytes())?;
            let new = right.insert(Leaf {
                offset: leaf.next,
                which: 0,
                next,
                entries,
            });
            self.write(guard, new, false)?;
        } else if let Some(left) = at.checked_sub(1).map(|before| &state.leaves[before])
            && (count == 0 || 2 * (left.entries.len() + count) <= self.capacity)
        {
            let entries = [&left.entries[..], &leaf.entries[..]].concat();
            freed = Some(leaf.offset);
            leaf = Leaf {
                next: leaf.next,
                entries,
                ..*left
            };
        }
        leaf.which ^= SECOND;
        self.write(guard, &leaf, true)?;
        state.lsn = guard.fence();
        space.published();
        state.leaves.splice(
            at - usize::from(freed.is_some())..=at,
            [leaf].into_iter().chain(right),
        );
        // The leaf is freed at once: reads do not touch the pool, so no reader can be in it.
        if let Some(offset) = freed {
            guard.free(offset);
        }
        Ok(())
    }
}

impl<M: Medium, C: Codec> Leaves<M, C> for SortedChain<M, C> {
    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    fn copy_leaf(
        &self,
        guard: &Guard<'_, M>,
        goal: Goal<'_>,
        direction: Direction,
        copy: &mut LeafCopy,
    ) -> Result<Lsn> {
        let state = self.lock(guard);
        let leaves = &state.leaves;
        let position =
            goal.position::<C>(leaves.len(), |key| Self::positions(guard, leaves, key))?;
        copy.offset = leaves[position].offset;
        copy.entries.clone_from(&leaves[position].entries);
        let end = position + usize::from(direction == Direction::Forward);
        if end > 0
            && let Some(end) = leaves.get(end)
        {
            C::copy_key(guard, end.entries[0], copy.end.insert(Vec::new()))?;
        }
        Ok(Self::end(guard, state))
    }
}

impl<M: Medium, C: Codec> Index for SortedChain<M, C>
where
    Self: MaybeWords,
{
    methods_of_entries!();

    fn wait(&self, lsn: Lsn) -> Result<()> {
        self.pool.peek().wait_for(lsn)
    }

    fn len(&self) -> Result<u64> {
        let guard = self.pool.pin();
        let state = self.lock(&guard);
        let keys = state
            .leaves
            .iter()
            .map(|leaf| leaf.entries.len() as u64)
            .sum();
        guard.wait_for(Self::end(&guard, state))?;
        Ok(keys)
    }

    fn bulk_load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64> {
        let expect_empty = |state: &State| {
            if state.leaves.iter().all(|leaf| leaf.entries.is_empty()) {
                Ok(())
            } else {
                Err(ErrorKind::NotEmpty)
            }
        };
        let guard = self.pool.pin();
        let mut leaves = Vec::<Leaf>::new();
        expect_empty(&self.lock(&guard))?;
        let mut source = EncodedEntries::<M, C>::new(&guard, next);
        let mut space = Unpublished::new(&guard);
        let per_leaf = entries_per_leaf(self.capacity, fill);
        let allocate = || space.allocate(self.leaf_bytes());
        source.for_each_leaf(per_leaf, self.first, allocate, |offset, next, entries| {
            leaves.push(Leaf {
                offset,
                which: 0,
                next,
                entries,
            });
            // The first leaf publishes the others, so it is written last.
            leaves[1..]
                .last()
                .map_or(Ok(()), |leaf| self.write(&guard, leaf, false))
        })?;
        let mut state = self.lock(&guard);
        expect_empty(&state)?;
        leaves[0].which = state.leaves[0].which ^ SECOND;
        self.write(&guard, &leaves[0], true)?;
        space.published();
        *state = State {
            leaves,
            lsn: guard.fence(),
        };
        let loaded = source.published();
        guard.wait_for(Self::end(&guard, state))?;
        Ok(loaded)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        let guard = self.pool.pin();
        let mut violations = Vec::new();
        let mut last = None;
        for Leaf { offset, .. } in &self.lock(&guard).leaves {
            for words in self.read(&guard, *offset)?.entries {
                if let Some(what) = verify_entry::<M, C>(&guard, words, &mut last)? {
                    violations.push(Violation {
                        offset: *offset,
                        what: what.to_owned(),
                    });
                }
            }
        }
        Ok(violations)
    }

    fn stat(&self) -> Result<IndexStat> {
        let keys = self.len()?;
        let leaves = self.lock(&self.pool.pin()).leaves.len() as u64;
        let volatile_bytes =
            leaves * size_of::<Leaf>() as u64 + keys * size_of::<EntryWords>() as u64;
        let allocations = Some(leaves + if C::TIES { keys } else { 0 });
        let leaf_bytes = self.leaf_bytes() as u64;
        Ok(IndexStat {
            keys,
            leaves,
            volatile_bytes,
            leaf_bytes,
            allocations,
            ..IndexStat::default()
        })
    }

    fn destroy(&self) -> Result<()> {
        let guard = self.pool.pin();
        for leaf in std::mem::take(&mut self.lock(&guard).leaves) {
            for words in leaf.entries {
                C::discard(&guard, words);
            }
            guard.free(leaf.offset);
        }
        Ok(())
    }
}

words_of_entries!(SortedChain);

impl<M: Medium, C: Codec> Build<M> for SortedChain<M, C>
where
    Self: MaybeWords,
{
    fn create(pool: &Pool<M>, new: NewTree<'_>, opening: &Opening) -> Result<Self> {
        let guard = pool.pin();
        let mut words = [0; ROOT_WORDS];
        words[ROOT_CAPACITY] = opening
            .settings
            .get(0)
            .unwrap_or(ENTRY.full.leaf_entries as u64);
        let mut space = Unpublished::new(&guard);
        words[ROOT_FIRST] = space.allocate(Self::unopened(pool, &words).leaf_bytes())?;
        let tree = Self::unopened(pool, &words);
        tree.write(
            &guard,
            &Leaf {
                offset: tree.first,
                which: 0,
                next: 0,
                entries: Vec::new(),
            },
            false,
        )?;
        // PERSIST: the first leaf is ordered before the root that leads to it; if this is lost,
        // there is no tree.
        guard.fence();
        pool.create_tree(new, ENTRY.id, C::ID, &words)?;
        space.published();
        tree.recover()
    }

    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self> {
        let made = root.words[ROOT_CAPACITY];
        let entries = [made, opening.settings.get(0).unwrap_or(made)];
        root.demand(
            ENTRY.id,
            C::ID,
            &entries.map(|entries| format!("{entries} entries a leaf")),
        )?;
        Self::unopened(pool, &root.words).recover()
    }

    fn salvage_at(pool: &Pool<M>, root: &TreeRoot, visit: &mut Visit<'_>) -> Salvaged {
        salvage_leaves::<M, C, Self>(pool, root, visit)
    }
}

impl<M: Medium, C: Codec> Leafy<M, C> for SortedChain<M, C> {
    const IS_CHECKED: bool = true;

    fn at_root(pool: &Pool<M>, root: &TreeRoot) -> Result<Self> {
        Ok(Self::unopened(pool, &root.words))
    }

    fn leaf_bytes(&self) -> RangeInclusive<usize> {
        self.leaf_bytes()..=self.leaf_bytes()
    }

    fn leaves(&self, guard: &Guard<'_, M>) -> Led {
        let mut led = Led::default();
        led.follow(self.first, |offset, led| {
            let leaf = self.read(guard, offset)?;
            led.leaves.push(offset);
            Ok(leaf.next)
        });
        led
    }

    fn entries(&self, guard: &Guard<'_, M>, leaf: u64) -> Result<Vec<Result<EntryWords>>> {
        Ok(self
            .read(guard, leaf)?
            .entries
            .into_iter()
            .map(Ok)
            .collect())
    }
}
