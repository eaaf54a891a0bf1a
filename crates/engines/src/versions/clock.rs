//! The clock of a store: the order of its writes, and the views that are open.

use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use medium::sync::schedule::{self, Access, AccessKind};
use medium::sync::{AtomicBool, Ordering};

use super::changes::{OldValue, Stamp, TreeVersions};
use super::fault::{PlantedFault, VersionsFault};

/// A view that has been open for this long was probably forgotten.
const FORGOTTEN_AGE: Duration = Duration::from_secs(60);
/// Writes between two looks for such a view.
const WRITES_PER_LOOK: u64 = 256;

/// A view as the clock knows it.
#[derive(Debug)]
pub(super) struct ViewState {
    /// The view has the writes with stamps up to this one.
    pub(super) stamp: Stamp,
    /// Distinguishes views with the same stamp.
    number: u64,
    pub(super) opened: Instant,
    /// The line of code that opened it.
    opened_at: &'static Location<'static>,
    /// Whether a warning was given because it has been open for long.
    is_told: AtomicBool,
    /// Whether its values were forgotten, because they took too much memory.
    has_ended: AtomicBool,
}

impl ViewState {
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        // ORDER: pairs with the store in `Clock::end_oldest`. A reader that misses a value that was
        // forgotten sees that the view has ended: it has taken the lock of the changes since.
        self.has_ended.load(Ordering::Acquire)
    }

    fn as_open(&self) -> OpenView {
        OpenView {
            age: self.opened.elapsed(),
            opened_at: self.opened_at,
        }
    }

    fn id(&self) -> (Stamp, u64) {
        (self.stamp, self.number)
    }
}

/// Whether writes record what they change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Switch {
    #[default]
    Off,
    /// Some writes that are under way may not have seen that they should.
    Starting,
    On,
}

/// Something to forget, once no view needs it.
#[derive(Debug)]
struct Forgettable {
    /// The stamp of the change. No view below it may be left.
    stamp: Stamp,
    tree: Arc<TreeVersions>,
    /// The key that has changed; `None` for a bulk load.
    key: Option<Arc<[u8]>>,
}

/// What the lock of the clock guards. Nothing is waited for under it.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The stamp of the last write.
    pub(super) stamp: Stamp,
    pub(super) switch: Switch,
    /// Threads that open a view, and have not registered it yet.
    pub(super) openers: usize,
    /// Threads that drop or rename a tree.
    pub(super) tree_changers: usize,
    views: BTreeMap<(Stamp, u64), Arc<ViewState>>,
    views_opened: u64,
    /// The stamps of the writes that are not published yet.
    unpublished: Vec<Stamp>,
    /// How many of these writes are transactions. Versions stay on for them.
    unpublished_transactions: usize,
    /// One item for each changed key, and one for each load: the one whose turn comes first is in
    /// front, or close to it.
    forgettable: VecDeque<Forgettable>,
    bytes: usize,
    keys: usize,
    /// When the last view was closed.
    idle_since: Option<Instant>,
    faults: PlantedFault,
}

/// A view that is open: a snapshot or a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenView {
    /// How long it has been open.
    pub age: Duration,
    /// The line of code that opened it.
    pub opened_at: &'static Location<'static>,
}

/// Figures about the views of a store and the memory that they take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VersionsStat {
    /// Views that are open: snapshots and transactions.
    pub views: usize,
    /// The oldest one.
    pub oldest_view: Option<OpenView>,
    /// Keys whose old values are kept for views.
    pub keys: usize,
    /// Bytes of memory that these take, about.
    pub bytes: usize,
}

impl Clock {
    pub(super) fn new(faults: PlantedFault) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    pub(super) fn has_views(&self) -> bool {
        !self.views.is_empty()
    }

    /// Registers a view of the present moment, if versions are on and no tree is dropped or renamed.
    pub(super) fn register_if_on(
        &mut self,
        opened_at: &'static Location<'static>,
    ) -> Option<Arc<ViewState>> {
        if self.switch != Switch::On || self.tree_changers > 0 {
            return None;
        }
        Some(self.register(self.stamp, opened_at))
    }

    /// Registers a view. Its stamp is that of the last write.
    pub(super) fn register(
        &mut self,
        stamp: Stamp,
        opened_at: &'static Location<'static>,
    ) -> Arc<ViewState> {
        self.views_opened += 1;
        let view = Arc::new(ViewState {
            stamp,
            number: self.views_opened,
            opened: Instant::now(),
            opened_at,
            is_told: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        });
        self.views.insert(view.id(), Arc::clone(&view));
        self.idle_since = None;
        view
    }

    /// Takes a view out of the list, if it has not ended before.
    pub(super) fn unregister(&mut self, view: &ViewState) {
        self.views.remove(&view.id());
        if self.views.is_empty() {
            self.idle_since = Some(Instant::now());
        }
    }

    /// Whether no view was open for this long, so that the versions may be switched off.
    pub(super) fn is_idle_for(&self, linger: Duration) -> bool {
        let has_openers = self.openers > 0 && !self.faults.has(VersionsFault::OffIgnoresOpeners);
        let is_unused = self.views.is_empty() && !has_openers && self.unpublished_transactions == 0;
        let was_unused = self
            .idle_since
            .is_some_and(|since| linger.is_zero() || since.elapsed() >= linger);
        let ignores_views = self.faults.has(VersionsFault::OffIgnoresViews);
        self.switch == Switch::On && (is_unused && was_unused || ignores_views)
    }

    /// Whether a view has a stamp from `from` on and below `until`.
    fn has_view_within(&self, from: Stamp, until: Stamp) -> bool {
        self.views.range((from, 0)..(until, 0)).next().is_some()
    }

    /// The next stamp, of a write that has yet to be published.
    pub(super) fn begin_write(&mut self) -> Stamp {
        self.stamp += 1;
        self.unpublished.push(self.stamp);
        self.stamp
    }

    /// The next stamp, of a transaction that has yet to be published.
    pub(super) fn begin_transaction(&mut self) -> Stamp {
        self.unpublished_transactions += 1;
        self.begin_write()
    }

    /// Notes that a transaction was published, or failed.
    pub(super) fn end_transaction(&mut self, stamp: Stamp) {
        self.unpublished_transactions -= 1;
        self.end_write(stamp);
    }

    /// Notes that a write was published, or failed.
    pub(super) fn end_write(&mut self, stamp: Stamp) {
        if let Some(index) = self.unpublished.iter().position(|other| *other == stamp) {
            self.unpublished.swap_remove(index);
        }
    }

    /// Whether a write with a stamp up to this one is not published yet.
    pub(super) fn has_unpublished(&self, up_to: Stamp) -> bool {
        self.unpublished.iter().any(|stamp| *stamp <= up_to)
    }

    /// Records what a write replaces, unless the last view was closed meanwhile.
    pub(super) fn record(
        &mut self,
        tree: &Arc<TreeVersions>,
        key: &[u8],
        stamp: Stamp,
        old: OldValue,
    ) {
        if self.views.is_empty() {
            return;
        }
        let is_kept_once = self.faults.has(VersionsFault::ValueNotKeptTwice);
        let is_needed = |from, until| self.has_view_within(from, until) && !is_kept_once;
        let kept = tree.record(key, stamp, old, is_needed);
        self.bytes += kept.bytes_added;
        self.bytes = self.bytes.saturating_sub(kept.bytes_freed);
        if let Some(key) = kept.new_key {
            self.keys += 1;
            self.forgettable.push_back(Forgettable {
                stamp,
                tree: Arc::clone(tree),
                key: Some(key),
            });
        }
    }

    /// Records that a bulk load fills an empty tree.
    pub(super) fn record_load(&mut self, tree: &Arc<TreeVersions>, stamp: Stamp) {
        tree.record_load(stamp);
        self.forgettable.push_back(Forgettable {
            stamp,
            tree: Arc::clone(tree),
            key: None,
        });
    }

    /// The lowest stamp of a view; the highest of all stamps if there is no view.
    fn oldest_stamp(&self) -> Stamp {
        match self.views.first_key_value() {
            Some((id, _)) => id.0,
            None => Stamp::MAX,
        }
    }

    /// Forgets at most `most` changes that no view needs. Returns whether there are more.
    pub(super) fn forget(&mut self, most: usize) -> bool {
        let mut oldest = self.oldest_stamp();
        if self.faults.has(VersionsFault::ForgetTooMuch) {
            oldest = oldest.saturating_add(1);
        }
        for _ in 0..most {
            let is_due = |next: &Forgettable| next.stamp <= oldest;
            if !self.forgettable.front().is_some_and(is_due) {
                return false;
            }
            let Some(next) = self.forgettable.pop_front() else {
                return false;
            };
            let Some(key) = &next.key else {
                next.tree.forget_loads(oldest);
                continue;
            };
            let forgotten = next.tree.forget(key, oldest);
            self.bytes = self.bytes.saturating_sub(forgotten.bytes_freed);
            match forgotten.next {
                // It comes later than some of those behind, which only delays it.
                Some(stamp) => self.forgettable.push_back(Forgettable { stamp, ..next }),
                None => self.keys -= 1,
            }
        }
        true
    }

    /// Ends the oldest views until the changes take no more than this many bytes.
    pub(super) fn keep_within(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            if self.forget(1) || self.forget_behind() {
                continue;
            }
            if !self.end_oldest() {
                return;
            }
        }
    }

    /// Forgets changes that no view needs and that wait behind others. Returns whether there were
    /// any. O(changed keys), and only before a view would be ended.
    fn forget_behind(&mut self) -> bool {
        let bytes_before = self.bytes;
        let oldest = self.oldest_stamp();
        self.forgettable
            .make_contiguous()
            .sort_unstable_by_key(|next| next.stamp);
        let due = self
            .forgettable
            .partition_point(|next| next.stamp <= oldest);
        if due > 0 {
            self.forget(due);
        }
        self.bytes < bytes_before
    }

    /// Ends the oldest view; `false` if there is none.
    fn end_oldest(&mut self) -> bool {
        let Some((_, oldest)) = self.views.pop_first() else {
            return false;
        };
        if self.faults.has(VersionsFault::ForgetBeforeMark) {
            self.forget(usize::MAX);
        }
        schedule::reach(Access::something::<ViewState>(AccessKind::Store));
        // ORDER: it is marked before anything is forgotten; the load is in `has_ended`.
        oldest.has_ended.store(true, Ordering::Release);
        if self.views.is_empty() {
            self.idle_since = Some(Instant::now());
        }
        true
    }

    /// The view that was opened first.
    fn oldest(&self) -> Option<&Arc<ViewState>> {
        self.views.values().min_by_key(|view| view.opened)
    }

    /// The oldest view, if it has been open for so long that it was probably forgotten. Each view is
    /// returned once.
    pub(super) fn forgotten_view(&self) -> Option<OpenView> {
        if !self.stamp.is_multiple_of(WRITES_PER_LOOK) {
            return None;
        }
        // The first of the list has the lowest stamp, so it is about as old as the oldest.
        let (_, first) = self.views.first_key_value()?;
        let open = first.as_open();
        if open.age < FORGOTTEN_AGE || first.is_told.swap(true, Ordering::Relaxed) {
            return None;
        }
        Some(open)
    }

    pub(super) fn stat(&self) -> VersionsStat {
        VersionsStat {
            views: self.views.len(),
            oldest_view: self.oldest().map(|view| view.as_open()),
            keys: self.keys,
            bytes: self.bytes,
        }
    }
}
