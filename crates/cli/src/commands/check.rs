//! `everleaf check`: verifies the whole structure of a pool, and mends what is kept twice.

use std::io::Write;

use everleaf::{LostCopy, Store, StoreViolation};
use serde::Serialize;

use terminal::context::{Context, write_json};
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;
use terminal::violations::{LISTED_MAX, ListedCopy, Violations, counted_lines};
use terminal::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// First write damaged copies of the header and of the root table anew, each from its other copy
    #[arg(long)]
    repair: bool,
}

impl Args {
    /// Whether the command changes the pool.
    pub(crate) fn repairs(&self) -> bool {
        self.repair
    }
}

#[derive(Serialize)]
struct Report {
    /// Whether there is neither a violation nor a lost copy.
    sound: bool,
    #[serde(flatten)]
    counted: Counted,
    #[serde(flatten)]
    violations: Violations,
    /// The number of copies that are damaged or outdated while the other copy is whole.
    lost_copies: u64,
    first_lost_copies: Vec<ListedCopy>,
    /// The number of copies that the command has written anew.
    mended_copies: u64,
    first_mended_copies: Vec<ListedCopy>,
}

/// The counts of a pool.
#[derive(Serialize, Default)]
pub(super) struct Counted {
    pub(super) trees: u64,
    /// The entries of the trees that could be counted.
    pub(super) entries: u64,
    /// The number of trees that are too damaged to be counted.
    trees_not_counted: u64,
}

impl Counted {
    fn words(&self) -> String {
        format!(
            "{}, {}",
            progress::many(self.trees, "tree"),
            progress::many(self.entries, "entry")
        )
    }

    /// The result of a check that found `violations` violations, in words.
    fn damage(&self, violations: u64) -> String {
        let mut words = progress::many(violations, "violation");
        if self.trees_not_counted < self.trees {
            words += &format!(" in {}", self.words());
        }
        match self.trees_not_counted {
            0 => words,
            1 => words + "; 1 tree is too damaged to count its entries",
            trees => {
                format!(
                    "{words}; {} trees are too damaged to count their entries",
                    progress::count(trees)
                )
            }
        }
    }
}

/// The trees, and the entries of those that can be counted.
pub(super) fn count(store: &Store) -> Result<Counted, Failure> {
    let mut counted = Counted::default();
    for tree in store.trees()? {
        counted.trees += 1;
        match store.open_tree(&tree.name).and_then(|tree| tree.len()) {
            Ok(entries) => counted.entries += entries,
            Err(_) => counted.trees_not_counted += 1,
        }
    }
    Ok(counted)
}

/// All violations of a store.
pub(super) fn violations(context: Context, store: &Store) -> Result<Vec<StoreViolation>, Failure> {
    violations_among(context, store, count(store)?.entries)
}

/// All violations of a store. `entries` is the number of its entries, for the progress bar.
pub(super) fn violations_among(
    context: Context,
    store: &Store,
    entries: u64,
) -> Result<Vec<StoreViolation>, Failure> {
    let bar = progress::entries(context, entries, "checking");
    let shown = bar.clone();
    let tick = move |entries| {
        shown.inc(entries);
        !interrupt::is_asked()
    };
    let found = medium::progress::watched(tick, || store.check());
    bar.finish_and_clear();
    interrupt::check()?;
    Ok(found?)
}

/// Mends the copies that are lost. If there are none, the pool is not opened for writing.
fn repair(args: &Args, context: Context) -> Result<Vec<LostCopy>, Failure> {
    let lost = args.pool.read(context, |store| Ok(store.lost_copies()?))?;
    if lost.is_empty() {
        return Ok(Vec::new());
    }
    let store = args.pool.open(context, false)?;
    let mended = store.mend_copies()?;
    store.close()?;
    Ok(mended)
}

/// The first of the copies, as an answer in JSON lists them.
fn first_of(copies: &[LostCopy]) -> Vec<ListedCopy> {
    copies
        .iter()
        .take(LISTED_MAX)
        .map(ListedCopy::from)
        .collect()
}

/// The findings of a check.
struct Findings {
    counted: Counted,
    violations: Vec<StoreViolation>,
    lost: Vec<LostCopy>,
    mended: Vec<LostCopy>,
}

impl Findings {
    /// Whether there is neither a violation nor a lost copy.
    fn is_sound(&self) -> bool {
        self.violations.is_empty() && self.lost.is_empty()
    }

    fn into_report(self) -> Report {
        Report {
            sound: self.is_sound(),
            counted: self.counted,
            violations: self.violations.into_iter().collect(),
            lost_copies: self.lost.len() as u64,
            first_lost_copies: first_of(&self.lost),
            mended_copies: self.mended.len() as u64,
            first_mended_copies: first_of(&self.mended),
        }
    }

    /// Prints them in words.
    fn print(&self, output: &mut impl Write) -> Result<(), Failure> {
        for copy in &self.mended {
            let copy = ListedCopy::from(copy);
            writeln!(output, "mended: {copy}; written anew from the other copy")?;
        }
        for line in counted_lines(self.violations.iter().map(ToString::to_string)) {
            writeln!(output, "{line}")?;
        }
        for copy in &self.lost {
            let copy = ListedCopy::from(copy);
            writeln!(output, "redundancy lost: {copy}; the other copy is whole")?;
        }
        writeln!(output, "{}", self.verdict())?;
        if !self.violations.is_empty() {
            writeln!(
                output,
                "`everleaf dump --salvage` saves all whole entries, `everleaf restore` puts it into another pool"
            )?;
        }
        if self.lost.iter().any(|copy| copy.can_be_mended) {
            writeln!(output, "`everleaf check --repair` writes lost copies anew")?;
        }
        Ok(())
    }

    /// The result in one line.
    fn verdict(&self) -> String {
        let counts = self.counted.words();
        if !self.violations.is_empty() {
            return self.counted.damage(self.violations.len() as u64);
        }
        if self.lost.is_empty() {
            return format!("sound: {counts}, no violation");
        }
        let copies = progress::many(self.lost.len() as u64, "copy");
        format!("redundancy lost: {copies}, but no entry: {counts}, no violation")
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    check(args, context).map_err(Failure::of_check)
}

fn check(args: &Args, context: Context) -> Outcome {
    let mended = if args.repair {
        repair(args, context)?
    } else {
        Vec::new()
    };
    let store = args.pool.read_for_long(context)?;
    let counted = count(&store)?;
    let violations = violations_among(context, &store, counted.entries)?;
    let findings = Findings {
        counted,
        violations,
        lost: store.lost_copies()?,
        mended,
    };
    let is_sound = findings.is_sound();
    let mut output = Context::output();
    if context.json {
        write_json(&mut output, &findings.into_report())?;
    } else {
        findings.print(&mut output)?;
    }
    output.flush()?;
    Ok(Answer::from_bool(is_sound))
}
