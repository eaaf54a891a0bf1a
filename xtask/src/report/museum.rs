//! The catalogue of the museum: what its tests say about themselves.

use std::path::Path;

use super::Failure;

/// A test of the museum.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exhibit {
    name: String,
    source: String,
}

/// The exhibits in a folder, by name.
pub(super) fn read(folder: &Path) -> Result<Vec<Exhibit>, Failure> {
    let mut exhibits = Vec::new();
    for entry in walkdir::WalkDir::new(folder)
        .sort_by_file_name()
        .into_iter()
        .flatten()
    {
        if entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "rs")
        {
            let text = super::read(entry.path())?;
            let file = syn::parse_file(&text).map_err(|source| Failure::Rust {
                path: entry.path().to_owned(),
                source,
            })?;
            exhibits.extend(file.items.iter().filter_map(exhibit));
        }
    }
    exhibits.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(exhibits)
}

fn exhibit(item: &syn::Item) -> Option<Exhibit> {
    let syn::Item::Fn(function) = item else {
        return None;
    };
    if !function
        .attrs
        .iter()
        .any(|attribute| attribute.path().is_ident("test"))
    {
        return None;
    }
    let docs: Vec<String> = function.attrs.iter().filter_map(doc).collect();
    let source: Vec<&str> = docs
        .iter()
        .map(|line| line.trim())
        .skip_while(|line| !line.starts_with("Source:"))
        .collect();
    let source = source
        .join(" ")
        .trim_start_matches("Source:")
        .trim()
        .trim_end_matches('.')
        .to_owned();
    Some(Exhibit {
        name: function.sig.ident.to_string(),
        source,
    })
}

fn doc(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    let syn::Expr::Lit(syn::ExprLit {
        lit: syn::Lit::Str(text),
        ..
    }) = &pair.value
    else {
        return None;
    };
    pair.path.is_ident("doc").then(|| text.value())
}

/// The catalogue as a table.
pub(super) fn table(exhibits: &[Exhibit]) -> String {
    let mut table = "\n| exhibit | source |\n| --- | --- |\n".to_owned();
    for Exhibit { name, source } in exhibits {
        table += &format!("| `{name}` | {source} |\n");
    }
    table + "\n"
}

#[cfg(test)]
mod tests;
