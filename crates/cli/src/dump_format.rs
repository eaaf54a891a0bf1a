//! The text format of `dump` and `restore`, described for users in `docs/DUMP.md`.
//!
//! ```text
//! # everleaf dump 1
//! # tree engine=rntree codec=record name=fruit
//! apple<TAB>12
//! pear<TAB>3
//! # end entries=2 crc32c=0a1b2c3d
//! # end of dump trees=1 entries=2
//! ```

use std::io::{BufRead, Write};
use std::str::FromStr;

use everleaf::{CodecKind, Encodings, Engine, Store, Tree, TreeInfo, TreeOptions};

use crate::forms::EntryForms;
use crate::input::{LineRead, read_line, too_long};
use terminal::failure::Failure;
use terminal::progress::many;
use terminal::text;

const FIRST: &str = "# everleaf dump 1";
const TREE: &str = "# tree ";
const END_TREE: &str = "# end entries=";
const END: &str = "# end of dump trees=";
/// A way out if a dump is damaged.
const AGAIN: &str = "; restore another copy of it, or make it again";
const NO_LINE: &str =
    "neither an entry (key, tab, value) nor a line of the format; docs/DUMP.md describes it";

/// A tree as the line says with which it begins in a dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TreeHead {
    pub(crate) name: String,
    pub(crate) kind: TreeOptions,
    /// The encodings of its keys and values; `None` for byte strings and words.
    pub(crate) encodings: Option<Encodings>,
}

impl TreeHead {
    /// The tree that a store lists; `None` if this release does not know its kind.
    pub(crate) fn of(tree: TreeInfo) -> Option<Self> {
        Some(Self {
            name: tree.name,
            kind: tree.kind?,
            encodings: tree.encodings,
        })
    }

    /// The tree of this name in a store, made if it is missing.
    pub(crate) fn open_in(&self, store: &Store) -> everleaf::Result<Tree> {
        match &self.encodings {
            Some(encodings) => store.encoded_tree(&self.name, self.kind, encodings),
            None => store.tree_with(&self.name, self.kind),
        }
    }

    /// Reads the part of the line behind `# tree `; `None` if it is malformed.
    fn fields(line: &str) -> Option<HeadFields<'_>> {
        let (kind, name) = line.split_once(" name=")?;
        let mut words = kind.split(' ');
        let engine = words.next()?.strip_prefix("engine=")?;
        let codec = words.next()?.strip_prefix("codec=")?;
        let encodings = match words.next() {
            None => None,
            Some(key) => Some(Encodings {
                key: key.strip_prefix("key=")?.to_owned(),
                value: words.next()?.strip_prefix("value=")?.to_owned(),
            }),
        };
        if words.next().is_some() {
            return None;
        }
        Some(HeadFields {
            engine,
            codec,
            encodings,
            name,
        })
    }
}

/// The fields of a tree's line.
struct HeadFields<'l> {
    engine: &'l str,
    codec: &'l str,
    encodings: Option<Encodings>,
    /// Escaped.
    name: &'l str,
}

/// Writes a dump.
pub(crate) struct DumpWriter<W> {
    output: W,
    forms: EntryForms,
    line: Vec<u8>,
    crc: u32,
    entries: u64,
    trees_total: u64,
    entries_total: u64,
}

impl<W: Write> DumpWriter<W> {
    pub(crate) fn new(mut output: W) -> Result<Self, Failure> {
        writeln!(output, "{FIRST}")?;
        Ok(Self {
            output,
            forms: EntryForms::of_dump(CodecKind::Record),
            line: Vec::new(),
            crc: 0,
            entries: 0,
            trees_total: 0,
            entries_total: 0,
        })
    }

    /// Begins a tree.
    pub(crate) fn tree(&mut self, head: &TreeHead) -> Result<(), Failure> {
        let kind = head.kind;
        let engine = kind.engine.name();
        let codec = kind.codec.name();
        let encodings = match &head.encodings {
            Some(Encodings { key, value }) => format!(" key={key} value={value}"),
            None => String::new(),
        };
        let name = text::escape(head.name.as_bytes());
        let line = format!("{TREE}engine={engine} codec={codec}{encodings} name={name}\n");
        self.output.write_all(line.as_bytes())?;
        self.forms = EntryForms::of_dump(kind.codec);
        self.crc = crc32c::crc32c(line.as_bytes());
        self.entries = 0;
        Ok(())
    }

    /// An entry of the tree begun last.
    pub(crate) fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.line.clear();
        let key = self.forms.show_key(key)?;
        self.line.extend_from_slice(key.as_bytes());
        self.line.push(b'\t');
        let value = self.forms.show_value(value)?;
        self.line.extend_from_slice(value.as_bytes());
        self.line.push(b'\n');
        self.crc = crc32c::crc32c_append(self.crc, &self.line);
        self.entries += 1;
        Ok(self.output.write_all(&self.line)?)
    }

    /// Ends the tree begun last.
    pub(crate) fn end_tree(&mut self) -> Result<(), Failure> {
        writeln!(
            self.output,
            "{END_TREE}{} crc32c={:08x}",
            self.entries, self.crc
        )?;
        self.trees_total += 1;
        self.entries_total += self.entries;
        Ok(())
    }

    /// Ends the dump.
    pub(crate) fn finish(mut self) -> Result<DumpSize, Failure> {
        writeln!(
            self.output,
            "{END}{} entries={}",
            self.trees_total, self.entries_total
        )?;
        self.output.flush()?;
        Ok(DumpSize {
            trees: self.trees_total,
            entries: self.entries_total,
        })
    }
}

/// The numbers of trees and entries in a dump.
pub(crate) struct DumpSize {
    pub(crate) trees: u64,
    pub(crate) entries: u64,
}

/// A part of a dump.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum DumpPart {
    /// A tree begins.
    Tree(TreeHead),
    /// An entry of it.
    Entry(Vec<u8>, Vec<u8>),
    /// The tree ends; count and checksum are right.
    EndTree,
    /// The dump ends; its totals are right.
    End,
}

/// Reads and verifies a dump.
pub(crate) struct DumpReader<R> {
    input: R,
    name: String,
    line: Vec<u8>,
    number: u64,
    /// Within a tree, the forms of its keys and values.
    forms: Option<EntryForms>,
    crc: u32,
    entries: u64,
    trees_total: u64,
    entries_total: u64,
    has_byte_order_mark: bool,
}

impl<R: BufRead> DumpReader<R> {
    /// Reads from `input`; errors give it the name `name`.
    pub(crate) fn new(input: R, name: &str) -> Result<Self, Failure> {
        let name = name.to_owned();
        let line = Vec::new();
        let mut reader = Self {
            input,
            name,
            line,
            number: 0,
            forms: None,
            crc: 0,
            entries: 0,
            trees_total: 0,
            entries_total: 0,
            has_byte_order_mark: false,
        };
        let is_begun = reader.read_line()?;
        reader.has_byte_order_mark = text::remove_byte_order_mark(&mut reader.line);
        if !is_begun || reader.line.strip_suffix(b"\n") != Some(FIRST.as_bytes()) {
            return Err(reader.bad(format!(
                "a dump begins with the line {FIRST:?}; give a file that `everleaf dump` wrote"
            )));
        }
        Ok(reader)
    }

    /// Whether a byte order mark was read before the dump and left out.
    pub(crate) fn has_byte_order_mark(&self) -> bool {
        self.has_byte_order_mark
    }

    /// The error for the last line, which is malformed.
    pub(crate) fn bad(&self, what: impl Into<String>) -> Failure {
        Failure::Line {
            input: self.name.clone(),
            number: self.number.max(1),
            what: what.into(),
        }
    }

    /// Reads a line, without its end; `false` at the end of the input.
    fn read_line(&mut self) -> Result<bool, Failure> {
        let read = read_line(&mut self.input, &mut self.line);
        let read = read.map_err(|error| Failure::io(format!("read {}", self.name))(error))?;
        if read == LineRead::End {
            return Ok(false);
        }
        self.number += 1;
        if let LineRead::TooLong(length) = read {
            return Err(self.bad(too_long(length)));
        }
        if self.line.last() != Some(&b'\n') {
            return Err(self.bad(format!(
                "the line is cut off: the dump was truncated{AGAIN}"
            )));
        }
        Ok(true)
    }

    /// Refuses anything behind the dump.
    pub(crate) fn expect_end_of_input(&mut self) -> Result<(), Failure> {
        if self.read_line()? {
            return Err(self.bad("the dump ended on the line before; restore one dump at a time"));
        }
        Ok(())
    }

    /// The next part.
    pub(crate) fn next(&mut self) -> Result<DumpPart, Failure> {
        if !self.read_line()? {
            let what = format!(
                "the dump ends here, after {}; it was truncated{AGAIN}",
                many(self.trees_total, "whole tree")
            );
            return Err(self.bad(what));
        }
        if self.line.contains(&b'\t') {
            return self.entry();
        }
        self.line.pop();
        let Ok(line) = String::from_utf8(self.line.clone()) else {
            return Err(self.bad(NO_LINE));
        };
        if let Some(rest) = line.strip_prefix(TREE) {
            return self.tree(rest);
        }
        if let Some(rest) = line.strip_prefix(END_TREE) {
            return self.end_tree(rest);
        }
        if let Some(rest) = line.strip_prefix(END) {
            return self.end(rest);
        }
        Err(self.bad(NO_LINE))
    }

    fn entry(&mut self) -> Result<DumpPart, Failure> {
        let Some(forms) = &self.forms else {
            return Err(self.bad(format!("an entry outside of a tree{AGAIN}")));
        };
        self.crc = crc32c::crc32c_append(self.crc, &self.line);
        self.entries += 1;
        self.line.pop();
        let mut fields = self.line.split(|byte| *byte == b'\t');
        let key = fields.next().unwrap_or_default();
        let value = fields.next().unwrap_or_default();
        if fields.next().is_some() {
            return Err(
                self.bad(r"more than one tab; a tab in a key or a value is written as `\t`")
            );
        }
        let key = forms.read_key(key).map_err(|what| self.bad(what))?;
        let value = forms.read_value(value).map_err(|what| self.bad(what))?;
        Ok(DumpPart::Entry(key, value))
    }

    fn tree(&mut self, rest: &str) -> Result<DumpPart, Failure> {
        if self.forms.is_some() {
            return Err(self.bad(format!("a tree begins before the last one ended{AGAIN}")));
        }
        let Some(fields) = TreeHead::fields(rest) else {
            return Err(self.bad(
                "a tree's line reads `# tree engine=... codec=... name=...`, with `key=... value=...` before the name if the tree has types",
            ));
        };
        let HeadFields {
            engine,
            codec,
            encodings,
            name,
        } = fields;
        let kind = Engine::from_name(engine).zip(CodecKind::from_name(codec));
        let Some((engine, codec)) = kind else {
            return Err(self.bad(format!("this release has no engine {engine:?} with codec {codec:?}; `everleaf engines` lists those there are: change the line, \
                 or use the release that wrote it")));
        };
        let name = text::unescape(name.as_bytes()).map_err(|bad| self.bad(bad.to_string()))?;
        let name = String::from_utf8(name.into_owned())
            .map_err(|_| self.bad(format!("the name is not UTF-8{AGAIN}")))?;
        self.forms = Some(EntryForms::of_dump(codec));
        self.entries = 0;
        self.crc = crc32c::crc32c_append(crc32c::crc32c(&self.line), b"\n");
        Ok(DumpPart::Tree(TreeHead {
            name,
            kind: TreeOptions {
                engine,
                codec,
                ..TreeOptions::default()
            },
            encodings,
        }))
    }

    fn end_tree(&mut self, rest: &str) -> Result<DumpPart, Failure> {
        let fields = rest.split_once(" crc32c=").and_then(|(entries, crc)| {
            Some((
                u64::from_str(entries).ok()?,
                u32::from_str_radix(crc, 16).ok()?,
            ))
        });
        if self.forms.take().is_none() || fields.is_none() {
            return Err(
                self.bad("a tree's end reads `# end entries=... crc32c=...`, behind its entries")
            );
        }
        if fields != Some((self.entries, self.crc)) {
            let entries = self.entries;
            let crc = self.crc;
            let found = format!(
                "{} with checksum {crc:08x} before it, from its tree's line on: the dump was changed{AGAIN}",
                many(entries, "entry")
            );
            return Err(self.bad(found));
        }
        self.trees_total += 1;
        self.entries_total += self.entries;
        Ok(DumpPart::EndTree)
    }

    fn end(&mut self, rest: &str) -> Result<DumpPart, Failure> {
        let expected = format!("{} entries={}", self.trees_total, self.entries_total);
        if self.forms.is_some() || rest != expected {
            return Err(self.bad(format!(
                "the dump should end with trees={expected}; it was changed{AGAIN}"
            )));
        }
        Ok(DumpPart::End)
    }
}

#[cfg(test)]
mod tests;
