//! Storing the lines of a log that is replayed. They lie all over the pool, so most of the time goes into waiting for
//! memory: lines are asked for some time before they are stored, and of a long log a second thread stores most of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope};

use super::pages::PAGE_LINES;
use crate::LINE_BYTES;
use crate::kernels::prefetch_write;

/// So many lines wait for their places to come into the cache.
const AHEAD: usize = 32;
/// Lines that are handed to the other thread at once, and how many times that it may be behind.
const BATCH: usize = 4096;
const BATCHES_MAX: usize = 4;

/// A line and where it belongs.
type Placed<'m> = (&'m [AtomicU64], [u8; LINE_BYTES]);

/// What one thread stores.
struct Queue<'m>(VecDeque<Placed<'m>>);

impl<'m> Queue<'m> {
    fn new() -> Self {
        Self(VecDeque::with_capacity(AHEAD))
    }

    fn push(&mut self, placed: Placed<'m>) {
        prefetch_write(placed.0);
        if self.0.len() == AHEAD {
            self.0.pop_front().into_iter().for_each(store);
        }
        self.0.push_back(placed);
    }

    fn finish(self) {
        self.0.into_iter().for_each(store);
    }
}

fn store((words, line): Placed<'_>) {
    for (word, bytes) in words.iter().zip(line.as_chunks().0) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
}

/// What is left to do for the other thread.
enum Other<'m> {
    /// There is none yet: the log may be short.
    NotYet,
    Runs(SyncSender<Vec<Placed<'m>>>),
    /// The system gave none.
    Refused,
}

/// Stores lines in the order of the log, each page by one thread. All are stored when the scope of the threads ends.
pub(super) struct Stores<'s, 'm> {
    scope: &'s Scope<'s, 'm>,
    mine: Queue<'m>,
    theirs: Vec<Placed<'m>>,
    other: Other<'m>,
}

impl<'s, 'm> Stores<'s, 'm> {
    pub(super) fn new(scope: &'s Scope<'s, 'm>) -> Self {
        Self { scope, mine: Queue::new(), theirs: Vec::new(), other: Other::NotYet }
    }

    /// Stores line `number` into `words`.
    pub(super) fn push(&mut self, number: u64, words: &'m [AtomicU64], line: &[u8; LINE_BYTES]) {
        // This thread also reads the log and checks it.
        if (number / PAGE_LINES).is_multiple_of(4) || matches!(self.other, Other::Refused) {
            return self.mine.push((words, *line));
        }
        self.theirs.push((words, *line));
        if self.theirs.len() == BATCH {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if matches!(self.other, Other::NotYet) {
            let (sender, receiver) = sync_channel(BATCHES_MAX);
            let spawned = Builder::new().spawn_scoped(self.scope, move || store_all(&receiver));
            self.other = spawned.map_or(Other::Refused, |_| Other::Runs(sender));
        }
        let batch = std::mem::replace(&mut self.theirs, Vec::with_capacity(BATCH));
        let left = match &self.other {
            Other::Runs(sender) => sender.send(batch).map_or_else(|back| back.0, |()| Vec::new()),
            Other::NotYet | Other::Refused => batch,
        };
        left.into_iter().for_each(|placed| self.mine.push(placed));
    }

    /// Stores what waits.
    pub(super) fn finish(mut self) {
        match &self.other {
            Other::Runs(_) => self.hand_over(),
            Other::NotYet | Other::Refused => {
                self.theirs.drain(..).for_each(|placed| self.mine.push(placed));
            }
        }
        self.mine.finish();
    }
}

fn store_all(batches: &Receiver<Vec<Placed<'_>>>) {
    let mut queue = Queue::new();
    batches.iter().flatten().for_each(|placed| queue.push(placed));
    queue.finish();
}
