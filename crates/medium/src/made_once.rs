//! Values of a process that are made when they are first asked for.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is made when it is first asked for, and is never freed.
///
/// The standard library's cells have a thread wait while another one makes the value. In the child
/// of a fork that thread may not exist. So here each of several threads makes a value, and the
/// first one counts.
pub(crate) struct MadeOnce<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> MadeOnce<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value, if it was made.
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or a value that `get_or_make` has set, which is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The value, made by `make` if there is none.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &'static T {
        if let Some(found) = self.get() {
            return found;
        }
        let made = Box::into_raw(Box::new(make()));
        let set =
            self.0
                .compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        let value = match set {
            Ok(_) => made,
            Err(other) => {
                // Another thread was faster.
                // SAFETY: made above, and no other thread has it.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: a value that was set is never freed.
        unsafe { &*value }
    }

    /// Forgets the value, which stays where it is: the next caller gets another one.
    pub(crate) fn forget(&self) {
        self.0.store(ptr::null_mut(), Ordering::Release);
    }
}
