//! The cost of an open snapshot: gets, ranges of 100 and puts, with a snapshot open and without, in
//! turns; and the gets and ranges of the snapshot itself. Run with `cargo run --release -p everleaf
//! --example view_costs -- FOLDER 1000000 file`, with a folder, the number of entries, and the medium
//! (`file` or `dax`).
//!
//! Each put writes a key that the snapshot needs, so it keeps the old value. Puts are not waited for.

use std::path::Path;
use std::time::{Duration, Instant};

use everleaf::{Engine, MediumChoice, Options, Snapshot, Store, Tree, TreeOptions, View};

type Failure = Box<dyn std::error::Error>;

/// Rounds of each kind. In each, both ways are measured, one after the other.
const PAIRS: u64 = 15;
const GETS: u64 = 50_000;
const RANGES: u64 = 1_000;
const PUTS: u64 = 10_000;
const RANGE_ENTRIES: usize = 100;
const VALUE_BYTES: usize = 150;
/// Versions stay on for a second after the last view has closed.
const OFF: Duration = Duration::from_millis(1100);

fn mixed(number: u64) -> u64 {
    let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product ^ (product >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A key of 24 bytes. Neighbours in number are far apart in order.
fn key_of(number: u64) -> String {
    format!("key-{:020}", mixed(number))
}

struct Bench {
    store: Store,
    tree: Tree,
    entries: u64,
}

/// What is timed.
#[derive(Clone, Copy)]
enum Work {
    Get,
    Range,
    Put,
}

impl Work {
    fn count(self) -> u64 {
        match self {
            Self::Get => GETS,
            Self::Range => RANGES,
            Self::Put => PUTS,
        }
    }
}

impl Bench {
    fn key(&self, round: u64, number: u64) -> String {
        key_of(mixed(round << 32 | number) % self.entries)
    }

    /// Works on the tree itself.
    fn plain(&self, work: Work, round: u64) -> Result<Duration, Failure> {
        let mut buffer = Vec::new();
        let start = Instant::now();
        for number in 0..work.count() {
            let key = self.key(round, number);
            match work {
                Work::Get => assert!(self.tree.get_into(&key, &mut buffer)?, "it is there"),
                Work::Range => {
                    let mut range = self.tree.range(key.as_str()..);
                    let mut left = RANGE_ENTRIES;
                    while left > 0 && range.next_entry()?.is_some() {
                        left -= 1;
                    }
                }
                Work::Put => drop(self.tree.pending().put(&key, [b'w'; VALUE_BYTES])?),
            }
        }
        Ok(start.elapsed())
    }

    /// Reads the snapshot.
    fn of_view(&self, view: &Snapshot, work: Work, round: u64) -> Result<Duration, Failure> {
        let start = Instant::now();
        for number in 0..work.count() {
            let key = self.key(round, number);
            if let Work::Range = work {
                let mut range = view.range(&self.tree, key.as_str()..);
                let mut left = RANGE_ENTRIES;
                while left > 0 && range.next_bytes()?.is_some() {
                    left -= 1;
                }
            } else {
                let length = view.get_with(&self.tree, &key, <[u8]>::len)?;
                assert_eq!(length, Some(VALUE_BYTES), "it is there");
            }
        }
        Ok(start.elapsed())
    }

    /// Tells the median of the ratios of times: without a view to with one, so that less than 1 is
    /// slower.
    fn compare(
        &self,
        name: &str,
        mut measure: impl FnMut(bool, u64) -> Result<Duration, Failure>,
        count: u64,
    ) -> Result<(), Failure> {
        let mut ratios = Vec::new();
        let mut without = Vec::new();
        let mut with = Vec::new();
        for round in 0..PAIRS {
            let first = round % 2 == 0;
            let one = measure(first, round)?;
            let other = measure(!first, round)?;
            let (on, off) = if first { (one, other) } else { (other, one) };
            ratios.push(off.as_secs_f64() / on.as_secs_f64());
            with.push(on.as_secs_f64());
            without.push(off.as_secs_f64());
        }
        let nanoseconds = 1e9 / count as f64;
        println!(
            "  {name:<28} without {:>7.0} ns, with {:>7.0} ns, median of {PAIRS} ratios {:.2}",
            median(without) * nanoseconds,
            median(with) * nanoseconds,
            median(ratios)
        );
        Ok(())
    }

    fn run(&self) -> Result<(), Failure> {
        let view = self.store.snapshot()?;
        for (name, work) in [
            ("gets of the view", Work::Get),
            ("ranges of the view", Work::Range),
        ] {
            let measure = |is_view: bool, round| match is_view {
                true => self.of_view(&view, work, round),
                false => self.plain(work, round),
            };
            self.compare(name, measure, work.count())?;
        }
        // The same, where a tenth of the keys has changed since.
        for number in 0..self.entries / 10 {
            drop(
                self.tree
                    .pending()
                    .put(key_of(number), [b'w'; VALUE_BYTES])?,
            );
        }
        for (name, work) in [
            ("gets, a tenth changed", Work::Get),
            ("ranges, a tenth changed", Work::Range),
        ] {
            let measure = |is_view: bool, round| match is_view {
                true => self.of_view(&view, work, round),
                false => self.plain(work, round),
            };
            self.compare(name, measure, work.count())?;
        }
        drop(view);
        for (name, work) in [("plain gets", Work::Get), ("puts", Work::Put)] {
            let measure = |has_view: bool, round| {
                let view = if has_view {
                    Some(self.store.snapshot()?)
                } else {
                    std::thread::sleep(OFF);
                    // A write notices that no view was open for a second.
                    drop(self.tree.pending().put(key_of(0), [b'w'; VALUE_BYTES])?);
                    None
                };
                let time = self.plain(work, round << 1 | u64::from(has_view));
                drop(view);
                time
            };
            self.compare(name, measure, work.count())?;
        }
        Ok(())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, entries, medium] = &arguments[..] else {
        return Err("give a folder, a number of entries, and `file` or `dax`".into());
    };
    let entries: u64 = entries.parse()?;
    let medium = match medium.as_str() {
        "file" => MediumChoice::File,
        "dax" => MediumChoice::Dax,
        other => return Err(format!("the medium {other:?} is neither `file` nor `dax`").into()),
    };
    for &engine in Engine::ALL {
        let path = Path::new(folder).join(format!("views-{}.pool", engine.name()));
        let store = Options::new().medium(medium).open(&path)?;
        let kind = TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        };
        let tree = store.tree_with("main", kind)?;
        for number in 0..entries {
            drop(tree.pending().put(key_of(number), [b'v'; VALUE_BYTES])?);
        }
        store.sync()?;
        println!("{engine}, {}", store.stat()?.medium);
        let bench = Bench {
            store,
            tree,
            entries,
        };
        bench.run()?;
        drop(bench);
        std::fs::remove_file(path)?;
    }
    Ok(())
}
