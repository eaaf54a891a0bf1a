//! Derives for typed keys and values of everleaf: `#[derive(Key)]` and `#[derive(EncodedValue)]` for
//! structs and enums. The crate `everleaf` re-exports them beside the traits, whose pages have
//! examples.
//!
//! Both derives take the attribute `everleaf` on the type:
//!
//! | attribute | meaning |
//! | --- | --- |
//! | `name = "order"` | the name by which trees remember the type; its name in Rust if none is given |
//! | `version = 2` | the version of its bytes; 1 if none is given |
//! | `reads(1)`, of a key | older versions whose bytes are bytes of this version: for example an enum that has more variants now |
//! | `reads(OrderV1)`, of a value | types of older versions, which derive `EncodedValue` as well; the type implements `From` for each |
//! | `serde`, of a value | the bytes are those of serde and postcard, so that fields may have any type that serde knows; feature `serde` of `everleaf` |
//!
//! # Bytes of a key
//!
//! Its fields, in their order; before those of an enum the number of its variant, one byte. The
//! bytes sort as `#[derive(PartialOrd)]` does.
//!
//! # Bytes of a value
//!
//! The version, the number of the variant of an enum, and then the fields, each but the last with its
//! length before it. Numbers and lengths are in LEB128. With `serde`: the version, and then the value
//! in postcard's format.
#![forbid(unsafe_code)]

mod attributes;
mod key;
mod shape;
#[cfg(test)]
mod tests;
mod value;

use proc_macro::TokenStream;

/// Implements `everleaf::Key` for a struct or an enum whose fields are keys. The page of the trait has
/// an example.
#[proc_macro_derive(Key, attributes(everleaf))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    expand(input, key::derive)
}

/// Implements `everleaf::EncodedValue` for a struct or an enum whose fields are values. The page of the
/// trait has an example.
#[proc_macro_derive(EncodedValue, attributes(everleaf))]
pub fn derive_encoded_value(input: TokenStream) -> TokenStream {
    expand(input, value::derive)
}

/// The code of a derive, or the error that the compiler reports for the type.
fn expand(
    input: TokenStream,
    derive: impl Fn(&syn::DeriveInput) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    let expanded = syn::parse(input).and_then(|input| derive(&input));
    match expanded {
        Ok(code) => code.into(),
        Err(error) => error.into_compile_error().into(),
    }
}
