//! `everleaf scan`: the entries of a range of keys.

use std::io::Write;

use everleaf::{Bounds, Tree, View, ViewRange};
use serde_json::Map;

use crate::arguments::{RangeArgs, TreeArgs};
use crate::forms::{EntryForms, FormArgs, JsonEncoding};
use terminal::context::{Context, write_json};
use terminal::failure::{Answer, Failure, Outcome};
use terminal::interrupt;
use terminal::pool::PoolArgs;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    scan: ScanArgs,
}

/// The arguments without the pool, which the shell takes as well.
#[derive(clap::Args, Debug)]
pub(super) struct ScanArgs {
    #[command(flatten)]
    pub(super) tree: TreeArgs,
    #[command(flatten)]
    range: RangeArgs,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Print at most this many entries
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Print keys without values
    #[arg(long)]
    keys: bool,
    #[command(flatten)]
    pub(super) forms: FormArgs,
}

/// The entries to print, one after the other.
struct ScanEntries<'v> {
    range: ViewRange<'v, Tree>,
    is_reverse: bool,
    left: u64,
}

/// An entry to print.
struct ScannedEntry<'e> {
    key: &'e [u8],
    value: &'e [u8],
}

impl ScanEntries<'_> {
    fn next(&mut self) -> Result<Option<ScannedEntry<'_>>, Failure> {
        interrupt::check()?;
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let next = if self.is_reverse {
            self.range.next_bytes_back()?
        } else {
            self.range.next_bytes()?
        };
        Ok(next.map(|(key, value)| ScannedEntry { key, value }))
    }
}

/// The encodings of one answer in JSON.
struct ScanEncodings<'f> {
    keys: JsonEncoding<'f>,
    /// `None` if values are not printed.
    values: Option<JsonEncoding<'f>>,
}

impl ScanEncodings<'_> {
    fn are_open(&self) -> bool {
        self.keys.is_open() || self.values.as_ref().is_some_and(JsonEncoding::is_open)
    }

    fn note(&mut self, key: &[u8], value: &[u8]) {
        self.keys.note(key);
        if let Some(values) = &mut self.values {
            values.note(value);
        }
    }
}

impl ScanArgs {
    /// Prints the entries of a view, and returns how many they are.
    pub(super) fn print(
        &self,
        context: Context,
        view: &impl View,
        tree: &Tree,
        forms: &EntryForms,
    ) -> Result<u64, Failure> {
        let bounds = self.range.bounds(forms)?;
        if context.json {
            self.print_json(view, tree, &bounds, forms)
        } else {
            self.print_lines(view, tree, &bounds, forms)
        }
    }

    fn entries<'v>(&self, view: &'v impl View, tree: &'v Tree, bounds: &Bounds) -> ScanEntries<'v> {
        ScanEntries {
            range: view.range(tree, bounds.clone()),
            is_reverse: self.reverse,
            left: self.limit.unwrap_or(u64::MAX),
        }
    }

    fn print_lines(
        &self,
        view: &impl View,
        tree: &Tree,
        bounds: &Bounds,
        forms: &EntryForms,
    ) -> Result<u64, Failure> {
        let mut output = Context::output();
        let mut entries = self.entries(view, tree, bounds);
        let mut count = 0;
        while let Some(ScannedEntry { key, value }) = entries.next()? {
            let key = forms.show_key(key)?;
            if self.keys {
                writeln!(output, "{key}")?;
            } else {
                writeln!(output, "{key}\t{}", forms.show_value(value)?)?;
            }
            count += 1;
        }
        output.flush()?;
        Ok(count)
    }

    fn print_json(
        &self,
        view: &impl View,
        tree: &Tree,
        bounds: &Bounds,
        forms: &EntryForms,
    ) -> Result<u64, Failure> {
        let mut encodings = ScanEncodings {
            keys: JsonEncoding::of_keys(forms),
            values: if self.keys {
                None
            } else {
                Some(JsonEncoding::of_values(forms))
            },
        };
        // One answer has one encoding, so all entries are read before the first is printed. A view
        // shows the same entries twice.
        let mut entries = self.entries(view, tree, bounds);
        while encodings.are_open()
            && let Some(ScannedEntry { key, value }) = entries.next()?
        {
            encodings.note(key, value);
        }

        let mut output = Context::output();
        let mut entries = self.entries(view, tree, bounds);
        let mut count = 0;
        while let Some(ScannedEntry { key, value }) = entries.next()? {
            let mut object = Map::new();
            encodings.keys.add(&mut object, "key", key)?;
            if let Some(values) = &encodings.values {
                values.add(&mut object, "value", value)?;
            }
            write_json(&mut output, &object)?;
            count += 1;
        }
        output.flush()?;
        Ok(count)
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = args.pool.read_for_long(context)?;
    interrupt::gently();
    let tree = args.scan.tree.open(&store)?;
    let forms = args.scan.forms.of_tree(&tree);
    let snapshot = store.snapshot()?;
    args.scan.print(context, &snapshot, &tree, &forms)?;
    Ok(Answer::Yes)
}
