//! The reads that the methods of a [`View`](crate::View) are made of.

use engines::Result;
use engines::index::{Bounds, Direction, Scan, Value};
use medium::Lsn;

use crate::Tree;
use crate::sealed::Sealed;

/// The reads of a [`View`](crate::View). Only this crate implements it.
#[doc(hidden)]
pub trait ViewReads: Sealed + Sync {
    /// The value of a key.
    fn read(&self, tree: &Tree, key: &[u8]) -> Result<Option<Value>>;

    /// The values of many keys.
    fn read_many(&self, tree: &Tree, keys: &[&[u8]]) -> Result<Vec<Option<Value>>>;

    /// The entries of a range. The caller waits for their LSNs by [`ViewReads::wait_for`].
    fn cursor<'v>(
        &'v self,
        tree: &'v Tree,
        bounds: Bounds,
        direction: Direction,
    ) -> Result<Box<dyn Scan + 'v>>;

    /// Waits for what was read, unless that comes later.
    fn wait_for(&self, tree: &Tree, lsn: Lsn) -> Result<()>;
}
