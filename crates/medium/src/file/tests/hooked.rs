//! A file where something else happens at each call.

use std::fmt;

use super::*;

/// What is done to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Read,
    Write,
    Sync,
    Allocate,
    Truncate,
}

/// A file, and what happens after each read and before each other call.
pub(super) struct Hooked {
    pub(super) io: Arc<dyn Io>,
    pub(super) hook: Box<dyn Fn(Call) + Send + Sync>,
    /// Whether a large read gives a part of what was asked for: not even a line is read at one moment. But a sector is.
    pub(super) reads_parts: bool,
}

impl fmt::Debug for Hooked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.io.fmt(formatter)
    }
}

impl Io for Hooked {
    fn file(&self) -> &std::fs::File {
        self.io.file()
    }

    fn length(&self) -> std::io::Result<u64> {
        self.io.length()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let is_whole = !self.reads_parts || buffer.len() <= 512;
        let bytes = if is_whole { buffer.len() } else { buffer.len() / 2 + 8 };
        let read = self.io.read(&mut buffer[..bytes], offset);
        (self.hook)(Call::Read);
        read
    }

    fn write(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        (self.hook)(Call::Write);
        self.io.write(bytes, offset)
    }

    fn sync(&self) -> std::io::Result<()> {
        (self.hook)(Call::Sync);
        self.io.sync()
    }

    fn allocate(&self, start: u64, end: u64) -> std::io::Result<()> {
        (self.hook)(Call::Allocate);
        self.io.allocate(start, end)
    }

    fn truncate(&self, length: u64) -> std::io::Result<()> {
        (self.hook)(Call::Truncate);
        self.io.truncate(length)
    }
}
