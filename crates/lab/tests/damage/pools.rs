//! The pools that are damaged.

use std::path::{Path, PathBuf};

use engines::engine::Engine;
use everleaf::{CodecKind, MediumChoice, Options, Result, TreeOptions};
use everleaf_lab::testing::damage::{DamageFindings, TreeContent, content, examine, make};
use tempfile::TempDir;

use super::Damage;

/// How a pool is made.
#[derive(Clone, Copy)]
pub(crate) enum PoolKind {
    /// 20,000 entries of many lengths, written in random order, replaced and removed meanwhile.
    Mixed { seed: u64 },
    /// 20,000 entries of 16 bytes; twice as many were removed.
    Thinned,
    /// 5,000 entries of 16 bytes.
    Small,
}

/// Entries of [`PoolKind::Thinned`].
pub(crate) const THINNED: usize = 20_000;
/// Entries of [`PoolKind::Small`].
pub(crate) const SMALL: usize = 5_000;

/// A pool with one tree, closed cleanly.
pub(crate) struct Ground {
    _folder: TempDir,
    path: PathBuf,
    /// The bytes before the damage.
    pub(crate) bytes: Vec<u8>,
    /// The entries of the tree.
    pub(crate) content: TreeContent,
}

impl Ground {
    pub(crate) fn new(engine: Engine, kind: PoolKind) -> Self {
        // The folder lies in memory, if that is possible: a disk would sync at each open.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        }
        .unwrap();
        let path = folder.path().join("a.pool");
        let options = TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        };
        let content = match kind {
            PoolKind::Mixed { seed } => {
                let content = content(CodecKind::Record, seed);
                make(&path, options, MediumChoice::Dax, &content, seed).unwrap();
                content
            }
            PoolKind::Thinned => numbered(&path, options, THINNED, 2 * THINNED).unwrap(),
            PoolKind::Small => numbered(&path, options, SMALL, 0).unwrap(),
        };
        let bytes = std::fs::read(&path).unwrap();
        Self {
            _folder: folder,
            path,
            bytes,
            content,
        }
    }

    /// The word at an offset.
    pub(crate) fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    /// Damages a copy of the pool, and examines it.
    pub(crate) fn examine(&self, damage: Damage) -> DamageFindings {
        let mut bytes = self.bytes.clone();
        damage.do_to(&mut bytes);
        std::fs::write(&self.path, bytes).unwrap();
        examine(&self.path, MediumChoice::Dax, &self.content)
    }
}

/// Makes a pool whose keys and values are numbers. As many more entries as `removed` were written,
/// and removed again.
fn numbered(path: &Path, options: TreeOptions, kept: usize, removed: usize) -> Result<TreeContent> {
    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let kept = kept as u64;
    let all = kept + removed as u64;
    let store = Options::new().medium(MediumChoice::Dax).open(path)?;
    let tree = store.tree_with("t", options)?;
    for number in 0..all {
        tree.put(key(number), number.to_be_bytes())?;
    }
    for number in kept..all {
        assert!(tree.remove(key(number))?);
    }
    drop(tree);
    store.close()?;
    let entry = |number: u64| (key(number).to_vec(), number.to_be_bytes().to_vec());
    Ok((0..kept).map(entry).collect())
}
