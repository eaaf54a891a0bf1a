//! How far a long operation has come: for a caller that shows it, or that ends it early.
//!
//! A verification reports entries, a copy of a pool reports bytes, on the calling thread.

use std::cell::RefCell;
use std::rc::Rc;

/// Takes the amount of work since the last call, and returns whether to go on.
type Watch = Rc<dyn Fn(u64) -> bool>;

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Runs `run`, and meanwhile calls `watch` with the amount of work since its last call. If `watch`
/// returns `false`, an operation that can be ended early fails.
pub fn watched<T>(watch: impl Fn(u64) -> bool + 'static, run: impl FnOnce() -> T) -> T {
    /// Puts the watch before this one back, also if `run` panics.
    struct Restore(Option<Watch>);
    impl Drop for Restore {
        fn drop(&mut self) {
            WATCH.set(self.0.take());
        }
    }
    let _restore = Restore(WATCH.replace(Some(Rc::new(watch))));
    run()
}

/// Reports `done` more entries or bytes; `false` if the operation is to end.
pub fn advance(done: u64) -> bool {
    let watch = WATCH.with_borrow(Clone::clone);
    watch.is_none_or(|watch| watch(done))
}
