//! Writes that are under way.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use engines::Result;
use engines::index::{Epochs, Index};
use medium::Lsn;
use parking_lot::Mutex;

use crate::store::Inner;

/// A write that may not be durable yet, to be waited for. Dropping a ticket does not wait; the
/// write becomes durable all the same, with a later sync. Like a tree, a ticket keeps its store
/// open.
///
/// A ticket is a future, too, for any executor: a thread of the store waits for all tickets that
/// are awaited.
///
/// ```
/// # let store = everleaf::Store::in_memory()?;
/// # let tree = store.tree("readings")?;
/// let write = async {
///     tree.put_async("monday", "21.5")?.await // other tasks run meanwhile
/// };
/// # assert!(std::pin::pin!(write).poll(&mut Context::from_waker(Waker::noop())).is_ready());
/// # use std::{future::Future, task::{Context, Waker}};
/// # Ok::<(), everleaf::Error>(())
/// ```
pub struct Ticket {
    lsn: Lsn,
    // Dropped before the store.
    epoch: Option<(Arc<dyn Index>, u64)>,
    store: Arc<Inner>,
    /// How the wait goes, once a task has asked.
    awaited: Option<Arc<Mutex<Awaited>>>,
}

/// What a task that awaits a ticket shares with the thread that waits for it.
#[derive(Default)]
struct Awaited {
    result: Option<Result<()>>,
    waker: Option<Waker>,
}

/// Tickets that are awaited. A thread waits for them, and ends when there are none.
#[derive(Default)]
pub(crate) struct AwaitedTickets {
    waiting: Mutex<Vec<(Ticket, Arc<Mutex<Awaited>>)>>,
    /// Whether the thread runs. Changes under the lock of `waiting`.
    is_running: AtomicBool,
}

impl AwaitedTickets {
    /// Has a thread wait for a ticket. If the system gives none, the calling thread waits.
    fn add(ticket: Ticket, awaited: Arc<Mutex<Awaited>>) {
        let store = Arc::clone(&ticket.store);
        let mut waiting = store.awaited.waiting.lock();
        waiting.push((ticket, awaited));
        if !store.awaited.is_running.swap(true, Ordering::Relaxed) {
            let shared = Arc::clone(&store);
            let thread = std::thread::Builder::new().name("everleaf-tickets".to_owned());
            if thread.spawn(move || shared.awaited.wait_for_all()).is_err() {
                drop(waiting);
                store.awaited.wait_for_all();
            }
        }
    }

    fn wait_for_all(&self) {
        loop {
            let mut waiting = self.waiting.lock();
            let mut tickets = std::mem::take(&mut *waiting);
            if tickets.is_empty() {
                self.is_running.store(false, Ordering::Relaxed);
                return;
            }
            drop(waiting);
            // A wait for the last one makes the others durable.
            tickets.sort_by_key(|(ticket, _)| std::cmp::Reverse(ticket.lsn));
            for (ticket, awaited) in tickets {
                let result = ticket.wait();
                drop(ticket);
                let mut awaited = awaited.lock();
                awaited.result = Some(result);
                awaited.waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }
}

impl Clone for Ticket {
    fn clone(&self) -> Self {
        Self {
            lsn: self.lsn,
            epoch: self.epoch.clone(),
            store: Arc::clone(&self.store),
            awaited: None,
        }
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    /// As [`Ticket::wait`], without blocking.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.awaited.is_none() {
            if self.is_durable() {
                return Poll::Ready(Ok(()));
            }
            let awaited = Arc::new(Mutex::new(Awaited::default()));
            awaited.lock().waker = Some(context.waker().clone());
            AwaitedTickets::add(self.clone(), Arc::clone(&awaited));
            self.awaited = Some(awaited);
        }
        let Some(awaited) = &self.awaited else {
            return Poll::Pending;
        };
        let mut awaited = awaited.lock();
        if let Some(result) = awaited.result.take() {
            return Poll::Ready(result);
        }
        awaited.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Ticket {
    /// Of a write, to this tree in this epoch if it is durable by epochs.
    pub(crate) fn new(lsn: Lsn, epoch: Option<(Arc<dyn Index>, u64)>, store: &Arc<Inner>) -> Self {
        Self {
            lsn,
            epoch,
            store: Arc::clone(store),
            awaited: None,
        }
    }

    /// Whether the epoch of the write is complete, if it has one.
    fn is_complete(&self) -> bool {
        let epochs = self
            .epoch
            .as_ref()
            .and_then(|(tree, epoch)| Some((tree.epochs()?, *epoch)));
        epochs.is_none_or(|(epochs, epoch)| epochs.is_durable(epoch))
    }

    /// The place of the write in the order of durability: of two tickets of a store, that with the
    /// lower number is durable no later. 0 on media where a write is durable at once.
    pub fn lsn(&self) -> u64 {
        self.lsn.0
    }

    /// Whether the write is durable already. With trees that are durable by epochs
    /// ([`Engine::is_buffered`](crate::Engine::is_buffered)): whether the epoch that ran when it
    /// returned is complete and durable. O(1), no system call.
    pub fn is_durable(&self) -> bool {
        self.store.durable() >= self.lsn && self.is_complete()
    }

    /// Returns when the write is durable, whatever the store's [`Durability`](crate::Durability).
    /// The thread that waits may do the sync for all that wait. With trees that are durable by
    /// epochs ([`Engine::is_buffered`](crate::Engine::is_buffered)) it ends the epoch of the write,
    /// unless that has ended.
    ///
    /// # Errors
    /// [`ErrorKind::Medium`](crate::ErrorKind::Medium) if the medium failed: then it is not known
    /// whether the write is durable; [`ErrorKind::InBatch`](crate::ErrorKind::InBatch) within a
    /// batch.
    pub fn wait(&self) -> Result<()> {
        if !self.is_complete() {
            let epochs = self.epoch.as_ref().and_then(|(tree, _)| tree.epochs());
            epochs
                .map_or(Ok(()), Epochs::sync)
                .map_err(|error| self.store.name_path(error))?;
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
        formatter
            .debug_struct("Ticket")
            .field("lsn", &self.lsn.0)
            .finish_non_exhaustive()
    }
}
