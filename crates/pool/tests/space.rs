//! Space: a pool at its limit gives out all free space; damage to the records of its use.

use std::collections::BTreeSet;
use std::sync::mpsc;

use everleaf_pool::{self as pool, Evacuate, Pool, PoolOptions};
use medium::Dax;

const SLAB_BYTES: u64 = 64 << 10;

/// A pool that may have this many slabs besides its first 64 KiB.
fn pool(slabs: u64) -> Pool<Dax> {
    let ram = Dax::plain((1 + slabs) * SLAB_BYTES).unwrap();
    Pool::open(
        ram,
        PoolOptions {
            reclaim_by_epoch: false,
            ..PoolOptions::default()
        },
    )
    .unwrap()
}

fn is_full<T>(result: &pool::Result<T>) -> bool {
    matches!(result, Err(error) if error.is_full())
}

/// One size of each class.
fn sizes() -> Vec<usize> {
    let mut sizes: Vec<usize> = Vec::new();
    let mut bytes = 32;
    while bytes < 30_000 {
        sizes.push(bytes);
        bytes += bytes / 3;
    }
    sizes
}

#[test]
fn a_full_pool_gives_what_one_size_gave_back_to_another() {
    for wanted in [SLAB_BYTES as usize - 64, 70_000, 5 * SLAB_BYTES as usize] {
        let sizes = sizes();
        let pool = pool(sizes.len() as u64);
        let guard = pool.pin();
        let offsets: Vec<u64> = sizes
            .iter()
            .map(|bytes| guard.allocate(*bytes).unwrap())
            .collect();
        assert!(
            is_full(&guard.allocate(wanted)),
            "the size of {wanted} is one of those used"
        );
        for offset in offsets {
            guard.free(offset);
        }
        let offset = guard
            .allocate(wanted)
            .unwrap_or_else(|error| panic!("{wanted} bytes: {error}"));
        guard.free(offset);
        // Slabs that were open before are not open any more, and can be opened again.
        for bytes in sizes {
            guard.free(guard.allocate(bytes).unwrap());
        }
    }
}

#[test]
fn in_a_full_pool_threads_share_slabs() {
    let pool = pool(1);
    let first = pool.pin().allocate(32).unwrap();
    std::thread::scope(|scope| {
        // More threads than there are shards.
        for _ in 0..20 {
            let allocated = scope.spawn(|| pool.pin().allocate(32)).join().unwrap();
            assert_ne!(allocated.unwrap(), first);
        }
    });
    assert_eq!(pool.stat().allocations, 21);
}

#[test]
fn threads_in_a_full_pool_get_every_slot_once() {
    let pool = pool(8);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let pool = &pool;
            let sender = sender.clone();
            scope.spawn(move || {
                let guard = pool.pin();
                let mut own = Vec::new();
                for round in 0..20_000_usize {
                    match guard.allocate([500, 1000, 5000][(thread + round / 50) % 3]) {
                        Ok(offset) => own.push(offset),
                        refused => assert!(is_full(&refused)),
                    }
                    if round % 3 == 0 || own.len() > 60 {
                        own.drain(..own.len() / 2)
                            .for_each(|offset| guard.free(offset));
                    }
                }
                sender.send(own).unwrap();
            });
        }
    });
    drop(sender);
    let mut offsets: Vec<u64> = receiver.iter().flatten().collect();
    let all = offsets.len();
    let stat = pool.stat();
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(
        (offsets.len(), stat.allocations, stat.frees_refused),
        (all, all as u64, 0)
    );
    let guard = pool.pin();
    for offset in offsets {
        guard.free(offset);
    }
    // The allocation takes all eight slabs in one piece.
    guard.allocate(8 * SLAB_BYTES as usize - 64).unwrap();
}

/// The two were once not taken together, so that an allocation found a pool full in which nothing
/// was in use.
#[test]
fn a_span_takes_free_slabs_and_those_behind_that_were_never_used() {
    let pool = pool(8);
    let span = |slabs: u64| pool.pin().allocate((slabs * SLAB_BYTES) as usize - 64);
    for slabs in [3, 8] {
        let first = span(slabs).unwrap();
        pool.pin().free(first);
        pool.reclaim();
    }
    let halves = [4, 4].map(|slabs| span(slabs).unwrap());
    assert!(is_full(&pool.pin().allocate(32)));
    pool.pin().free(halves[0]);
    pool.reclaim();
    assert!(is_full(&span(5)));
    span(4).unwrap();
}

/// A pool with slabs of which one slot in `kept` is in use, and these allocations.
fn sparse_pool(slabs: u64, kept: usize) -> (Pool<Dax>, Vec<u64>) {
    let pool = pool(slabs);
    let guard = pool.pin();
    let mut offsets = Vec::new();
    // The last slab stays out of use.
    while pool.stat().used_bytes < slabs * SLAB_BYTES {
        offsets.push(guard.allocate(1000).unwrap());
    }
    let mut left = Vec::new();
    for (index, offset) in offsets.into_iter().enumerate() {
        if index % kept == 0 {
            left.push(offset);
        } else {
            guard.free(offset);
        }
    }
    drop(guard);
    (pool, left)
}

#[test]
fn sparse_slabs_are_emptied_into_the_others() {
    let (pool, left) = sparse_pool(8, 16);
    let guard = pool.pin();
    let before = pool.stat().used_bytes;
    let evacuation = pool.evacuate(Evacuate::Sparse, &BTreeSet::new());
    let (moving, staying): (Vec<u64>, Vec<u64>) =
        left.iter().partition(|offset| guard.is_evacuated(**offset));
    assert!(!staying.is_empty() && moving.len() > staying.len());
    assert_eq!(evacuation.rest().allocations, moving.len() as u64);
    for offset in &moving {
        let copy = guard.allocate(1000).unwrap();
        assert!(!guard.is_evacuated(copy), "space of a slab to be emptied");
        guard.free(*offset);
    }
    assert_eq!(evacuation.rest().slabs, []);
    drop(evacuation);
    let after = pool.stat().used_bytes;
    assert!(after <= before / 3, "{before} bytes, then {after}");
    assert!(pool.evacuate(Evacuate::Sparse, &BTreeSet::new()).is_empty());
    // The slabs serve allocations of another size.
    for _ in (after..before).step_by(SLAB_BYTES as usize) {
        guard.allocate(60_000).unwrap();
    }
}

#[test]
fn a_slab_that_was_not_emptied_is_used_again() {
    let (pool, left) = sparse_pool(4, 8);
    let guard = pool.pin();
    let evacuation = pool.evacuate(Evacuate::Sparse, &BTreeSet::new());
    let is_evacuated = |offset: &u64| guard.is_evacuated(*offset);
    let count = left.iter().filter(|offset| is_evacuated(offset)).count();
    let rest = evacuation.rest();
    assert_eq!(rest.allocations, count as u64);
    drop(evacuation);
    assert!(!left.iter().any(is_evacuated));
    let excluded = rest.slabs.iter().copied().collect();
    let others = pool.evacuate(Evacuate::Sparse, &excluded).rest().slabs;
    assert!(others.iter().all(|slab| !excluded.contains(slab)));
    // All free slots are found.
    let slots = pool.stat().allocations;
    let mut more = 0;
    while guard.allocate(1000).is_ok() {
        more += 1;
    }
    assert!(more + slots >= 4 * 63, "{more} beside {slots}");
}

/// A pool at its limit takes free slots where it finds them.
#[test]
fn a_full_pool_allocates_from_slabs_that_are_being_emptied() {
    let (pool, left) = sparse_pool(3, 2);
    let guard = pool.pin();
    let evacuation = pool.evacuate(Evacuate::All, &BTreeSet::new());
    assert!(left.iter().all(|offset| guard.is_evacuated(*offset)));
    let mut more = 0;
    while guard.allocate(1000).is_ok() {
        more += 1;
    }
    assert!(more >= left.len() as u64, "{more} beside {}", left.len());
    drop(evacuation);
    for offset in left {
        guard.free(offset);
    }
    assert_eq!(pool.stat().frees_refused, 0);
}
