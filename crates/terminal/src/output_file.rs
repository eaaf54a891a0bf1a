//! The files that commands make. An existing file is replaced only if the user gives `--force`, and
//! only once the new file is whole and durable. Without `--force` the new file takes its name in a
//! step that fails if the name is taken, so a file that appears meanwhile is not replaced either.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use medium::file::{PRIVATE_MODE, folder_of, share_access, sync_folder};
use tempfile::{NamedTempFile, TempDir, TempPath};

/// The option of every command that makes a file.
#[derive(clap::Args, Clone, Copy, Default, Debug)]
pub struct ForceArgs {
    /// Replace an existing file, once the new one is whole; never a pool that a process has open,
    /// and never its log
    #[arg(long)]
    pub force: bool,
}

/// A file that the command reads. The output must not replace it.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// The path of the file, which need not exist.
    pub path: PathBuf,
    /// The file in words, such as "the pool itself".
    pub what: &'static str,
}

/// Why an output file was not made.
#[derive(thiserror::Error, Debug)]
pub enum OutputError {
    /// A file of this name exists, and there is no `--force`.
    #[error("{} exists already; choose another name, or give --force to replace it", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The output would replace an input.
    #[error("{} is {what}; choose another file", .path.display())]
    IsInput {
        /// The output.
        path: PathBuf,
        /// The input, in words.
        what: &'static str,
    },
    /// A process has locked the existing file, or the pool of which the existing file is the log.
    #[error(
        "{} is not replaced: a process has locked {}, and --force replaces neither a pool in use nor its log; wait until that \
         process ends, or choose another name", .path.display(), .locked.display()
    )]
    InUse {
        /// The output.
        path: PathBuf,
        /// The file that is locked.
        locked: PathBuf,
    },
    /// The path leads to a device or a pipe, which cannot hold a pool.
    #[error("{} is a device or a pipe, and a pool is a file; choose another name", .path.display())]
    NotAFile {
        /// The output.
        path: PathBuf,
    },
    /// A file would be taken for the log of the new pool.
    #[error(
        "{} exists, and would be taken for the log of the new pool; remove it, or choose another name for the pool", .log.display()
    )]
    LogExists {
        /// That file.
        log: PathBuf,
    },
    /// The system refuses.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl OutputError {
    /// A closure for `map_err`.
    fn io<'p>(action: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> Self + 'p {
        move |source| Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

/// The path that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// The destination of an output.
enum Destination {
    /// A file that this process has open already. The process that opened it has decided about its
    /// content.
    Open(OpenFile),
    /// A device or a pipe, which is written to and never replaced.
    Device(PathBuf),
    /// A regular file, which need not exist.
    Regular(OutputPath),
}

/// An open file of this process.
struct OpenFile {
    file: File,
    is_standard_output: bool,
}

impl OpenFile {
    fn standard_output() -> io::Result<Self> {
        let handle = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Self {
            file: File::from(handle),
            is_standard_output: true,
        })
    }

    /// The open file that a path such as `/dev/stdout` or `/dev/fd/3` leads to.
    fn find(path: &Path) -> io::Result<Option<Self>> {
        // Without /proc no path leads to an open file.
        let Ok(all) = Path::new("/proc/self/fd").canonicalize() else {
            return Ok(None);
        };
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            let is_one = folder_of(&path)
                .canonicalize()
                .is_ok_and(|folder| folder == all);
            if is_one {
                return Self::of_number(&path).map(Some);
            }
            let Ok(target) = fs::read_link(&path) else {
                return Ok(None);
            };
            path = folder_of(&path).join(target);
        }
        Ok(None)
    }

    fn of_number(path: &Path) -> io::Result<Self> {
        let file = match path.file_name().and_then(OsStr::to_str) {
            Some("1") => return Self::standard_output(),
            Some("2") => File::from(io::stderr().as_fd().try_clone_to_owned()?),
            // At the end: the file may hold something already, which stays.
            _ => OpenOptions::new().append(true).open(path)?,
        };
        Ok(Self {
            file,
            is_standard_output: false,
        })
    }
}

/// The most links in a row that are followed to an open file, as many as the system follows.
const LINKS_MAX: u32 = 40;

/// The path of a regular file, which need not exist.
struct OutputPath {
    /// The path that the user gave.
    given: PathBuf,
    /// The path with its links followed: the file that a link leads to is replaced, and not the
    /// link.
    place: PathBuf,
    /// The file that exists there.
    existing: Option<Box<Metadata>>,
    is_forced: bool,
}

impl Destination {
    /// Finds the destination, and refuses inputs, existing files without `--force`, and files in
    /// use.
    fn find(path: &Path, force: ForceArgs, inputs: &[InputFile]) -> Result<Self, OutputError> {
        let destination = Self::find_any(path, force).map_err(OutputError::io("create", path))?;
        for input in inputs {
            if destination.is(&input.path) {
                let path = if path == Path::new(STANDARD_OUTPUT) {
                    Path::new("standard output")
                } else {
                    path
                };
                return Err(OutputError::IsInput {
                    path: path.to_owned(),
                    what: input.what,
                });
            }
        }
        if let Self::Regular(regular) = &destination
            && regular.existing.is_some()
        {
            if !force.force {
                return Err(regular.exists());
            }
            regular.lock()?;
        }
        Ok(destination)
    }

    fn find_any(path: &Path, force: ForceArgs) -> io::Result<Self> {
        if path == Path::new(STANDARD_OUTPUT) {
            return OpenFile::standard_output().map(Self::Open);
        }
        if let Some(open) = OpenFile::find(path)? {
            return Ok(Self::Open(open));
        }
        let place = place_of(path)?;
        let existing = match fs::metadata(&place) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => return Ok(Self::Device(place)),
            Ok(found) => Some(Box::new(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self::Regular(OutputPath {
            given: path.to_owned(),
            place,
            existing,
            is_forced: force.force,
        }))
    }

    /// Whether this is the file at `input`, by whatever path or link.
    fn is(&self, input: &Path) -> bool {
        let existing = match self {
            Self::Open(open) => open.file.metadata().ok().map(Box::new),
            Self::Device(_) => None,
            Self::Regular(regular) => regular.existing.clone(),
        };
        if let Ok(input) = fs::metadata(input) {
            return existing.is_some_and(|existing| is_same_file(&existing, &input));
        }
        match self {
            Self::Regular(regular) => place_of(input).is_ok_and(|place| place == regular.place),
            Self::Open(_) | Self::Device(_) => false,
        }
    }
}

fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    one.dev() == other.dev() && one.ino() == other.ino()
}

impl OutputPath {
    fn exists(&self) -> OutputError {
        OutputError::Exists {
            path: self.given.clone(),
        }
    }

    fn error<'s>(&'s self, action: &'static str) -> impl FnOnce(io::Error) -> OutputError + 's {
        OutputError::io(action, &self.given)
    }

    /// Locks the existing file and, if it has the name of a log, the pool of that log. A process
    /// keeps a pool locked while it has the pool open, so this fails then.
    fn lock(&self) -> Result<Vec<File>, OutputError> {
        let mut paths = vec![self.place.clone()];
        paths.extend(pool_of_log(&self.place));
        let mut locks = Vec::new();
        for path in paths {
            if !fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                continue;
            }
            let file = open_to_lock(&path).map_err(OutputError::io("open", &path))?;
            match file.try_lock() {
                Ok(()) => locks.push(file),
                Err(TryLockError::WouldBlock) => {
                    return Err(OutputError::InUse {
                        path: self.given.clone(),
                        locked: path,
                    });
                }
                // On a file system without locks no process can open a pool.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
                Err(TryLockError::Error(error)) => {
                    return Err(OutputError::io("lock", &path)(error));
                }
            }
        }
        Ok(locks)
    }

    /// Moves the whole and durable file `part` to this path, durably.
    fn take(&self, part: TempPath) -> Result<(), OutputError> {
        if self.is_forced {
            // The locks are held until the file is replaced, so no process opens it meanwhile.
            let _locks = self.lock()?;
            part.persist(&self.place)
                .map_err(|failed| self.error("write")(failed.error))?;
        } else {
            part.persist_noclobber(&self.place)
                .map_err(|failed| match failed.error.kind() {
                    io::ErrorKind::AlreadyExists => self.exists(),
                    _ => self.error("write")(failed.error),
                })?;
        }
        sync_folder(&self.place).map_err(self.error("write"))
    }

    /// Begins a file beside this path. It gets the owner and the permissions of an existing file.
    fn begin_part(&self) -> Result<NamedTempFile, OutputError> {
        let Some(existing) = &self.existing else {
            return part_beside(&self.place, NEW_MODE).map_err(self.error("create"));
        };
        let part = part_beside(&self.place, PRIVATE_MODE).map_err(self.error("create"))?;
        // If that fails, only this user may read the file.
        let _ = share_access(part.as_file(), existing);
        Ok(part)
    }
}

/// The permissions of a new file, of which the system takes away the user's mask.
const NEW_MODE: u32 = 0o666;

/// The pool whose log has this path, if the path has the name of a log.
fn pool_of_log(log: &Path) -> Option<PathBuf> {
    let name = log.file_name()?.as_bytes().strip_suffix(b".log")?;
    Some(log.with_file_name(OsStr::from_bytes(name)))
}

fn open_to_lock(path: &Path) -> io::Result<File> {
    // A network file system locks only files that are open for writing.
    match OpenOptions::new().read(true).write(true).open(path) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::ExecutableFileBusy
            ) =>
        {
            File::open(path)
        }
        opened => opened,
    }
}

/// An output file under way. If this is dropped before it is finished, an existing file stays as it
/// is, and a new one does not appear.
pub struct OutputFile(Target);

enum Target {
    /// An open file, a device or a pipe, which is written to directly.
    Direct(OpenFile),
    /// A regular file, which is written beside its path and moved there at the end.
    Beside {
        part: NamedTempFile,
        path: OutputPath,
    },
}

impl OutputFile {
    /// Begins the file at `path`; `-` is standard output.
    ///
    /// # Errors
    /// [`OutputError`] if the path leads to one of `inputs`, to an existing file without `--force`,
    /// or to a file in use, or if the system refuses.
    pub fn begin(path: &Path, force: ForceArgs, inputs: &[InputFile]) -> Result<Self, OutputError> {
        let target = match Destination::find(path, force, inputs)? {
            Destination::Open(open) => Target::Direct(open),
            Destination::Device(place) => {
                let opened = OpenOptions::new().write(true).open(place);
                Target::Direct(OpenFile {
                    file: opened.map_err(OutputError::io("open", path))?,
                    is_standard_output: false,
                })
            }
            Destination::Regular(path) => Target::Beside {
                part: path.begin_part()?,
                path,
            },
        };
        Ok(Self(target))
    }

    /// Makes sure that a file of `bytes` bytes can be written to `path` later. Nothing changes
    /// there.
    ///
    /// # Errors
    /// Those of [`OutputFile::begin`].
    pub fn rehearse(path: &Path, force: ForceArgs, bytes: usize) -> Result<(), OutputError> {
        let Destination::Regular(regular) = Destination::find(path, force, &[])? else {
            return Ok(());
        };
        let mut part = regular.begin_part()?;
        // A full disk still makes empty files.
        part.write_all(&vec![b' '; bytes])
            .map_err(OutputError::io("write", path))
    }

    /// Writes the whole file at `path`.
    ///
    /// # Errors
    /// Those of [`OutputFile::begin`] and [`OutputFile::finish`].
    pub fn write_whole(path: &Path, force: ForceArgs, content: &[u8]) -> Result<(), OutputError> {
        let output = Self::begin(path, force, &[])?;
        output
            .handle()
            .and_then(|mut file| file.write_all(content))
            .map_err(OutputError::io("write", path))?;
        output.finish()
    }

    /// A handle to write to.
    ///
    /// # Errors
    /// If the system has no room for another open file.
    pub fn handle(&self) -> io::Result<File> {
        match &self.0 {
            Target::Direct(open) => open.file.try_clone(),
            Target::Beside { part, .. } => part.as_file().try_clone(),
        }
    }

    /// Whether the output goes to standard output.
    pub fn is_standard_output(&self) -> bool {
        match &self.0 {
            Target::Direct(open) => open.is_standard_output,
            Target::Beside { .. } => false,
        }
    }

    /// Moves the whole file to its path, durably.
    ///
    /// # Errors
    /// [`OutputError::Exists`] or [`OutputError::InUse`] if that has come true meanwhile;
    /// [`OutputError::Io`] if the system refuses.
    pub fn finish(self) -> Result<(), OutputError> {
        let Target::Beside { part, path } = self.0 else {
            return Ok(());
        };
        part.as_file().sync_all().map_err(path.error("write"))?;
        path.take(part.into_temp_path())
    }
}

/// A new pool that a function of the store makes by its name. It is made in a folder beside its
/// path and moved to the path when it is whole. If this is dropped before, nothing stays.
pub struct OutputPool {
    folder: TempDir,
    path: OutputPath,
}

impl OutputPool {
    /// Begins the pool at `path`.
    ///
    /// # Errors
    /// Those of [`OutputFile::begin`]; [`OutputError::NotAFile`] for devices and pipes;
    /// [`OutputError::LogExists`] if the new pool would get the log of another one.
    pub fn begin(path: &Path, force: ForceArgs, inputs: &[InputFile]) -> Result<Self, OutputError> {
        let Destination::Regular(regular) = Destination::find(path, force, inputs)? else {
            return Err(OutputError::NotAFile {
                path: path.to_owned(),
            });
        };
        refuse_log(&regular)?;
        let folder = tempfile::Builder::new()
            .prefix(&part_prefix(&regular.place))
            .suffix(PART_SUFFIX)
            .tempdir_in(folder_of(&regular.place))
            .map_err(|source| regular.error("create")(without_path(&source)))?;
        Ok(Self {
            folder,
            path: regular,
        })
    }

    /// The path of the pool until it is finished.
    pub fn part(&self) -> PathBuf {
        let name = self.path.place.file_name().unwrap_or_default();
        self.folder.path().join(name)
    }

    /// Whether a file exists that the pool will replace.
    pub fn replaces(&self) -> bool {
        self.path.existing.is_some()
    }

    /// Moves the pool, which is whole and durable, to its path, durably.
    ///
    /// # Errors
    /// Those of [`OutputFile::finish`], and [`OutputError::LogExists`].
    pub fn finish(self) -> Result<(), OutputError> {
        refuse_log(&self.path)?;
        let part = TempPath::try_from_path(self.part()).map_err(self.path.error("write"))?;
        self.path.take(part)
    }
}

/// Refuses the path of a pool beside which there is a log already.
fn refuse_log(path: &OutputPath) -> Result<(), OutputError> {
    let log = everleaf::log_path(&path.place);
    match log.symlink_metadata() {
        Ok(_) => Err(OutputError::LogExists { log }),
        Err(_) => Ok(()),
    }
}

/// The error without the path of a temporary folder, which a user does not know.
fn without_path(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

const PART_SUFFIX: &str = ".part";

fn part_prefix(place: &Path) -> String {
    format!(
        ".{}.",
        place.file_name().unwrap_or_default().to_string_lossy()
    )
}

/// The files that [`part_beside`] has made and nothing has removed.
///
/// # Errors
/// If the folder cannot be read.
pub fn parts_beside(place: &Path) -> io::Result<Vec<PathBuf>> {
    let is_part = |name: &str| {
        let random = name
            .strip_prefix(&part_prefix(place))
            .and_then(|rest| rest.strip_suffix(PART_SUFFIX));
        random.is_some_and(|random| {
            random.len() == 6 && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder_of(place))? {
        let entry = entry?;
        let is_file = entry.file_type()?.is_file();
        if is_file && entry.file_name().to_str().is_some_and(is_part) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// A new file with another name beside `place`. Errors do not contain that name, which a user does
/// not know.
///
/// # Errors
/// If the system refuses.
pub fn part_beside(place: &Path, mode: u32) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(&part_prefix(place))
        .suffix(PART_SUFFIX)
        .make_in(folder_of(place), |path| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(path)
        })
}

/// The path of a file, existing or not, with links followed.
fn place_of(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A link may lead to a path that does not exist yet; a circle of links is another
            // error.
            if let Ok(target) = fs::read_link(path) {
                return place_of(&folder_of(path).join(target));
            }
            let name = path.file_name().ok_or(error)?;
            Ok(folder_of(path).canonicalize()?.join(name))
        }
        place => place,
    }
}

#[cfg(test)]
mod tests;
