//! A salvage beside other operations: it holds no shard while it calls its callback.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use everleaf_engines::ErrorKind;
use everleaf_engines::engine::CodecKind;
use everleaf_engines::index::Part;
use everleaf_engines::masstree::instrumented;
use medium::{Dax, Instrumented};
use pool::Pool;

use crate::damage::{OPTIONS, Tree, open_pool};

/// A time that is longer than any test takes.
const EVER: Duration = Duration::from_secs(60);
/// Several rounds of a salvage.
const ENTRIES: u64 = 5_000;

fn pool() -> Pool<Instrumented> {
    open_pool(&Instrumented::new(Dax::plain(64 << 20).unwrap()))
}

fn create(pool: &Pool<Instrumented>, name: &str) -> Arc<Tree> {
    Arc::from(instrumented::create(pool, name, CodecKind::Record, OPTIONS).unwrap())
}

/// A key of three layers: the second one has 100 keys, and so has each third one.
fn key(number: u64) -> Vec<u8> {
    format!("a prefix{:08}{:06}", number / 100, number % 100 * 2).into_bytes()
}

/// A key that lies behind [`key`], in the same layer.
fn key_behind(number: u64) -> Vec<u8> {
    format!("a prefix{:08}{:06}", number / 100, number % 100 * 2 + 1).into_bytes()
}

/// The value of a number. It differs from the value of any other number, and from any other word of
/// a pool.
fn value(number: u64) -> u64 {
    0xfeed_beef << 32 | number
}

fn fill(tree: &Tree) {
    for number in 0..ENTRIES {
        tree.put(&key(number), &value(number).to_le_bytes())
            .unwrap();
    }
    tree.sync().unwrap();
}

/// Once the end of an epoch held the shards of one tree and waited for those of the other one,
/// which the salvage held while its callback waited for the first.
#[test]
fn the_callback_of_a_salvage_may_use_every_tree_and_wait_for_other_threads() {
    let (done, is_done) = channel();
    // The threads are not joined: threads that wait for each other would wait for ever.
    std::thread::spawn(move || {
        let pool = pool();
        let trees = [create(&pool, "tree"), create(&pool, "other")];
        trees.iter().for_each(|tree| fill(&**tree));
        let mut calls = 0;
        let salvaged = trees[0].salvage(&mut |found, value| {
            calls += 1;
            if calls % 500 == 1 {
                let of_other_thread = trees.clone();
                let others = std::thread::spawn(move || {
                    of_other_thread[0].put(b"of another thread", b"value")?;
                    of_other_thread[1].put(b"of another thread", b"value")?;
                    of_other_thread[1].sync()
                });
                others.join().unwrap().unwrap();
                assert_eq!(&*trees[0].get(found).unwrap().unwrap(), value);
                trees[0].put(found, value).unwrap();
                trees[0].sync().unwrap();
                assert_eq!(&*trees[0].get(found).unwrap().unwrap(), value);
            }
            trees[1].put(found, b"salvaged").unwrap();
            true
        });
        let left_out = salvaged.unwrap().unwrap();
        assert!(left_out.is_empty(), "{left_out:?}");
        assert!(trees.iter().all(|tree| tree.check().unwrap().is_empty()));
        done.send(calls).unwrap();
    });
    let calls: u64 = is_done
        .recv_timeout(EVER)
        .expect("the salvage waits for itself");
    assert!(calls >= ENTRIES, "{calls} calls");
}

/// Nodes are split, freed and used again between the rounds of a salvage.
#[test]
fn a_salvage_finds_every_entry_that_stays_while_others_are_written() {
    let pool = pool();
    let tree = create(&pool, "tree");
    fill(&*tree);
    let mut found = Vec::new();
    let salvaged = tree.salvage(&mut |key_found, _| {
        found.push(key_found.to_vec());
        if found.len() % 100 == 0 {
            // Whole layers come and go before the salvage and behind it.
            let at = found.len() as u64;
            for number in 0..ENTRIES {
                let is_near = number.abs_diff(at) < 700;
                if is_near && at.is_multiple_of(200) {
                    tree.put(&key_behind(number), b"between").unwrap();
                } else if is_near {
                    tree.remove(&key_behind(number)).unwrap();
                }
            }
            tree.sync().unwrap();
        }
        true
    });
    let left_out = salvaged.unwrap().unwrap();
    assert!(left_out.is_empty(), "{left_out:?}");
    assert!(found.is_sorted_by(|one, other| one < other));
    let that_stay = found.iter().filter(|found| found[found.len() - 1] % 2 == 0);
    assert!(that_stay.eq((0..ENTRIES).map(key).collect::<Vec<_>>().iter()));
    assert!(tree.check().unwrap().is_empty());
}

/// One damaged entry is left out, and is reported once, in whichever round it is read.
#[test]
fn a_salvage_of_several_rounds_leaves_out_each_damaged_entry_once() {
    let pool = pool();
    let tree = create(&pool, "tree");
    fill(&*tree);
    let damaged = [0, 1_023, 1_024, 2_500, ENTRIES - 1];
    let guard = pool.pin();
    for offset in (0..).step_by(8) {
        // Not every offset up to the limit of the pool exists.
        let Ok([word]) = guard.words(offset, 1) else {
            break;
        };
        let word_found = word.load(&guard);
        if damaged.iter().any(|number| value(*number) == word_found) {
            word.store(&guard, word_found ^ 1 << 63);
        }
    }
    drop(guard);
    let mut found = Vec::new();
    let left_out = tree.salvage(&mut |key, _| {
        found.push(key.to_vec());
        true
    });
    let left_out = left_out.unwrap().unwrap();
    let whole = (0..ENTRIES).filter(|number| !damaged.contains(number));
    assert_eq!(found, whole.map(key).collect::<Vec<_>>());
    assert_eq!(left_out.len(), damaged.len(), "{left_out:?}");
    assert!(left_out.iter().all(|left_out| left_out.part == Part::Entry));
}

/// A salvage ends where its callback says so, in any round.
#[test]
fn a_salvage_ends_where_its_callback_says_so() {
    let pool = pool();
    let tree = create(&pool, "tree");
    fill(&*tree);
    for wanted in [1, 1_000, 1_100, ENTRIES - 1, ENTRIES] {
        let mut calls = 0;
        let salvaged = tree.salvage(&mut |_, _| {
            calls += 1;
            calls < wanted
        });
        assert!(salvaged.unwrap().unwrap().is_empty());
        assert_eq!(calls, wanted);
    }
    let within = tree.epochs().unwrap().within_epoch(&mut |_| {
        let salvaged = tree.salvage(&mut |_, _| true);
        let refused = salvaged.unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::WithinEpoch),
            "{refused}"
        );
        Ok(())
    });
    within.unwrap();
}
