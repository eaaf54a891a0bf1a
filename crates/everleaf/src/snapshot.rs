//! Snapshots: a store as of one moment.

use std::sync::Arc;

use engines::Result;
use engines::index::{Bounds, Direction, Observed, Scan, Value};
use engines::versions::StoreView;
use medium::Lsn;

use crate::open_store::SharedStore;
use crate::sealed::Sealed;
use crate::view_reads::ViewReads;
use crate::{Store, Tree, View};

/// All trees of a store as of one moment: that of [`Store::snapshot`]. The methods of [`View`] read
/// it.
///
/// A write, a batch or a transaction is in a snapshot wholly or not at all, over trees of different
/// engines. Writers do not wait for a snapshot, and it does not wait for them. Cheap to clone; any
/// thread may use it. It keeps the store open.
///
/// ```
/// use everleaf::{Batch, View};
///
/// # let store = everleaf::Store::in_memory()?;
/// let stock = store.tree("stock")?;
/// let orders = store.tree("orders")?;
/// stock.put("apple", "12")?;
///
/// let before = store.snapshot()?;
/// let mut order = Batch::new();
/// order.put(&stock, "apple", "9").put(&orders, "order 1", "3 apples");
/// store.write(&order)?;
///
/// assert_eq!(before.get(&stock, "apple")?.as_deref(), Some(b"12".as_slice()));
/// assert!(before.first(&orders)?.is_none());
/// assert!(store.snapshot()?.contains(&orders, "order 1")?);
/// # Ok::<(), everleaf::Error>(())
/// ```
///
/// What is written after a snapshot was opened costs memory until it is dropped: the old value of
/// each key that changes, once. A tree that was made later is empty in it. A tree cannot be dropped
/// or renamed while a snapshot is open.
///
/// With trees that are durable by epochs ([`Engine::is_buffered`](crate::Engine::is_buffered)) a
/// crash may take back what a snapshot has read, as for any other read of them.
#[derive(Clone)]
pub struct Snapshot {
    shared: Arc<SharedSnapshot>,
}

struct SharedSnapshot {
    // Dropped before the store.
    view: StoreView,
    store: SharedStore,
}

impl Store {
    /// Opens a snapshot of the store as it is now: it has every write that has returned. Waits for
    /// the writes that are under way. O(trees) if no snapshot and no transaction was open for a
    /// second, else O(1).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::View;
    ///
    /// let stock = store.tree("stock")?;
    /// let before = store.snapshot()?;
    /// stock.put("apple", "12")?;
    /// let orders = store.tree("orders")?; // a tree that the snapshot does not have
    /// orders.put("order 1", "3 apples")?;
    /// assert!(!before.contains(&stock, "apple")?);
    /// assert_eq!(before.iter(&orders).count(), 0);
    /// assert!(store.snapshot()?.contains(&orders, "order 1")?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::BatchUnfinished`](crate::ErrorKind::BatchUnfinished);
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    #[track_caller]
    pub fn snapshot(&self) -> Result<Snapshot> {
        let view = self.at(self.inner.open_view())?;
        Ok(Snapshot {
            shared: Arc::new(SharedSnapshot {
                view,
                store: self.inner.clone(),
            }),
        })
    }
}

impl Snapshot {
    fn answer<T>(&self, tree: &Tree, found: Result<Observed<T>>) -> Result<T> {
        let found = tree.at(found)?;
        tree.wait_for(found.lsn)?;
        Ok(found.value)
    }
}

impl View for Snapshot {}

impl Sealed for Snapshot {}

impl ViewReads for Snapshot {
    fn read(&self, tree: &Tree, key: &[u8]) -> Result<Option<Value>> {
        tree.expect_of(&self.shared.store)?;
        self.answer(tree, tree.striped().read_at(&self.shared.view, key))
    }

    fn read_many(&self, tree: &Tree, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        tree.expect_of(&self.shared.store)?;
        self.answer(tree, tree.striped().read_many_at(&self.shared.view, keys))
    }

    fn cursor<'v>(
        &'v self,
        tree: &'v Tree,
        bounds: Bounds,
        direction: Direction,
    ) -> Result<Box<dyn Scan + 'v>> {
        tree.expect_of(&self.shared.store)?;
        tree.striped()
            .cursor_at(&self.shared.view, bounds, direction)
    }

    fn wait_for(&self, tree: &Tree, lsn: Lsn) -> Result<()> {
        tree.wait_for(lsn)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("Snapshot")
            .field(&self.shared.view)
            .finish()
    }
}
