//! What tells two moments of a run apart: which places threads share, and a number for all that may still matter.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use medium::sync::schedule::{Access, AccessKind};

use crate::model::Rules;

/// No adversary chooses places and states, so one multiplication is enough.
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
/// done are worth a switch. Which thread uses which place is learned from the runs themselves; a round of exploration goes by
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

    /// Whether the order of this access and those of these other threads matters. That of what makes something durable
    /// always does, for a crash may come between: of fences, and of stores where caches are persistent.
    pub(super) fn concerns(&self, access: &Access, others: u64, rules: Rules) -> bool {
        let is_store = access.kind == AccessKind::Store && access.is_to_lines();
        access.kind == AccessKind::Fence
            || rules == Rules::PersistentCaches && is_store
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

/// Whether the order of two accesses matters. In a log it also matters which fence comes first, and what lines hold then.
fn are_in_conflict(one: &Access, other: &Access, rules: Rules) -> bool {
    let either = |kind| one.kind == kind || other.kind == kind;
    if either(AccessKind::Fence) {
        return rules == Rules::Log && (one.kind == other.kind || either(AccessKind::Store));
    }
    let meet = one.place < other.place + other.places && other.place < one.place + one.places;
    meet && either(AccessKind::Store)
}

/// Threads that were preempted, and that need not go on before something has happened that concerns them.
///
/// Had such a thread done what it was about to do before it was stopped, and been stopped then, the rest of the schedule
/// would be the same, with no more preemptions; and that schedule is tried as well. (Godefroid's sleep sets. As preemptions
/// are counted, only a preempted thread falls asleep: a thread that was tried before another one, and is not going on
/// by itself, would need one more preemption to come first.)
///
/// What the thread returns, it returns earlier in that schedule, and so to stricter expectations.
#[derive(Default)]
pub(super) struct Sleepers {
    /// For each thread what it is about to do; nothing, if that is an operation.
    pending: Vec<Option<Access>>,
    /// Bit t for thread t.
    asleep: u64,
}

impl Sleepers {
    pub(super) fn reset(&mut self, threads: usize) {
        self.pending.clear();
        self.pending.resize(threads, None);
        self.asleep = 0;
    }

    /// The sleeping threads: bit t for thread t.
    pub(super) fn asleep(&self) -> u64 {
        self.asleep
    }

    /// A thread was preempted, and was about to do this.
    pub(super) fn add(&mut self, thread: usize, pending: Option<Access>) {
        self.pending[thread] = pending;
        self.asleep |= 1 << thread;
    }

    /// Wakes those of whom this holds.
    fn wake(&mut self, concerns: impl Fn(Option<&Access>) -> bool) {
        let mut left = self.asleep;
        while left != 0 {
            let thread = left.trailing_zeros() as usize;
            left &= left - 1;
            if concerns(self.pending[thread].as_ref()) {
                self.asleep &= !(1 << thread);
            }
        }
    }

    /// Another thread does this.
    pub(super) fn note(&mut self, access: &Access, rules: Rules) {
        self.wake(|pending| pending.is_some_and(|pending| are_in_conflict(pending, access, rules)));
    }

    /// An operation has returned: those that begin now come after it.
    pub(super) fn respond(&mut self) {
        self.wake(|pending| pending.is_none());
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
    /// For each shared place, the thread that wrote it and what that thread had seen.
    places: PlaceMap<u64>,
    /// All places together.
    memory: u64,
    /// What was appended to the log, if there is one: the state of the thread and of the memory at each append.
    log: u64,
}

impl State {
    pub(super) fn reset(&mut self, threads: usize) {
        self.threads.clear();
        self.threads.resize(threads, 0);
        self.places.clear();
        (self.memory, self.log) = (0, 0);
    }

    /// A thread is about to do something. That tells what it knows, also of what is no place: inner nodes, free memory.
    pub(super) fn approach(&mut self, conflicts: &Conflicts, thread: usize, access: &Access) {
        self.see(thread, access.kind as u64);
        for place in places(access).filter(|place| conflicts.known.contains_key(place)) {
            self.see(thread, place as u64);
        }
    }

    /// A thread does something that others may have caused, or may see.
    pub(super) fn note(
        &mut self,
        conflicts: &mut Conflicts,
        thread: usize,
        (access, rules): (&Access, Rules),
    ) {
        conflicts.learn(thread, access);
        if access.kind == AccessKind::Fence {
            if rules == Rules::Log {
                // The append takes what lines hold now, whichever thread stored it.
                self.log = mix(mix(self.log, self.memory), self.threads[thread]);
            }
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
        self.threads.iter().fold(self.memory ^ self.log, |state, thread| mix(state, *thread))
    }
}
