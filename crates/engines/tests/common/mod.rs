//! Functions for the tests of damage.

use everleaf_engines::Error;
use everleaf_engines::index::{Bounds, Direction, Index};

pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// All entries, in ascending order.
pub(crate) fn content(tree: &dyn Index) -> Result<Entries, Error> {
    let mut scan = tree.range(Bounds::all(), Direction::Forward)?;
    let mut key = Vec::new();
    let mut value = Vec::new();
    let mut entries = Vec::new();
    while scan.next_into(&mut key, &mut value)? {
        entries.push((key.clone(), value.clone()));
        assert!(entries.len() < 10_000, "a scan that does not end");
    }
    Ok(entries)
}
