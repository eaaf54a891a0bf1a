//! What the rules look at: the Rust files, the manifests and the map of a workspace, read once.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use walkdir::{DirEntry, WalkDir};

use super::Finding;
use super::manifest::Manifest;
use super::source::Source;

/// The page that names every crate.
pub(super) const MAP: &str = "docs/ARCHITECTURE.md";

/// The workspace as the rules see it. Paths start at the workspace root and use `/`.
#[derive(Default)]
pub(super) struct Tree {
    sources: Vec<Source>,
    manifests: Vec<Manifest>,
    map: Option<String>,
    unreadable: Vec<Finding>,
}

/// Why a workspace could not be checked at all.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("no Cargo.toml with a [workspace] in {0} or above it; go into the workspace or use --root DIR")]
    NoWorkspace(PathBuf),
    #[error("{0}: {1}; make it readable")]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot walk the workspace: {0}")]
    Walk(#[from] walkdir::Error),
    #[error("cannot print the report: {0}")]
    Print(#[source] io::Error),
}

/// The workspace around the current folder.
pub(super) fn find_root() -> Result<PathBuf, Error> {
    let start = env::current_dir().map_err(|error| Error::Read(PathBuf::from("."), error))?;
    let root = start.ancestors().find(|folder| is_workspace(folder)).map(Path::to_path_buf);
    root.ok_or(Error::NoWorkspace(start))
}

fn is_workspace(folder: &Path) -> bool {
    let Ok(text) = fs::read_to_string(folder.join("Cargo.toml")) else { return false };
    Manifest::parse("Cargo.toml", &text).is_ok_and(|manifest| manifest.is_workspace())
}

impl Tree {
    /// Reads every Rust file, every manifest and the map below `root`.
    pub(super) fn load(root: &Path) -> Result<Self, Error> {
        if !is_workspace(root) {
            return Err(Error::NoWorkspace(root.to_path_buf()));
        }
        let mut tree = Self::default();
        for entry in WalkDir::new(root).sort_by_file_name().into_iter().filter_entry(is_ours) {
            let entry = entry?;
            if !entry.file_type().is_file() {
                continue;
            }
            let path = entry.path().strip_prefix(root).expect("the walk stays below its root");
            let path = path.components().map(|part| part.as_os_str().to_string_lossy());
            let path = path.collect::<Vec<_>>().join("/");
            if wants(&path) {
                let text = fs::read_to_string(entry.path());
                tree.add(&path, &text.map_err(|error| Error::Read(entry.path().to_path_buf(), error))?);
            }
        }
        Ok(tree)
    }

    /// A workspace written down in a test, as (path, text).
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            assert!(wants(path), "tidy would not look at {path}");
            tree.add(path, text);
        }
        assert_eq!(tree.unreadable, [], "an example must parse");
        tree
    }

    fn add(&mut self, path: &str, text: &str) {
        let outcome = if path == MAP {
            self.map = Some(text.to_owned());
            Ok(())
        } else if is_manifest(path) {
            Manifest::parse(path, text).map(|manifest| self.manifests.push(manifest))
        } else {
            Source::parse(path, text).map(|source| self.sources.push(source))
        };
        self.unreadable.extend(outcome.err());
    }

    pub(super) fn sources(&self) -> &[Source] {
        &self.sources
    }

    pub(super) fn manifests(&self) -> &[Manifest] {
        &self.manifests
    }

    /// The manifest at the workspace root.
    pub(super) fn root_manifest(&self) -> Option<&Manifest> {
        self.manifests.iter().find(|manifest| manifest.path() == "Cargo.toml")
    }

    /// The text of the map, if there is one.
    pub(super) fn map(&self) -> Option<&str> {
        self.map.as_deref()
    }

    /// The folders right below `crates/` that hold a crate, with their manifests.
    pub(super) fn crates(&self) -> impl Iterator<Item = (&str, &Manifest)> {
        self.manifests.iter().filter_map(|manifest| {
            let name = manifest.path().strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!name.contains('/')).then_some((name, manifest))
        })
    }

    /// One finding for every file that does not parse; the rules do not see such a file.
    pub(super) fn unreadable(&self) -> &[Finding] {
        &self.unreadable
    }
}

fn wants(path: &str) -> bool {
    path == MAP || is_manifest(path) || Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

fn is_manifest(path: &str) -> bool {
    path.rsplit('/').next() == Some("Cargo.toml")
}

/// Leaves out hidden folders, build output and other checkouts that lie inside this one.
fn is_ours(entry: &DirEntry) -> bool {
    if entry.depth() == 0 || !entry.file_type().is_dir() {
        return true;
    }
    let name = entry.file_name().to_string_lossy();
    let is_output = name == "target" || entry.path().join("CACHEDIR.TAG").exists();
    !name.starts_with('.') && !is_output && !entry.path().join(".git").exists()
}
