//! The map of the house shows every crate.

use super::Finding;
use super::tree::{MAP, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let finding = |what: String, way_out: &str| Finding {
        file: MAP.to_owned(),
        line: 1,
        what,
        way_out: way_out.to_owned(),
    };
    let Some(map) = tree.map() else {
        return vec![finding("the map is missing".to_owned(), "write it: one line for every crate")];
    };
    let missing = tree.crates().filter(|(name, _)| !names_folder(map, name));
    missing
        .map(|(name, _)| finding(format!("crates/{name} is not on the map"), "add a line for it"))
        .collect()
}

/// Whether the text contains `name/` or `crates/name` as a whole word.
fn names_folder(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    let mut words = text.split(|c: char| !is_part(c));
    words.any(|word| {
        let path = word.strip_prefix("crates/").unwrap_or(word);
        let folder = path.split('/').next();
        folder == Some(name) && word.contains('/')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(map: &str) -> Vec<String> {
        let crates = ["crates/sim/Cargo.toml", "crates/pool/Cargo.toml"].map(|path| (path, "[package]"));
        let others = ["xtask/Cargo.toml", "crates/sim/inside/Cargo.toml"].map(|path| (path, "[package]"));
        let tree = Tree::of(&[crates[0], crates[1], others[0], others[1], (MAP, map)]);
        check(&tree).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_map_with_every_crate_passes() {
        assert_eq!(findings("crates/\n  pool/  the file\n  sim/  crashes\n"), Vec::<String>::new());
        assert_eq!(findings("`crates/pool` is the file, `crates/sim/src` the rest."), Vec::<String>::new());
    }

    #[test]
    fn a_crate_that_is_not_on_the_map_is_found() {
        assert_eq!(findings("crates/\n  pool/  the file\n"), ["crates/sim is not on the map"]);
        assert_eq!(findings("pool/ and simulation/, a sim, src/sim/"), ["crates/sim is not on the map"]);
    }

    #[test]
    fn a_map_that_is_not_there_is_found() {
        let findings = check(&Tree::of(&[("crates/sim/Cargo.toml", "[package]")]));
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].file.as_str(), findings[0].what.as_str()), (MAP, "the map is missing"));
    }
}
