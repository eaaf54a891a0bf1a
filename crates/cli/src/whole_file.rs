//! Output files that replace an old file only when they are complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use medium::file::folder_of;
use tempfile::NamedTempFile;

/// A file that is written beside its final path, and moved there at the end. Until then, and if
/// anything fails, an old file there is unchanged.
pub(crate) enum WholeFile {
    Beside {
        file: NamedTempFile,
        place: PathBuf,
    },
    /// A device or a pipe, which nothing can replace.
    Direct(File),
}

impl WholeFile {
    /// Begins a file for `path`. If a file exists there, the new one gets its owner and its
    /// permissions.
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        // A link is followed: the file that it leads to is replaced.
        let place = place_of(path)?;
        let found = match fs::metadata(&place) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => return File::create(&place).map(Self::Direct),
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mode = if found.is_some() {
            medium::file::PRIVATE_MODE
        } else {
            0o666
        };
        let file = part_beside(&place, mode)?;
        if let Some(found) = found {
            // If that fails, only this user may read the file.
            let _ = medium::file::share_access(file.as_file(), &found);
        }
        Ok(Self::Beside { file, place })
    }

    /// A handle to write to.
    pub(crate) fn handle(&self) -> io::Result<File> {
        match self {
            Self::Beside { file, .. } => file.as_file().try_clone(),
            Self::Direct(file) => file.try_clone(),
        }
    }

    /// Moves the complete file to its path, durably.
    pub(crate) fn finish(self) -> io::Result<()> {
        let Self::Beside { file, place } = self else {
            return Ok(());
        };
        file.as_file().sync_all()?;
        file.persist(&place)?;
        medium::file::sync_folder(&place)
    }
}

const PART_SUFFIX: &str = ".part";

fn part_prefix(place: &Path) -> String {
    format!(
        ".{}.",
        place.file_name().unwrap_or_default().to_string_lossy()
    )
}

/// The files that [`part_beside`] has made and nothing has removed.
pub(crate) fn parts_beside(place: &Path) -> io::Result<Vec<PathBuf>> {
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
        if entry.file_name().to_str().is_some_and(is_part) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// A new file with another name beside `place`. Errors do not contain that name, which a user does
/// not know.
pub(crate) fn part_beside(place: &Path, mode: u32) -> io::Result<NamedTempFile> {
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

/// The path of a file, existing or not, with links resolved.
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

/// Whether two paths lead, or would lead, to the same file.
pub(crate) fn are_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        fs::metadata(path)
            .map(|found| (found.dev(), found.ino()))
            .ok()
    };
    let both = |found: Option<bool>| found.unwrap_or(false);
    both(
        identity(one)
            .zip(identity(other))
            .map(|(one, other)| one == other),
    ) || both(
        place_of(one)
            .ok()
            .zip(place_of(other).ok())
            .map(|(one, other)| one == other),
    )
}
