//! The pool: a crash at any point of its creation, of a tree's creation, of opening slabs and
//! spans, and of a clean close. The pool must open again, and the mark must find exactly the
//! published allocations.

use std::collections::BTreeMap;

use everleaf_sim::index::pool_options;
use everleaf_sim::{
    Complaint, ExplorationOptions, Explorer, Images, Rules, SecondCrash, Stats, Subject,
};
use medium::sim::{Mutation, Sim, Site, SiteKind};
use medium::{LineForm, Word};
use pool::{Encodings, NewTree, Pool, ROOT_WORDS, TreeRoot};

use crate::common::text;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    /// Makes a tree: a directory of blocks.
    Create { tree: u8 },
    /// Fills a new block of this many bytes and enters it in the directory, in place of the old
    /// block.
    Put {
        tree: u8,
        slot: usize,
        bytes: usize,
        value: u64,
    },
    /// Takes a block out of the directory, and frees it.
    Clear { tree: u8, slot: usize },
    /// Does the same as `Clear`, and gives the block's room back at once, or before the store that
    /// frees it is durable.
    Release { tree: u8, slot: usize, early: bool },
    /// Gives all free room back, and cuts the file.
    Compact,
    /// Removes a tree with all its blocks.
    Remove { tree: u8 },
    /// Gives a tree another name.
    Rename { tree: u8, name: u8 },
    /// Gives a tree other encodings.
    Encode { tree: u8, number: u8 },
    /// Closes the pool and opens it again.
    Reopen,
}

use Operation::{Clear, Compact, Create, Encode, Put, Release, Remove, Rename, Reopen};

const SLOTS: usize = 8;
/// In a directory's word: the length in bytes, above the offset.
const BYTES_SHIFT: u32 = 40;

struct PoolProtocol;

struct Opened {
    sim: Sim,
    pool: Option<Pool<Sim>>,
    trees: BTreeMap<u8, TreeRoot>,
}

type Blocks = BTreeMap<usize, (usize, u64)>;

/// A tree.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
struct Directory {
    blocks: Blocks,
    encodings: Option<Encodings>,
}

impl Directory {
    /// A new one. Every second tree is made with encodings.
    fn new(name: u8) -> Self {
        let encodings = if name.is_multiple_of(2) {
            None
        } else {
            Some(encodings(name))
        };
        Self {
            blocks: Blocks::new(),
            encodings,
        }
    }
}

/// Encodings that fill most of a slot's words for them.
fn encodings(number: u8) -> Encodings {
    Encodings {
        key: format!("key:{number}"),
        value: char::from(b'!' + number % 90).to_string().repeat(200),
    }
}

fn content(value: u64, index: usize) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64
}

impl Opened {
    fn pool(&self) -> Pool<Sim> {
        self.pool.clone().expect("an open pool")
    }

    /// The blocks in a directory, by slot: offset and length.
    fn blocks(
        guard: &pool::Guard<'_, Sim>,
        tree: &TreeRoot,
    ) -> Result<Vec<(usize, u64, usize)>, Complaint> {
        let directory = guard.words(tree.words[0], SLOTS).map_err(text)?;
        let entries = directory.iter().map(|cell| cell.load(guard)).enumerate();
        let entries = entries.filter(|(_, entry)| *entry != 0);
        let split = |entry: u64| {
            (
                entry & ((1 << BYTES_SHIFT) - 1),
                (entry >> BYTES_SHIFT) as usize,
            )
        };
        Ok(entries
            .map(|(slot, entry)| (slot, split(entry).0, split(entry).1))
            .collect())
    }

    fn open_pool(&mut self) -> Result<(), Complaint> {
        let pool = Pool::open(self.sim.clone(), pool_options()).map_err(text)?;
        let trees = pool.trees().map_err(text)?;
        self.trees = trees
            .into_iter()
            .map(|tree| (tree.name.as_bytes()[0], tree))
            .collect();
        if pool.needs_mark() {
            let guard = pool.pin();
            for tree in self.trees.values() {
                pool.mark(tree.words[0]).map_err(text)?;
                for (_, offset, _) in Self::blocks(&guard, tree)? {
                    pool.mark(offset).map_err(text)?;
                }
            }
            drop(guard);
            pool.finish_marking();
        }
        self.pool = Some(pool);
        Ok(())
    }

    fn create(&mut self, name: u8) -> Result<(), Complaint> {
        let pool = self.pool();
        let guard = pool.pin();
        let offset = guard.allocate(SLOTS * 8).map_err(text)?;
        let directory = guard.words(offset, SLOTS).map_err(text)?;
        for cell in directory {
            cell.store(&guard, 0);
        }
        guard.flush_words(directory);
        // PERSIST: the directory before the root that leads to it.
        guard.fence();
        let mut words = [0; ROOT_WORDS];
        words[0] = offset;
        let name_text = char::from(name).to_string();
        let encodings = Directory::new(name).encodings;
        let new = NewTree {
            name: &name_text,
            encodings: encodings.as_ref(),
        };
        let made = pool.create_tree(new, 9, 9, &words).map_err(text)?;
        self.trees.insert(name, made);
        Ok(())
    }

    fn encode(&mut self, tree: u8, number: u8) -> Result<(), Complaint> {
        let Some(root) = self.trees.get(&tree) else {
            return Ok(());
        };
        let encoded = self.pool().set_encodings(root, Some(&encodings(number)));
        self.trees.insert(tree, encoded.map_err(text)?);
        Ok(())
    }

    fn directory<'g>(
        &self,
        guard: &'g pool::Guard<'_, Sim>,
        tree: u8,
    ) -> Result<&'g [Word], Complaint> {
        guard.words(self.trees[&tree].words[0], SLOTS).map_err(text)
    }

    fn put(&self, tree: u8, slot: usize, bytes: usize, value: u64) -> Result<(), Complaint> {
        let pool = self.pool();
        let guard = pool.pin();
        let offset = guard.allocate(bytes).map_err(text)?;
        let words = guard.words(offset, bytes / 8).map_err(text)?;
        words[0].store(&guard, value);
        for (index, word) in words.iter().enumerate().skip(1) {
            word.store(&guard, content(value, index));
        }
        guard.flush_words(words);
        // PERSIST: the block before the directory that leads to it.
        guard.fence();
        let cell = &self.directory(&guard, tree)?[slot];
        let old = cell.load(&guard);
        cell.publish(&guard, offset | (bytes as u64) << BYTES_SHIFT);
        guard.drain().map_err(text)?;
        if old != 0 {
            guard.retire(old & ((1 << BYTES_SHIFT) - 1));
        }
        Ok(())
    }

    fn clear(&self, tree: u8, slot: usize) -> Result<(), Complaint> {
        let pool = self.pool();
        let guard = pool.pin();
        let cell = &self.directory(&guard, tree)?[slot];
        let old = cell.load(&guard);
        if old != 0 {
            cell.publish(&guard, 0);
            guard.drain().map_err(text)?;
            guard.retire(old & ((1 << BYTES_SHIFT) - 1));
        }
        Ok(())
    }

    fn release(&self, tree: u8, slot: usize, early: bool) -> Result<(), Complaint> {
        let pool = self.pool();
        let guard = pool.pin();
        let cell = &self.directory(&guard, tree)?[slot];
        let old = cell.load(&guard) & ((1 << BYTES_SHIFT) - 1);
        cell.publish(&guard, 0);
        if !early {
            guard.drain().map_err(text)?;
        }
        guard.retire(old);
        pool.release();
        guard.drain().map(drop).map_err(text)
    }

    fn rename(&mut self, tree: u8, name: u8) -> Result<(), Complaint> {
        let Some(root) = self.trees.remove(&tree) else {
            return Ok(());
        };
        let renamed = self
            .pool()
            .rename_tree(&root, &char::from(name).to_string())
            .map_err(text)?;
        self.trees.insert(name, renamed);
        Ok(())
    }

    fn remove(&mut self, tree: u8) -> Result<(), Complaint> {
        let pool = self.pool();
        let guard = pool.pin();
        let Some(root) = self.trees.remove(&tree) else {
            return Ok(());
        };
        let blocks = Self::blocks(&guard, &root)?;
        pool.remove_tree(&root).map_err(text)?;
        guard.free(root.words[0]);
        for (_, offset, _) in &blocks {
            guard.free(*offset);
        }
        Ok(())
    }
}

impl Subject for PoolProtocol {
    type Operation = Operation;
    type Outcome = ();
    type State = BTreeMap<u8, Directory>;
    type Instance = Opened;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &mut Self::State, operation: &Operation) {
        match *operation {
            Create { tree } => drop(state.insert(tree, Directory::new(tree))),
            Put {
                tree,
                slot,
                bytes,
                value,
            } => {
                let directory = state.entry(tree).or_default();
                directory.blocks.insert(slot, (bytes, value));
            }
            Clear { tree, slot } | Release { tree, slot, .. } => {
                state.entry(tree).or_default().blocks.remove(&slot);
            }
            Remove { tree } => drop(state.remove(&tree)),
            Rename { tree, name } => {
                if let Some(directory) = state.remove(&tree) {
                    state.insert(name, directory);
                }
            }
            Encode { tree, number } => {
                if let Some(directory) = state.get_mut(&tree) {
                    directory.encodings = Some(encodings(number));
                }
            }
            Reopen | Compact => {}
        }
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        let mut opened = Opened {
            sim: sim.clone(),
            pool: None,
            trees: BTreeMap::new(),
        };
        opened.open_pool()?;
        Ok(opened)
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<(), Complaint> {
        match *operation {
            Create { tree } => opened.create(tree),
            Put {
                tree,
                slot,
                bytes,
                value,
            } => opened.put(tree, slot, bytes, value),
            Clear { tree, slot } => opened.clear(tree, slot),
            Release { tree, slot, early } => opened.release(tree, slot, early),
            Compact => opened.pool().compact().map_err(text),
            Remove { tree } => opened.remove(tree),
            Rename { tree, name } => opened.rename(tree, name),
            Encode { tree, number } => opened.encode(tree, number),
            Reopen => {
                let pool = opened.pool.take().expect("an open pool");
                pool.close().map_err(text)?;
                opened.open_pool()
            }
        }
    }

    fn observe(&self, opened: &mut Opened) -> Result<Self::State, Complaint> {
        let pool = opened.pool();
        let guard = pool.pin();
        let mut state = BTreeMap::new();
        for (name, tree) in &opened.trees {
            let mut found = Blocks::new();
            for (slot, offset, bytes) in Opened::blocks(&guard, tree)? {
                let words = guard.words(offset, bytes / 8).map_err(text)?;
                let value = words[0].load(&guard);
                let whole =
                    |(index, word): (usize, &Word)| word.load(&guard) == content(value, index);
                if !words.iter().enumerate().skip(1).all(whole) {
                    return Err(format!("the block at {offset:#x} is damaged"));
                }
                found.insert(slot, (bytes, value));
            }
            let directory = Directory {
                blocks: found,
                encodings: tree.encodings.clone(),
            };
            state.insert(*name, directory);
        }
        Ok(state)
    }

    fn check(&self, opened: &mut Opened, state: &Self::State) -> Result<(), Complaint> {
        let pool = opened.pool();
        let reached: usize = state.values().map(|tree| 1 + tree.blocks.len()).sum();
        let stat = pool.stat();
        let reached = reached as u64 + stat.root_pages;
        let allocations = stat.allocations;
        if allocations != reached {
            return Err(format!(
                "{allocations} allocations, but {reached} are reached"
            ));
        }
        if pool.needs_mark() {
            Err("the mark never ended".to_owned())
        } else {
            Ok(())
        }
    }

    fn follow_up(&self, state: &Self::State, _recent: &[Operation]) -> Vec<Operation> {
        let put = |slot, bytes, value| Put {
            tree: b'z',
            slot,
            bytes,
            value,
        };
        let mut operations = Vec::new();
        if !state.contains_key(&b'z') {
            operations.push(Create { tree: b'z' });
        }
        operations.extend([put(0, 40, 70), put(1, 4096, 71), Reopen, put(2, 40, 72)]);
        operations.extend(state.keys().map(|tree| Put {
            tree: *tree,
            slot: 0,
            bytes: 40,
            value: 73,
        }));
        operations.push(Clear {
            tree: b'z',
            slot: 0,
        });
        // The slot that a rename left is used again, and its former content does not come back.
        operations.extend(state.keys().next().map(|tree| Remove { tree: *tree }));
        operations.extend([
            Create { tree: b'y' },
            Put {
                tree: b'y',
                slot: 0,
                bytes: 40,
                value: 74,
            },
            Reopen,
        ]);
        operations
    }
}

fn put(slot: usize, bytes: usize, value: u64) -> Operation {
    Put {
        tree: b'a',
        slot,
        bytes,
        value,
    }
}

/// Makes a tree, opens slabs of two classes and a span, frees, reuses, closes and opens.
fn script() -> Vec<Operation> {
    vec![
        Create { tree: b'a' },
        put(0, 40, 1),
        put(1, 4096, 2),
        put(0, 40, 3),
        Clear {
            tree: b'a',
            slot: 1,
        },
        put(1, 70_000, 4),
        Reopen,
        put(2, 48, 5),
        put(1, 4096, 6),
        Create { tree: b'b' },
        Put {
            tree: b'b',
            slot: 3,
            bytes: 1024,
            value: 7,
        },
        Remove { tree: b'a' },
        Reopen,
        Rename {
            tree: b'b',
            name: b'c',
        },
        Create { tree: b'd' },
        Reopen,
        Rename {
            tree: b'd',
            name: b'a',
        },
        Encode {
            tree: b'a',
            number: 1,
        },
        Encode {
            tree: b'c',
            number: 2,
        },
        Reopen,
        Encode {
            tree: b'a',
            number: 3,
        },
    ]
}

fn explore(options: ExplorationOptions, operations: &[Operation]) -> Result<Stats, String> {
    let options = ExplorationOptions {
        command: "cargo test -p everleaf-sim --test models pool_protocol::".to_owned(),
        ..options
    };
    let mut explorer = Explorer::new(PoolProtocol, options).unwrap();
    let result = explorer.explore(operations);
    result
        .map(|()| explorer.stats())
        .map_err(|failure| failure.to_string())
}

#[test]
fn the_pool_s_protocol_survives_crashes_at_every_point() {
    let forms = [LineForm::Single, LineForm::Twin];
    let media = [Rules::Lines, Rules::Log, Rules::PersistentCaches];
    for (line_form, rules) in forms
        .into_iter()
        .flat_map(|form| media.map(|rules| (form, rules)))
    {
        let options = ExplorationOptions {
            line_form,
            rules,
            images: Images::All,
            second_crash: SecondCrash::InRecovery,
            ..ExplorationOptions::default()
        };
        let stats = explore(options, &script()).unwrap_or_else(|report| panic!("{report}"));
        println!("{line_form:?}, {rules:?}: {stats}");
        assert!(stats.points > 50 && stats.cut_short == 0);
    }
}

/// A tree whose creation was acknowledged is there, and one whose removal was acknowledged is not;
/// on a file as well.
#[test]
fn the_waits_for_a_tree_that_is_made_or_removed_are_missed() {
    let options = ExplorationOptions {
        rules: Rules::Log,
        shrink: false,
        ..ExplorationOptions::default()
    };
    let mut explorer = Explorer::new(PoolProtocol, options.clone()).unwrap();
    explorer.sim().start_census();
    explorer
        .explore(&script())
        .unwrap_or_else(|failure| panic!("{failure}"));
    let is_here = |(kind, site): &(SiteKind, Site)| {
        *kind == SiteKind::Wait && site.file.ends_with("pool/src/roots.rs")
    };
    let waits: Vec<_> = explorer
        .sim()
        .census()
        .into_keys()
        .filter(is_here)
        .collect();
    assert_eq!(waits.len(), 2);
    for (_, site) in waits {
        let options = ExplorationOptions {
            mutations: vec![Mutation::DropWait(site)],
            ..options.clone()
        };
        let report = explore(options, &script()).expect_err("a missing wait that was not noticed");
        println!("{report}");
    }
}

/// Leaves out each fence of a file in turn: a crash must show that it is missing.
#[track_caller]
fn expect_fences_to_be_missed(file: &str, script: &[Operation]) {
    let options = ExplorationOptions {
        images: Images::All,
        shrink: false,
        ..ExplorationOptions::default()
    };
    let mut explorer = Explorer::new(PoolProtocol, options.clone()).unwrap();
    explorer.sim().start_census();
    explorer
        .explore(script)
        .unwrap_or_else(|failure| panic!("{failure}"));
    let is_here =
        |(kind, site): &(SiteKind, Site)| *kind == SiteKind::Fence && site.file.ends_with(file);
    let fences: Vec<_> = explorer
        .sim()
        .census()
        .into_keys()
        .filter(is_here)
        .collect();
    assert!(!fences.is_empty());
    for (_, site) in fences {
        let options = ExplorationOptions {
            mutations: vec![Mutation::DropFence(site)],
            ..options.clone()
        };
        let report = explore(options, script)
            .expect_err(&format!("a missing fence that was not noticed: {site:?}"));
        println!("{report}");
    }
}

#[test]
fn the_fences_of_a_rename_are_missed() {
    let script = [
        Create { tree: b'a' },
        put(0, 40, 1),
        Rename {
            tree: b'a',
            name: b'c',
        },
        Create { tree: b'd' },
        Remove { tree: b'c' },
    ];
    expect_fences_to_be_missed("pool/src/roots.rs", &script);
}

#[test]
fn the_fences_of_a_change_of_encodings_are_missed() {
    let script = [
        Create { tree: b'a' },
        put(0, 40, 1),
        Encode {
            tree: b'a',
            number: 1,
        },
        Create { tree: b'd' },
        Remove { tree: b'a' },
    ];
    expect_fences_to_be_missed("pool/src/roots.rs", &script);
}

#[test]
fn the_fence_of_a_new_page_of_the_root_table_is_missed() {
    expect_fences_to_be_missed("pool/src/roots/pages.rs", &many_trees());
}

/// As many trees as the root table's part of the pool's first slab has room for, over space that
/// held other bytes; then trees in a page.
fn many_trees() -> Vec<Operation> {
    let mut operations = vec![Create { tree: b'a' }];
    for slot in 0..4 {
        operations.push(put(slot, 60_000, slot as u64));
    }
    for slot in 0..4 {
        operations.push(Clear { tree: b'a', slot });
    }
    for tree in 1..23 {
        operations.push(Create { tree });
    }
    operations.extend([
        Rename {
            tree: 22,
            name: b'c',
        },
        Remove { tree: 21 },
        Reopen,
        Create { tree: b'd' },
        Rename {
            tree: 1,
            name: b'e',
        },
    ]);
    operations
}

#[test]
fn a_root_table_that_grows_survives_crashes_at_every_point() {
    for rules in [Rules::Lines, Rules::Log] {
        let options = ExplorationOptions {
            rules,
            images: Images::All,
            ..ExplorationOptions::default()
        };
        let stats = explore(options, &many_trees()).unwrap_or_else(|report| panic!("{report}"));
        println!("{rules:?}: {stats}");
        assert!(stats.points > 50 && stats.cut_short == 0);
    }
}

/// The space is that of spans and slabs; free space at the end of the file is used again.
fn releasing(early: bool) -> Vec<Operation> {
    let release = |slot| Release {
        tree: b'a',
        slot,
        early,
    };
    vec![
        Create { tree: b'a' },
        put(1, 70_000, 2),
        put(0, 4096, 1),
        release(1),
        put(2, 48, 3),
        release(0),
        Compact,
        put(1, 70_000, 4),
        Clear {
            tree: b'a',
            slot: 1,
        },
        Compact,
        Reopen,
        put(1, 4096, 5),
        Compact,
    ]
}

#[test]
fn room_that_is_given_back_is_out_of_use_after_every_crash() {
    for rules in [Rules::Lines, Rules::Log, Rules::PersistentCaches] {
        let second_crash = SecondCrash::InRecovery;
        let options = ExplorationOptions {
            rules,
            images: Images::All,
            second_crash,
            ..ExplorationOptions::default()
        };
        let stats = explore(options, &releasing(false)).unwrap_or_else(|report| panic!("{report}"));
        println!("{rules:?}: {stats}");
        assert!(stats.points > 30 && stats.cut_short == 0);
    }
}

#[test]
fn room_that_is_given_back_too_early_is_missed() {
    let options = ExplorationOptions {
        images: Images::All,
        shrink: false,
        ..ExplorationOptions::default()
    };
    let report =
        explore(options, &releasing(true)).expect_err("an early release that was not noticed");
    assert!(report.contains("is damaged"), "{report}");
}

#[test]
fn creation_survives_every_pair_of_crashes() {
    let options = ExplorationOptions {
        images: Images::All,
        second_crash: SecondCrash::InRecovery,
        ..ExplorationOptions::default()
    };
    let stats = explore(options, &script()[..2]).unwrap_or_else(|report| panic!("{report}"));
    println!("{stats}");
    assert!(stats.second_points > 20 && stats.cut_short == 0);
}
