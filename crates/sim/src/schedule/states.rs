//! The states of a run: which places threads share, and a digest of everything that may still
//! matter.

use medium::sync::schedule::{Access, AccessKind};
use rustc_hash::FxHashMap;

use crate::model::Rules;

type PlaceMap<T> = FxHashMap<usize, T>;

pub(super) fn mix(state: u64, word: u64) -> u64 {
    let product =
        u128::from(state.rotate_left(29) ^ word ^ 0x2d35_8dcc_aa6c_78a5) * 0x8bb8_4b93_962e_acc9;
    (product as u64) ^ (product >> 64) as u64
}

/// Which threads have used a place: bit t for thread t.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Users {
    readers: u64,
    writers: u64,
}

impl Users {
    /// Whether the order of the two matters.
    fn conflict(self) -> bool {
        self.writers != 0 && (self.readers | self.writers).count_ones() > 1
    }

    /// The threads with which an access is in conflict.
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
/// A thread that is stopped before an access without conflict could as well be stopped later: its
/// steps up to the next conflict commute with those of the others. So a switch is tried only before
/// accesses in conflict with those of a thread that is not done. The conflicts are learned from the
/// runs themselves: a round of the exploration uses the conflicts known when it began, and is
/// repeated if it found new ones.
#[derive(Default)]
pub(super) struct Conflicts {
    users: PlaceMap<Users>,
    /// The places in conflict when this round began.
    known: PlaceMap<Users>,
    /// Whether this round found new conflicts.
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

    /// Whether the order of this access and those of these other threads matters. It always does
    /// for an access that makes something durable (a fence, or a store with persistent caches),
    /// because a crash may come in between.
    pub(super) fn concerns(&self, access: &Access, others: u64, rules: Rules) -> bool {
        let is_store = access.kind == AccessKind::Store && access.is_to_lines();
        access.kind == AccessKind::Fence
            || rules == Rules::PersistentCaches && is_store
            || places(access).any(|place| {
                self.known
                    .get(&place)
                    .is_some_and(|users| users.against(access.kind) & others != 0)
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

/// Whether the order of two accesses matters. In a log the order of fences matters as well, and
/// that of fences and stores.
fn are_in_conflict(one: &Access, other: &Access, rules: Rules) -> bool {
    let either = |kind| one.kind == kind || other.kind == kind;
    if either(AccessKind::Fence) {
        return rules == Rules::Log && (one.kind == other.kind || either(AccessKind::Store));
    }
    let meet = one.place < other.place + other.places && other.place < one.place + one.places;
    meet && either(AccessKind::Store)
}

/// Preempted threads that need not go on before a step in conflict with their next one.
///
/// If such a thread had taken its next step before it was stopped, the rest of the schedule would
/// be the same, with no more preemptions; and that schedule is tried as well. (Godefroid's sleep
/// sets. As preemptions are counted, only a preempted thread falls asleep: a thread that was tried
/// before another one, and is not going on by itself, would need one more preemption to come
/// first.)
///
/// In that schedule the thread returns earlier, so the expectations there are stricter.
#[derive(Default)]
pub(super) struct Sleepers {
    /// The next step of each thread; none if that is the begin of an operation.
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

    /// Notes that a thread was preempted before this step.
    pub(super) fn add(&mut self, thread: usize, pending: Option<Access>) {
        self.pending[thread] = pending;
        self.asleep |= 1 << thread;
    }

    /// Wakes the threads for which this holds.
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

    /// Notes the step of another thread.
    pub(super) fn note(&mut self, access: &Access, rules: Rules) {
        self.wake(|pending| pending.is_some_and(|pending| are_in_conflict(pending, access, rules)));
    }

    /// Notes that an operation has returned: operations that begin now come after it.
    pub(super) fn respond(&mut self) {
        self.wake(|pending| pending.is_none());
    }
}

fn places(access: &Access) -> impl Iterator<Item = usize> + use<> {
    access.place..access.place + access.places
}

/// A digest of the state of a run. Two moments with the same digest have the same future: each
/// thread has seen the same, so it is at the same point with the same local state; and each place
/// was last written by the same thread with the same knowledge.
#[derive(Default)]
pub(super) struct StateDigest {
    /// For each thread, a digest of everything that it has read.
    threads: Vec<u64>,
    /// For each shared place, the thread that wrote it and that thread's digest at the time.
    places: PlaceMap<u64>,
    /// All places together.
    memory: u64,
    /// With a log, a digest of the appended groups: the state of the thread and of the memory at
    /// each append.
    log: u64,
}

impl StateDigest {
    pub(super) fn reset(&mut self, threads: usize) {
        self.threads.clear();
        self.threads.resize(threads, 0);
        self.places.clear();
        self.memory = 0;
        self.log = 0;
    }

    /// Notes the next step of a thread. The step shows what the thread knows, also of state that is
    /// no place: inner nodes, free memory.
    pub(super) fn approach(&mut self, conflicts: &Conflicts, thread: usize, access: &Access) {
        self.see(thread, access.kind as u64);
        for place in places(access).filter(|place| conflicts.known.contains_key(place)) {
            self.see(thread, place as u64);
        }
    }

    /// Notes an access of a thread that depends on other threads, or that they may see.
    pub(super) fn note(
        &mut self,
        conflicts: &mut Conflicts,
        thread: usize,
        access: &Access,
        rules: Rules,
    ) {
        conflicts.learn(thread, access);
        if access.kind == AccessKind::Fence {
            if rules == Rules::Log {
                // The append takes the lines' present content, whichever thread stored it.
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

    /// Notes that a thread has read a value.
    pub(super) fn see(&mut self, thread: usize, what: u64) {
        self.threads[thread] = mix(self.threads[thread], what);
    }

    /// The digest of the whole state.
    pub(super) fn number(&self) -> u64 {
        self.threads
            .iter()
            .fold(self.memory ^ self.log, |state, thread| mix(state, *thread))
    }
}
