//! The volatile half of a pool of descriptors: which thread uses which descriptor, and which thread
//! helps.
//!
//! A thread that executes or helps holds a *slot* meanwhile. To each belong two descriptors, which
//! take turns, so that the one before last can be given back at no cost (see the [module](super)).
//!
//! **Hazards.** A helper first names the descriptor in its slot, and then checks that the word
//! still holds the name. The owner gives a descriptor back only when no word holds its name *and*
//! no slot names it. So no helper reads a descriptor that already stands for another operation. No
//! thread waits for epochs: two descriptors for each slot are enough, however long another thread
//! is pinned. A late helper can put the name into a word once more, for a moment, and a third
//! thread may find it there. So the owner reads all hazards again if a thread began to help while
//! it read them.

use medium::sync::{AtomicU64, Ordering, fence, pause};

use super::WORDS_MAX;
use super::word::{Name, SLOTS_MAX};

/// Descriptors of a slot.
pub(super) const DESCRIPTORS_PER_SLOT: usize = 2;

/// The state of a descriptor of a slot, known to the slot's holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Its status is durably free: it may be filled.
    Free = 0,
    /// Its status was set to free, which may not be durable.
    Freed = 1,
    /// No word holds its name, which may not be durable.
    Ended = 2,
    /// No word holds its name, as in [`Phase::Ended`], and its words were flushed since the slot's
    /// current operation began.
    Flushed = 3,
    /// It stands for the operation that the slot's holder executes.
    Busy = 4,
}

impl Phase {
    #[inline]
    fn of(number: u64) -> Self {
        match number {
            0 => Self::Free,
            1 => Self::Freed,
            2 => Self::Ended,
            3 => Self::Flushed,
            _ => Self::Busy,
        }
    }
}

/// Counters of a slot, for its holder.
#[derive(Debug, Default)]
pub(super) struct SlotCounters {
    /// By the number of words.
    pub(super) attempts: [AtomicU64; WORDS_MAX + 1],
    pub(super) failures: AtomicU64,
    pub(super) helps: AtomicU64,
}

/// Adds one. Only one thread at a time may do so.
#[inline]
pub(super) fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Slots in which operations that have ended may have left descriptors that still name words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leftovers(u128);

const _: () = assert!(SLOTS_MAX <= u128::BITS as usize);

impl Leftovers {
    /// The numbers of the slots.
    pub(super) fn numbers(self) -> impl Iterator<Item = usize> {
        (0..SLOTS_MAX).filter(move |number| self.0 >> number & 1 != 0)
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.0 &= !(1 << number);
    }
}

/// One slot, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct DescriptorSlot {
    /// 1 while a thread holds it.
    taken: AtomicU64,
    phases: [AtomicU64; DESCRIPTORS_PER_SLOT],
    attempt: AtomicU64,
    pub(super) counters: SlotCounters,
}

impl DescriptorSlot {
    #[inline]
    pub(super) fn phase(&self, turn: usize) -> Phase {
        Phase::of(self.phases[turn].load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set_phase(&self, turn: usize, phase: Phase) {
        self.phases[turn].store(phase as u64, Ordering::Relaxed);
    }

    /// Whether both its descriptors are durably free. For its holder.
    pub(super) fn is_at_rest(&self) -> bool {
        (0..DESCRIPTORS_PER_SLOT).all(|turn| self.phase(turn) == Phase::Free)
    }

    /// Whether anything was ever executed in it.
    fn is_used(&self) -> bool {
        self.counters
            .attempts
            .iter()
            .any(|attempts| attempts.load(Ordering::Relaxed) > 0)
    }

    /// The number of the next attempt; numbers recur after 64 attempts.
    pub(super) fn next_attempt(&self) -> u64 {
        count(&self.attempt);
        self.attempt.load(Ordering::Relaxed)
    }
}

/// All slots.
#[derive(Debug)]
pub(super) struct DescriptorSlots {
    slots: Box<[DescriptorSlot]>,
    /// For each slot the index of the descriptor that its holder helps, plus 1; 0 for none.
    hazards: Box<[AtomicU64]>,
    /// How many hazards are not 0, or are about to be set.
    helpers: AtomicU64,
    /// How many hazards were ever set.
    announced: AtomicU64,
}

/// A slot that the calling thread holds.
pub(super) struct Held<'s> {
    slot: &'s DescriptorSlot,
    pub(super) number: usize,
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // ORDER: pairs with the acquire in `try_take`.
        self.slot.taken.store(0, Ordering::Release);
    }
}

impl std::ops::Deref for Held<'_> {
    type Target = DescriptorSlot;

    #[inline]
    fn deref(&self) -> &DescriptorSlot {
        self.slot
    }
}

/// A descriptor that the calling thread has named as being helped.
pub(super) struct Hazard<'s> {
    slots: &'s DescriptorSlots,
    number: usize,
}

impl Drop for Hazard<'_> {
    fn drop(&mut self) {
        // ORDER: pairs with the loads in `is_helped`: this thread's stores to the words are visible
        // before.
        self.slots.hazards[self.number].store(0, Ordering::Release);
        self.slots.helpers.fetch_sub(1, Ordering::Release);
    }
}

impl DescriptorSlots {
    pub(super) fn new(count: usize) -> Self {
        Self {
            slots: (0..count).map(|_| DescriptorSlot::default()).collect(),
            hazards: (0..count).map(|_| AtomicU64::new(0)).collect(),
            helpers: AtomicU64::new(0),
            announced: AtomicU64::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of all slots.
    pub(super) fn bytes(&self) -> usize {
        self.len() * (size_of::<DescriptorSlot>() + size_of::<AtomicU64>())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &DescriptorSlot> {
        self.slots.iter()
    }

    /// All slots that were used.
    pub(super) fn leftovers(&self) -> Leftovers {
        let used = (0..).zip(self.all()).filter(|(_, slot)| slot.is_used());
        Leftovers(used.fold(0, |bits, (number, _)| bits | 1 << number))
    }

    #[inline]
    fn try_take(&self, number: usize) -> Option<Held<'_>> {
        let slot = &self.slots[number];
        let taken = &slot.taken;
        // ORDER: pairs with the release in `Held::drop`: phases are as the last holder left them.
        let free = taken.load(Ordering::Relaxed) == 0
            && taken
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        // The `Held` is made only with the slot: without it, its drop would release another
        // thread's slot.
        free.then(|| Held { slot, number })
    }

    /// Takes slot `number`, if no thread holds it.
    pub(super) fn take_number(&self, number: usize) -> Option<Held<'_>> {
        self.try_take(number)
    }

    /// Takes a slot: number `first` if it is free, else the next one. Waits only if all slots are
    /// taken.
    #[inline]
    pub(super) fn take(&self, first: usize) -> Held<'_> {
        self.take_with(first, |_| Some(())).0
    }

    /// Takes a slot in which `find` finds something, and returns that with the slot. Chooses and
    /// waits as [`DescriptorSlots::take`] does.
    #[inline]
    pub(super) fn take_with<T>(
        &self,
        first: usize,
        mut find: impl FnMut(&Held<'_>) -> Option<T>,
    ) -> (Held<'_>, T) {
        let mut spins = 0;
        let mut number = if first < self.len() {
            first
        } else {
            first % self.len()
        };
        loop {
            for _ in 0..self.len() {
                if let Some(held) = self.try_take(number)
                    && let Some(found) = find(&held)
                {
                    return (held, found);
                }
                number = if number + 1 == self.len() {
                    0
                } else {
                    number + 1
                };
            }
            pause(&mut spins);
        }
    }

    /// Announces that the holder of a slot is about to help. The caller must then check that the
    /// word still holds the name; if so, the descriptor is not reused until the hazard is dropped.
    pub(super) fn announce(&self, held: &Held<'_>, name: Name) -> Hazard<'_> {
        self.helpers.fetch_add(1, Ordering::Relaxed);
        self.hazards[held.number].store(name.index as u64 + 1, Ordering::Relaxed);
        // ORDER: pairs with the loads in `is_helped`: a thread that sees the number sees the
        // hazard.
        self.announced.fetch_add(1, Ordering::Release);
        // ORDER: pairs with the fence in `is_helped`: either the owner sees the hazard, or the
        // helper's next load of the word sees that the name is gone.
        fence(Ordering::SeqCst);
        Hazard {
            slots: self,
            number: held.number,
        }
    }

    /// Whether a thread helps the operation of a descriptor whose name no word holds any more.
    #[inline]
    pub(super) fn is_helped(&self, index: usize) -> bool {
        fence(Ordering::SeqCst);
        self.helpers.load(Ordering::Acquire) != 0 && self.is_named(index)
    }

    /// Whether a hazard names a descriptor.
    #[cold]
    fn is_named(&self, index: usize) -> bool {
        loop {
            let before = self.announced.load(Ordering::Acquire);
            if self
                .hazards
                .iter()
                .any(|hazard| hazard.load(Ordering::Acquire) == index as u64 + 1)
            {
                return true;
            }
            fence(Ordering::SeqCst);
            if self.announced.load(Ordering::Acquire) == before {
                return false;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
