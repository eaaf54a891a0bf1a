//! The demo's input: paths of this machine's own files, with size and time of last change.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use walkdir::WalkDir;

/// Folders that hold no files of their own.
const SKIPPED: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Paths and their values.
#[derive(Default)]
pub(super) struct Listing {
    /// All paths, one behind the other.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Paths that could not be read.
    pub(super) unreadable: u64,
}

struct Entry {
    /// The end of the path in `bytes`; it begins at the end of the one before.
    end: usize,
    size: u64,
    changed: i64,
}

impl Listing {
    /// Walks `root`, up to `limit` paths. Calls `tick` from time to time with their number.
    pub(super) fn walk(root: &Path, limit: usize, own_pool: &Path, tick: impl Fn(u64)) -> Self {
        let mut listing = Self::default();
        let walk = WalkDir::new(root).into_iter();
        let walk = walk.filter_entry(|entry| {
            !SKIPPED
                .iter()
                .any(|skipped| entry.path() == Path::new(skipped))
                && entry.path() != own_pool
        });
        for entry in walk {
            if listing.len() == limit {
                break;
            }
            let found = entry.and_then(|entry| entry.metadata().map(|metadata| (entry, metadata)));
            let Ok((entry, metadata)) = found else {
                listing.unreadable += 1;
                continue;
            };
            listing.push(
                entry.path().as_os_str().as_bytes(),
                metadata.size(),
                metadata.mtime(),
            );
            if listing.len().is_multiple_of(1024) {
                tick(listing.len() as u64);
            }
        }
        listing
    }

    /// Adds a path. No path is longer than the longest key: the system's limit is lower.
    pub(super) fn push(&mut self, path: &[u8], size: u64, changed: i64) {
        self.bytes.extend_from_slice(path);
        self.entries.push(Entry {
            end: self.bytes.len(),
            size,
            changed,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn path(&self, index: usize) -> &[u8] {
        let start = index
            .checked_sub(1)
            .map_or(0, |before| self.entries[before].end);
        &self.bytes[start..self.entries[index].end]
    }

    /// The value of a path, as it is stored: size in bytes and time in seconds.
    pub(super) fn value(&self, index: usize) -> String {
        let Entry { size, changed, .. } = self.entries[index];
        format!("{size} {changed}")
    }

    /// Size and time of a path.
    pub(super) fn figures(&self, index: usize) -> (u64, i64) {
        (self.entries[index].size, self.entries[index].changed)
    }

    /// Bytes of all paths and values.
    pub(super) fn content_bytes(&self) -> u64 {
        (0..self.len())
            .map(|index| self.path(index).len() + self.value(index).len())
            .sum::<usize>() as u64
    }
}
