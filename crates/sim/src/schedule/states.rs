//! What tells two moments of a run apart: which places threads share, and a number for all that may still matter.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use medium::sync::schedule::{Access, AccessKind};

/// Places and states are numbers that nobody chose to collide, so one multiplication is enough.
#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
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

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(0, number);
    }
}

pub(super) type NumberMap<N, T> = HashMap<N, T, BuildHasherDefault<NumberHasher>>;
type PlaceMap<T> = NumberMap<usize, T>;

pub(super) fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state.rotate_left(29) ^ word ^ 0x2d35_8dcc_aa6c_78a5) * 0x8bb8_4b93_962e_acc9;
    (product as u64) ^ (product >> 64) as u64
}

/// Which threads have used a place: bit t for thread t.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Users {
    readers: u64,
    writers: u64,
}

impl Users {
    /// Whether it matters in which order they come.
    fn conflict(self) -> bool {
        self.writers != 0 && (self.readers | self.writers).count_ones() > 1
    }

    /// Those with whom an access is in conflict.
    fn against(self, kind: AccessKind) -> u64 {
        match kind {
            AccessKind::Load => self.writers,
            AccessKind::Store => self.readers | self.writers,
            AccessKind::Fence => 0,
        }
    }
}

/// The places that threads share in conflict: one writes, another one reads or writes.
///
/// A thread that is stopped before any other access might as well have been stopped later: what it does up to its next
/// conflict commutes with whatever the others do. So only accesses that are in conflict with those of a thread that is not
/// done are worth a switch. Who uses which place is learned from the runs themselves; a round of exploration goes by
/// what was known when it began, and is done anew if it found more.
#[derive(Default)]
pub(super) struct Conflicts {
    users: PlaceMap<Users>,
    /// Those of places in conflict when this round began.
    known: PlaceMap<Users>,
    /// Whether there is more by now.
    has_grown: bool,
}

impl Conflicts {
    /// Begins another round; `false` if the last one found nothing new.
    pub(super) fn next_round(&mut self) -> bool {
        let has_grown = std::mem::take(&mut self.has_grown);
        if has_grown {
            let users = self.users.iter().filter(|(_, users)| users.conflict());
            self.known = users.map(|(place, users)| (*place, *users)).collect();
        }
        has_grown
    }

    /// Whether the order of this access and those of these other threads matters.
    pub(super) fn concerns(&self, access: &Access, others: u64) -> bool {
        access.kind == AccessKind::Fence
            || places(access).any(|place| {
                self.known.get(&place).is_some_and(|users| users.against(access.kind) & others != 0)
            })
    }

    fn learn(&mut self, thread: usize, access: &Access) {
        for place in places(access) {
            let users = self.users.entry(place).or_default();
            let before = *users;
            match access.kind {
                AccessKind::Load => users.readers |= 1 << thread,
                AccessKind::Store => users.writers |= 1 << thread,
                AccessKind::Fence => {}
            }
            self.has_grown |= *users != before && users.conflict();
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

    /// A thread is about to do something. That tells what it knows, also of what is no place: inner nodes, free memory.
    pub(super) fn approach(&mut self, conflicts: &Conflicts, thread: usize, access: &Access) {
        self.see(thread, access.kind as u64);
        for place in places(access).filter(|place| conflicts.known.contains_key(place)) {
            self.see(thread, place as u64);
        }
    }

    /// A thread does something that others may have caused, or may see.
    pub(super) fn note(&mut self, conflicts: &mut Conflicts, thread: usize, access: &Access) {
        conflicts.learn(thread, access);
        if access.kind == AccessKind::Fence {
            return;
        }
        for place in places(access).filter(|place| conflicts.known.contains_key(place)) {
            let held = self.places.get(&place).copied().unwrap_or_default();
            self.see(thread, held);
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
