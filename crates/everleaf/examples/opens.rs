//! The time of an open, step by step, for each engine: after a clean close, with one put and a
//! close, and after the process was killed. Run with
//! `cargo run --release -p everleaf --example opens -- FOLDER 1000000`, with a folder on the disk in
//! question and the number of entries.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use everleaf::{Engine, MediumChoice, Options, Store, TreeOptions};

type Failure = Box<dyn std::error::Error>;

/// Opens of each kind; the figures are medians.
const ROUNDS: usize = 15;
/// Entries that are written before a process is killed.
const UNWRITTEN: u64 = 1000;

fn options() -> Options {
    Options::new().medium(MediumChoice::File)
}

fn key_of(number: u64) -> String {
    // Neighbours are far apart.
    format!("{:020}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The median of the times of one step.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    /// Runs the step once.
    fn take<T>(&mut self, step: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let start = Instant::now();
        let result = step()?;
        self.0.push(start.elapsed());
        Ok(result)
    }

    fn median_ms(&mut self) -> f64 {
        self.0.sort_unstable();
        self.0[self.0.len() / 2].as_secs_f64() * 1e3
    }
}

/// Opens, gets, puts if that is wanted, and closes.
fn print_session(path: &Path, entries: u64, puts: bool) -> Result<(), Failure> {
    let mut open = Times::default();
    let mut tree = Times::default();
    let mut get = Times::default();
    let mut put = Times::default();
    let mut close = Times::default();
    for round in 0..ROUNDS {
        let key = key_of(round as u64 % entries);
        let store = open.take(|| Ok(options().open(path)?))?;
        let readings = tree.take(|| Ok(store.open_tree("main")?))?;
        let found = get.take(|| Ok(readings.get(&key)?))?;
        assert!(found.is_some(), "an entry is missing");
        if puts {
            put.take(|| {
                readings.put(&key, "another value")?;
                // Ends the epoch, where there are epochs.
                Ok(store.sync()?)
            })?;
        }
        drop(readings);
        close.take(|| Ok(store.close()?))?;
    }
    print!(
        "  {}  open {:.3} ms, tree {:.3}, get {:.3}",
        if puts { "one put" } else { "no put " },
        open.median_ms(),
        tree.median_ms(),
        get.median_ms()
    );
    if puts {
        print!(", put {:.3}", put.median_ms());
    }
    println!(", close {:.3}", close.median_ms());
    Ok(())
}

/// Opens a copy of what a killed process has left.
fn print_after_a_kill(path: &Path, engine: Engine) -> Result<(), Failure> {
    let ended = Command::new(std::env::current_exe()?)
        .arg("writes")
        .arg(path)
        .arg(engine.name)
        .status()?;
    assert!(!ended.success(), "the writer was not killed");
    let log = everleaf::log_path(path);
    let again = path.with_extension("again");
    let log_bytes = std::fs::metadata(&log)?.len();
    let mut open = Times::default();
    let mut get = Times::default();
    let mut replay = Times::default();
    let mut replayed_bytes = 0;
    for round in 0..ROUNDS / 3 {
        std::fs::copy(path, &again)?;
        std::fs::copy(&log, everleaf::log_path(&again))?;
        std::fs::File::open(&again)?.sync_all()?;
        std::fs::File::open(everleaf::log_path(&again))?.sync_all()?;
        let store = open.take(|| Ok(options().close_cleanly(false).open(&again)?))?;
        let found = get.take(|| Ok(store.open_tree("main")?.get(key_of(round as u64))?))?;
        assert!(found.is_some(), "an entry is missing");
        let stat = store.stat()?.log.expect("the medium has a log");
        replay.0.push(stat.replay.duration);
        replayed_bytes = stat.replay.bytes;
        drop(store);
    }
    println!(
        "  killed   open {:.3} ms, of it replay {:.3} ({} KiB of a log of {} KiB), get {:.3}",
        open.median_ms(),
        replay.median_ms(),
        replayed_bytes >> 10,
        log_bytes >> 10,
        get.median_ms()
    );
    std::fs::remove_file(everleaf::log_path(&again))?;
    std::fs::remove_file(&again)?;
    Ok(())
}

/// The process that is killed.
fn write_and_die(path: &str) -> Result<(), Failure> {
    let store: Store = options().open(path)?;
    let tree = store.open_tree("main")?;
    for number in 0..UNWRITTEN {
        drop(
            tree.pending()
                .put(key_of(number), "the value before the kill")?,
        );
    }
    store.sync()?;
    std::process::abort();
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (folder, entries) = match arguments[..] {
        ["writes", path, _engine] => return write_and_die(path),
        [folder, entries] => (PathBuf::from(folder), entries.parse::<u64>()?.max(1)),
        _ => return Err("usage: opens FOLDER ENTRIES".into()),
    };
    for engine in Engine::ALL {
        let path = folder.join(format!("opens-{}.pool", engine.name));
        let kind = TreeOptions {
            engine: *engine,
            ..TreeOptions::RECORDS
        };
        let store = options().open(&path)?;
        let tree = store.tree_with("main", kind)?;
        for number in 0..entries {
            drop(tree.pending().put(key_of(number), [7; 100])?);
        }
        store.sync()?;
        drop(tree);
        store.close()?;
        println!("{}, {entries} entries", engine.name);
        print_session(&path, entries, false)?;
        print_session(&path, entries, true)?;
        print_after_a_kill(&path, *engine)?;
        options().open(&path)?.remove_files()?;
    }
    Ok(())
}
