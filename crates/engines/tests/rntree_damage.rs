//! Damage to RNTree's leaves: every byte of every leaf, changed in several ways, is a typed error or means nothing. And a
//! check that every operation keeps right, for a check that is wrong without damage is found by these tests as well.

use everleaf_engines::index::{
    Bounds, Codec, Condition, Direction, Index, MaybeWords, RecordCodec, WordCodec,
};
use everleaf_engines::rntree::{RnTree, RnTreeOptions};
use medium::late::Late;
use medium::{LineForm, Medium, Ram};
use pool::{Error, Pool, PoolOptions, TreeRoot};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

const OPTIONS: RnTreeOptions = RnTreeOptions { recovery_threads: 1 };
const LINE: u64 = 64;

fn content(tree: &dyn Index) -> Result<Entries, Error> {
    let mut scan = tree.range(Bounds::all(), Direction::Forward)?;
    let (mut key, mut value, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    while scan.next_into(&mut key, &mut value)? {
        entries.push((key.clone(), value.clone()));
        assert!(entries.len() < 10_000, "a scan that does not end");
    }
    Ok(entries)
}

/// One of some keys, which fill some leaves.
fn key_of<const N: usize>(number: u64) -> [u8; 8] {
    (number % (6 * N as u64 + 5)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Inserts, updates and removes, with splits, merges and recycled entries in between, each followed by a check.
fn grown<M: Medium, C: Codec, const N: usize>(pool: &Pool<M>) -> RnTree<M, C, N>
where
    RnTree<M, C, N>: MaybeWords,
{
    let tree = RnTree::<M, C, N>::create(pool, "tree", OPTIONS).unwrap();
    let apply = |step: u64| {
        let (key, value) = (key_of::<N>((step * 40_503) >> 4), (step % 11).to_be_bytes());
        let _held = match step % 7 {
            0..4 => tree.put(&key, &value).map(|()| true),
            4 => tree.remove(&key_of::<N>(step)),
            5 => tree.update(&key, &value),
            _ => tree.write(&key, None, Condition::Equals(&value)),
        }
        .unwrap();
        let violations = tree.check().unwrap();
        assert!(violations.is_empty(), "after step {step}: {}", violations[0]);
    };
    (0..60 + 20 * N as u64).for_each(apply);
    // Merges, down to a few leaves.
    for number in 0..2 * N as u64 {
        tree.remove(&key_of::<N>(number)).unwrap();
    }
    (1000..1030 + 4 * N as u64).for_each(apply);
    tree
}

/// The lines and entries of the leaves: where each lies, and the entries that its slots list.
fn leaves<M: Medium, const N: usize>(pool: &Pool<M>, root: &TreeRoot) -> Vec<(u64, Vec<u64>)> {
    let guard = pool.pin();
    let (mut offset, mut leaves) = (root.words[0], Vec::new());
    while offset != 0 {
        let line = |offset| guard.words(offset, 8).unwrap().iter().map(|word| word.load(&guard)).collect();
        let mut words: Vec<u64> = line(offset);
        let tag = |words: &[u64]| words[0] >> 62;
        if guard.medium().line_form() == LineForm::Twin {
            let second = line(offset - LINE);
            if (tag(&words) + 1) % 4 == tag(&second) {
                words = second;
            }
        }
        let count = words[0] >> 48 & 63;
        let slot = |position: u64| words[1 + position as usize / 8] >> (8 * (position % 8)) & 63;
        leaves.push((offset, (0..count).map(slot).collect()));
        offset = words[0] & ((1 << 48) - 1);
    }
    leaves
}

/// Whether `check` notices damage to an open tree; if not, nothing has changed.
fn is_found(tree: &dyn Index, entries: &Entries, at: &str) -> bool {
    match tree.check() {
        Ok(violations) if violations.is_empty() => {
            assert_eq!(content(tree).unwrap(), *entries, "{at}: not noticed");
            false
        }
        Ok(_) | Err(Error::Corrupt { .. }) => true,
        Err(error) => panic!("{at}: {error}"),
    }
}

/// Whether an open notices damage; if not, `check` finds it, or nothing has changed.
fn is_refused<M: Medium, C: Codec, const N: usize>(
    pool: &Pool<M>,
    root: &TreeRoot,
    entries: &Entries,
    at: &str,
) -> bool
where
    RnTree<M, C, N>: MaybeWords,
{
    match RnTree::<M, C, N>::open(pool, root, OPTIONS) {
        Ok(tree) => {
            is_found(&tree, entries, at);
            false
        }
        Err(Error::Corrupt { .. }) => true,
        Err(error) => panic!("{at}: {error}"),
    }
}

/// Changes every byte of every leaf: all its bits, one of them, and so many other patterns.
fn every_byte<M: Medium, C: Codec, const N: usize>(medium: M, patterns: usize)
where
    RnTree<M, C, N>: MaybeWords,
{
    let form = medium.line_form();
    let pool = Pool::open(medium, PoolOptions::default()).unwrap();
    let tree = grown::<M, C, N>(&pool);
    let entries = content(&tree).unwrap();
    let root = pool.trees().unwrap().remove(0);
    assert!(!is_refused::<M, C, N>(&pool, &root, &entries, "undamaged"));
    let all = leaves::<M, N>(&pool, &root);
    assert!(all.len() > 2 && all.iter().any(|leaf| leaf.1.len() < N), "{} leaves", all.len());
    let (mut refused, mut places) = (0, 0);
    for (leaf, listed) in all {
        let start = if form == LineForm::Twin { leaf - LINE } else { leaf };
        for byte in start..leaf + LINE + 16 * N as u64 {
            let entry = byte.checked_sub(leaf + LINE).map(|at| at / 16);
            // Of the copies of a twin line only one says something.
            let says_something = entry.map_or(form == LineForm::Single, |entry| listed.contains(&entry));
            for mask in [1 << (byte / 8 % 8), 0xff, 0x41, 0xc0, 0x80].into_iter().take(1 + patterns) {
                let guard = pool.pin();
                let word = &guard.words(byte & !7, 1).unwrap()[0];
                let before = word.load(&guard);
                let damaged = before ^ mask << (8 * (byte % 8));
                word.store(&guard, damaged);
                let at = format!(
                    "byte {} of leaf {leaf:#x} xor {mask:#x}",
                    byte.cast_signed() - leaf.cast_signed()
                );
                let is_refused = is_refused::<M, C, N>(&pool, &root, &entries, &at);
                assert!(is_refused || !says_something, "{at}: opened");
                assert_eq!(word.load(&guard), damaged, "{at}: an open wrote there");
                assert!(is_found(&tree, &entries, &at) || !says_something, "{at}: not found by check");
                word.store(&guard, before);
                refused += u32::from(is_refused);
                places += 1;
            }
        }
    }
    assert!(!is_refused::<M, C, N>(&pool, &root, &entries, "put right"));
    assert!(refused > places / 3, "{refused} of {places}");
}

fn twins() -> Late {
    Late::new(1 << 30, LineForm::Twin).unwrap()
}

fn singles() -> Ram {
    Ram::new(1 << 30).unwrap()
}

#[test]
fn every_byte_of_a_small_leaf_of_words() {
    every_byte::<_, WordCodec, 4>(singles(), 4);
    every_byte::<_, WordCodec, 4>(twins(), 4);
}

#[test]
fn every_byte_of_a_small_leaf_of_records() {
    every_byte::<_, RecordCodec, 4>(singles(), 4);
    every_byte::<_, RecordCodec, 4>(twins(), 4);
}

#[test]
fn every_byte_of_a_large_leaf() {
    every_byte::<_, WordCodec, 56>(singles(), 0);
    every_byte::<_, RecordCodec, 56>(twins(), 0);
}
