//! Between a medium and the operating system: all that a medium does to its files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fdatasync, seek};
use rustix::io::Errno;

/// Access to one file. The real one is [`Disk`]; tests have others
/// ([`testing`](crate::testing)).
pub trait Io: Send + Sync + std::fmt::Debug + 'static {
    /// The file, to be mapped; writes show in it at once.
    fn file(&self) -> &File;
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Reads some bytes at `offset`; 0 at the end.
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes some bytes at `offset`.
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Copies at most `bytes` bytes to the same place of `target`, and returns how many; 0 at the
    /// end of the file. A hole may stay a hole: then `target` does not get longer.
    fn copy_to(&self, target: &dyn Io, offset: u64, bytes: usize) -> io::Result<usize> {
        copy_through_memory(self, target, offset, bytes)
    }
    /// Makes all writes durable, and the length. A call that a signal interrupts may be repeated;
    /// the medium does so.
    fn sync(&self) -> io::Result<()>;
    /// Gives the bytes from `start` to `end` room on the disk, and the file at least this length.
    fn allocate(&self, start: u64, end: u64) -> io::Result<()>;
    /// Takes the room on the disk from the bytes from `start` to `end`, which read as zeros from
    /// then on.
    fn punch(&self, start: u64, end: u64) -> io::Result<()>;
    /// Cuts the file off.
    fn truncate(&self, length: u64) -> io::Result<()>;
}

/// Wraps a file.
pub type Through = fn(Arc<dyn Io>) -> Arc<dyn Io>;

/// A file of the operating system.
#[derive(Debug)]
pub struct Disk(pub File);

impl Disk {
    /// Gives the bytes from `start` to `end` room on the disk, or fails.
    pub(crate) fn reserve(&self, start: u64, end: u64) -> io::Result<()> {
        let reserve = || fallocate(&self.0, FallocateFlags::empty(), start, end - start);
        Ok(rustix::io::retry_on_intr(reserve)?)
    }
}

impl Io for Disk {
    fn file(&self) -> &File {
        &self.0
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn copy_to(&self, target: &dyn Io, offset: u64, bytes: usize) -> io::Result<usize> {
        let length = self.length()?;
        let data = data_from(self, offset)?.unwrap_or(length);
        if data > offset {
            // It is a hole of the target as well, which was empty.
            return Ok(bytes.min(usize::try_from(data - offset).unwrap_or(bytes)));
        }
        // Blocks that two files share would have to be replaced when the pool is written: a full disk
        // would then fail a checkpoint whose room was reserved. So the bytes are copied.
        copy_through_memory(self, target, offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| fdatasync(&self.0))?)
    }

    fn allocate(&self, start: u64, end: u64) -> io::Result<()> {
        match self.reserve(start, end) {
            // The file system cannot reserve room: a full disk shows when the file is written.
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::OPNOTSUPP | Errno::NOSYS)
                ) =>
            {
                self.0.set_len(self.length()?.max(end))
            }
            other => other,
        }
    }

    fn punch(&self, start: u64, end: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::io::retry_on_intr(|| {
            fallocate(&self.0, flags, start, end - start)
        })?)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
}

/// Reads some bytes and writes them to the same place of `target`. Returns how many.
fn copy_through_memory(
    source: &(impl Io + ?Sized),
    target: &dyn Io,
    offset: u64,
    bytes: usize,
) -> io::Result<usize> {
    let mut part = vec![0; bytes];
    let read = source.read(&mut part, offset)?;
    write_all(target, &part[..read], offset)?;
    Ok(read)
}

/// Reserves room on the disk behind the end of a file, whose length stays the same. Truncating the
/// file to its length gives the room up. Does nothing if there is no room, or if the file system
/// cannot do that.
pub(crate) fn keep_room(io: &dyn Io, bytes: u64) {
    if let Ok(length) = io.length() {
        let _ = fallocate(io.file(), FallocateFlags::KEEP_SIZE, length, bytes);
    }
}

/// Where data of a file lies from `offset` on; `None` if there is only a hole. On a file system
/// without holes there is data everywhere.
pub(crate) fn data_from(io: &dyn Io, offset: u64) -> io::Result<Option<u64>> {
    match seek(io.file(), SeekFrom::Data(offset)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {
            Ok(Some(offset).filter(|offset| io.length().is_ok_and(|length| *offset < length)))
        }
        Err(other) => Err(other.into()),
    }
}

/// Writes all of `bytes`, however many calls it takes.
pub(crate) fn write_all(io: &dyn Io, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match io.write(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes all writes durable, and the length, however often signals interrupt that. An interrupted
/// sync has lost nothing: the system still knows which pages it has to write.
pub(crate) fn sync_whole(io: &dyn Io) -> io::Result<()> {
    loop {
        match io.sync() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            synced => return synced,
        }
    }
}

/// Fills `buffer`; bytes beyond the end of the file read as zero.
pub(crate) fn read_all(io: &dyn Io, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let bytes = read_some(io, buffer, offset)?;
    buffer[bytes..].fill(0);
    Ok(())
}

/// Reads into `buffer`, and returns how many bytes: fewer than `buffer` has only at the end of the
/// file.
pub(crate) fn read_some(io: &dyn Io, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut bytes = 0;
    while bytes < buffer.len() {
        match io.read(&mut buffer[bytes..], offset + bytes as u64) {
            Ok(0) => break,
            Ok(read) => bytes += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Whether the error says that no space is left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
