//! Calls of the system that fail in the thread of a test.

use std::cell::Cell;
use std::io;

use rustix::io::Errno;

/// A call of the system that a test can have refused. Calls on the files of a medium are not among
/// them: tests wrap these files ([`Hooked`](super::Hooked)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemCall {
    /// A file is made.
    MakeFile,
    /// A file is locked.
    Lock,
    /// A folder is synced.
    SyncFolder,
    /// A thread is started.
    StartThread,
    /// A call that the test itself counts, such as one on a file.
    Counted,
}

/// Which call is refused, and how.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The call; `None` for any.
    pub call: Option<SystemCall>,
    /// How many such calls succeed before; all that follow are refused.
    pub after: u64,
    /// The error.
    pub errno: Errno,
}

thread_local! {
    static REFUSAL: Cell<Option<Refusal>> = const { Cell::new(None) };
}

/// Has calls of this thread refused from now on, or none.
pub fn refuse(refusal: Option<Refusal>) {
    REFUSAL.set(refusal);
}

/// To be called before a call of the system.
///
/// # Errors
/// The error that a test has set for this call.
pub fn grant(call: SystemCall) -> io::Result<()> {
    let Some(mut refusal) = REFUSAL.get() else {
        return Ok(());
    };
    if refusal.call.is_some_and(|refused| refused != call) {
        return Ok(());
    }
    if refusal.after > 0 {
        refusal.after -= 1;
        REFUSAL.set(Some(refusal));
        return Ok(());
    }
    Err(refusal.errno.into())
}
