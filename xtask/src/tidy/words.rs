//! Only `medium` decides how bytes become durable, so the means to do so are words that nobody else uses.
//!
//! Looks at tokens: comments and docs may say what they like, string literals (assembly among them) may not.
//! An identifier is read as its parts between underscores, so `_mm_sfence` is the word `sfence`, while a type
//! such as `Movdir64b` that names a choice is none.

use super::Finding;
use super::source::{Kind, Source, Token, after_path_separator, group, starts_with_path};
use super::tree::Tree;

/// Not above `medium`: xtask holds the list itself.
const EXEMPT: &[&str] = &["crates/medium", "xtask"];
/// `pool` sets up mappings and may store through a raw pointer where that cannot be avoided.
const MAY_STORE: &[&str] = &["crates/pool"];

/// Ways to make a line durable. A word also stands for what begins with it: `clflush` for `clflushopt`.
const INSTRUCTIONS: &[&str] = &["clwb", "clflush", "sfence", "msync", "movdir64b"];
/// Macros that hide any of them.
const ASSEMBLY: &[&str] = &["asm", "global_asm", "naked_asm"];
/// Stores through a raw pointer, by a name that means nothing else.
const STORES: &[&str] = &[
    "write_volatile",
    "write_unaligned",
    "copy_nonoverlapping",
    "copy_to_nonoverlapping",
    "copy_from_nonoverlapping",
    "swap_nonoverlapping",
];
/// Stores through a raw pointer that need `ptr::` to be told from others of their name.
const POINTER_STORES: &[&str] = &["write", "write_bytes", "copy", "replace", "swap", "drop_in_place"];

const USE_A_MEDIUM: &str = "call the medium through its cells and guard: flush, fence, wait";
const USE_A_CELL: &str = "store through a cell of the medium (word, line, bytes)";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.sources().iter().filter(|source| !is_in_any(source, EXEMPT));
    sources.flat_map(check_source).collect()
}

fn is_in_any(source: &Source, folders: &[&str]) -> bool {
    folders.iter().any(|folder| source.is_in(folder))
}

fn check_source(source: &Source) -> Vec<Finding> {
    let may_store = is_in_any(source, MAY_STORE);
    let mut findings = Vec::new();
    for (position, token) in source.tokens().iter().enumerate() {
        let tokens = &source.tokens()[position..];
        if let Some(word) = instruction(&token.kind) {
            let what = format!("`{word}` above crates/medium");
            findings.push(source.finding(token.line, what, USE_A_MEDIUM));
        }
        if let Some(name) = assembly(tokens) {
            let what = format!("`{name}!` above crates/medium");
            findings.push(source.finding(token.line, what, "put the instruction into crates/medium"));
        }
        if !may_store {
            for (line, name) in stores(tokens) {
                let what = format!("a store through a raw pointer (`{name}`) above crates/medium");
                findings.push(source.finding(line, what, USE_A_CELL));
            }
        }
    }
    findings
}

fn instruction(kind: &Kind) -> Option<&'static str> {
    let is = |part: &str| INSTRUCTIONS.iter().copied().find(|word| part.starts_with(word));
    match kind {
        Kind::Ident(ident) => ident.split('_').find_map(is),
        // Mnemonics have no case.
        Kind::Text(text) => text.to_lowercase().split(|c: char| !c.is_alphanumeric()).find_map(is),
        _ => None,
    }
}

fn assembly(tokens: &[Token]) -> Option<&str> {
    let [name, bang, open, ..] = tokens else { return None };
    let is_call = bang.kind == Kind::Punct('!') && matches!(open.kind, Kind::Open(_));
    name.kind.ident().filter(|name| is_call && ASSEMBLY.contains(name))
}

/// The stores that begin at the first of these tokens.
fn stores(tokens: &[Token]) -> Vec<(usize, String)> {
    let Some(first) = tokens.first() else { return Vec::new() };
    if let Some(name) = first.kind.ident().filter(|name| STORES.contains(name)) {
        return vec![(first.line, name.to_owned())];
    }
    let pointer_store = |rest: &[Token]| {
        let name = POINTER_STORES.iter().find(|name| starts_with_path(rest, &[name]));
        name.map(|name| (rest[0].line, format!("ptr::{name}")))
    };
    let Some(rest) = first.kind.is_ident("ptr").then(|| after_path_separator(&tokens[1..])).flatten() else {
        return Vec::new();
    };
    match rest.first() {
        // use std::ptr::{self, write};
        Some(open) if matches!(open.kind, Kind::Open(_)) => {
            let listed = group(rest);
            (1..listed.len()).filter_map(|position| pointer_store(&listed[position..])).collect()
        }
        _ => pointer_store(rest).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_in(path: &str, text: &str) -> Vec<(usize, String)> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    fn findings(text: &str) -> Vec<(usize, String)> {
        findings_in("crates/engines/src/lib.rs", text)
    }

    #[test]
    fn every_instruction_is_found_in_code_and_in_strings() {
        for word in INSTRUCTIONS {
            let what = format!("`{word}` above crates/medium");
            let code = format!("fn f() {{\n    _mm_{word}();\n}}\n");
            assert_eq!(findings(&code), [(2, what.clone())]);
            let text = format!("const A: &str = \"\\t{}\\n\";\n", word.to_uppercase());
            assert_eq!(findings(&text), [(1, what.clone())]);
            let doc = format!("//! {word}\n/// {word}\n#[doc = \"{word}\"]\nfn f() {{}} // {word}\n");
            assert_eq!(findings(&doc), []);
        }
        assert_eq!(findings("fn f() { g(\"CLFLUSHOPT [rax]\") }").len(), 1);
    }

    #[test]
    fn a_word_is_whole() {
        assert_eq!(findings("fn transfence(f: Store) { Choice::Movdir64b; \"offence\"; }"), []);
    }

    #[test]
    fn the_medium_and_the_list_itself_are_exempt() {
        let text = "fn f() { clwb(); asm!(\"sfence\"); ptr::write(p, 1) }";
        assert_eq!(findings_in("crates/medium/src/flush/mod.rs", text), []);
        assert_eq!(findings_in("xtask/src/main.rs", text), []);
        assert_eq!(findings_in("crates/medium_other/src/lib.rs", text).len(), 4);
    }

    #[test]
    fn assembly_is_found() {
        let expected = [(2, "`asm!` above crates/medium".to_owned())];
        assert_eq!(findings("fn f() {\n    core::arch::asm!(\"nop\");\n}\n"), expected);
        assert_eq!(findings("fn f(asm: u8) -> bool { asm != 1 }"), []);
    }

    #[test]
    fn stores_through_raw_pointers_are_found() {
        for name in STORES {
            let what = format!("a store through a raw pointer (`{name}`) above crates/medium");
            assert_eq!(findings(&format!("fn f() {{\n    p.{name}(q, 1);\n}}\n")), [(2, what)]);
        }
        for name in POINTER_STORES {
            let what = format!("a store through a raw pointer (`ptr::{name}`) above crates/medium");
            assert_eq!(
                findings(&format!("fn f() {{\n    std::ptr::{name}(p, 1);\n}}\n")),
                [(2, what.clone())]
            );
            assert_eq!(findings(&format!("use std::ptr::{{\n    self, {name},\n}};\n")), [(2, what)]);
        }
    }

    #[test]
    fn other_uses_of_the_same_names_pass() {
        let text = "use std::ptr::{self, NonNull};\nfn f() { out.write(b); mem::swap(a, b); ptr::eq(a, b); \
                    s.replace(a, b); ptr::null::<u8>(); }";
        assert_eq!(findings(text), []);
    }

    #[test]
    fn the_pool_may_store_but_not_flush() {
        let text = "fn f() { ptr::write(p, 1); q.write_volatile(1) }";
        assert_eq!(findings_in("crates/pool/src/space.rs", text), []);
        let expected = [(1, "`msync` above crates/medium".to_owned())];
        assert_eq!(findings_in("crates/pool/src/space.rs", "fn f() { msync() }"), expected);
    }
}
