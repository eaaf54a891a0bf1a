//! Nanoseconds per call of each kernel with each back end, on nodes that stay in the first-level
//! cache.
//!
//! `cargo run --release -p everleaf-medium --example kernels`
//!
//! "latency" feeds each call's result into the next call's input; "rate" leaves the calls
//! independent. Each figure is the best of nine runs, so that a neighbour on the machine does not
//! count.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use everleaf_medium::LineValue;
use everleaf_medium::kernels::{self, Kernels};

const CALLS: u64 = 200_000;
const RUNS: usize = 9;

#[repr(align(64))]
struct Node {
    line: [AtomicU64; 8],
    keys: [AtomicU64; 32],
    entries: [[AtomicU64; 2]; 64],
    slots: LineValue,
}

impl Node {
    fn new() -> Self {
        let bytes = |index: usize| {
            u64::from_le_bytes(std::array::from_fn(|byte| (8 * index + byte) as u8 & 63))
        };
        Self {
            line: std::array::from_fn(|index| AtomicU64::new(bytes(index))),
            keys: std::array::from_fn(|index| AtomicU64::new(index as u64 * 100)),
            entries: std::array::from_fn(|index| {
                [
                    AtomicU64::new((index as u64 * 37) % 64 * 100),
                    AtomicU64::new(7),
                ]
            }),
            slots: LineValue(std::array::from_fn(|index| {
                if index == 0 { 56 } else { bytes(index - 1) }
            })),
        }
    }
}

/// The best time of a call that maps one number to another.
fn ns_per_call<const CHAINED: bool>(mut call: impl FnMut(u64) -> u64) -> f64 {
    let run = |call: &mut dyn FnMut(u64) -> u64| {
        let start = Instant::now();
        black_box(call(0));
        start.elapsed().as_secs_f64() * 1e9 / CALLS as f64
    };
    let mut all = |_| {
        let mut input = 1;
        for round in 0..CALLS {
            let result = black_box(call(input));
            // Inputs below 4096, dependent on the result or not.
            input = (round * 61 + if CHAINED { result & 1 } else { 0 }) & 0xfff;
        }
        input
    };
    (0..RUNS)
        .map(|_| run(&mut all))
        .fold(f64::INFINITY, f64::min)
}

fn report(name: &str, mut call: impl FnMut(u64) -> u64) {
    let latency = ns_per_call::<true>(&mut call);
    let rate = ns_per_call::<false>(&mut call);
    println!("  {name:<28} {latency:>8.2} {rate:>8.2}");
}

fn main() {
    let node = black_box(Node::new());
    for kernels in Kernels::all() {
        if let Err(error) = kernels.install() {
            println!("{error}");
            continue;
        }
        println!("{kernels:<30} latency     rate   (ns)");
        report("nothing (the harness)", |input| input);
        report("match_byte", |input| {
            kernels::match_byte(&node.line, input as u8)
        });
        report("rank_le of 32", |input| {
            kernels::rank_le(&node.keys, 32, input) as u64
        });
        report("rank_lt of 20", |input| {
            kernels::rank_lt(&node.keys, 20, input) as u64
        });
        for count in [8, 56, 61, 64] {
            report(&format!("compare_entries of {count}"), |input| {
                let (below, equal) = kernels::compare_entries(&node.entries[..count], input);
                below ^ equal
            });
        }
        report("load_line", |input| {
            kernels::load_line(&node.line).0[input as usize & 7]
        });
        report("insert_slot", |input| {
            kernels::insert_slot(&node.slots, input as usize % 56, 3).0[3]
        });
        report("remove_slot", |input| {
            kernels::remove_slot(&node.slots, input as usize % 56).0[3]
        });
        report("find_slot", |input| {
            kernels::find_slot(&node.slots, 56, input as u8 & 63)
                .map_or(0, |position| position as u64)
        });
        report("prefetch_lines of 1024 bytes", |input| {
            kernels::prefetch_lines(&node.entries);
            input
        });
    }
}
