use medium::{Dax, Word};
use pool::{Pool, PoolOptions};

use super::*;
use crate::pmwcas::layout::DESCRIPTOR_BYTES;

/// The descriptor that is damaged.
const INDEX: usize = 1;
const SEQUENCE: u64 = 5;
const FREE: Status = Status {
    state: OperationState::Free,
    count: 0,
    sequence: SEQUENCE - 1,
};

/// A pool with descriptors, and behind them words to be named.
struct Planted {
    pool: Pool<Dax>,
    /// Where the descriptors lie.
    place: u64,
    /// Where the words lie.
    words: u64,
}

fn pool() -> Planted {
    let options = PoolOptions {
        close_on_drop: false,
        ..PoolOptions::default()
    };
    let pool = Pool::open(Dax::plain(1 << 20).unwrap(), options).unwrap();
    let guard = pool.pin();
    let place = guard.allocate_lines(Pmwcas::bytes(1)).unwrap();
    Pmwcas::format(&guard, place, 1).unwrap();
    let words = guard.allocate(8 * WORDS_MAX).unwrap();
    drop(guard);
    Planted { pool, place, words }
}

/// Writes a descriptor as an operation on words with these offsets leaves it, with what belongs
/// to it.
pub(crate) fn plant(guard: &Guard<'_, Dax>, place: u64, offsets: &[u64]) {
    let target = |offset: &u64| TargetWord {
        offset: *offset,
        old: 1,
        new: 2,
    };
    let targets: Vec<TargetWord> = offsets.iter().map(target).collect();
    let pmwcas = Pmwcas::at::<Dax>(place, 1).unwrap();
    pmwcas
        .node(guard, INDEX)
        .unwrap()
        .fill(guard, FREE, SEQUENCE, targets.into_iter())
        .unwrap();
}

fn refusal(guard: &Guard<'_, Dax>, place: u64) -> String {
    Pmwcas::open(guard, place, 1)
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default()
}

fn named(words: u64, count: usize) -> Vec<TargetWord> {
    let target = |word| TargetWord {
        offset: words + 8 * word,
        old: 10 + word,
        new: 20 + word,
    };
    (0..count as u64).map(target).collect()
}

/// Words may durably hold its name, and without the descriptor their values are lost.
#[test]
fn a_damaged_descriptor_that_is_undecided_is_refused_by_name() {
    let Planted { pool, place, words } = pool();
    let guard = pool.pin();
    let pmwcas = Pmwcas::open(&guard, place, 1).unwrap();
    let node = pmwcas.node(&guard, INDEX).unwrap();
    for count in 1..=WORDS_MAX {
        let cells: &[Word] = guard.words(words, count).unwrap();
        let name = Name {
            index: INDEX,
            sequence: SEQUENCE,
        };
        let fill = || {
            node.fill(&guard, FREE, SEQUENCE, named(words, count).into_iter())
                .unwrap();
            cells
                .iter()
                .for_each(|cell| cell.store(&guard, name.installed()));
        };
        fill();
        let lines = guard
            .words(guard.offset_of(node), DESCRIPTOR_BYTES / 8)
            .unwrap();
        let used = lines.len().min((2 + 3 * count).next_multiple_of(8));
        // An operation on this many words does not use the rest of the lines.
        let content: Vec<u64> = lines[..used].iter().map(|word| word.load(&guard)).collect();
        for (word, bit) in (0..used).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
            lines[word].store(&guard, content[word] ^ 1 << bit);
            let refused = refusal(&guard, place);
            let named = refused.contains(&format!("PMwCAS descriptor {INDEX}: "));
            let kept = cells
                .iter()
                .zip(10..)
                .all(|(cell, old)| cell.load(&guard) == old);
            assert!(
                named || kept,
                "{count} words, word {word}, bit {bit}: {refused:?}"
            );
            fill();
        }
        assert_eq!(refusal(&guard, place), "");
        assert!(
            cells
                .iter()
                .zip(10..)
                .all(|(cell, old)| cell.load(&guard) == old),
            "rolled back"
        );
    }
}

#[test]
fn words_that_no_operation_names_are_refused_by_name() {
    let Planted { pool, place, words } = pool();
    let guard = pool.pin();
    let pmwcas = Pmwcas::open(&guard, place, 1).unwrap();
    let node = pmwcas.node(&guard, INDEX).unwrap();
    let end = pool.stat().file_bytes;
    let with = |offset: u64, old: u64, new: u64| {
        let mut targets = named(words, 3);
        targets[2] = TargetWord { offset, old, new };
        targets
    };
    let cases = [
        ("it names a word outside of the pool", with(end, 1, 2)),
        ("it names a word outside of the pool", with(1 << 60, 1, 2)),
        (
            "it names a word outside of the pool",
            with(words + 17, 1, 2),
        ),
        (
            "a value has more than 61 bits",
            with(words + 16, VALUE_MASK + 1, 2),
        ),
        (
            "a value has more than 61 bits",
            with(words + 16, 1, u64::MAX),
        ),
        ("its words overlap", with(words + 8, 1, 2)),
        ("its words overlap", with(words, 1, 2)),
        ("an operation without words", Vec::new()),
    ];
    for (what, targets) in cases {
        for state in [
            OperationState::Undecided,
            OperationState::Succeeded,
            OperationState::Failed,
        ] {
            node.fill(&guard, FREE, SEQUENCE, targets.iter().copied())
                .unwrap();
            let status = Status {
                state,
                count: targets.len(),
                sequence: SEQUENCE,
            };
            node.status.store(&guard, status.encode());
            let expected = format!("PMwCAS descriptor {INDEX}: {what}");
            let refused = refusal(&guard, place);
            assert!(
                refused.contains(&expected),
                "{what}, {state:?}: {refused:?}"
            );
        }
    }
}
