//! Signals of the operating system that would end the process.

/// Makes a write beyond the longest file that this process may have (`ulimit -f`) an error like
/// that of a full disk ([`LimitedBy::FileSize`](crate::LimitedBy::FileSize)). Without it the system
/// ends the process by SIGXFSZ: no acknowledged write is lost then, but the user gets no message. A
/// program calls this when it starts; the library itself changes no signal handlers.
pub fn ignore_file_size_signal() {
    // SAFETY: to ignore a signal runs no code of this process; it is not one of those that may not
    // be ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
