//! Types that are refused, and why. What the derives do is tested in `everleaf`, with stores.

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::{key, value};

#[track_caller]
fn expect_refused(derived: syn::Result<TokenStream>, what: &str) {
    let Err(error) = derived else {
        panic!("the type was not refused");
    };
    assert!(error.to_string().contains(what), "{error}");
}

fn input(text: &str) -> DeriveInput {
    syn::parse_str(text).unwrap()
}

#[test]
fn types_that_no_tree_could_remember_are_refused() {
    let generic = input("struct Pair<A>(A, A);");
    expect_refused(key::derive(&generic), "a type with parameters");
    expect_refused(value::derive(&generic), "a type with parameters");
    let spaces = input("#[everleaf(name = \"two words\")] struct A(u8);");
    expect_refused(key::derive(&spaces), "a name has letters");
    let colon = input("#[everleaf(name = \"a:1\")] struct A(u8);");
    expect_refused(value::derive(&colon), "a name has letters");
    expect_refused(key::derive(&input("enum Never {}")), "without variants");
    let union = input("union Bits { a: u32, b: f32 }");
    expect_refused(value::derive(&union), "a union");
}

#[test]
fn attributes_that_mean_nothing_are_refused() {
    let serde_key = input("#[everleaf(serde)] struct A(u8);");
    expect_refused(key::derive(&serde_key), "a key takes `name`");
    let unknown = input("#[everleaf(nmae = \"a\")] struct A(u8);");
    expect_refused(value::derive(&unknown), "a value takes `name`");
    let present = input("#[everleaf(version = 2, reads(1, 2))] struct A(u8);");
    expect_refused(key::derive(&present), "the present version");
    let twice = input("#[everleaf(reads(OldA))] struct A(u8);");
    assert!(key::derive(&twice).is_err());
    assert!(value::derive(&twice).is_ok());
}

#[test]
fn variants_have_numbers_of_one_byte() {
    let mut variants = String::new();
    for number in 0..256 {
        variants += &format!("V{number}, ");
    }
    let most = input(&format!("enum Many {{ {variants} }}"));
    assert!(key::derive(&most).is_ok());
    let more = input(&format!("enum Many {{ {variants} OneMore }}"));
    expect_refused(key::derive(&more), "below 256");
    let high = input("enum High { A = 255, B }");
    expect_refused(value::derive(&high), "below 256");
    let computed = input("enum Computed { A = 1 + 1 }");
    expect_refused(value::derive(&computed), "a literal number");
}
