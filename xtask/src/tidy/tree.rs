//! What the rules look at: the Rust files, the manifests and the map of a workspace, and what cargo
//! says of its packages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use serde::Deserialize;
use walkdir::{DirEntry, WalkDir};

/// The page that names every crate.
pub(super) const MAP: &str = "docs/ARCHITECTURE.md";

/// A file, with its path from the workspace root, with `/` on every platform.
pub(super) struct TextFile {
    pub(super) path: String,
    pub(super) text: String,
}

/// What `cargo metadata` says.
#[derive(Deserialize)]
struct Metadata {
    workspace_root: PathBuf,
    packages: Vec<Package>,
}

/// A package of the workspace.
#[derive(Deserialize)]
pub(super) struct Package {
    manifest_path: PathBuf,
    pub(super) dependencies: Vec<Dependency>,
    pub(super) targets: Vec<CargoTarget>,
}

/// A dependency, whatever its kind and target.
#[derive(Deserialize)]
pub(super) struct Dependency {
    name: String,
    rename: Option<String>,
    /// `dev` or `build`.
    pub(super) kind: Option<String>,
    pub(super) optional: bool,
    /// The folder, if it is not from a registry.
    pub(super) path: Option<PathBuf>,
}

impl Dependency {
    /// The name on the left of the `=`.
    pub(super) fn key(&self) -> &str {
        self.rename.as_deref().unwrap_or(&self.name)
    }
}

/// A crate of a package.
#[derive(Deserialize)]
pub(super) struct CargoTarget {
    pub(super) kind: Vec<String>,
    pub(super) src_path: PathBuf,
}

/// The workspace as the rules see it.
pub(super) struct Workspace {
    root: PathBuf,
    files: Vec<TextFile>,
    pub(super) packages: Vec<Package>,
}

/// Why a workspace could not be checked at all.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("cargo finds no workspace here ({0}); go into the workspace or use --root DIR")]
    NoWorkspace(String),
    #[error("{0}: {1}; make it readable")]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot walk the workspace: {0}")]
    Walk(#[from] walkdir::Error),
    #[error("cannot print the report: {0}")]
    Print(#[source] io::Error),
}

/// What cargo says of the workspace at `root`, or around the current folder.
fn metadata(root: Option<&Path>) -> Result<Metadata, Failure> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--no-deps", "--format-version=1"]);
    if let Some(root) = root {
        command.arg("--manifest-path").arg(root.join("Cargo.toml"));
    }
    let said = command
        .output()
        .map_err(|error| Failure::NoWorkspace(error.to_string()))?;
    let refused = String::from_utf8_lossy(&said.stderr).trim().to_owned();
    serde_json::from_slice(&said.stdout).map_err(|_| Failure::NoWorkspace(refused))
}

impl Workspace {
    /// Reads every Rust file, every manifest and the map of the workspace at `root`, or around the
    /// current folder.
    pub(super) fn load(root: Option<&Path>) -> Result<Self, Failure> {
        let Metadata {
            workspace_root: root,
            packages,
        } = metadata(root)?;
        let mut files = Vec::new();
        for entry in WalkDir::new(&root)
            .sort_by_file_name()
            .into_iter()
            .filter_entry(is_ours)
        {
            let entry = entry?;
            let path = relative(&root, entry.path());
            if entry.file_type().is_file()
                && (path == MAP || is_manifest(&path) || is_source(&path))
            {
                let text = fs::read_to_string(entry.path());
                let text =
                    text.map_err(|error| Failure::Read(entry.path().to_path_buf(), error))?;
                files.push(TextFile { path, text });
            }
        }
        Ok(Self {
            root,
            files,
            packages,
        })
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| is_source(&file.path))
    }

    pub(super) fn manifests(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| is_manifest(&file.path))
    }

    /// The file at a path from the root.
    pub(super) fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// A path from the root.
    pub(super) fn relative(&self, path: &Path) -> String {
        relative(&self.root, path)
    }

    /// The folder of a package, from the root.
    pub(super) fn folder(&self, package: &Package) -> String {
        package
            .manifest_path
            .parent()
            .map_or_else(String::new, |folder| self.relative(folder))
    }
}

fn relative(root: &Path, path: &Path) -> String {
    let parts = path.strip_prefix(root).unwrap_or(path).components();
    parts
        .map(|part| part.as_os_str().to_string_lossy())
        .collect::<Vec<_>>()
        .join("/")
}

fn is_source(path: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|extension| extension == "rs")
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
