//! Prints the room that removed entries give back to the disk, for each engine: many entries are
//! loaded, 98 of 100 are removed at random, and the store is compacted while a thread writes; then
//! half as many bytes come back as values of another size. Run with
//! `cargo run --release -p everleaf --example room -- FOLDER 1000000`, with a folder on the disk in
//! question and the number of entries.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use everleaf::{CompactStop, Engine, MediumChoice, Options, Store, Tree, TreeOptions};

type Failure = Box<dyn std::error::Error>;

const ENGINES: [Engine; 5] = [
    Engine::RNTREE,
    Engine::BZTREE,
    Engine::CAWBT,
    Engine::WBTREE,
    Engine::MASSTREE,
];
/// One in this many entries is kept.
const KEPT: u64 = 50;
const VALUE_BYTES: usize = 100;
/// The length of the values that come later.
const OTHER_BYTES: usize = 400;
const SLAB_BYTES: u64 = 64 << 10;
const MIB: f64 = (1 << 20) as f64;
const TREE: &str = "main";

fn options() -> Options {
    Options::new().medium(MediumChoice::File)
}

fn kind(engine: Engine) -> TreeOptions {
    TreeOptions {
        engine,
        ..TreeOptions::RECORDS
    }
}

/// Neighbouring numbers are far apart.
fn key_of(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn is_kept(number: u64) -> bool {
    number
        .wrapping_mul(0xd6e8_feb8_6659_fd93)
        .is_multiple_of(KEPT)
}

/// Bytes that a pool takes on the disk, without its log.
fn disk_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| 512 * file.blocks())
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / MIB)
}

fn fill(
    store: &Store,
    tree: &Tree,
    numbers: impl Iterator<Item = u64>,
    bytes: usize,
) -> Result<(), Failure> {
    for number in numbers {
        drop(
            tree.pending()
                .put(key_of(number), vec![number as u8; bytes])?,
        );
    }
    Ok(store.sync()?)
}

/// The bytes of a new pool with the entries of a tree, as a dump and a restore make it.
fn restored_bytes(tree: &Tree, engine: Engine, path: &Path) -> Result<u64, Failure> {
    let store = options().open(path)?;
    let entries = tree
        .iter()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
    store
        .tree_with(TREE, kind(engine))?
        .try_bulk_load::<_, _, everleaf::Error>(entries, 0.9)?;
    store.close()?;
    let bytes = disk_bytes(path);
    std::fs::remove_file(path)?;
    Ok(bytes)
}

/// Compacts the store while a thread overwrites kept entries, and prints a line.
fn compact(
    store: &Store,
    tree: &Tree,
    engine: Engine,
    path: &Path,
    kept: &[u64],
) -> Result<(), Failure> {
    let before = disk_bytes(path);
    let has_ended = AtomicBool::new(false);
    let writes = AtomicU64::new(0);
    let start = Instant::now();
    let compacted = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in kept.iter().cycle() {
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
                tree.put(key_of(*number), [*number as u8; VALUE_BYTES])?;
                writes.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), everleaf::Error>(())
        });
        let compacted = store.compact();
        has_ended.store(true, Ordering::Relaxed);
        writer.join().map_err(|_| "the writer has panicked")??;
        Ok::<_, Failure>(compacted?)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    if let Some(CompactStop::Refused(error)) = &compacted.unfinished {
        println!("{}: not finished: {error}", engine.name);
    }
    let after = disk_bytes(path);
    let own = compacted.own_space;
    let nodes = own.node_bytes + SLAB_BYTES * compacted.slabs_kept;
    let rest = after.saturating_sub(nodes + own.log_bytes);
    let restored = restored_bytes(tree, engine, &path.with_extension("restored"))?;
    println!(
        "| {} | {} | {} | {} | {:.2} | {} | {} | {} | {} | {} | {seconds:.1} | {} |",
        engine.name,
        mib(before),
        mib(after),
        mib(restored),
        after as f64 / restored as f64,
        compacted.records_moved,
        compacted.nodes_moved,
        mib(nodes),
        mib(own.log_bytes),
        mib(rest),
        writes.load(Ordering::Relaxed),
    );
    Ok(())
}

fn measure(engine: Engine, folder: &Path, entries: u64) -> Result<(), Failure> {
    let path = folder.join(format!("room-{}.pool", engine.name));
    let store = options().open(&path)?;
    let tree = store.tree_with(TREE, kind(engine))?;
    fill(&store, &tree, 0..entries, VALUE_BYTES)?;
    for number in (0..entries).filter(|number| !is_kept(*number)) {
        drop(tree.pending().remove(key_of(number))?);
    }
    store.sync()?;
    let kept: Vec<u64> = (0..entries).filter(|number| is_kept(*number)).collect();
    compact(&store, &tree, engine, &path, &kept)?;
    let others = entries..entries + entries * VALUE_BYTES as u64 / (4 * OTHER_BYTES as u64);
    fill(&store, &tree, others, OTHER_BYTES)?;
    compact(&store, &tree, engine, &path, &kept)?;
    drop(tree);
    store.close()?;
    Ok(std::fs::remove_file(&path)?)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, entries] = &arguments[..] else {
        return Err("usage: room FOLDER ENTRIES".into());
    };
    let entries = entries.parse()?;
    println!(
        "MiB of the pool's file on its disk: {entries} entries with values of {VALUE_BYTES} bytes, of which one in {KEPT} is kept; then\n\
         also values of {OTHER_BYTES} bytes\n\
         \n\
         | engine | before | after | of a restore | ratio | records moved | nodes moved | nodes that stay | logs | the rest | seconds | writes meanwhile |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for engine in ENGINES {
        measure(engine, Path::new(folder), entries)?;
    }
    Ok(())
}
