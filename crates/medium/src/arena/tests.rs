use super::*;
use crate::LINE_BYTES;

volatile! {
    struct Element {
        words: [AtomicU64; 8],
    }
}

#[test]
fn a_reused_arena_is_as_new() {
    reuse_on_this_thread(true);
    let mut addresses = Vec::new();
    for round in 1..4 {
        let arena = Arena::<Element>::new(1 << 20).unwrap();
        for number in 1..2000 * round {
            assert_eq!(arena.allocate().unwrap(), number);
            let words = &arena.get(number).words;
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            for word in words {
                word.store(7, Ordering::Relaxed);
            }
        }
        addresses.push(std::ptr::from_ref(arena.get(1)) as usize);
    }
    assert_eq!([addresses[1], addresses[2]], [addresses[0]; 2]);
    reuse_on_this_thread(false);
}

/// The words of an element, all of them `value`.
fn fill(element: &Element, value: u64) {
    for word in &element.words {
        word.store(value, Ordering::Relaxed);
    }
}

fn assert_filled(element: &Element, value: u64) {
    let found = element
        .words
        .each_ref()
        .map(|word| word.load(Ordering::Relaxed));
    assert_eq!(found, [value; 8]);
}

/// The first 64 elements lie in the heap, the others in a mapping.
#[test]
fn elements_of_the_heap_stay_where_they_are_when_the_arena_gets_a_mapping() {
    let arena = Arena::<Element>::new(1 << 20).unwrap();
    let mut addresses = Vec::new();
    for number in 1..5000 {
        assert_eq!(arena.allocate().unwrap(), number);
        assert_filled(arena.get(number), 0);
        fill(arena.get(number), u64::from(number));
        addresses.push(std::ptr::from_ref(arena.get(number)).addr());
    }
    for (address, number) in addresses.iter().zip(1..) {
        assert_eq!(std::ptr::from_ref(arena.get(number)).addr(), *address);
        assert_eq!(address % LINE_BYTES, 0);
        assert_filled(arena.get(number), u64::from(number));
    }
    // The place that the mapping has for the elements of the heap is not used.
    let step = size_of::<Element>();
    let jumps: Vec<_> = (1..)
        .zip(addresses.windows(2))
        .filter(|(_, pair)| pair[1] != pair[0] + step)
        .map(|(number, _)| number)
        .collect();
    assert_eq!(jumps, [63]);
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 4999);
}

#[test]
fn a_run_over_the_end_of_the_heaps_elements_is_whole() {
    let arena = Arena::<Element>::new(1 << 20).unwrap();
    assert_eq!(arena.allocate_run(60).unwrap(), 1);
    assert_eq!(arena.allocate_run(60).unwrap(), 61);
    for number in 1..121 {
        fill(arena.get(number), u64::from(number));
    }
    for number in 1..121 {
        assert_filled(arena.get(number), u64::from(number));
    }
    assert_eq!(arena.len(), 121);
}

#[test]
fn an_index_that_was_never_reached_leads_to_element_0() {
    let arena = Arena::<Element>::new(1 << 20).unwrap();
    arena.allocate().unwrap();
    let first = std::ptr::from_ref(arena.peek(0));
    assert_eq!(std::ptr::from_ref(arena.peek(u32::MAX)), first);
    assert_eq!(std::ptr::from_ref(arena.peek(64)), first);
    arena.reach(64).unwrap();
    assert_ne!(std::ptr::from_ref(arena.peek(64)), first);
    assert_eq!(std::ptr::from_ref(arena.peek(0)), first);
}

#[test]
fn large_elements_begin_on_the_heap_as_well() {
    volatile! {
        struct Large {
            words: [AtomicU64; 4096],
        }
    }
    let arena = Arena::<Large>::new(1).unwrap();
    assert_eq!(arena.allocate().unwrap(), 1);
    assert!(
        arena
            .get(1)
            .words
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == 0)
    );
    assert_eq!(std::ptr::from_ref(arena.get(1)).addr() % LINE_BYTES, 0);
}

/// Readers beside a thread that makes the arena larger find each element as it was published.
#[test]
fn readers_follow_an_arena_that_grows() {
    let arena = Arena::<Element>::new(1 << 20).unwrap();
    let published = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while last < 4000 {
                    last = published.load(Ordering::Acquire);
                    for number in [1, 63, 64, last] {
                        if (1..=last).contains(&number) {
                            assert_filled(arena.get(number), u64::from(number));
                        }
                    }
                }
            });
        }
        for number in 1..=4000 {
            let index = arena.allocate().unwrap();
            fill(arena.get(index), u64::from(number));
            published.store(number, Ordering::Release);
        }
    });
}
