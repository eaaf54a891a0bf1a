//! The parts of a type that derives see: its variants and their fields.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Data, DeriveInput, Expr, ExprLit, Fields, Lit, Member, Result, Type, Variant};

use crate::attributes::{refused, variable};

/// The most variants of an enum: their numbers have one byte.
const VARIANTS_MAX: u16 = 256;

/// A struct, or a variant of an enum.
pub(crate) struct Variety {
    /// `Self` or `Self::Name`.
    pub(crate) path: TokenStream,
    /// The number of a variant.
    pub(crate) number: u8,
    pub(crate) fields: Vec<FieldOf>,
}

/// A field, and the variable to which a match binds it.
pub(crate) struct FieldOf {
    pub(crate) member: Member,
    pub(crate) variable: Ident,
    pub(crate) type_of: Type,
}

/// The parts of a type.
pub(crate) enum TypeShape {
    Struct(Variety),
    Enum(Vec<Variety>),
}

impl TypeShape {
    pub(crate) fn of(input: &DeriveInput) -> Result<Self> {
        match &input.data {
            Data::Struct(data) => Ok(Self::Struct(Variety {
                path: quote!(Self),
                number: 0,
                fields: fields_of(&data.fields),
            })),
            Data::Enum(data) if data.variants.is_empty() => {
                Err(refused(input, "an enum without variants has no values"))
            }
            Data::Enum(data) => Ok(Self::Enum(variants_of(data.variants.iter())?)),
            Data::Union(_) => Err(refused(input, "a union has no variant that could be read")),
        }
    }

    /// The struct, or all variants.
    pub(crate) fn varieties(&self) -> &[Variety] {
        match self {
            Self::Struct(only) => std::slice::from_ref(only),
            Self::Enum(variants) => variants,
        }
    }
}

impl Variety {
    /// The pattern that binds each field to its variable.
    pub(crate) fn pattern(&self) -> TokenStream {
        let path = &self.path;
        let bindings = self.fields.iter().map(|field| {
            let member = &field.member;
            let variable = &field.variable;
            quote!(#member: #variable)
        });
        quote!(#path { #(#bindings),* })
    }
}

fn variants_of<'v>(variants: impl Iterator<Item = &'v Variant>) -> Result<Vec<Variety>> {
    let mut varieties = Vec::new();
    let mut next_number: u16 = 0;
    for variant in variants {
        if let Some((_, discriminant)) = &variant.discriminant {
            next_number = number_of(discriminant)?;
        }
        let Ok(number) = u8::try_from(next_number) else {
            return Err(too_many(variant));
        };
        next_number = u16::from(number) + 1;
        let name = &variant.ident;
        varieties.push(Variety {
            path: quote!(Self::#name),
            number,
            fields: fields_of(&variant.fields),
        });
    }
    Ok(varieties)
}

fn too_many(variant: &Variant) -> syn::Error {
    let what = format!("variants have numbers below {VARIANTS_MAX}, and this one has a higher one");
    syn::Error::new_spanned(variant, what)
}

/// The number that a variant gives itself.
fn number_of(discriminant: &Expr) -> Result<u16> {
    if let Expr::Lit(ExprLit {
        lit: Lit::Int(number),
        ..
    }) = discriminant
    {
        return number.base10_parse();
    }
    let what = format!("give the variant a literal number below {VARIANTS_MAX}, or none");
    Err(syn::Error::new_spanned(discriminant, what))
}

fn fields_of(fields: &Fields) -> Vec<FieldOf> {
    let mut found = Vec::new();
    for (number, field) in fields.iter().enumerate() {
        let member = match &field.ident {
            Some(name) => Member::Named(name.clone()),
            None => Member::Unnamed(number.into()),
        };
        found.push(FieldOf {
            member,
            variable: variable(number),
            type_of: field.ty.clone(),
        });
    }
    found
}
