//! Damage to one place of a pool: nothing is silent in a tree of records, and one flipped bit costs
//! no more than a leaf's entries.

use std::path::{Path, PathBuf};

use engines::engine::Engine;
use everleaf::{Codec, MediumChoice, TreeOptions};
use everleaf_lab::testing::damage::{Content, ENTRIES, Seen, content, damage, examine, make};
use medium::testing::stride;
use tempfile::TempDir;

const SEED: u64 = 3;
/// Where the root table begins, with the slot of the only tree, and its words.
const SLOT: usize = 0x3000;
const SLOT_WORDS: usize = 29;
const FIRST_ROOT: usize = 18;
/// The least that is to be saved after one flipped bit.
const SAVED_MIN: usize = 19_900;

struct Ground {
    _folder: TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
    content: Content,
}

impl Ground {
    fn new(engine: Engine) -> Self {
        Self::of_seed(engine, SEED)
    }

    fn of_seed(engine: Engine, seed: u64) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        }
        .unwrap();
        let path = folder.path().join("a.pool");
        let content = content(Codec::Record, seed);
        let kind = TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        };
        make(&path, kind, MediumChoice::Dax, &content, seed).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        Self {
            _folder: folder,
            path,
            bytes,
            content,
        }
    }

    fn examine(&self, bytes: &[u8]) -> Seen {
        std::fs::write(&self.path, bytes).unwrap();
        examine(&self.path, MediumChoice::Dax, &self.content)
    }

    /// Flips a bit, and expects that nothing is silent and that enough is saved.
    fn flip(&self, engine: Engine, at: usize, bit: usize) {
        let mut bytes = self.bytes.clone();
        bytes[at] ^= 1 << bit;
        let seen = self.examine(&bytes);
        let what = format!("{engine}: bit {bit} of the byte at {at:#x}: {seen:?}");
        assert!(seen.is_intact || seen.found.is_some(), "{what}");
        // One entry may be an older one: a line that is kept twice has its other copy, and a
        // damaged offset may lead to a record that was replaced.
        assert!(seen.saved >= SAVED_MIN && seen.wrong <= 1, "{what}");
    }
}

#[test]
fn a_sound_pool_is_read_and_saved_as_it_is() {
    for engine in Engine::ALL {
        let ground = Ground::new(*engine);
        let seen = ground.examine(&ground.bytes.clone());
        assert!(seen.is_intact && seen.found.is_none(), "{engine}: {seen:?}");
        assert_eq!(
            (seen.saved, seen.wrong, seen.left_out),
            (ENTRIES, 0, 0),
            "{engine}"
        );
    }
}

/// A damage of several bytes may pass a check of few bits, which is rare: `cargo xtask damage`
/// counts.
#[test]
fn no_damage_is_silent_and_what_is_sound_is_saved() {
    for engine in Engine::ALL {
        let ground = Ground::new(*engine);
        let mut silent = Vec::new();
        for round in (0..60).step_by(stride(3)) {
            let mut bytes = ground.bytes.clone();
            let done = damage(&mut bytes, SEED, round);
            let seen = ground.examine(&bytes);
            let is_silent = !seen.is_intact && seen.found.is_none();
            if is_silent || seen.is_sound_but_not_saved() || seen.is_missed_by_check {
                silent.push(format!("round {round}, {done:?}: {seen:?}"));
            }
        }
        assert!(silent.is_empty(), "{engine}: {silent:?}");
    }
}

/// In this round the inner nodes lead a check back to leaves that it has seen.
#[test]
fn a_check_of_leaves_that_do_not_ascend_ends() {
    let seed = 1;
    let round = 1027;
    let ground = Ground::of_seed(Engine::RNTREE, seed);
    let mut bytes = ground.bytes.clone();
    let done = damage(&mut bytes, seed, round);
    let seen = ground.examine(&bytes);
    assert!(seen.found.is_some(), "{done:?}: {seen:?}");
}

/// The slot of the root table, and the first lines of what it leads to: of `rntree` the first leaf,
/// of others the anchor or the root.
#[test]
fn a_flipped_bit_where_all_begins_costs_a_leaf_at_most() {
    for engine in Engine::ALL {
        let ground = Ground::new(*engine);
        let word = |at: usize| u64::from_le_bytes(ground.bytes[at..][..8].try_into().unwrap());
        let first = (word(SLOT + 8 * FIRST_ROOT) & ((1 << 48) - 1)) as usize;
        let slot = (0..SLOT_WORDS).map(|word| SLOT + 8 * word);
        let lines = (0..16).map(|word| first + 8 * word);
        for (number, at) in slot.chain(lines).enumerate().step_by(stride(5)) {
            ground.flip(*engine, at + number % 6, number % 8);
        }
    }
}

/// Offsets that lead from node to node: words whose lower bits are the offset of some line in use.
#[test]
fn a_flipped_bit_in_what_leads_to_nodes_costs_a_leaf_at_most() {
    for engine in Engine::ALL {
        let ground = Ground::new(*engine);
        let is_offset = |at: &usize| {
            let word = u64::from_le_bytes(ground.bytes[*at..][..8].try_into().unwrap());
            let offset = word & ((1 << 48) - 64);
            (1 << 16..ground.bytes.len() as u64).contains(&offset)
                && ground.bytes[offset as usize..][..64] != [0; 64]
        };
        let places: Vec<usize> = (1 << 16..ground.bytes.len())
            .step_by(8)
            .filter(is_offset)
            .collect();
        for (number, at) in places
            .iter()
            .step_by(places.len() / 40)
            .enumerate()
            .step_by(stride(3))
        {
            ground.flip(*engine, *at + 1, number % 8);
        }
    }
}
