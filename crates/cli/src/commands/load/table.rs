//! Tables: CSV, and the same with tabs. A field may be quoted, and a quoted field may have line
//! feeds.

use std::io::{self, BufRead, Read};

use csv::{ByteRecord, ReaderBuilder};

use super::InputEntry;
use crate::forms::EntryForms;
use crate::input::{Input, LINE_BYTES_MAX};
use terminal::failure::Failure;
use terminal::text;

/// Bytes that are read behind the end of a table: a row of their own, unless a quote is not closed.
/// Then they are the end of the last field.
const END: &[u8] = b"\n\x1eend of the table\x1e\n";
/// The content of that row.
const END_ROW: &[u8] = b"\x1eend of the table\x1e";

/// The choice of columns on the command line.
pub(super) struct ColumnArgs<'a> {
    /// The names of the columns of the key, or their numbers from 1.
    pub(super) key: &'a [String],
    /// The same for the value.
    pub(super) value: &'a [String],
    /// Whether the first row has the names of the columns.
    pub(super) has_header: bool,
}

/// The entries of a table.
pub(super) struct TableSource {
    reader: csv::Reader<LimitedRows>,
    /// The name of the input, for errors.
    name: String,
    row: ByteRecord,
    /// Whether `row` is the first row of a table without header, and was not taken yet.
    has_first_row: bool,
    columns: ChosenColumns,
}

/// The indices of the columns that make the key and the value.
struct ChosenColumns {
    /// The number of columns of the table.
    count: usize,
    key: Option<Vec<usize>>,
    value: Option<Vec<usize>>,
}

/// The columns of an entry, once the forms of its tree are known.
struct EntryColumns {
    key: Vec<usize>,
    value: Vec<usize>,
}

impl TableSource {
    /// Reads the header, and finds the columns.
    pub(super) fn open(
        input: Input,
        delimiter: u8,
        args: &ColumnArgs<'_>,
    ) -> Result<Self, Failure> {
        let reader = ReaderBuilder::new()
            .delimiter(delimiter)
            .has_headers(false)
            .flexible(true)
            .from_reader(LimitedRows {
                input: Box::new(input.reader.chain(END)),
                bytes_left: LINE_BYTES_MAX,
            });
        let mut table = Self {
            reader,
            name: input.name,
            row: ByteRecord::new(),
            has_first_row: false,
            columns: ChosenColumns {
                count: 0,
                key: None,
                value: None,
            },
        };
        let has_row = table.read_row()?;
        if args.has_header && !has_row {
            return Err(table.bad_row(
                1,
                "there is no header; a table begins with the names of its columns, or give --no-header".to_owned(),
            ));
        }
        table.has_first_row = has_row && !args.has_header;
        table.columns = ChosenColumns {
            count: table.row.len(),
            key: table.find(args.key, args.has_header)?,
            value: table.find(args.value, args.has_header)?,
        };
        Ok(table)
    }

    /// The indices of columns; `None` if the user has chosen none.
    fn find(&self, wanted: &[String], has_header: bool) -> Result<Option<Vec<usize>>, Failure> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let mut found = Vec::with_capacity(wanted.len());
        for name in wanted {
            found.push(self.find_one(name, has_header)?);
        }
        Ok(Some(found))
    }

    fn find_one(&self, name: &str, has_header: bool) -> Result<usize, Failure> {
        let count = self.row.len();
        if has_header {
            let mut of_this_name = (0..count).filter(|index| &self.row[*index] == name.as_bytes());
            if let Some(first) = of_this_name.next() {
                if of_this_name.next().is_some() {
                    return Err(Failure::Usage(format!(
                        "{} has several columns {name:?}; give the column by its number, from 1",
                        self.name
                    )));
                }
                return Ok(first);
            }
        }
        match name.parse::<usize>() {
            Ok(number) if (1..=count).contains(&number) => Ok(number - 1),
            _ => Err(Failure::Usage(self.no_column(name, has_header))),
        }
    }

    fn no_column(&self, name: &str, has_header: bool) -> String {
        let count = self.row.len();
        if !has_header {
            return format!(
                "{} has no column {name:?}; without a header give a number from 1 to {count}",
                self.name
            );
        }
        let names: Vec<String> = self.row.iter().map(text::quoted).collect();
        format!(
            "{} has no column {name:?}; its columns are {}",
            self.name,
            names.join(", ")
        )
    }

    /// The entry of the next row; `None` at the end.
    pub(super) fn next(&mut self, forms: &EntryForms) -> Result<Option<InputEntry>, Failure> {
        let columns = self.columns.of_entry(forms)?;
        if self.has_first_row {
            self.has_first_row = false;
        } else if !self.read_row()? {
            return Ok(None);
        }
        Ok(Some(InputEntry {
            line_number: self.line_number(),
            content: self.parse(&columns, forms),
        }))
    }

    /// The number of the line on which the row begins.
    fn line_number(&self) -> u64 {
        self.row.position().map_or(1, csv::Position::line)
    }

    /// The key and the value of the row, or its fault.
    fn parse(
        &self,
        columns: &EntryColumns,
        forms: &EntryForms,
    ) -> Result<(Vec<u8>, Vec<u8>), String> {
        let count = self.row.len();
        if count != self.columns.count {
            return Err(format!(
                "the row has {count} fields, and the first one has {}; quote a field that has a separator or a line feed",
                self.columns.count
            ));
        }
        let fields_of = |indices: &[usize]| -> Vec<&[u8]> {
            indices.iter().map(|index| &self.row[*index]).collect()
        };
        let key = forms.read_key_columns(&fields_of(&columns.key))?;
        let value = forms.read_value_columns(&fields_of(&columns.value))?;
        Ok((key, value))
    }

    /// Reads the next row; `false` at the end.
    fn read_row(&mut self) -> Result<bool, Failure> {
        self.reader.get_mut().bytes_left = LINE_BYTES_MAX;
        let begins_on = self.reader.position().line();
        let is_row = self
            .reader
            .read_byte_record(&mut self.row)
            .map_err(|error| match error.into_kind() {
                csv::ErrorKind::Io(error) if is_too_long(&error) => self.bad_row(
                    begins_on,
                    format!("the row has more than {LINE_BYTES_MAX} bytes; perhaps a quote is not closed"),
                ),
                csv::ErrorKind::Io(error) => {
                    Failure::io(format!("read {}", self.name))(error)
                }
                other => self.bad_row(begins_on, format!("{other:?}")),
            })?;
        let last = self.row.iter().next_back().unwrap_or_default();
        if !is_row || !last.ends_with(END_ROW) && !last.ends_with(END) {
            return Ok(is_row);
        }
        if self.row.len() == 1 && last == END_ROW {
            self.row.clear();
            return Ok(false);
        }
        Err(self.bad_row(
            begins_on,
            "a quote is not closed; double the quotes within a quoted field".to_owned(),
        ))
    }

    fn bad_row(&self, number: u64, what: String) -> Failure {
        Failure::Line {
            input: self.name.clone(),
            number,
            what,
        }
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.reader.position().byte()
    }
}

impl ChosenColumns {
    /// The columns of an entry. Without a choice the first ones make the key, and all others the
    /// value.
    fn of_entry(&self, forms: &EntryForms) -> Result<EntryColumns, Failure> {
        let parts = forms.key_parts();
        let key = match &self.key {
            Some(key) => key.clone(),
            None => (0..parts.min(self.count)).collect(),
        };
        if key.len() > 1 && parts == 1 {
            return Err(Failure::Usage(
                "several columns make a tuple; give --key-type with a type for each of them, such as text,u32".to_owned(),
            ));
        }
        let value = match &self.value {
            Some(value) => value.clone(),
            None => (0..self.count)
                .filter(|index| !key.contains(index))
                .collect(),
        };
        Ok(EntryColumns { key, value })
    }
}

/// A reader that fails if a row has too many bytes, so that memory stays bounded if a quote is not
/// closed.
struct LimitedRows {
    input: Box<dyn BufRead>,
    bytes_left: usize,
}

impl Read for LimitedRows {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes_left == 0 {
            return Err(io::Error::other(RowTooLong));
        }
        let length = buffer.len().min(self.bytes_left);
        let read = self.input.read(&mut buffer[..length])?;
        self.bytes_left -= read;
        Ok(read)
    }
}

/// A row has more bytes than any entry.
#[derive(Debug, thiserror::Error)]
#[error("the row is too long")]
struct RowTooLong;

fn is_too_long(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<RowTooLong>)
}
