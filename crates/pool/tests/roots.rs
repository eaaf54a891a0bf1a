//! The root table: as many trees as its directory has room for, and names that are found again.

use everleaf_pool::{Error, ErrorKind, Pool, PoolOptions, ROOT_WORDS, TREES_MAX};
use medium::{Dax, DaxOptions};

const ENGINE: u16 = 9;
const CODEC: u16 = 9;

fn name_of(number: usize) -> String {
    format!("tree number {number}")
}

fn words_of(number: usize) -> [u64; ROOT_WORDS] {
    let mut words = [7; ROOT_WORDS];
    words[0] = number as u64;
    words
}

fn create(pool: &Pool<Dax>, number: usize) -> Result<(), Error> {
    pool.create_tree(&name_of(number), ENGINE, CODEC, &words_of(number))
        .map(drop)
}

#[track_caller]
fn expect_found(pool: &Pool<Dax>, number: usize) {
    let found = pool.find_tree(&name_of(number)).unwrap();
    let found = found.unwrap_or_else(|| panic!("tree {number} is not found"));
    assert_eq!(found.words, words_of(number));
}

/// The former limit was 208.
#[test]
fn a_root_table_holds_trees_until_its_directory_is_full() {
    let pool = Pool::open(Dax::plain(u64::MAX).unwrap(), PoolOptions::default()).unwrap();
    for number in 0..TREES_MAX {
        create(&pool, number).unwrap();
    }
    const { assert!(TREES_MAX > 100_000) };
    let refused = create(&pool, TREES_MAX).unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::TooManyTrees { limit } if *limit == TREES_MAX),
        "{refused}"
    );
    let dropped = pool.find_tree(&name_of(77)).unwrap().unwrap();
    pool.remove_tree(&dropped).unwrap();
    assert_eq!(pool.find_tree(&name_of(77)).unwrap(), None);
    create(&pool, TREES_MAX).unwrap();
    for number in [0, 1, 19, 20, 21, 5000, TREES_MAX - 1, TREES_MAX] {
        expect_found(&pool, number);
    }
    assert_eq!(pool.trees().unwrap().len(), TREES_MAX);
}

/// The table's pages are in use after a crash as well: the mark once knew of trees only.
#[test]
fn trees_in_pages_are_found_after_a_clean_close_and_after_a_crash() {
    const TREES: usize = 300;
    for is_clean in [true, false] {
        let file = tempfile::tempfile().unwrap();
        let open = || {
            let options = PoolOptions {
                close_on_drop: is_clean,
                ..PoolOptions::default()
            };
            let dax = Dax::new(file.try_clone().unwrap(), DaxOptions::default()).unwrap();
            Pool::open(dax, options).unwrap()
        };
        let pool = open();
        for number in 0..TREES {
            create(&pool, number).unwrap();
        }
        drop(pool);
        for round in 0..2 {
            let pool = open();
            assert_eq!(pool.needs_mark(), !is_clean);
            pool.finish_marking();
            // Allocations take what the mark has left free.
            let guard = pool.pin();
            let mut offsets = Vec::new();
            for _ in 0..20 {
                let offset = guard.allocate(60_000).unwrap();
                let words = guard.words(offset, 60_000 / 8).unwrap();
                words.iter().for_each(|word| word.store(&guard, u64::MAX));
                offsets.push(offset);
            }
            for offset in offsets {
                guard.free(offset);
            }
            drop(guard);
            create(&pool, TREES + round).unwrap();
            for number in 0..=TREES + round {
                expect_found(&pool, number);
            }
            assert_eq!(pool.trees().unwrap().len(), TREES + round + 1);
        }
    }
}
