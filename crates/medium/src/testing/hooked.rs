//! A file that calls a test before each operation.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::io::Io;

/// An operation on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileCall {
    /// Some bytes were read.
    Read,
    /// Some bytes are about to be written.
    Write,
    /// The file is about to be synced.
    Sync,
    /// Room is about to be allocated.
    Allocate,
    /// Room is about to be given back.
    Punch,
    /// The file is about to be cut off.
    Truncate,
}

/// The fate of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The operation is done.
    Go,
    /// The operation reports success without being done; but a read or write is done nevertheless.
    Skip,
}

type Hook = Box<dyn Fn(FileCall) -> io::Result<Then> + Send + Sync>;

/// A file with a hook that runs after each read and before each other operation, and decides the
/// fate of each.
pub struct Hooked {
    io: Arc<dyn Io>,
    hook: Hook,
    reads_parts: bool,
}

impl Hooked {
    /// A file whose operations are all done, after `hook` has run.
    pub fn new(io: Arc<dyn Io>, hook: impl Fn(FileCall) + Send + Sync + 'static) -> Self {
        let hook = move |call| {
            hook(call);
            Ok(Then::Go)
        };
        Self::deciding(io, hook)
    }

    /// A file whose operations fail or are skipped as `hook` says.
    pub fn deciding(
        io: Arc<dyn Io>,
        hook: impl Fn(FileCall) -> io::Result<Then> + Send + Sync + 'static,
    ) -> Self {
        Self {
            io,
            hook: Box::new(hook),
            reads_parts: false,
        }
    }

    /// A file that reports each sync as done, and does none.
    pub fn unsynced(io: Arc<dyn Io>) -> Self {
        Self::deciding(io, |call| {
            Ok(if call == FileCall::Sync {
                Then::Skip
            } else {
                Then::Go
            })
        })
    }

    /// Makes reads of more than a sector return only a part of the bytes, so that the caller reads
    /// the parts at different moments.
    #[must_use]
    pub fn reading_parts(self) -> Self {
        Self {
            reads_parts: true,
            ..self
        }
    }

    fn run(&self, call: FileCall, operation: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match (self.hook)(call)? {
            Then::Go => operation(),
            Then::Skip => Ok(()),
        }
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.io.fmt(formatter)
    }
}

impl Io for Hooked {
    fn file(&self) -> &File {
        self.io.file()
    }

    fn length(&self) -> io::Result<u64> {
        self.io.length()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let is_whole = !self.reads_parts || buffer.len() <= 512;
        let bytes = if is_whole {
            buffer.len()
        } else {
            buffer.len() / 2 + 8
        };
        let read = self.io.read(&mut buffer[..bytes], offset)?;
        (self.hook)(FileCall::Read)?;
        Ok(read)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        (self.hook)(FileCall::Write)?;
        self.io.write(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.run(FileCall::Sync, || self.io.sync())
    }

    fn allocate(&self, start: u64, end: u64) -> io::Result<()> {
        self.run(FileCall::Allocate, || self.io.allocate(start, end))
    }

    fn punch(&self, start: u64, end: u64) -> io::Result<()> {
        self.run(FileCall::Punch, || self.io.punch(start, end))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.run(FileCall::Truncate, || self.io.truncate(length))
    }
}
