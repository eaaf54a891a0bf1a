//! A `Cargo.toml`: its dependencies, the line of each, and the comment that stands with it.

use std::ops::Range;

use toml_edit::{Document, Item, Key, TableLike};

use super::Finding;

/// The sections of a manifest that hold dependencies.
const SECTIONS: &[(&str, Section)] = &[
    ("dependencies", Section::Normal),
    ("dev-dependencies", Section::Dev),
    ("build-dependencies", Section::Build),
];

/// A manifest that parses.
pub(super) struct Manifest {
    path: String,
    document: Document<String>,
}

/// Which section of the manifest a dependency stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Normal,
    Dev,
    Build,
    Workspace,
}

/// One dependency of a manifest.
pub(super) struct Dependency {
    /// The name on the left of the `=`.
    pub(super) key: String,
    pub(super) section: Section,
    pub(super) line: usize,
    pub(super) inherited: bool,
    pub(super) optional: bool,
    /// The package's name where it differs from the key.
    package: Option<String>,
    /// The folder, as written.
    pub(super) path: Option<String>,
    /// The comment on the same line, or on the lines right above it, without `#`.
    pub(super) comment: String,
}

impl Dependency {
    /// The name of the package that this dependency means, if it is not inherited.
    pub(super) fn package(&self) -> &str {
        self.package.as_deref().unwrap_or(&self.key)
    }
}

impl Manifest {
    /// Parses a manifest; one that does not parse is a finding.
    pub(super) fn parse(path: &str, text: &str) -> Result<Self, Finding> {
        match Document::parse(text.to_owned()) {
            Ok(document) => Ok(Self { path: path.to_owned(), document }),
            Err(error) => Err(Finding {
                file: path.to_owned(),
                line: line_of(text, error.span().map_or(0, |span| span.start)),
                what: format!("this is not TOML that can be parsed: {}", error.message()),
                way_out: "mend the syntax".to_owned(),
            }),
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The folder of the manifest, empty for the workspace root.
    pub(super) fn folder(&self) -> &str {
        self.path.strip_suffix("Cargo.toml").map_or("", |folder| folder.trim_end_matches('/'))
    }

    pub(super) fn is_workspace(&self) -> bool {
        self.document.contains_key("workspace")
    }

    /// The name under `[package]`.
    pub(super) fn package(&self) -> Option<&str> {
        self.document.get("package")?.get("name")?.as_str()
    }

    /// Every dependency of the package, whatever its kind and target.
    pub(super) fn dependencies(&self) -> Vec<Dependency> {
        let mut found = Vec::new();
        self.collect(self.document.as_item(), &mut found);
        let targets = self.document.get("target").and_then(Item::as_table_like);
        for (_, target) in targets.into_iter().flat_map(TableLike::iter) {
            self.collect(target, &mut found);
        }
        found
    }

    /// The entries of `[workspace.dependencies]`.
    pub(super) fn workspace_dependencies(&self) -> Vec<Dependency> {
        let table = self.document.get("workspace").and_then(|workspace| workspace.get("dependencies"));
        let mut found = Vec::new();
        self.collect_section(table, Section::Workspace, &mut found);
        found
    }

    /// A finding at a line of this manifest.
    pub(super) fn finding(&self, line: usize, what: String, way_out: &str) -> Finding {
        Finding { file: self.path.clone(), line, what, way_out: way_out.to_owned() }
    }

    fn collect(&self, parent: &Item, found: &mut Vec<Dependency>) {
        for (name, section) in SECTIONS {
            self.collect_section(parent.get(name), *section, found);
        }
    }

    fn collect_section(&self, table: Option<&Item>, section: Section, found: &mut Vec<Dependency>) {
        let Some(table) = table.and_then(Item::as_table_like) else { return };
        for (name, item) in table.iter() {
            let key = table.key(name).expect("the table has the keys that it lists");
            let flag = |name| item.get(name).and_then(Item::as_bool) == Some(true);
            let text = |name| item.get(name).and_then(Item::as_str).map(str::to_owned);
            found.push(Dependency {
                key: name.to_owned(),
                section,
                line: self.line(key, item),
                inherited: flag("workspace"),
                optional: flag("optional"),
                package: text("package"),
                path: text("path"),
                comment: self.comment(key, item),
            });
        }
    }

    fn line(&self, key: &Key, item: &Item) -> usize {
        let span = key.span().or_else(|| item.span());
        line_of(self.document.raw(), span.map_or(0, |span| span.start))
    }

    /// A comment above counts only without a blank line in between: else it heads a whole group.
    fn comment(&self, key: &Key, item: &Item) -> String {
        let slice = |span: Option<Range<usize>>| span.map_or("", |span| &self.document.raw()[span]);
        let value = item.as_value().map(toml_edit::Value::decor);
        let table = item.as_table().map(toml_edit::Table::decor);
        let behind = slice(value.and_then(|decor| decor.suffix()?.span()));
        let above = slice(match table {
            Some(decor) => decor.prefix().and_then(toml_edit::RawString::span),
            None => key.leaf_decor().prefix().and_then(toml_edit::RawString::span),
        });
        let above = above.rsplit("\n\n").next().unwrap_or_default();
        let lines = above.lines().chain([behind]);
        let words = lines.filter_map(|line| Some(line.trim().strip_prefix('#')?.trim().to_owned()));
        words.collect::<Vec<_>>().join(" ")
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(text: &str) -> Manifest {
        Manifest::parse("crates/a/Cargo.toml", text).expect("the example parses")
    }

    #[test]
    fn dependencies_of_every_section_are_found_with_their_lines() {
        let manifest = manifest(
            "[package]\nname = \"everleaf-a\"\n\n[dependencies]\nb.workspace = true\nc = { path = \"../c\", \
             optional = true }\n\n[dev-dependencies.d]\npackage = \"dd\"\nversion = \"1\"\n\n\
             [target.'cfg(unix)'.build-dependencies]\ne = \"1\"\n",
        );
        let found = manifest.dependencies();
        let found: Vec<_> = found.iter().map(|it| (it.package(), it.section, it.line)).collect();
        assert_eq!(
            found,
            [
                ("b", Section::Normal, 5),
                ("c", Section::Normal, 6),
                ("dd", Section::Dev, 8),
                ("e", Section::Build, 13)
            ]
        );
        assert_eq!(manifest.package(), Some("everleaf-a"));
        assert_eq!(manifest.folder(), "crates/a");
        let flags: Vec<_> = manifest.dependencies().iter().map(|it| (it.inherited, it.optional)).collect();
        assert_eq!(flags, [(true, false), (false, true), (false, false), (false, false)]);
    }

    #[test]
    fn a_comment_belongs_to_the_line_that_it_touches() {
        let manifest = manifest(
            "[workspace.dependencies]\n# heads a group\n\na = \"1\" # behind a\n# above b\nb = { version = \"1\" }\n\
             c = \"1#2\"\n# above d\n[workspace.dependencies.d]\nversion = \"1\"\n",
        );
        let comments: Vec<_> =
            manifest.workspace_dependencies().into_iter().map(|it| (it.key, it.comment)).collect();
        let expected = [("a", "behind a"), ("b", "above b"), ("c", ""), ("d", "above d")];
        assert_eq!(comments, expected.map(|(key, comment)| (key.to_owned(), comment.to_owned())));
    }

    #[test]
    fn a_syntax_error_is_a_finding_at_its_line() {
        let finding = Manifest::parse("Cargo.toml", "[package]\nname = \n").err().expect("must not parse");
        assert_eq!((finding.file.as_str(), finding.line), ("Cargo.toml", 2));
    }
}
