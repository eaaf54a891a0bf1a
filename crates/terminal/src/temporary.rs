//! Files that are removed at the end, even if a signal ends the process before.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

static FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A new file that is removed when this is dropped, and so is the log beside it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes the file.
    ///
    /// # Errors
    /// If it exists or cannot be made.
    pub fn create(path: PathBuf) -> io::Result<Self> {
        let mut files = FILES.lock();
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        files.push(path.clone());
        Ok(Self(path))
    }

    /// Takes charge of a file that another process makes.
    pub fn adopt(path: &Path) -> Self {
        FILES.lock().push(path.to_owned());
        Self(path.to_owned())
    }

    /// Leaves the file in place.
    pub fn keep(self) {
        FILES.lock().retain(|file| *file != self.0);
        std::mem::forget(self);
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut files = FILES.lock();
        remove(&self.0);
        files.retain(|file| *file != self.0);
    }
}

fn remove(path: &Path) {
    // A file that is not there need not be removed.
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_file(everleaf::log_path(path));
}

/// Removes all of them, before the process ends.
pub fn remove_all() {
    FILES.lock().drain(..).for_each(|path| remove(&path));
}
