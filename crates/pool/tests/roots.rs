//! The root table: as many trees as its directory has room for, and names that are found again.

use std::fs::File;
use std::os::unix::fs::FileExt;

use everleaf_pool::{
    ENCODINGS_BYTES_MAX, Encodings, Error, ErrorKind, NewTree, Pool, PoolOptions, ROOT_WORDS,
    TREES_MAX,
};
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

fn encodings(key: &str, value: &str) -> Encodings {
    Encodings {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

/// Every second tree has encodings.
fn encodings_of(number: usize) -> Option<Encodings> {
    (number % 2 == 1).then(|| encodings(&format!("key:{number}"), "text"))
}

fn create(pool: &Pool<Dax>, number: usize) -> Result<(), Error> {
    let name = name_of(number);
    let encodings = encodings_of(number);
    let tree = NewTree {
        name: &name,
        encodings: encodings.as_ref(),
    };
    pool.create_tree(tree, ENGINE, CODEC, &words_of(number))
        .map(drop)
}

#[track_caller]
fn expect_found(pool: &Pool<Dax>, number: usize) {
    let found = pool.find_tree(&name_of(number)).unwrap();
    let found = found.unwrap_or_else(|| panic!("tree {number} is not found"));
    assert_eq!(found.words, words_of(number));
    assert_eq!(found.encodings, encodings_of(number));
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

/// Trees of the pools whose copies are damaged: some of them are in a page.
const COPIED: usize = 25;
/// The two copies of the first slots, and of the directory.
const SLOTS: [usize; 2] = [0x3000, 0xd800];
const DIRECTORIES: [usize; 2] = [0x5800, 0x9800];
const SLOT_BYTES: usize = 512;

fn open_file(file: &File) -> Pool<Dax> {
    let dax = Dax::new(file.try_clone().unwrap(), DaxOptions::default()).unwrap();
    let pool = Pool::open(dax, PoolOptions::default()).unwrap();
    pool.finish_marking();
    pool
}

/// The bytes of a pool that was closed.
fn bytes_of(file: &File) -> Vec<u8> {
    let length = file.metadata().unwrap().len() as usize;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// A pool of trees, and its bytes.
fn copied() -> (File, Vec<u8>) {
    let file = tempfile::tempfile().unwrap();
    let pool = open_file(&file);
    for number in 0..=COPIED {
        create(&pool, number).unwrap();
    }
    let last = pool.find_tree(&name_of(COPIED)).unwrap().unwrap();
    pool.remove_tree(&last).unwrap();
    pool.close().unwrap();
    let bytes = bytes_of(&file);
    (file, bytes)
}

/// Where the copies of the first page begin, as the directory says.
fn pages(bytes: &[u8]) -> [usize; 2] {
    [0, 8].map(|word| {
        let at = DIRECTORIES[0] + word;
        let entry = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        (entry & ((1 << 48) - 1)) as usize
    })
}

/// The parts of the table that are in use: the slots of trees, and the directory's first entry.
fn used_parts(bytes: &[u8], copy: usize) -> Vec<std::ops::Range<usize>> {
    let page = pages(bytes)[copy];
    vec![
        SLOTS[copy]..SLOTS[copy] + 20 * SLOT_BYTES,
        DIRECTORIES[copy]..DIRECTORIES[copy] + 16,
        page..page + (COPIED - 20) * SLOT_BYTES,
    ]
}

/// 256 damaged bytes at the only copy of the table once cost all trees.
#[test]
fn one_damaged_copy_of_the_root_table_costs_nothing_is_found_and_is_mended() {
    let (file, whole) = copied();
    for copy in 0..2 {
        for part in used_parts(&whole, copy) {
            for begin in part.clone().step_by(239) {
                let mut bytes = whole.clone();
                let end = part.end.min(begin + 256);
                bytes[begin..end].iter_mut().for_each(|byte| *byte ^= 0xa5);
                file.write_all_at(&bytes, 0).unwrap();
                let pool = open_file(&file);
                assert_eq!(pool.trees().unwrap().len(), COPIED, "{begin:#x}");
                (0..COPIED).for_each(|number| expect_found(&pool, number));
                let lost = pool.lost_copies().unwrap();
                assert!(!lost.is_empty(), "{begin:#x}");
                for found in &lost {
                    let offset = found.offset as usize;
                    let is_here = offset + 8 * 64 > begin && offset < end;
                    assert!(is_here && found.can_be_mended, "{begin:#x}: {found:?}");
                }
                assert_eq!(pool.mend_copies().unwrap(), lost, "{begin:#x}");
                assert!(pool.lost_copies().unwrap().is_empty(), "{begin:#x}");
                pool.close().unwrap();
                let mended = bytes_of(&file);
                for part in [0, 1].into_iter().flat_map(|copy| used_parts(&whole, copy)) {
                    assert!(mended[part.clone()] == whole[part], "{begin:#x}");
                }
            }
        }
    }
}

#[test]
fn a_whole_table_has_no_lost_copy_and_is_not_written() {
    let (file, whole) = copied();
    let pool = open_file(&file);
    assert!(pool.lost_copies().unwrap().is_empty());
    assert!(pool.mend_copies().unwrap().is_empty());
    pool.close().unwrap();
    let after = bytes_of(&file);
    for copy in 0..2 {
        for part in used_parts(&whole, copy) {
            assert!(after[part.clone()] == whole[part]);
        }
    }
}

/// The state of the second copy once stayed as it was, without a word.
#[test]
fn a_copy_that_is_outdated_is_mended_as_the_first_one_says() {
    let (file, whole) = copied();
    let free = pages(&whole)[1] + (COPIED - 20) * SLOT_BYTES;
    let mut bytes = whole.clone();
    bytes.copy_within(free..free + 8, SLOTS[1]);
    file.write_all_at(&bytes, 0).unwrap();
    let pool = open_file(&file);
    let lost = pool.lost_copies().unwrap();
    assert_eq!(lost.len(), 1);
    assert!(lost[0].is_outdated && lost[0].offset as usize == SLOTS[1]);
    assert_eq!(pool.mend_copies().unwrap(), lost);
    expect_found(&pool, 0);
    pool.close().unwrap();
    assert!(bytes_of(&file)[SLOTS[1]..][..SLOT_BYTES] == whole[SLOTS[1]..][..SLOT_BYTES]);
}

#[test]
fn nothing_is_written_where_both_copies_are_damaged() {
    let (file, whole) = copied();
    let pages = pages(&whole);
    let pairs = [
        SLOTS,
        [SLOTS[0] + 16, SLOTS[1] + 16],
        [SLOTS[0] + 8 * 20, SLOTS[1] + 8 * 20],
        [SLOTS[0] + 8 * 30, SLOTS[1] + 8 * 30],
        DIRECTORIES,
        [pages[0] + 16, pages[1] + 16],
    ];
    for pair in pairs {
        let mut bytes = whole.clone();
        for at in pair {
            bytes[at..at + 8].fill(0xa5);
        }
        file.write_all_at(&bytes, 0).unwrap();
        let pool = open_file(&file);
        assert!(pool.mend_copies().unwrap().is_empty(), "{pair:x?}");
        let lost = pool.lost_copies().unwrap();
        assert!(lost.iter().all(|copy| !copy.can_be_mended), "{pair:x?}");
        drop(pool);
        let after = bytes_of(&file);
        for at in pair {
            assert_eq!(after[at..at + 8], [0xa5; 8], "{pair:x?}");
        }
    }
}

/// The encodings of tree 0 and of the tree in the first slot that is free, in turns.
#[test]
fn a_tree_gets_other_encodings_and_stays_the_same_tree() {
    let file = tempfile::tempfile().unwrap();
    let pool = open_file(&file);
    (0..3).for_each(|number| create(&pool, number).unwrap());
    let longest = encodings(&"k".repeat(ENCODINGS_BYTES_MAX - 4), "text");
    let steps = [
        Some(encodings("u64", "text")),
        None,
        Some(longest.clone()),
        Some(encodings("u64", "order:2")),
    ];
    let mut pool = Some(pool);
    for wanted in steps {
        let open = pool.take().unwrap();
        let root = open.find_tree(&name_of(0)).unwrap().unwrap();
        let changed = open.set_encodings(&root, wanted.as_ref()).unwrap();
        assert_eq!(changed.words, root.words);
        assert_eq!(open.find_tree(&name_of(0)).unwrap(), Some(changed));
        open.close().unwrap();
        let open = open_file(&file);
        let found = open.find_tree(&name_of(0)).unwrap().unwrap();
        assert_eq!(found.words, words_of(0));
        assert_eq!(found.encodings, wanted);
        (1..3).for_each(|number| expect_found(&open, number));
        assert_eq!(open.trees().unwrap().len(), 3);
        pool = Some(open);
    }
    // A new name leaves them as they are.
    let pool = pool.unwrap();
    let root = pool.find_tree(&name_of(0)).unwrap().unwrap();
    let renamed = pool.rename_tree(&root, "other").unwrap();
    assert_eq!(renamed.encodings, root.encodings);
    assert_eq!(pool.find_tree("other").unwrap(), Some(renamed));

    let too_long = encodings(&longest.key, "text.");
    for refused in [too_long, encodings("", "text"), encodings("u64", "")] {
        let root = pool.find_tree("other").unwrap().unwrap();
        let error = pool.set_encodings(&root, Some(&refused)).unwrap_err();
        let kind = error.kind();
        assert!(matches!(kind, ErrorKind::BadEncoding { .. }), "{error}");
        assert_eq!(pool.find_tree("other").unwrap(), Some(root));
    }
}

/// A tree whose encodings are lost can still be salvaged; it is not taken for one of byte strings.
#[test]
fn a_tree_whose_encodings_are_damaged_in_both_copies_is_a_damaged_one() {
    let file = tempfile::tempfile().unwrap();
    let pool = open_file(&file);
    (0..3).for_each(|number| create(&pool, number).unwrap());
    pool.close().unwrap();
    let mut bytes = bytes_of(&file);
    // The lengths of the encodings of tree 1.
    for slots in SLOTS {
        bytes[slots + SLOT_BYTES + 8 * 28] ^= 1;
    }
    file.write_all_at(&bytes, 0).unwrap();
    let pool = open_file(&file);
    let refused = pool.find_tree(&name_of(1)).unwrap_err();
    assert!(refused.is_corrupt(), "{refused}");
    let roots = pool.roots().unwrap();
    assert_eq!(roots.damaged.len(), 1);
    let tree = roots.damaged[0].tree.as_ref().unwrap();
    assert_eq!(tree.name, name_of(1));
    assert_eq!(tree.words, words_of(1));
    assert_eq!(tree.encodings, None);
}

/// A word with its check, as docs/FORMAT.md describes it.
fn checked(value: u64) -> u64 {
    let crc = crc32c::crc32c(&value.to_le_bytes());
    value | u64::from(crc as u16) << 48
}

/// A crash after the first step leaves two slots with one name. The new one counts, whether it is
/// read before the old one or after it.
#[test]
fn a_change_of_encodings_that_was_interrupted_counts() {
    // The tree whose encodings change, and the slot that is free for it.
    for (number, new_slot) in [(2, 0), (1, 3)] {
        let file = tempfile::tempfile().unwrap();
        let pool = open_file(&file);
        (0..3).for_each(|number| create(&pool, number).unwrap());
        if new_slot == 0 {
            let first = pool.find_tree(&name_of(0)).unwrap().unwrap();
            pool.remove_tree(&first).unwrap();
        }
        pool.close().unwrap();
        let before = bytes_of(&file);
        let pool = open_file(&file);
        let root = pool.find_tree(&name_of(number)).unwrap().unwrap();
        let wanted = encodings("u64", "order:2");
        let changed = pool.set_encodings(&root, Some(&wanted)).unwrap();
        assert_eq!((root.slot, changed.slot), (number, new_slot));
        pool.close().unwrap();

        let mut bytes = bytes_of(&file);
        let in_use_and_replaces = 0b11 << 32 | u64::from(CODEC) << 16 | u64::from(ENGINE);
        for slots in SLOTS {
            let new = slots + new_slot * SLOT_BYTES;
            bytes[new..new + 8].copy_from_slice(&checked(in_use_and_replaces).to_le_bytes());
            let old = slots + number * SLOT_BYTES;
            bytes[old..old + SLOT_BYTES].copy_from_slice(&before[old..old + SLOT_BYTES]);
        }
        file.write_all_at(&bytes, 0).unwrap();
        let pool = open_file(&file);
        let found = pool.find_tree(&name_of(number)).unwrap().unwrap();
        assert_eq!((found.slot, found.encodings), (new_slot, Some(wanted)));
        // The next change finishes it, and the old slot is free.
        create(&pool, 7).unwrap();
        let last = pool.find_tree(&name_of(7)).unwrap().unwrap();
        assert_eq!(last.slot, number);
    }
}
