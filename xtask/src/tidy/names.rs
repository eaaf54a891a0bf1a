//! `cargo xtask tidy --names`: names of types and traits that are defined more than once.

use std::collections::BTreeMap;
use std::fmt::Write;

use syn::visit::{self, Visit};
use syn::{
    Ident, ItemEnum, ItemFn, ItemMod, ItemStruct, ItemTrait, ItemType, ItemUnion, Visibility,
};

use super::syntax::{Syntax, is_only_for_tests, line_of};

/// Lists the names of public and crate-wide types and traits that are defined more than once in the
/// workspace, each with its places. Tests, benchmarks and examples are left out.
pub(super) fn repeated(syntax: &Syntax) -> String {
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
    let mut list = String::new();
    for (name, places) in all.by_name {
        if places.len() > 1 {
            let _ = writeln!(list, "{name}: {} ({})", places.len(), places.join(", "));
        }
    }
    list
}

/// Where each name is defined, as `kind file:line`.
struct Definitions {
    file: String,
    by_name: BTreeMap<String, Vec<String>>,
}

impl Definitions {
    fn add(&mut self, kind: &str, visibility: &Visibility, name: &Ident) {
        if is_crate_wide(visibility) {
            let place = format!("{kind} {}:{}", self.file, line_of(name));
            self.by_name
                .entry(name.to_string())
                .or_default()
                .push(place);
        }
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

/// Whether an item is `pub` or `pub(crate)`.
fn is_crate_wide(visibility: &Visibility) -> bool {
    match visibility {
        Visibility::Public(_) => true,
        Visibility::Restricted(restricted) => restricted.path.is_ident("crate"),
        Visibility::Inherited => false,
    }
}
