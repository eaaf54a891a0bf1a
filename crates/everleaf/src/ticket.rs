//! Writes that are under way.

use std::sync::Arc;

use engines::Result;
use engines::index::{Epochs, Index};
use medium::Lsn;

use crate::store::Inner;

/// A write that may not be durable yet, to be waited for. Dropping a ticket does not wait; the write becomes durable all the
/// same, with a later sync. Like a tree, a ticket keeps its store open.
#[derive(Clone)]
pub struct Ticket {
    lsn: Lsn,
    // Dropped before the store.
    epoch: Option<(Arc<dyn Index>, u64)>,
    store: Arc<Inner>,
}

impl Ticket {
    /// Of a write, to this tree in this epoch if it is durable by epochs.
    pub(crate) fn new(lsn: Lsn, epoch: Option<(Arc<dyn Index>, u64)>, store: &Arc<Inner>) -> Self {
        Self { lsn, epoch, store: Arc::clone(store) }
    }

    /// Whether the epoch of the write is complete, if it has one.
    fn is_complete(&self) -> bool {
        let epochs = self.epoch.as_ref().and_then(|(tree, epoch)| Some((tree.epochs()?, *epoch)));
        epochs.is_none_or(|(epochs, epoch)| epochs.is_durable(epoch))
    }

    /// The place of the write in the order of durability: of two tickets of a store, that with the lower number is
    /// durable no later. 0 on media where a write is durable at once.
    pub fn lsn(&self) -> u64 {
        self.lsn.0
    }

    /// Whether the write is durable already. With trees that are durable by epochs
    /// ([`Engine::is_buffered`](crate::Engine::is_buffered)): whether the epoch that ran when it returned is complete and durable.
    /// O(1), no system call.
    pub fn is_durable(&self) -> bool {
        self.store.durable() >= self.lsn && self.is_complete()
    }

    /// Returns when the write is durable, whatever the store's [`Durability`](crate::Durability). The thread that
    /// waits may do the sync for all that wait. With trees that are durable by epochs
    /// ([`Engine::is_buffered`](crate::Engine::is_buffered)) it ends the epoch of the write, unless that has ended.
    ///
    /// # Errors
    /// [`Error::Medium`](crate::Error::Medium) if the medium failed: then it is not known whether the write is durable;
    /// [`Error::InBatch`](crate::Error::InBatch) within a batch.
    pub fn wait(&self) -> Result<()> {
        if !self.is_complete() {
            let epochs = self.epoch.as_ref().and_then(|(tree, _)| tree.epochs());
            epochs.map_or(Ok(()), Epochs::sync).map_err(|error| self.store.name_path(error))?;
        }
        self.store.settle(self.lsn)
    }

    /// Returns when all of the writes are durable: one sync, if they are of one store.
    ///
    /// # Errors
    /// The first error of [`Ticket::wait`].
    pub fn wait_all(tickets: impl IntoIterator<Item = Self>) -> Result<()> {
        let mut tickets: Vec<Self> = tickets.into_iter().collect();
        // A wait for the last one makes the others durable.
        tickets.sort_by_key(|ticket| std::cmp::Reverse(ticket.lsn));
        tickets.iter().try_for_each(Self::wait)
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ticket").field("lsn", &self.lsn.0).finish_non_exhaustive()
    }
}
