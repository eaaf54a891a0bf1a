//! Text input from a file or from standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;

use everleaf::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use terminal::context::Context;
use terminal::failure::Failure;
use terminal::interrupt::Interruptible;
use terminal::text;

/// The longest valid line: the longest key, a tab, the longest value, all of it escaped, and the
/// line's end. (A line of a script of `apply` has a shorter value, since a transaction is no longer
/// than a value.)
pub(crate) const LINE_BYTES_MAX: usize = ESCAPE_BYTES * (KEY_BYTES_MAX + VALUE_BYTES_MAX) + 2;
/// The longest escape of a byte: `\xNN`.
const ESCAPE_BYTES: usize = 4;

/// An input, with a name for errors and, if it is a file, a length for progress.
pub(crate) struct Input {
    pub(crate) reader: Box<dyn BufRead>,
    pub(crate) name: String,
    pub(crate) length: Option<u64>,
    is_begun: bool,
    /// Whether a byte order mark was read and left out.
    pub(crate) has_byte_order_mark: bool,
}

impl Input {
    /// Opens `file`; `-` is standard input.
    pub(crate) fn open(file: &Path) -> Result<Self, Failure> {
        if file == Path::new("-") {
            let handle = io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .map_err(Failure::io("read standard input"))?;
            return Ok(Self::of("standard input", handle.into(), None));
        }
        let name = file.display().to_string();
        let opened = File::open(file).and_then(|input| Ok((input.metadata()?, input)));
        let (metadata, input) = opened.map_err(Failure::io(format!("open {name}")))?;
        let length = metadata.is_file().then_some(metadata.len());
        Ok(Self::of(&name, input, length))
    }

    fn of(name: &str, input: File, length: Option<u64>) -> Self {
        let reader = BufReader::with_capacity(1 << 20, Interruptible(input));
        Self {
            reader: Box::new(reader),
            name: name.to_owned(),
            length,
            is_begun: false,
            has_byte_order_mark: false,
        }
    }

    /// Reads the next line: see [`read_line`]. A byte order mark before the first line is left out.
    pub(crate) fn read_line(&mut self, line: &mut Vec<u8>) -> Result<LineRead, Failure> {
        let read = self.read_any(line)?;
        if self.is_begun {
            return Ok(read);
        }
        self.is_begun = true;
        self.has_byte_order_mark = text::remove_byte_order_mark(line);
        if self.has_byte_order_mark && line.is_empty() {
            // The mark was all that there is.
            return self.read_any(line);
        }
        Ok(read)
    }

    /// Leaves out a byte order mark before the input.
    pub(crate) fn skip_byte_order_mark(&mut self) -> Result<(), Failure> {
        let begin = self.reader.fill_buf();
        let begin = begin.map_err(Failure::io(format!("read {}", self.name)))?;
        self.has_byte_order_mark = begin.starts_with(text::BYTE_ORDER_MARK.as_bytes());
        if self.has_byte_order_mark {
            self.reader.consume(text::BYTE_ORDER_MARK.len());
        }
        Ok(())
    }

    fn read_any(&mut self, line: &mut Vec<u8>) -> Result<LineRead, Failure> {
        read_line(&mut self.reader, line).map_err(Failure::io(format!("read {}", self.name)))
    }
}

/// Prints a note about the byte order mark before an input.
pub(crate) fn note_byte_order_mark(context: Context, name: &str) {
    context.note(format!(
        "note: {name} begins with a byte order mark, which was left out"
    ));
}

/// The result of reading a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LineRead {
    /// Nothing: the input has ended.
    End,
    /// A line of this many bytes, with its end if it has one.
    Line(usize),
    /// A line of this many bytes, which are more than [`LINE_BYTES_MAX`]: it was skipped, so that
    /// memory stays bounded.
    TooLong(usize),
}

/// Replaces `line` by the next one.
pub(crate) fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<LineRead> {
    line.clear();
    let read = input.take(LINE_BYTES_MAX as u64).read_until(b'\n', line)?;
    if read < LINE_BYTES_MAX || line.last() == Some(&b'\n') {
        return Ok(if read == 0 {
            LineRead::End
        } else {
            LineRead::Line(read)
        });
    }
    let rest = input.skip_until(b'\n')?;
    if rest == 0 {
        return Ok(LineRead::Line(read));
    }
    line.clear();
    Ok(LineRead::TooLong(read + rest))
}

/// The error for a line of `bytes` bytes.
pub(crate) fn too_long(bytes: usize) -> String {
    format!(
        "a line of {bytes} bytes; the limit is {LINE_BYTES_MAX}: keys have up to {KEY_BYTES_MAX} bytes and values \
         up to {VALUE_BYTES_MAX}"
    )
}

#[cfg(test)]
mod tests;
