//! What tells two moments of a run apart: which places threads share, and a number for all that may still matter.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use medium::sync::schedule::{Access, AccessKind};

/// Places are numbers that nobody chose to collide, so one multiplication is enough.
#[derive(Default)]
pub(super) struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0, u64::from(*byte));
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = mix(0, number as u64);
    }
}

type PlaceMap<T> = HashMap<usize, T, BuildHasherDefault<PlaceHasher>>;
type PlaceSet = HashSet<usize, BuildHasherDefault<PlaceHasher>>;

pub(super) fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state.rotate_left(29) ^ word ^ 0x2d35_8dcc_aa6c_78a5) * 0x8bb8_4b93_962e_acc9;
    (product as u64) ^ (product >> 64) as u64
}

/// Which threads have used a place: bit t for thread t.
#[derive(Clone, Copy, Default)]
struct Users {
    readers: u64,
    writers: u64,
}

impl Users {
    /// Whether it matters in which order they come.
    fn conflict(self) -> bool {
        self.writers != 0 && (self.readers | self.writers).count_ones() > 1
    }
}

/// The places that threads share in conflict: one writes, another one reads or writes.
///
/// A thread that is stopped before an access to any other place might as well have been stopped later: what it does up to
/// its next conflict commutes with whatever the others do. So only conflicts are worth a switch. They are learned from
/// the runs themselves; a round of exploration goes by those of the rounds before, and is done anew if it found more.
#[derive(Default)]
pub(super) struct Conflicts {
    users: PlaceMap<Users>,
    /// Those by which this round goes.
    known: PlaceSet,
    /// Those that are new in it.
    new: Vec<usize>,
}

impl Conflicts {
    /// Begins another round; `false` if the last one found nothing new.
    pub(super) fn next_round(&mut self) -> bool {
        let found = !self.new.is_empty();
        self.known.extend(self.new.drain(..));
        found
    }

    /// Whether the order of this access and those of other threads matters.
    pub(super) fn concerns(&self, access: &Access) -> bool {
        access.kind == AccessKind::Fence || places(access).any(|place| self.known.contains(&place))
    }

    fn learn(&mut self, thread: usize, access: &Access) {
        for place in places(access) {
            let users = self.users.entry(place).or_default();
            let before = users.conflict();
            match access.kind {
                AccessKind::Load => users.readers |= 1 << thread,
                AccessKind::Store => users.writers |= 1 << thread,
                AccessKind::Fence => {}
            }
            if !before && users.conflict() {
                self.new.push(place);
            }
        }
    }
}

fn places(access: &Access) -> impl Iterator<Item = usize> + use<> {
    access.place..access.place + access.places
}

/// A number for the state that a run is in. Two moments with the same number have the same future: each thread has seen
/// the same, and so stands at the same place with the same in its hands, and each place holds what the same thread wrote
/// with the same knowledge.
#[derive(Default)]
pub(super) struct State {
    /// For each thread, all that it has seen.
    threads: Vec<u64>,
    /// For each shared place, who wrote it and what he had seen.
    places: PlaceMap<u64>,
    /// All places together.
    memory: u64,
}

impl State {
    pub(super) fn reset(&mut self, threads: usize) {
        self.threads.clear();
        self.threads.resize(threads, 0);
        self.places.clear();
        self.memory = 0;
    }

    /// A thread does something that others may have caused, or may see.
    pub(super) fn note(&mut self, conflicts: &mut Conflicts, thread: usize, access: &Access) {
        conflicts.learn(thread, access);
        self.see(thread, access.kind as u64);
        if access.kind == AccessKind::Fence {
            return;
        }
        for place in places(access).filter(|place| conflicts.known.contains(place)) {
            let held = self.places.get(&place).copied().unwrap_or_default();
            self.see(thread, mix(held, place as u64));
            if access.kind == AccessKind::Store {
                let written = mix(self.threads[thread], place as u64);
                self.memory ^= mix(held, place as u64) ^ mix(written, place as u64);
                self.places.insert(place, written);
            }
        }
    }

    /// A thread learns something.
    pub(super) fn see(&mut self, thread: usize, what: u64) {
        self.threads[thread] = mix(self.threads[thread], what);
    }

    /// The number of all of it.
    pub(super) fn number(&self) -> u64 {
        self.threads.iter().fold(self.memory, |state, thread| mix(state, *thread))
    }
}
