//! Damaged pools: which damage must be noticed, and which entries must be saved.
//!
//! Each row of [`table::TABLE`] names the damage, the engines of the pools, and the expected
//! results. A test is made of each row and engine at run time, and `libtest-mimic` runs them:
//! `cargo test --release -p everleaf-lab --test damage -- ::rntree`. Damage that needs checks of
//! its own is tested beside its engine.
//!
//! After any damage, a read returns the stored value or an error; and if reads miss keys without an
//! error, the check reports damage.

mod pools;
mod table;

use engines::engine::Engine;
use everleaf_lab::testing::damage::DamageFindings;
use libtest_mimic::{Arguments, Failed, Trial};

use pools::{Ground, PoolKind};

/// A row of the table.
pub(crate) struct Row {
    /// The name of the damaged part.
    pub(crate) what: &'static str,
    /// The engines whose pools are damaged.
    pub(crate) engines: &'static [Engine],
    /// The pool before the damage.
    pub(crate) pool: PoolKind,
    /// The damages. Each is done to a fresh copy of the pool.
    pub(crate) damages: fn(&Ground) -> Vec<Damage>,
    /// The expected result after each of them.
    pub(crate) expected: Expected,
    /// How many of the damages must cost entries, at least. With fewer, the test would have hit too
    /// few places in use.
    pub(crate) costly_min: fn() -> usize,
    /// How many of the damages the salvage must report, at least.
    pub(crate) reported_min: usize,
}

/// A damage.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Damage {
    /// None.
    Nothing,
    /// A bit of a byte is flipped.
    Flip { at: usize, bit: usize },
    /// Bytes become zeros.
    Zeros { at: usize, length: usize },
    /// Two lines are swapped.
    Swap { one: usize, other: usize },
    /// The damage of this seed and round: any kind, anywhere.
    Any { seed: u64, round: u64 },
}

impl Damage {
    pub(crate) fn do_to(self, bytes: &mut [u8]) {
        match self {
            Self::Nothing => {}
            Self::Flip { at, bit } => bytes[at] ^= 1 << bit,
            Self::Zeros { at, length } => bytes[at..at + length].fill(0),
            Self::Swap { one, other } => {
                for byte in 0..table::LINE {
                    bytes.swap(one + byte, other + byte);
                }
            }
            Self::Any { seed, round } => {
                everleaf_lab::testing::damage::damage(bytes, seed, round);
            }
        }
    }
}

/// The part of a damage that must be noticed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noticed {
    /// There is none: the open, the check and the reads report nothing, all is read, and the salvage
    /// saves all.
    Nothing,
    /// The open, the check or the reads report it, or all is read.
    UnlessIntact,
    /// The open, the check or the reads report it, or all is read. If the check reports nothing,
    /// the reads report nothing either, and the salvage saves all.
    ByCheck,
    /// The open, the check or the reads report it.
    Always,
    /// The salvage reports it.
    BySalvage,
    /// If the salvage can be done, it names entries or nodes, or it saves all.
    AsEntriesOrNodes,
    /// The salvage may report it.
    Free,
}

/// The expected result after a damage.
pub(crate) struct Expected {
    pub(crate) noticed: Noticed,
    /// The fewest entries that the salvage may save.
    pub(crate) saved_min: usize,
    /// The most entries that the salvage may return although the tree does not have them: outdated
    /// or removed ones.
    pub(crate) wrong_max: usize,
}

impl Expected {
    /// Whether this was expected.
    fn judge(&self, seen: &DamageFindings, entries: usize) -> bool {
        let is_reported = seen.found.is_some();
        let saves_all = seen.saved == entries && seen.wrong + seen.left_out == 0;
        let is_noticed = match self.noticed {
            Noticed::Nothing => !is_reported && seen.is_intact && saves_all,
            Noticed::UnlessIntact => is_reported || seen.is_intact,
            Noticed::ByCheck => {
                let is_sound = !is_reported && seen.is_intact && saves_all;
                (is_reported || is_sound) && !seen.is_missed_by_check()
            }
            Noticed::Always => is_reported,
            Noticed::BySalvage => seen.left_out > 0,
            Noticed::AsEntriesOrNodes => seen.saved == entries || seen.named > 0,
            Noticed::Free => true,
        };
        let are_reads_sound = seen.reads.wrong.keys == 0 && !seen.are_missed_keys_unchecked();
        is_noticed
            && are_reads_sound
            && seen.saved >= self.saved_min
            && seen.wrong <= self.wrong_max
    }
}

/// Tests a row with an engine.
fn run(row: &Row, engine: Engine) -> Result<(), Failed> {
    let ground = Ground::new(engine, row.pool);
    let mut failures = Vec::new();
    let mut costly = 0;
    let mut reported = 0;
    for damage in (row.damages)(&ground) {
        let seen = ground.examine(damage);
        let is_unsalvageable =
            row.expected.noticed == Noticed::AsEntriesOrNodes && !seen.is_salvaged;
        if is_unsalvageable {
            continue;
        }
        if !row.expected.judge(&seen, ground.content.len()) {
            failures.push(format!("{damage:x?}: {seen:?}"));
        }
        costly += usize::from(seen.saved < ground.content.len());
        reported += usize::from(seen.left_out > 0);
    }
    if !failures.is_empty() {
        return Err(failures.join("\n").into());
    }
    if costly < (row.costly_min)() || reported < row.reported_min {
        let what = format!("{costly} damages cost entries, {reported} were reported: too few");
        return Err(what.into());
    }
    Ok(())
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for row in table::TABLE {
        for engine in row.engines {
            let name = format!("{}::{engine}", row.what.replace(' ', "_"));
            trials.push(Trial::test(name, || run(row, *engine)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
