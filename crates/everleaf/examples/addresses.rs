//! The cost of many stores, or many trees, in one process: address space, memory, mappings, and the
//! time to open them. Linux only. Run with
//! `cargo run --release -p everleaf --example addresses -- stores 1000`, or `files 200`, or
//! `trees rntree 1 10000` for one store in memory with 10,000 trees.

use std::time::Instant;

use everleaf::{Engine, Options, Store, Tree, TreeOptions};

type Failure = Box<dyn std::error::Error>;

/// The system's figures for this process.
struct Taken {
    virtual_kib: u64,
    resident_kib: u64,
    mappings: usize,
    threads: u64,
}

impl Taken {
    fn now() -> Result<Self, Failure> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| -> Result<u64, Failure> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            Ok(word.ok_or("a field is missing")?.parse()?)
        };
        Ok(Self {
            virtual_kib: field("VmSize:")?,
            resident_kib: field("VmRSS:")?,
            mappings: std::fs::read_to_string("/proc/self/maps")?.lines().count(),
            threads: field("Threads:")?,
        })
    }

    fn print(&self, what: &str) {
        println!(
            "{what}: {:.1} MiB of addresses, {:.1} MiB of memory, {} mappings, {} threads",
            self.virtual_kib as f64 / 1024.0,
            self.resident_kib as f64 / 1024.0,
            self.mappings,
            self.threads
        );
    }
}

fn with_tree(store: Store) -> Result<(Store, Tree), Failure> {
    let tree = store.tree("main")?;
    tree.put("key", "value")?;
    Ok((store, tree))
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    Taken::now()?.print("before");
    let start = Instant::now();
    let mut stores = Vec::new();
    let mut trees = Vec::new();
    match arguments[..] {
        ["stores", count] => {
            for _ in 0..count.parse()? {
                stores.push(with_tree(Store::in_memory()?)?);
            }
        }
        ["files", count] => {
            let folder = std::env::temp_dir().join(format!("addresses-{}", std::process::id()));
            std::fs::create_dir(&folder)?;
            for number in 0..count.parse::<u32>()? {
                let path = folder.join(format!("{number}.pool"));
                stores.push(with_tree(Options::new().open(path)?)?);
            }
            Taken::now()?.print("at the end");
            println!("{:?}", start.elapsed());
            drop(stores);
            std::fs::remove_dir_all(folder)?;
            return Ok(());
        }
        ["trees", engine, stores_wanted, trees_wanted] => {
            let engine = Engine::from_name(engine).ok_or("no such engine")?;
            let options = TreeOptions {
                engine,
                ..TreeOptions::RECORDS
            };
            for _ in 0..stores_wanted.parse()? {
                let store = Store::in_memory()?;
                for number in 0..trees_wanted.parse::<u32>()? {
                    let tree = store.tree_with(&number.to_string(), options)?;
                    tree.put("key", "value")?;
                    trees.push(tree);
                }
            }
        }
        _ => return Err("stores COUNT, files COUNT, or trees ENGINE STORES TREES".into()),
    }
    let elapsed = start.elapsed();
    Taken::now()?.print("at the end");
    println!("{elapsed:?}");
    Ok(())
}
