//! What the operating system tells a process by a signal that would end it.

/// Makes a write beyond the longest file that this process may have (`ulimit -f`) an error like
/// that of a full disk ([`LimitedBy::FileSize`](crate::LimitedBy::FileSize)). Without it the system
/// ends the process, by SIGXFSZ: nothing that was acknowledged is lost then, but nobody is told
/// why. For programs to call first; a library has no business with signals.
pub fn ignore_file_size_signal() {
    // SAFETY: to ignore a signal runs no code of this process; it is not one of those that may not
    // be ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
