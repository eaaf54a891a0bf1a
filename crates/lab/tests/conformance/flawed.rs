//! An engine that is wrong in one way: the sorted chain, with a flaw planted around it.

use std::ops::Bound;

use engines::engine::{
    Build, Contract, Engine, EngineEntry, Media, Nodes, OUTSIDE_IDS, Opening, Persists, Setting,
    Settings, Values,
};
use engines::index::record;
use engines::index::{
    Bounds, Codec, Condition, Direction, EvacuatedKeys, Index, IndexStat, Moved, NextEntry,
    Observed, Scan, Value, Violation, VisitWords, WordIndex, Written,
};
use engines::{ErrorKind, Result, factory_of};
use everleaf_lab::sorted_chain::SortedChain;
use medium::{Lsn, Medium};
use pool::{NewTree, Pool, TreeRoot};

macro_rules! flaws {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// The flaw.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Flaw {
            $($(#[$meta])* $name,)*
        }

        impl Flaw {
            /// All of them, by number.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

flaws! {
    /// Nothing.
    None,
    /// An insert replaces the value of a present key.
    InsertReplaces,
    /// An update adds a key that is absent.
    UpdateInserts,
    /// A write whose comparison fails still writes.
    ComparisonIsIgnored,
    /// Between a comparison and its write another thread may write.
    ComparisonIsNotAtomic,
    /// Between the search for a key and its insert or remove another thread may do the same.
    WritesRace,
    /// A reverse range lacks its first entry.
    ReverseSkipsTheFirst,
    /// An excluded end is included.
    ExcludedIsIncluded,
    /// A range goes on by counting entries, not from its last key.
    RangeCounts,
    /// `get_many` answers in the order of keys.
    GetManySorts,
    /// `get_into` does not clear the buffer.
    GetIntoAppends,
    /// Only the first 16 bytes of a key count.
    KeysAreCut,
    /// A key one byte too long is taken.
    LongKeysAreTaken,
    /// A clean close loses a key.
    CleanCloseLosesOne,
    /// A crash loses a key.
    CrashLosesOne,
    /// A remove allocates space that it never frees.
    RemoveLeaks,
    /// A removed tree keeps its space until the next mark.
    DestroyLeaks,
    /// A condition that fails leaks.
    FailedConditionLeaks,
    /// Each insert also adds a hidden key, so space grows although all of it is reachable.
    Hoards,
    /// A write that a full pool refuses takes a key with it.
    FullPoolLoses,
    /// A bulk load that fails keeps what it had loaded.
    BulkLoadKeepsAPart,
    /// A bulk load does not check the order.
    BulkLoadTakesAnyOrder,
    /// A bulk load calls its source once more after the end.
    BulkLoadAsksAgain,
    /// A tree opens with another codec or other nodes.
    OpensAsAnything,
    /// All trees of a pool share their entries.
    TreesMix,
    /// A write takes one fence too many.
    OneFenceMore,
    /// An update to the present value takes no fence.
    FencesAreSaved,
    /// A tree that is too damaged to be opened is a panic.
    DamagePanics,
    /// A scan that finds damage begins again.
    DamageCircles,
}

/// The sorted chain with a flaw, as an engine.
pub const FLAWED: Engine = Engine::new(&ENTRY);

/// The position of the setting `flaw`, behind `leaf-entries`.
const FLAW: usize = 1;

static ENTRY: EngineEntry = EngineEntry {
    id: OUTSIDE_IDS + 0x7fff,
    name: "flawed",
    paper: "none",
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
    settings: &[
        Setting {
            name: "leaf-entries",
            help: "the most entries of a leaf",
            values: Values::Number(2, 255),
            is_fixed: true,
            is_hidden: true,
        },
        Setting {
            name: "flaw",
            help: "what is wrong, by number",
            values: Values::Number(0, Flaw::ALL.len() as u64 - 1),
            is_fixed: false,
            is_hidden: true,
        },
    ],
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
    settings_of: |_| Ok(Settings::NONE),
    // The suite tests itself on one medium.
    media: Media {
        instrumented: factory_of!(Flawed, Instrumented),
        ..Media::ABSENT
    },
};

/// The name of the tree of [`Flaw::Hoards`].
const HOARD: &str = "hoard";

/// A sorted chain with a flaw.
struct Flawed<M: Medium, C: Codec> {
    pool: Pool<M>,
    tree: SortedChain<M, C>,
    hoard: Option<SortedChain<M, C>>,
    flaw: Flaw,
}

fn flaw_of(opening: &Opening) -> Flaw {
    Flaw::ALL[opening.settings.get(FLAW).unwrap_or(0) as usize]
}

impl<M: Medium, C: Codec> Build<M> for Flawed<M, C>
where
    SortedChain<M, C>: Build<M>,
{
    fn create(pool: &Pool<M>, new: NewTree<'_>, opening: &Opening) -> Result<Self> {
        let flaw = flaw_of(opening);
        let hoard = (flaw == Flaw::Hoards)
            .then(|| SortedChain::create(pool, HOARD.into(), opening))
            .transpose()?;
        let tree = match pool.trees()?.first() {
            Some(first) if flaw == Flaw::TreesMix => {
                let root = pool.create_tree(new, first.engine, first.codec, &first.words)?;
                SortedChain::open(pool, &root, opening)?
            }
            _ => SortedChain::create(pool, new, opening)?,
        };
        Ok(Self {
            pool: pool.clone(),
            tree,
            hoard,
            flaw,
        })
    }

    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self> {
        let flaw = flaw_of(opening);
        let opened = match flaw {
            Flaw::OpensAsAnything => {
                let any = Opening {
                    settings: Settings::NONE,
                    ..opening.clone()
                };
                SortedChain::open(
                    pool,
                    &TreeRoot {
                        codec: C::ID,
                        ..root.clone()
                    },
                    &any,
                )
            }
            _ => SortedChain::open(pool, root, opening),
        };
        if opened.is_err() && flaw == Flaw::DamagePanics {
            // `panic!` would print a message, and this panic is wanted.
            std::panic::resume_unwind(Box::new("damage"));
        }
        let tree = opened?;
        let loses = if pool.needs_mark() {
            Flaw::CrashLosesOne
        } else {
            Flaw::CleanCloseLosesOne
        };
        if flaw == loses {
            remove_last(&tree)?;
        }
        let hoard = pool
            .trees()?
            .into_iter()
            .find(|other| other.name == HOARD && other.name != root.name);
        let hoard = hoard
            .map(|root| SortedChain::open(pool, &root, opening))
            .transpose()?;
        Ok(Self {
            pool: pool.clone(),
            tree,
            hoard,
            flaw,
        })
    }
}

/// Removes the last key.
fn remove_last(tree: &dyn Index) -> Result<()> {
    let mut key = Vec::new();
    let mut value = Vec::new();
    if tree
        .range(Bounds::all(), Direction::Reverse)?
        .next_into(&mut key, &mut value)?
    {
        tree.remove(&key)?;
    }
    Ok(())
}

impl<M: Medium, C: Codec> Flawed<M, C>
where
    SortedChain<M, C>: Index,
{
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// The key as it is compared.
    fn key<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        let length = match self.flaw {
            Flaw::KeysAreCut => 16,
            Flaw::LongKeysAreTaken if key.len() == record::KEY_BYTES_MAX + 1 => {
                record::KEY_BYTES_MAX
            }
            _ => key.len(),
        };
        &key[..length.min(key.len())]
    }

    fn leak(&self) -> Result<()> {
        self.pool.pin().allocate(100)?;
        Ok(())
    }

    /// The condition as the flaw changes it.
    fn condition<'v>(
        &self,
        condition: Condition<&'v [u8]>,
        is_removal: bool,
    ) -> Condition<&'v [u8]> {
        match (self.flaw, condition) {
            (Flaw::InsertReplaces, Condition::Absent) => Condition::Always,
            (Flaw::UpdateInserts, Condition::Present) if !is_removal => Condition::Always,
            (Flaw::ComparisonIsIgnored, Condition::Equals(_)) => Condition::Present,
            (_, condition) => condition,
        }
    }

    /// Checks a condition, and writes a moment later without checking again. `None` unless that is
    /// the flaw.
    fn write_late(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Result<Option<bool>> {
        let is_comparison = matches!(condition, Condition::Equals(_));
        if !(self.has(Flaw::ComparisonIsNotAtomic) && is_comparison || self.has(Flaw::WritesRace)) {
            return Ok(None);
        }
        let current = self.tree.get(key)?;
        let held = match condition {
            Condition::Always | Condition::Written(_) | Condition::Moved { .. } => true,
            Condition::Absent => current.is_none(),
            Condition::Present => current.is_some(),
            Condition::Equals(value) => current.as_deref() == Some(value),
        };
        if held {
            std::thread::yield_now();
            self.tree.write_durably(key, value, Condition::Always)?;
        }
        Ok(Some(held))
    }

    /// Writes, durably when this returns; returns whether the condition held.
    fn write_with_flaw(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Result<bool> {
        let key = self.key(key);
        if self.has(Flaw::FencesAreSaved)
            && value.is_some()
            && self.tree.get(key)?.as_deref() == value
        {
            return Ok(!matches!(condition, Condition::Absent));
        }
        let held = match self.write_late(key, value, condition)? {
            Some(held) => Ok(held),
            None => self
                .tree
                .write_durably(key, value, self.condition(condition, value.is_none())),
        };
        let held = held.inspect_err(|error| {
            if self.has(Flaw::FullPoolLoses) && error.is_full() {
                let _ = remove_last(&self.tree);
            }
        })?;
        match (self.flaw, held) {
            (Flaw::RemoveLeaks, true) if value.is_none() => self.leak()?,
            (Flaw::FailedConditionLeaks, false) => self.leak()?,
            (Flaw::OneFenceMore, true) => drop(self.pool.pin().fence()),
            _ => {}
        }
        if held
            && let Some(hoard) = &self.hoard
            && let Some(value) = value
        {
            hoard.put(key, value)?;
        }
        Ok(held)
    }
}

impl<M: Medium, C: Codec> Index for Flawed<M, C>
where
    SortedChain<M, C>: Index,
{
    fn engine(&self) -> &'static str {
        ENTRY.name
    }

    fn codec(&self) -> &'static str {
        C::NAME
    }

    fn read_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Observed<bool>> {
        let mut found = Vec::new();
        let is_there = self.tree.get_into(self.key(key), &mut found)?;
        if !self.has(Flaw::GetIntoAppends) {
            value.clear();
        }
        value.extend_from_slice(&found);
        Ok(Observed::durable(is_there))
    }

    fn wait(&self, lsn: Lsn) -> Result<()> {
        Index::wait(&self.tree, lsn)
    }

    fn write(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Result<Written> {
        let held = self.write_with_flaw(key, value, condition)?;
        let lsn = Lsn::DURABLE;
        Ok(Written { held, lsn })
    }

    fn find_evacuated(&self, evacuated: &mut EvacuatedKeys) -> Result<()> {
        self.tree.find_evacuated(evacuated)
    }

    fn move_record(&self, key: &[u8]) -> Result<Moved> {
        self.tree.move_record(key)
    }

    fn read_many(&self, keys: &[&[u8]]) -> Result<Observed<Vec<Option<Value>>>> {
        let mut keys = keys.to_vec();
        if self.has(Flaw::GetManySorts) {
            keys.sort_unstable();
        }
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            values.push(Index::get(self, key)?);
        }
        Ok(Observed::durable(values))
    }

    fn cursor<'i>(
        &'i self,
        mut bounds: Bounds,
        direction: Direction,
    ) -> Result<Box<dyn Scan + 'i>> {
        if self.has(Flaw::ExcludedIsIncluded)
            && let Bound::Excluded(end) = &bounds.upper
        {
            bounds.upper = Bound::Included(end.clone());
        }
        let mut scan = self.tree.range(bounds.clone(), direction)?;
        if self.has(Flaw::ReverseSkipsTheFirst) && direction == Direction::Reverse {
            scan.next_into(&mut Vec::new(), &mut Vec::new())?;
        }
        Ok(Box::new(FlawedScan {
            tree: &self.tree,
            flaw: self.flaw,
            scan,
            bounds,
            direction,
            returned: 0,
        }))
    }

    fn len(&self) -> Result<u64> {
        self.tree.len()
    }

    fn bulk_load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64> {
        if !matches!(
            self.flaw,
            Flaw::BulkLoadKeepsAPart | Flaw::BulkLoadTakesAnyOrder
        ) {
            let entries = self.tree.bulk_load(next, fill)?;
            if self.has(Flaw::BulkLoadAsksAgain) {
                next(&mut Vec::new(), &mut Vec::new())?;
            }
            return Ok(entries);
        }
        if self.tree.len()? > 0 {
            return Err(ErrorKind::NotEmpty.into());
        }
        let mut key = Vec::new();
        let mut value = Vec::new();
        let mut last = None;
        let mut entries = 0;
        while next(&mut key, &mut value)? {
            if self.has(Flaw::BulkLoadKeepsAPart) && last.is_some_and(|last| key <= last) {
                return Err(ErrorKind::NotSorted { index: entries }.into());
            }
            entries += u64::from(self.tree.insert(&key, &value)?);
            last = Some(key.clone());
        }
        Ok(entries)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        self.tree.check()
    }

    fn stat(&self) -> Result<IndexStat> {
        self.tree.stat()
    }

    fn destroy(&self) -> Result<()> {
        if self.has(Flaw::DestroyLeaks) {
            Ok(())
        } else {
            self.tree.destroy()
        }
    }

    fn words(&self) -> Option<&dyn WordIndex> {
        (!C::TIES).then_some(self)
    }
}

/// A range, read with a flaw.
struct FlawedScan<'i> {
    tree: &'i dyn Index,
    flaw: Flaw,
    scan: Box<dyn Scan + 'i>,
    bounds: Bounds,
    direction: Direction,
    returned: usize,
}

impl Scan for FlawedScan<'_> {
    fn advance(&mut self) -> Result<bool> {
        if self.flaw == Flaw::RangeCounts {
            self.scan = self.tree.range(self.bounds.clone(), self.direction)?;
            for _ in 0..self.returned {
                if !self.scan.advance()? {
                    return Ok(false);
                }
            }
        }
        self.returned += 1;
        let next = self.scan.advance();
        if next.is_err() && self.flaw == Flaw::DamageCircles {
            self.scan = self.tree.range(self.bounds.clone(), self.direction)?;
            return Ok(true);
        }
        next
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        self.scan.entry()
    }

    fn lsn(&self) -> Lsn {
        self.scan.lsn()
    }
}

impl<M: Medium, C: Codec> WordIndex for Flawed<M, C>
where
    SortedChain<M, C>: Index,
{
    fn read(&self, key: u64) -> Result<Observed<Option<u64>>> {
        let found = Index::read(self, &key.to_be_bytes())?;
        Ok(found.map(|found| found.map(|value| record::prefix_word(&value))))
    }

    fn wait(&self, lsn: Lsn) -> Result<()> {
        Index::wait(self, lsn)
    }

    fn write(&self, key: u64, value: Option<u64>, condition: Condition<u64>) -> Result<Written> {
        let value = value.map(u64::to_be_bytes);
        let condition = condition.map(u64::to_be_bytes);
        Index::write(
            self,
            &key.to_be_bytes(),
            value.as_ref().map(<[u8; 8]>::as_slice),
            condition.as_ref().map(<[u8; 8]>::as_slice),
        )
    }

    fn read_many(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<Lsn> {
        for (key, value) in keys.iter().zip(values) {
            *value = WordIndex::get(self, *key)?;
        }
        Ok(Lsn::DURABLE)
    }

    fn visit(&self, from: u64, visit: &mut VisitWords<'_>) -> Result<Lsn> {
        let bounds = Bounds {
            lower: Bound::Included(from.to_be_bytes().to_vec()),
            upper: Bound::Unbounded,
        };
        let mut scan = self.range(bounds, Direction::Forward)?;
        let mut key = Vec::new();
        let mut value = Vec::new();
        while scan.next_into(&mut key, &mut value)? {
            let entry = [record::prefix_word(&key), record::prefix_word(&value)];
            if !visit(&[entry], Lsn::DURABLE) {
                break;
            }
        }
        Ok(Lsn::DURABLE)
    }
}
