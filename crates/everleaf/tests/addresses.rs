//! Many stores and many trees in one process: each takes the addresses and the memory that it uses,
//! and leaves those of the program alone.

use everleaf::{Engine, Options, Store, Tree, TreeOptions};
use tempfile::TempDir;

/// The address space of this process, in bytes, and the number of its mappings.
struct Taken {
    address_bytes: u64,
    mappings: usize,
}

impl Taken {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
        let kib: u64 = line
            .and_then(|line| line.split_whitespace().next())
            .unwrap()
            .parse()
            .unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Self {
            address_bytes: kib << 10,
            mappings: maps.lines().count(),
        }
    }
}

/// The program itself can still allocate much memory, and begin threads.
fn assert_program_is_free() {
    let bytes = vec![1_u8; 64 << 20];
    assert_eq!(
        bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
        64 << 20
    );
    let large: Vec<u8> = Vec::with_capacity(8 << 30);
    assert!(large.capacity() >= 8 << 30);
    let threads: Vec<_> = (0..20)
        .map(|number| {
            std::thread::Builder::new()
                .spawn(move || vec![number; 1 << 16].len())
                .unwrap()
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 1 << 16);
    }
}

fn main_tree(store: &Store, number: u32) -> Tree {
    let tree = store.tree("main").unwrap();
    tree.put("number", number.to_be_bytes()).unwrap();
    tree
}

fn assert_number(tree: &Tree, number: u32) {
    let found = tree.get("number").unwrap();
    assert_eq!(found.as_deref(), Some(&number.to_be_bytes()[..]));
}

/// A process was once out of addresses at its 110th store.
#[test]
fn a_thousand_stores_in_memory_stand_in_one_process() {
    let stores: Vec<_> = (0..1000).map(|_| Store::in_memory().unwrap()).collect();
    let trees: Vec<_> = stores
        .iter()
        .zip(0..)
        .map(|(store, number)| main_tree(store, number))
        .collect();
    for (tree, number) in trees.iter().zip(0..) {
        assert_number(tree, number);
    }
    // Each can still grow.
    for tree in [&trees[0], &trees[500], &trees[999]] {
        for key in 0..20_000_u32 {
            tree.put(key.to_be_bytes(), [7; 100]).unwrap();
        }
        let found = tree.get(7_u32.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&[7; 100][..]));
    }
    let taken = Taken::now();
    assert!(taken.address_bytes < 100 << 30, "{}", taken.address_bytes);
    assert!(taken.mappings < 30_000, "{}", taken.mappings);
    assert_program_is_free();
}

#[test]
fn two_hundred_files_are_open_in_one_process_written_and_read() {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| TempDir::new())
        .unwrap();
    let path = |number| folder.path().join(format!("{number}.pool"));
    let options = || Options::new().log_bytes(64 << 10);
    let stores: Vec<_> = (0..200)
        .map(|number| {
            let medium = [everleaf::MediumChoice::File, everleaf::MediumChoice::Dax];
            let medium = medium[number as usize % 2];
            options().medium(medium).open(path(number)).unwrap()
        })
        .collect();
    for (store, number) in stores.iter().zip(0..) {
        assert_number(&main_tree(store, number), number);
    }
    assert_program_is_free();
    drop(stores);
    let readers: Vec<_> = (0..200)
        .map(|number| options().read_only(true).open(path(number)).unwrap())
        .collect();
    for (reader, number) in readers.iter().zip(0..) {
        assert_number(&reader.tree("main").unwrap(), number);
    }
    assert_program_is_free();
}

/// A tree of `rntree` once reserved 194 GB in six mappings. The end of an epoch of `masstree` once
/// visited all trees, so that ten thousand of one store took minutes.
#[test]
fn ten_thousand_trees_of_each_engine_stand_in_one_store() {
    for engine in Engine::ALL {
        let options = TreeOptions {
            engine: *engine,
            ..TreeOptions::RECORDS
        };
        let store = Store::in_memory().unwrap();
        let mut trees = Vec::new();
        for number in 0..10_000_u32 {
            let tree = store.tree_with(&number.to_string(), options).unwrap();
            tree.put("number", number.to_be_bytes()).unwrap();
            trees.push(tree);
        }
        for (tree, number) in trees.iter().zip(0..) {
            assert_number(tree, number);
        }
        let taken = Taken::now();
        assert!(taken.mappings < 30_000, "{engine}: {}", taken.mappings);
        assert_program_is_free();
    }
}
