//! `everleaf restore`: trees from a dump.

use std::io::BufRead;
use std::path::PathBuf;

use everleaf::{Engine, ErrorKind, Store, Tree, TreeOptions};
use terminal::values::{engine_of, parse_fill};

use crate::dump_format::{DumpPart, DumpReader, TreeHead};
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
    /// The dump; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Allow trees that have entries already: put the dump's entries over these, one by one
    #[arg(long)]
    merge: bool,
    /// The engine of all trees, instead of those that the dump names; `everleaf engines` describes them
    #[arg(long, value_name = "NAME", value_parser = engine_of(Engine::ALL))]
    engine: Option<Engine>,
    /// The fill factor of new leaves, from 0.5 to 1
    #[arg(long, default_value_t = 0.9, value_name = "PART", value_parser = parse_fill)]
    fill: f64,
}

type Reader = DumpReader<Box<dyn BufRead>>;

/// Fills an empty tree: wholly, or not at all if the dump turns out to be damaged.
fn fill(tree: &Tree, reader: &mut Reader, fill: f64) -> Result<u64, Failure> {
    let entries = std::iter::from_fn(|| {
        if let Err(interruption) = interrupt::check() {
            return Some(Err(interruption.into()));
        }
        match reader.next() {
            Ok(DumpPart::Entry(key, value)) => Some(Ok((key, value))),
            // Only the tree's end can follow: the reader refuses anything else inside a tree.
            Ok(_) => None,
            Err(failure) => Some(Err(failure)),
        }
    });
    tree.try_bulk_load(entries, fill)
}

/// Writes the entries of a tree over existing ones. Adds the number of durable ones to `stored`,
/// even if it ends with an error.
fn merge(store: &Store, tree: &Tree, reader: &mut Reader, stored: &mut u64) -> Result<(), Failure> {
    let mut writes = Writes::new(store, tree);
    let mut write_all = || {
        while let DumpPart::Entry(key, value) = reader.next()? {
            interrupt::check()?;
            writes.put(&key, &value)?;
        }
        Ok(())
    };
    let written = write_all();
    let settled = writes.settle();
    *stored += writes.durable();
    written.and(settled.map_err(Failure::from))
}

impl Args {
    /// The tree, with the engine that the user asks for.
    fn with_engine(&self, head: TreeHead) -> TreeHead {
        let Some(engine) = self.engine else {
            return head;
        };
        let codec = head.kind.codec;
        // Settings are those of one engine.
        let kind = TreeOptions {
            engine,
            codec,
            ..TreeOptions::default()
        };
        TreeHead { kind, ..head }
    }

    fn restore_tree(
        &self,
        store: &Store,
        reader: &mut Reader,
        head: &TreeHead,
        stored: &mut u64,
    ) -> Result<(), Failure> {
        let name = &head.name;
        let is_new = !store.trees()?.iter().any(|tree| tree.name == *name);
        let tree = head.open_in(store).map_err(|error| match error.kind() {
            // The error is in the dump, not in the arguments.
            ErrorKind::BadTreeName { .. } | ErrorKind::BadEncoding { .. } => {
                reader.bad(error.to_string())
            }
            _ => error.into(),
        })?;
        if tree.is_empty()? {
            let filled = fill(&tree, reader, self.fill);
            drop(tree);
            if filled.is_err() && is_new {
                store.drop_tree(name)?;
            }
            *stored += filled?;
            return Ok(());
        }
        if self.merge {
            return merge(store, &tree, reader, stored);
        }
        Err(Failure::Refused(format!(
            "tree {name:?} has entries already; give --merge to put these over them"
        )))
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let input = Input::open(&args.file)?;
    let template = match input.length {
        Some(_) => {
            "{msg} {bar:20} {percent:>3}%, {binary_bytes} of {binary_total_bytes}, {elapsed}"
        }
        None => "{spinner} {msg}, {binary_bytes} read, {elapsed}",
    };
    let bar = progress::bar(context, input.length, "restoring", template);
    let counted: Box<dyn BufRead> = Box::new(bar.wrap_read(input.reader));
    let mut reader = DumpReader::new(counted, &input.name)?;
    if reader.has_byte_order_mark() {
        bar.suspend(|| note_byte_order_mark(context, &input.name));
    }
    let mut trees = 0_u64;
    let mut entries = 0;
    let mut is_begun = false;
    let restored = args.pool.write(context, |store| {
        loop {
            match reader.next()? {
                DumpPart::Tree(head) => {
                    let head = args.with_engine(head);
                    let restored = args.restore_tree(store, &mut reader, &head, &mut entries);
                    // If a tree is refused, nothing of it was written.
                    is_begun |= !matches!(restored, Err(Failure::Refused(_)));
                    restored?;
                    trees += 1;
                }
                DumpPart::End => return reader.expect_end_of_input(),
                // Inside a tree the functions above read on; outside of one the reader refuses
                // entries and ends.
                DumpPart::Entry(..) | DumpPart::EndTree => {
                    return Err(Failure::Store(ErrorKind::NotSorted { index: 0 }.into()));
                }
            }
        }
    });
    bar.finish_and_clear();
    let done = serde_json::json!({ "trees": trees, "stored": entries });
    if let Err(failure) = restored {
        if !is_begun {
            return Err(failure);
        }
        let words = format!(
            "{} restored, of {}",
            progress::were(entries, "entry"),
            progress::many(trees, "tree")
        );
        return Err(failure.after(words, done));
    }
    let words = format!(
        "{} in {}",
        progress::many(entries, "entry"),
        progress::many(trees, "tree")
    );
    context.say(&done, words)?;
    Ok(Answer::Yes)
}
