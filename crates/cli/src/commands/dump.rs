//! `everleaf dump`: a pool as text.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use everleaf::{Error, Snapshot, Store, StoreViolation, View};
use indicatif::ProgressBar;
use serde::Serialize;
use terminal::output_file::{ForceArgs, OutputFile};

use super::check;
use super::salvage::Damages;
use crate::dump_format::{DumpSize, DumpWriter, TreeHead};
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;
use terminal::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The file to write; `-` is standard output
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Only this tree; may be given more than once
    #[arg(long = "tree", value_name = "NAME")]
    trees: Vec<String>,
    /// Leave out what is damaged instead of refusing; exit code 1 if anything was left out
    #[arg(long)]
    salvage: bool,
    #[command(flatten)]
    force: ForceArgs,
}

pub(super) type Output = BufWriter<File>;

impl Args {
    fn output(&self) -> Result<OutputFile, Failure> {
        Ok(OutputFile::begin(
            &self.file,
            self.force,
            &self.pool.files(),
        )?)
    }

    /// The failure, with the name of the file if that could not be written.
    fn named(&self, failure: Failure) -> Failure {
        match failure {
            // A pipe that its reader closed is no failure.
            Failure::Output(source) if source.kind() != io::ErrorKind::BrokenPipe => {
                Failure::writing(&self.file, source)
            }
            other => other,
        }
    }

    /// Writes these trees, and notes the damage in `damages` because of which parts were left out.
    fn write(
        &self,
        context: Context,
        store: &Store,
        names: &BTreeSet<String>,
        output: Output,
        damages: &mut Damages,
    ) -> Result<DumpSize, Failure> {
        let mut writer = DumpWriter::new(output)?;
        // The length of a damaged tree is not known.
        let length = |name: &String| {
            store
                .open_tree(name)
                .and_then(|tree| tree.len())
                .unwrap_or_default()
        };
        let bar = progress::entries(context, names.iter().map(length).sum(), "dumping");
        if self.salvage {
            for name in names {
                damages.salvage_tree(context, store, name, &mut writer, &bar)?;
            }
        } else {
            // One snapshot for all trees, so that the dump is of one moment.
            let snapshot = store.snapshot()?;
            for name in names {
                dump_tree(store, &snapshot, name, &mut writer, &bar)?;
            }
        }
        bar.finish_and_clear();
        writer.finish()
    }
}

/// Writes an undamaged tree as it is in a snapshot.
fn dump_tree(
    store: &Store,
    snapshot: &Snapshot,
    name: &str,
    writer: &mut DumpWriter<Output>,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let tree = store.open_tree(name)?;
    writer.tree(&TreeHead {
        name: name.to_owned(),
        kind: tree.kind(),
        encodings: tree.encodings().cloned(),
    })?;
    let mut range = snapshot.iter(&tree);
    while let Some((key, value)) = range.next_bytes()? {
        interrupt::check()?;
        writer.entry(key, value)?;
        bar.inc(1);
    }
    writer.end_tree()
}

/// Refuses damaged trees: a dump of them would lack entries, or have wrong ones.
fn verify(context: Context, store: &Store, names: &BTreeSet<String>) -> Result<(), Failure> {
    let found = check::violations(context, store)?;
    let of_these =
        |found: &StoreViolation| found.tree.as_ref().is_some_and(|tree| names.contains(tree));
    match found.into_iter().find(of_these) {
        Some(found) => Err(Error::corrupt(found.offset.unwrap_or(0), found.what)
            .at(store.path())
            .into()),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct Report<'d> {
    trees: u64,
    entries: u64,
    #[serde(flatten)]
    damages: &'d Damages,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = if args.salvage {
        args.pool
            .read_damaged(context)
            .map_err(Failure::of_salvage)?
    } else {
        args.pool.read_for_long(context)?
    };
    interrupt::gently();
    let names: BTreeSet<String> = match args.trees.as_slice() {
        [] => store.trees()?.into_iter().map(|tree| tree.name).collect(),
        names => names.iter().cloned().collect(),
    };
    // This is checked before anything is written.
    let known: BTreeSet<String> = store.trees()?.into_iter().map(|tree| tree.name).collect();
    for absent in names.difference(&known) {
        store.open_tree(absent)?;
    }
    let output = args.output()?;
    if !args.salvage {
        verify(context, &store, &names)?;
    }
    let is_standard_output = output.is_standard_output();
    let handle = output
        .handle()
        .map_err(|source| Failure::writing(&args.file, source))?;
    let writer = BufWriter::with_capacity(1 << 20, handle);
    let mut damages = Damages::of_pool(&store, &known);
    let written = args.write(context, &store, &names, writer, &mut damages);
    let size = match written {
        Err(failure) if !is_standard_output => return Err(args.named(failure)),
        written => written?,
    };
    output.finish()?;
    if !is_standard_output {
        let DumpSize { trees, entries } = size;
        let words = format!(
            "{} of {}",
            progress::many(entries, "entry"),
            progress::many(trees, "tree")
        );
        context.say(
            &Report {
                trees,
                entries,
                damages: &damages,
            },
            words,
        )?;
    }
    if !damages.is_empty() {
        context.note(damages.words());
    }
    Ok(Answer::from_bool(damages.is_empty()))
}
