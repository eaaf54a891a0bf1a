//! Folders and the names in them, by descriptor.
//!
//! The path of a store is looked up once, when the store is opened. From then on the store reaches
//! its files by the descriptor of their folder and by their names in it ([`FilePlace`]). So a
//! folder that is renamed, or a process that changes its working directory, changes nothing. Before
//! a name is removed or replaced, the file that it means is compared with the file that the store
//! has open.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, Stat, fstat, fstatvfs, fsync, linkat, openat,
    readlinkat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};

use crate::Grown;
use crate::testing::refusal::{SystemCall, grant};

/// The permissions of files that no other user may read.
const OWNER_ONLY: u32 = 0o600;

/// The most symbolic links that lead from one to the next.
const LINKS_MAX: u32 = 40;

/// A file of the system, whatever its name: no two files that exist have the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The number of an open file.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::in_stat(&fstat(file)?))
    }

    fn in_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

#[derive(Debug)]
struct OpenFolder {
    descriptor: File,
    /// Whether it was opened for reading. A folder that this user may only pass through is opened
    /// as a place without content, and cannot be synced.
    is_readable: bool,
    /// Whether its file system has refused to sync folders.
    is_unsyncable: AtomicBool,
}

/// A folder that is open. All users of a folder in this process share one descriptor.
#[derive(Clone, Debug)]
pub struct Folder(Arc<OpenFolder>);

/// How long a thread waits for the table of open folders.
const PATIENCE: Duration = Duration::from_millis(100);

/// The folders that are open in this process.
static OPEN: Mutex<BTreeMap<FileId, Weak<OpenFolder>>> = Mutex::new(BTreeMap::new());

impl Folder {
    /// Opens the folder at `path`.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn open(path: &Path) -> io::Result<Self> {
        let opened = OpenFolder::open(path)?;
        let id = FileId::of(&opened.descriptor)?;
        // In the child of a fork, a thread that does not exist there may hold the lock for ever. A
        // descriptor that is not shared does as well.
        let Some(mut open) = OPEN.try_lock_for(PATIENCE) else {
            return Ok(Self(Arc::new(opened)));
        };
        if let Some(shared) = open.get(&id).and_then(Weak::upgrade) {
            return Ok(Self(shared));
        }
        open.retain(|_, folder| folder.strong_count() > 0);
        let opened = Arc::new(opened);
        open.insert(id, Arc::downgrade(&opened));
        Ok(Self(opened))
    }

    /// Makes the names in the folder durable. Some file systems (CIFS, for example) cannot sync
    /// folders. There this does nothing, and [`Folder::is_synced`] says so from then on.
    ///
    /// # Errors
    /// If the sync fails, or this user may not read the folder.
    pub fn sync(&self) -> io::Result<()> {
        self.expect_syncable()?;
        loop {
            match self.try_sync() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_unsupported(&error) => {
                    self.0.is_unsyncable.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                synced => return synced,
            }
        }
    }

    /// Whether this user may sync it.
    ///
    /// # Errors
    /// If this user may not read the folder.
    pub fn expect_syncable(&self) -> io::Result<()> {
        if self.0.is_readable {
            Ok(())
        } else {
            Err(Errno::ACCESS.into())
        }
    }

    fn try_sync(&self) -> io::Result<()> {
        grant(SystemCall::SyncFolder)?;
        Ok(fsync(&self.0.descriptor)?)
    }

    /// Whether syncs of the folder have had an effect, as far as they were tried.
    pub fn is_synced(&self) -> bool {
        !self.0.is_unsyncable.load(Ordering::Relaxed)
    }

    /// The free bytes of its file system for this user; `None` if the system does not tell.
    pub fn free_bytes(&self) -> Option<u64> {
        let system = fstatvfs(self).ok()?;
        let is_told = system.f_blocks > 0;
        is_told.then(|| system.f_bavail.saturating_mul(system.f_frsize))
    }

    /// The path in the symbolic link `name`; `None` if this is no link.
    fn link(&self, name: &OsStr) -> io::Result<Option<PathBuf>> {
        match readlinkat(self, name, Vec::new()) {
            Ok(target) => Ok(Some(OsString::from_vec(target.into_bytes()).into())),
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}

impl OpenFolder {
    fn open(path: &Path) -> io::Result<Self> {
        let open = |flags| {
            let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
            retry_on_intr(|| openat(CWD, path, flags, Mode::empty()))
        };
        let (descriptor, is_readable) = match open(OFlags::RDONLY) {
            Err(Errno::ACCESS) => (open(OFlags::PATH)?, false),
            opened => (opened?, true),
        };
        Ok(Self {
            descriptor: descriptor.into(),
            is_readable,
            is_unsyncable: AtomicBool::new(false),
        })
    }
}

/// Whether the file system cannot do what was asked.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS)
    )
}

/// Makes durable the entries of the folder in which `path` lies.
///
/// # Errors
/// If the folder cannot be opened or synced.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    Folder::open(folder_of(path))?.sync()
}

/// The folder in which `path` lies; `.` for a name alone.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// How an open file has lost its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Displacement {
    /// The file has no name any more: it was removed, or another file was renamed over it.
    Removed,
    /// The file has another name.
    Moved,
}

/// A file that was just made.
#[derive(Debug)]
pub struct NewFile {
    /// Where it lies.
    pub place: FilePlace,
    /// The file.
    pub file: File,
}

/// A name in a folder, whether or not a file has it.
#[derive(Clone, Debug)]
pub struct FilePlace {
    folder: Folder,
    name: OsString,
    /// The path by which it was found, for messages.
    path: PathBuf,
}

impl FilePlace {
    /// The place that `path` names. If a symbolic link lies there, it is not followed.
    ///
    /// # Errors
    /// If the folder cannot be opened, or `path` ends with no name.
    pub fn of_name(path: &Path) -> io::Result<Self> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT.into());
        }
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(Errno::ISDIR.into());
        }
        let path = std::path::absolute(path)?;
        let Some(name) = path.file_name() else {
            return Err(Errno::ISDIR.into());
        };
        Ok(Self {
            folder: Folder::open(folder_of(&path))?,
            name: name.to_owned(),
            path,
        })
    }

    /// The place that `path` leads to. If a symbolic link lies there, it is followed to its end,
    /// whether or not a file is there.
    ///
    /// # Errors
    /// If a folder on the way cannot be opened, or `path` ends with no name.
    pub fn find(path: &Path) -> io::Result<Self> {
        let mut place = Self::of_name(path)?;
        for _ in 0..LINKS_MAX {
            let Some(target) = place.folder.link(&place.name)? else {
                return Ok(place);
            };
            place = Self::of_name(&folder_of(&place.path).join(target))?;
        }
        Err(Errno::LOOP.into())
    }

    /// The place in the same folder whose name ends with `suffix` as well.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        let mut name = self.name.clone();
        name.push(suffix);
        self.with_name(name)
    }

    /// The place of this name in the same folder.
    #[must_use]
    pub fn with_name(&self, name: OsString) -> Self {
        Self {
            folder: self.folder.clone(),
            path: self.path.with_file_name(&name),
            name,
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The name.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The absolute path by which the place was found. The folder may have another one by now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether anything has the name.
    pub fn is_taken(&self) -> bool {
        statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Opens the file for reading and, if `writable`, for writing. Does not follow a link, and does
    /// not wait for the other end of a pipe.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn open(&self, writable: bool) -> io::Result<File> {
        let access = if writable {
            OFlags::RDWR
        } else {
            OFlags::RDONLY
        };
        self.open_as(access | OFlags::NONBLOCK, Mode::empty())
    }

    /// Makes a file for reading and writing, with these permissions as far as the process grants
    /// any to new files.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if something has the name; and whatever the system refuses.
    pub fn make(&self, mode: u32) -> io::Result<File> {
        grant(SystemCall::MakeFile)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        self.open_as(flags, Mode::from_raw_mode(mode))
    }

    /// Makes a file in the same folder, readable by its owner only, under a name that was not taken:
    /// hidden, and ending with `what`.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn make_beside(&self, what: &str) -> io::Result<NewFile> {
        let mut number = 0;
        loop {
            let mut name = OsString::from(".");
            name.push(&self.name);
            name.push(format!(".{}.{number}.{what}", std::process::id()));
            let place = self.with_name(name);
            match place.make(OWNER_ONLY) {
                Ok(file) => return Ok(NewFile { place, file }),
                // An earlier process with the same number has left a file of this name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a file in the same folder that has no name, readable by its owner only. It ends with its
    /// last descriptor.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn make_unnamed(&self) -> io::Result<File> {
        grant(SystemCall::MakeFile)?;
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(OWNER_ONLY);
        if let Ok(made) = retry_on_intr(|| openat(&self.folder, ".", flags, mode)) {
            return Ok(made.into());
        }
        // The file system cannot make files without a name.
        let NewFile { place, file } = self.make_beside("spool")?;
        place.remove(&file)?;
        Ok(file)
    }

    fn open_as(&self, flags: OFlags, mode: Mode) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| openat(&self.folder, &self.name, flags, mode))?;
        Ok(opened.into())
    }

    /// How `file`, which was opened here, has lost its name; `None` if it still has it.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn displacement(&self, file: &File) -> io::Result<Option<Displacement>> {
        let held = fstat(file)?;
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileId::in_stat(&found) == FileId::in_stat(&held) => Ok(None),
            Ok(_) | Err(Errno::NOENT) if held.st_nlink == 0 => Ok(Some(Displacement::Removed)),
            Ok(_) | Err(Errno::NOENT) => Ok(Some(Displacement::Moved)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes the name if it still means `file`, and returns whether it did. Between the
    /// comparison and the removal another process can give the name to another file, which is then
    /// removed; the system has no call that does both.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn remove(&self, file: &File) -> io::Result<bool> {
        if self.displacement(file)?.is_some() {
            return Ok(false);
        }
        match unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives the file at `path` this name, whatever had it before.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn replace_by(&self, path: &Path) -> io::Result<()> {
        Ok(renameat(CWD, path, &self.folder, &self.name)?)
    }

    /// Gives the file of this place the name of `other`.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if something has that name; and whatever the system
    /// refuses.
    pub fn rename_to(&self, other: &Self) -> io::Result<()> {
        let flags = RenameFlags::NOREPLACE;
        match renameat_with(&self.folder, &self.name, &other.folder, &other.name, flags) {
            // The file system has no rename that refuses to replace.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let flags = AtFlags::empty();
                linkat(&self.folder, &self.name, &other.folder, &other.name, flags)?;
                Ok(unlinkat(&self.folder, &self.name, flags)?)
            }
            renamed => Ok(renamed?),
        }
    }
}

/// A file of an open store that is not at its place any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DisplacedFile {
    /// The file: the pool's, or its log.
    pub file: Grown,
    /// The path where it was.
    pub path: PathBuf,
    /// How it has lost its name.
    pub how: Displacement,
}

/// The event, and the way out.
impl fmt::Display for DisplacedFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        let way_out = match (self.file, self.how) {
            (Grown::Log, _) => {
                "is the log of an open pool, and was moved or removed, so nothing more is written; the pool has all acknowledged \
                 writes, and needs no log: close the store, and open it again"
            }
            (_, Displacement::Removed) => {
                "was removed or replaced while it was open, so nothing more is written to it, and its entries are lost when it is \
                 closed; copy them out before (`Store::backup`, or reads)"
            }
            (_, Displacement::Moved) => {
                "was moved while it was open, so nothing more is written to it; it has all acknowledged writes: close the store, \
                 and open the file where it is now, or move it back"
            }
        };
        write!(formatter, "{path} {way_out}")
    }
}

#[cfg(test)]
mod tests;
