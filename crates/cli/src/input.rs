//! Text input from a file or from standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::failure::Failure;

/// An input, with a name for errors and, if it is a file, a length for progress.
pub(crate) struct Input {
    pub(crate) reader: Box<dyn BufRead>,
    pub(crate) name: String,
    pub(crate) length: Option<u64>,
}

impl Input {
    /// Opens `file`; `-` is standard input.
    pub(crate) fn open(file: &Path) -> Result<Self, Failure> {
        if file == Path::new("-") {
            let name = "standard input".to_owned();
            return Ok(Self { reader: Box::new(io::stdin().lock()), name, length: None });
        }
        let name = file.display().to_string();
        let opened = File::open(file).and_then(|input| Ok((input.metadata()?, input)));
        let (metadata, input) = opened.map_err(Failure::io(format!("open {name}")))?;
        let length = metadata.is_file().then_some(metadata.len());
        Ok(Self { reader: Box::new(BufReader::with_capacity(1 << 20, input)), name, length })
    }

    /// Appends a line with its end, if it has one; returns its length, 0 at the end of the input.
    pub(crate) fn read_line(&mut self, line: &mut Vec<u8>) -> Result<usize, Failure> {
        self.reader.read_until(b'\n', line).map_err(|error| Failure::io(format!("read {}", self.name))(error))
    }
}
