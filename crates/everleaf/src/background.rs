//! Recovery in the background: a thread finds out which space is in use while the trees are used.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engines::engine::Host;
use engines::index::Index;
use engines::{Error, ErrorKind};
use medium::sync::{AtomicBool, Awaited, Ordering};
use parking_lot::Mutex;
use pool::Pool;

use crate::violation::StoreViolation;

/// How often the thread checks whether operations have ended that ran when the last tree was
/// marked.
const PAUSE: Duration = Duration::from_millis(1);

/// Its progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MarkProgress {
    Running,
    /// All trees have marked, but the thread may still be about to free the space that none of them
    /// marked.
    Marked,
    /// The space in use is known; or a tree is damaged, and it will not be known before the next
    /// open.
    Ended,
}

struct BackgroundState {
    stop: AtomicBool,
    progress: Awaited<MarkProgress>,
    damage: Mutex<Option<StoreViolation>>,
}

/// The thread. It is stopped and waited for when it is dropped with its store; the next open then
/// starts again.
pub(crate) struct Background {
    state: Arc<BackgroundState>,
    thread: Option<JoinHandle<()>>,
}

/// An open tree that has not marked the space that it uses.
pub(crate) struct UnmarkedTree {
    pub(crate) name: String,
    pub(crate) index: Arc<dyn Index>,
}

impl BackgroundState {
    fn set(&self, progress: MarkProgress) {
        self.progress.change(|current| *current = progress);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reads the bitmaps that a clean close has written.
    fn read_bitmaps<M: Host>(&self, pool: &Pool<M>) {
        if let Err(error) = pool.read_bitmaps(&|| !self.is_stopped()) {
            self.note(None, &error);
        }
        self.set(MarkProgress::Ended);
    }

    /// Lets the trees mark the space that they use, and then frees the rest.
    fn mark<M: Host>(&self, pool: &Pool<M>, trees: Vec<UnmarkedTree>) {
        for tree in &trees {
            match tree.index.mark(&|| !self.is_stopped()) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // No space is reused that was in use before, so nothing of the tree is lost.
                    pool.give_up_marking();
                    self.note(Some(tree.name.clone()), &error);
                    return self.set(MarkProgress::Ended);
                }
            }
        }
        drop(trees);
        pool.finish_marking_later();
        self.set(MarkProgress::Marked);
        while pool.needs_mark() && !self.is_stopped() {
            pool.reclaim();
            std::thread::sleep(PAUSE);
        }
        if pool.needs_mark() {
            // The store is dropped, so the operations that this thread waited for have ended.
            pool.finish_marking();
        }
        self.set(MarkProgress::Ended);
    }

    fn note(&self, tree: Option<String>, error: &Error) {
        let (offset, what) = match error.kind() {
            ErrorKind::Corrupt { offset, what } => (Some(*offset), what.clone()),
            _ => (None, error.to_string()),
        };
        *self.damage.lock() = Some(StoreViolation { tree, offset, what });
    }
}

/// Releases the threads that wait for a thread that has ended.
struct EndIfPanicking<'s>(&'s BackgroundState);

impl Drop for EndIfPanicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set(MarkProgress::Ended);
        }
    }
}

impl Background {
    /// Begins to read the bitmaps of a clean close.
    pub(crate) fn read_bitmaps<M: Host>(pool: &Pool<M>) -> Self {
        let shared = pool.clone();
        let begun = Self::begin(move |state| state.read_bitmaps(&shared));
        if begun.thread.is_none() {
            // That takes milliseconds, and without the bitmaps no space is reused.
            begun.state.read_bitmaps(pool);
        }
        begun
    }

    /// Begins to let the trees mark the space that they use.
    pub(crate) fn mark<M: Host>(pool: Pool<M>, trees: Vec<UnmarkedTree>) -> Self {
        Self::begin(move |state| state.mark(&pool, trees))
    }

    fn begin(work: impl FnOnce(&BackgroundState) + Send + 'static) -> Self {
        let state = Arc::new(BackgroundState {
            stop: AtomicBool::new(false),
            progress: Awaited::new(MarkProgress::Running),
            damage: Mutex::new(None),
        });
        let shared = Arc::clone(&state);
        let thread = medium::start_thread("everleaf-mark", move || {
            let _end = EndIfPanicking(&shared);
            work(&shared);
        })
        .ok();
        if thread.is_none() {
            // Without a thread, space is not reused before the next open.
            state.set(MarkProgress::Ended);
        }
        Self { state, thread }
    }

    /// Waits until all trees are marked, and then for the end, but for a limited time: an open
    /// range, perhaps of the calling thread, prevents the end. Returns whether the end came.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        let mut progress = self.state.progress.lock();
        while *progress == MarkProgress::Running {
            progress = self.state.progress.wait(progress);
        }
        let until = Instant::now() + longest;
        while *progress == MarkProgress::Marked && Instant::now() < until {
            progress = self.state.progress.wait_until(progress, until);
        }
        *progress == MarkProgress::Ended
    }

    /// The tree that could not mark its space, or the bitmap that could not be read.
    pub(crate) fn damage(&self) -> Option<StoreViolation> {
        self.state.damage.lock().clone()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is a logic bug, which was reported where it happened. The next
            // open marks again.
            let _ = thread.join();
        }
    }
}
