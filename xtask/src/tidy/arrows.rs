//! Arrows between crates run one way: medium <- pool <- engines <- everleaf <- {sim, server} <- lab <- cli.
//!
//! Dependencies of tests and build scripts are arrows as well: a test that reaches upward meets a second
//! copy of its own crate.

use super::Finding;
use super::manifest::{Dependency, Manifest, Section};
use super::tree::Tree;

/// The crates from the ground up. A crate may depend on the crates of the layers below its own.
const LAYERS: &[&[&str]] =
    &[&["medium"], &["pool"], &["engines"], &["everleaf"], &["sim", "server"], &["lab"], &["cli"]];

/// Crates that are to be of use without the rest of the house: what they may need of it unconditionally.
const CORES: &[(&str, &[&str])] = &[("sim", &["medium"])];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.crates().flat_map(|(name, manifest)| check_crate(tree, name, manifest)).collect()
}

fn check_crate(tree: &Tree, name: &str, manifest: &Manifest) -> Vec<Finding> {
    let Some(layer) = layer(name) else {
        let what = format!("crates/{name} has no layer");
        return vec![manifest.finding(1, what, "give it one in xtask/src/tidy/arrows.rs and in docs")];
    };
    let mut findings = Vec::new();
    for dependency in manifest.dependencies() {
        let Some(target) = member(tree, manifest, &dependency) else { continue };
        let Some(target) = target.strip_prefix("crates/") else {
            let what = format!("{name} depends on {target}, which is not part of the library");
            findings.push(manifest.finding(dependency.line, what, "turn the arrow round"));
            continue;
        };
        // A target without a layer is a finding of its own manifest.
        let is_down = self::layer(target).is_none_or(|below| below < layer);
        let core = CORES.iter().find(|(core, _)| *core == name).map(|(_, allowed)| *allowed);
        let is_core = dependency.section != Section::Dev && !dependency.optional;
        if !is_down {
            let what = format!("{name} depends on {target}, which is not below it");
            let way_out = "turn the arrow round, or move what is shared down";
            findings.push(manifest.finding(dependency.line, what, way_out));
        } else if is_core && core.is_some_and(|allowed| !allowed.contains(&target)) {
            let what = format!("the core of {name} depends on {target}");
            findings.push(manifest.finding(dependency.line, what, "make the dependency optional"));
        }
    }
    findings
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// The folder of the workspace member that a dependency means, however it is written.
fn member(tree: &Tree, from: &Manifest, dependency: &Dependency) -> Option<String> {
    let root = tree.root_manifest();
    let shared = root.map(Manifest::workspace_dependencies).unwrap_or_default();
    let inherited = shared.iter().find(|shared| dependency.inherited && shared.key == dependency.key);
    let (base, dependency) = inherited.map_or((from.folder(), dependency), |shared| ("", shared));
    if let Some(path) = &dependency.path {
        return Some(join(base, path));
    }
    let named = |manifest: &&Manifest| manifest.package() == Some(dependency.package());
    tree.manifests().iter().find(named).map(|manifest| manifest.folder().to_owned())
}

/// Resolves `..` and `.` in a path relative to a folder of the workspace.
fn join(base: &str, path: &str) -> String {
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.dependencies]\nmedium = { path = \"crates/medium\", package = \
                        \"everleaf-medium\" }\npool = { path = \"crates/pool\" }\nengines = { path = \
                        \"crates/engines\" }\neverleaf = { path = \"./crates/everleaf\" }\nsim = { path = \
                        \"crates/sim\" }\ncli = { path = \"crates/cli\" }\nbench = { path = \"bench\" }\n\
                        clap = \"4\"\n";

    /// The findings for `crates/<name>` with these lines in its manifest, from line 3 on.
    fn findings(name: &str, lines: &str) -> Vec<(usize, String)> {
        let manifest = format!("[package]\nname = \"everleaf-{name}\"\n{lines}\n");
        let path = format!("crates/{name}/Cargo.toml");
        let mut files = vec![("Cargo.toml", ROOT), (path.as_str(), manifest.as_str())];
        if name != "pool" {
            files.push(("crates/pool/Cargo.toml", "[package]\nname = \"everleaf-pool\"\n"));
        }
        check(&Tree::of(&files)).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn arrows_that_point_down_pass() {
        assert_eq!(findings("medium", "[dependencies]\nclap.workspace = true"), []);
        assert_eq!(findings("pool", "[dependencies]\nmedium.workspace = true"), []);
        assert_eq!(findings("engines", "[dependencies]\nmedium.workspace = true\npool.workspace = true"), []);
        assert_eq!(
            findings("cli", "[dependencies]\nsim.workspace = true\neverleaf = { workspace = true }"),
            []
        );
    }

    #[test]
    fn arrows_that_point_up_are_found() {
        for (name, target) in [
            ("medium", "pool"),
            ("pool", "engines"),
            ("engines", "everleaf"),
            ("everleaf", "sim"),
            ("sim", "cli"),
            ("engines", "cli"),
        ] {
            let expected = [(4, format!("{name} depends on {target}, which is not below it"))];
            for section in ["dependencies", "dev-dependencies", "target.'cfg(unix)'.build-dependencies"] {
                let lines = format!("[{section}]\n{target}.workspace = true");
                assert_eq!(findings(name, &lines), expected, "{section}");
            }
        }
        let expected = [(4, "sim depends on lab, which is not below it".to_owned())];
        assert_eq!(findings("sim", "[dependencies]\nlab = { path = \"../lab\", optional = true }"), expected);
    }

    #[test]
    fn an_arrow_is_seen_however_it_is_written() {
        let expected = [(4, "medium depends on pool, which is not below it".to_owned())];
        for line in [
            "pool.workspace = true",
            "p = { path = \"../pool\" }",
            "p = { package = \"everleaf-pool\", version = \"1\" }",
            "everleaf-pool = \"1\"",
        ] {
            assert_eq!(findings("medium", &format!("[dependencies]\n{line}")), expected, "{line}");
        }
        assert_eq!(findings("medium", "[dependencies]\npool = \"1\""), [], "a stranger of the same name");
    }

    #[test]
    fn the_core_of_sim_needs_only_medium() {
        let optional = "engines = { workspace = true, optional = true }";
        let lines = format!("[dependencies]\nmedium.workspace = true\n{optional}\n[dev-dependencies]\n");
        assert_eq!(findings("sim", &format!("{lines}pool.workspace = true")), []);
        let expected = [(5, "the core of sim depends on engines".to_owned())];
        let lines = "[dependencies]\nmedium.workspace = true\nengines.workspace = true";
        assert_eq!(findings("sim", lines), expected);
    }

    #[test]
    fn strangers_to_the_order_are_found() {
        assert_eq!(findings("spare", ""), [(1, "crates/spare has no layer".to_owned())]);
        let expected = [(4, "cli depends on bench, which is not part of the library".to_owned())];
        assert_eq!(findings("cli", "[dependencies]\nbench.workspace = true"), expected);
    }
}
