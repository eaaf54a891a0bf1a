//! The interface of every engine, and the types in it.
//!
//! - [`Index`]: the ordered map over byte strings, with a fast path for words;
//! - [`Codec`]: how keys and values become the two words of an entry;
//! - [`Bounds`]: the ends of a range.

mod bounds;
mod codec;
mod evacuated;
pub mod record;

use std::any::Any;
use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use medium::Lsn;
use pool::Evacuate;
use smallvec::SmallVec;

use crate::Result;

pub use bounds::{Bounds, Direction, prefix_end};
pub(crate) use codec::check_entry;
pub use codec::{Codec, EntryWords, HashBits, RecordCodec, WordCodec};
pub use evacuated::{EvacuatedKeys, MoveCount, Moved, OwnSpace};

/// A copy of a value: short ones need no allocation.
pub type Value = SmallVec<[u8; 24]>;

/// A key and its value, as a range returns them.
pub type Entry = (Value, Value);

/// The condition of a conditional write. If it does not hold, the write changes nothing, and
/// returns only when the value that it read is durable.
#[derive(Clone, Copy, Debug)]
pub enum Condition<V> {
    /// Always holds.
    Always,
    /// The key is absent.
    Absent,
    /// The key is present.
    Present,
    /// The key has this value.
    Equals(V),
    /// The key does not have the record at this offset. A batch has written this record already,
    /// and the tree takes it over instead of writing one of its own. Only for writes of values to
    /// trees with records.
    #[doc(hidden)]
    Written(u64),
    /// The key has the record at the offset `from`. The record at `to` is a copy of it, which the
    /// tree takes over. Only for writes of values to trees with records, whose value does not
    /// matter.
    #[doc(hidden)]
    Moved {
        /// The record of the key.
        from: u64,
        /// Its copy.
        to: u64,
    },
}

impl<V> Condition<V> {
    /// The condition with the value borrowed.
    #[inline]
    pub fn as_ref(&self) -> Condition<&V> {
        match self {
            Self::Always => Condition::Always,
            Self::Absent => Condition::Absent,
            Self::Present => Condition::Present,
            Self::Equals(value) => Condition::Equals(value),
            Self::Written(record) => Condition::Written(*record),
            Self::Moved { from, to } => Condition::Moved {
                from: *from,
                to: *to,
            },
        }
    }

    /// The condition with the value in another form.
    #[inline]
    pub fn map<W>(self, form: impl FnOnce(V) -> W) -> Condition<W> {
        let Ok(condition) = self.try_map(|value| Ok::<_, Infallible>(form(value)));
        condition
    }

    /// The condition with the value in another form, if the conversion succeeds.
    #[inline]
    pub fn try_map<W, E>(
        self,
        form: impl FnOnce(V) -> std::result::Result<W, E>,
    ) -> std::result::Result<Condition<W>, E> {
        Ok(match self {
            Self::Always => Condition::Always,
            Self::Absent => Condition::Absent,
            Self::Present => Condition::Present,
            Self::Equals(value) => Condition::Equals(form(value)?),
            Self::Written(record) => Condition::Written(record),
            Self::Moved { from, to } => Condition::Moved { from, to },
        })
    }
}

/// How a write ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the write may not be durable before its LSN is"]
pub struct Written {
    /// Whether its condition held. If not, it changed nothing.
    pub held: bool,
    /// The LSN at which the write is durable or, if its condition did not hold, the state that it
    /// read. The caller must not return the answer before that.
    pub lsn: Lsn,
}

impl Written {
    /// A write whose condition held, durable at `lsn`.
    #[inline(always)]
    pub fn done(lsn: Lsn) -> Self {
        Self { held: true, lsn }
    }

    /// A write whose condition did not hold. The state that it read is durable at `lsn`.
    #[inline(always)]
    pub fn refused(lsn: Lsn) -> Self {
        Self { held: false, lsn }
    }
}

/// The result of a read, and the LSN of the state that it rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a crash may take back what was read before its LSN is durable"]
pub struct Observed<T> {
    /// The value that was read.
    pub value: T,
    /// The LSN at which the state that was read is durable. The caller must not return the value
    /// before that.
    pub lsn: Lsn,
}

impl<T> Observed<T> {
    /// A value that is durable already.
    #[inline(always)]
    pub fn durable(value: T) -> Self {
        Self {
            value,
            lsn: Lsn::DURABLE,
        }
    }

    /// Another value that rests on the same state.
    #[inline(always)]
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Observed<U> {
        Observed {
            value: convert(self.value),
            lsn: self.lsn,
        }
    }
}

/// Something that [`Index::check`] found wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The offset in the pool of the node concerned.
    pub offset: u64,
    /// The fault of the node, in words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}: {}", self.offset, self.what)
    }
}

/// Damage that a salvage found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The offset in the pool of the node concerned.
    pub offset: u64,
    /// How much of the tree could not be read because of it.
    pub part: Part,
    /// The damage, in words.
    pub what: String,
    /// The keys around the part that could not be read.
    pub keys: KeysBetween,
}

/// The keys of the entries around a part of a tree that cannot be read: the keys of that part lie
/// between the two. Entries of the part that a salvage found elsewhere lie there, too.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeysBetween {
    /// The last key before the part; `None` if there is none, or if it is not known where in the
    /// tree the part lies.
    pub above: Option<Arc<[u8]>>,
    /// The first key behind the part; `None` in the same cases.
    pub below: Option<Arc<[u8]>>,
}

/// How much of a tree cannot be read because of damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// One entry.
    Entry,
    /// A node: its entries, and all that only this node leads to.
    Node,
    /// No entry, or it is not known which ones: for example a wrong count, or a node that nothing
    /// leads to.
    Unknown,
}

impl LeftOut {
    /// Damage at an offset, at no known place among the keys.
    #[must_use]
    pub fn new(offset: u64, part: Part, what: String) -> Self {
        Self {
            offset,
            part,
            what,
            keys: KeysBetween::default(),
        }
    }

    /// Damage of unknown cost.
    #[must_use]
    pub fn unknown(violation: Violation) -> Self {
        let Violation { offset, what } = violation;
        Self::new(offset, Part::Unknown, what)
    }
}

impl From<LeftOut> for Violation {
    fn from(LeftOut { offset, what, .. }: LeftOut) -> Self {
        Self { offset, what }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}: {}", self.offset, self.what)
    }
}

/// How long the parts of one operation took, in nanoseconds ([`Measured::profile`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// Searching inner nodes.
    pub inner_ns: u64,
    /// Searching the leaf.
    pub leaf_ns: u64,
    /// Changing words, and making the change durable.
    pub pmwcas_ns: u64,
    /// All of it.
    pub total_ns: u64,
}

/// Figures about a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexStat {
    /// Keys.
    pub keys: u64,
    /// Leaves.
    pub leaves: u64,
    /// Levels of inner nodes.
    pub height: u32,
    /// Bytes of volatile memory: inner nodes, the leaves' volatile records, separators.
    pub volatile_bytes: u64,
    /// How long the last recovery took, in nanoseconds.
    pub recovery_ns: u64,
    /// Whether that recovery followed a crash.
    pub recovered_from_crash: bool,
    /// Bytes of one leaf in the pool.
    pub leaf_bytes: u64,
    /// Allocations of the pool that the tree reaches or keeps in reserve, where they are more than
    /// its leaves and records.
    pub allocations: Option<u64>,
    /// Figures of an engine that is durable by epochs.
    pub epochs: Option<EpochStat>,
}

/// When the epochs of an engine whose contract is
/// [`Contract::Epoch`](crate::engine::Contract::Epoch) end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EpochLength {
    /// Only when `sync` is called, or when space is short.
    Manual,
    /// Also by themselves, this long after the last one ended; at least a millisecond.
    Every(std::time::Duration),
}

impl Default for EpochLength {
    fn default() -> Self {
        Self::Every(std::time::Duration::from_millis(64))
    }
}

/// Figures about epochs and logs since a tree was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EpochStat {
    /// The running epoch.
    pub running: u64,
    /// Epochs that ended with this tree: they end without trees that nobody writes to.
    pub epochs: u64,
    /// Nodes written to the external log.
    pub nodes_logged: u64,
    /// First changes of a node, or of a line of values, within an epoch, that were logged in line.
    pub in_line_logs: u64,
    /// Lines flushed at the ends of epochs.
    pub lines_flushed: u64,
    /// Nanoseconds for which writers were paused because an epoch ended.
    pub pause_ns: u64,
    /// The longest of these pauses.
    pub pause_ns_max: u64,
    /// Nodes that recovery put back from the external log.
    pub nodes_restored: u64,
    /// Whether nodes of failed epochs may be left, which are recovered at their next use.
    pub is_sweeping: bool,
    /// Keys that the sweep has passed.
    pub swept_keys: u64,
    /// Whether the last epoch could not be ended. The next write tries again, and returns the
    /// error.
    pub is_failing: bool,
}

impl EpochStat {
    /// The counters, with names.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("epochs", self.epochs),
            ("nodes_logged", self.nodes_logged),
            ("in_line_logs", self.in_line_logs),
            ("lines_flushed", self.lines_flushed),
            ("pause_ns", self.pause_ns),
        ]
    }
}

/// A range being read: each key at most once, in order, and every key that is present for the whole
/// scan.
pub trait Scan: Send {
    /// Goes to the next entry; `false` at the end.
    fn advance(&mut self) -> Result<bool>;

    /// The key and the value of the present entry, to which the last [`Scan::advance`] went. Only
    /// after it returned `true`.
    fn entry(&self) -> (&[u8], &[u8]);

    /// The LSN at which the state that was read so far is durable, the end of the range included.
    /// The caller must return neither the entry nor the end before that.
    fn lsn(&self) -> Lsn;

    /// How many entries the scan has read together with the present one and not yet returned. At 0
    /// the next call of [`Scan::advance`] may read the tree anew.
    fn entries_ahead(&self) -> usize {
        0
    }

    /// The last key that was read together with the present entry; `None` if that is not known.
    fn last_key_ahead(&self) -> Option<&[u8]> {
        None
    }

    /// Replaces `key` and `value` by the next entry; `false` at the end.
    fn next_into(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        let is_there = self.advance()?;
        if is_there {
            let (found, its_value) = self.entry();
            key.clear();
            key.extend_from_slice(found);
            value.clear();
            value.extend_from_slice(its_value);
        }
        Ok(is_there)
    }
}

/// A range whose entries are durable when they are returned: see [`Index::range`].
struct DurableScan<'i, T: ?Sized> {
    tree: &'i T,
    scan: Box<dyn Scan + 'i>,
    waited: Lsn,
}

impl<T: Index + ?Sized> Scan for DurableScan<'_, T> {
    fn advance(&mut self) -> Result<bool> {
        let is_there = self.scan.advance()?;
        let lsn = self.scan.lsn();
        if lsn > self.waited {
            self.tree.wait(lsn)?;
            self.waited = lsn;
        }
        Ok(is_there)
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        self.scan.entry()
    }

    fn lsn(&self) -> Lsn {
        Lsn::DURABLE
    }

    fn entries_ahead(&self) -> usize {
        self.scan.entries_ahead()
    }

    fn last_key_ahead(&self) -> Option<&[u8]> {
        self.scan.last_key_ahead()
    }
}

/// An ordered map. Keys compare as byte strings. Unless an engine says otherwise all of it is safe
/// to call from any number of threads. Through [`Any`] a caller gets the engine's own type from a
/// `dyn Index`.
///
/// An engine orders its writes and does not wait until they are durable. Its operations
/// ([`Index::read`], [`Index::write`], [`Index::cursor`] and the like) return an LSN. The caller
/// has to wait for it ([`Index::wait`]) before it returns the answer. The operations that are built
/// on these ([`Index::get`], [`Index::put`], [`Index::range`] and the like) wait once, and then
/// return.
pub trait Index: Any + Send + Sync {
    /// The engine's name.
    fn engine(&self) -> &'static str;

    /// The codec's name.
    fn codec(&self) -> &'static str;

    /// Copies the value of `key` into `value`, which is cleared first; `false` if the key is
    /// absent. Does not wait. O(log n).
    fn read_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Observed<bool>>;

    /// The value of `key`. Does not wait. O(log n).
    fn read(&self, key: &[u8]) -> Result<Observed<Option<Value>>> {
        let mut buffer = Vec::new();
        let found = self.read_into(key, &mut buffer)?;
        Ok(found.map(|is_present| is_present.then(|| Value::from_vec(buffer))))
    }

    /// Writes `value`, or removes the key if it is `None`, provided that `condition` holds. Does
    /// not wait. O(log n).
    fn write(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Result<Written>;

    /// The values of many keys, in their order: one descent for all, interleaved, with prefetching.
    /// Does not wait.
    fn read_many(&self, keys: &[&[u8]]) -> Result<Observed<Vec<Option<Value>>>>;

    /// The entries within `bounds`. Does not wait.
    fn cursor<'i>(&'i self, bounds: Bounds, direction: Direction) -> Result<Box<dyn Scan + 'i>>;

    /// Waits until everything up to `lsn` is durable, unless the durability of operations is put
    /// off.
    ///
    /// # Errors
    /// [`ErrorKind::Medium`](crate::ErrorKind::Medium) if the medium failed.
    #[track_caller]
    fn wait(&self, lsn: Lsn) -> Result<()>;

    /// [`Index::read_into`], durable when it returns.
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.read_into(key, value)?;
        self.wait(found.lsn)?;
        Ok(found.value)
    }

    /// The value of `key`, durable when this returns. O(log n).
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let found = self.read(key)?;
        self.wait(found.lsn)?;
        Ok(found.value)
    }

    /// [`Index::write`], durable when it returns. Returns whether the condition held.
    fn write_durably(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Result<bool> {
        let written = self.write(key, value, condition)?;
        self.wait(written.lsn)?;
        Ok(written.held)
    }

    /// Adds a key; `false` if it is present.
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write_durably(key, Some(value), Condition::Absent)
    }

    /// Replaces the value of a key; `false` if it is absent.
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write_durably(key, Some(value), Condition::Present)
    }

    /// Sets the value of a key, whether it is present or not.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_durably(key, Some(value), Condition::Always)
            .map(|_| ())
    }

    /// Removes a key; `false` if it is absent.
    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.write_durably(key, None, Condition::Present)
    }

    /// Replaces `current` by `new`, where `None` stands for absent. Does not wait. The condition
    /// held if the key had `current`.
    fn exchange(&self, key: &[u8], current: Option<&[u8]>, new: Option<&[u8]>) -> Result<Written> {
        match (current, new) {
            (None, None) => {
                let found = self.read(key)?;
                Ok(Written {
                    held: found.value.is_none(),
                    lsn: found.lsn,
                })
            }
            (None, Some(new)) => self.write(key, Some(new), Condition::Absent),
            (Some(current), new) => self.write(key, new, Condition::Equals(current)),
        }
    }

    /// [`Index::exchange`], durable when it returns. Returns whether the key had `current`.
    fn compare_exchange(
        &self,
        key: &[u8],
        current: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let written = self.exchange(key, current, new)?;
        self.wait(written.lsn)?;
        Ok(written.held)
    }

    /// [`Index::read_many`], durable when it returns.
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let found = self.read_many(keys)?;
        self.wait(found.lsn)?;
        Ok(found.value)
    }

    /// [`Index::cursor`], whose entries are durable when they are returned.
    fn range<'i>(&'i self, bounds: Bounds, direction: Direction) -> Result<Box<dyn Scan + 'i>> {
        Ok(Box::new(DurableScan {
            tree: self,
            scan: self.cursor(bounds, direction)?,
            waited: Lsn::DURABLE,
        }))
    }

    /// Marks the allocations that the tree reaches, if its open left that for later. Other threads
    /// may read and write meanwhile. Calls `go_on` now and then to ask whether to go on; returns
    /// whether everything is marked. The calling thread must not be pinned. O(n).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the tree is damaged.
    fn mark(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        let _ = go_on;
        Ok(true)
    }

    /// The number of keys; exact when no thread writes. Waits until the counted state is durable.
    /// O(leaves).
    fn len(&self) -> Result<u64>;

    /// Whether there is no key. O(1) unless leaves are empty.
    fn is_empty(&self) -> Result<bool> {
        let mut scan = self.range(Bounds::all(), Direction::Forward)?;
        Ok(!scan.advance()?)
    }

    /// Fills an empty tree from entries in strictly ascending order, leaves to `fill` (0.5 to 1.0)
    /// of their capacity. The load is atomic, also across a crash. Waits until it is durable;
    /// returns the number of entries. O(n).
    ///
    /// `next` replaces key and value by the next entry and returns `false` at the end, and is then
    /// not called again. It may read this tree, and end its epochs, but must not write to it.
    fn bulk_load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64>;

    /// Verifies the whole structure and returns every violation. O(n). Writers may have to wait:
    /// some engines lock one leaf at a time, others the whole tree until the end.
    fn check(&self) -> Result<Vec<Violation>>;

    /// Calls `visit` with the entries that can be read, in ascending order of keys, until it
    /// returns `false`. Returns the damage that cost entries or, if there is none, other damage.
    /// Returns `None` and reads nothing for engines whose salvage needs no open tree. No lock is
    /// held while `visit` is called, so it may use the tree, and wait for other threads. Entries
    /// that are written meanwhile may be left out. O(n).
    fn salvage(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<Option<Vec<LeftOut>>> {
        let _ = visit;
        Ok(None)
    }

    /// Figures. O(leaves).
    fn stat(&self) -> Result<IndexStat>;

    /// For a pool that is full: frees removed memory that waits to be reused. The calling thread
    /// must not be within an operation. Engines that retire memory through the pool alone have
    /// nothing to do here.
    fn reclaim(&self) {}

    /// Chooses space that is to be emptied, for an engine with an allocator of its own, and keeps
    /// allocations away from it until [`Index::end_evacuation`]. Returns how many slabs that is; 0
    /// for engines whose records and nodes are allocations of the pool, which chooses slabs for them
    /// ([`pool::Pool::evacuate`]).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the tree is damaged;
    /// [`ErrorKind::WithinEpoch`](crate::ErrorKind::WithinEpoch) within an epoch.
    fn begin_evacuation(&self, choice: Evacuate) -> Result<u64> {
        let _ = choice;
        Ok(0)
    }

    /// The slabs of an engine with an allocator of its own. O(slabs).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the tree is damaged.
    fn own_space(&self) -> Result<OwnSpace> {
        Ok(OwnSpace::default())
    }

    /// Allows allocations again from all space.
    fn end_evacuation(&self) {}

    /// Adds keys to `evacuated`, from [`EvacuatedKeys::from`] on, whose records lie in slabs that
    /// are to be emptied ([`pool::Evacuation`]), and leaves that lie there, and notes where the search goes on. A key that is
    /// written meanwhile may be left out. O(log n + entries that are read).
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the tree is damaged.
    fn find_evacuated(&self, evacuated: &mut EvacuatedKeys) -> Result<()> {
        evacuated.is_finished = true;
        Ok(())
    }

    /// Copies the record of `key`, if it lies in a slab that is to be emptied, and gives the key the
    /// copy. The value does not change. Does not wait. O(log n).
    ///
    /// # Errors
    /// [`ErrorKind::PoolFull`](crate::ErrorKind::PoolFull) if there is no room for the copy; the
    /// errors of [`Index::write`].
    fn move_record(&self, key: &[u8]) -> Result<Moved> {
        let _ = key;
        Ok(Moved::NotEvacuated)
    }

    /// Moves the leaf whose lower bound is `low`, as [`Index::find_evacuated`] has returned it, if it
    /// lies in a slab that is to be emptied. The content does not change. Does not wait. O(log n).
    ///
    /// # Errors
    /// Those of [`Index::move_record`].
    fn move_node(&self, low: &[u8]) -> Result<Moved> {
        let _ = low;
        Ok(Moved::NotEvacuated)
    }

    /// Gives back all space of a tree that was removed from the pool's root table. No thread may
    /// use the tree, now or later. O(n).
    fn destroy(&self) -> Result<()>;

    /// The fast path for trees of words.
    fn words(&self) -> Option<&dyn WordIndex> {
        None
    }

    /// The operations of an engine that is durable by epochs.
    fn epochs(&self) -> Option<&dyn Epochs> {
        None
    }

    /// The counters of an engine that has some.
    fn measured(&self) -> Option<&dyn Measured> {
        None
    }
}

impl dyn Index {
    /// Ends the epoch, as [`Epochs::sync`] does. Operations of other engines are durable when they
    /// return, so there is nothing to do.
    pub fn sync(&self) -> Result<()> {
        match self.epochs() {
            Some(epochs) => epochs.sync(),
            None => Ok(()),
        }
    }

    /// The counters of [`Measured::counters`], or else those of its epochs; empty for engines
    /// without either.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        if let Some(measured) = self.measured() {
            return measured.counters();
        }
        match self.epochs() {
            Some(epochs) => epochs.epoch_stat().counters(),
            None => Vec::new(),
        }
    }
}

/// A tree whose operations become durable with the end of an epoch.
pub trait Epochs {
    /// Ends the epoch: all earlier writes are durable when this returns.
    fn sync(&self) -> Result<()>;

    /// Calls `run` with the number of the running epoch, which does not end meanwhile. `run` may
    /// write to any trees of the pool that are durable by epochs, and a crash leaves all of these
    /// writes or none.
    ///
    /// - There is no isolation: other threads see each write as soon as it is done.
    /// - An error undoes nothing: earlier writes stay.
    /// - `run` should be short, because space that the end of the epoch would free is not free.
    /// - Inside of `run`, operations that end an epoch or hold back all writers fail with
    ///   [`ErrorKind::WithinEpoch`](crate::ErrorKind::WithinEpoch).
    /// - Inside of `run`, a write to a full pool does not try to make room.
    /// - A transient tree calls `run` outside of any epoch, with 0.
    ///
    /// # Errors
    /// [`ErrorKind::WithinEpoch`](crate::ErrorKind::WithinEpoch) within another one; otherwise the error
    /// that `run` returns, for example [`ErrorKind::EpochFull`](crate::ErrorKind::EpochFull) from a
    /// write that changes more nodes than an epoch can log.
    fn within_epoch(&self, run: &mut dyn FnMut(u64) -> Result<()>) -> Result<()>;

    /// Ends this epoch, if it still runs: all writes in it are ordered before everything that is
    /// flushed later. Returns the LSN at which it is durable, and does not wait for that.
    fn complete(&self, epoch: u64) -> Result<Lsn>;

    /// Ends no epoch from now on: the next open counts the running one as failed.
    fn give_up(&self);

    /// Whether a crash may take back the state of a key, also its absence, because the running
    /// epoch has changed it. An engine may answer `true` for more keys than that. If the answer is
    /// `false`, the state is ordered before everything that is flushed later. No thread writes to
    /// the key meanwhile. A transient tree answers `false`. O(log n).
    ///
    /// # Errors
    /// Those of damage and of keys that the tree cannot hold.
    fn has_changed(&self, key: &[u8]) -> Result<bool>;

    /// Whether the tree is transient: it is lost with its process, and has no part in the epochs that
    /// the other trees of its pool share.
    fn is_transient(&self) -> bool;

    /// The number of the running epoch. O(1).
    fn running(&self) -> u64;

    /// Whether this epoch is complete and durable. O(1).
    fn is_durable(&self, epoch: u64) -> bool;

    /// Recovers at once all nodes that failed epochs have changed, instead of each when it is first
    /// touched. O(n) after a crash, else O(1).
    ///
    /// # Errors
    /// [`ErrorKind::WithinEpoch`](crate::ErrorKind::WithinEpoch) within an epoch; those of damage and of a
    /// failed medium.
    fn sweep(&self) -> Result<()>;

    /// The progress of the sweep after a crash, and the cost of ends of epochs. Unlike
    /// [`Index::stat`] it walks no nodes and delays no thread. O(1).
    fn epoch_stat(&self) -> EpochStat;
}

/// A tree with counters of its work.
pub trait Measured {
    /// The tree's internal work since it was opened, by name: splits, merges and the like.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// Reads a key, or sets its value if it is present, and returns the time that each part took:
    /// for measurements. `None`, and nothing is done, for engines that do not measure the time.
    fn profile(&self, key: &[u8], value: Option<&[u8]>) -> Result<Option<Profile>> {
        let _ = (key, value);
        Ok(None)
    }
}

/// A source of entries for [`Index::bulk_load`].
pub type NextEntry<'a> = dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> Result<bool> + 'a;

/// A tree of words: keys and values are `u64`, with no conversion to bytes. The same methods wait
/// for durability as in [`Index`].
pub trait WordIndex: Send + Sync {
    /// The value of `key`. Does not wait.
    fn read(&self, key: u64) -> Result<Observed<Option<u64>>>;

    /// Writes `value`, or removes the key, under a condition: see [`Index::write`]. Does not wait.
    fn write(&self, key: u64, value: Option<u64>, condition: Condition<u64>) -> Result<Written>;

    /// The values of `keys`, in their order, interleaved with prefetching. `values` is as long as
    /// `keys`. Returns the LSN at which the state that was read is durable. Does not wait.
    fn read_many(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<Lsn>;

    /// Calls `visit` with the entries from `from` on, keys and values, ascending and some at a
    /// time, each time with the LSN at which they are durable, until it returns `false`. Returns
    /// the LSN at which the state that was read is durable. Does not wait. O(log n + entries).
    fn visit(&self, from: u64, visit: &mut VisitWords<'_>) -> Result<Lsn>;

    /// Waits until everything up to `lsn` is durable: see [`Index::wait`].
    #[track_caller]
    fn wait(&self, lsn: Lsn) -> Result<()>;

    /// The value of `key`, durable when this returns.
    fn get(&self, key: u64) -> Result<Option<u64>> {
        let found = self.read(key)?;
        self.wait(found.lsn)?;
        Ok(found.value)
    }

    /// [`WordIndex::write`], durable when it returns. Returns whether the condition held.
    fn write_durably(
        &self,
        key: u64,
        value: Option<u64>,
        condition: Condition<u64>,
    ) -> Result<bool> {
        let written = self.write(key, value, condition)?;
        self.wait(written.lsn)?;
        Ok(written.held)
    }

    /// [`WordIndex::read_many`], durable when it returns.
    fn get_many(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        let lsn = self.read_many(keys, values)?;
        self.wait(lsn)
    }

    /// Calls `visit` with the entries from `from` on, ascending and some at a time, once they are
    /// durable, until it returns `false`. O(log n + entries).
    fn scan(&self, from: u64, visit: &mut dyn FnMut(&[[u64; 2]]) -> bool) -> Result<()> {
        let failure = Cell::new(None);
        let end = self.visit(from, &mut |entries, lsn| {
            // Mostly nothing has to become durable, and this is called for every few entries.
            if lsn != Lsn::DURABLE
                && let Err(error) = self.wait(lsn)
            {
                failure.set(Some(error));
                return false;
            }
            visit(entries)
        })?;
        match failure.into_inner() {
            Some(error) => Err(error),
            None => self.wait(end),
        }
    }
}

/// Takes entries of a tree of words and the LSN at which they are durable; returns whether it wants
/// more.
pub type VisitWords<'v> = dyn FnMut(&[[u64; 2]], Lsn) -> bool + 'v;

impl dyn WordIndex + '_ {
    /// Does the same as [`WordIndex::scan`], with one entry at a time.
    #[inline]
    pub fn scan_each(&self, from: u64, mut visit: impl FnMut(u64, u64) -> bool) -> Result<()> {
        self.scan(from, &mut |entries| {
            entries.iter().all(|[key, value]| visit(*key, *value))
        })
    }
}

/// Whether a tree is also a tree of words: decided by its codec.
pub trait MaybeWords {
    /// The tree as a tree of words, if it is one.
    fn maybe_words(&self) -> Option<&dyn WordIndex>;
}
