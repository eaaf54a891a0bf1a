//! `#[derive(Key)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Result};

use crate::attributes::{Attributes, Derived, refuse_parameters};
use crate::shape::{TypeShape, Variety};

/// Whether the bytes of another key follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Last,
    BeforeOthers,
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    refuse_parameters(input)?;
    let attributes = Attributes::of(input, Derived::Key)?;
    let shape = TypeShape::of(input)?;
    let type_name = &input.ident;
    let Attributes { name, version, .. } = &attributes;
    let older = &attributes.older_versions;
    let encode = encode(&shape, Position::Last);
    let encode_before = self::encode(&shape, Position::BeforeOthers);
    let decode = decode(&shape, Position::Last);
    let decode_before = self::decode(&shape, Position::BeforeOthers);
    let prefix = prefix(input, &shape);
    Ok(quote! {
        #[automatically_derived]
        impl ::everleaf::Key for #type_name {
            fn encoding() -> ::everleaf::Encoding {
                ::everleaf::Encoding::new(#name, #version)
                    #(.reads_too(::everleaf::Encoding::new(#name, #older)))*
            }

            #[allow(unused_variables)]
            fn encode(&self, bytes: &mut ::std::vec::Vec<u8>) {
                #encode
            }

            #[allow(unused_variables)]
            fn encode_before(&self, bytes: &mut ::std::vec::Vec<u8>) {
                #encode_before
            }

            #[allow(unused_mut)]
            fn decode(bytes: &[u8]) -> ::core::option::Option<Self> {
                let mut rest = bytes;
                #decode
            }

            #[allow(unused_variables)]
            fn decode_before(rest: &mut &[u8]) -> ::core::option::Option<Self> {
                #decode_before
            }
        }

        #prefix
    })
}

/// The code that appends the bytes of `self`.
fn encode(shape: &TypeShape, position: Position) -> TokenStream {
    let mut arms = Vec::new();
    for variety in shape.varieties() {
        let pattern = variety.pattern();
        let number = variety.number;
        let push_number = match shape {
            TypeShape::Struct(_) => quote!(),
            TypeShape::Enum(_) => quote!(bytes.push(#number);),
        };
        let mut fields = Vec::new();
        for (index, field) in variety.fields.iter().enumerate() {
            let type_of = &field.type_of;
            let variable = &field.variable;
            let is_last = index + 1 == variety.fields.len() && position == Position::Last;
            fields.push(if is_last {
                quote!(<#type_of as ::everleaf::Key>::encode(#variable, bytes);)
            } else {
                quote!(<#type_of as ::everleaf::Key>::encode_before(#variable, bytes);)
            });
        }
        arms.push(quote! {
            #pattern => {
                #push_number
                #(#fields)*
            }
        });
    }
    quote!(match self { #(#arms)* })
}

/// The code that reads a value from `rest`.
fn decode(shape: &TypeShape, position: Position) -> TokenStream {
    // A slice if the key is the last one, else a reference to one, which is moved on.
    let rest = match position {
        Position::Last => quote!(&mut rest),
        Position::BeforeOthers => quote!(rest),
    };
    match shape {
        TypeShape::Struct(only) => decode_fields(only, position),
        TypeShape::Enum(variants) => {
            let mut arms = Vec::new();
            for variant in variants {
                let number = variant.number;
                let fields = decode_fields(variant, position);
                arms.push(quote!(#number => { #fields }));
            }
            quote! {
                match <u8 as ::everleaf::Key>::decode_before(#rest)? {
                    #(#arms)*
                    _ => ::core::option::Option::None,
                }
            }
        }
    }
}

fn decode_fields(variety: &Variety, position: Position) -> TokenStream {
    let path = &variety.path;
    let Some(last) = variety.fields.len().checked_sub(1) else {
        return match position {
            Position::Last => quote! {
                if rest.is_empty() {
                    ::core::option::Option::Some(#path {})
                } else {
                    ::core::option::Option::None
                }
            },
            Position::BeforeOthers => quote!(::core::option::Option::Some(#path {})),
        };
    };
    let mut fields = Vec::new();
    for (index, field) in variety.fields.iter().enumerate() {
        let member = &field.member;
        let type_of = &field.type_of;
        fields.push(match position {
            Position::Last if index == last => {
                quote!(#member: <#type_of as ::everleaf::Key>::decode(rest)?)
            }
            Position::Last => {
                quote!(#member: <#type_of as ::everleaf::Key>::decode_before(&mut rest)?)
            }
            Position::BeforeOthers => {
                quote!(#member: <#type_of as ::everleaf::Key>::decode_before(rest)?)
            }
        });
    }
    quote!(::core::option::Option::Some(#path { #(#fields),* }))
}

/// A struct of several fields has prefixes: the keys with the same first field.
fn prefix(input: &DeriveInput, shape: &TypeShape) -> TokenStream {
    let TypeShape::Struct(only) = shape else {
        return quote!();
    };
    if only.fields.len() < 2 {
        return quote!();
    }
    let type_name = &input.ident;
    let first = &only.fields[0].type_of;
    quote! {
        #[automatically_derived]
        impl<P> ::everleaf::StartsWith<P> for #type_name
        where
            P: ::everleaf::Key + ?Sized,
            #first: ::everleaf::EncodedLike<P>,
        {
        }
    }
}
