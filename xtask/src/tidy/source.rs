//! A Rust file: its text, its syntax tree, and its tokens in one flat list without comments and docs.

use proc_macro2::{Delimiter, LexError, Span, TokenStream, TokenTree};

use super::Finding;

/// A Rust file that parses.
pub(super) struct Source {
    path: String,
    line_count: usize,
    syntax: syn::File,
    tokens: Vec<Token>,
}

/// One token of a file, and the line it starts on.
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) kind: Kind,
}

/// Groups are flattened: each becomes an `Open`, its content, and a `Close`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ident(String),
    Punct(char),
    /// The value of a string, byte string or C string literal, escapes resolved.
    Text(String),
    /// Numbers, characters, bytes.
    Literal,
    Open(Delimiter),
    Close(Delimiter),
}

impl Source {
    /// Parses a file; a file that does not parse is a finding.
    pub(super) fn parse(path: &str, text: &str) -> Result<Self, Finding> {
        let unreadable = |span: Span, what: String| Finding {
            file: path.to_owned(),
            line: span.start().line,
            what: format!("this is not Rust that can be parsed: {what}"),
            way_out: "mend the syntax, or exclude the file from the workspace".to_owned(),
        };
        let lexed: Result<TokenStream, LexError> = without_shebang(text).parse();
        let stream = lexed.map_err(|error| unreadable(error.span(), error.to_string()))?;
        let mut tokens = Vec::new();
        flatten(stream.clone(), &mut tokens);
        let syntax = syn::parse2(stream).map_err(|error| unreadable(error.span(), error.to_string()))?;
        Ok(Self { path: path.to_owned(), line_count: text.lines().count(), syntax, tokens })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn line_count(&self) -> usize {
        self.line_count
    }

    pub(super) fn syntax(&self) -> &syn::File {
        &self.syntax
    }

    pub(super) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Whether the file lies in this folder, at any depth.
    pub(super) fn is_in(&self, folder: &str) -> bool {
        self.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    }

    /// A finding at a line of this file.
    pub(super) fn finding(&self, line: usize, what: String, way_out: &str) -> Finding {
        Finding { file: self.path.clone(), line, what, way_out: way_out.to_owned() }
    }
}

impl Kind {
    pub(super) fn is_ident(&self, name: &str) -> bool {
        matches!(self, Self::Ident(ident) if ident == name)
    }

    /// The name, if this is an identifier or a keyword.
    pub(super) fn ident(&self) -> Option<&str> {
        match self {
            Self::Ident(ident) => Some(ident),
            _ => None,
        }
    }
}

/// Whether the tokens start with this path, such as `["ptr", "write"]` for `ptr::write`.
pub(super) fn starts_with_path(tokens: &[Token], path: &[&str]) -> bool {
    let mut rest = tokens;
    for (position, name) in path.iter().enumerate() {
        if position > 0 {
            let Some(after) = after_path_separator(rest) else { return false };
            rest = after;
        }
        let Some((first, after)) = rest.split_first() else { return false };
        if !first.kind.is_ident(name) {
            return false;
        }
        rest = after;
    }
    true
}

/// The tokens behind a `::`, if they start with one.
pub(super) fn after_path_separator(tokens: &[Token]) -> Option<&[Token]> {
    match tokens {
        [a, b, rest @ ..] if a.kind == Kind::Punct(':') && b.kind == Kind::Punct(':') => Some(rest),
        _ => None,
    }
}

/// The tokens of a group, given the tokens from its `Open` on.
pub(super) fn group(tokens: &[Token]) -> &[Token] {
    let mut depth = 0_usize;
    for (position, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &tokens[..position];
        }
    }
    tokens
}

/// Appends the tokens of a stream, without doc comments and `doc` attributes.
pub(super) fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                let bang = trees.next_if(|next| is_punct(next, '!')).map(|tree| tree.span().start().line);
                if trees.next_if(is_doc).is_some() {
                    continue;
                }
                tokens.push(Token { line, kind: Kind::Punct('#') });
                tokens.extend(bang.map(|line| Token { line, kind: Kind::Punct('!') }));
            }
            TokenTree::Punct(punct) => tokens.push(Token { line, kind: Kind::Punct(punct.as_char()) }),
            TokenTree::Ident(ident) => tokens.push(Token { line, kind: Kind::Ident(ident.to_string()) }),
            TokenTree::Literal(literal) => tokens.push(Token { line, kind: literal_kind(literal) }),
            TokenTree::Group(group) => {
                let delimiter = group.delimiter();
                tokens.push(Token { line, kind: Kind::Open(delimiter) });
                flatten(group.stream(), tokens);
                let line = group.span_close().end().line;
                tokens.push(Token { line, kind: Kind::Close(delimiter) });
            }
        }
    }
}

fn is_punct(tree: &TokenTree, character: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// Whether this is the `[doc = "..."]` of a doc comment or attribute.
fn is_doc(tree: &TokenTree) -> bool {
    let TokenTree::Group(group) = tree else { return false };
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket
        && matches!(first, Some(TokenTree::Ident(ident)) if ident == "doc")
}

fn literal_kind(literal: proc_macro2::Literal) -> Kind {
    match syn::Lit::new(literal) {
        syn::Lit::Str(text) => Kind::Text(text.value()),
        syn::Lit::ByteStr(bytes) => Kind::Text(String::from_utf8_lossy(&bytes.value()).into_owned()),
        syn::Lit::CStr(text) => Kind::Text(text.value().to_string_lossy().into_owned()),
        _ => Kind::Literal,
    }
}

/// Turns a `#!/usr/bin/env ...` line into a comment, so that line numbers stay.
fn without_shebang(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match text.strip_prefix("#!") {
        Some(rest) if !rest.trim_start().starts_with('[') => format!("//{rest}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idents(text: &str) -> Vec<String> {
        let source = Source::parse("a.rs", text).expect("the example parses");
        source.tokens().iter().filter_map(|token| token.kind.ident().map(str::to_owned)).collect()
    }

    #[test]
    fn comments_and_docs_are_not_tokens() {
        let text = "//! one\n#![doc = \"two\"]\n/// three\n#[doc = \"four\"]\n#[inline]\nfn f() {} // five\n";
        assert_eq!(idents(text), ["inline", "fn", "f"]);
    }

    #[test]
    fn literals_come_with_their_value() {
        let text = "const A: &str = \"a\\tb\"; const B: &[u8] = b\"c\"; const C: u8 = 1;";
        let source = Source::parse("a.rs", text).expect("the example parses");
        let texts = source.tokens().iter().filter_map(|token| match &token.kind {
            Kind::Text(text) => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(texts.collect::<Vec<_>>(), ["a\tb", "c"]);
    }

    #[test]
    fn a_syntax_error_is_a_finding_at_its_line() {
        let Err(finding) = Source::parse("a.rs", "fn f() {}\nfn g( {}\n") else {
            panic!("this must not parse")
        };
        assert_eq!((finding.file.as_str(), finding.line), ("a.rs", 2));
        let Err(finding) = Source::parse("a.rs", "fn f() {}\n\nstruct struct;\n") else {
            panic!("this must not parse")
        };
        assert_eq!((finding.file.as_str(), finding.line), ("a.rs", 3));
    }

    #[test]
    fn a_shebang_line_keeps_line_numbers() {
        let source = Source::parse("a.rs", "#!/usr/bin/env run\nfn f() {}\n").expect("the example parses");
        assert_eq!(source.tokens()[0].line, 2);
        assert_eq!(idents("#![allow(dead_code)]\nfn f() {}\n")[0], "allow");
    }

    #[test]
    fn a_group_ends_at_its_own_close() {
        let source = Source::parse("a.rs", "fn f() { { 1 } } fn g() {}").expect("the example parses");
        let open = source.tokens().iter().position(|token| token.kind == Kind::Open(Delimiter::Brace));
        let body = group(&source.tokens()[open.expect("the function has a body")..]);
        assert_eq!(body.len(), 4);
    }
}
