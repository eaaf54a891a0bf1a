use super::*;

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
