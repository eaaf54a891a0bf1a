//! Types of keys and values: the text that a user writes, the bytes that the library's encodings
//! give it, and back.
//!
//! A type is one of [`PartType`], or several of them for a tuple: `text,u32`. The text of a tuple is
//! a line of CSV: `ada,7`, or `"Smith, J",7`.

use std::fmt;
use std::str::FromStr;

use everleaf::Key;
use serde_json::Value;

use terminal::text;

use super::csv_line;

/// The most parts of a tuple. The library has no encoding for more.
const PARTS_MAX: usize = 4;

/// The type of a key or a value: one part, or a tuple of several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FieldType {
    parts: Vec<PartType>,
}

/// The type of a part of a key or a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartType {
    U8,
    U16,
    U32,
    U64,
    U128,
    I8,
    I16,
    I32,
    I64,
    I128,
    F32,
    F64,
    Bool,
    Char,
    /// A `String`.
    Text,
    /// A `Vec<u8>`, written as hex digits.
    Bytes,
    /// A `[u8; N]`, written as hex digits.
    ByteArray(usize),
    /// `()`: no bytes at all.
    Unit,
}

/// A value of a [`PartType`].
#[derive(Clone, PartialEq, Debug)]
enum PartValue {
    Unsigned(u128),
    Signed(i128),
    F32(f32),
    F64(f64),
    Bool(bool),
    Char(char),
    Text(String),
    Bytes(Vec<u8>),
    Unit,
}

/// Where a part stands in a key or a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PartPlace {
    /// Nothing follows.
    Last,
    /// Other parts follow, so a reader must be able to tell where this one ends.
    BeforeAnother,
}

/// The names of all types but byte arrays.
const NAMED: [(&str, PartType); 17] = [
    ("u8", PartType::U8),
    ("u16", PartType::U16),
    ("u32", PartType::U32),
    ("u64", PartType::U64),
    ("u128", PartType::U128),
    ("i8", PartType::I8),
    ("i16", PartType::I16),
    ("i32", PartType::I32),
    ("i64", PartType::I64),
    ("i128", PartType::I128),
    ("f32", PartType::F32),
    ("f64", PartType::F64),
    ("bool", PartType::Bool),
    ("char", PartType::Char),
    ("text", PartType::Text),
    ("bytes", PartType::Bytes),
    ("unit", PartType::Unit),
];

/// The name of the library's encoding of `()`.
const UNIT_ENCODING: &str = "()";

/// The name of a byte array, before its length.
const BYTE_ARRAY: &str = "bytes:";

impl FromStr for PartType {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some((_, found)) = NAMED.iter().find(|(known, _)| *known == name) {
            return Ok(*found);
        }
        if let Some(length) = name.strip_prefix(BYTE_ARRAY) {
            return match length.parse() {
                Ok(length) => Ok(Self::ByteArray(length)),
                Err(_) => Err(format!(
                    "{name:?}: give the length of a byte array as a number, such as bytes:16"
                )),
            };
        }
        let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
        Err(format!(
            "no type {name:?}; the types are {} and bytes:LENGTH; a comma joins the types of a tuple",
            names.join(", ")
        ))
    }
}

impl PartType {
    fn of_encoding(name: &str) -> Option<Self> {
        if name == UNIT_ENCODING {
            return Some(Self::Unit);
        }
        let length = name
            .strip_prefix("bytes[")
            .and_then(|rest| rest.strip_suffix(']'));
        if let Some(length) = length {
            return length.parse().ok().map(Self::ByteArray);
        }
        let is_library_name = |known: &str| known == name && known != "unit";
        let named = NAMED.iter().find(|(known, _)| is_library_name(known));
        named.map(|(_, found)| *found)
    }

    fn encoding(&self) -> String {
        match self {
            Self::Unit => UNIT_ENCODING.to_owned(),
            Self::ByteArray(length) => format!("bytes[{length}]"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for PartType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::ByteArray(length) = self {
            return write!(formatter, "{BYTE_ARRAY}{length}");
        }
        let found = NAMED.iter().find(|(_, known)| known == self);
        formatter.write_str(found.map_or("", |(name, _)| name))
    }
}

impl FromStr for FieldType {
    type Err = String;

    fn from_str(names: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        for name in names.split(',') {
            parts.push(name.trim().parse()?);
        }
        if parts.len() > PARTS_MAX {
            return Err(format!(
                "a tuple of {} parts; a tuple has up to {PARTS_MAX}",
                parts.len()
            ));
        }
        Ok(Self { parts })
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            write!(formatter, "{part}")?;
        }
        Ok(())
    }
}

impl FieldType {
    /// The type that the library's encoding of this name has; `None` if it is a program's own type.
    pub(crate) fn of_encoding(name: &str) -> Option<Self> {
        let is_unit = name == UNIT_ENCODING;
        let parts = match name
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'))
        {
            Some(parts) if !is_unit => parts,
            _ => name,
        };
        let parts: Option<Vec<PartType>> = parts.split(',').map(PartType::of_encoding).collect();
        Some(Self { parts: parts? })
    }

    /// The name of the library's encoding.
    pub(crate) fn encoding(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(PartType::encoding).collect();
        match parts.as_slice() {
            [part] => part.clone(),
            parts => format!("({})", parts.join(",")),
        }
    }

    /// Whether it is text alone, which may hold any characters.
    pub(crate) fn is_free_text(&self) -> bool {
        self.parts == [PartType::Text]
    }

    /// The number of parts; 1 if it is no tuple.
    pub(crate) fn parts_count(&self) -> usize {
        self.parts.len()
    }

    /// The bytes of a text. `is_escaped` tells whether text parts are escaped.
    pub(crate) fn read(&self, text: &[u8], is_escaped: bool) -> Result<Vec<u8>, String> {
        let fields = self.split(text)?;
        self.read_fields(&fields, is_escaped)
    }

    /// The bytes of the texts of all parts.
    pub(crate) fn read_fields<T: AsRef<[u8]>>(
        &self,
        fields: &[T],
        is_escaped: bool,
    ) -> Result<Vec<u8>, String> {
        if fields.len() != self.parts.len() {
            return Err(format!(
                "{} given, but {self} has {}; separate them by commas, and quote a part that has a comma or a quote: \"a, b\",7",
                parts_in_words(fields.len()),
                self.parts.len()
            ));
        }
        self.read_first(fields, is_escaped)
    }

    /// The bytes of the first parts, for the bound of a range. A tuple need not be given wholly.
    pub(crate) fn read_bound(&self, text: &[u8], is_escaped: bool) -> Result<Vec<u8>, String> {
        let fields = self.split(text)?;
        if fields.len() > self.parts.len() {
            return self.read_fields(&fields, is_escaped);
        }
        self.read_first(&fields, is_escaped)
    }

    /// The bytes with which all keys begin that have these first parts. If all parts are given, the
    /// last one is the beginning of a text.
    pub(crate) fn read_prefix(&self, text: &[u8], is_escaped: bool) -> Result<Vec<u8>, String> {
        let fields = self.split(text)?;
        let last = self.parts.last().copied();
        let is_whole = fields.len() == self.parts.len();
        if is_whole && !matches!(last, Some(PartType::Text | PartType::Bytes)) {
            return Err(format!(
                "--prefix takes the first parts of a tuple, or the beginning of a text, and {self} ends with neither; give --from and --to"
            ));
        }
        self.read_bound(text, is_escaped)
    }

    fn read_first<T: AsRef<[u8]>>(
        &self,
        fields: &[T],
        is_escaped: bool,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        for (index, (part, field)) in self.parts.iter().zip(fields).enumerate() {
            let place = self.place(index);
            let value = part.read(field.as_ref(), is_escaped)?;
            part.encode(&value, place, &mut bytes);
        }
        Ok(bytes)
    }

    fn place(&self, index: usize) -> PartPlace {
        if index + 1 == self.parts.len() {
            PartPlace::Last
        } else {
            PartPlace::BeforeAnother
        }
    }

    /// The texts of the parts.
    fn split(&self, text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        if self.parts.len() == 1 {
            return Ok(vec![text.to_vec()]);
        }
        csv_line::fields(text).ok_or_else(|| {
            let text = text::quoted(text);
            format!("{text} is more than one line of CSV; quote a part that has a line feed")
        })
    }

    /// The values of the parts; `None` if the bytes are none of this type.
    fn decode(&self, bytes: &[u8]) -> Option<Vec<PartValue>> {
        let mut rest = bytes;
        let mut values = Vec::with_capacity(self.parts.len());
        for (index, part) in self.parts.iter().enumerate() {
            values.push(part.take(&mut rest, self.place(index))?);
        }
        if rest.is_empty() { Some(values) } else { None }
    }

    /// The text of bytes, on one line; `None` if they are none of this type.
    pub(crate) fn show(&self, bytes: &[u8]) -> Option<String> {
        let texts: Vec<String> = self.decode(bytes)?.iter().map(PartValue::show).collect();
        if let [text] = texts.as_slice() {
            return Some(text.clone());
        }
        String::from_utf8(csv_line::line(&texts)).ok()
    }

    /// The bytes as JSON: a tuple as an array; `None` if they are none of this type.
    pub(crate) fn json(&self, bytes: &[u8]) -> Option<Value> {
        let mut values = Vec::with_capacity(self.parts.len());
        for (part, value) in self.parts.iter().zip(self.decode(bytes)?) {
            values.push(value.json(*part));
        }
        if self.parts.len() == 1 {
            return values.pop();
        }
        Some(Value::Array(values))
    }
}

fn parts_in_words(count: usize) -> String {
    match count {
        1 => "1 part was".to_owned(),
        count => format!("{count} parts were"),
    }
}

/// A number that a text stands for.
fn number<T: FromStr>(part: PartType, text: &[u8]) -> Result<T, String> {
    let parsed = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("{} is no {part}; {}", text::quoted(text), part.example()))
}

fn append<K: Key + ?Sized>(key: &K, place: PartPlace, bytes: &mut Vec<u8>) {
    match place {
        PartPlace::Last => key.encode(bytes),
        PartPlace::BeforeAnother => key.encode_before(bytes),
    }
}

/// Takes a key from the beginning of the bytes, or all of them.
fn take<K: Key>(bytes: &mut &[u8], place: PartPlace) -> Option<K> {
    match place {
        PartPlace::Last => K::decode(std::mem::take(bytes)),
        PartPlace::BeforeAnother => K::decode_before(bytes),
    }
}

fn unsigned<K: Key + Into<u128>>(bytes: &mut &[u8], place: PartPlace) -> Option<PartValue> {
    take::<K>(bytes, place).map(|number| PartValue::Unsigned(number.into()))
}

fn signed<K: Key + Into<i128>>(bytes: &mut &[u8], place: PartPlace) -> Option<PartValue> {
    take::<K>(bytes, place).map(|number| PartValue::Signed(number.into()))
}

impl PartType {
    /// The text that stands for it.
    fn example(self) -> String {
        match self {
            Self::U8 => format!("give a number from 0 to {}", u8::MAX),
            Self::U16 => format!("give a number from 0 to {}", u16::MAX),
            Self::U32 => format!("give a number from 0 to {}", u32::MAX),
            Self::U64 => "give a number from 0 to 2^64 - 1".to_owned(),
            Self::U128 => "give a number from 0 to 2^128 - 1".to_owned(),
            Self::I8 => format!("give a number from {} to {}", i8::MIN, i8::MAX),
            Self::I16 => format!("give a number from {} to {}", i16::MIN, i16::MAX),
            Self::I32 => format!("give a number from {} to {}", i32::MIN, i32::MAX),
            Self::I64 => "give a number from -2^63 to 2^63 - 1".to_owned(),
            Self::I128 => "give a number from -2^127 to 2^127 - 1".to_owned(),
            Self::F32 | Self::F64 => "give a number such as 1.5, 2e9, -inf or NaN".to_owned(),
            Self::Bool => "give true or false".to_owned(),
            Self::Char => "give one character".to_owned(),
            Self::Text => "give UTF-8".to_owned(),
            Self::Bytes => "give two hex digits for each byte".to_owned(),
            Self::ByteArray(length) => format!("give {} hex digits", 2 * length),
            Self::Unit => "give an empty text".to_owned(),
        }
    }

    /// The value that a text stands for.
    fn read(self, text: &[u8], is_escaped: bool) -> Result<PartValue, String> {
        let refuse = || format!("{} is no {self}; {}", text::quoted(text), self.example());
        match self {
            Self::U8 => number::<u8>(self, text).map(|number| PartValue::Unsigned(number.into())),
            Self::U16 => number::<u16>(self, text).map(|number| PartValue::Unsigned(number.into())),
            Self::U32 => number::<u32>(self, text).map(|number| PartValue::Unsigned(number.into())),
            Self::U64 => number::<u64>(self, text).map(|number| PartValue::Unsigned(number.into())),
            Self::U128 => number::<u128>(self, text).map(PartValue::Unsigned),
            Self::I8 => number::<i8>(self, text).map(|number| PartValue::Signed(number.into())),
            Self::I16 => number::<i16>(self, text).map(|number| PartValue::Signed(number.into())),
            Self::I32 => number::<i32>(self, text).map(|number| PartValue::Signed(number.into())),
            Self::I64 => number::<i64>(self, text).map(|number| PartValue::Signed(number.into())),
            Self::I128 => number::<i128>(self, text).map(PartValue::Signed),
            Self::F32 => number::<f32>(self, text).map(PartValue::F32),
            Self::F64 => number::<f64>(self, text).map(PartValue::F64),
            Self::Bool => number::<bool>(self, text).map(PartValue::Bool),
            Self::Char | Self::Text => {
                let bytes = text::maybe_unescaped(text, is_escaped)?;
                let read = String::from_utf8(bytes.into_owned()).map_err(|_| refuse())?;
                if self == Self::Text {
                    return Ok(PartValue::Text(read));
                }
                read.parse().map(PartValue::Char).map_err(|_| refuse())
            }
            Self::Bytes | Self::ByteArray(_) => {
                let bytes =
                    text::from_hex(text).map_err(|bad| format!("{}: {bad}", text::quoted(text)))?;
                match self {
                    Self::ByteArray(length) if length != bytes.len() => Err(refuse()),
                    _ => Ok(PartValue::Bytes(bytes)),
                }
            }
            Self::Unit if text.is_empty() => Ok(PartValue::Unit),
            Self::Unit => Err(refuse()),
        }
    }

    /// Appends the bytes of a value, which is of this type.
    fn encode(self, value: &PartValue, place: PartPlace, bytes: &mut Vec<u8>) {
        match (self, value) {
            (Self::U8, PartValue::Unsigned(number)) => append(&(*number as u8), place, bytes),
            (Self::U16, PartValue::Unsigned(number)) => append(&(*number as u16), place, bytes),
            (Self::U32, PartValue::Unsigned(number)) => append(&(*number as u32), place, bytes),
            (Self::U64, PartValue::Unsigned(number)) => append(&(*number as u64), place, bytes),
            (_, PartValue::Unsigned(number)) => append(number, place, bytes),
            (Self::I8, PartValue::Signed(number)) => append(&(*number as i8), place, bytes),
            (Self::I16, PartValue::Signed(number)) => append(&(*number as i16), place, bytes),
            (Self::I32, PartValue::Signed(number)) => append(&(*number as i32), place, bytes),
            (Self::I64, PartValue::Signed(number)) => append(&(*number as i64), place, bytes),
            (_, PartValue::Signed(number)) => append(number, place, bytes),
            (_, PartValue::F32(number)) => append(number, place, bytes),
            (_, PartValue::F64(number)) => append(number, place, bytes),
            (_, PartValue::Bool(is_true)) => append(is_true, place, bytes),
            (_, PartValue::Char(character)) => append(character, place, bytes),
            (_, PartValue::Text(text)) => append(text, place, bytes),
            // The bytes of an array need no end: its length is known.
            (Self::ByteArray(_), PartValue::Bytes(array)) => bytes.extend(array),
            (_, PartValue::Bytes(value)) => append(value, place, bytes),
            (_, PartValue::Unit) => append(&(), place, bytes),
        }
    }

    /// Takes a value from the beginning of the bytes; `None` if there is none of this type.
    fn take(self, bytes: &mut &[u8], place: PartPlace) -> Option<PartValue> {
        match self {
            Self::U8 => unsigned::<u8>(bytes, place),
            Self::U16 => unsigned::<u16>(bytes, place),
            Self::U32 => unsigned::<u32>(bytes, place),
            Self::U64 => unsigned::<u64>(bytes, place),
            Self::U128 => unsigned::<u128>(bytes, place),
            Self::I8 => signed::<i8>(bytes, place),
            Self::I16 => signed::<i16>(bytes, place),
            Self::I32 => signed::<i32>(bytes, place),
            Self::I64 => signed::<i64>(bytes, place),
            Self::I128 => signed::<i128>(bytes, place),
            Self::F32 => take(bytes, place).map(PartValue::F32),
            Self::F64 => take(bytes, place).map(PartValue::F64),
            Self::Bool => take(bytes, place).map(PartValue::Bool),
            Self::Char => take(bytes, place).map(PartValue::Char),
            Self::Text => take(bytes, place).map(PartValue::Text),
            Self::Bytes => take(bytes, place).map(PartValue::Bytes),
            Self::ByteArray(length) => {
                let (array, rest) = bytes.split_at_checked(length)?;
                *bytes = rest;
                Some(PartValue::Bytes(array.to_vec()))
            }
            Self::Unit => take(bytes, place).map(|()| PartValue::Unit),
        }
    }
}

impl PartValue {
    /// The text, which fits one line.
    fn show(&self) -> String {
        match self {
            Self::Unsigned(number) => number.to_string(),
            Self::Signed(number) => number.to_string(),
            Self::F32(number) => format!("{number:?}"),
            Self::F64(number) => format!("{number:?}"),
            Self::Bool(is_true) => is_true.to_string(),
            Self::Char(character) => text::escape(character.to_string().as_bytes()).into_owned(),
            Self::Text(text) => text::escape(text.as_bytes()).into_owned(),
            Self::Bytes(bytes) => text::to_hex(bytes),
            Self::Unit => String::new(),
        }
    }

    /// A value of the type `part` in JSON. Readers of JSON do not read all numbers of 128 bits, so
    /// these are texts. Infinite numbers and NaN are texts, too, since JSON has no numbers for them.
    fn json(&self, part: PartType) -> Value {
        match self {
            Self::Unsigned(number) if part == PartType::U128 => number.to_string().into(),
            Self::Unsigned(number) => (*number as u64).into(),
            Self::Signed(number) if part == PartType::I128 => number.to_string().into(),
            Self::Signed(number) => (*number as i64).into(),
            // The shortest text of an `f32` stands for another `f64` than the same number does.
            Self::F32(number) => json_number(number.to_string().parse().unwrap_or(f64::NAN)),
            Self::F64(number) => json_number(*number),
            Self::Bool(is_true) => (*is_true).into(),
            Self::Char(character) => character.to_string().into(),
            Self::Text(text) => text.as_str().into(),
            Self::Bytes(bytes) => text::to_hex(bytes).into(),
            // No field is `null`.
            Self::Unit => Value::Array(Vec::new()),
        }
    }
}

fn json_number(number: f64) -> Value {
    if number.is_finite() {
        number.into()
    } else {
        number.to_string().into()
    }
}

#[cfg(test)]
mod tests;
