//! Lines of `key TAB value`.

use super::InputEntry;
use crate::forms::EntryForms;
use crate::input::{Input, LineRead, too_long};
use terminal::failure::Failure;

/// The entries of an input of lines.
pub(super) struct LineSource {
    input: Input,
    line: Vec<u8>,
    number: u64,
    bytes_read: u64,
    /// The number of the first line that has a backslash.
    first_backslash: Option<u64>,
}

impl LineSource {
    pub(super) fn new(input: Input) -> Self {
        Self {
            input,
            line: Vec::new(),
            number: 0,
            bytes_read: 0,
            first_backslash: None,
        }
    }

    /// The entry of the next line; `None` at the end.
    pub(super) fn next(&mut self, forms: &EntryForms) -> Result<Option<InputEntry>, Failure> {
        let read = self.input.read_line(&mut self.line)?;
        let (LineRead::Line(length) | LineRead::TooLong(length)) = read else {
            return Ok(None);
        };
        self.number += 1;
        self.bytes_read += length as u64;
        let content = match read {
            LineRead::TooLong(length) => Err(too_long(length)),
            _ => self.parse(forms),
        };
        Ok(Some(InputEntry {
            line_number: self.number,
            content,
        }))
    }

    /// The key and the value of the line, or its fault.
    fn parse(&mut self, forms: &EntryForms) -> Result<(Vec<u8>, Vec<u8>), String> {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        if self.first_backslash.is_none() && line.contains(&b'\\') {
            self.first_backslash = Some(self.number);
        }
        let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
            return Err("no tab between key and value".to_owned());
        };
        let key = forms.read_key(&line[..tab])?;
        let value = forms.read_value(&line[tab + 1..])?;
        Ok((key, value))
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    pub(super) fn first_backslash(&self) -> Option<u64> {
        self.first_backslash
    }

    /// Whether a byte order mark was read and left out.
    pub(super) fn has_byte_order_mark(&self) -> bool {
        self.input.has_byte_order_mark
    }
}
