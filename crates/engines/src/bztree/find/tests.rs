//! Reads of trees whose inner nodes are damaged.

use medium::Dax;
use pool::{Guard, Pool};

use super::*;
use crate::bztree::testing::{self, TestTree};
use crate::index::{Bounds, Condition, Direction, Index, RecordCodec, WordIndex};

const KEYS: u64 = 120;

type RecordTree = BzTree<Dax, RecordCodec>;

/// A tree of words with the even numbers up to twice this, and a pool that verifies reads.
fn words() -> (Pool<Dax>, TestTree) {
    let (pool, tree) = testing::tree(4);
    pool.verify_reads();
    for number in 1..=KEYS {
        let written = WordIndex::write_durably(&tree, 2 * number, Some(number), Condition::Absent);
        assert!(written.unwrap());
    }
    (pool, tree)
}

/// Keys of which many begin with the same eight bytes, so that separators have records.
fn key(number: u64) -> Vec<u8> {
    format!("{:02} prefix {number:04}", number / 40).into_bytes()
}

/// The same with records. The tree has the keys of even numbers.
fn records() -> (Pool<Dax>, RecordTree) {
    let (pool, tree) = testing::tree_of::<RecordCodec>(4);
    pool.verify_reads();
    for number in 1..=KEYS {
        assert!(tree.insert(&key(2 * number), b"value").unwrap());
    }
    (pool, tree)
}

/// The offsets of all inner nodes.
fn inner_nodes<C: Codec>(tree: &BzTree<Dax, C>, guard: &Guard<'_, Dax>) -> Vec<u64> {
    let mut found = vec![tree.root_pointer(guard).unwrap()];
    let mut next = 0;
    while let Some(pointer) = found.get(next).copied() {
        next += 1;
        let inner = BzTree::<Dax, C>::inner(guard, pointer.offset()).unwrap();
        let header = BzTree::<Dax, C>::header(guard, inner);
        if header.level() > 1 {
            let children = &inner.children[..=header.separators()];
            found.extend(children.iter().map(|child| Pointer(child.load(guard))));
        }
    }
    assert!(found.len() > 5, "{} inner nodes", found.len());
    found.iter().map(|pointer| pointer.offset()).collect()
}

/// Refuses an answer that is neither right nor an error of damage. Returns whether it is an error.
fn judge<T: PartialEq + std::fmt::Debug>(found: Result<T>, right: &T, what: &str) -> bool {
    match found {
        Ok(found) => {
            assert_eq!(found, *right, "{what}");
            false
        }
        Err(error) => {
            assert!(error.is_corrupt(), "{what}: {error}");
            true
        }
    }
}

/// The keys of a range.
fn keys_of(tree: &dyn Index, bounds: Bounds, direction: Direction) -> Result<Vec<Vec<u8>>> {
    let mut range = tree.range(bounds, direction)?;
    let mut keys = Vec::new();
    let mut entry = (Vec::new(), Vec::new());
    while range.next_into(&mut entry.0, &mut entry.1)? {
        keys.push(entry.0.clone());
        assert!(keys.len() <= 2 * KEYS as usize, "a range without an end");
    }
    Ok(keys)
}

/// Reads all of a tree in all ways. Returns how many reads were errors.
fn errors_of_reads(tree: &dyn Index, keys: &[Vec<u8>], absent: &[Vec<u8>]) -> usize {
    let mut errors = 0;
    for key in keys {
        let is_there = tree.get(key).map(|value| value.is_some());
        errors += usize::from(judge(is_there, &true, "a key that is there"));
        let updated = tree.update(key, &tree_value(key));
        errors += usize::from(judge(updated, &true, "an update"));
    }
    for key in absent {
        let is_there = tree.get(key).map(|value| value.is_some());
        errors += usize::from(judge(is_there, &false, "a key that is absent"));
        let removed = tree.remove(key);
        errors += usize::from(judge(removed, &false, "a remove of a key that is absent"));
    }
    for together in keys.chunks(8) {
        let together: Vec<&[u8]> = together.iter().map(Vec::as_slice).collect();
        let are_there = tree
            .get_many(&together)
            .map(|values| values.iter().all(Option::is_some));
        errors += usize::from(judge(are_there, &true, "keys that are there"));
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        let ordered = |keys: &[Vec<u8>]| {
            let mut keys = keys.to_vec();
            if direction == Direction::Reverse {
                keys.reverse();
            }
            keys
        };
        let all = keys_of(tree, Bounds::all(), direction);
        errors += usize::from(judge(all, &ordered(keys), "a range of all"));
        for together in keys.chunks(11) {
            let bounds = Bounds::of(&(together[0].clone()..=together[together.len() - 1].clone()));
            let some = keys_of(tree, bounds, direction);
            errors += usize::from(judge(some, &ordered(together), "a range of some"));
        }
    }
    errors
}

/// A value of eight bytes, which trees of words take, too.
fn tree_value(key: &[u8]) -> Vec<u8> {
    let mut value = key.to_vec();
    value.resize(8, 0);
    value
}

/// Damages each separator of each inner node in several ways, and reads the tree. The check must
/// find each damage at the node, and some read must.
fn expect_noticed<C: Codec>(
    pool: &Pool<Dax>,
    tree: &BzTree<Dax, C>,
    keys: &[Vec<u8>],
    absent: &[Vec<u8>],
) where
    BzTree<Dax, C>: Index,
{
    let guard = pool.pin();
    assert_eq!(errors_of_reads(tree, keys, absent), 0);
    assert_eq!(tree.check().unwrap(), []);
    for offset in inner_nodes(tree, &guard) {
        let inner = BzTree::<Dax, C>::inner(&guard, offset).unwrap();
        let count = BzTree::<Dax, C>::header(&guard, inner).separators();
        for position in 0..count {
            let cell = &inner.keys[position];
            let right = cell.load(&guard);
            let first = inner.keys[0].load(&guard);
            for wrong in [0, u64::MAX, right + 1, right - 1, first] {
                if wrong == right {
                    continue;
                }
                cell.store(&guard, wrong);
                let what = format!("separator {position} of {offset:#x}: {right:#x}, {wrong:#x}");
                assert!(errors_of_reads(tree, keys, absent) > 0, "{what}");
                let violations = tree.check().unwrap();
                let is_named = violations.iter().any(|found| found.offset == offset);
                assert!(is_named, "{what}: {violations:?}");
                cell.store(&guard, right);
            }
        }
        // All of them, as in a line or a page that is lost.
        let before: Vec<u64> = inner.keys[..count]
            .iter()
            .map(|key| key.load(&guard))
            .collect();
        inner.keys[..count]
            .iter()
            .for_each(|key| key.store(&guard, 0));
        if count > 0 {
            assert!(
                errors_of_reads(tree, keys, absent) > 0,
                "zeros at {offset:#x}"
            );
            assert_ne!(tree.check().unwrap(), []);
        }
        for (cell, right) in inner.keys.iter().zip(before) {
            cell.store(&guard, right);
        }
    }
    assert_eq!(errors_of_reads(tree, keys, absent), 0);
}

#[test]
fn wrong_separators_of_words_are_errors_and_never_wrong_answers() {
    let (pool, tree) = words();
    let bytes = |number: u64| number.to_be_bytes().to_vec();
    let keys: Vec<_> = (1..=KEYS).map(|number| bytes(2 * number)).collect();
    let absent: Vec<_> = (0..=KEYS).map(|number| bytes(2 * number + 1)).collect();
    expect_noticed(&pool, &tree, &keys, &absent);
}

#[test]
fn wrong_separators_of_records_are_errors_and_never_wrong_answers() {
    let (pool, tree) = records();
    let keys: Vec<_> = (1..=KEYS).map(|number| key(2 * number)).collect();
    let absent: Vec<_> = (0..=KEYS).map(|number| key(2 * number + 1)).collect();
    expect_noticed(&pool, &tree, &keys, &absent);
}

/// The separators of a node stay as they are, and the record of one of them is damaged.
#[test]
fn a_damaged_key_of_a_separator_is_an_error_and_never_a_wrong_answer() {
    let (pool, tree) = records();
    let keys: Vec<_> = (1..=KEYS).map(|number| key(2 * number)).collect();
    let absent: Vec<_> = (0..=KEYS).map(|number| key(2 * number + 1)).collect();
    let guard = pool.pin();
    let mut damaged = 0;
    for offset in inner_nodes(&tree, &guard) {
        let inner = RecordTree::inner(&guard, offset).unwrap();
        let count = RecordTree::header(&guard, inner).separators();
        let tails = &RecordTree::tails(&guard, inner).unwrap()[..count];
        for tail in tails.iter().map(|tail| tail.load(&guard)) {
            if tail == 0 {
                continue;
            }
            damaged += 1;
            // The third word of the record is in its key.
            let cell = &guard.words(tail, 3).unwrap()[2];
            let right = cell.load(&guard);
            cell.store(&guard, right ^ 0x0101);
            let errors = errors_of_reads(&tree, &keys, &absent);
            assert!(errors > 0 && !tree.check().unwrap().is_empty(), "{tail:#x}");
            cell.store(&guard, right);
        }
    }
    assert!(damaged > 10, "{damaged} records");
}

/// Both pointers pass their checks, and lead to nodes of the right level.
#[test]
fn children_of_two_nodes_that_are_exchanged_are_an_error_and_never_a_wrong_answer() {
    let (pool, tree) = words();
    let bytes = |number: u64| number.to_be_bytes().to_vec();
    let keys: Vec<_> = (1..=KEYS).map(|number| bytes(2 * number)).collect();
    let absent: Vec<_> = (0..=KEYS).map(|number| bytes(2 * number + 1)).collect();
    let guard = pool.pin();
    let nodes = inner_nodes(&tree, &guard);
    for pair in nodes.windows(2) {
        let [one, other] =
            [pair[0], pair[1]].map(|offset| TestTree::inner(&guard, offset).unwrap());
        if TestTree::header(&guard, one).level() != TestTree::header(&guard, other).level() {
            continue;
        }
        let first = one.children[0].load(&guard);
        let second = other.children[0].load(&guard);
        one.children[0].store(&guard, second);
        other.children[0].store(&guard, first);
        assert!(errors_of_reads(&tree, &keys, &absent) > 0, "{pair:x?}");
        assert!(!tree.check().unwrap().is_empty(), "{pair:x?}");
        one.children[0].store(&guard, first);
        other.children[0].store(&guard, second);
    }
}

/// A copy of a damaged node would pass its check.
#[test]
fn a_write_that_would_copy_a_damaged_inner_node_is_refused() {
    let (pool, tree) = words();
    let guard = pool.pin();
    let root = tree.root_pointer(&guard).unwrap().offset();
    let cell = &TestTree::inner(&guard, root).unwrap().keys[0];
    cell.store(&guard, cell.load(&guard) + 1);
    assert!(
        tree.image(&guard, root)
            .is_err_and(|error| error.is_corrupt())
    );
}

/// Nodes that were replaced meanwhile are no damage: while one thread splits and merges nodes, all
/// keys that stay are found, and those that are never there are not.
#[test]
fn reads_beside_splits_and_merges_are_no_errors() {
    let (pool, tree) = words();
    let bytes = |number: u64| number.to_be_bytes().to_vec();
    let keys: Vec<_> = (1..=KEYS)
        .map(|number| bytes(4 * KEYS + 2 * number))
        .collect();
    for key in &keys {
        assert!(tree.insert(key, &[1; 8]).unwrap());
    }
    let _pool = pool;
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..40 {
                for number in 0..6 * KEYS {
                    let odd = bytes(2 * (number * 7 % (6 * KEYS)) + 1);
                    if round % 2 == 0 {
                        tree.insert(&odd, &[2; 8]).unwrap();
                    } else {
                        tree.remove(&odd).unwrap();
                    }
                }
            }
            is_done.store(true, std::sync::atomic::Ordering::Release);
        });
        while !is_done.load(std::sync::atomic::Ordering::Acquire) {
            for direction in [Direction::Forward, Direction::Reverse] {
                let found = keys_of_even(&tree, direction);
                assert_eq!(found, keys.len() + KEYS as usize, "{direction:?}");
            }
            for key in &keys {
                assert!(Index::get(&tree, key).unwrap().is_some());
            }
            for number in 0..KEYS {
                let key = bytes(2 * (KEYS + 1 + number % (KEYS - 1)));
                assert_eq!(Index::get(&tree, &key).unwrap(), None);
            }
            let mut even = 0;
            let mut visit = |entries: &[EntryWords], _| {
                even += entries.iter().filter(|entry| entry[0] % 2 == 0).count();
                true
            };
            WordIndex::visit(&tree, 0, &mut visit).unwrap();
            assert_eq!(even, keys.len() + KEYS as usize);
        }
    });
}

/// The number of even keys that a range returns.
fn keys_of_even(tree: &TestTree, direction: Direction) -> usize {
    let mut range = tree.range(Bounds::all(), direction).unwrap();
    let mut entry = (Vec::new(), Vec::new());
    let mut even = 0;
    while range.next_into(&mut entry.0, &mut entry.1).unwrap() {
        even += usize::from(entry.0[7] % 2 == 0);
    }
    even
}
