//! The cost of verified reads: gets, and ranges of 100 entries, with `Options::verify` on and off in
//! turns. Run with `cargo run --release -p everleaf --example verification -- FOLDER 1000000`, with a
//! folder on the disk in question and the number of entries.
//!
//! `.. -- FOLDER 100000 rntree get on` runs one round alone, for callgrind. The difference to the same
//! with `off` is the number of instructions that the verification takes.

use std::path::Path;
use std::time::{Duration, Instant};

use everleaf::{Engine, MediumChoice, Options, Store, Tree, TreeOptions};

type Failure = Box<dyn std::error::Error>;

/// Rounds of each kind. In each both stores are read, one after the other.
const PAIRS: u64 = 31;
const GETS: u64 = 50_000;
const RANGES: u64 = 1_000;
const RANGE_ENTRIES: usize = 100;
const VALUE_BYTES: usize = 150;

fn options() -> Options {
    Options::new().medium(MediumChoice::File)
}

fn mixed(number: u64) -> u64 {
    let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product ^ (product >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A key of 24 bytes. Neighbours in number are far apart in order.
fn key_of(number: u64) -> String {
    format!("key-{:020}", mixed(number))
}

#[derive(Clone, Copy)]
enum Reads {
    Get,
    Range,
}

impl Reads {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Range => "range of 100",
        }
    }

    /// Reads that a round makes.
    fn count(self) -> u64 {
        match self {
            Self::Get => GETS,
            Self::Range => RANGES,
        }
    }

    /// Runs the reads of a round.
    fn run(self, tree: &Tree, entries: u64, round: u64) -> Result<Duration, Failure> {
        let mut value = Vec::new();
        let start = Instant::now();
        for number in 0..self.count() {
            let key = key_of(mixed(round << 32 | number) % entries);
            match self {
                Self::Get => {
                    assert!(tree.get_into(&key, &mut value)?, "an entry is missing");
                }
                Self::Range => {
                    let mut range = tree.range(key.as_str()..);
                    let mut left = RANGE_ENTRIES;
                    while left > 0 && range.next_entry()?.is_some() {
                        left -= 1;
                    }
                }
            }
        }
        Ok(start.elapsed())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn load(path: &Path, engine: Engine, entries: u64) -> Result<(), Failure> {
    let store = options().open(path)?;
    let kind = TreeOptions {
        engine,
        ..TreeOptions::RECORDS
    };
    let tree = store.tree_with("main", kind)?;
    let value = [b'v'; VALUE_BYTES];
    for number in 0..entries {
        // The close makes all of them durable.
        drop(tree.pending().put(key_of(number), value)?);
    }
    drop(tree);
    Ok(store.close()?)
}

fn open(path: &Path, verify: bool) -> Result<Store, Failure> {
    Ok(options().read_only(true).verify(verify).open(path)?)
}

fn compare(path: &Path, entries: u64, reads: Reads) -> Result<(), Failure> {
    let verified = open(path, true)?;
    let plain = open(path, false)?;
    let verified_tree = verified.open_tree("main")?;
    let plain_tree = plain.open_tree("main")?;
    let mut verified_times = Vec::new();
    let mut plain_times = Vec::new();
    let mut ratios = Vec::new();
    for round in 0..PAIRS {
        // The second read of a round finds warm caches, so both stores take turns.
        let (on, off) = if round % 2 == 0 {
            let on = reads.run(&verified_tree, entries, round)?;
            (on, reads.run(&plain_tree, entries, round)?)
        } else {
            let off = reads.run(&plain_tree, entries, round)?;
            (reads.run(&verified_tree, entries, round)?, off)
        };
        verified_times.push(on.as_secs_f64());
        plain_times.push(off.as_secs_f64());
        ratios.push(on.as_secs_f64() / off.as_secs_f64());
    }
    let nanoseconds = 1e9 / reads.count() as f64;
    println!(
        "  {:<13} on {:>7.0} ns, off {:>7.0} ns, median of {PAIRS} ratios {:.3}",
        reads.name(),
        median(verified_times) * nanoseconds,
        median(plain_times) * nanoseconds,
        median(ratios),
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [folder, entries, only @ ..] = &arguments[..] else {
        return Err("give a folder and a number of entries".into());
    };
    let entries: u64 = entries.parse()?;
    for &engine in Engine::ALL {
        let path = Path::new(folder).join(format!("{}.pool", engine.name()));
        if !path.exists() {
            load(&path, engine, entries)?;
        }
        if let [name, reads, verify] = only {
            if *name == engine.name() {
                let reads = match *reads {
                    "get" => Reads::Get,
                    _ => Reads::Range,
                };
                let store = open(&path, *verify == "on")?;
                reads.run(&store.open_tree("main")?, entries, 0)?;
            }
            continue;
        }
        println!("{}", engine.name());
        compare(&path, entries, Reads::Get)?;
        compare(&path, entries, Reads::Range)?;
    }
    Ok(())
}
