//! Bytes as text, and back.
//!
//! The escaped form keeps printable UTF-8 as it is and writes everything else so that it fits one
//! line without tabs: `\\` `\t` `\n` `\r`, and `\xNN` (two lower-case hex digits) for each other
//! byte. The byte order mark is escaped as well.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;

use everleaf::Encodings;

/// A text that is not in escaped or hex form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} at byte {at}; {way_out}")]
pub struct BadText {
    /// The position of the first malformed byte, from 0.
    pub at: usize,
    /// The fault at that position.
    pub what: &'static str,
    way_out: &'static str,
}

impl BadText {
    fn escape(at: usize, what: &'static str) -> Self {
        Self {
            at,
            what,
            way_out: r"the escapes are `\\` `\t` `\n` `\r` `\xNN`",
        }
    }

    fn hex(at: usize, what: &'static str) -> Self {
        Self {
            at,
            what,
            way_out: "give two hex digits for each byte",
        }
    }
}

const CUT_OFF: &str = "an escape that is cut off";

/// The byte order mark. Some programs write it before a text, where it is no part of the text.
pub const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Removes a byte order mark from the first line of a text; returns whether there was one.
pub fn remove_byte_order_mark(line: &mut Vec<u8>) -> bool {
    let has_mark = line.starts_with(BYTE_ORDER_MARK.as_bytes());
    if has_mark {
        line.drain(..BYTE_ORDER_MARK.len());
    }
    has_mark
}

/// The types of a tree, as `--key-type` and `--value-type` name them.
pub fn types_in_words(encodings: &Encodings) -> String {
    format!(
        "{} -> {}",
        type_name(&encodings.key),
        type_name(&encodings.value)
    )
}

/// The type with this encoding, as `--key-type` names it. A type of a program's own keeps its name.
pub fn type_name(encoding: &str) -> String {
    let parts = encoding
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'));
    match parts {
        Some("") => "unit".to_owned(),
        // A tuple within a tuple, which the options cannot name.
        Some(parts) if parts.contains('(') => encoding.to_owned(),
        Some(parts) => {
            let names: Vec<String> = parts.split(',').map(type_name).collect();
            names.join(",")
        }
        None => match encoding.strip_prefix("bytes[") {
            Some(length) => format!("bytes:{}", length.trim_end_matches(']')),
            None => encoding.to_owned(),
        },
    }
}

/// The same as [`types_in_words`], for the words by which an error of the library names types. Other
/// words stay as they are.
pub fn types_of_error(words: &str) -> String {
    match words.split_once(" -> ") {
        Some((key, value)) => format!("{} -> {}", type_name(key), type_name(value)),
        None => words.to_owned(),
    }
}

fn is_plain(character: char) -> bool {
    // The first key of a text could begin with a byte order mark, which a reader leaves out.
    let is_byte_order_mark = BYTE_ORDER_MARK.starts_with(character);
    character != '\\' && !is_byte_order_mark && !character.is_control()
}

/// The escaped form of bytes.
pub fn escape(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && text.chars().all(is_plain)
    {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => escaped.push_str("\\\\"),
                '\t' => escaped.push_str("\\t"),
                '\n' => escaped.push_str("\\n"),
                '\r' => escaped.push_str("\\r"),
                plain if is_plain(plain) => escaped.push(plain),
                other => push_hex_escapes(&mut escaped, other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_hex_escapes(&mut escaped, chunk.invalid());
    }
    Cow::Owned(escaped)
}

fn push_hex_escapes(escaped: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(escaped, "\\x{byte:02x}");
    }
}

/// A text of a user, between quotes: as it was written, but on one line, and no more than its
/// beginning.
pub fn quoted(text: &[u8]) -> String {
    let (text, rest) = text.split_at(text.len().min(QUOTED_BYTES_MAX));
    let more = if rest.is_empty() { "" } else { "..." };
    format!("\"{}{more}\"", escape(text).replace("\\\\", "\\"))
}

/// This many bytes are enough to recognise the text.
const QUOTED_BYTES_MAX: usize = 80;

/// The bytes whose escaped form is `text`.
pub fn unescape(text: &[u8]) -> Result<Cow<'_, [u8]>, BadText> {
    if !text.contains(&b'\\') {
        return Ok(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte != b'\\' {
            bytes.push(byte);
            at += 1;
            continue;
        }
        let (byte, length) = match text.get(at + 1) {
            Some(b'\\') => (b'\\', 2),
            Some(b't') => (b'\t', 2),
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(b'x') => {
                let digits = text.get(at + 2..at + 4).unwrap_or_default();
                let digits = from_hex(digits).map_err(|bad| BadText {
                    at: at + 2 + bad.at,
                    ..bad
                })?;
                (*digits.first().ok_or(BadText::escape(at, CUT_OFF))?, 4)
            }
            Some(_) => return Err(BadText::escape(at, "an unknown escape")),
            None => return Err(BadText::escape(at, CUT_OFF)),
        };
        bytes.push(byte);
        at += length;
    }
    Ok(Cow::Owned(bytes))
}

/// The bytes of a text, which may be in escaped form; or its fault, in words.
pub fn maybe_unescaped(text: &[u8], is_escaped: bool) -> Result<Cow<'_, [u8]>, String> {
    if !is_escaped {
        return Ok(Cow::Borrowed(text));
    }
    unescape(text).map_err(|bad| format!("{}: {bad}", quoted(text)))
}

/// A command line to be pasted into a shell. Arguments that are not UTF-8 are shown with
/// replacement characters.
pub fn command_line<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> String {
    let quoted = |argument: A| {
        let argument = argument.as_ref().to_string_lossy().replace('\0', "");
        // Quoting fails only for a NUL.
        shlex::try_quote(&argument).map_or_else(|_| argument.clone(), Cow::into_owned)
    };
    arguments
        .into_iter()
        .map(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Bytes as hex digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(
        String::with_capacity(2 * bytes.len()),
        |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}");
            digits
        },
    )
}

/// The bytes that hex digits stand for.
pub fn from_hex(digits: &[u8]) -> Result<Vec<u8>, BadText> {
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(BadText::hex(digits.len(), "a missing hex digit"));
    }
    let digit = |at: usize| {
        let digit = (digits[at] as char).to_digit(16);
        digit
            .map(|digit| digit as u8)
            .ok_or(BadText::hex(at, "a character that is no hex digit"))
    };
    (0..pairs.len())
        .map(|pair| Ok(digit(2 * pair)? << 4 | digit(2 * pair + 1)?))
        .collect()
}

#[cfg(test)]
mod tests;
