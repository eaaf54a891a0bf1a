//! What must be in the pool after a writer was killed: the model, and the verdict on each key.

use std::collections::HashMap;

use super::op::{Kind, RECORD_BYTES, Record, TREES, Version, owner};
use super::promise::Promise;
use super::verify::Contents;
use super::{Tally, Work};

/// The positions of records in the pipe order operations in time: a record says how one operation ended, and which one
/// begins. This position is before all of them: that of what the round found.
const BEFORE: u64 = 0;
/// An operation that was never acknowledged.
const NEVER: u64 = u64::MAX;

/// An operation on a key, as records tell it.
#[derive(Clone, Copy, Debug)]
struct Op {
    kind: Kind,
    version: Version,
    expected: Version,
    /// Where it was announced.
    begin: u64,
    /// Where it was acknowledged, or a reader's view of it was; [`NEVER`] if neither was.
    end: u64,
    /// Whether it changed something; `None` if that is not known.
    effective: Option<bool>,
    /// What a read saw.
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
    /// Where the last sync that was acknowledged had been announced.
    synced_until: Option<u64>,
}

impl History {
    /// Adds how many operations there were.
    pub(super) fn add_to(&self, tally: &mut Tally) {
        tally.operations += self.announced;
        tally.acknowledged += self.acknowledged;
    }

    /// Reads the records of a round. The last one may be cut off, and zeros may follow: its operation had not begun.
    pub(super) fn read(said: &[u8], keys: u32) -> Result<Self, String> {
        let mut history = Self::default();
        let mut last: HashMap<u8, (u8, u32, usize)> = HashMap::new();
        // What each thread did since its last sync.
        let mut since: HashMap<u8, Vec<(u8, u32, usize)>> = HashMap::new();
        let records = said.as_chunks::<RECORD_BYTES>().0;
        for (place, bytes) in records.iter().enumerate() {
            let Some(record) = Record::decode(bytes).filter(|record| record.key < keys) else {
                let rest = &said[(place + 1) * RECORD_BYTES..];
                if rest.iter().all(|byte| *byte == 0) {
                    break;
                }
                return Err(format!("record {place} of the writer makes no sense"));
            };
            let position = place as u64 + 1;
            match (last.get(&record.thread), record.answer) {
                (Some(&(tree, key, index)), Some(answer)) => {
                    if let Some(op) = history.ops.get_mut(&(tree, key)).and_then(|ops| ops.get_mut(index)) {
                        (op.end, op.effective, op.seen) = (position, Some(answer), record.seen);
                        let done = since.entry(record.thread).or_default();
                        if op.kind == Kind::Sync {
                            history.synced_until = history.synced_until.max(Some(op.begin));
                            done.drain(..).for_each(|(tree, key, index)| {
                                let op = history.ops.get_mut(&(tree, key)).and_then(|ops| ops.get_mut(index));
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

/// What is in the trees, and what their writers do.
pub(super) struct Model {
    contents: Contents,
    work: Work,
    /// Whether what was acknowledged may be lost until a sync was acknowledged.
    is_buffered: bool,
    /// Whether a write is durable when its own thread has waited for it. What was read is durable all the same.
    has_tickets: bool,
}

impl Model {
    /// Trees with this in them.
    pub(super) fn new(contents: Contents, work: Work) -> Self {
        let promise = work.durability;
        let (is_buffered, has_tickets) = (promise.is_buffered(work.engine), promise == Promise::Ticket);
        Self { contents, work, is_buffered, has_tickets }
    }

    /// Up to which moment what was acknowledged must be there: always all, if an operation is durable when it returns. Else
    /// what was acknowledged before the last sync began, or before any operation began that is there: a log, and an epoch,
    /// is there up to some place. With tickets a wait is only for what its own thread wrote.
    fn durable_until(&self, tree: u8, history: &History, found: &Contents) -> u64 {
        if !self.is_buffered && !self.has_tickets {
            return NEVER;
        }
        let of_tree = history.ops.iter().filter(|((other, _), _)| *other == tree);
        let begins = of_tree.filter_map(|((_, key), ops)| {
            let (before, now) = (self.contents.version(tree, *key), found.version(tree, *key));
            let is_there = |op: &&Op| match now {
                // One of the removals took effect; which one is not known.
                0 => before != 0 && op.kind.removes() && op.effective != Some(false),
                _ => op.kind.writes() && op.version == now,
            };
            ops.iter().filter(is_there).map(|op| op.begin).min()
        });
        let synced = history.synced_until.filter(|_| !self.has_tickets);
        begins.chain(synced).max().unwrap_or(BEFORE)
    }

    /// How many keys the trees have.
    pub(super) fn count(&self) -> u64 {
        (0..TREES.len() as u8).map(|tree| self.contents.count(tree)).sum()
    }

    /// Judges what was found after a round, counts how pending operations ended, and takes over what was found.
    pub(super) fn judge(
        &mut self,
        mut history: History,
        found: Contents,
        tally: &mut Tally,
        violations: &mut Vec<String>,
    ) {
        for tree in 0..TREES.len() as u8 {
            let until = self.durable_until(tree, &history, &found);
            for key in 0..self.work.keys {
                let now = found.version(tree, key);
                let before = self.contents.version(tree, key);
                let mut ops = history.ops.remove(&(tree, key)).unwrap_or_default();
                let owned = owner(key, self.work.threads).is_some();
                if let Err(what) = judge_key(before, &mut ops, now, owned, until, !self.is_buffered) {
                    violations.push(format!(
                        "tree {:?}, key {key}: {what}; before the round {before:#x}, now {now:#x}, told: {}",
                        TREES[usize::from(tree)],
                        tell(&ops)
                    ));
                }
                for op in ops.iter().filter(|op| op.end == NEVER && op.kind.writes()) {
                    let is_done = op.version == now;
                    *if is_done { &mut tally.pending_done } else { &mut tally.pending_undone } += 1;
                }
            }
        }
        self.contents = found;
    }
}

/// The last operations on a key, for people.
fn tell(ops: &[Op]) -> String {
    let last = ops.iter().rev().take(8).rev();
    let words: Vec<String> = last
        .map(|op| {
            let answer = op.effective.map_or("pending".to_owned(), |answer| answer.to_string());
            format!("{:?} {:#x} ({:#x}) at {}: {answer}", op.kind, op.version, op.expected, op.begin)
        })
        .collect();
    words.join(", ")
}

/// Whether what is `now` there can follow from what was there `before` and the operations told.
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
    // The change that made what is there, by the end of it: nothing that surely came later may have changed the key.
    let made = if now == 0 { end_of_last_removal(before, ops) } else { end_of_write(before, ops, now) };
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
            // What was read over, of versions that are written once, does not come back.
            Kind::Get => (op.seen != now, reads_durable),
            _ => (op.effective == Some(true) && (now == 0 || op.version != now), op.is_durable),
        };
        let is_kept = op.end != NEVER && (op.end <= until || is_durable);
        op.kind != Kind::Sync && differs && is_kept && op.begin >= made
    });
    match later {
        Some(Op { kind: Kind::Get, seen, .. }) => Err(format!("{seen:#x} was read, and is lost")),
        Some(op) => Err(format!("an acknowledged {:?} of {:#x} is lost", op.kind, op.version)),
        None => Ok(()),
    }
}

/// A version that was read is durable: its write counts as acknowledged when the read was. It must be one that was
/// written to this key before the read ended. With epochs it may be lost all the same.
fn note_reads(before: Version, ops: &mut [Op], is_durable: bool) -> Result<(), String> {
    for index in 0..ops.len() {
        let Op { kind: Kind::Get, seen, end, .. } = ops[index] else { continue };
        if seen == 0 || end == NEVER || seen == before {
            continue;
        }
        let write = ops.iter_mut().find(|op| op.kind.writes() && op.version == seen);
        let Some(write) = write.filter(|write| write.begin < end && write.effective != Some(false)) else {
            return Err(format!("a read saw {seen:#x}, which no operation had written"));
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
        let Some(answer) = op.effective.filter(|_| op.end != NEVER) else { continue };
        let (holds, new) = match op.kind {
            Kind::Insert => (state == 0, op.version),
            Kind::Update => (state != 0, op.version),
            Kind::Put => (true, op.version),
            Kind::Remove => (state != 0, 0),
            Kind::Exchange => (state == op.expected, op.version),
            Kind::ExchangeOut => (state == op.expected, 0),
            Kind::Get => (state != 0, state),
            Kind::Sync => (true, state),
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

/// Where the write of the version that is there was acknowledged; `None` if there is none.
fn end_of_write(before: Version, ops: &[Op], now: Version) -> Option<u64> {
    if now == before {
        return Some(BEFORE);
    }
    let write = ops.iter().find(|op| op.kind.writes() && op.version == now && op.effective != Some(false));
    write.map(|op| op.end)
}

/// Where the removal that was acknowledged last was; `None` if the key cannot be absent.
fn end_of_last_removal(before: Version, ops: &[Op]) -> Option<u64> {
    let removals = ops.iter().filter(|op| op.kind.removes() && op.effective != Some(false)).map(|op| op.end);
    removals.chain((before == 0).then_some(BEFORE)).max()
}

#[cfg(test)]
mod tests;
