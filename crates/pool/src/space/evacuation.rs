//! Slabs that are being emptied: the trees move their allocations elsewhere, and the slab is free
//! when the last one has gone.
//!
//! Nothing is allocated from such a slab, unless the pool is full. This is volatile: no crash leaves
//! a slab in this state, and the pool's content does not depend on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use medium::Medium;
use medium::sync::Ordering;

use super::{FREE, FULL, MediumGuard, PARTIAL, Slab, Space, Unowned, slab_of};
use crate::class::{CLASSES, Class};
use crate::limits::SLAB_BYTES;

/// State of a slab that is being emptied.
pub(super) const EVACUATED: u64 = 7;

/// Of the slots of a slab that is to be emptied at most seven eighths are in use: fuller slabs are
/// not worth the copies.
const USED_NUMERATOR: u64 = 7;
const USED_DENOMINATOR: u64 = 8;

/// Which slabs are to be emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evacuate {
    /// The emptiest slabs of each size class, as far as their content fits into the free slots of
    /// the others.
    Sparse,
    /// All slabs that are cut into slots. Their content needs as many new slabs.
    All,
}

/// A slab with few slots in use.
#[derive(Clone, Copy)]
struct SparseSlab {
    slab: u32,
    used: u64,
}

/// Slabs that are being emptied, until this is dropped.
pub struct Evacuation {
    space: Arc<Space>,
    slabs: Vec<u32>,
}

/// The part of an evacuation that was not done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unevacuated {
    /// The slabs in which something is left, by their offsets.
    pub slabs: Vec<u64>,
    /// Allocations in them.
    pub allocations: u64,
}

impl Space {
    /// Chooses slabs to be emptied, except for those in `excluded`, which holds offsets of slabs.
    /// None while the use of old slabs is not known. O(slabs); threads that allocate wait.
    pub(crate) fn evacuate<M: Medium>(
        self: &Arc<Self>,
        guard: &MediumGuard<'_, M>,
        choice: Evacuate,
        excluded: &BTreeSet<u64>,
    ) -> Evacuation {
        let mut slabs = Vec::new();
        if !self.has_old() {
            let excluded = excluded.iter().map(|offset| slab_of(*offset)).collect();
            guard.interleave_memory();
            let _shards = self.leave_every_open();
            guard.interleave(&self.unowned);
            let mut unowned = self.unowned.lock();
            self.free_emptied(&mut unowned);
            slabs = match choice {
                Evacuate::Sparse => self.choose_sparse(&unowned, &excluded),
                Evacuate::All => self.choose_all(&unowned, &excluded),
            };
            slabs.retain(|slab| self.begin_evacuation(*slab));
            let chosen: BTreeSet<u32> = slabs.iter().copied().collect();
            for listed in &mut unowned.partial {
                listed.retain(|slab| !chosen.contains(slab));
                // The last one is taken first. Copies go to the fullest slabs. Other threads free
                // slots meanwhile, so each slab is asked once.
                listed.sort_by_cached_key(|slab| self.slabs.get(*slab).used.load(Ordering::SeqCst));
            }
        }
        if !slabs.is_empty() {
            self.evacuations.fetch_add(1, Ordering::SeqCst);
        }
        Evacuation {
            space: Arc::clone(self),
            slabs,
        }
    }

    /// Whether any slab is to be emptied.
    pub(crate) fn evacuates(&self) -> bool {
        self.evacuations.load(Ordering::SeqCst) != 0
    }

    fn begin_evacuation(&self, slab: u32) -> bool {
        let state = &self.slabs.get(slab).state;
        let from = |expected| {
            state
                .compare_exchange(expected, EVACUATED, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        };
        from(PARTIAL) || from(FULL)
    }

    fn choose_all(&self, unowned: &Unowned, excluded: &BTreeSet<u32>) -> Vec<u32> {
        let mut chosen = Vec::new();
        for slab in 1..unowned.next {
            let known = self.slabs.get(slab);
            let state = known.state.load(Ordering::SeqCst);
            let is_cut = state == PARTIAL || state == FULL;
            let is_used = known.used.load(Ordering::SeqCst) != 0;
            if is_cut && is_used && !excluded.contains(&slab) {
                chosen.push(slab);
            }
        }
        chosen
    }

    fn choose_sparse(&self, unowned: &Unowned, excluded: &BTreeSet<u32>) -> Vec<u32> {
        let mut by_class: [Vec<SparseSlab>; CLASSES] = std::array::from_fn(|_| Vec::new());
        for slab in 1..unowned.next {
            let known = self.slabs.get(slab);
            let used = known.used.load(Ordering::SeqCst);
            if known.state.load(Ordering::SeqCst) != PARTIAL || used == 0 {
                continue;
            }
            let index = known.class.load(Ordering::SeqCst).wrapping_sub(1);
            if let Some(class) = Class::from_index(index) {
                by_class[class.index()].push(SparseSlab { slab, used });
            }
        }
        let mut chosen = Vec::new();
        for (slabs, index) in by_class.into_iter().zip(0..) {
            if let Some(class) = Class::from_index(index) {
                choose_of_class(class, slabs, excluded, &mut chosen);
            }
        }
        chosen
    }

    /// Frees a slab that is being emptied, if it is empty. The caller holds `unowned`.
    pub(super) fn free_evacuated(&self, unowned: &mut Unowned, known: &Slab, slab: u32) {
        // While it is being emptied, nothing is allocated from it.
        if known.state.load(Ordering::SeqCst) == EVACUATED
            && known.used.load(Ordering::SeqCst) == 0
            && known
                .state
                .compare_exchange(EVACUATED, FREE, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        {
            unowned.add_free(slab);
        }
    }

    /// Whether an offset lies in a slab that is being emptied.
    pub(crate) fn is_evacuated(&self, offset: u64) -> bool {
        let slab = slab_of(offset);
        slab < self.slabs.len() && self.slabs.get(slab).state.load(Ordering::SeqCst) == EVACUATED
    }

    /// Lets threads allocate from a slab again that was to be emptied.
    fn end_evacuation(&self, slab: u32) {
        let known = self.slabs.get(slab);
        let index = known.class.load(Ordering::SeqCst).wrapping_sub(1);
        let Some(class) = Class::from_index(index) else {
            return;
        };
        if known
            .state
            .compare_exchange(EVACUATED, FULL, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            self.offer(slab, class);
        }
    }
}

/// Adds to `chosen` the emptiest slabs of a class, as far as their content fits into the free slots
/// of the others.
fn choose_of_class(
    class: Class,
    mut slabs: Vec<SparseSlab>,
    excluded: &BTreeSet<u32>,
    chosen: &mut Vec<u32>,
) {
    let slots = u64::from(class.slots());
    let mut free: u64 = slabs
        .iter()
        .map(|sparse| slots - sparse.used.min(slots))
        .sum();
    let mut moved = 0;
    // Of slabs that are equally full, those at the end of the file come first: it can be cut then.
    slabs.sort_unstable_by(|one, other| {
        let by_use = one.used.cmp(&other.used);
        by_use.then(other.slab.cmp(&one.slab))
    });
    for SparseSlab { slab, used } in slabs {
        if excluded.contains(&slab) {
            continue;
        }
        let is_dense = used * USED_DENOMINATOR > slots * USED_NUMERATOR;
        let free_elsewhere = free - (slots - used.min(slots));
        if is_dense || moved + used > free_elsewhere {
            return;
        }
        free = free_elsewhere;
        moved += used;
        chosen.push(slab);
    }
}

impl Evacuation {
    /// Whether there is no slab to be emptied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slabs.is_empty()
    }

    /// The slabs that are not empty yet.
    #[must_use]
    pub fn rest(&self) -> Unevacuated {
        let mut rest = Unevacuated::default();
        for slab in &self.slabs {
            let known = self.space.slabs.get(*slab);
            if known.state.load(Ordering::SeqCst) == EVACUATED {
                rest.slabs.push(u64::from(*slab) * SLAB_BYTES);
                rest.allocations += known.used.load(Ordering::SeqCst);
            }
        }
        rest
    }
}

impl Drop for Evacuation {
    fn drop(&mut self) {
        for slab in &self.slabs {
            self.space.end_evacuation(*slab);
        }
        if !self.slabs.is_empty() {
            self.space.evacuations.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
