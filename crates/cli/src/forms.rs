//! The forms of keys and values: how a user writes them, and how a command prints them.
//!
//! [`FormArgs`] are the options of a user. [`FormArgs::of_tree`] decides on the forms of a tree.

mod csv_line;
mod types;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use everleaf::{Bounds, CodecKind, Encodings, Store, Tree};
use serde_json::{Map, Value};

use terminal::failure::Failure;
use terminal::text;

pub(crate) use self::types::FieldType;

/// The options for the forms of keys and values.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FormArgs {
    /// The type of keys, such as u64, text or text,u32; a comma joins the types of a tuple, whose
    /// text is a line of CSV
    ///
    /// The types are u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, bool, char, text,
    /// bytes (written as hex digits), bytes:16 (16 bytes) and unit. They are encoded as the library
    /// encodes them, so the keys sort as their values do.
    #[arg(long, value_name = "TYPE", help_heading = "Keys and values")]
    pub(crate) key_type: Option<FieldType>,
    /// The type of values; see --key-type
    #[arg(long, value_name = "TYPE", help_heading = "Keys and values")]
    pub(crate) value_type: Option<FieldType>,
    /// Read and print keys and values as hex digits
    #[arg(long, conflicts_with_all = ["key_type", "value_type", "escaped"], help_heading = "Keys and values")]
    pub(crate) hex: bool,
    /// Read keys and values as they are printed: `\t` `\n` `\r` `\\` `\xNN` stand for bytes
    #[arg(long, help_heading = "Keys and values")]
    pub(crate) escaped: bool,
}

/// The form of the keys of a tree, or that of its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FieldForm {
    /// Any bytes: printed in escaped form, and in JSON as text or as hex digits.
    Bytes,
    /// Any bytes, as hex digits.
    Hex,
    /// Numbers of 64 bits, in a tree of words.
    Word,
    /// A type.
    Typed(FieldType),
}

/// The forms of the keys and values of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EntryForms {
    pub(crate) key: FieldForm,
    pub(crate) value: FieldForm,
    /// Whether what is read is in escaped form.
    is_escaped: bool,
}

/// The types that a tree itself knows.
#[derive(Default)]
struct KnownTypes {
    key: Option<FieldType>,
    value: Option<FieldType>,
}

impl KnownTypes {
    /// The types with which a tree was made. None if they are a program's own: their keys and values
    /// are read and printed as bytes.
    fn of_tree(tree: &Tree) -> Self {
        let Some(encodings) = tree.encodings() else {
            return Self::default();
        };
        Self {
            key: FieldType::of_encoding(&encodings.key),
            value: FieldType::of_encoding(&encodings.value),
        }
    }
}

impl FormArgs {
    /// The forms of a tree: those that the user asks for, else those of the types that the tree
    /// knows, else those of its codec.
    pub(crate) fn of_tree(&self, tree: &Tree) -> EntryForms {
        self.decide(KnownTypes::of_tree(tree), tree.kind().codec)
    }

    /// The forms of a tree of this codec that is yet to be made.
    pub(crate) fn of_new_tree(&self, codec: CodecKind) -> EntryForms {
        self.decide(KnownTypes::default(), codec)
    }

    /// These options, and those of `defaults` where these say nothing.
    pub(crate) fn or(&self, defaults: &Self) -> Self {
        let says_types = self.key_type.is_some() || self.value_type.is_some();
        Self {
            key_type: self.key_type.clone().or(defaults.key_type.clone()),
            value_type: self.value_type.clone().or(defaults.value_type.clone()),
            hex: self.hex || defaults.hex && !says_types,
            escaped: self.escaped || defaults.escaped,
        }
    }

    fn decide(&self, known: KnownTypes, codec: CodecKind) -> EntryForms {
        EntryForms {
            key: self.field(self.key_type.clone().or(known.key), codec),
            value: self.field(self.value_type.clone().or(known.value), codec),
            is_escaped: self.escaped,
        }
    }

    fn field(&self, of_type: Option<FieldType>, codec: CodecKind) -> FieldForm {
        if self.hex {
            return FieldForm::Hex;
        }
        match of_type {
            Some(of_type) => FieldForm::Typed(of_type),
            None if codec == CodecKind::Word => FieldForm::Word,
            None => FieldForm::Bytes,
        }
    }
}

impl FieldForm {
    /// The bytes that a text stands for, or its fault.
    fn read(&self, text: &[u8], is_escaped: bool) -> Result<Vec<u8>, String> {
        match self {
            Self::Bytes => Ok(text::maybe_unescaped(text, is_escaped)?.into_owned()),
            Self::Hex => {
                text::from_hex(text).map_err(|bad| format!("{}: {bad}", text::quoted(text)))
            }
            Self::Word => read_word(text),
            Self::Typed(of_type) => of_type.read(text, is_escaped),
        }
    }

    /// Whether a user or the tree has named a type for it.
    fn is_typed(&self) -> bool {
        matches!(self, Self::Typed(_))
    }

    /// The encoding that a tree remembers for it; `None` if it has no type.
    fn encoding(&self) -> Option<String> {
        match self {
            Self::Typed(of_type) => Some(of_type.encoding()),
            Self::Word => Some(WORD.to_owned()),
            Self::Bytes | Self::Hex => None,
        }
    }

    /// Whether a text for it cannot end with a line feed, so that one behind it belongs to the file
    /// and not to it.
    fn ends_before_line_feed(&self, is_escaped: bool) -> bool {
        match self {
            Self::Bytes => is_escaped,
            Self::Typed(of_type) => is_escaped || !of_type.is_free_text(),
            Self::Hex | Self::Word => true,
        }
    }

    /// Bytes of a tree as text that fits one line.
    fn show<'b>(&self, what: &'static str, bytes: &'b [u8]) -> Result<Cow<'b, str>, Failure> {
        match self {
            Self::Bytes => Ok(text::escape(bytes)),
            Self::Hex => Ok(text::to_hex(bytes).into()),
            Self::Word => match bytes.first_chunk() {
                Some(word) => Ok(u64::from_be_bytes(*word).to_string().into()),
                None => Ok(text::escape(bytes)),
            },
            Self::Typed(of_type) => match of_type.show(bytes) {
                Some(text) => Ok(text.into()),
                None => Err(not_of_type(what, bytes, of_type)),
            },
        }
    }
}

/// The encoding of the keys and values of a tree of words that was made without types.
const WORD: &str = "u64";

/// Whether a tree has types. One of words has some even if it was made without any.
fn has_types(tree: &Tree) -> bool {
    tree.encodings().is_some() || tree.kind().codec == CodecKind::Word
}

/// The tree, opened again with these types.
fn with_types(store: &Store, tree: Tree, wanted: &Encodings) -> Result<Tree, Failure> {
    let name = tree.name().to_owned();
    let kind = tree.kind();
    // A tree without entries takes other types only if no handle of it lives.
    drop(tree);
    Ok(store.encoded_tree(&name, kind, wanted)?)
}

/// The error for bytes in a tree that are none of the type with which they are read.
fn not_of_type(what: &'static str, bytes: &[u8], of_type: &FieldType) -> Failure {
    Failure::Refused(format!(
        "the {what} {} is no {of_type}; give --{what}-type with the type that it was written with, or --hex to see the bytes",
        text::quoted(bytes)
    ))
}

fn read_word(text: &[u8]) -> Result<Vec<u8>, String> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    match number {
        Some(number) => Ok(number.to_be_bytes().to_vec()),
        None => Err(format!(
            "{} is no number, and this tree holds numbers; give one from 0 to 2^64 - 1",
            text::quoted(text)
        )),
    }
}

impl EntryForms {
    /// The encodings of keys and values in these forms, if both have types, and one of them was named.
    pub(crate) fn encodings(&self) -> Option<Encodings> {
        if !self.key.is_typed() && !self.value.is_typed() {
            return None;
        }
        Some(Encodings {
            key: self.key.encoding()?,
            value: self.value.encoding()?,
        })
    }

    /// The encodings that a new tree of these forms remembers; `None` if it is one of byte strings or
    /// of words.
    ///
    /// # Errors
    /// If only one of the two types is given. The tree could not remember it.
    pub(crate) fn encodings_of_new(&self) -> Result<Option<Encodings>, Failure> {
        let encodings = self.encodings();
        if encodings.is_some() || !self.key.is_typed() && !self.value.is_typed() {
            return Ok(encodings);
        }
        let missing = if self.key.is_typed() { "value" } else { "key" };
        Err(Failure::Usage(format!(
            "--{missing}-type is missing: a new tree remembers a type of its keys and one of its values, or none; \
             give both (`bytes` is for any bytes, in hex digits), or neither"
        )))
    }

    /// The tree, to be written to in these forms. A tree that knows its types takes no others, unless it
    /// has no entry.
    pub(crate) fn to_write(&self, store: &Store, tree: Tree) -> Result<Tree, Failure> {
        let Some(wanted) = self.encodings() else {
            return Ok(tree);
        };
        if !has_types(&tree) && !tree.is_empty()? {
            return Ok(tree);
        }
        with_types(store, tree, &wanted)
    }

    /// The tree, to remove keys in these forms from it. The type of its values does not matter.
    pub(crate) fn to_remove(&self, store: &Store, tree: Tree) -> Result<Tree, Failure> {
        let FieldForm::Typed(key) = &self.key else {
            return Ok(tree);
        };
        if !has_types(&tree) {
            return Ok(tree);
        }
        let value = match tree.encodings() {
            Some(known) => known.value.clone(),
            None => WORD.to_owned(),
        };
        let wanted = Encodings {
            key: key.encoding(),
            value,
        };
        with_types(store, tree, &wanted)
    }

    /// The forms of dumps: words as numbers, records in escaped form.
    pub(crate) fn of_dump(codec: CodecKind) -> Self {
        let as_printed = FormArgs {
            escaped: true,
            ..FormArgs::default()
        };
        as_printed.of_new_tree(codec)
    }

    /// The bytes of a key, or the fault of its text.
    pub(crate) fn read_key(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        self.key.read(text, self.is_escaped)
    }

    /// The bytes of a value, or the fault of its text.
    pub(crate) fn read_value(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        self.value.read(text, self.is_escaped)
    }

    /// The bytes of a value that is the content of a file. If its text cannot end with a line feed,
    /// one at the end of the file is no part of it.
    pub(crate) fn read_value_file(&self, content: &[u8]) -> Result<Vec<u8>, String> {
        if self.value.ends_before_line_feed(self.is_escaped) {
            return self.read_value(content.strip_suffix(b"\n").unwrap_or(content));
        }
        self.read_value(content)
    }

    /// The bytes of a key in several columns, or the fault of their texts.
    pub(crate) fn read_key_columns(&self, columns: &[&[u8]]) -> Result<Vec<u8>, String> {
        self.read_columns(&self.key, columns)
    }

    /// The bytes of a value in several columns, or the fault of their texts.
    pub(crate) fn read_value_columns(&self, columns: &[&[u8]]) -> Result<Vec<u8>, String> {
        self.read_columns(&self.value, columns)
    }

    /// The number of parts of a key; 1 if it is no tuple.
    pub(crate) fn key_parts(&self) -> usize {
        match &self.key {
            FieldForm::Typed(of_type) => of_type.parts_count(),
            _ => 1,
        }
    }

    /// One column has the text of the whole field. Several columns have the parts of a tuple, or
    /// are stored as a line of CSV.
    fn read_columns(&self, form: &FieldForm, columns: &[&[u8]]) -> Result<Vec<u8>, String> {
        match (form, columns) {
            (FieldForm::Typed(of_type), _) if of_type.parts_count() > 1 => {
                of_type.read_fields(columns, self.is_escaped)
            }
            (_, []) => form.read(b"", self.is_escaped),
            (_, [column]) => form.read(column, self.is_escaped),
            _ => form.read(&csv_line::line(columns), self.is_escaped),
        }
    }

    /// An argument as a key.
    pub(crate) fn key_argument(&self, text: &OsStr) -> Result<Vec<u8>, Failure> {
        self.read_key(text.as_bytes()).map_err(Failure::Usage)
    }

    /// A key as text that fits one line.
    pub(crate) fn show_key<'b>(&self, key: &'b [u8]) -> Result<Cow<'b, str>, Failure> {
        self.key.show("key", key)
    }

    /// A value as text that fits one line.
    pub(crate) fn show_value<'b>(&self, value: &'b [u8]) -> Result<Cow<'b, str>, Failure> {
        self.value.show("value", value)
    }

    /// An argument as the bound of a range: of a tuple the first parts are enough.
    pub(crate) fn bound(&self, text: &OsStr) -> Result<Vec<u8>, Failure> {
        match &self.key {
            FieldForm::Typed(of_type) => of_type
                .read_bound(text.as_bytes(), self.is_escaped)
                .map_err(Failure::Usage),
            _ => self.key_argument(text),
        }
    }

    /// The range of the keys that begin with an argument.
    pub(crate) fn prefix(&self, text: &OsStr) -> Result<Bounds, Failure> {
        let prefix = match &self.key {
            FieldForm::Typed(of_type) => of_type
                .read_prefix(text.as_bytes(), self.is_escaped)
                .map_err(Failure::Usage)?,
            FieldForm::Word => {
                return Err(Failure::Usage(
                    "--prefix does not apply to a tree of numbers; give --from and --to, or --hex"
                        .into(),
                ));
            }
            FieldForm::Bytes | FieldForm::Hex => self.key_argument(text)?,
        };
        Ok(Bounds::prefix(&prefix))
    }

    /// The range from one argument to before another one.
    pub(crate) fn range(
        &self,
        from: Option<&OsStr>,
        to: Option<&OsStr>,
    ) -> Result<Bounds, Failure> {
        let lower = match from {
            Some(from) => Bound::Included(self.bound(from)?),
            None => Bound::Unbounded,
        };
        let upper = match to {
            Some(to) => Bound::Excluded(self.bound(to)?),
            None => Bound::Unbounded,
        };
        Ok(Bounds { lower, upper })
    }
}

/// The encoding of keys, or of values, in one answer in JSON: the same for all of them.
#[derive(Clone, Debug)]
pub(crate) struct JsonEncoding<'f> {
    form: &'f FieldForm,
    /// Whether all bytes of the answer so far are UTF-8.
    are_text: bool,
    what: &'static str,
}

impl<'f> JsonEncoding<'f> {
    /// The encoding of keys.
    pub(crate) fn of_keys(forms: &'f EntryForms) -> Self {
        Self {
            form: &forms.key,
            are_text: true,
            what: "key",
        }
    }

    /// The encoding of values.
    pub(crate) fn of_values(forms: &'f EntryForms) -> Self {
        Self {
            form: &forms.value,
            are_text: true,
            what: "value",
        }
    }

    /// Whether it depends on the bytes that the answer will have, so that these have to be
    /// [noted](Self::note) before the first of them is written.
    pub(crate) fn is_open(&self) -> bool {
        *self.form == FieldForm::Bytes && self.are_text
    }

    /// Takes note of bytes that the answer will have. If any are not UTF-8, all are written as hex
    /// digits.
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        self.are_text = self.are_text && std::str::from_utf8(bytes).is_ok();
    }

    /// Adds the bytes to an object as the field `name`, and a field that names their encoding.
    pub(crate) fn add(
        &self,
        object: &mut Map<String, Value>,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        object.insert(name.to_owned(), self.value(bytes)?);
        object.insert(format!("{name}_encoding"), self.name().into());
        Ok(())
    }

    fn value(&self, bytes: &[u8]) -> Result<Value, Failure> {
        match self.form {
            FieldForm::Bytes if self.are_text => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(text.into()),
                Err(_) => Ok(text::to_hex(bytes).into()),
            },
            FieldForm::Bytes | FieldForm::Hex => Ok(text::to_hex(bytes).into()),
            FieldForm::Word => match bytes.first_chunk() {
                Some(word) => Ok(u64::from_be_bytes(*word).into()),
                None => Ok(text::to_hex(bytes).into()),
            },
            FieldForm::Typed(of_type) => match of_type.json(bytes) {
                Some(value) => Ok(value),
                None => Err(not_of_type(self.what, bytes, of_type)),
            },
        }
    }

    /// The name of the encoding: `text`, `hex` or `number`, or that of a type.
    fn name(&self) -> String {
        match self.form {
            FieldForm::Bytes if self.are_text => "text".to_owned(),
            FieldForm::Bytes | FieldForm::Hex => "hex".to_owned(),
            FieldForm::Word => "number".to_owned(),
            FieldForm::Typed(of_type) => of_type.to_string(),
        }
    }
}
