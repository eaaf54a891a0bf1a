//! Writes that are under way.

use std::sync::Arc;

use engines::Result;
use medium::Lsn;

use crate::store::Inner;

/// A write that may not be durable yet, to be waited for. Dropping a ticket does not wait; the write becomes durable all the
/// same, with a later sync. Like a tree, a ticket keeps its store open.
#[derive(Clone)]
pub struct Ticket {
    lsn: Lsn,
    store: Arc<Inner>,
}

impl Ticket {
    pub(crate) fn new(lsn: Lsn, store: &Arc<Inner>) -> Self {
        Self { lsn, store: Arc::clone(store) }
    }

    /// The place of the write in the order of durability: of two tickets of a store, that with the lower number is
    /// durable no later. 0 on media where a write is durable at once.
    pub fn lsn(&self) -> u64 {
        self.lsn.0
    }

    /// Whether the write is durable already. O(1), no system call.
    pub fn is_durable(&self) -> bool {
        self.store.durable() >= self.lsn
    }

    /// Returns when the write is durable, whatever the store's [`Durability`](crate::Durability). The thread that
    /// waits may do the sync for all that wait. With trees that are durable by epochs
    /// ([`Engine::is_buffered`](crate::Engine::is_buffered)) it returns at once and promises nothing: use
    /// [`Store::sync`](crate::Store::sync).
    ///
    /// # Errors
    /// [`Error::Medium`](crate::Error::Medium) if the medium failed: then it is not known whether the write is durable.
    pub fn wait(&self) -> Result<()> {
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
