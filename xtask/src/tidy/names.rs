//! Rule `names`: a name that others than its own module see means one thing in the whole workspace.
//!
//! `cargo xtask tidy --names` lists all types and traits that share a name, also those that
//! [`SHARED`] permits.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use syn::visit::{self, Visit};
use syn::{
    Ident, ItemEnum, ItemFn, ItemMacro, ItemMod, ItemStruct, ItemTrait, ItemType, ItemUnion,
    Visibility,
};

use super::Violation;
use super::syntax::{Syntax, is_only_for_tests, line_of};

/// Names that are defined more than once, and mean the same wherever they are.
const SHARED: [&str; 11] = [
    // The first words of a tree, to which its root leads; each engine has its own.
    "Anchor",
    // The arguments of a command; each has a module of its own.
    "Args",
    // Why a program or one of its commands ended early; each has other reasons.
    "Failure",
    // How numbers become keys; the explorer has shapes for small scopes, benchmarks those of people.
    "KeyShape",
    // A leaf of a tree as it lies in the pool; each engine has nodes of its own.
    "Leaf",
    // The inner nodes that a descent passed; each engine has nodes of its own.
    "Path",
    // The place and the lengths of a record; Masstree's records have a format of their own.
    "Record",
    // All that a command or a benchmark has to tell in the end.
    "Report",
    // The result of what a crate does, with the crate's own error.
    "Result",
    // The lower bound of a child's keys, as two words; engines keep the second one elsewhere.
    "Separator",
    // An inner node on a `Path`, and which of its children comes next.
    "Step",
];

/// Finds names that are defined more than once, and not shared.
pub(super) fn names(syntax: &Syntax) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (name, places) in definitions(syntax) {
        if SHARED.contains(&name.as_str()) {
            continue;
        }
        let Some((first, others)) = places.split_first() else {
            continue;
        };
        for place in others {
            violations.push(Violation {
                file: place.file.clone(),
                line: place.line,
                rule: "names",
                what: format!("the name `{name}` is taken, by {first}"),
                way_out: "give one of them a more specific name; names that are the same idea \
                          are listed in xtask/src/tidy/names.rs",
            });
        }
    }
    violations
}

/// Lists the names that are defined more than once, shared or not, each with its places.
pub(super) fn repeated(syntax: &Syntax) -> String {
    let mut list = String::new();
    for (name, places) in definitions(syntax) {
        if places.len() > 1 {
            let texts: Vec<String> = places.iter().map(ToString::to_string).collect();
            let _ = writeln!(list, "{name}: {} ({})", texts.len(), texts.join(", "));
        }
    }
    list
}

/// Where each type and trait is defined that others than its own module see. Tests, benchmarks and
/// examples are left out.
fn definitions(syntax: &Syntax) -> BTreeMap<String, Vec<Definition>> {
    let mut all = Definitions {
        file: String::new(),
        by_name: BTreeMap::new(),
    };
    for (path, file) in syntax.files() {
        let is_source = path.starts_with("src/") || path.contains("/src/");
        if is_source && !is_only_for_tests(&file.attrs) {
            path.clone_into(&mut all.file);
            all.visit_file(file);
        }
    }
    all.by_name
}

/// One definition of a name.
struct Definition {
    kind: &'static str,
    file: String,
    line: usize,
}

impl fmt::Display for Definition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, file, line } = self;
        write!(formatter, "{kind} {file}:{line}")
    }
}

/// The definitions so far.
struct Definitions {
    /// The file that is read.
    file: String,
    by_name: BTreeMap<String, Vec<Definition>>,
}

impl Definitions {
    fn add(&mut self, kind: &'static str, visibility: &Visibility, name: &Ident) {
        if is_private(visibility) {
            return;
        }
        let definition = Definition {
            kind,
            file: self.file.clone(),
            line: line_of(name),
        };
        self.by_name
            .entry(name.to_string())
            .or_default()
            .push(definition);
    }
}

impl Visit<'_> for Definitions {
    fn visit_item_mod(&mut self, item: &ItemMod) {
        if !is_only_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, _: &ItemFn) {
        // Items inside a function are known to it alone.
    }

    fn visit_item_macro(&mut self, item: &ItemMacro) {
        // These two macros define the types that lie in pools and in arenas.
        let is_of_types = ["node", "volatile"].iter().any(|name| {
            let last = item.mac.path.segments.last();
            last.is_some_and(|segment| segment.ident == name)
        });
        if !is_of_types {
            return;
        }
        if let Ok(types) = item.mac.parse_body::<syn::File>() {
            self.visit_file(&types);
        }
    }

    fn visit_item_struct(&mut self, item: &ItemStruct) {
        self.add("struct", &item.vis, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &ItemEnum) {
        self.add("enum", &item.vis, &item.ident);
    }

    fn visit_item_union(&mut self, item: &ItemUnion) {
        self.add("union", &item.vis, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &ItemTrait) {
        self.add("trait", &item.vis, &item.ident);
    }

    fn visit_item_type(&mut self, item: &ItemType) {
        self.add("type", &item.vis, &item.ident);
    }
}

/// Whether only the module of an item, and modules in it, see the item.
fn is_private(visibility: &Visibility) -> bool {
    match visibility {
        Visibility::Public(_) => false,
        Visibility::Restricted(restricted) => restricted.path.is_ident("self"),
        Visibility::Inherited => true,
    }
}
