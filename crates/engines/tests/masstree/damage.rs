//! Damage to the parts that the recovery of a Masstree needs: the number of the running epoch, the
//! set of failed epochs, the external log. The result is a typed error, a violation that `check`
//! names, or no effect; never a panic, and never a walk without an end.

use std::cell::Cell;
use std::time::Duration;

use everleaf_engines::engine::{CodecKind, Engine};
use everleaf_engines::index::{Bounds, Condition, Direction, EpochLength, Index, Violation};
use everleaf_engines::masstree::{MassTreeOptions, instrumented};
use everleaf_engines::{Error, ErrorKind};
use medium::{Dax, Instrumented};
use pool::{EPOCHS, Pool, PoolOptions};

use crate::common::content;

pub(crate) type Tree = dyn Index;

pub(crate) const OPTIONS: MassTreeOptions = MassTreeOptions {
    epoch: EpochLength::Manual,
    width: Some(4),
    mode: everleaf_engines::masstree::Mode::InLine,
    recovery_threads: 1,
    shards: 1,
    // The state is as after a crash at which everything was written back.
    close_cleanly: false,
    mark_later: false,
    patience: Duration::from_millis(100),
    first_epoch: 1,
};

/// Bytes in a copy of the epochs' words where failed epochs lie; it begins with the running one.
const FAILED: std::ops::Range<u64> = 64..512;
/// Where the anchor has the root, and the last run with the one before.
const ROOT: u64 = 16;
pub(crate) const RUNS: [u64; 2] = [32, 40];
/// Where the anchor has the number of shards, twice.
const SHARDS: [u64; 2] = [48, 56];
/// Where the areas of the shards begin, each with the first segment of its log, and then its
/// queues.
pub(crate) const SHARDS_BEGIN: u64 = 128;
pub(crate) const SHARD_BYTES: u64 = 64 + 64 * SIZE_CLASSES;
/// Classes of objects, each of which has a free queue in each shard.
pub(crate) const SIZE_CLASSES: u64 = 48;
const VALUE: u64 = (1 << 48) - 1;

pub(crate) fn open_pool(ram: &Instrumented) -> Pool<Instrumented> {
    let options = PoolOptions {
        step_slabs_min: 1,
        close_on_drop: false,
        ..PoolOptions::default()
    };
    Pool::open(ram.clone(), options).unwrap()
}

pub(crate) fn reopen(pool: &Pool<Instrumented>, name: &str) -> Result<Box<Tree>, Error> {
    reopen_as(pool, name, CodecKind::Record)
}

fn reopen_as(pool: &Pool<Instrumented>, name: &str, codec: CodecKind) -> Result<Box<Tree>, Error> {
    let root = pool
        .trees()
        .unwrap()
        .into_iter()
        .find(|root| root.name == name)
        .unwrap();
    instrumented::open(pool, &root, codec, OPTIONS)
}

/// An empty tree of records.
pub(crate) fn create(pool: &Pool<Instrumented>, options: MassTreeOptions) -> Box<Tree> {
    instrumented::create(pool, "tree", CodecKind::Record, options).unwrap()
}

/// An empty tree of words.
fn create_words(pool: &Pool<Instrumented>) -> Box<Tree> {
    instrumented::create(pool, "tree", CodecKind::Word, OPTIONS).unwrap()
}

pub(crate) fn anchor(pool: &Pool<Instrumented>, name: &str) -> u64 {
    pool.trees()
        .unwrap()
        .into_iter()
        .find(|root| root.name == name)
        .unwrap()
        .words[0]
}

pub(crate) fn load(pool: &Pool<Instrumented>, offset: u64) -> u64 {
    let guard = pool.pin();
    guard.words(offset, 1).unwrap()[0].load(&guard)
}

pub(crate) fn store(pool: &Pool<Instrumented>, offset: u64, value: u64) {
    let guard = pool.pin();
    guard.words(offset, 1).unwrap()[0].store(&guard, value);
}

pub(crate) fn key(number: u64) -> Vec<u8> {
    let mut key = number
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_be_bytes()
        .to_vec();
    key.extend_from_slice(&b"and a tail"[..number as usize % 10]);
    key
}

/// A tree of `keys` keys; a few keys share an epoch.
pub(crate) fn grown(pool: &Pool<Instrumented>, name: &str, keys: u64) -> Box<Tree> {
    let tree = instrumented::create(pool, name, CodecKind::Record, OPTIONS).unwrap();
    for number in 0..keys {
        tree.put(&key(number), &number.to_be_bytes()).unwrap();
        if number % 5 == 0 {
            tree.sync().unwrap();
        }
    }
    tree.sync().unwrap();
    tree
}

pub(crate) fn is_corrupt<T>(result: Result<T, Error>) -> bool {
    result.is_err_and(|error| error.is_corrupt())
}

/// Stores a word to both copies of the epochs' words.
fn store_epochs(pool: &Pool<Instrumented>, at: u64, value: u64) {
    EPOCHS.iter().for_each(|copy| store(pool, copy + at, value));
}

fn checked(value: u64) -> u64 {
    value | (value ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xffff << 48
}

#[test]
fn a_counter_of_epochs_that_lies() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = grown(&pool, "tree", 200);
    let before = content(&*tree).unwrap();
    drop(tree);
    let past = load(&pool, EPOCHS[0]);
    assert!(past & VALUE < 100);
    let mut right = past;
    // A changed bit: each copy alone is enough.
    for bit in 0..64 {
        store_epochs(&pool, 0, right ^ 1 << bit);
        assert!(is_corrupt(reopen(&pool, "tree")), "bit {bit}");
        store_epochs(&pool, 0, right);
        store(&pool, EPOCHS[bit as usize % 2], right ^ 1 << bit);
        let tree = reopen(&pool, "tree").unwrap_or_else(|error| panic!("bit {bit}: {error}"));
        assert_eq!(content(&*tree).unwrap(), before, "bit {bit}");
        tree.epochs().unwrap().sweep().unwrap();
        drop(tree);
        assert_eq!(load(&pool, EPOCHS[0]), load(&pool, EPOCHS[1]));
        right = load(&pool, EPOCHS[0]);
    }
    // From the future: nothing was under way, so nothing is lost, and the tree can be used.
    store_epochs(&pool, 0, checked(500));
    let tree = reopen(&pool, "tree").unwrap();
    assert_eq!(content(&*tree).unwrap(), before);
    tree.put(b"new", b"value").unwrap();
    tree.sync().unwrap();
    assert!(tree.check().unwrap().is_empty());
    drop(tree);
    // From the past: every node is from the future.
    store_epochs(&pool, 0, past);
    FAILED.step_by(8).for_each(|at| store_epochs(&pool, at, 0));
    let said = reopen(&pool, "tree").and_then(|tree| {
        let found = content(&*tree);
        let violations = tree.check()?;
        assert!(!violations.is_empty());
        found
    });
    assert!(is_corrupt(said));
}

/// Whether each entry is in one of two contents, and entries are in order.
fn is_of(found: &[(Vec<u8>, Vec<u8>)], contents: [&[(Vec<u8>, Vec<u8>)]; 2]) -> bool {
    found.is_sorted_by(|(one, _), (next, _)| one < next)
        && found
            .iter()
            .all(|entry| contents.iter().any(|content| content.contains(entry)))
}

/// A number from the future cannot be told from a right one, as it has its check. Writes that were
/// under way then count as complete, although a part of them may be missing. The result is an
/// error, a violation, or entries that were once written.
#[test]
fn a_counter_of_epochs_from_the_future_while_something_is_under_way() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = grown(&pool, "tree", 120);
    let before = content(&*tree).unwrap();
    change_in_vain(&*tree);
    let changed = content(&*tree).unwrap();
    drop(tree);
    store_epochs(&pool, 0, checked(500));
    let tree = reopen(&pool, "tree").unwrap();
    // Everything was written back here, so all entries are present.
    assert_eq!(content(&*tree).unwrap(), changed);
    assert!(tree.check().unwrap().is_empty());
    assert!(is_of(&changed, [&changed, &before]) && !is_of(&changed, [&before, &before]));
}

#[test]
fn a_set_of_failed_epochs_that_is_damaged() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    drop(grown(&pool, "tree", 200));
    // Epochs fail, and no thread sweeps.
    for _ in 0..3 {
        drop(reopen(&pool, "tree").unwrap());
    }
    let used: Vec<u64> = FAILED
        .step_by(8)
        .filter(|at| load(&pool, EPOCHS[0] + at) != 0)
        .collect();
    assert_eq!(used.len(), 3);
    for at in used {
        let right = load(&pool, EPOCHS[0] + at);
        for bit in 0..64 {
            store_epochs(&pool, at, right ^ 1 << bit);
            assert!(is_corrupt(reopen(&pool, "tree")), "word {at:#x}, bit {bit}");
        }
        store_epochs(&pool, at, right);
        // One copy is enough, and the other one is mended.
        store(&pool, EPOCHS[1] + at, right ^ 1);
        drop(reopen(&pool, "tree").unwrap());
        assert_eq!(load(&pool, EPOCHS[1] + at), right);
    }
}

/// The result of a salvage of a tree of records that does not open.
struct Salvage {
    entries: usize,
    left_out: Vec<String>,
}

fn salvage(pool: &Pool<Instrumented>) -> Salvage {
    let root = pool.trees().unwrap().remove(0);
    let salvage = Engine::MASSTREE.media().instrumented.salvage;
    let entries = Cell::new(0);
    let left_out = salvage(pool, &root, CodecKind::Record, &mut |_, _| {
        entries.set(entries.get() + 1);
        true
    });
    let left_out = left_out.unwrap().unwrap();
    Salvage {
        entries: entries.get(),
        left_out: left_out.into_iter().map(|left| left.what).collect(),
    }
}

/// Free nodes, whose entries were removed, are known from the free queues of all shards, and nodes
/// of failed epochs from the epochs' numbers.
#[test]
fn a_salvage_that_cannot_tell_old_entries_says_so() {
    let closed = || {
        let pool = open_pool(&Instrumented::new(Dax::plain(64 << 20).unwrap()));
        let options = MassTreeOptions {
            close_cleanly: true,
            ..OPTIONS
        };
        let tree = create(&pool, options);
        for number in 0..100 {
            tree.put(&key(number), &number.to_be_bytes()).unwrap();
        }
        drop(tree);
        pool
    };
    let pool = closed();
    let whole = salvage(&pool);
    assert_eq!(whole.entries, 100);
    assert!(
        whole
            .left_out
            .iter()
            .all(|what| !what.contains("may be old")),
        "{:?}",
        whole.left_out
    );

    SHARDS.iter().for_each(|copy| {
        let at = anchor(&pool, "tree") + copy;
        store(&pool, at, load(&pool, at) ^ 1);
    });
    let without_shards = salvage(&pool);
    assert!(is_corrupt(reopen(&pool, "tree")));

    let pool = closed();
    store_epochs(&pool, 0, 1);
    let without_epochs = salvage(&pool);
    assert!(is_corrupt(reopen(&pool, "tree")));

    for found in [without_shards, without_epochs] {
        assert_eq!(found.entries, 100);
        assert!(
            found
                .left_out
                .iter()
                .any(|what| what.contains("may be old")),
            "{:?}",
            found.left_out
        );
    }
}

/// Whether a word of an entry of the external log, with nodes of four slots, is under its checksum
/// or holds that.
fn is_checked(word: u64) -> bool {
    !(3..8).contains(&word) && ![8, 9, 10, 15].contains(&word)
}

/// All words in use.
pub(crate) fn image(pool: &Pool<Instrumented>) -> Vec<u64> {
    let guard = pool.pin();
    let words = pool.stat().high_water_bytes as usize / 8;
    guard
        .words(0, words)
        .unwrap()
        .iter()
        .map(|word| word.load(&guard))
        .collect()
}

pub(crate) fn restore(pool: &Pool<Instrumented>, image: &[u64]) {
    let guard = pool.pin();
    let words = guard.words(0, image.len()).unwrap();
    words
        .iter()
        .zip(image)
        .for_each(|(word, value)| word.store(&guard, *value));
}

/// An epoch of splits and emptied nodes.
fn change_in_vain(tree: &Tree) {
    (200..240).for_each(|number| tree.put(&key(number), b"in vain").unwrap());
    (0..40).for_each(|number| assert!(tree.remove(&key(number)).unwrap()));
}

#[test]
fn an_external_log_that_is_cut_anywhere() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = grown(&pool, "tree", 120);
    let before = content(&*tree).unwrap();
    change_in_vain(&*tree);
    let logged = tree.epochs().unwrap().epoch_stat().nodes_logged;
    assert!(logged > 20);
    let changed = content(&*tree).unwrap();
    drop(tree);
    let anchor = anchor(&pool, "tree");
    let running = load(&pool, EPOCHS[0]);
    let chain = anchor + SHARDS_BEGIN;
    let segment = load(&pool, chain) & VALUE;
    let crashed = image(&pool);
    // The entries of this epoch: from the first line of the segment on, as long as they begin with
    // its number.
    let first = segment / 8 + 8;
    let entry = (320 + 64) / 8;
    let entries = (0..200)
        .take_while(|number| crashed[(first + number * entry) as usize] == running)
        .count() as u64;
    assert!(entries > 20, "{entries} entries");
    let mut errors = 0;
    let mut violations = 0;
    let mut mixtures = 0;
    let end = first + entries * entry;
    for cut in (first..end).rev() {
        restore(&pool, &crashed);
        (cut..end).for_each(|word| store(&pool, 8 * word, 0));
        // Of an entry the checksum covers all but four words of its header and those of its node
        // that are never read; an entry that is all zeros from one of these on is as it was.
        let is_lost = (cut..end)
            .any(|word| crashed[word as usize] != 0 && is_checked((word - first) % entry));
        let found = reopen(&pool, "tree").and_then(|tree| {
            let check = tree.check()?;
            Ok((content(&*tree)?, check.is_empty()))
        });
        match found {
            Ok((found, true)) if found == before => {}
            _ if !is_lost => panic!("nothing was lost by the cut at {cut}, and yet: {found:?}"),
            Ok((found, is_sound)) => {
                assert!(
                    is_of(&found, [&before, &changed]),
                    "cut at {cut}: {found:?}"
                );
                violations += u64::from(!is_sound);
                mixtures += u64::from(is_sound);
            }
            Err(error) => {
                assert!(error.is_corrupt(), "cut at {cut}: {error}");
                errors += 1;
            }
        }
    }
    println!(
        "{entries} entries, {} cuts: {errors} {violations} {mixtures}",
        entries * entry
    );
    assert!(errors + violations > 0);
    restore(&pool, &crashed);
    assert_eq!(content(&*reopen(&pool, "tree").unwrap()).unwrap(), before);
    assert_ne!(before, changed);
    // The chain of its segments.
    for at in [chain, segment] {
        let right = crashed[at as usize / 8];
        for bit in 0..64 {
            for damaged in [&[at][..], &[at + 8], &[at, at + 8]] {
                restore(&pool, &crashed);
                damaged
                    .iter()
                    .for_each(|at| store(&pool, *at, right ^ 1 << bit));
                let opened = reopen(&pool, "tree").and_then(|tree| content(&*tree));
                match damaged.len() {
                    1 => assert_eq!(opened.unwrap(), before, "link at {at:#x}, bit {bit}"),
                    _ => assert!(is_corrupt(opened), "link at {at:#x}, bit {bit}"),
                }
            }
        }
    }
}

/// The words of a border node from which on it has its epoch, its permutation log, its permutation.
const EPOCH: u64 = 24;
const PERMUTATIONS: [u64; 2] = [32, 40];
/// Where it has the classes of its slices, and its values behind their first log.
const CLASSES: u64 = 48;
const VALUES: u64 = 232;
/// The slots of a node of four, from its first one on, and their classes if each leads to a layer.
const SLOTS: [u64; 4] = [0, 1, 2, 3];
const ALL_LAYERS: u64 = 0xaaaa_0000;
/// The permutation of an empty node of four.
const EMPTY: u64 = 0xffff_ffff_fff7_6540;
const OFFSET: u64 = (1 << 48) - 16;

/// The nodes on the way to the first entry of a tree, from the root on.
fn first_nodes(pool: &Pool<Instrumented>, name: &str) -> Vec<u64> {
    let mut nodes = vec![load(pool, anchor(pool, name) + ROOT)];
    while let Some(pointer) = nodes.last().copied().filter(|pointer| pointer & 1 != 0) {
        nodes.push(load(pool, (pointer & OFFSET) + FIRST_CHILD));
    }
    nodes.iter().map(|pointer| pointer & OFFSET).collect()
}

/// Crashes more often than the set of failed epochs has room for, each time with an epoch that
/// ended before, and no thread sweeps in between. Returns for each open how many of 400 keys could
/// be read.
fn crash_again_and_again(damage: impl Fn(&Pool<Instrumented>)) -> Vec<usize> {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = grown(&pool, "tree", 400);
    let mut model: std::collections::BTreeMap<Vec<u8>, Vec<u8>> =
        content(&*tree).unwrap().into_iter().collect();
    drop(tree);
    damage(&pool);
    let mut readable = Vec::new();
    for round in 0..60_u64 {
        let tree = reopen(&pool, "tree").unwrap_or_else(|error| panic!("crash {round}: {error}"));
        let is_readable = |(key, value): &(&Vec<u8>, &Vec<u8>)| match tree.get(key) {
            Ok(found) => {
                assert_eq!(
                    found.as_deref(),
                    Some(&value[..]),
                    "crash {round}, key {key:?}"
                );
                true
            }
            Err(error) => {
                assert!(error.is_corrupt(), "{error}");
                false
            }
        };
        let found: Vec<Vec<u8>> = model
            .iter()
            .filter(is_readable)
            .map(|(key, _)| key.clone())
            .collect();
        readable.push(found.len());
        assert_eq!(
            tree.check().unwrap().is_empty(),
            found.len() == model.len(),
            "crash {round}"
        );
        // One update of a readable key is durable, another one is lost.
        let [lasting, vain] =
            [7, 11].map(|step| found[(round * step) as usize % found.len()].clone());
        let value = [&b"round "[..], &round.to_be_bytes()].concat();
        assert!(tree.update(&lasting, &value).unwrap());
        model.insert(lasting, value);
        tree.sync().unwrap();
        assert!(tree.update(&vain, b"in vain").unwrap());
    }
    readable
}

#[test]
fn more_crashes_than_the_set_of_failed_epochs_has_room_for() {
    assert!(
        crash_again_and_again(|_| {})
            .iter()
            .all(|keys| *keys == 400)
    );
}

/// A sweep leaves damaged nodes as they are, and recovers all others. So the tree opens again and
/// again.
#[test]
fn a_damaged_node_keeps_no_tree_from_being_opened_after_many_crashes() {
    let of_border = crash_again_and_again(|pool| {
        let border = *first_nodes(pool, "tree").last().unwrap();
        PERMUTATIONS
            .iter()
            .for_each(|word| store(pool, border + word, 0));
    });
    assert!(
        of_border.iter().all(|keys| (380..400).contains(keys)),
        "{of_border:?}"
    );
    // An interior node has an epoch in the future: the nodes below it cannot be read, all others
    // can.
    let of_interior = crash_again_and_again(|pool| {
        let nodes = first_nodes(pool, "tree");
        assert!(nodes.len() > 2);
        store(pool, nodes[1] + EPOCH, 1 << 40);
    });
    assert!(
        of_interior.iter().all(|keys| (100..399).contains(keys)),
        "{of_interior:?}"
    );
}

/// A node whose epoch is a little above the running one stays damaged when that epoch has come,
/// whether or not a thread has read it before.
#[test]
fn a_node_from_the_future_is_named_also_when_its_epoch_has_come() {
    for is_met_before in [true, false] {
        let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
        let pool = open_pool(&ram);
        let before = content(&*grown(&pool, "tree", 120)).unwrap();
        let [border, running] = [*first_nodes(&pool, "tree").last().unwrap(), EPOCHS[0]];
        let epoch = load(&pool, border + EPOCH);
        store(
            &pool,
            border + EPOCH,
            epoch & !VALUE | ((load(&pool, running) & VALUE) + 3),
        );
        let tree = reopen(&pool, "tree").unwrap();
        let names_it = || {
            let violations = tree.check().unwrap();
            violations
                .iter()
                .any(|found| found.offset == border && found.what.contains("epoch"))
        };
        assert!(!is_met_before || names_it());
        for number in 0..6_u64 {
            tree.put(&[0xff, number as u8], b"value").unwrap();
            tree.sync().unwrap();
            assert!(!is_met_before || names_it());
        }
        assert!(is_corrupt(tree.get(&before[0].0)) && is_corrupt(tree.put(&before[0].0, b"value")));
        assert!(is_corrupt(content(&*tree)) && names_it());
    }
}

/// Keys and values are padded with zeros to whole words. Other bits in the padding do not change
/// the key or the value.
#[test]
fn damaged_padding_of_a_record_is_named_and_does_no_harm() {
    // Three words, then a value and a key of two words each.
    for (word, bit) in [(4, 24), (4, 63), (6, 24), (6, 63)] {
        let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
        let pool = open_pool(&ram);
        let tree = create(&pool, OPTIONS);
        tree.put(b"a large one", b"value of it").unwrap();
        let record = load(&pool, first_nodes(&pool, "tree")[0] + VALUES) & OFFSET;
        let at = record + 8 * word;
        assert_eq!(load(&pool, at) >> 24, 0);
        store(&pool, at, load(&pool, at) | 1 << bit);
        let violations = tree.check().unwrap();
        assert!(
            violations
                .iter()
                .any(|found| found.what.contains("fails its check")),
            "{violations:?}"
        );
        assert_eq!(
            tree.get(b"a large one").unwrap().as_deref(),
            Some(&b"value of it"[..])
        );
        assert!(!tree.insert(b"a large one", b"another").unwrap());
        let same = Condition::Equals(&b"value of it"[..]);
        assert!(
            tree.write_durably(b"a large one", Some(b"another"), same)
                .unwrap()
        );
        assert!(tree.check().unwrap().is_empty());
    }
}

/// An offset at the end of the number range is an error like any other, and causes no overflow.
#[test]
fn a_value_that_leads_beyond_all_bounds() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = create(&pool, OPTIONS);
    tree.put(b"a large one", b"value").unwrap();
    let at = first_nodes(&pool, "tree")[0] + VALUES;
    for value in [
        u64::MAX,
        u64::MAX - 7,
        u64::MAX - 15,
        u64::MAX - 16,
        1 << 63,
    ] {
        store(&pool, at, value);
        assert!(is_corrupt(tree.get(b"a large one")));
        assert!(is_corrupt(tree.get_many(&[b"a large one"])));
        assert!(is_corrupt(content(&*tree)));
        assert!(is_corrupt(tree.put(b"a large one", b"another")));
        assert!(!tree.check().unwrap().is_empty());
    }
}

/// Nodes that lead to themselves, as children and as layers: `check` names each once, and goes on.
#[test]
fn a_circle_of_nodes_costs_check_no_more_than_its_nodes() {
    let ram = Instrumented::new(Dax::plain(256 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = grown(&pool, "tree", 400);
    let nodes = first_nodes(&pool, "tree");
    let circle = |at: u64, pointer: u64| {
        let right = load(&pool, at);
        store(&pool, at, pointer);
        let violations = tree.check().unwrap();
        let circles = violations
            .iter()
            .filter(|found| found.what.contains("two ways"))
            .count();
        assert!((1..10).contains(&circles), "{circles} times");
        assert!(violations.len() < 20, "{} violations", violations.len());
        // Its figures would lack what is below the node.
        assert!(is_corrupt(tree.stat()));
        store(&pool, at, right);
    };
    // The first and the second child of the root.
    for child in [FIRST_CHILD, FIRST_CHILD + 8] {
        circle(nodes[0] + child, nodes[0] | 1);
    }
    // An entry that leads to a layer: the root of all.
    let border = *nodes.last().unwrap();
    let classes = load(&pool, border + CLASSES);
    store(&pool, border + CLASSES, ALL_LAYERS);
    circle(border + VALUES, nodes[0] | 1);
    store(&pool, border + CLASSES, classes);
    assert!(tree.check().unwrap().is_empty());
}

/// Epochs end while the sweep is under way. Otherwise a crash could take back more than one epoch.
#[test]
fn epochs_end_beside_a_sweep() {
    let ram = Instrumented::new(Dax::plain(256 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = create(&pool, OPTIONS);
    let mut numbers = 0..1_000_000_u64;
    let mut source = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
        key.clear();
        value.clear();
        let Some(number) = numbers.next() else {
            return Ok(false);
        };
        key.extend_from_slice(&number.to_be_bytes());
        Ok(true)
    };
    tree.bulk_load(&mut source, 1.0).unwrap();
    tree.sync().unwrap();
    drop(tree);
    let root = pool.trees().unwrap().remove(0);
    let often = EpochLength::Every(std::time::Duration::from_millis(1));
    let tree = instrumented::open(
        &pool,
        &root,
        CodecKind::Record,
        MassTreeOptions {
            epoch: often,
            ..OPTIONS
        },
    )
    .unwrap();
    while tree.epochs().unwrap().epoch_stat().is_sweeping {
        // An epoch in which nothing changed does not end, and nodes that a sweep leaves as they are
        // do not count as changes.
        assert!(tree.update(&0_u64.to_be_bytes(), b"").unwrap());
    }
    let found = tree.epochs().unwrap().epoch_stat();
    assert!(found.epochs > 4, "{} epochs ended", found.epochs);
    assert_eq!(found.swept_keys, 1_000_000);
    assert!(tree.check().unwrap().is_empty());
}

/// Where an interior node of four slots has its first child.
const FIRST_CHILD: u64 = 184;
/// Where a border node has its slices.
const SLICES: u64 = 64 + 8 * 4;

/// Pointers that lead to no cell, to a cell of another slot, to parts of two words, to where a
/// record could be, and outside of the pool.
const NO_CELLS: [u64; 7] = [0, 48, 24, 17, 16 | 1 << 48, 1 << 20, u64::MAX];

#[test]
fn pointers_of_words_that_lead_to_no_cell_of_their_own() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = create_words(&pool);
    (0..100_u64)
        .for_each(|key| assert!(tree.insert(&key.to_be_bytes(), &key.to_be_bytes()).unwrap()));
    tree.sync().unwrap();
    let before = content(&*tree).unwrap();
    drop(tree);
    let border = *first_nodes(&pool, "tree").last().unwrap();
    let key = load(&pool, border + SLICES).to_be_bytes();
    let classes = load(&pool, border + CLASSES);
    let damages = NO_CELLS.map(|pointer| {
        (
            border + VALUES,
            pointer,
            "no cell of its slot",
            "no cell of its slot",
        )
    });
    let damages = damages.into_iter().chain([0, 9, 10].map(|class| {
        // A key that is no word cannot be searched for in a tree of words.
        (
            border + CLASSES,
            classes & !(15 << 16) | class << 16,
            "no word",
            "slot 4 has class",
        )
    }));
    for (at, damage, what, named) in damages {
        let right = load(&pool, at);
        store(&pool, at, damage);
        let tree = reopen_as(&pool, "tree", CodecKind::Word).unwrap();
        let names = |error: Error| {
            let ErrorKind::Corrupt { offset, what: said } = error.kind() else {
                panic!("{damage:#x}: {error}")
            };
            assert!(
                *offset == border && said.contains(what),
                "{damage:#x}: {error}"
            );
        };
        let words = tree.words().unwrap();
        names(content(&*tree).unwrap_err());
        names(words.scan(0, &mut |_| true).unwrap_err());
        let mut backwards = tree.range(Bounds::all(), Direction::Reverse).unwrap();
        let mut found = Vec::new();
        let mut value = Vec::new();
        names(
            (0..101)
                .find_map(|_| backwards.next_into(&mut found, &mut value).err())
                .unwrap(),
        );
        if at != border + CLASSES {
            names(tree.get(&key).unwrap_err());
            names(words.get(u64::from_be_bytes(key)).unwrap_err());
            names(
                words
                    .get_many(&[u64::from_be_bytes(key)], &mut [None])
                    .unwrap_err(),
            );
            names(tree.update(&key, &key).unwrap_err());
            names(tree.remove(&key).unwrap_err());
        }
        let violations = tree.check().unwrap();
        let is_it =
            |violation: &Violation| violation.offset == border && violation.what.contains(named);
        assert!(violations.iter().any(is_it), "{named}: {violations:?}");
        // A sweep skips the damaged node.
        tree.epochs().unwrap().sweep().unwrap();
        assert!(!tree.epochs().unwrap().epoch_stat().is_sweeping);
        tree.update(&99_u64.to_be_bytes(), &99_u64.to_be_bytes())
            .unwrap();
        drop(backwards);
        drop(tree);
        store(&pool, at, right);
    }
    let tree = reopen_as(&pool, "tree", CodecKind::Word).unwrap();
    assert_eq!(content(&*tree).unwrap(), before);
    assert!(tree.check().unwrap().is_empty());
}

/// The split of a full node finds a value that lies in no cell. It has allocated nothing yet that
/// it would have to give back.
#[test]
fn a_split_that_meets_damage_leaves_nothing_behind() {
    for slot in &SLOTS[2..] {
        let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
        let pool = open_pool(&ram);
        let tree = create_words(&pool);
        let insert = |key: u64| tree.insert(&key.to_be_bytes(), &key.to_be_bytes());
        (0..4).for_each(|number| assert!(insert(10 * number).unwrap()));
        tree.sync().unwrap();
        let at = first_nodes(&pool, "tree")[0] + VALUES + 8 * slot;
        let right = load(&pool, at);
        store(&pool, at, 0);
        for _ in 0..3 {
            assert!(
                insert(15)
                    .unwrap_err()
                    .to_string()
                    .contains("no cell of its slot")
            );
        }
        store(&pool, at, right);
        assert_eq!(tree.check().unwrap(), []);
        assert!(insert(15).unwrap());
        assert_eq!(tree.check().unwrap(), []);
        assert_eq!(content(&*tree).unwrap().len(), 5);
    }
}

/// A damaged child pointer leads to an offset at which a node would fit into the pool, but not its
/// cells. An operation that arrives there returns an error, and the writes of other operations are
/// durable when a sync has returned.
#[test]
fn a_node_of_words_that_is_cut_off_by_the_pool_s_end_keeps_no_epoch_from_ending() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = create_words(&pool);
    (0..100_u64)
        .for_each(|key| assert!(tree.insert(&key.to_be_bytes(), &key.to_be_bytes()).unwrap()));
    tree.sync().unwrap();
    drop(tree);
    let mut node = load(&pool, anchor(&pool, "tree") + ROOT);
    while load(&pool, (node & !1) + FIRST_CHILD) & 1 == 1 {
        node = load(&pool, (node & !1) + FIRST_CHILD);
    }
    let end = pool.stat().file_bytes;
    store(&pool, (node & !1) + FIRST_CHILD, end - 320);
    let tree = reopen_as(&pool, "tree", CodecKind::Word).unwrap();
    tree.update(&99_u64.to_be_bytes(), &7_u64.to_be_bytes())
        .unwrap();
    assert!(tree.get(&0_u64.to_be_bytes()).is_err());
    for round in 0..3 {
        let before = tree.epochs().unwrap().epoch_stat().running;
        tree.sync().unwrap();
        assert!(
            round > 0 || tree.epochs().unwrap().epoch_stat().running > before,
            "a sync that ended no epoch"
        );
    }
}

#[test]
fn pointers_to_cells_in_a_tree_of_records() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    drop(grown(&pool, "tree", 100));
    let at = first_nodes(&pool, "tree").last().unwrap() + VALUES;
    let right = load(&pool, at);
    for pointer in (0..=30).map(|number| 16 * number) {
        store(&pool, at, pointer);
        let tree = reopen(&pool, "tree").unwrap();
        let error = content(&*tree).unwrap_err();
        assert!(error.to_string().contains("a pointer to a cell"), "{error}");
        assert!(
            tree.check()
                .unwrap()
                .iter()
                .any(|violation| violation.what.contains("a pointer to a cell"))
        );
        drop(tree);
    }
    store(&pool, at, right);
    assert_eq!(
        content(&*reopen(&pool, "tree").unwrap()).unwrap().len(),
        100
    );
}

const BEHIND: [&[u8]; 2] = [b"zzzzzzzz1", b"zzzzzzzz2"];

/// This many layers have nodes of four entries each, all of which lead to one layer: there are 4^40
/// ways to the last one, whose node has as many keys as it had, or none. Two keys at each entry, so
/// that it leads to a layer.
fn many_ways_through_few_layers(pool: &Pool<Instrumented>, is_last_empty: bool) -> Box<Tree> {
    const LAYERS: usize = 40;
    let tree = create(pool, OPTIONS);
    for layer in 0..LAYERS {
        let firsts = if layer + 1 < LAYERS {
            &b"bcd"[..]
        } else {
            b"abcd"
        };
        for (first, last) in firsts
            .iter()
            .flat_map(|first| [(first, b'1'), (first, b'2')])
        {
            let key = [&[b'a'].repeat(8 * layer), &[*first; 8][..], &[last; 9]].concat();
            tree.put(&key, b"value").unwrap();
        }
    }
    tree.sync().unwrap();
    let mut node = load(pool, anchor(pool, "tree") + ROOT);
    for _ in 0..LAYERS {
        let mut slots = SLOTS.into_iter();
        let slot = slots
            .find(|slot| load(pool, node + SLICES + 8 * slot) == u64::from_be_bytes([b'a'; 8]));
        let below = load(pool, node + VALUES + 8 * slot.unwrap());
        assert_eq!(load(pool, node + CLASSES), ALL_LAYERS);
        SLOTS
            .iter()
            .for_each(|slot| store(pool, node + VALUES + 8 * slot, below));
        node = below;
    }
    if is_last_empty {
        PERMUTATIONS
            .iter()
            .for_each(|word| store(pool, node + word, EMPTY));
    }
    // There is one more layer behind them.
    BEHIND
        .iter()
        .for_each(|key| tree.put(key, b"value").unwrap());
    tree.sync().unwrap();
    tree
}

/// A walk over the whole tree ends, though the tree has more paths than any walk could follow.
#[test]
fn entries_that_lead_to_one_layer() {
    for is_last_empty in [false, true] {
        let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
        let pool = open_pool(&ram);
        let tree = many_ways_through_few_layers(&pool, is_last_empty);
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut scan = tree.range(Bounds::all(), direction).unwrap();
            let mut key = Vec::new();
            let mut value = Vec::new();
            let end = (0..1 << 20)
                .map(|_| scan.next_into(&mut key, &mut value))
                .find(|next| !matches!(next, Ok(true)));
            let named = end.expect("an end").unwrap_err().to_string();
            assert!(named.contains("more ways"), "{named}");
        }
        assert!(is_corrupt(tree.len()));
        let violations = tree.check().unwrap();
        assert!(
            violations
                .iter()
                .any(|found| found.what.contains("two ways")),
            "{violations:?}"
        );
        assert!(violations.len() < 300 && is_corrupt(tree.stat()));
        tree.put(BEHIND[1], b"of the epoch that fails").unwrap();
        drop(tree);
        // After a crash.
        let tree = reopen(&pool, "tree").unwrap();
        tree.epochs().unwrap().sweep().unwrap();
        assert!(!tree.epochs().unwrap().epoch_stat().is_sweeping);
        assert_eq!(
            tree.get(BEHIND[1]).unwrap().as_deref(),
            Some(&b"value"[..]),
            "behind the damage"
        );
        // The layer that one entry leads to is removed, and the other entries lead to it, too.
        let way = |last: u8| [&b"a".repeat(8 * 40)[..], &[last; 9]].concat();
        assert_eq!(tree.get(&way(b'1')).unwrap().is_some(), !is_last_empty);
        for _ in 0..3 {
            let _ = (
                tree.remove(&way(b'1')),
                tree.remove(&way(b'2')),
                tree.sync(),
            );
        }
        assert!(!tree.check().unwrap().is_empty());
        tree.destroy().unwrap();
    }
}

/// A slice that goes on behind the end of its key lies behind the key that a range has read from
/// it. The range must not read it again and again, as it reads one entry at a time before damage.
#[test]
fn a_slice_that_goes_on_behind_its_key() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = create(&pool, OPTIONS);
    for key in [b"k01", b"k02", b"k03"] {
        tree.put(key, b"value").unwrap();
    }
    tree.sync().unwrap();
    let node = load(&pool, anchor(&pool, "tree") + ROOT);
    let slot_of = |key: &[u8; 3]| {
        let word = u64::from_be_bytes([key[0], key[1], key[2], 0, 0, 0, 0, 0]);
        SLOTS
            .into_iter()
            .find(|slot| load(&pool, node + SLICES + 8 * slot) == word)
            .unwrap()
    };
    let longer = SLICES + 8 * slot_of(b"k02");
    let lost = VALUES + 8 * slot_of(b"k03");
    store(&pool, node + longer, load(&pool, node + longer) | 1);
    store(&pool, node + lost, 1 << 40);
    let mut scan = tree.range(Bounds::all(), Direction::Forward).unwrap();
    let found: Vec<_> = (0..100)
        .map(|_| scan.advance())
        .take_while(|next| matches!(next, Ok(true)))
        .collect();
    assert_eq!(found.len(), 2, "the range reads a key twice");
}

/// The space that a damaged entry leads to does not count as free.
#[test]
fn what_is_no_object_is_not_freed() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = grown(&pool, "tree", 400);
    let border = *first_nodes(&pool, "tree").last().unwrap();
    let pointer = load(&pool, border + VALUES);
    // The word that is taken for the length of its value is 0.
    store(&pool, pointer, 0);
    store(&pool, border + VALUES, pointer - 16);
    let before: Vec<_> = content(&*tree).unwrap();
    let (damaged, _) = &before[0];
    assert!(is_corrupt(tree.put(damaged, b"a new one")));
    for (key, value) in &before[1..] {
        assert!(tree.update(key, b"another").unwrap(), "{key:?}");
        assert!(tree.update(key, value).unwrap());
        tree.sync().unwrap();
    }
    assert_eq!(content(&*tree).unwrap()[1..], before[1..]);
}
