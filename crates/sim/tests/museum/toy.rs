//! The common part of all exhibits: memory with short methods, a map as the specification, and the
//! test itself.

use std::collections::BTreeMap;
use std::fmt;

use everleaf_sim::{Complaint, ExplorationOptions, Explorer, Subject, Verdict};
use medium::sim::Sim;
use medium::{Medium, MediumGuard, Word};

/// Bytes of memory that a toy has.
pub(crate) const MEMORY_BYTES: u64 = 1 << 14;

/// The offset of a line.
pub(crate) const fn line(number: u64) -> u64 {
    number * 64
}

/// Persistent memory, by offsets. An offset out of bounds panics, which is a complaint like any
/// other.
pub(crate) struct Memory<'s>(MediumGuard<'s, Sim>);

impl<'s> Memory<'s> {
    pub(crate) fn new(sim: &'s Sim) -> Self {
        Self(MediumGuard::new(sim))
    }

    #[track_caller]
    fn word(&self, offset: u64) -> &Word {
        &self
            .0
            .words(offset, 1)
            .unwrap_or_else(|bad| panic!("{bad}"))[0]
    }

    #[track_caller]
    pub(crate) fn load(&self, offset: u64) -> u64 {
        self.word(offset).load(&self.0)
    }

    #[track_caller]
    pub(crate) fn store(&self, offset: u64, value: u64) {
        self.word(offset).store(&self.0, value);
    }

    /// Asks that the line of this word be written back.
    #[track_caller]
    pub(crate) fn flush(&self, offset: u64) {
        self.0.flush(self.word(offset));
    }

    #[track_caller]
    pub(crate) fn fence(&self) {
        self.0.fence();
    }

    /// Flush and fence.
    #[track_caller]
    pub(crate) fn persist(&self, offset: u64) {
        self.flush(offset);
        self.fence();
    }

    /// Store, flush and fence.
    #[track_caller]
    pub(crate) fn publish(&self, offset: u64, value: u64) {
        self.store(offset, value);
        self.persist(offset);
    }
}

/// An operation on a toy, which is a map of words.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    /// Adds a key if it is absent.
    Insert(u64, u64),
    /// Changes the value of a key that is present.
    Update(u64, u64),
    /// Removes a key.
    Remove(u64),
}

pub(crate) use Operation::{Insert, Remove, Update};

impl fmt::Debug for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Insert(key, value) => write!(formatter, "insert {key}={value}"),
            Update(key, value) => write!(formatter, "update {key}={value}"),
            Remove(key) => write!(formatter, "remove {key}"),
        }
    }
}

/// A persistent map of words, in memory of zeros. Volatile state is made anew by `open`.
pub(crate) trait Toy {
    /// Makes it in fresh memory, recovers it after a crash.
    fn open(&self, memory: &Memory<'_>) {
        let _ = memory;
    }

    /// Adds a key that is absent.
    fn insert(&self, memory: &Memory<'_>, key: u64, value: u64);

    /// Changes the value of a key that is present.
    fn update(&self, _memory: &Memory<'_>, _key: u64, _value: u64) {
        unreachable!("this toy has no update")
    }

    /// Removes a key that is present.
    fn remove(&self, _memory: &Memory<'_>, _key: u64) {
        unreachable!("this toy has no remove")
    }

    /// The entries that a scan finds.
    fn entries(&self, memory: &Memory<'_>) -> Vec<(u64, u64)>;

    /// The value that a point read finds.
    fn get(&self, memory: &Memory<'_>, key: u64) -> Option<u64> {
        self.entries(memory)
            .iter()
            .find(|entry| entry.0 == key)
            .map(|entry| entry.1)
    }

    /// Further conditions that must hold.
    fn check(&self, memory: &Memory<'_>) -> Result<(), Complaint> {
        let _ = memory;
        Ok(())
    }
}

/// A toy under exploration, and the operations after each recovery. (Not generic over the toy: the
/// explorer is compiled for each subject.)
struct Shown<'e> {
    toy: &'e dyn Toy,
    then: &'e [Operation],
}

impl Subject for Shown<'_> {
    type Operation = Operation;
    type Outcome = bool;
    type State = BTreeMap<u64, u64>;
    type Instance = Sim;

    fn initial(&self) -> BTreeMap<u64, u64> {
        BTreeMap::new()
    }

    fn step(&self, state: &mut BTreeMap<u64, u64>, operation: &Operation) -> bool {
        let (Insert(key, _) | Update(key, _) | Remove(key)) = *operation;
        let present = state.contains_key(&key);
        match *operation {
            Insert(key, value) if !present => drop(state.insert(key, value)),
            Update(key, value) if present => drop(state.insert(key, value)),
            Remove(key) => drop(state.remove(&key)),
            Insert(..) | Update(..) => {}
        }
        present != matches!(operation, Insert(..))
    }

    fn open(&self, sim: &Sim) -> Result<Sim, Complaint> {
        sim.grow(MEMORY_BYTES).map_err(|error| error.to_string())?;
        self.toy.open(&Memory::new(sim));
        Ok(sim.clone())
    }

    fn apply(&self, sim: &mut Sim, operation: &Operation) -> Result<bool, Complaint> {
        let memory = Memory::new(sim);
        let (Insert(key, _) | Update(key, _) | Remove(key)) = *operation;
        let present = self.toy.get(&memory, key).is_some();
        match *operation {
            Insert(key, value) if !present => self.toy.insert(&memory, key, value),
            Update(key, value) if present => self.toy.update(&memory, key, value),
            Remove(key) if present => self.toy.remove(&memory, key),
            _ => {}
        }
        Ok(present != matches!(operation, Insert(..)))
    }

    fn observe(&self, sim: &mut Sim) -> Result<BTreeMap<u64, u64>, Complaint> {
        let mut found = BTreeMap::new();
        for (key, value) in self.toy.entries(&Memory::new(sim)) {
            if found.insert(key, value).is_some() {
                return Err(format!("a scan found {key} twice"));
            }
        }
        Ok(found)
    }

    fn check(&self, sim: &mut Sim, state: &BTreeMap<u64, u64>) -> Result<(), Complaint> {
        let memory = Memory::new(sim);
        for key in 0..16 {
            let found = self.toy.get(&memory, key);
            let scanned = state.get(&key).copied();
            if found != scanned {
                return Err(format!(
                    "get {key} found {found:?}, a scan found {scanned:?}"
                ));
            }
        }
        self.toy.check(&memory)
    }

    fn follow_up(&self, _: &BTreeMap<u64, u64>, _: &[Operation]) -> Vec<Operation> {
        self.then.to_vec()
    }
}

/// How a bug is shown.
pub(crate) struct Exhibit<'e> {
    /// The operations before, without a crash.
    pub(crate) setup: &'e [Operation],
    /// The operations that are crashed.
    pub(crate) operations: &'e [Operation],
    /// The operations after each recovery.
    pub(crate) then: &'e [Operation],
    /// The text that the report must have.
    pub(crate) complaint: &'e str,
}

impl Exhibit<'_> {
    fn explore<'e>(
        &'e self,
        toy: &'e dyn Toy,
        operations: &[Operation],
        options: ExplorationOptions,
    ) -> Verdict<Shown<'e>> {
        let mut explorer = Explorer::new(
            Shown {
                toy,
                then: self.then,
            },
            options,
        )
        .unwrap();
        if !self.setup.is_empty() {
            explorer.set_up(self.setup)?;
        }
        explorer.explore(operations)?;
        let stats = explorer.stats();
        println!("{stats}\n");
        assert_eq!(stats.cut_short, 0);
        Ok(())
    }

    /// The toy as published must fail with the complaint, and in the same way when the crash is
    /// repeated; the mended one must pass.
    pub(crate) fn show(&self, published: &dyn Toy, mended: &dyn Toy) {
        let options = ExplorationOptions {
            limit_bytes: MEMORY_BYTES,
            steps_max: 20_000,
            command: "cargo test -p everleaf-sim --test museum".to_owned(),
            ..ExplorationOptions::default()
        };
        let failure = self.explore(published, self.operations, options.clone());
        let failure = failure.expect_err("the bug was not noticed");
        println!("{failure}\n");
        assert!(
            failure.what.contains(self.complaint),
            "another complaint: {failure}"
        );
        let replay = ExplorationOptions {
            replay: Some(failure.replay()),
            ..options.clone()
        };
        let again = self
            .explore(published, &failure.operations, replay)
            .expect_err("the replay passed");
        assert_eq!(again.to_string(), failure.to_string());
        self.explore(mended, self.operations, options)
            .unwrap_or_else(|failure| panic!("mended: {failure}"));
    }
}
