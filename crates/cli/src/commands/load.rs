//! `everleaf load`: stores lines of `key TAB value`.
//!
//! Entries that it reports as stored are durable.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use everleaf::{Codec, Error};
use serde::Serialize;

use crate::context::{Context, NewTreeArgs, Notation, PoolArgs};
use crate::failure::{Answer, Failure, Outcome};
use crate::input::{Input, LineRead, too_long};
use crate::progress;
use crate::under_way::Puts;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The file of lines, `key TAB value`; `-` is standard input. A carriage return at a line's end belongs to its value
    #[arg(default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    tree: NewTreeArgs,
    /// Skip and count malformed lines, instead of stopping at the first
    #[arg(long)]
    skip_bad: bool,
    #[command(flatten)]
    notation: Notation,
}

#[derive(Serialize, Default)]
struct Report {
    loaded: u64,
    skipped: u64,
    first_skipped: Option<String>,
    seconds: f64,
    per_second: f64,
}

impl Args {
    /// Stores one line; `Err(Ok(what))` if it is malformed.
    fn store(&self, codec: Codec, puts: &mut Puts<'_>, line: &[u8]) -> Result<(), Result<String, Error>> {
        let tab = line.iter().position(|byte| *byte == b'\t');
        let tab = tab.ok_or_else(|| Ok("no tab between key and value".to_owned()))?;
        let key = self.notation.read(&line[..tab], codec).map_err(Ok)?;
        let value = self.notation.read(&line[tab + 1..], codec).map_err(Ok)?;
        puts.put(&key, &value).map_err(|error| match error.root() {
            Error::KeyTooLong { .. } | Error::ValueTooLong { .. } | Error::NotAWord { .. } => {
                Ok(error.root().to_string())
            }
            _ => Err(error),
        })
    }

    fn load(
        &self,
        codec: Codec,
        puts: &mut Puts<'_>,
        input: &mut Input,
        bar: &indicatif::ProgressBar,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let (mut line, mut number, mut bytes) = (Vec::new(), 0_u64, 0_u64);
        loop {
            let read = input.read_line(&mut line)?;
            let (LineRead::Line(length) | LineRead::TooLong(length)) = read else { return Ok(()) };
            number += 1;
            bytes += length as u64;
            if number % 256 == 0 {
                bar.set_position(bytes);
                bar.set_message(progress::count(puts.durable()));
            }
            let content = line.strip_suffix(b"\n").unwrap_or(&line);
            let stored = match read {
                LineRead::TooLong(length) => Err(Ok(too_long(length))),
                _ => self.store(codec, puts, content),
            };
            match stored {
                Ok(()) => {}
                Err(Err(error)) => return Err(error.into()),
                Err(Ok(what)) => {
                    let failure = Failure::Line { input: input.name.clone(), number, what };
                    if !self.skip_bad {
                        return Err(failure);
                    }
                    report.skipped += 1;
                    report.first_skipped.get_or_insert_with(|| failure.to_string());
                }
            }
        }
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let mut input = Input::open(&args.file)?;
    let template = match input.length {
        Some(_) => "{bar:40} {percent:>3}%  {msg} entries, {bytes_per_sec}, {eta} left",
        None => "{spinner} {msg} entries, {bytes} read, {bytes_per_sec}",
    };
    let bar = progress::bar(context, input.length, template);
    let (mut report, start) = (Report::default(), Instant::now());
    let loaded = args.pool.write(context, |store| {
        let tree = args.tree.open(store)?;
        let mut puts = Puts::new(store, &tree);
        let loaded = args.load(tree.kind().codec, &mut puts, &mut input, &bar, &mut report);
        let settled = puts.settle();
        report.loaded = puts.durable();
        loaded?;
        Ok(settled?)
    });
    bar.finish_and_clear();
    let elapsed: Duration = start.elapsed();
    (report.seconds, report.per_second) =
        (elapsed.as_secs_f64(), progress::per_second(report.loaded, elapsed));
    if let Err(failure) = loaded {
        context.note(format!("{} entries were stored, then:", progress::count(report.loaded)));
        return Err(failure);
    }
    let mut words = format!(
        "{} entries in {}, {}",
        progress::count(report.loaded),
        progress::duration(elapsed),
        progress::rate(report.loaded, elapsed)
    );
    if let Some(first) = &report.first_skipped {
        let skipped = progress::count(report.skipped);
        words = format!("{words}; {skipped} lines skipped, the first: {first}");
    }
    context.say(&report, words)?;
    Ok(Answer::Yes)
}
