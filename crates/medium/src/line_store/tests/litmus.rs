//! Does another thread ever see half a line store?
//!
//! A line that a reader can see torn in the cache can be written back torn, so this is a necessary
//! test of a single form, and the only one that needs no power failure. It is an assertion for the
//! form that [`LineStore::detect`] chooses, and a report for the others: on processors that split
//! 64-byte stores the AVX-512 form is expected to fail.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::{LineStore, LineValue, TAG_MASK, store_single};
use crate::kernels::avx512::load_line;

const ROUNDS: u64 = 300_000;

#[repr(align(64))]
struct SharedLine([AtomicU64; 8]);

/// The values of a line that one thread saw while another alternated two values.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    snapshots: u64,
    /// Snapshots that differ from the one before: without them nothing was tested.
    changes: u64,
    torn: u64,
}

fn watch(store: LineStore) -> Seen {
    let line = SharedLine(std::array::from_fn(|_| AtomicU64::new(0)));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let value = LineValue([if round % 2 == 0 { !TAG_MASK } else { 0 }; 8]);
                // SAFETY: a line of atomics of ours, and a supported form, as the caller checked.
                let stored = unsafe { store_single(store, &raw const line.0, &value) };
                assert_eq!(stored, Ok(()));
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut seen = Seen::default();
        let mut before = LineValue::ZERO;
        while !done.load(Ordering::Relaxed) {
            // SAFETY: AVX-512 exists, as the caller checked.
            let value = unsafe { load_line(&line.0) };
            seen.snapshots += 1;
            seen.changes += u64::from(value != before);
            seen.torn += u64::from(value.0.iter().any(|&word| word != value.0[0]));
            before = value;
        }
        seen
    })
}

#[test]
fn a_single_form_is_seen_whole() {
    if !is_x86_feature_detected!("avx512f") {
        println!("skipped: this processor has no 64-byte load to look with");
        return;
    }
    for store in [LineStore::Movdir64b, LineStore::Avx512, LineStore::Rtm] {
        if !store.is_supported() {
            println!("skipped: this processor has no {store}");
            continue;
        }
        let seen = watch(store);
        println!("{store}: {seen:?}");
        if store == LineStore::detect() {
            assert_eq!(seen.torn, 0, "{store} is offered as whole, and is not");
        }
    }
}
