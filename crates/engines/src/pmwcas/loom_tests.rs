//! The life of a descriptor under every interleaving and every weak ordering. See `medium::sync`
//! for how to run it.

use std::sync::Arc;

use loom::thread;
use medium::sync::{AtomicU64, Ordering, model};

use super::slots::{DescriptorSlots, Phase, count};
use super::word::Name;

/// The descriptor, and the operations that it stands for one after the other: names as words hold
/// them, and what the descriptor then holds.
const INDEX: usize = 0;
const FIRST: Name = Name {
    index: INDEX,
    sequence: 1,
};
const SECOND: Name = Name {
    index: INDEX,
    sequence: 2,
};
/// The value of the word between the two operations.
const VALUE: u64 = 5;

/// A word, a descriptor's content, with the orderings of cells, and the slots.
struct Life {
    slots: DescriptorSlots,
    word: AtomicU64,
    content: AtomicU64,
}

impl Life {
    /// The first operation is under way.
    fn new() -> Arc<Self> {
        let word = AtomicU64::new(FIRST.installed());
        Arc::new(Self {
            slots: DescriptorSlots::new(3),
            word,
            content: AtomicU64::new(FIRST.sequence),
        })
    }

    fn swap(&self, old: u64, new: u64) -> bool {
        self.word
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The owner ends the first operation, and begins the second if no thread helps any more.
    fn reuse(&self) {
        self.swap(FIRST.installed(), VALUE);
        if !self.slots.is_helped(INDEX) {
            self.content.store(SECOND.sequence, Ordering::Release);
            self.swap(VALUE, SECOND.installed());
        }
    }

    /// Helps the operation whose name is in the word: as long as the hazard is announced, the
    /// descriptor stands for that operation. The helper calls `meanwhile` while it is announced.
    fn help(&self, slot: usize, meanwhile: impl Fn()) {
        let held = self.slots.take_number(slot).expect("a slot of its own");
        let raw = self.word.load(Ordering::Acquire);
        if raw == VALUE {
            return;
        }
        let name = Name::of(raw);
        let _hazard = self.slots.announce(&held, name);
        if self.word.load(Ordering::Acquire) == raw {
            assert_eq!(self.content.load(Ordering::Acquire), name.sequence);
            meanwhile();
            assert_eq!(self.content.load(Ordering::Acquire), name.sequence);
        }
    }
}

#[test]
fn a_descriptor_that_is_helped_is_not_filled_again() {
    model(|| {
        let life = Life::new();
        let helpers: Vec<_> = (0..2)
            .map(|slot| {
                let life = Arc::clone(&life);
                thread::spawn(move || life.help(slot, || {}))
            })
            .collect();
        life.reuse();
        for helper in helpers {
            helper.join().unwrap();
        }
    });
}

/// A late helper puts the name into the word once more; a third thread finds it there while the
/// owner reads the hazards.
#[test]
fn a_helper_that_was_found_through_another_counts() {
    model(|| {
        let life = Life::new();
        let late = Arc::clone(&life);
        let third = Arc::clone(&life);
        let late = thread::spawn(move || {
            late.help(0, || {
                let conditional = FIRST.conditional(0, 0, 1);
                if late.swap(VALUE, conditional) {
                    late.swap(conditional, VALUE);
                }
            });
        });
        let third = thread::spawn(move || third.help(1, || {}));
        life.reuse();
        late.join().unwrap();
        third.join().unwrap();
    });
}

/// A reader announces nothing: if the word still holds the name, what it read from the descriptor
/// belonged to that operation.
#[test]
fn a_reader_takes_nothing_from_a_descriptor_that_was_filled_again() {
    model(|| {
        let life = Life::new();
        let reader = Arc::clone(&life);
        let helper = Arc::clone(&life);
        let reader = thread::spawn(move || {
            let raw = reader.word.load(Ordering::Acquire);
            let content = reader.content.load(Ordering::Acquire);
            if raw != VALUE && reader.word.load(Ordering::Acquire) == raw {
                assert_eq!(content, Name::of(raw).sequence);
            }
        });
        let helper = thread::spawn(move || helper.help(0, || {}));
        life.reuse();
        reader.join().unwrap();
        helper.join().unwrap();
    });
}

/// Another thread executes the second operation, and continues with the phases that the first
/// thread left in the slot. It fills the descriptor only when that is free, so no thread helps its
/// former operation.
#[test]
fn a_descriptor_is_filled_again_by_the_next_holder_of_its_slot() {
    const OWN: usize = 2;
    model(|| {
        let life = Life::new();
        let helper = Arc::clone(&life);
        let next = Arc::clone(&life);
        let helper = thread::spawn(move || helper.help(0, || {}));
        let next = thread::spawn(move || {
            let Some(held) = next.slots.take_number(OWN) else {
                return;
            };
            if held.phase(0) == Phase::Ended && !next.slots.is_helped(INDEX) {
                held.set_phase(0, Phase::Flushed);
            }
            if held.phase(0) == Phase::Flushed {
                // Stands for the status `Free`.
                next.content.store(0, Ordering::Release);
                held.set_phase(0, Phase::Freed);
            }
            if held.phase(0) == Phase::Freed {
                held.set_phase(0, Phase::Free);
                next.content.store(SECOND.sequence, Ordering::Release);
                held.set_phase(0, Phase::Busy);
                next.swap(VALUE, SECOND.installed());
            }
        });
        if let Some(held) = life.slots.take_number(OWN) {
            assert_eq!(held.phase(0), Phase::Free, "an unused slot");
            held.set_phase(0, Phase::Busy);
            life.swap(FIRST.installed(), VALUE);
            held.set_phase(0, Phase::Ended);
        }
        helper.join().unwrap();
        next.join().unwrap();
    });
}

/// Phases and counters are the holder's alone, and the next one's afterwards.
#[test]
fn a_slot_goes_from_hand_to_hand() {
    model(|| {
        let slots = Arc::new(DescriptorSlots::new(1));
        let other = Arc::clone(&slots);
        let take = |slots: &DescriptorSlots, mine: Phase| {
            let Some(held) = slots.take_number(0) else {
                return 0;
            };
            assert_eq!(held.phase(0), held.phase(1), "half of what was set");
            held.set_phase(0, mine);
            held.set_phase(1, mine);
            count(&held.counters.attempts[2]);
            1
        };
        let thread = thread::spawn(move || take(&other, Phase::Ended));
        let taken = take(&slots, Phase::Freed) + thread.join().unwrap();
        let attempts: u64 = slots
            .all()
            .map(|slot| slot.counters.attempts[2].load(Ordering::Relaxed))
            .sum();
        assert_eq!(attempts, taken);
    });
}
