//! The content that the pool must have after a writer was killed, and the check of each key.

use engines::index::Condition;

use super::batches::TransferBatches;
use super::history::{BEFORE, NEVER, RecordedOperation};
use super::{
    Acknowledged, Contents, OperationKind, RoundHistory, Tally, TortureWorkload, ValueVersion,
    owner,
};
use crate::specification::holds;

/// The content of the trees, and the work of their writers.
pub struct Oracle {
    contents: Contents,
    workload: TortureWorkload,
}

/// The moments up to which acknowledged operations must be present.
pub(super) struct DurableUntil {
    /// For operations that are durable by epochs.
    by_epochs: u64,
    /// For all others.
    other: u64,
}

impl DurableUntil {
    pub(super) fn of(&self, is_by_epochs: bool) -> u64 {
        if is_by_epochs {
            self.by_epochs
        } else {
            self.other
        }
    }
}

/// An operation that the pool holds, or an acknowledged sync. All operations before it are durable.
pub(super) struct Landmark {
    /// When it began.
    pub(super) begin: u64,
    /// Whether it is part of an epoch, or ended one.
    pub(super) is_by_epochs: bool,
}

/// The moment up to which the latest of some landmarks reaches.
fn latest<'l>(landmarks: impl Iterator<Item = &'l Landmark>) -> u64 {
    landmarks
        .map(|landmark| landmark.begin)
        .max()
        .unwrap_or(BEFORE)
}

impl Oracle {
    /// Trees with this content.
    pub fn new(contents: Contents, workload: TortureWorkload) -> Self {
        Self { contents, workload }
    }

    /// The moments up to which acknowledged operations must be present. If an operation is durable
    /// when it returns, all of them must. Otherwise those must that were acknowledged before the
    /// last sync began, or before the beginning of any operation, on any tree, that is present: a
    /// crash keeps a log or the epochs up to one place, for all trees. Only operations in an epoch
    /// tell how far epochs are kept. With tickets a wait covers only the writes of its own thread.
    fn durable_until(
        &self,
        history: &RoundHistory,
        batches: &TransferBatches,
        found: &Contents,
    ) -> DurableUntil {
        let mut landmarks = self.present_operations(history, found);
        landmarks.extend(batches.landmarks());
        if let Some(begin) = history.synced_until
            && self.workload.acknowledged != Acknowledged::ByTicket
        {
            landmarks.push(Landmark {
                begin,
                is_by_epochs: true,
            });
        }
        let other = if self.workload.acknowledged == Acknowledged::Durable {
            NEVER
        } else {
            latest(landmarks.iter())
        };
        let of_epochs = landmarks.iter().filter(|landmark| landmark.is_by_epochs);
        DurableUntil {
            by_epochs: latest(of_epochs),
            other,
        }
    }

    /// For each key that changed, the first operation that may have made its present state.
    fn present_operations(&self, history: &RoundHistory, found: &Contents) -> Vec<Landmark> {
        let mut present = Vec::new();
        for (at, operations) in &history.operations {
            let before = self.contents.version(at.tree, at.key);
            let now = found.version(at.tree, at.key);
            let is_present = |operation: &&RecordedOperation| {
                if now == 0 {
                    // One of the removals took effect; which one is not known.
                    before != 0 && operation.kind.removes() && operation.effective != Some(false)
                } else {
                    operation.kind.writes() && operation.version == now
                }
            };
            let begins = operations
                .iter()
                .filter(is_present)
                .map(|operation| operation.begin);
            if let Some(begin) = begins.min() {
                present.push(Landmark {
                    begin,
                    is_by_epochs: self.workload.engine(at.tree).is_buffered(),
                });
            }
        }
        present
    }

    /// How many keys the trees have.
    pub fn count(&self) -> u64 {
        (0..self.workload.tree_count())
            .map(|tree| self.contents.count(tree))
            .sum()
    }

    /// Checks the content found after a round, counts how pending operations ended, and takes the
    /// content over.
    pub fn judge(
        &mut self,
        mut history: RoundHistory,
        found: Contents,
        tally: &mut Tally,
        violations: &mut Vec<String>,
    ) {
        let batches = TransferBatches::find(
            &mut history,
            &self.workload,
            &self.contents,
            &found,
            violations,
        );
        let until = self.durable_until(&history, &batches, &found);
        batches.judge(
            &self.workload,
            &self.contents,
            &found,
            &until,
            tally,
            violations,
        );
        for tree in 0..self.workload.tree_count() {
            let rules = KeyRules {
                until: until.of(self.workload.engine(tree).is_buffered()),
                are_reads_durable: !self.workload.is_buffered(tree),
            };
            for key in 0..self.workload.keys {
                let before = self.contents.version(tree, key);
                let now = found.version(tree, key);
                let mut operations = history.take(tree, key);
                let is_owned = owner(key, self.workload.threads).is_some();
                if let Err(what) = judge_key(before, &mut operations, now, is_owned, &rules) {
                    violations.push(format!(
                        "tree {:?}, key {key}: {what}; before the round {before:#x}, now {now:#x}, told: {}",
                        self.workload.tree_name(tree),
                        tell(&operations)
                    ));
                }
                count_pending(&operations, now, tally);
            }
        }
        self.contents = found;
    }
}

/// Counts how pending writes to a key ended.
fn count_pending(operations: &[RecordedOperation], now: ValueVersion, tally: &mut Tally) {
    for operation in operations {
        if operation.end != NEVER || !operation.kind.writes() {
            continue;
        }
        if operation.version == now {
            tally.pending_done += 1;
        } else {
            tally.pending_undone += 1;
        }
    }
}

/// The last operations on a key, as text.
fn tell(operations: &[RecordedOperation]) -> String {
    let last = operations.iter().rev().take(8).rev();
    let words: Vec<String> = last
        .map(|operation| {
            format!(
                "{:?} {:#x} ({:#x}) at {}: {}",
                operation.kind,
                operation.version,
                operation.expected,
                operation.begin,
                operation.answer()
            )
        })
        .collect();
    words.join(", ")
}

/// What holds for the keys of a tree.
struct KeyRules {
    /// The moment up to which acknowledged operations must be present.
    until: u64,
    /// Whether a value that was read is durable.
    are_reads_durable: bool,
}

impl KeyRules {
    /// Whether a crash must keep the change of an operation, or the value that it read.
    fn must_keep(&self, operation: &RecordedOperation) -> bool {
        let is_durable = match operation.kind {
            OperationKind::Get => self.are_reads_durable,
            _ => operation.is_durable,
        };
        operation.end != NEVER && (operation.end <= self.until || is_durable)
    }
}

/// Whether an operation shows that a key had another state than its present one when it took
/// effect.
fn contradicts(operation: &RecordedOperation, now: ValueVersion) -> bool {
    match operation.kind {
        OperationKind::Sync => false,
        // Each version is written once, so one that a read found replaced does not come back.
        OperationKind::Get => operation.seen != now,
        _ => operation.effective == Some(true) && (now == 0 || operation.version != now),
    }
}

/// Checks that the version `now` can follow from the version `before` and the recorded operations.
fn judge_key(
    before: ValueVersion,
    operations: &mut [RecordedOperation],
    now: ValueVersion,
    is_owned: bool,
    rules: &KeyRules,
) -> Result<(), String> {
    note_reads(before, operations, rules.are_reads_durable)?;
    if is_owned {
        judge_answers(before, operations)?;
    }
    // The end of the change that made the present state. No operation that certainly came after it
    // may contradict that state.
    let made = if now == 0 {
        end_of_last_removal(before, operations).ok_or("the key is lost: no operation removed it")?
    } else {
        end_of_write(before, operations, now).ok_or("no operation wrote this value")?
    };
    let lost = operations.iter().find(|operation| {
        operation.begin >= made && contradicts(operation, now) && rules.must_keep(operation)
    });
    match lost {
        None => Ok(()),
        Some(operation) if operation.kind == OperationKind::Get => {
            Err(format!("{:#x} was read, and is lost", operation.seen))
        }
        Some(operation) => Err(format!(
            "an acknowledged {:?} of {:#x} is lost",
            operation.kind, operation.version
        )),
    }
}

/// A version that was read is durable: its write counts as acknowledged when the read was. It must
/// be one that was written to this key before the read ended. With epochs it may still be lost.
fn note_reads(
    before: ValueVersion,
    operations: &mut [RecordedOperation],
    is_durable: bool,
) -> Result<(), String> {
    for index in 0..operations.len() {
        let read = operations[index];
        let is_told = read.kind == OperationKind::Get && read.end != NEVER;
        if !is_told || read.seen == 0 || read.seen == before {
            continue;
        }
        let write = operations
            .iter_mut()
            .find(|operation| operation.kind.writes() && operation.version == read.seen);
        match write {
            Some(write) if write.begin < read.end && write.effective != Some(false) => {
                if is_durable {
                    write.end = write.end.min(read.end);
                    write.effective = Some(true);
                    write.is_durable = true;
                }
            }
            _ => {
                return Err(format!(
                    "a read saw {:#x}, which no operation had written",
                    read.seen
                ));
            }
        }
    }
    Ok(())
}

/// The condition that a key with this version exists, or that there is none.
fn condition_of(version: ValueVersion) -> Condition<ValueVersion> {
    if version == 0 {
        Condition::Absent
    } else {
        Condition::Equals(version)
    }
}

/// The answers on a key that one thread alone uses are those of a map.
fn judge_answers(before: ValueVersion, operations: &[RecordedOperation]) -> Result<(), String> {
    let mut state = before;
    for operation in operations {
        let Some(answer) = operation.effective else {
            continue;
        };
        if operation.end == NEVER {
            continue;
        }
        let condition = match operation.kind {
            OperationKind::Insert => Condition::Absent,
            OperationKind::Update | OperationKind::Remove | OperationKind::Get => {
                Condition::Present
            }
            OperationKind::Exchange | OperationKind::ExchangeOut => {
                condition_of(operation.expected)
            }
            OperationKind::Put | OperationKind::Sync | OperationKind::Batch => Condition::Always,
        };
        let current = (state != 0).then_some(&state);
        let is_right = answer == holds(&condition, current);
        let is_right_version = operation.kind != OperationKind::Get || operation.seen == state;
        if !is_right || !is_right_version {
            return Err(format!(
                "{:?} of {:#x} answered {answer} while {state:#x} was there",
                operation.kind, operation.version
            ));
        }
        if answer && operation.kind.writes() {
            state = operation.version;
        } else if answer && operation.kind.removes() {
            state = 0;
        }
    }
    Ok(())
}

/// The position at which the write of the present version was acknowledged; `None` if there is
/// none.
fn end_of_write(
    before: ValueVersion,
    operations: &[RecordedOperation],
    now: ValueVersion,
) -> Option<u64> {
    if now == before {
        return Some(BEFORE);
    }
    let write = operations.iter().find(|operation| {
        operation.kind.writes() && operation.version == now && operation.effective != Some(false)
    })?;
    Some(write.end)
}

/// The position of the last acknowledged removal; `None` if the key cannot be absent.
fn end_of_last_removal(before: ValueVersion, operations: &[RecordedOperation]) -> Option<u64> {
    let removals = operations
        .iter()
        .filter(|operation| operation.kind.removes() && operation.effective != Some(false))
        .map(|operation| operation.end);
    let at_start = if before == 0 { Some(BEFORE) } else { None };
    removals.max().or(at_start)
}

#[cfg(test)]
mod tests;
