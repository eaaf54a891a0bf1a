//! Storing the lines of a log that is replayed. They lie all over the pool, so most of the time goes into waiting for
//! memory: lines are asked for some time before they are stored. And of a long log other threads store them, while the
//! first one reads on and checks: they get what was read as it is, a whole window of frames at a time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, Scope};

use super::layout::{LENGTH, frames_of, lines_of};
use super::pages::PAGE_LINES;
use crate::Extent;
use crate::kernels::prefetch_write;

/// So many lines before it is stored, the place of a line is asked for.
const AHEAD: usize = 32;
/// Threads that store the lines of a long log, each its pages. To read and check takes about as long as to store if the pool
/// is small; if it is large, half as long.
const SHARES: u64 = 2;
/// How many windows a thread that stores may be behind.
const WINDOWS_MAX: usize = 4;

/// Frames that were checked, one after the other.
#[derive(Clone)]
struct Run {
    window: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Run {
    /// Stores the lines of one share of the pages. All of them lie in the pool.
    fn store(&self, extent: &Extent, share: u64) {
        let places = frames_of(&self.window[self.range.clone()])
            .flat_map(lines_of)
            .filter(move |(number, _)| *number != LENGTH && number / PAGE_LINES % SHARES == share)
            .filter_map(|(number, line)| Some((extent.line(number)?, line)));
        let mut ahead = places.clone();
        ahead.by_ref().take(AHEAD).for_each(|(words, _)| prefetch_write(words));
        for (words, line) in places {
            if let Some((words, _)) = ahead.next() {
                prefetch_write(words);
            }
            for (word, bytes) in words.iter().zip(line.as_chunks().0) {
                word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
            }
        }
    }
}

/// Stores the lines of frames in their order, each page by one thread. All are stored when the scope of the threads ends.
pub(super) struct Stores<'s, 'm> {
    scope: &'s Scope<'s, 'm>,
    extent: &'m Extent,
    /// What was checked of the window that is read.
    run: Option<Run>,
    /// The threads; this one stores the shares of those that are not there: the log may be short.
    threads: [Option<SyncSender<Run>>; SHARES as usize],
    is_long: bool,
}

impl<'s, 'm> Stores<'s, 'm> {
    pub(super) fn new(scope: &'s Scope<'s, 'm>, extent: &'m Extent) -> Self {
        Self { scope, extent, run: None, threads: Default::default(), is_long: false }
    }

    /// Stores the lines of the frame at `range` of a window, behind those that came before. They lie in the pool.
    pub(super) fn frame(&mut self, window: &Arc<Vec<u8>>, range: Range<usize>) {
        match &mut self.run {
            Some(run) if Arc::ptr_eq(&run.window, window) => run.range.end = range.end,
            run => {
                let full = run.replace(Run { window: Arc::clone(window), range });
                full.into_iter().for_each(|run| self.store(&run));
            }
        }
    }

    /// Stores a window's frames; others follow.
    fn store(&mut self, run: &Run) {
        if !self.is_long {
            self.is_long = true;
            self.threads = std::array::from_fn(|share| self.thread(share as u64));
        }
        self.hand_over(run);
    }

    fn hand_over(&self, run: &Run) {
        for (thread, share) in self.threads.iter().zip(0..) {
            match thread {
                // It ends before this one only with a panic, which the scope passes on.
                Some(thread) => drop(thread.send(run.clone())),
                None => run.store(self.extent, share),
            }
        }
    }

    /// A thread that stores a share, if the system gives one.
    fn thread(&self, share: u64) -> Option<SyncSender<Run>> {
        let (sender, runs) = sync_channel::<Run>(WINDOWS_MAX);
        let extent = self.extent;
        let store = move || runs.iter().for_each(|run| run.store(extent, share));
        Builder::new().spawn_scoped(self.scope, store).ok().map(|_| sender)
    }

    /// Stores what waits.
    pub(super) fn finish(mut self) {
        self.run.take().into_iter().for_each(|run| self.hand_over(&run));
    }
}
