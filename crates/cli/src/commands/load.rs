//! `everleaf load`: stores lines of `key TAB value`.
//!
//! Entries that it reports as stored are durable.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use everleaf::{CodecKind, Error, ErrorKind};
use serde::Serialize;

use crate::arguments::{LineNotation, NewTreeArgs, PoolArgs};
use crate::context::Context;
use crate::failure::{Answer, Failure, Outcome};
use crate::input::{Input, LineRead, note_byte_order_mark, too_long};
use crate::under_way::Writes;
use crate::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The file of lines, `key TAB value`, as `scan` prints them; `-` is standard input. A carriage
    /// return at a line's end belongs to its value. A byte order mark before the first line is left
    /// out
    #[arg(default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    tree: NewTreeArgs,
    /// Skip and count malformed lines, instead of stopping at the first; exit code 1 if any was
    /// skipped
    #[arg(long)]
    skip_bad: bool,
    #[command(flatten)]
    notation: LineNotation,
}

#[derive(Serialize, Default)]
struct Report {
    stored: u64,
    skipped: u64,
    first_skipped: Option<String>,
    seconds: f64,
    per_second: f64,
}

/// Why a line was not stored.
enum NotStored {
    /// The line is no entry of this tree, and this is why.
    BadLine(String),
    /// The store failed.
    Failed(Error),
}

impl Args {
    /// Stores one line.
    fn store(
        &self,
        codec: CodecKind,
        writes: &mut Writes<'_>,
        line: &[u8],
    ) -> Result<(), NotStored> {
        let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
            let what = "no tab between key and value".to_owned();
            return Err(NotStored::BadLine(what));
        };
        let read = |text| self.notation.read(text, codec).map_err(NotStored::BadLine);
        let key = read(&line[..tab])?;
        let value = read(&line[tab + 1..])?;
        writes
            .put(&key, &value)
            .map_err(|error| match error.kind() {
                ErrorKind::KeyTooLong { .. }
                | ErrorKind::ValueTooLong { .. }
                | ErrorKind::NotAWord { .. } => NotStored::BadLine(error.to_string()),
                _ => NotStored::Failed(error),
            })
    }

    fn load(
        &self,
        codec: CodecKind,
        writes: &mut Writes<'_>,
        input: &mut Input,
        bar: &indicatif::ProgressBar,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let mut line = Vec::new();
        let mut number = 0_u64;
        let mut bytes = 0_u64;
        loop {
            interrupt::check()?;
            let read = input.read_line(&mut line)?;
            let (LineRead::Line(length) | LineRead::TooLong(length)) = read else {
                return Ok(());
            };
            number += 1;
            bytes += length as u64;
            if number.is_multiple_of(256) {
                bar.set_position(bytes);
                bar.set_message(progress::count(writes.durable()));
            }
            let content = line.strip_suffix(b"\n").unwrap_or(&line);
            let stored = match read {
                LineRead::TooLong(length) => Err(NotStored::BadLine(too_long(length))),
                _ => self.store(codec, writes, content),
            };
            match stored {
                Ok(()) => {}
                Err(NotStored::Failed(error)) => return Err(error.into()),
                Err(NotStored::BadLine(what)) => {
                    let failure = |what| Failure::Line {
                        input: input.name.clone(),
                        number,
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
        }
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let mut input = Input::open(&args.file)?;
    let template = match input.length {
        Some(_) => "{bar:20} {percent:>3}%, {msg} entries, {elapsed}",
        None => "{spinner} {msg} entries, {binary_bytes} read, {elapsed}",
    };
    let bar = progress::bar(context, input.length, "0", template);
    let mut report = Report::default();
    let start = Instant::now();
    let mut is_begun = false;
    let loaded = args.pool.write(context, |store| {
        let tree = args.tree.open(store)?;
        is_begun = true;
        let mut writes = Writes::new(store, &tree);
        let loaded = args.load(
            tree.kind().codec,
            &mut writes,
            &mut input,
            &bar,
            &mut report,
        );
        let settled = writes.settle();
        report.stored = writes.durable();
        loaded?;
        Ok(settled?)
    });
    bar.finish_and_clear();
    if input.has_byte_order_mark {
        note_byte_order_mark(context, &input.name);
    }
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
