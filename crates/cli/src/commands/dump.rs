//! `everleaf dump`: a pool as text.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use everleaf::{Error, Store, Tree};

use crate::context::{Context, PoolArgs};
use crate::dump_format::DumpWriter;
use crate::failure::{Answer, Failure, Outcome};
use crate::progress;

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
    /// Leave out what is damaged instead of stopping there; exit code 1 if anything was left out
    #[arg(long)]
    salvage: bool,
}

type Output = BufWriter<Box<dyn Write>>;

impl Args {
    fn output(&self) -> Result<(Output, Option<File>), Failure> {
        if self.file == Path::new("-") {
            return Ok((BufWriter::with_capacity(1 << 20, Box::new(io::stdout())), None));
        }
        let name = self.file.display();
        let identity = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
        if identity(&self.file).is_some_and(|file| Some(file) == identity(&self.pool.pool)) {
            return Err(Failure::Usage(format!("{name} is the pool itself")));
        }
        let opened = File::create(&self.file).and_then(|file| Ok((file.try_clone()?, file)));
        let (file, twin) = opened.map_err(Failure::io(format!("create {name}")))?;
        Ok((BufWriter::with_capacity(1 << 20, Box::new(file)), Some(twin)))
    }

    /// Writes a tree; returns how many times something was left out.
    fn dump_tree(
        &self,
        context: Context,
        store: &Store,
        name: &str,
        writer: &mut DumpWriter<Output>,
    ) -> Result<u64, Failure> {
        let tree = match store.open_tree(name) {
            Ok(tree) => tree,
            Err(error) if self.salvage => {
                context.note(format!("left out: tree {name:?}: {error}"));
                return Ok(1);
            }
            Err(error) => return Err(error.into()),
        };
        writer.tree(name, tree.kind())?;
        let damage = dump_entries(&tree, writer)?;
        if let Some((error, last)) = damage {
            if !self.salvage {
                return Err(error.into());
            }
            context.note(format!("left out: part of tree {name:?}: {error}"));
            dump_behind(&tree, last, writer)?;
            writer.end_tree()?;
            return Ok(1);
        }
        writer.end_tree()?;
        Ok(0)
    }
}

/// Writes entries up to the end, or up to damage: then returns it and the last key before it.
#[allow(clippy::type_complexity, reason = "an optional pair")]
fn dump_entries(
    tree: &Tree,
    writer: &mut DumpWriter<Output>,
) -> Result<Option<(Error, Option<Vec<u8>>)>, Failure> {
    let mut last: Option<Vec<u8>> = None;
    let mut range = tree.iter();
    loop {
        match range.next_entry() {
            Ok(None) => return Ok(None),
            Ok(Some((key, value))) => {
                writer.entry(key, value)?;
                last.get_or_insert_default().clear();
                last.get_or_insert_default().extend_from_slice(key);
            }
            Err(error) => return Ok(Some((error, last))),
        }
    }
}

/// Writes the entries behind the last damage: found from the end, written in order.
fn dump_behind(tree: &Tree, last: Option<Vec<u8>>, writer: &mut DumpWriter<Output>) -> Result<(), Failure> {
    let lower = last.map_or(Bound::Unbounded, Bound::Excluded);
    let mut first: Option<Vec<u8>> = None;
    let mut range = tree.range((lower, Bound::Unbounded));
    while let Ok(Some((key, _))) = range.next_entry_back() {
        first.get_or_insert_default().clear();
        first.get_or_insert_default().extend_from_slice(key);
    }
    let Some(first) = first else { return Ok(()) };
    let mut range = tree.range(first..);
    while let Ok(Some((key, value))) = range.next_entry() {
        writer.entry(key, value)?;
    }
    Ok(())
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = args.pool.open(context, false)?;
    let names = match args.trees.as_slice() {
        [] => store.trees()?.into_iter().map(|tree| tree.name).collect(),
        names => names.to_vec(),
    };
    let (output, file) = args.output()?;
    let mut writer = DumpWriter::new(output)?;
    let mut damages = 0;
    for name in &names {
        damages += args.dump_tree(context, &store, name, &mut writer)?;
    }
    let (_, entries) = writer.finish()?;
    if let Some(file) = file {
        file.sync_all().map_err(Failure::io(format!("write {}", args.file.display())))?;
        let report = serde_json::json!({ "trees": names.len(), "entries": entries, "damages": damages });
        let words = format!("{} entries of {} trees", progress::count(entries), names.len());
        context.say(&report, words)?;
    }
    Ok(Answer::from_bool(damages == 0))
}
