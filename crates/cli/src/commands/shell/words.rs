//! The words of a line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Splits a line into words at blanks. A word in quotes, single or double, may have blanks; the
/// quote itself is written twice in it. A backslash stands for itself.
pub(super) fn words_of(line: &[u8]) -> Result<Vec<OsString>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while let Some(first) = rest.first() {
        let (word, behind) = match first {
            quote @ (b'\'' | b'"') => quoted_word(&rest[1..], *quote)?,
            _ => plain_word(rest),
        };
        words.push(OsString::from_vec(word));
        rest = behind.trim_ascii_start();
    }
    Ok(words)
}

/// The word at the beginning, up to a blank, and what is behind it.
fn plain_word(line: &[u8]) -> (Vec<u8>, &[u8]) {
    let end = line.iter().position(u8::is_ascii_whitespace);
    let (word, behind) = line.split_at(end.unwrap_or(line.len()));
    (word.to_vec(), behind)
}

/// The word at the beginning, up to a quote that is not doubled, and what is behind it.
fn quoted_word(line: &[u8], quote: u8) -> Result<(Vec<u8>, &[u8]), String> {
    let mut word = Vec::new();
    let mut rest = line;
    loop {
        let Some((byte, behind)) = rest.split_first() else {
            return Err(format!("the quote {} is not closed", char::from(quote)));
        };
        if *byte != quote {
            word.push(*byte);
            rest = behind;
            continue;
        }
        match behind.first() {
            Some(next) if *next == quote => {
                word.push(quote);
                rest = &behind[1..];
            }
            Some(next) if !next.is_ascii_whitespace() => {
                return Err(format!(
                    "a blank is missing behind a quoted word; write a quote within it twice: {0}{0}",
                    char::from(quote)
                ));
            }
            _ => return Ok((word, behind)),
        }
    }
}

/// A text as one word of a line.
pub(super) fn as_word(text: &str) -> String {
    let is_plain = !text.is_empty()
        && !text.starts_with(['\'', '"', '#'])
        && !text.contains(|character: char| character.is_ascii_whitespace());
    if is_plain {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests;
