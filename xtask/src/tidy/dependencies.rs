//! Every dependency stands once, in the root manifest, with the reason for it.

use super::Finding;
use super::manifest::Manifest;
use super::tree::Tree;

/// A reason has at least this many words: a bare name says nothing.
const REASON_WORDS_MIN: usize = 2;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.manifests().iter().flat_map(check_manifest).collect()
}

fn check_manifest(manifest: &Manifest) -> Vec<Finding> {
    let mut findings = Vec::new();
    for dependency in manifest.workspace_dependencies() {
        if dependency.comment.split_whitespace().count() < REASON_WORDS_MIN {
            let what = format!("nothing says why `{}` is here", dependency.key);
            let way_out = "end the line with a comment that gives the reason, or delete it";
            findings.push(manifest.finding(dependency.line, what, way_out));
        }
    }
    for dependency in manifest.dependencies().into_iter().filter(|dependency| !dependency.inherited) {
        let what = format!("`{}` is not inherited from the workspace", dependency.key);
        let way_out = "put version and path into the root manifest and write `workspace = true` here";
        findings.push(manifest.finding(dependency.line, what, way_out));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<(usize, String)> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn a_dependency_with_a_reason_passes() {
        let text = "[workspace.dependencies]\na = \"1\" # the command line\n# reads the map\n\
                    b = { version = \"1\", features = [\"x\"] }\n";
        assert_eq!(findings("Cargo.toml", text), []);
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let text = "[workspace.dependencies]\na = \"1\"\nb = \"1\" # b\nc = \"1#2 3\" #\n";
        let expected = ["a", "b", "c"].map(|name| format!("nothing says why `{name}` is here"));
        assert_eq!(findings("Cargo.toml", text), [2, 3, 4].into_iter().zip(expected).collect::<Vec<_>>());
        let text = "[workspace.dependencies]\n# All of them have good reasons.\n\na = \"1\"\n";
        assert_eq!(findings("Cargo.toml", text), [(4, "nothing says why `a` is here".to_owned())]);
    }

    #[test]
    fn members_inherit() {
        let text = "[dependencies]\na.workspace = true\nb = { workspace = true, optional = true }\n";
        assert_eq!(findings("crates/pool/Cargo.toml", text), []);
    }

    #[test]
    fn members_that_do_not_inherit_are_found() {
        for section in ["dependencies", "dev-dependencies", "build-dependencies", "target.x.dependencies"] {
            for value in ["\"1\"", "{ version = \"1\" }", "{ path = \"../b\" }", "{ workspace = false }"] {
                let text = format!("[{section}]\na.workspace = true\nb = {value}\n");
                let expected = [(3, "`b` is not inherited from the workspace".to_owned())];
                assert_eq!(findings("xtask/Cargo.toml", &text), expected);
            }
        }
    }
}
