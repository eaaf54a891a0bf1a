//! Ranges over keys that have changed.

use medium::{Dax, Process};

use super::*;
use crate::versions::{OldValue, Versions};

/// A tree from which all keys were removed.
struct NoEntries;

impl Scan for NoEntries {
    fn advance(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        (&[], &[])
    }

    fn lsn(&self) -> Lsn {
        Lsn::DURABLE
    }
}

/// A range has only some of the old values in memory, however many there are.
#[test]
fn the_changes_behind_the_last_entry_are_read_in_several_steps() {
    let tree = TreeVersions::of_existing(&Versions::new::<Dax>(usize::MAX, Process::current()));
    let view = tree.store().open().unwrap();
    let keys: Vec<[u8; 2]> = (0..1000_u16).map(u16::to_be_bytes).collect();
    for key in &keys {
        let old = || OldValue::of(Ok(Observed::durable(Some(Value::from_slice(key)))));
        drop(tree.store().record_write(&tree, key, old).unwrap());
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        let beneath = Box::new(NoEntries);
        let mut scan = ViewScan::new(&view, &tree, beneath, Bounds::all(), direction);
        let mut found = Vec::new();
        while scan.advance().unwrap() {
            assert!(scan.changes.len() < CHANGES_AT_ONCE);
            found.push(scan.entry().0.to_vec());
        }
        if direction == Direction::Reverse {
            found.reverse();
        }
        assert!(found.iter().eq(&keys), "{} keys", found.len());
    }
}
