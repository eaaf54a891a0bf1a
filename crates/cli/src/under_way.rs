//! Many writes, one after the other, made durable together.

use std::time::{Duration, Instant};

use everleaf::{Pending, Result, Store, Tree};

/// The most writes that are under way.
const UNDER_WAY_MAX: u64 = 4096;
/// After this time the next write waits for those before it, so that slow input becomes durable
/// line by line.
const UNDER_WAY_TIME_MAX: Duration = Duration::from_millis(50);

/// Writes to a tree. A write does not wait until it is durable; an occasional wait covers all
/// writes before it.
pub(crate) struct Writes<'a> {
    store: &'a Store,
    tree: &'a Tree,
    /// The last write. Once it was waited for, the writes before it are durable too.
    last: Option<Pending<bool>>,
    under_way: u64,
    settled: Instant,
    durable: u64,
}

impl<'a> Writes<'a> {
    pub(crate) fn new(store: &'a Store, tree: &'a Tree) -> Self {
        Self {
            store,
            tree,
            last: None,
            under_way: 0,
            settled: Instant::now(),
            durable: 0,
        }
    }

    /// Puts an entry, to become durable later.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let put = self.tree.pending().put(key, value)?;
        self.last = Some(put.map(|()| true));
        self.wrote()
    }

    /// Removes a key, if it is present, durably later.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<()> {
        let removed = self.tree.pending().remove(key)?;
        let was_present = removed.peek() == Some(&true);
        self.last = Some(removed);
        if was_present { self.wrote() } else { Ok(()) }
    }

    fn wrote(&mut self) -> Result<()> {
        self.under_way += 1;
        let many = self.under_way >= UNDER_WAY_MAX && !self.tree.kind().engine.is_buffered();
        if many || self.settled.elapsed() >= UNDER_WAY_TIME_MAX {
            self.settle()?;
        }
        Ok(())
    }

    /// Returns when all writes are durable.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if let Some(last) = &self.last {
            last.clone().wait()?;
            if self.tree.kind().engine.is_buffered() {
                self.store.sync()?;
            }
        }
        // Cleared only now: after a failure the ticket stays, so that the next wait fails as well.
        self.last = None;
        self.durable += self.under_way;
        self.under_way = 0;
        self.settled = Instant::now();
        Ok(())
    }

    /// How many writes are known to be durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }
}

#[cfg(test)]
mod tests;
