//! `everleaf compact`: writes a pool anew, so that its file is no larger than what it holds.
//!
//! The new pool is written beside the old one, verified against it, and renamed over it. Until then
//! the old one is in its place, unchanged.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use everleaf::{ErrorKind, LimitedBy, Options, Store, Tree, TreeInfo, TreeOptions};
use indicatif::ProgressBar;
use tempfile::TempPath;
use terminal::output_file::{part_beside, parts_beside};
use terminal::values::parse_fill;

use super::check;
use crate::dump_format::TreeHead;
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;
use terminal::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The fill factor of new leaves, from 0.5 to 1
    #[arg(long, default_value_t = 0.9, value_name = "PART", value_parser = parse_fill)]
    fill: f64,
}

/// The file of the new pool until it has its place. It and its log are removed when this is
/// dropped.
struct Part {
    path: TempPath,
}

impl Part {
    /// A file in the folder of the pool, with the pool's owner and permissions.
    fn beside(pool: &Path) -> Result<Self, Failure> {
        let make = || {
            let place = pool.canonicalize()?;
            let file = part_beside(&place, medium::file::PRIVATE_MODE)?;
            // If that fails, only this user may read the file.
            let _ = medium::file::share_access(file.as_file(), &place.metadata()?);
            Ok(Self {
                path: file.into_temp_path(),
            })
        };
        make().map_err(Failure::io(format!(
            "create a file beside {}",
            pool.display()
        )))
    }

    /// The failure, with a description of the new pool instead of its name, which is temporary.
    fn named(&self, failure: Failure, pool: &Path) -> Failure {
        let Failure::Store(error) = &failure else {
            return failure;
        };
        if error.path() != Some(&*self.path) {
            return failure;
        }
        let name = format!("the new pool beside {}", pool.display());
        match error.kind() {
            ErrorKind::PoolFull {
                by: LimitedBy::Disk { free_bytes },
                ..
            } => {
                let elsewhere = "make it elsewhere by `everleaf dump` and `everleaf restore`";
                Failure::DiskFull {
                    file: name,
                    free_bytes: *free_bytes,
                    elsewhere,
                }
            }
            _ => match failure {
                Failure::Store(error) => Failure::Store(error.moved_to(Path::new(&name))),
                other => other,
            },
        }
    }

    fn log(&self) -> PathBuf {
        everleaf::log_path(&self.path)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Usually a clean close has removed the log already.
        let _ = std::fs::remove_file(self.log());
    }
}

/// Removes the new pools of earlier runs that were killed. The lock on the pool is held, so no
/// other run is at work.
fn remove_left_behind(context: Context, pool: &Path) -> Result<(), Failure> {
    let remove = || {
        let place = pool.canonicalize()?;
        let mut removed = 0;
        for path in parts_beside(&place)? {
            removed += 1 + u64::from(std::fs::remove_file(everleaf::log_path(&path)).is_ok());
            std::fs::remove_file(&path)?;
        }
        Ok(removed)
    };
    let removed = remove().map_err(Failure::io(format!(
        "remove the files that are left beside {}",
        pool.display()
    )))?;
    if removed > 0 {
        let files = progress::many(removed, "file");
        context.note(format!(
            "note: removed {files} beside the pool that an earlier `everleaf compact` left behind"
        ));
    }
    Ok(())
}

/// Fills a new tree with the entries of another one; returns how many.
fn copy(from: &Tree, to: &Tree, fill: f64, bar: &ProgressBar) -> Result<u64, Failure> {
    let mut range = from.iter();
    let entries = std::iter::from_fn(|| {
        if let Err(interruption) = interrupt::check() {
            return Some(Err(interruption.into()));
        }
        let next = range.next_entry().map_err(Failure::from).transpose()?;
        bar.inc(1);
        Some(next.map(|(key, value)| (key.to_vec(), value.to_vec())))
    });
    to.try_bulk_load(entries, fill)
}

/// Whether two trees have the same entries.
fn are_equal(one: &Tree, other: &Tree, bar: &ProgressBar) -> Result<bool, Failure> {
    let mut one = one.iter();
    let mut other = other.iter();
    loop {
        interrupt::check()?;
        let left = one.next_entry()?;
        let right = other.next_entry()?;
        if left != right {
            return Ok(false);
        }
        if left.is_none() {
            return Ok(true);
        }
        bar.inc(1);
    }
}

/// The kind of a tree; a pool with trees that cannot be copied is not compacted.
fn kind_of(tree: &TreeInfo) -> Result<TreeOptions, Failure> {
    tree.kind.ok_or_else(|| {
        let name = &tree.name;
        Failure::Refused(format!(
            "tree {name:?} is damaged, or of an engine that this release does not know; drop it, or use the release that made it"
        ))
    })
}

/// Copies all trees into the new pool, and verifies it. Returns the number of entries.
fn rewrite(
    args: &Args,
    context: Context,
    from: &Store,
    options: &Options,
    part: &Part,
) -> Result<u64, Failure> {
    let entries = check::count(from)?.entries;
    if let Some(damage) = check::violations_among(context, from, entries)?.first() {
        return Err(Failure::Refused(format!(
            "the pool is damaged: {damage}; `everleaf dump --salvage` saves all whole entries"
        )));
    }
    let trees = from.trees()?;
    let to = options.open(&part.path)?;
    let bar = progress::entries(context, 2 * entries, "compacting");
    let mut copied = 0;
    for info in &trees {
        let head = TreeHead {
            name: info.name.clone(),
            kind: kind_of(info)?,
            encodings: info.encodings.clone(),
        };
        let tree = head.open_in(&to)?;
        copied += copy(&from.open_tree(&info.name)?, &tree, args.fill, &bar)?;
    }
    to.close()?;
    let to = options.clone().create(false).open(&part.path)?;
    for info in &trees {
        if !are_equal(
            &from.open_tree(&info.name)?,
            &to.open_tree(&info.name)?,
            &bar,
        )? {
            let name = &info.name;
            return Err(Failure::Refused(format!(
                "the copy of tree {name:?} differs from the tree; nothing was changed; this is a fault of everleaf, or of the \
                 memory or the disk: check these, then report it"
            )));
        }
    }
    bar.finish_and_clear();
    if let Some(damage) = check::violations_among(context, &to, copied)?.first() {
        return Err(Failure::Refused(format!(
            "the copy is damaged: {damage}; nothing was changed; check the disk, or make the copy on another one by `everleaf dump`"
        )));
    }
    to.close()?;
    Ok(copied)
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    // The reserve lies behind the end of a file.
    let room =
        |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len().min(512 * file.blocks()));
    let pool = &args.pool.pool;
    interrupt::gently();
    let store = args.pool.open(context, false)?;
    store.finish_recovery();
    remove_left_behind(context, pool)?;
    let before = room(pool);
    let part = Part::beside(pool)?;
    let trees = store.trees()?.len() as u64;
    let rewritten = rewrite(args, context, &store, &args.pool.options(), &part);
    let entries = rewritten.map_err(|failure| part.named(failure, pool))?;
    interrupt::check()?;
    store
        .close_and_replace(&part.path)
        .map_err(|error| part.named(error.into(), pool))?;
    let after = room(pool);
    let report = serde_json::json!({ "trees": trees, "entries": entries, "bytes_before": before, "bytes": after });
    let trees = progress::many(trees, "tree");
    let entries = progress::many(entries, "entry");
    let words = format!(
        "{entries} in {trees}: {} before, {} now",
        progress::bytes(before),
        progress::bytes(after)
    );
    context.say(&report, words)?;
    Ok(Answer::Yes)
}
