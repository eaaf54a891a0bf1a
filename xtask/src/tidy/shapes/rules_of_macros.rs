//! The code that `macro_rules!` writes, as far as it can be parsed: each rule's body, with its
//! metavariables taken as names and each repetition as one of its turns.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The bodies of the rules of a `macro_rules!`.
pub(super) fn bodies(rules: TokenStream) -> Vec<TokenStream> {
    let mut bodies = Vec::new();
    // A rule is a pattern, `=>`, a body and `;`. The pattern and the body are groups.
    let groups = rules.into_iter().filter_map(|token| match token {
        TokenTree::Group(group) => Some(group),
        _ => None,
    });
    for (number, group) in groups.enumerate() {
        let is_body = number % 2 == 1;
        if is_body {
            bodies.push(without_metavariables(group.stream()));
        }
    }
    bodies
}

/// The tokens with `$name` as `name`, and `$(..),*` as `..,`.
fn without_metavariables(tokens: TokenStream) -> TokenStream {
    let mut plain = TokenStream::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(dollar) if dollar.as_char() == '$' => {
                let repeated = match tokens.peek() {
                    Some(TokenTree::Group(group))
                        if group.delimiter() == Delimiter::Parenthesis =>
                    {
                        Some(group.stream())
                    }
                    _ => None,
                };
                if let Some(repeated) = repeated {
                    tokens.next();
                    plain.extend(without_metavariables(repeated));
                    plain.extend(separator(&mut tokens));
                }
            }
            TokenTree::Group(group) => {
                let mut inner =
                    Group::new(group.delimiter(), without_metavariables(group.stream()));
                inner.set_span(group.span());
                plain.extend([TokenTree::Group(inner)]);
            }
            other => plain.extend([other]),
        }
    }
    plain
}

/// Takes the end of a repetition, such as `,*`; returns its separator, if it has one.
fn separator(tokens: &mut impl Iterator<Item = TokenTree>) -> Option<TokenTree> {
    let first = tokens.next()?;
    let is_operator = matches!(&first, TokenTree::Punct(punct) if "*+?".contains(punct.as_char()));
    if is_operator {
        return None;
    }
    tokens.next();
    Some(first)
}
