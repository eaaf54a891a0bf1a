//! `#[derive(EncodedValue)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Result};

use crate::attributes::{Attributes, Derived, refuse_parameters};
use crate::shape::{TypeShape, Variety};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    refuse_parameters(input)?;
    let attributes = Attributes::of(input, Derived::EncodedValue)?;
    let type_name = &input.ident;
    let Attributes { name, version, .. } = &attributes;
    let older = &attributes.older_types;
    let encode;
    let decode;
    if attributes.is_serde {
        encode = quote!(::everleaf::for_derives::put_serde(bytes, self));
        decode = quote!(::everleaf::for_derives::take_serde(rest));
    } else {
        let shape = TypeShape::of(input)?;
        encode = encode_fields(&shape);
        decode = decode_fields(&shape);
    }
    Ok(quote! {
        #[automatically_derived]
        impl ::everleaf::for_derives::Versioned for #type_name {
            const VERSIONS: ::everleaf::for_derives::ReadVersions =
                ::everleaf::for_derives::ReadVersions::new(
                    #name,
                    #version,
                    &[#(<#older as ::everleaf::for_derives::Versioned>::VERSIONS),*],
                );
        }

        // Computed in every build, so that versions that are mixed up are an error there.
        const _: ::everleaf::for_derives::ReadVersions =
            <#type_name as ::everleaf::for_derives::Versioned>::VERSIONS;

        #[automatically_derived]
        impl ::everleaf::EncodedValue for #type_name {
            fn value_encoding() -> ::everleaf::Encoding {
                ::everleaf::Encoding::new(#name, #version)
                    #(.reads_too(<#older as ::everleaf::EncodedValue>::value_encoding()))*
            }

            fn encode_value(
                &self,
                bytes: &mut ::std::vec::Vec<u8>,
            ) -> ::core::result::Result<(), ::everleaf::NotEncodable> {
                ::everleaf::for_derives::put_number(bytes, #version);
                #encode
            }

            #[allow(unused_mut)]
            fn decode_value(bytes: &[u8]) -> ::core::option::Option<Self> {
                let mut rest = bytes;
                if ::everleaf::for_derives::take_number(&mut rest)? == #version {
                    return #decode;
                }
                #(
                    if let ::core::option::Option::Some(older) =
                        <#older as ::everleaf::EncodedValue>::decode_value(bytes)
                    {
                        return ::core::option::Option::Some(
                            <Self as ::core::convert::From<#older>>::from(older),
                        );
                    }
                )*
                ::core::option::Option::None
            }
        }
    })
}

/// The code that appends the bytes of `self`, behind the version.
fn encode_fields(shape: &TypeShape) -> TokenStream {
    let mut arms = Vec::new();
    for variety in shape.varieties() {
        let pattern = variety.pattern();
        let number = u32::from(variety.number);
        let put_number = match shape {
            TypeShape::Struct(_) => quote!(),
            TypeShape::Enum(_) => quote!(::everleaf::for_derives::put_number(bytes, #number);),
        };
        let mut fields = Vec::new();
        for (index, field) in variety.fields.iter().enumerate() {
            let variable = &field.variable;
            let type_of = &field.type_of;
            fields.push(if index + 1 == variety.fields.len() {
                quote!(<#type_of as ::everleaf::EncodedValue>::encode_value(#variable, bytes)?;)
            } else {
                quote!(::everleaf::for_derives::put_part::<#type_of>(bytes, #variable)?;)
            });
        }
        arms.push(quote! {
            #pattern => {
                #put_number
                #(#fields)*
            }
        });
    }
    quote! {
        match self { #(#arms)* }
        ::core::result::Result::Ok(())
    }
}

/// The code that reads a value from `rest`, behind the version.
fn decode_fields(shape: &TypeShape) -> TokenStream {
    match shape {
        TypeShape::Struct(only) => decode_variety(only),
        TypeShape::Enum(variants) => {
            let mut arms = Vec::new();
            for variant in variants {
                let number = u32::from(variant.number);
                let fields = decode_variety(variant);
                arms.push(quote!(#number => { #fields }));
            }
            quote! {
                match ::everleaf::for_derives::take_number(&mut rest)? {
                    #(#arms)*
                    _ => ::core::option::Option::None,
                }
            }
        }
    }
}

fn decode_variety(variety: &Variety) -> TokenStream {
    let path = &variety.path;
    let Some(last) = variety.fields.len().checked_sub(1) else {
        return quote! {
            if rest.is_empty() {
                ::core::option::Option::Some(#path {})
            } else {
                ::core::option::Option::None
            }
        };
    };
    let mut fields = Vec::new();
    for (index, field) in variety.fields.iter().enumerate() {
        let member = &field.member;
        let type_of = &field.type_of;
        fields.push(if index == last {
            quote!(#member: <#type_of as ::everleaf::EncodedValue>::decode_value(rest)?)
        } else {
            quote!(#member: ::everleaf::for_derives::take_part::<#type_of>(&mut rest)?)
        });
    }
    quote!(::core::option::Option::Some(#path { #(#fields),* }))
}
