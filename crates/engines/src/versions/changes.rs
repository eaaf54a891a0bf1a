//! The changes of one tree that views may need: what its keys held before.

use std::borrow::Borrow;
use std::cmp;
use std::collections::{BTreeMap, VecDeque, btree_map};
use std::ops::Bound;
use std::sync::Arc;

use medium::sync::schedule::{self, Access, AccessKind};
use medium::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use medium::{Lsn, Medium};
use pool::Pool;
use smallvec::SmallVec;

use super::{PlantedFault, Versions, VersionsFault};
use crate::index::record::prefix_word;
use crate::index::{Bounds, Direction, Observed, Value};
use crate::{Error, ErrorKind, Result};

/// The number of a write in the order of the writes of a store. Of two writes to one key, the one
/// with the lower stamp came first.
pub type Stamp = u64;

/// Bytes that an entry of the map of changed keys takes beside its key, about.
const KEY_BYTES: usize = 96;
/// Bytes that an old value takes beside its content, about.
const VALUE_BYTES: usize = 80;
/// Bytes of old values after which a range reads no more of them at once: they are copied, and
/// writes wait meanwhile.
const BYTES_AT_ONCE: usize = 1 << 20;
/// The changes of a tree that are kept in the order of their stamps.
const RECENT_CHANGES: usize = 64;

/// What a key held before a change.
#[derive(Clone, Debug)]
pub struct OldValue {
    held: Held,
    /// The LSN at which it is durable.
    lsn: Lsn,
}

#[derive(Clone, Debug)]
enum Held {
    Absent,
    Value(Value),
    /// It could not be read: damage at this offset of the pool.
    Damaged {
        offset: u64,
        what: Arc<str>,
    },
}

impl OldValue {
    /// A key that was absent, durably.
    pub(super) const ABSENT: Self = Self {
        held: Held::Absent,
        lsn: Lsn::DURABLE,
    };

    /// The result of reading a key. Damage is an answer: a view gets it when it reads the key.
    ///
    /// # Errors
    /// Any other error of the read.
    pub(crate) fn of(read: Result<Observed<Option<Value>>>) -> Result<Self> {
        let (held, lsn) = match read {
            Ok(found) => {
                let held = match found.value {
                    Some(value) => Held::Value(value),
                    None => Held::Absent,
                };
                (held, found.lsn)
            }
            Err(error) => match error.kind() {
                ErrorKind::Corrupt { offset, what } => {
                    let what = Arc::from(what.as_str());
                    let offset = *offset;
                    (Held::Damaged { offset, what }, Lsn::DURABLE)
                }
                _ => return Err(error),
            },
        };
        Ok(Self { held, lsn })
    }

    /// The result of reading a key of a tree of words.
    ///
    /// # Errors
    /// Those of [`OldValue::of`].
    pub(crate) fn of_word(read: Result<Observed<Option<u64>>>) -> Result<Self> {
        let as_bytes = |word: Option<u64>| word.map(|word| Value::from_slice(&word.to_be_bytes()));
        Self::of(read.map(|found| found.map(as_bytes)))
    }

    /// What a read of the key returned before the change.
    pub(super) fn into_read(self) -> Result<Observed<Option<Value>>> {
        let value = match self.held {
            Held::Absent => None,
            Held::Value(value) => Some(value),
            Held::Damaged { offset, what } => return Err(Error::corrupt(offset, &*what)),
        };
        Ok(Observed {
            value,
            lsn: self.lsn,
        })
    }

    fn bytes(&self) -> usize {
        let content = match &self.held {
            Held::Absent => 0,
            Held::Value(value) => value.len(),
            Held::Damaged { what, .. } => what.len(),
        };
        VALUE_BYTES + content
    }
}

/// A value that a key held from one change to the next.
#[derive(Debug)]
struct KeptValue {
    /// The stamp of the change before, or 0 if that is not known.
    from: Stamp,
    /// The stamp of the change that replaced it.
    until: Stamp,
    old: OldValue,
}

/// The changes of one key.
#[derive(Debug)]
struct KeyChanges {
    /// The stamp of the last one.
    last: Stamp,
    /// The values that a view may need, in order of their stamps.
    kept: SmallVec<[KeptValue; 1]>,
}

impl KeyChanges {
    /// The value of the key as of `stamp`, if it has changed since.
    fn value_at(&self, stamp: Stamp, faults: PlantedFault) -> Option<&KeptValue> {
        if faults.has(VersionsFault::NewestChangeWins) {
            return self.kept.iter().rfind(|kept| kept.until > stamp);
        }
        self.kept.iter().find(|kept| kept.until > stamp)
    }
}

/// A key in the map of changed keys. Most comparisons need only its first word, which lies in the
/// nodes of the map.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct OrderedKey {
    /// The first eight bytes, as [`prefix_word`] has them. Keys sort as their words do, and those
    /// with the same word as their bytes.
    word: u64,
    bytes: Arc<[u8]>,
}

/// A key to be looked up: an [`OrderedKey`], or a borrowed key with its word.
trait AsOrderedKey {
    fn word(&self) -> u64;
    fn bytes(&self) -> &[u8];
}

struct BorrowedKey<'k> {
    word: u64,
    bytes: &'k [u8],
}

impl<'k> BorrowedKey<'k> {
    fn new(bytes: &'k [u8]) -> Self {
        Self {
            word: prefix_word(bytes),
            bytes,
        }
    }
}

impl AsOrderedKey for OrderedKey {
    fn word(&self) -> u64 {
        self.word
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsOrderedKey for BorrowedKey<'_> {
    fn word(&self) -> u64 {
        self.word
    }

    fn bytes(&self) -> &[u8] {
        self.bytes
    }
}

impl<'k> Borrow<dyn AsOrderedKey + 'k> for OrderedKey {
    fn borrow(&self) -> &(dyn AsOrderedKey + 'k) {
        self
    }
}

impl PartialEq for dyn AsOrderedKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn AsOrderedKey + '_ {}

impl PartialOrd for dyn AsOrderedKey + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn AsOrderedKey + '_ {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        let by_word = self.word().cmp(&other.word());
        by_word.then_with(|| self.bytes().cmp(other.bytes()))
    }
}

/// The last changes of a tree, in order of their stamps. A transaction that commits compares them
/// with what it has read, under the lock of the clock: they are few, and its reads may be many.
#[derive(Debug, Default)]
struct RecentChanges {
    keys: VecDeque<RecentChange>,
    /// The stamp of the last change that is not in the list any more.
    dropped: Stamp,
}

#[derive(Debug)]
struct RecentChange {
    stamp: Stamp,
    key: Arc<[u8]>,
}

impl RecentChanges {
    fn push(&mut self, stamp: Stamp, key: Arc<[u8]>) {
        if self.keys.len() == RECENT_CHANGES
            && let Some(first) = self.keys.pop_front()
        {
            self.dropped = first.stamp;
        }
        self.keys.push_back(RecentChange { stamp, key });
    }

    fn forget(&mut self) {
        if let Some(last) = self.keys.back() {
            self.dropped = last.stamp;
        }
        self.keys.clear();
    }

    /// The changes since `stamp`, the last one first; `None` if not all of them are known.
    fn since(&self, stamp: Stamp) -> Option<impl Iterator<Item = &Arc<[u8]>>> {
        if self.dropped > stamp {
            return None;
        }
        let newest_first = self.keys.iter().rev();
        let since = newest_first.take_while(move |change| change.stamp > stamp);
        Some(since.map(|change| &change.key))
    }
}

/// The changes of one tree.
#[derive(Debug, Default)]
struct TreeChanges {
    keys: BTreeMap<OrderedKey, KeyChanges>,
    recent: RecentChanges,
    /// The stamps of bulk loads, ascending. The tree was empty before each.
    loads: Vec<Stamp>,
}

impl TreeChanges {
    fn get(&self, key: &[u8]) -> Option<&KeyChanges> {
        self.keys.get(&BorrowedKey::new(key) as &dyn AsOrderedKey)
    }

    fn get_mut(&mut self, key: &[u8]) -> Option<&mut KeyChanges> {
        self.keys
            .get_mut(&BorrowedKey::new(key) as &dyn AsOrderedKey)
    }

    /// The changes of a key, and the key as the map has it.
    fn entry_mut(&mut self, key: &[u8]) -> Option<(&OrderedKey, &mut KeyChanges)> {
        let key = BorrowedKey::new(key);
        let key = &key as &dyn AsOrderedKey;
        let only_this = (Bound::Included(key), Bound::Included(key));
        self.keys.range_mut::<dyn AsOrderedKey, _>(only_this).next()
    }

    /// The changed keys within bounds, which are not empty ([`Bounds::is_empty`]).
    fn within(&self, bounds: &Bounds) -> btree_map::Range<'_, OrderedKey, KeyChanges> {
        let (lower, upper) = bounds.as_slices();
        let lower = lower.map(BorrowedKey::new);
        let upper = upper.map(BorrowedKey::new);
        let ends: (Bound<&dyn AsOrderedKey>, Bound<&dyn AsOrderedKey>) = (
            lower.as_ref().map(|key| key as &dyn AsOrderedKey),
            upper.as_ref().map(|key| key as &dyn AsOrderedKey),
        );
        self.keys.range::<dyn AsOrderedKey, _>(ends)
    }

    /// Whether `key` has changed since `stamp`.
    fn has_changed(&self, key: &[u8], stamp: Stamp) -> bool {
        match self.get(key) {
            Some(changes) => changes.last > stamp,
            None => false,
        }
    }

    /// The first load after `stamp`.
    fn load_after(&self, stamp: Stamp) -> Option<Stamp> {
        self.loads.iter().copied().find(|load| *load > stamp)
    }
}

/// The versions of one open tree.
pub struct TreeVersions {
    store: Arc<Versions>,
    /// Distinguishes the trees of a store.
    number: u64,
    /// The stamp at which the tree was made, or 0 if it was there when the store was opened.
    made: Stamp,
    /// The stamp of the newest change. It is stored before the change is published in the tree.
    newest: AtomicU64,
    changes: Mutex<TreeChanges>,
}

/// Changes of the keys of a range, in its order, and how far they are known.
#[derive(Debug, Default)]
pub(super) struct ChangesWithin {
    /// The changed keys, each with what it held at the stamp of the view.
    pub(super) keys: Vec<ChangedKey>,
    /// The last key up to which all changes are in the list; `None` if that is the whole range.
    pub(super) up_to: Option<Arc<[u8]>>,
    /// Whether the tree was empty between the stamp and now, before a bulk load: then it held only
    /// what the changes say.
    pub(super) is_loaded_since: bool,
}

/// A key that has changed since a stamp, and what it held then.
#[derive(Clone, Debug)]
pub(super) struct ChangedKey {
    pub(super) key: Arc<[u8]>,
    pub(super) old: OldValue,
}

/// What a change did to the memory of a tree's changes.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The key, if it has changed for the first time since its changes were forgotten.
    pub(super) new_key: Option<Arc<[u8]>>,
    pub(super) bytes_added: usize,
    pub(super) bytes_freed: usize,
}

/// How forgetting a key ended.
#[derive(Debug)]
pub(super) struct Forgotten {
    pub(super) bytes_freed: usize,
    /// The stamp of the first change that is left; `None` if none is.
    pub(super) next: Option<Stamp>,
}

impl std::fmt::Debug for TreeVersions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TreeVersions")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl TreeVersions {
    /// The versions of a tree that was there when the store was opened.
    pub fn of_existing(store: &Arc<Versions>) -> Arc<Self> {
        Self::made_at(store, 0)
    }

    /// The versions of a tree that was made now: it is empty in the views that are open.
    pub fn of_new(store: &Arc<Versions>) -> Arc<Self> {
        Self::made_at(store, store.next_stamp())
    }

    /// The versions of a tree outside of a store, of which nobody opens a view.
    pub fn without_views<M: Medium>(pool: &Pool<M>) -> Arc<Self> {
        Self::of_existing(&Versions::new::<M>(0, pool.process()))
    }

    fn made_at(store: &Arc<Versions>, made: Stamp) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(store),
            number: store.next_tree(),
            made,
            newest: AtomicU64::new(0),
            changes: Mutex::default(),
        })
    }

    /// The versions of the store.
    #[inline(always)]
    pub fn store(&self) -> &Arc<Versions> {
        &self.store
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn faults(&self) -> PlantedFault {
        self.store.faults
    }

    /// Locks the changes, to read them. A yield point.
    fn changes_to_read(&self) -> MutexGuard<'_, TreeChanges> {
        schedule::reach(Access::something::<TreeChanges>(AccessKind::Load));
        self.changes.lock()
    }

    /// Locks the changes, to change them. A yield point.
    fn changes_to_change(&self) -> MutexGuard<'_, TreeChanges> {
        schedule::reach(Access::something::<TreeChanges>(AccessKind::Store));
        self.changes.lock()
    }

    /// Whether nothing of the tree has changed since `stamp`.
    #[inline]
    pub(super) fn is_unchanged_since(&self, stamp: Stamp) -> bool {
        schedule::reach(Access::something::<TreeChanges>(AccessKind::Load));
        // ORDER: pairs with the store in `note_newest`. A reader that has seen what a write has
        // published in the tree sees its stamp here.
        self.newest.load(Ordering::Acquire) <= stamp
    }

    /// Notes the stamp of a change, before it is published in the tree.
    fn note_newest(&self, stamp: Stamp) {
        self.newest.store(stamp, Ordering::Release);
    }

    /// Whether the tree was made after `stamp`.
    #[inline]
    pub(super) fn is_made_after(&self, stamp: Stamp) -> bool {
        self.made > stamp
    }

    /// What `key` held at `stamp`; `None` if it has not changed since, so that the tree has it.
    pub(super) fn value_at(&self, key: &[u8], stamp: Stamp) -> Option<OldValue> {
        if self.is_unchanged_since(stamp) {
            return None;
        }
        let changes = self.changes_to_read();
        let mut load = changes.load_after(stamp);
        if self.faults().has(VersionsFault::ChangeBeatsLoad) {
            load = None;
        }
        let kept = changes
            .get(key)
            .and_then(|changes| changes.value_at(stamp, self.faults()));
        match (kept, load) {
            // The key had changed before the tree was loaded.
            (Some(kept), Some(load)) if self.is_before_load(kept, load) => Some(kept.old.clone()),
            (_, Some(_)) => Some(OldValue::ABSENT),
            (Some(kept), None) => Some(kept.old.clone()),
            (None, None) => None,
        }
    }

    /// Whether a key had changed before its tree was loaded.
    fn is_before_load(&self, kept: &KeptValue, load: Stamp) -> bool {
        kept.until < load && !self.faults().has(VersionsFault::LoadBeatsChange)
    }

    /// The keys within `bounds` that have changed since `stamp`: those among the next `most` keys of
    /// which changes are kept, and fewer if their old values are large.
    pub(super) fn changes_within(
        &self,
        bounds: &Bounds,
        direction: Direction,
        stamp: Stamp,
        most: usize,
    ) -> ChangesWithin {
        let mut found = ChangesWithin::default();
        if self.is_unchanged_since(stamp) || bounds.is_empty() {
            return found;
        }
        let changes = self.changes_to_read();
        let load = changes.load_after(stamp);
        found.is_loaded_since = load.is_some();

        let mut keys = changes.within(bounds);
        let mut bytes = 0;
        for examined in 0.. {
            let next = match direction {
                Direction::Forward => keys.next(),
                Direction::Reverse => keys.next_back(),
            };
            let Some((key, changes)) = next else {
                break;
            };
            if let Some(kept) = changes.value_at(stamp, self.faults())
                && load.is_none_or(|load| self.is_before_load(kept, load))
            {
                bytes += kept.old.bytes();
                found.keys.push(ChangedKey {
                    key: Arc::clone(&key.bytes),
                    old: kept.old.clone(),
                });
            }
            if examined + 1 == most || bytes >= BYTES_AT_ONCE {
                found.up_to = Some(Arc::clone(&key.bytes));
                break;
            }
        }
        found
    }

    /// The first of these keys that has changed since `stamp`, or else the first key of one of these
    /// ranges that has.
    pub(super) fn first_changed<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
        ranges: impl Iterator<Item = &'k Bounds>,
        stamp: Stamp,
    ) -> Option<FirstChanged> {
        if self.is_unchanged_since(stamp) {
            return None;
        }
        let changes = self.changes_to_read();
        if changes.load_after(stamp).is_some() {
            return Some(FirstChanged::WholeTree);
        }
        for key in keys {
            if changes.has_changed(key, stamp) {
                return Some(FirstChanged::Key(key.to_vec()));
            }
        }
        for bounds in ranges {
            if bounds.is_empty() || self.faults().has(VersionsFault::NoCheckOfRanges) {
                continue;
            }
            let mut changed = changes.within(bounds);
            if let Some((key, _)) = changed.find(|(_, changes)| changes.last > stamp) {
                return Some(FirstChanged::Key(key.bytes.to_vec()));
            }
        }
        None
    }

    /// Whether a key that was read has changed since `stamp`, which is not long ago. The caller has
    /// the clock's lock. O(changes since then), and a call of `was_read` for each.
    pub(super) fn changed_lately(
        &self,
        stamp: Stamp,
        was_read: impl Fn(&[u8]) -> bool,
    ) -> ChangedLately {
        if self.is_unchanged_since(stamp) {
            return ChangedLately::No;
        }
        let changes = self.changes_to_read();
        if changes.load_after(stamp).is_some() {
            return ChangedLately::Yes(FirstChanged::WholeTree);
        }
        let Some(mut since) = changes.recent.since(stamp) else {
            return ChangedLately::Unknown;
        };
        match since.find(|key| was_read(key)) {
            Some(key) => ChangedLately::Yes(FirstChanged::Key(key.to_vec())),
            None => ChangedLately::No,
        }
    }

    /// Records that `key` changes, and what it held before. `is_needed` says whether a view has a
    /// stamp from the first number on and below the second. The caller has the clock's lock.
    pub(super) fn record(
        &self,
        key: &[u8],
        stamp: Stamp,
        old: OldValue,
        is_needed: impl Fn(Stamp, Stamp) -> bool,
    ) -> Kept {
        let mut kept = Kept::default();
        let mut changes = self.changes_to_change();
        self.note_newest(stamp);
        let Some((known_key, known)) = changes.entry_mut(key) else {
            // No change of the key is newer than the oldest view.
            let key: Arc<[u8]> = Arc::from(key);
            kept.bytes_added = KEY_BYTES + key.len() + old.bytes();
            kept.new_key = Some(Arc::clone(&key));
            changes.recent.push(stamp, Arc::clone(&key));
            let first = KeptValue {
                from: 0,
                until: stamp,
                old,
            };
            let first = KeyChanges {
                last: stamp,
                kept: SmallVec::from_iter([first]),
            };
            let key = OrderedKey {
                word: prefix_word(&key),
                bytes: key,
            };
            changes.keys.insert(key, first);
            return kept;
        };
        let known_key = Arc::clone(&known_key.bytes);
        let from = std::mem::replace(&mut known.last, stamp);
        if is_needed(from, stamp) {
            // Views may have been closed since. Their values go, so that a key that is written
            // often keeps no more values than there are views.
            known.kept.retain(|value| {
                let stays = is_needed(value.from, value.until);
                if !stays {
                    kept.bytes_freed += value.old.bytes();
                }
                stays
            });
            kept.bytes_added = old.bytes();
            known.kept.push(KeptValue {
                from,
                until: stamp,
                old,
            });
        }
        changes.recent.push(stamp, known_key);
        kept
    }

    /// Records that a bulk load fills the tree, which is empty. The caller has the clock's lock.
    pub(super) fn record_load(&self, stamp: Stamp) {
        let mut changes = self.changes_to_change();
        self.note_newest(stamp);
        changes.loads.push(stamp);
    }

    /// Forgets the values of `key` that no view with a stamp from `oldest` on needs.
    pub(super) fn forget(&self, key: &[u8], oldest: Stamp) -> Forgotten {
        let mut forgotten = Forgotten {
            bytes_freed: 0,
            next: None,
        };
        let mut changes = self.changes_to_change();
        let Some(known) = changes.get_mut(key) else {
            return forgotten;
        };
        known.kept.retain(|value| {
            let stays = value.until > oldest;
            if !stays {
                forgotten.bytes_freed += value.old.bytes();
            }
            stays
        });
        if known.last > oldest {
            let first = known.kept.first();
            forgotten.next = Some(first.map_or(known.last, |kept| kept.until));
            return forgotten;
        }
        changes
            .keys
            .remove(&BorrowedKey::new(key) as &dyn AsOrderedKey);
        forgotten.bytes_freed += KEY_BYTES + key.len();
        if changes.keys.is_empty() {
            changes.recent.forget();
        }
        forgotten
    }

    /// Forgets the loads that all views with a stamp from `oldest` on have seen.
    pub(super) fn forget_loads(&self, oldest: Stamp) {
        self.changes_to_change().loads.retain(|load| *load > oldest);
    }
}

/// Whether something that a transaction has read has changed a short time ago.
pub(super) enum ChangedLately {
    No,
    Yes(FirstChanged),
    /// There were more changes than the list holds.
    Unknown,
}

/// A change of something that a transaction has read.
pub(super) enum FirstChanged {
    /// This key, which was read by itself or within a range.
    Key(Vec<u8>),
    /// All keys: the tree was loaded.
    WholeTree,
}
