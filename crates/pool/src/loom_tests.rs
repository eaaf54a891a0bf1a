//! The protocols of space and limbo under every interleaving and every weak ordering. See
//! `medium::sync` for how to run it.
//!
//! One case is not tested: a slab that fills while its last slot is freed is offered
//! (`Space::offer`). That relies on sequential consistency of two words, which `loom` does not
//! model.

use std::sync::Arc;

use loom::thread;
use medium::sync::{AtomicU64, Ordering, model};
use medium::{Dax, Medium};

use crate::header::StateWord;
use crate::limbo::{Limbo, free_batch};
use crate::space::Space;
use crate::{PoolOptions, SLAB_BYTES};

/// Three of these fill a slab.
const BYTES: usize = 21_824;

type DaxGuard<'m> = medium::MediumGuard<'m, Dax>;

fn options() -> PoolOptions {
    PoolOptions {
        step_slabs_min: 1,
        ..PoolOptions::default()
    }
}

/// A space in use.
struct Used {
    ram: Dax,
    space: Box<Space>,
    /// Stands for the content of an allocation. Its accesses are relaxed, so only the space orders
    /// them.
    content: AtomicU64,
}

/// Allocates two slots of a slab of three. It is a function of its own because the stacks of a
/// model are small.
#[inline(never)]
fn allocate_two(ram: &Dax, space: &Space) -> [u64; 2] {
    let guard = DaxGuard::new(ram);
    [(); 2].map(|()| space.allocate(&guard, BYTES, false).unwrap())
}

/// Closes a new pool with two allocations, which writes its bitmaps.
#[inline(never)]
fn close_with_two(ram: &Dax) -> [u64; 2] {
    let space = Box::new(Space::create(&options()).unwrap());
    let offsets = allocate_two(ram, &space);
    let guard = DaxGuard::new(ram);
    let end = space.write_bitmaps(&guard).unwrap();
    StateWord::HighWater.publish(&guard, end.into()).unwrap();
    StateWord::Clean.publish(&guard, 1).unwrap();
    offsets
}

#[inline(never)]
fn open(ram: &Dax) -> Box<Space> {
    Box::new(Space::open(&DaxGuard::new(ram), &options()).unwrap())
}

fn ram() -> Dax {
    let ram = Dax::plain(4 << 20).unwrap();
    ram.grow(SLAB_BYTES).unwrap();
    ram
}

impl Used {
    /// A space with two allocations in a slab of three. The caller owns the allocations.
    fn new() -> (Arc<Self>, [u64; 2]) {
        let ram = ram();
        let space = Box::new(Space::create(&options()).unwrap());
        let offsets = allocate_two(&ram, &space);
        (
            Arc::new(Self {
                ram,
                space,
                content: AtomicU64::new(0),
            }),
            offsets,
        )
    }

    /// A space with two allocations in a slab of three, in a pool that has only this slab.
    fn limited() -> (Arc<Self>, [u64; 2]) {
        let ram = Dax::plain(2 * SLAB_BYTES).unwrap();
        let space = Box::new(Space::create(&options()).unwrap());
        ram.grow(SLAB_BYTES).unwrap();
        let offsets = allocate_two(&ram, &space);
        (
            Arc::new(Self {
                ram,
                space,
                content: AtomicU64::new(0),
            }),
            offsets,
        )
    }

    /// A space with two allocations in a slab of three, after a clean close.
    fn reopened() -> (Arc<Self>, [u64; 2]) {
        let ram = ram();
        let offsets = close_with_two(&ram);
        let space = open(&ram);
        (
            Arc::new(Self {
                ram,
                space,
                content: AtomicU64::new(0),
            }),
            offsets,
        )
    }

    fn allocate(&self) -> u64 {
        self.space
            .allocate(&DaxGuard::new(&self.ram), BYTES, false)
            .unwrap()
    }

    /// Asserts that this many allocations are in use, and that no free was refused: each was freed
    /// once.
    fn assert_in_use(&self, allocations: u64) {
        assert_eq!(
            (self.space.allocations(), self.space.frees_refused()),
            (allocations, 0)
        );
    }
}

#[test]
fn a_new_owner_of_space_sees_the_writes_of_the_old_one() {
    model(|| {
        let (used, [offset, _]) = Used::new();
        let before = {
            let used = Arc::clone(&used);
            thread::spawn(move || {
                used.content.store(1, Ordering::Relaxed);
                used.space.free(offset);
            })
        };
        if used.allocate() == offset {
            assert_eq!(used.content.load(Ordering::Relaxed), 1);
        }
        before.join().unwrap();
        used.assert_in_use(2);
    });
}

/// A thread that frees an old allocation either sees the bitmaps' content, or leaves the free to
/// the thread that reads the bitmaps.
#[test]
fn what_is_freed_while_bitmaps_are_read_is_freed_once() {
    model(|| {
        let (used, [offset, _]) = Used::reopened();
        let freeing = {
            let used = Arc::clone(&used);
            thread::spawn(move || used.space.free(offset))
        };
        assert_eq!(
            used.space
                .read_bitmaps(&DaxGuard::new(&used.ram), &|| true)
                .unwrap(),
            None
        );
        freeing.join().unwrap();
        used.assert_in_use(1);
    });
}

/// Old space is allocated from only once its allocations in use are known.
#[test]
fn nothing_old_is_given_away_before_the_bitmaps_are_read() {
    model(|| {
        let (used, offsets) = Used::reopened();
        let reading = {
            let used = Arc::clone(&used);
            thread::spawn(move || {
                used.space
                    .read_bitmaps(&DaxGuard::new(&used.ram), &|| true)
                    .unwrap()
            })
        };
        assert!(!offsets.contains(&used.allocate()));
        assert_eq!(reading.join().unwrap(), None);
        used.assert_in_use(3);
    });
}

/// The epoch collector frees a batch while the close of the pool frees everything that still waits.
#[test]
fn a_close_that_finds_nothing_waiting_finds_it_freed() {
    model(|| {
        let (used, offsets) = Used::new();
        let limbo = Arc::new(Limbo::default());
        assert!(offsets.iter().all(|offset| limbo.add(*offset).is_none()));
        let batch = limbo.take_batch().unwrap();
        let collector = {
            let used = Arc::clone(&used);
            thread::spawn(move || free_batch(&batch, &*used.space))
        };
        if !limbo.is_waiting() {
            used.assert_in_use(0);
        }
        for offset in limbo.drain() {
            used.space.free(offset);
        }
        used.assert_in_use(0);
        collector.join().unwrap();
        used.assert_in_use(0);
    });
}

/// In a full pool two threads allocate from a slab that is open in one shard: each slot goes to one
/// of them.
#[test]
fn in_a_full_pool_what_is_open_is_shared() {
    model(|| {
        let (used, offsets) = Used::limited();
        let allocate = |used: &Used, shard| {
            let guard = DaxGuard::new(&used.ram);
            used.space.allocate_from(&guard, shard, BYTES, false).ok()
        };
        let other = {
            let used = Arc::clone(&used);
            thread::spawn(move || allocate(&used, 1))
        };
        used.space.free(offsets[0]);
        let own = allocate(&used, 2);
        let theirs = other.join().unwrap();
        // One slot was free, and another one became free before this thread's allocation.
        assert!(own.is_some() && theirs.is_some() && own != theirs);
        assert!(![own, theirs].contains(&Some(offsets[1])));
        used.assert_in_use(3);
    });
}
