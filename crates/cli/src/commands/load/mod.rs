//! `everleaf load`: stores the entries of a file: lines of `key TAB value`, or a table.
//!
//! Entries that it reports as stored are durable.

mod lines;
mod table;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use everleaf::{Error, ErrorKind};
use serde::Serialize;

use self::lines::LineSource;
use self::table::{ColumnArgs, TableSource};
use crate::arguments::NewTreeArgs;
use crate::forms::{EntryForms, FormArgs};
use crate::input::{Input, note_byte_order_mark};
use crate::under_way::Writes;
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;
use terminal::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The file; `-` is standard input. A byte order mark at its beginning is left out
    #[arg(default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    tree: NewTreeArgs,
    /// The format of the file
    #[arg(long, value_enum, default_value = "lines")]
    format: LoadFormat,
    /// The column of a table that has the key, by its name, or by its number from 1; several make a
    /// tuple, each with an option of its own [default: the first]
    #[arg(long, value_name = "COLUMN")]
    key_column: Vec<String>,
    /// The column that has the value; several make a tuple, or without a type a line of CSV
    /// [default: all that are not in the key]
    #[arg(long, value_name = "COLUMN")]
    value_column: Vec<String>,
    /// The table has no header, so all of its rows are entries
    #[arg(long)]
    no_header: bool,
    /// Skip and count malformed lines, instead of stopping at the first; exit code 1 if any was
    /// skipped
    #[arg(long)]
    skip_bad: bool,
    #[command(flatten)]
    forms: FormArgs,
}

/// The format of a file of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LoadFormat {
    /// Lines of key, tab, value; a carriage return at a line's end belongs to its value
    Lines,
    /// A table with commas, a header, and quotes around fields that need them
    Csv,
    /// The same with tabs
    Tsv,
}

#[derive(Serialize, Default)]
struct Report {
    stored: u64,
    skipped: u64,
    first_skipped: Option<String>,
    seconds: f64,
    per_second: f64,
}

/// A line or a row of the input.
struct InputEntry {
    /// The number of the line on which it begins, from 1.
    line_number: u64,
    /// The key and the value, or why it has none.
    content: Result<(Vec<u8>, Vec<u8>), String>,
}

/// An input of entries.
enum EntrySource {
    Lines(LineSource),
    Table(TableSource),
}

impl EntrySource {
    fn next(&mut self, forms: &EntryForms) -> Result<Option<InputEntry>, Failure> {
        match self {
            Self::Lines(lines) => lines.next(forms),
            Self::Table(table) => table.next(forms),
        }
    }

    fn bytes_read(&self) -> u64 {
        match self {
            Self::Lines(lines) => lines.bytes_read(),
            Self::Table(table) => table.bytes_read(),
        }
    }
}

/// Why an entry was not stored.
enum NotStored {
    /// The tree cannot hold such an entry, and this is why.
    BadEntry(String),
    /// The store failed.
    Failed(Error),
}

/// Stores one entry.
fn store(writes: &mut Writes<'_>, key: &[u8], value: &[u8]) -> Result<(), NotStored> {
    writes.put(key, value).map_err(|error| match error.kind() {
        ErrorKind::KeyTooLong { .. }
        | ErrorKind::ValueTooLong { .. }
        | ErrorKind::NotAWord { .. } => NotStored::BadEntry(error.to_string()),
        _ => NotStored::Failed(error),
    })
}

impl Args {
    fn source(&self, context: Context, mut input: Input) -> Result<EntrySource, Failure> {
        let delimiter = match self.format {
            LoadFormat::Lines => {
                self.expect_no_columns()?;
                return Ok(EntrySource::Lines(LineSource::new(input)));
            }
            LoadFormat::Csv => b',',
            LoadFormat::Tsv => b'\t',
        };
        input.skip_byte_order_mark()?;
        if input.has_byte_order_mark {
            note_byte_order_mark(context, &input.name);
        }
        let columns = ColumnArgs {
            key: &self.key_column,
            value: &self.value_column,
            has_header: !self.no_header,
        };
        let table = TableSource::open(input, delimiter, &columns)?;
        Ok(EntrySource::Table(table))
    }

    fn expect_no_columns(&self) -> Result<(), Failure> {
        let has_none = self.key_column.is_empty() && self.value_column.is_empty();
        if has_none && !self.no_header {
            return Ok(());
        }
        Err(Failure::Usage(
            "--key-column, --value-column and --no-header are for tables; give --format csv or --format tsv".to_owned(),
        ))
    }

    fn load(
        &self,
        forms: &EntryForms,
        writes: &mut Writes<'_>,
        source: &mut EntrySource,
        input_name: &str,
        bar: &indicatif::ProgressBar,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let mut count = 0_u64;
        loop {
            interrupt::check()?;
            let Some(entry) = source.next(forms)? else {
                return Ok(());
            };
            count += 1;
            if count.is_multiple_of(256) {
                bar.set_position(source.bytes_read());
                bar.set_message(progress::count(writes.durable()));
            }
            let stored = match entry.content {
                Ok((key, value)) => store(writes, &key, &value),
                Err(what) => Err(NotStored::BadEntry(what)),
            };
            let what = match stored {
                Ok(()) => continue,
                Err(NotStored::Failed(error)) => return Err(error.into()),
                Err(NotStored::BadEntry(what)) => what,
            };
            let failure = |what| Failure::Line {
                input: input_name.to_owned(),
                number: entry.line_number,
                what,
            };
            if !self.skip_bad {
                return Err(failure(what + "; `--skip-bad` leaves out such lines"));
            }
            report.skipped += 1;
            report
                .first_skipped
                .get_or_insert_with(|| failure(what).to_string());
        }
    }

    /// Prints notes about the input: a byte order mark, and backslashes that stand for themselves.
    fn note_input(&self, context: Context, source: &EntrySource, input_name: &str) {
        let EntrySource::Lines(lines) = source else {
            return;
        };
        if lines.has_byte_order_mark() {
            note_byte_order_mark(context, input_name);
        }
        if let Some(number) = lines.first_backslash()
            && !self.forms.escaped
        {
            context.note(format!(
                r"note: {input_name}, line {number} has a backslash, which was stored as it is; `--escaped` reads `\\` `\t` `\n` as `scan` prints them"
            ));
        }
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let input = Input::open(&args.file)?;
    let input_name = input.name.clone();
    let template = match input.length {
        Some(_) => "{bar:20} {percent:>3}%, {msg} entries, {elapsed}",
        None => "{spinner} {msg} entries, {binary_bytes} read, {elapsed}",
    };
    let bar = progress::bar(context, input.length, "0", template);
    let mut source = args.source(context, input)?;
    let mut report = Report::default();
    let start = Instant::now();
    let mut is_begun = false;
    let loaded = args.pool.write(context, |store| {
        let tree = args.tree.find(store, &args.forms)?;
        let forms = tree.forms.clone();
        let tree = tree.open(store)?;
        is_begun = true;
        let mut writes = Writes::new(store, &tree);
        let loaded = args.load(
            &forms,
            &mut writes,
            &mut source,
            &input_name,
            &bar,
            &mut report,
        );
        let settled = writes.settle();
        report.stored = writes.durable();
        loaded?;
        Ok(settled?)
    });
    bar.finish_and_clear();
    args.note_input(context, &source, &input_name);
    let elapsed: Duration = start.elapsed();
    report.seconds = elapsed.as_secs_f64();
    report.per_second = progress::per_second(report.stored, elapsed);
    if let Err(failure) = loaded {
        if !is_begun {
            return Err(failure);
        }
        let words = format!("{} stored", progress::were(report.stored, "entry"));
        return Err(failure.after(
            words,
            serde_json::json!({ "stored": report.stored, "skipped": report.skipped }),
        ));
    }
    let mut words = format!(
        "{} in {}, {}",
        progress::many(report.stored, "entry"),
        progress::duration(elapsed),
        progress::rate(report.stored, elapsed)
    );
    if let Some(first) = &report.first_skipped {
        let skipped = progress::many(report.skipped, "line");
        words = format!("{words}; {skipped} skipped, the first: {first}");
    }
    context.say(&report, words)?;
    Ok(Answer::from_bool(report.skipped == 0))
}
