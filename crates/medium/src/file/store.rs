//! Storing the lines of a log that is replayed.
//!
//! The lines lie all over the pool, so most of the time is spent waiting for memory. A line's place
//! is therefore prefetched some time before the line is stored. And for a long log other threads
//! store lines while the first one reads and checks frames: each gets whole windows of frames as
//! they were read, and stores the lines of its part of the pages.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, Scope};

use super::layout::{LENGTH, frames_of, lines_of};
use super::pages::PAGE_LINES;
use crate::Extent;
use crate::kernels::prefetch_write;

/// The place of a line is prefetched this many lines before it is stored.
const AHEAD: usize = 32;
/// Threads that store the lines of a long log. Reading and checking take about as long as storing
/// if the pool is small, and half as long if it is large.
const SHARES: u64 = 2;
/// How many windows may wait for a thread that stores.
const WINDOWS_MAX: usize = 4;

/// Adjacent frames that were checked.
#[derive(Clone)]
struct FrameRun {
    window: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl FrameRun {
    /// Stores the lines of one of the parts into which the pages are divided. The lines lie in the
    /// pool.
    fn store(&self, extent: &Extent, share: u64) {
        let places = frames_of(&self.window[self.range.clone()])
            .flat_map(lines_of)
            .filter(move |(number, _)| *number != LENGTH && number / PAGE_LINES % SHARES == share)
            .filter_map(|(number, line)| Some((extent.line(number)?, line)));
        let mut ahead = places.clone();
        ahead
            .by_ref()
            .take(AHEAD)
            .for_each(|(words, _)| prefetch_write(words));
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

/// Stores the lines of frames in their order, all lines of a page on one thread. When the scope of
/// the threads ends, all are stored.
pub(super) struct Stores<'s, 'm> {
    scope: &'s Scope<'s, 'm>,
    extent: &'m Extent,
    /// The frames that were checked of the window that is being read.
    run: Option<FrameRun>,
    /// The thread of each part of the pages. If it has none, because the log is short, this thread
    /// stores its lines.
    threads: [Option<SyncSender<FrameRun>>; SHARES as usize],
    is_long: bool,
}

impl<'s, 'm> Stores<'s, 'm> {
    pub(super) fn new(scope: &'s Scope<'s, 'm>, extent: &'m Extent) -> Self {
        Self {
            scope,
            extent,
            run: None,
            threads: Default::default(),
            is_long: false,
        }
    }

    /// Stores the lines of the frame at `range` of a window, after those of earlier frames. The
    /// lines lie in the pool.
    pub(super) fn frame(&mut self, window: &Arc<Vec<u8>>, range: Range<usize>) {
        match &mut self.run {
            Some(run) if Arc::ptr_eq(&run.window, window) => run.range.end = range.end,
            run => {
                let full = run.replace(FrameRun {
                    window: Arc::clone(window),
                    range,
                });
                if let Some(full) = full {
                    self.store(&full);
                }
            }
        }
    }

    /// Stores a window's frames; frames of other windows will follow.
    fn store(&mut self, run: &FrameRun) {
        if !self.is_long {
            self.is_long = true;
            self.threads = std::array::from_fn(|share| self.thread(share as u64));
        }
        self.hand_over(run);
    }

    fn hand_over(&self, run: &FrameRun) {
        for (thread, share) in self.threads.iter().zip(0..) {
            match thread {
                // If it has ended, it has panicked, and the scope passes that on.
                Some(thread) => drop(thread.send(run.clone())),
                None => run.store(self.extent, share),
            }
        }
    }

    /// Starts the thread of a part of the pages, if the system can.
    fn thread(&self, share: u64) -> Option<SyncSender<FrameRun>> {
        let (sender, runs) = sync_channel::<FrameRun>(WINDOWS_MAX);
        let extent = self.extent;
        let store = move || runs.iter().for_each(|run| run.store(extent, share));
        Builder::new()
            .spawn_scoped(self.scope, store)
            .ok()
            .map(|_| sender)
    }

    /// Stores the frames of the last window.
    pub(super) fn finish(mut self) {
        if let Some(run) = self.run.take() {
            self.hand_over(&run);
        }
    }
}
