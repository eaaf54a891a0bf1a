//! Splits that copy records next to each other.

use std::time::Duration;

use everleaf_engines::engine::CodecKind;
use everleaf_engines::index::{Codec as _, Condition, EntryWords, RecordCodec};
use everleaf_engines::kit::gather::Gathered;
use everleaf_engines::rntree::{RnTreeOptions, instrumented};
use medium::{Dax, Instrumented};
use pool::{Pool, PoolOptions};

/// How often a write to a full pool is tried again.
const ATTEMPTS_IF_FULL: u32 = 100;

fn pool() -> Pool<Instrumented> {
    Pool::open(
        Instrumented::new(Dax::plain(1 << 32).unwrap()),
        PoolOptions::default(),
    )
    .unwrap()
}

fn place(entry: EntryWords) -> u64 {
    RecordCodec::record(entry).unwrap()
}

#[test]
fn copies_lie_one_after_the_other() {
    let pool = pool();
    let guard = &pool.pin();
    let write = |key: u64, length| {
        RecordCodec::encode(guard, &key.to_be_bytes(), &vec![7; length]).unwrap()
    };
    let mut entries: Vec<EntryWords> = (0..20)
        .map(|key| {
            let entry = write(key, 100);
            write(1000 + key, 100);
            entry
        })
        .collect();
    entries[8] = write(8, 2000);
    let before = entries.clone();
    let gathered = Gathered::<_, RecordCodec>::of(guard, entries.iter_mut());
    assert_eq!(entries[8], before[8], "a long record stays where it is");
    entries.remove(8);
    let steps: Vec<u64> = entries
        .windows(2)
        .map(|pair| place(pair[1]) - place(pair[0]))
        .collect();
    assert!(
        steps.iter().all(|step| *step == steps[0] && *step < 200),
        "{steps:?}"
    );
    for (entry, key) in entries.iter().zip((0..20_u64).filter(|key| *key != 8)) {
        assert_eq!(
            RecordCodec::compare_tie(guard, &key.to_be_bytes(), *entry).unwrap(),
            std::cmp::Ordering::Equal
        );
        assert!(RecordCodec::is_sound(guard, *entry).unwrap());
    }
    drop(gathered);
    let again = write(0, 100);
    assert!(
        entries.iter().any(|entry| place(*entry) == place(again)),
        "copies that were not published are given back"
    );
}

/// Writers, and readers of the records that splits retire.
#[test]
fn threads_find_what_was_copied_meanwhile() {
    const KEYS: u64 = 6000;
    let pool = pool();
    let options = RnTreeOptions {
        leaf_entries: 12,
        gathers: true,
        ..RnTreeOptions::default()
    };
    let tree = instrumented::create(&pool, "tree", CodecKind::Record, options).unwrap();
    let key = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16).to_be_bytes();
    let value = |number: u64| vec![number as u8; 40 + number as usize % 90];
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let tree = &tree;
            scope.spawn(move || {
                for number in (thread..KEYS).step_by(2) {
                    tree.write_durably(&key(number), Some(&value(number)), Condition::Absent)
                        .unwrap();
                    if number % 3 == 0 {
                        tree.write_durably(&key(number), None, Condition::Equals(&value(number)))
                            .unwrap();
                    }
                    let earlier = (number / 2) & !1 | thread;
                    let mut found = Vec::new();
                    assert_eq!(
                        tree.get_into(&key(earlier), &mut found).unwrap(),
                        earlier % 3 != 0
                    );
                    assert!(earlier % 3 == 0 || found == value(earlier));
                }
            });
        }
    });
    assert_eq!(tree.check().unwrap().len(), 0);
    assert_eq!(tree.len().unwrap(), KEYS - KEYS.div_ceil(3));
}

/// Copies take no room that an insert needs, and leave a full pool whole.
#[test]
fn a_full_pool_holds_as_much_or_nearly() {
    let filled = |gathers| {
        let ram = Instrumented::new(Dax::plain(4 << 20).unwrap());
        let options = PoolOptions {
            step_slabs_min: 1,
            ..PoolOptions::default()
        };
        let pool = Pool::open(ram, options).unwrap();
        let options = RnTreeOptions {
            gathers,
            ..RnTreeOptions::default()
        };
        let tree = instrumented::create(&pool, "tree", CodecKind::Record, options).unwrap();
        let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let attempt = |number| {
            tree.write_durably(&key(number), Some(&[number as u8; 150]), Condition::Absent)
        };
        // A retired record is not free while another thread of the process is pinned, and the other
        // tests have threads, so a write to a full pool is tried for a while.
        let put = |number| {
            let mut written = attempt(number);
            for _ in 0..ATTEMPTS_IF_FULL {
                match &written {
                    Err(error) if error.is_full() => {}
                    _ => break,
                }
                std::thread::sleep(Duration::from_millis(1));
                pool.reclaim();
                written = attempt(number);
            }
            written
        };
        let held = (0..1_000_000).find(|number| match put(*number) {
            Ok(_) => false,
            Err(error) => {
                assert!(error.is_full(), "{error}");
                true
            }
        });
        let held = held.unwrap();
        assert_eq!(
            (tree.len().unwrap(), tree.check().unwrap().len()),
            (held, 0)
        );
        let mut value = Vec::new();
        assert!(
            (0..held).all(|number| tree.get_into(&key(number), &mut value).unwrap()
                && value == [number as u8; 150])
        );
        held
    };
    let apart = filled(false);
    let together = filled(true);
    assert!(
        together * 100 >= apart * 95,
        "{together} entries with copies, {apart} without"
    );
}
