//! One run on a tree of its own, and the figures of the tree afterwards.

use engines::index::IndexStat;
use medium::Counts;

use super::args::Args;
use super::subject::{Bench, Measurement, count_of};
use super::workload::Script;
use terminal::failure::Result;

/// A run, and its tree at the end.
pub(crate) struct Once {
    /// Milliseconds of the run.
    pub(crate) ms: f64,
    /// The counts of the medium, if it counted.
    pub(crate) counts: Option<Counts>,
    /// The splits since the tree was made, if it had no merges.
    pub(crate) splits: u64,
    /// Bytes of slabs in use, and of volatile memory.
    pub(crate) bytes: u64,
}

/// Runs operations on a new tree, which has the keys that the workload expects; counts what reaches
/// the medium if that is wanted, in emulated persistent memory.
pub(crate) fn once(args: &Args, is_counted: bool) -> Result<Once> {
    args.validate()?;
    let keys = args.keys_drawn();
    let mut bench = if is_counted {
        Bench::create_counted(args)?
    } else {
        Bench::create(args)?
    };
    bench.load(args, &keys, args.keys - args.withheld())?;
    let Measurement {
        elapsed, counts, ..
    } = bench.measure(&Script::new(args, &keys, 0))?;
    let counters = bench.counters();
    let stat = bench.stat()?;
    let sizes = bench.sizes()?;
    let is_told = counters.iter().any(|(name, _)| *name == "splits");
    let splits = if is_told {
        count_of(&counters, "splits")
    } else {
        splits_of(&stat)
    };
    let bytes = sizes.used_bytes + sizes.volatile_bytes;
    Ok(Once {
        ms: elapsed.as_secs_f64() * 1e3,
        counts,
        splits,
        bytes,
    })
}

/// The splits of a tree of words that lies in the pool, with a single allocation beside its nodes:
/// each made a node, and a new root besides where there was none above.
fn splits_of(stat: &IndexStat) -> u64 {
    stat.allocations
        .unwrap_or(0)
        .saturating_sub(2 + u64::from(stat.height))
}
