//! Packages of Debian: downloaded once into target/vm/packages, unpacked, not installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::failure::{Failure, output};

/// Downloads packages, and keeps them.
pub(super) struct Packages {
    folder: PathBuf,
}

/// The package that a meta-package of a kernel stands for, as `apt-cache depends` says it.
fn real_package(depends: &str) -> Option<&str> {
    let names = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    names
        .into_iter()
        .find(|name| name.starts_with("linux-image-"))
}

/// Whether a file is the package, or, of a meta-package of a kernel, one that it stands for.
fn is_package(file: &str, package: &str) -> bool {
    let Some(name) = file
        .strip_suffix(".deb")
        .and_then(|file| file.split('_').next())
    else {
        return false;
    };
    let version = package.strip_prefix("linux-image-").and_then(|flavour| {
        name.strip_prefix("linux-image-")?
            .strip_suffix(flavour)?
            .strip_suffix('-')
    });
    name == package
        || version.is_some_and(|version| {
            !version
                .split('-')
                .any(|part| part.starts_with(char::is_alphabetic))
        })
}

impl Packages {
    pub(super) fn new(folder: PathBuf) -> Result<Self, Failure> {
        std::fs::create_dir_all(&folder).map_err(Failure::io("make", &folder))?;
        Ok(Self { folder })
    }

    fn find(&self, package: &str) -> Result<Option<PathBuf>, Failure> {
        let files = std::fs::read_dir(&self.folder).map_err(Failure::io("read", &self.folder))?;
        let files = files.filter_map(Result::ok).map(|file| file.path());
        let is_it = |file: &Path| {
            file.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| is_package(name, package))
        };
        Ok(files.filter(|file| is_it(file)).max())
    }

    /// A folder with the package's content.
    pub(super) fn unpacked(&self, package: &str) -> Result<PathBuf, Failure> {
        if self.find(package)?.is_none() {
            self.download(package)?;
        }
        let deb = self.find(package)?.ok_or_else(|| Failure::NoPackage {
            package: package.to_owned(),
            why: "apt-get downloaded something else".to_owned(),
            folder: self.folder.clone(),
        })?;
        let content = deb.with_extension("content");
        if !content.exists() {
            // Under another name until it is complete.
            let part = deb.with_extension("part");
            let _ = std::fs::remove_dir_all(&part);
            output(
                Command::new("dpkg-deb")
                    .arg("--extract")
                    .arg(&deb)
                    .arg(&part),
                "dpkg",
            )?;
            std::fs::rename(&part, &content).map_err(Failure::io("rename", &part))?;
        }
        Ok(content)
    }

    fn download(&self, package: &str) -> Result<(), Failure> {
        let refused = |failure: Failure| match failure {
            Failure::Command { what, .. } => Failure::NoPackage {
                package: package.to_owned(),
                why: what,
                folder: self.folder.clone(),
            },
            other => other,
        };
        let depends =
            output(Command::new("apt-cache").args(["depends", package]), "apt").map_err(refused)?;
        let depends = String::from_utf8_lossy(&depends.stdout);
        let real = real_package(&depends).unwrap_or(package);
        eprintln!("downloading {real}");
        let mut download = Command::new("apt-get");
        download.args(["download", real]).current_dir(&self.folder);
        output(&mut download, "apt").map_err(refused)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
