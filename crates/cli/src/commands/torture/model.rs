//! The content that the pool must have after a writer was killed: the model, and the check of each
//! key.

mod batches;

use std::collections::HashMap;

use everleaf::Durability;

use super::op::{Kind, RECORD_BYTES, Record, Version, owner};
use super::promise::Promise;
use super::verify::Contents;
use super::{Tally, Work};
use batches::Batches;

/// The positions of records in the pipe order operations in time: a record says how one operation
/// ended, and which one begins. This position is before all records: that of the content at the
/// start of the round.
const BEFORE: u64 = 0;
/// An operation that was never acknowledged.
const NEVER: u64 = u64::MAX;

/// An operation on a key, as records tell it.
#[derive(Clone, Copy, Debug)]
struct Op {
    kind: Kind,
    version: Version,
    expected: Version,
    /// The position of its announcement.
    begin: u64,
    /// The position of its acknowledgement, or of that of a read that saw it; [`NEVER`] if there
    /// was neither.
    end: u64,
    /// Whether it changed something; `None` if that is not known.
    effective: Option<bool>,
    /// The version that a read returned.
    seen: Version,
    /// Whether a wait or a read has shown that it is durable.
    is_durable: bool,
}

/// The operations of a round, from its records.
#[derive(Default)]
pub(super) struct History {
    ops: HashMap<(u8, u32), Vec<Op>>,
    /// Operations announced.
    pub(super) announced: u64,
    /// Operations acknowledged.
    pub(super) acknowledged: u64,
    /// The position at which the last acknowledged sync was announced.
    synced_until: Option<u64>,
}

impl History {
    /// Adds the numbers of operations.
    pub(super) fn add_to(&self, tally: &mut Tally) {
        tally.operations += self.announced;
        tally.acknowledged += self.acknowledged;
    }

    /// Reads the records of a round. The last one may be cut off, and zeros may follow: its
    /// operation had not begun.
    pub(super) fn read(said: &[u8], work: &Work) -> Result<Self, String> {
        let mut history = Self::default();
        let mut last: HashMap<u8, (u8, u32, usize)> = HashMap::new();
        // What each thread did since its last sync.
        let mut since: HashMap<u8, Vec<(u8, u32, usize)>> = HashMap::new();
        let records = said.as_chunks::<RECORD_BYTES>().0;
        for (place, bytes) in records.iter().enumerate() {
            let Some(record) = Record::decode(bytes)
                .filter(|record| record.key < work.places() && record.tree < work.tree_count())
            else {
                let rest = &said[(place + 1) * RECORD_BYTES..];
                if rest.iter().all(|byte| *byte == 0) {
                    break;
                }
                return Err(format!("record {place} of the writer makes no sense"));
            };
            let position = place as u64 + 1;
            match (last.get(&record.thread), record.answer) {
                (Some(&(tree, key, index)), Some(answer)) => {
                    if let Some(op) = history
                        .ops
                        .get_mut(&(tree, key))
                        .and_then(|ops| ops.get_mut(index))
                    {
                        (op.end, op.effective, op.seen) = (position, Some(answer), record.seen);
                        let done = since.entry(record.thread).or_default();
                        if op.kind == Kind::Sync {
                            history.synced_until = history.synced_until.max(Some(op.begin));
                            done.drain(..).for_each(|(tree, key, index)| {
                                let op = history
                                    .ops
                                    .get_mut(&(tree, key))
                                    .and_then(|ops| ops.get_mut(index));
                                op.into_iter().for_each(|op| op.is_durable = true);
                            });
                        } else {
                            done.push((tree, key, index));
                        }
                    }
                    history.acknowledged += 1;
                }
                (None, None) => {}
                _ => return Err(format!("record {place} of the writer does not follow")),
            }
            let ops = history.ops.entry((record.tree, record.key)).or_default();
            last.insert(record.thread, (record.tree, record.key, ops.len()));
            ops.push(Op {
                kind: record.kind,
                version: record.version,
                expected: record.expected,
                begin: position,
                end: NEVER,
                effective: None,
                seen: 0,
                is_durable: false,
            });
            history.announced += 1;
        }
        Ok(history)
    }
}

/// The content of the trees, and the work of their writers.
pub(super) struct Model {
    contents: Contents,
    work: Work,
}

/// The moments up to which acknowledged operations must be present.
struct Until {
    /// For what is durable by epochs.
    by_epochs: u64,
    /// For everything else.
    other: u64,
}

impl Until {
    fn of(&self, is_by_epochs: bool) -> u64 {
        if is_by_epochs {
            self.by_epochs
        } else {
            self.other
        }
    }
}

impl Model {
    /// Trees with this content.
    pub(super) fn new(contents: Contents, work: Work) -> Self {
        Self { contents, work }
    }

    /// All acknowledged operations must be present, if an operation is durable when it returns.
    /// Otherwise those acknowledged before the last sync began, or before any operation on any tree
    /// began that is present: a log, or an epoch, is kept up to some place, for all trees. Only
    /// what lies in an epoch tells how far epochs are kept. With tickets a wait covers only the
    /// writes of its own thread.
    fn durable_until(&self, history: &History, batches: &Batches, found: &Contents) -> Until {
        let begins = history.ops.iter().filter_map(|((tree, key), ops)| {
            let (before, now) = (
                self.contents.version(*tree, *key),
                found.version(*tree, *key),
            );
            let is_there = |op: &&Op| match now {
                // One of the removals took effect; which one is not known.
                0 => before != 0 && op.kind.removes() && op.effective != Some(false),
                _ => op.kind.writes() && op.version == now,
            };
            let begin = ops.iter().filter(is_there).map(|op| op.begin).min()?;
            Some((begin, self.work.engine(*tree).is_buffered()))
        });
        let synced = history
            .synced_until
            .filter(|_| self.work.durability != Promise::Ticket);
        let begins: Vec<(u64, bool)> = begins
            .chain(batches.begins())
            .chain(synced.map(|begin| (begin, true)))
            .collect();
        let last = |only_epochs: bool| {
            let begins = begins
                .iter()
                .filter(|(_, is_by_epochs)| *is_by_epochs || !only_epochs);
            begins.map(|(begin, _)| *begin).max().unwrap_or(BEFORE)
        };
        let is_immediate = self.work.durability == Promise::Store(Durability::Immediate);
        Until {
            by_epochs: last(true),
            other: if is_immediate { NEVER } else { last(false) },
        }
    }

    /// How many keys the trees have.
    pub(super) fn count(&self) -> u64 {
        (0..self.work.tree_count())
            .map(|tree| self.contents.count(tree))
            .sum()
    }

    /// Checks the content found after a round, counts how pending operations ended, and takes the
    /// content over.
    pub(super) fn judge(
        &mut self,
        mut history: History,
        found: Contents,
        tally: &mut Tally,
        violations: &mut Vec<String>,
    ) {
        let batches = Batches::find(&mut history, &self.work, &self.contents, &found, violations);
        let until = self.durable_until(&history, &batches, &found);
        batches.judge(
            &self.work,
            &self.contents,
            &found,
            &until,
            tally,
            violations,
        );
        for tree in 0..self.work.tree_count() {
            let until = until.of(self.work.engine(tree).is_buffered());
            let reads_durable = !self.work.is_buffered(tree);
            for key in 0..self.work.keys {
                let now = found.version(tree, key);
                let before = self.contents.version(tree, key);
                let mut ops = history.ops.remove(&(tree, key)).unwrap_or_default();
                let owned = owner(key, self.work.threads).is_some();
                if let Err(what) = judge_key(before, &mut ops, now, owned, until, reads_durable) {
                    violations.push(format!(
                        "tree {:?}, key {key}: {what}; before the round {before:#x}, now {now:#x}, told: {}",
                        self.work.tree_name(tree),
                        tell(&ops)
                    ));
                }
                for op in ops.iter().filter(|op| op.end == NEVER && op.kind.writes()) {
                    let is_done = op.version == now;
                    *if is_done {
                        &mut tally.pending_done
                    } else {
                        &mut tally.pending_undone
                    } += 1;
                }
            }
        }
        self.contents = found;
    }
}

/// The last operations on a key, as text.
fn tell(ops: &[Op]) -> String {
    let last = ops.iter().rev().take(8).rev();
    let words: Vec<String> = last
        .map(|op| {
            let answer = op
                .effective
                .map_or("pending".to_owned(), |answer| answer.to_string());
            format!(
                "{:?} {:#x} ({:#x}) at {}: {answer}",
                op.kind, op.version, op.expected, op.begin
            )
        })
        .collect();
    words.join(", ")
}

/// Checks that the version `now` can follow from the version `before` and the recorded operations.
fn judge_key(
    before: Version,
    ops: &mut [Op],
    now: Version,
    owned: bool,
    until: u64,
    reads_durable: bool,
) -> Result<(), String> {
    note_reads(before, ops, reads_durable)?;
    if owned {
        judge_answers(before, ops)?;
    }
    // The change that wrote this version: no change that certainly came after it may have been
    // acknowledged.
    let made = if now == 0 {
        end_of_last_removal(before, ops)
    } else {
        end_of_write(before, ops, now)
    };
    let Some(made) = made else {
        let what = if now == 0 {
            "the key is lost: no operation removed it"
        } else {
            "no operation wrote this value"
        };
        return Err(what.to_owned());
    };
    let later = ops.iter().find(|op| {
        let (differs, is_durable) = match op.kind {
            // Each version is written once, so one that a read found replaced does not come back.
            Kind::Get => (op.seen != now, reads_durable),
            _ => (
                op.effective == Some(true) && (now == 0 || op.version != now),
                op.is_durable,
            ),
        };
        let is_kept = op.end != NEVER && (op.end <= until || is_durable);
        op.kind != Kind::Sync && differs && is_kept && op.begin >= made
    });
    match later {
        Some(Op {
            kind: Kind::Get,
            seen,
            ..
        }) => Err(format!("{seen:#x} was read, and is lost")),
        Some(op) => Err(format!(
            "an acknowledged {:?} of {:#x} is lost",
            op.kind, op.version
        )),
        None => Ok(()),
    }
}

/// A version that was read is durable: its write counts as acknowledged when the read was. It must
/// be one that was written to this key before the read ended. With epochs it may still be lost.
fn note_reads(before: Version, ops: &mut [Op], is_durable: bool) -> Result<(), String> {
    for index in 0..ops.len() {
        let Op {
            kind: Kind::Get,
            seen,
            end,
            ..
        } = ops[index]
        else {
            continue;
        };
        if seen == 0 || end == NEVER || seen == before {
            continue;
        }
        let write = ops
            .iter_mut()
            .find(|op| op.kind.writes() && op.version == seen);
        let Some(write) = write.filter(|write| write.begin < end && write.effective != Some(false))
        else {
            return Err(format!(
                "a read saw {seen:#x}, which no operation had written"
            ));
        };
        if is_durable {
            (write.end, write.effective, write.is_durable) = (write.end.min(end), Some(true), true);
        }
    }
    Ok(())
}

/// The answers on a key that one thread alone uses are those of a map.
fn judge_answers(before: Version, ops: &[Op]) -> Result<(), String> {
    let mut state = before;
    for op in ops {
        let Some(answer) = op.effective.filter(|_| op.end != NEVER) else {
            continue;
        };
        let (holds, new) = match op.kind {
            Kind::Insert => (state == 0, op.version),
            Kind::Update => (state != 0, op.version),
            Kind::Put => (true, op.version),
            Kind::Remove => (state != 0, 0),
            Kind::Exchange => (state == op.expected, op.version),
            Kind::ExchangeOut => (state == op.expected, 0),
            Kind::Get => (state != 0, state),
            Kind::Sync | Kind::Batch => (true, state),
        };
        if answer != holds || op.kind == Kind::Get && op.seen != state {
            return Err(format!(
                "{:?} of {:#x} answered {answer} while {state:#x} was there",
                op.kind, op.version
            ));
        }
        if holds {
            state = new;
        }
    }
    Ok(())
}

/// The position at which the write of the present version was acknowledged; `None` if there is
/// none.
fn end_of_write(before: Version, ops: &[Op], now: Version) -> Option<u64> {
    if now == before {
        return Some(BEFORE);
    }
    let write = ops
        .iter()
        .find(|op| op.kind.writes() && op.version == now && op.effective != Some(false));
    write.map(|op| op.end)
}

/// The position of the last acknowledged removal; `None` if the key cannot be absent.
fn end_of_last_removal(before: Version, ops: &[Op]) -> Option<u64> {
    let removals = ops
        .iter()
        .filter(|op| op.kind.removes() && op.effective != Some(false))
        .map(|op| op.end);
    removals.chain((before == 0).then_some(BEFORE)).max()
}

#[cfg(test)]
mod tests;
