//! Recovery in the background: a thread finds out which space is in use while the trees are used.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engines::index::Index;
use engines::{Error, ErrorKind};
use medium::sync::{AtomicBool, Ordering};
use parking_lot::{Condvar, Mutex};

use crate::StoreViolation;
use crate::backend::Backend;

/// How often the thread checks whether operations have ended that ran when the last tree was
/// marked.
const PAUSE: Duration = Duration::from_millis(1);

/// Its progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    Running,
    /// All trees have marked, but a thread may still be about to free what none of them found.
    Marked,
    /// The space in use is known; or a tree is damaged, and it will not be known before the next
    /// open.
    Ended,
}

struct State {
    stop: AtomicBool,
    progress: Mutex<Progress>,
    ended: Condvar,
    damage: Mutex<Option<StoreViolation>>,
}

/// The thread. It is stopped and waited for when it is dropped with its store; the next open then
/// starts again.
pub(crate) struct Background {
    state: Arc<State>,
    backend: Arc<dyn Backend>,
    thread: Option<JoinHandle<()>>,
}

impl State {
    fn set(&self, progress: Progress) {
        *self.progress.lock() = progress;
        self.ended.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Marks what `trees` reach, or reads the bitmaps where there are none to mark.
    fn work(&self, backend: &dyn Backend, trees: Vec<(String, Arc<dyn Index>)>) {
        let _end = EndIfPanicking(self);
        if trees.is_empty() {
            if let Err(error) = backend.read_bitmaps() {
                self.note(None, &error);
            }
            return self.set(Progress::Ended);
        }
        for (name, tree) in &trees {
            match tree.mark(&|| !self.is_stopped()) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // No space is reused that was in use before, so nothing of the tree is lost.
                    backend.give_up_marking();
                    self.note(Some(name.clone()), &error);
                    return self.set(Progress::Ended);
                }
            }
        }
        drop(trees);
        backend.finish_marking_later();
        self.set(Progress::Marked);
        while backend.needs_mark() && !self.is_stopped() {
            backend.reclaim();
            std::thread::sleep(PAUSE);
        }
        if !backend.needs_mark() {
            self.set(Progress::Ended);
        }
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
struct EndIfPanicking<'s>(&'s State);

impl Drop for EndIfPanicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set(Progress::Ended);
        }
    }
}

impl Background {
    /// Begins to mark what `trees` reach; without trees, to read the bitmaps of a clean close.
    pub(crate) fn begin(backend: Arc<dyn Backend>, trees: Vec<(String, Arc<dyn Index>)>) -> Self {
        let state = Arc::new(State {
            stop: AtomicBool::new(false),
            progress: Mutex::new(Progress::Running),
            ended: Condvar::new(),
            damage: Mutex::new(None),
        });
        let (shared, pool) = (Arc::clone(&state), Arc::clone(&backend));
        let thread = std::thread::Builder::new().name("everleaf-mark".to_owned());
        let thread = thread.spawn(move || shared.work(&*pool, trees)).ok();
        if thread.is_none() {
            // Without a thread, space is not reused before the next open.
            state.set(Progress::Ended);
        }
        Self {
            state,
            backend,
            thread,
        }
    }

    /// Waits until all trees are marked, and then for the end, but for a limited time: an open
    /// range, perhaps of the calling thread, prevents the end. Returns whether the end came.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        let mut progress = self.state.progress.lock();
        while *progress == Progress::Running {
            self.state.ended.wait(&mut progress);
        }
        let until = Instant::now() + longest;
        while *progress == Progress::Marked
            && !self
                .state
                .ended
                .wait_until(&mut progress, until)
                .timed_out()
        {}
        *progress == Progress::Ended
    }

    /// A tree that could not be marked, or a bitmap that could not be read.
    pub(crate) fn damage(&self) -> Option<StoreViolation> {
        self.state.damage.lock().clone()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there is a logic bug, reported where it happened; the next open marks.
            let _ = thread.join();
        }
        if *self.state.progress.lock() == Progress::Marked {
            // The thread only waited for operations to end, and none is left.
            self.backend.finish_marking();
        }
    }
}
