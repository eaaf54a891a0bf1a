//! `everleaf dump`: a pool as text.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use everleaf::{Error, Store, StoreViolation};
use indicatif::ProgressBar;

use super::check;
use crate::context::{Context, PoolArgs};
use crate::dump_format::DumpWriter;
use crate::failure::{Answer, Failure, Outcome};
use crate::whole_file::{WholeFile, are_same};
use crate::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The file to write; `-` is standard output. An existing file is replaced only when the new one is complete
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Only this tree; may be given more than once
    #[arg(long = "tree", value_name = "NAME")]
    trees: Vec<String>,
    /// Leave out what is damaged instead of refusing; exit code 1 if anything was left out
    #[arg(long)]
    salvage: bool,
}

type Output = BufWriter<Box<dyn Write>>;

impl Args {
    fn output(&self) -> Result<(Output, Option<WholeFile>), Failure> {
        if self.file == Path::new("-") {
            return Ok((BufWriter::with_capacity(1 << 20, Box::new(io::stdout())), None));
        }
        let name = self.file.display();
        let pool = &self.pool.pool;
        for (what, taken) in [("the pool itself", pool), ("the log of the pool", &everleaf::log_path(pool))] {
            if are_same(&self.file, taken) {
                return Err(Failure::Usage(format!("{name} is {what}")));
            }
        }
        let begun = WholeFile::begin(&self.file).and_then(|file| Ok((file.handle()?, file)));
        let (handle, file) = begun.map_err(Failure::io(format!("create {name}")))?;
        Ok((BufWriter::with_capacity(1 << 20, Box::new(handle)), Some(file)))
    }

    /// Writes a tree; returns how many times something was left out.
    fn dump_tree(
        &self,
        context: Context,
        store: &Store,
        name: &str,
        writer: &mut DumpWriter<Output>,
        bar: &ProgressBar,
    ) -> Result<u64, Failure> {
        if self.salvage {
            return Self::salvage_tree(context, store, name, writer, bar);
        }
        let tree = store.open_tree(name)?;
        writer.tree(name, tree.kind())?;
        let mut range = tree.iter();
        while let Some((key, value)) = range.next_entry()? {
            interrupt::check()?;
            writer.entry(key, value)?;
            bar.inc(1);
        }
        writer.end_tree()?;
        Ok(0)
    }

    /// Writes all that can be read of a tree; returns how many damages were found.
    fn salvage_tree(
        context: Context,
        store: &Store,
        name: &str,
        writer: &mut DumpWriter<Output>,
        bar: &ProgressBar,
    ) -> Result<u64, Failure> {
        let left_out_wholly = |error: &everleaf::Error| {
            context.note(format!("left out: tree {name:?}: {error}"));
            Ok(1)
        };
        let kind = store.trees()?.into_iter().find(|tree| tree.name == name).and_then(|tree| tree.kind);
        let Some(kind) = kind else {
            return store.open_tree(name).map_or_else(|error| left_out_wholly(&error), |_| Ok(0));
        };
        let opened = store.open_tree(name);
        // If nothing of a tree can be read, its head line is left out as well.
        let (mut is_begun, mut written) = (false, Ok(()));
        let salvaged = store.salvage(name, |key, value| {
            let begun = if is_begun { Ok(()) } else { writer.tree(name, kind) };
            is_begun = true;
            written = begun.and_then(|()| interrupt::check()).and_then(|()| writer.entry(key, value));
            bar.inc(1);
            written.is_ok()
        });
        written?;
        let left_out = match salvaged {
            Ok(left_out) => left_out,
            Err(error) if !is_begun => return left_out_wholly(&error),
            Err(error) => {
                writer.end_tree()?;
                return left_out_wholly(&error);
            }
        };
        if !is_begun {
            writer.tree(name, kind)?;
        }
        writer.end_tree()?;
        for violation in left_out.iter().take(check::VIOLATIONS_TOLD) {
            context.note(format!("damage in tree {name:?}, at offset {violation}"));
        }
        // A tree that does not open is damaged even if nothing was left out.
        Ok((left_out.len() as u64).max(u64::from(opened.is_err())))
    }
}

/// Refuses damaged trees: a dump of them would lack something, or have it wrong.
fn verify(context: Context, store: &Store, names: &BTreeSet<String>) -> Result<(), Failure> {
    let found = check::violations(context, store)?;
    let of_these = |found: &StoreViolation| found.tree.as_ref().is_some_and(|tree| names.contains(tree));
    match found.into_iter().find(of_these) {
        Some(found) => Err(Error::corrupt(found.offset.unwrap_or(0), found.what).at(store.path()).into()),
        None => Ok(()),
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = args.pool.read(context)?;
    interrupt::gently();
    let names: BTreeSet<String> = match args.trees.as_slice() {
        [] => store.trees()?.into_iter().map(|tree| tree.name).collect(),
        names => names.iter().cloned().collect(),
    };
    // Before anything is written.
    let known: BTreeSet<String> = store.trees()?.into_iter().map(|tree| tree.name).collect();
    for absent in names.difference(&known) {
        store.open_tree(absent)?;
    }
    if !args.salvage {
        verify(context, &store, &names)?;
    }
    let (output, file) = args.output()?;
    let mut writer = DumpWriter::new(output)?;
    let mut damages = 0;
    // The length of a damaged tree is not known.
    let length = |name: &String| store.open_tree(name).and_then(|tree| tree.len()).unwrap_or_default();
    let bar = progress::entries(context, names.iter().map(length).sum(), "dumping");
    for name in &names {
        damages += args.dump_tree(context, &store, name, &mut writer, &bar)?;
    }
    bar.finish_and_clear();
    let (_, entries) = writer.finish()?;
    if let Some(file) = file {
        file.finish().map_err(Failure::io(format!("write {}", args.file.display())))?;
        let report = serde_json::json!({ "trees": names.len(), "entries": entries, "damages": damages });
        let trees = progress::many(names.len() as u64, "tree");
        let words = format!("{} of {trees}", progress::many(entries, "entry"));
        context.say(&report, words)?;
    }
    Ok(Answer::from_bool(damages == 0))
}
