//! Which modules a kernel needs, and in which order they are loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::failure::Failure;

/// The modules of a kernel.
pub(super) struct Modules {
    builtin: BTreeSet<String>,
    files: BTreeMap<String, PathBuf>,
}

/// The name of a module by its file: `virtio-ring.ko` is `virtio_ring`.
fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    Some(name.strip_suffix(".ko")?.replace('-', "_"))
}

/// What a module says that it depends on.
fn dependencies(module: &[u8]) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let begin = module
        .windows(FIELD.len())
        .position(|window| window == FIELD);
    let text = begin.map_or(&[][..], |begin| &module[begin + FIELD.len()..]);
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let names = std::str::from_utf8(text).unwrap_or_default();
    names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

/// What a module by its name depends on; `None` if it is built in.
type Depends<'a> = dyn FnMut(&str) -> Result<Option<Vec<String>>, Failure> + 'a;

/// The wanted names and all that they depend on, each behind what it needs. The error is a name
/// that is not known.
fn in_order(wanted: &[&str], depends: &mut Depends<'_>) -> Result<Vec<String>, Failure> {
    fn visit(
        name: &str,
        depends: &mut Depends<'_>,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<String>,
    ) -> Result<(), Failure> {
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        if let Some(needed) = depends(name)? {
            needed
                .iter()
                .try_for_each(|needed| visit(needed, depends, seen, order))?;
            order.push(name.to_owned());
        }
        Ok(())
    }
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    wanted
        .iter()
        .try_for_each(|name| visit(name, depends, &mut seen, &mut order))?;
    Ok(order)
}

impl Modules {
    /// Those in a folder `lib/modules/VERSION`.
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        let list = folder.join("modules.builtin");
        let builtin = std::fs::read_to_string(&list).map_err(Failure::io("read", &list))?;
        let builtin = builtin
            .lines()
            .filter_map(|line| name_of(Path::new(line)))
            .collect();
        let files = WalkDir::new(folder).into_iter().filter_map(Result::ok);
        let files = files
            .filter_map(|file| Some((name_of(file.path())?, file.into_path())))
            .collect();
        Ok(Self { builtin, files })
    }

    /// The content of the wanted modules and of those that they depend on, in the order of loading.
    pub(super) fn load(
        &self,
        wanted: &[&str],
        package: &str,
    ) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let mut contents = BTreeMap::new();
        let order = in_order(wanted, &mut |name| {
            if self.builtin.contains(name) {
                return Ok(None);
            }
            let path = self.files.get(name).ok_or_else(|| Failure::NoModule {
                package: package.to_owned(),
                module: name.to_owned(),
            })?;
            let content = std::fs::read(path).map_err(Failure::io("read", path))?;
            let depends = dependencies(&content);
            contents.insert(name.to_owned(), content);
            Ok(Some(depends))
        })?;
        Ok(order
            .into_iter()
            .filter_map(|name| contents.remove_entry(&name))
            .collect())
    }
}

#[cfg(test)]
mod tests;
