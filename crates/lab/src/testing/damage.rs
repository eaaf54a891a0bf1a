//! Damage to one place of a pool: whether it is noticed, and which entries a salvage saves.
//!
//! A pool is made once. Each round then damages a copy of it, in a place that follows from seed and
//! round alone, and examines the copy: [`examine`] opens it, reads all of it in several ways, checks
//! it and salvages it.

mod reads;

use std::collections::BTreeMap;
use std::path::Path;

use everleaf::{
    CodecKind, ErrorKind, LeftOut, MediumChoice, Options, Part, Result, Store, TreeOptions,
};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::bench::KeyShape;

pub use reads::{ReadFindings, ReadKind, SilentKeys};

/// Entries of the tree.
pub const ENTRIES: usize = 20_000;
/// Entries that were there for a while, and must not come back.
const REMOVED: usize = 1_000;
/// One place in this many lies in the first slabs, with the header, the root table and the first
/// nodes.
const OF_FIRST_SLABS: u32 = 8;
const FIRST_SLABS: usize = 256 << 10;
const LINE: usize = 64;
const PAGE: usize = 4096;
const TREE: &str = "t";

/// The entries of a tree.
pub type TreeContent = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys of 1 to 60 bytes, some of which begin with the same bytes; values of 0 to 120 bytes, some
/// of 8, a few longer. In a tree of words any numbers.
#[must_use]
pub fn content(codec: CodecKind, seed: u64) -> TreeContent {
    let mut random = StdRng::seed_from_u64(seed);
    let mut content = TreeContent::new();
    while content.len() < ENTRIES {
        let number: u64 = random.random();
        let key = match random.random_range(0..4) {
            _ if codec == CodecKind::Word => number.to_be_bytes().to_vec(),
            0 => number.to_be_bytes().to_vec(),
            1 => format!("{:x}", number >> random.random_range(0..48)).into_bytes(),
            2 => format!("user/{:03}/name/{number}", number % 200).into_bytes(),
            _ => format!(
                "a key that begins as many others do: {:05x}",
                number % 0xf_ffff
            )
            .into_bytes(),
        };
        content.insert(key, value(codec, &mut random));
    }
    content
}

/// The same number of entries in a tree of records, with keys of one shape.
#[must_use]
pub fn content_of_shape(shape: KeyShape, seed: u64) -> TreeContent {
    let mut random = StdRng::seed_from_u64(seed);
    let mut content = TreeContent::new();
    for index in 0..ENTRIES as u64 {
        let key = shape.key(shape.word(index, seed)).to_vec();
        content.insert(key, value(CodecKind::Record, &mut random));
    }
    content
}

fn value(codec: CodecKind, random: &mut StdRng) -> Vec<u8> {
    let length = match random.random_range(0..20) {
        _ if codec == CodecKind::Word => 8,
        0 => random.random_range(0..2000),
        1..5 => 8,
        _ => random.random_range(0..120),
    };
    (0..length).map(|_| random.random()).collect()
}

/// The key of an entry that was there for a while.
fn removed_key(codec: CodecKind, index: usize) -> Vec<u8> {
    match codec {
        CodecKind::Word => (index as u64).to_be_bytes().to_vec(),
        _ => format!("removed {index}").into_bytes(),
    }
}

fn options(medium: MediumChoice) -> Options {
    // Epochs end at fixed places, so that a seed makes the same pool again.
    Options::new()
        .verify(true)
        .medium(medium)
        .engines(crate::ENGINES)
        .manual_epochs()
        .recovery_threads(1)
        .log_bytes(1 << 20)
}

/// Makes a pool with a tree of this content. It was written in random order; entries were
/// overwritten and removed meanwhile.
///
/// # Errors
/// Those of the store.
pub fn make(
    path: &Path,
    kind: TreeOptions,
    medium: MediumChoice,
    content: &TreeContent,
    seed: u64,
) -> Result<()> {
    let store = options(medium).open(path)?;
    let tree = store.tree_with(TREE, kind)?;
    let codec = kind.codec;
    let mut random = StdRng::seed_from_u64(seed);
    let mut entries: Vec<_> = content.iter().collect();
    entries.shuffle(&mut random);
    for (index, (key, final_value)) in entries.iter().enumerate() {
        if index % 8 == 0 {
            tree.put(key, value(codec, &mut random))?;
        }
        if index < REMOVED {
            tree.put(removed_key(codec, index), value(codec, &mut random))?;
        }
        if index % 1000 == 0 {
            store.sync()?;
        }
        tree.put(key, final_value)?;
    }
    for index in 0..REMOVED {
        tree.remove(removed_key(codec, index))?;
    }
    drop(tree);
    Ok(store.close()?)
}

/// The kinds of damage.
pub const KINDS: [&str; 6] = ["bit", "byte", "word", "line", "page", "swap"];

/// A damage that was done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Damage {
    /// One of [`KINDS`].
    pub kind: String,
    /// Where, in the file.
    pub offset: usize,
}

/// Damages one place of a pool: most often one that has something in it.
pub fn damage(bytes: &mut [u8], seed: u64, round: u64) -> Damage {
    let mut random = StdRng::seed_from_u64(seed ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // Half of the damages are bits, because these show how much is saved.
    let kind = if random.random() {
        0
    } else {
        random.random_range(1..KINDS.len())
    };
    let end = if random.random_ratio(1, OF_FIRST_SLABS) {
        FIRST_SLABS.min(bytes.len())
    } else {
        bytes.len()
    };
    let mut place = || {
        let tried = std::iter::repeat_with(|| random.random_range(0..end)).take(64);
        let used = |at: &usize| {
            bytes[at / 8 * 8..(at / 8 * 8 + 8).min(end)]
                .iter()
                .any(|byte| *byte != 0)
        };
        tried.into_iter().find(used).unwrap_or(0)
    };
    let at = place();
    let other = place();
    let line = at / LINE * LINE;
    let other = other / LINE * LINE;
    let offset = match kind {
        0 => {
            bytes[at] ^= 1 << random.random_range(0..8);
            at
        }
        1 => {
            bytes[at] ^= random.random_range(1..=255_u8);
            at
        }
        2 => {
            random.fill(&mut bytes[at / 8 * 8..][..8]);
            at / 8 * 8
        }
        3 => {
            random.fill(&mut bytes[line..][..LINE]);
            line
        }
        4 => {
            let start = at / PAGE * PAGE;
            let end = (start + PAGE).min(bytes.len());
            bytes[start..end].fill(0);
            start
        }
        _ => {
            (0..LINE).for_each(|byte| bytes.swap(line + byte, other + byte));
            line
        }
    };
    Damage {
        kind: KINDS[kind].to_owned(),
        offset,
    }
}

/// The observations of a damaged pool.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct DamageFindings {
    /// The first report of the open, the check or the reads.
    pub found: Option<String>,
    /// The first report of the check.
    pub check: Option<String>,
    /// The results of the reads, which come before the check; nothing if the pool does not open.
    pub reads: ReadFindings,
    /// Whether all entries were read, and none else.
    pub is_intact: bool,
    /// Entries that the salvage saved as they were stored.
    pub saved: usize,
    /// Entries that the salvage returned, and that are not in the tree.
    pub wrong: usize,
    /// Damages that the salvage reported.
    pub left_out: usize,
    /// Those of them that are entries or nodes.
    pub named: usize,
    /// Whether the salvage could be done.
    pub is_salvaged: bool,
}

impl DamageFindings {
    /// Whether nothing reported damage, and yet the salvage did not save all, or reported some.
    #[must_use]
    pub fn is_sound_but_not_saved(&self) -> bool {
        self.found.is_none()
            && self.is_intact
            && (self.saved < ENTRIES || self.wrong + self.left_out > 0)
    }

    /// Whether the check reported nothing, and yet a read failed.
    #[must_use]
    pub fn is_missed_by_check(&self) -> bool {
        self.check.is_none() && self.reads.errors > 0
    }

    /// Whether the check reported nothing, and yet reads missed keys.
    #[must_use]
    pub fn are_missed_keys_unchecked(&self) -> bool {
        self.check.is_none() && self.reads.missed.keys > 0
    }
}

/// Examines a pool.
#[must_use]
pub fn examine(path: &Path, medium: MediumChoice, content: &TreeContent) -> DamageFindings {
    let mut seen = DamageFindings::default();
    match options(medium).create(false).open(path) {
        Ok(store) => look_at(&store, content, &mut seen),
        Err(error) => seen.found = Some(format!("open: {error}")),
    }
    seen
}

/// Reads the tree of a store in all ways.
fn read(store: &Store, content: &TreeContent) -> ReadFindings {
    match store.open_tree(TREE) {
        Ok(tree) => reads::read_all(&tree, content),
        Err(error) if matches!(error.kind(), ErrorKind::NoSuchTree { .. }) => {
            ReadFindings::without_tree(content)
        }
        Err(error) => ReadFindings::unopened(&error),
    }
}

/// Returns the first report of the check.
fn check(store: &Store) -> Option<String> {
    match store.check() {
        Ok(violations) => violations.first().map(ToString::to_string),
        Err(error) => Some(error.to_string()),
    }
}

fn look_at(store: &Store, content: &TreeContent, seen: &mut DamageFindings) {
    seen.reads = read(store, content);
    seen.is_intact = seen.reads.are_right();
    seen.check = check(store);
    seen.found = match (&seen.check, &seen.reads.first_error) {
        (Some(violation), _) => Some(format!("check: {violation}")),
        (None, Some(error)) => Some(format!("read: {error}")),
        (None, None) => None,
    };
    let salvaged = store.salvage(TREE, |key, value| {
        let is_stored = content.get(key).is_some_and(|stored| stored == value);
        if is_stored {
            seen.saved += 1;
        } else {
            seen.wrong += 1;
        }
        true
    });
    match salvaged {
        Ok(left_out) => {
            let is_named = |left_out: &&LeftOut| left_out.part != Part::Unknown;
            seen.is_salvaged = true;
            seen.left_out = left_out.len();
            seen.named = left_out.iter().filter(is_named).count();
        }
        Err(_) => seen.left_out = 1,
    }
}
