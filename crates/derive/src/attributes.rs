//! The attribute `#[everleaf(...)]` of a type.

use proc_macro2::{Ident, Span};
use syn::meta::ParseNestedMeta;
use syn::{DeriveInput, Error, LitInt, LitStr, Result, Token, Type};

/// The content of the attribute.
pub(crate) struct Attributes {
    /// The name by which trees remember the type.
    pub(crate) name: String,
    pub(crate) version: u32,
    /// Older versions whose bytes are bytes of this one.
    pub(crate) older_versions: Vec<u32>,
    /// Types of older versions.
    pub(crate) older_types: Vec<Type>,
    /// Whether the bytes are those of serde.
    pub(crate) is_serde: bool,
}

/// The trait that is derived: the two take different attributes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Derived {
    Key,
    EncodedValue,
}

impl Attributes {
    pub(crate) fn of(input: &DeriveInput, derived: Derived) -> Result<Self> {
        let mut attributes = Self {
            name: unraw(&input.ident),
            version: 1,
            older_versions: Vec::new(),
            older_types: Vec::new(),
            is_serde: false,
        };
        for attribute in &input.attrs {
            if attribute.path().is_ident("everleaf") {
                attribute.parse_nested_meta(|meta| attributes.read(&meta, derived))?;
            }
        }
        if attributes.older_versions.contains(&attributes.version) {
            let what = "`reads` names the present version; name older ones";
            return Err(Error::new(input.ident.span(), what));
        }
        Ok(attributes)
    }

    fn read(&mut self, meta: &ParseNestedMeta<'_>, derived: Derived) -> Result<()> {
        if meta.path.is_ident("name") {
            let name: LitStr = meta.value()?.parse()?;
            self.name = checked_name(&name)?;
            return Ok(());
        }
        if meta.path.is_ident("version") {
            let version: LitInt = meta.value()?.parse()?;
            self.version = version.base10_parse()?;
            return Ok(());
        }
        if meta.path.is_ident("reads") {
            return self.read_older(meta, derived);
        }
        if meta.path.is_ident("serde") && derived == Derived::EncodedValue {
            self.is_serde = true;
            return Ok(());
        }
        Err(meta.error(match derived {
            Derived::Key => "a key takes `name`, `version` and `reads`",
            Derived::EncodedValue => "a value takes `name`, `version`, `reads` and `serde`",
        }))
    }

    fn read_older(&mut self, meta: &ParseNestedMeta<'_>, derived: Derived) -> Result<()> {
        let list;
        syn::parenthesized!(list in meta.input);
        match derived {
            Derived::Key => {
                let versions =
                    list.parse_terminated(<LitInt as syn::parse::Parse>::parse, Token![,])?;
                for version in versions {
                    self.older_versions.push(version.base10_parse()?);
                }
            }
            Derived::EncodedValue => {
                let types = list.parse_terminated(<Type as syn::parse::Parse>::parse, Token![,])?;
                self.older_types.extend(types);
            }
        }
        Ok(())
    }
}

/// A name that trees can remember, and that no type of everleaf has.
fn checked_name(name: &LitStr) -> Result<String> {
    let text = name.value();
    let is_letter = |character: char| character.is_alphanumeric() || "_-.".contains(character);
    if text.is_empty() || !text.chars().all(is_letter) {
        let what = "a name has letters, digits, `_`, `-` and `.`, and at least one of these";
        return Err(Error::new(name.span(), what));
    }
    Ok(text)
}

/// The name of a type, without `r#`.
fn unraw(name: &Ident) -> String {
    let name = name.to_string();
    match name.strip_prefix("r#") {
        Some(name) => name.to_owned(),
        None => name,
    }
}

/// Refuses types with parameters: two of them would have one name.
pub(crate) fn refuse_parameters(input: &DeriveInput) -> Result<()> {
    if input.generics.params.is_empty() {
        return Ok(());
    }
    let what = "a type with parameters has no name that a tree could remember; derive this for a type without them, which may have this one as a field";
    Err(Error::new_spanned(&input.generics, what))
}

/// An error about a whole type.
pub(crate) fn refused(input: &DeriveInput, what: &str) -> Error {
    Error::new(input.ident.span(), what)
}

/// The name of a variable in the code that a derive writes.
pub(crate) fn variable(number: usize) -> Ident {
    Ident::new(&format!("field_{number}"), Span::call_site())
}
