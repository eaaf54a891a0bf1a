//! A pool that is larger than the memory: loads entries of 24 + 150 bytes in random order, closes
//! and opens the pool, reads all of them back and compares each, then reads ranges of 100. Prints
//! puts, gets and ranges a second, and the most memory that the process had beside the page cache.
//!
//! `bench/larger_than_memory.sh` runs it for each engine in a control group of 300 MB.
//!
//! ```text
//! cargo run --release -p everleaf --example larger_than_memory -- FOLDER ENGINE ENTRIES [--json]
//! ```
//!
//! ENGINE may have settings: `rntree,gather=on`.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use everleaf::{Engine, MediumChoice, Options, Pending, Settings, Store, Tree, TreeOptions};

type Failure = Box<dyn std::error::Error>;

/// Pending writes that are waited for together.
const TOGETHER: usize = 1000;
/// Ranges that are read, and entries of each.
const RANGES: u64 = 2000;
const RANGE_ENTRIES: usize = 100;

/// A permutation of the 64-bit numbers: keys come in no order.
fn scattered(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ number >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn key(number: u64) -> String {
    format!("{:016x}{:08}", scattered(number), number % 100_000_000)
}

fn value(number: u64) -> Vec<u8> {
    (0..150)
        .map(|index| (scattered(number + 1) >> (index % 8 * 8)) as u8)
        .collect()
}

/// An engine and its settings: `NAME,SETTING=VALUE...`.
fn named(engine: &str) -> Result<(Engine, Settings), Failure> {
    let mut parts = engine.split(',');
    let name = parts.next().unwrap_or_default();
    let engine = Engine::from_name(name).ok_or_else(|| format!("there is no engine {name}"))?;
    Ok((engine, engine.parse_settings(parts)?))
}

fn open(path: &Path, engine: Engine, settings: Settings) -> Result<(Store, Tree), Failure> {
    let store = Options::new()
        .medium(MediumChoice::File)
        .settings(engine, settings)
        .open(path)?;
    let tree = store.tree_with(
        "main",
        TreeOptions {
            engine,
            ..TreeOptions::default()
        },
    )?;
    Ok((store, tree))
}

fn load(tree: &Tree, entries: u64) -> Result<(), Failure> {
    let mut writes = Vec::with_capacity(TOGETHER);
    for number in 0..entries {
        writes.push(tree.pending().put(key(number), value(number))?);
        if writes.len() == TOGETHER {
            Pending::wait_all(writes.drain(..))?;
        }
    }
    Pending::wait_all(writes)?;
    Ok(())
}

/// In another order than they were written in.
fn read_back(tree: &Tree, entries: u64) -> Result<(), Failure> {
    // Odd, and without a divisor in common with usual numbers of entries.
    const STEP: u64 = 7_368_787;
    for number in (0..entries).map(|index| index * STEP % entries) {
        let found = tree
            .get(key(number))?
            .ok_or_else(|| format!("{} is missing", key(number)))?;
        if found.as_slice() != value(number) {
            return Err(format!("{} has another value", key(number)).into());
        }
    }
    Ok(())
}

/// Ranges that begin at keys all over the tree.
fn read_ranges(tree: &Tree) -> Result<(), Failure> {
    for number in 0..RANGES {
        let mut range = tree.range(key(!number)..);
        for _ in 0..RANGE_ENTRIES {
            let Some((_key, _value)) = range.next_entry()? else {
                break;
            };
        }
    }
    Ok(())
}

/// Kilobytes of anonymous memory.
fn anonymous_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn run(path: &Path, engine: Engine, settings: Settings, entries: u64) -> Result<[f64; 3], Failure> {
    let (store, tree) = open(path, engine, settings)?;
    let start = Instant::now();
    load(&tree, entries)?;
    let load = start.elapsed();
    drop(tree);
    store.close()?;
    let (_store, tree) = open(path, engine, settings)?;
    let start = Instant::now();
    read_back(&tree, entries)?;
    let gets = start.elapsed();
    let start = Instant::now();
    read_ranges(&tree)?;
    let ranges = start.elapsed();
    let rate = |count: u64, time: Duration| count as f64 / time.as_secs_f64();
    Ok([
        rate(entries, load),
        rate(entries, gets),
        rate(RANGES, ranges),
    ])
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, engine, entries) = match &arguments[..] {
        [folder, engine, entries, ..] => (Path::new(folder), named(engine)?, entries.parse()?),
        _ => return Err("usage: larger_than_memory FOLDER ENGINE ENTRIES [--json]".into()),
    };
    let path = folder.join(format!("{}.pool", engine.0));
    let peak = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                peak.fetch_max(anonymous_kb(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let result = run(&path, engine.0, engine.1, entries);
        is_over.store(true, Ordering::Relaxed);
        result
    });
    let bytes = fs::metadata(&path).map_or(0, |file| file.len());
    let _ = fs::remove_file(&path);
    let [load, gets, ranges] = result?;
    let engine = &arguments[1];
    let pool = bytes >> 20;
    let peak = peak.into_inner() >> 10;
    if arguments.iter().any(|argument| argument == "--json") {
        println!(
            "{{\"engine\":\"{engine}\",\"entries\":{entries},\"load_per_s\":{load:.0},\"gets_per_s\":{gets:.0},\"ranges_per_s\":{ranges:.0},\"pool_mib\":{pool},\"anonymous_peak_mib\":{peak}}}"
        );
    } else {
        println!(
            "{engine:10} {load:>9.0} puts/s {gets:>9.0} gets/s {ranges:>7.0} ranges of {RANGE_ENTRIES}/s, pool {pool} MiB, at most {peak} MiB of memory beside the page cache"
        );
    }
    Ok(())
}
