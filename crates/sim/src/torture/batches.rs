//! The check of batches: each is present wholly or not at all, all that must be durable are
//! present, and every balance follows from them.

use super::history::{NEVER, RecordedOperation};
use super::oracle::{DurableUntil, Landmark};
use super::transfer::{Transfer, account_keys, ledger};
use super::{BatchTally, Contents, RoundHistory, Tally, TortureWorkload, ValueVersion};

/// A batch of a round.
struct TransferBatch {
    thread: u8,
    operation: RecordedOperation,
    transfer: Transfer,
    /// The trees in which it is found.
    found_in: Vec<u8>,
}

/// The batches of a round.
#[derive(Default)]
pub(super) struct TransferBatches(Vec<TransferBatch>);

impl TransferBatches {
    /// Takes the batches out of the history and finds them in the ledgers: if a batch is in a tree,
    /// so are all of the same thread before it, as far as they wrote to that tree.
    pub(super) fn find(
        history: &mut RoundHistory,
        workload: &TortureWorkload,
        before: &Contents,
        found: &Contents,
        violations: &mut Vec<String>,
    ) -> Self {
        let mut all = Vec::new();
        if !workload.batches {
            return Self(all);
        }
        for thread in 0..workload.threads {
            let key = ledger(workload, thread);
            let mut batches: Vec<TransferBatch> = history
                .take(0, key)
                .into_iter()
                .map(|operation| TransferBatch {
                    thread,
                    operation,
                    transfer: Transfer::of(operation.version, workload),
                    found_in: Vec::new(),
                })
                .collect();
            for tree in 0..workload.tree_count() {
                let now = found.version(tree, key);
                if now == before.version(tree, key) {
                    continue;
                }
                let is_known = batches
                    .iter()
                    .any(|batch| batch.writes_to(tree) && batch.operation.version == now);
                if is_known {
                    for batch in &mut batches {
                        batch.find_in(tree, now);
                    }
                } else {
                    let name = workload.tree_name(tree);
                    violations.push(format!(
                        "tree {name:?}: no batch of thread {thread} wrote {now:#x}"
                    ));
                }
            }
            all.append(&mut batches);
        }
        Self(all)
    }

    /// The batches that are present.
    pub(super) fn landmarks(&self) -> impl Iterator<Item = Landmark> {
        let present = self.0.iter().filter(|batch| !batch.found_in.is_empty());
        present.map(|batch| Landmark {
            begin: batch.operation.begin,
            // An epoch had to end for it.
            is_by_epochs: batch.transfer.needs_epoch(),
        })
    }

    /// Checks each batch, and all balances; counts how batches ended.
    pub(super) fn judge(
        self,
        workload: &TortureWorkload,
        before: &Contents,
        found: &Contents,
        until: &DurableUntil,
        tally: &mut Tally,
        violations: &mut Vec<String>,
    ) {
        if !workload.batches {
            return;
        }
        let counts = tally.batches.get_or_insert_default();
        for batch in &self.0 {
            if let Err(what) = batch.judge(until, counts) {
                violations.push(format!(
                    "batch {:#x} of thread {} {what}; told at {}: {}",
                    batch.operation.version,
                    batch.thread,
                    batch.operation.begin,
                    batch.operation.answer()
                ));
            }
            if batch.operation.end != NEVER {
                continue;
            }
            if batch.found_in.is_empty() {
                counts.pending_undone += 1;
                tally.pending_undone += 1;
            } else {
                counts.pending_done += 1;
                tally.pending_done += 1;
            }
        }
        self.judge_balances(workload, before, found, violations);
    }

    /// Checks that each balance is the one before the round plus the amounts of the batches that
    /// are present, and that no money was made or lost.
    fn judge_balances(
        &self,
        workload: &TortureWorkload,
        before: &Contents,
        found: &Contents,
        violations: &mut Vec<String>,
    ) {
        let expected = self.apply_to(before);
        let mut sum = 0_u64;
        for tree in 0..workload.tree_count() {
            for key in account_keys(workload) {
                let expected = expected.version(tree, key);
                let now = found.version(tree, key);
                sum = sum.wrapping_add(now);
                if now != expected {
                    violations.push(format!(
                        "tree {:?}: account {} has {}, with the batches that are there it has {}",
                        workload.tree_name(tree),
                        key - workload.keys,
                        now.cast_signed(),
                        expected.cast_signed()
                    ));
                }
            }
        }
        if sum != 0 {
            violations.push(format!(
                "the sum of all accounts is {}, and was 0",
                sum.cast_signed()
            ));
        }
    }

    /// The accounts after the batches that are present, each in the trees in which it was found.
    fn apply_to(&self, before: &Contents) -> Contents {
        let mut after = before.clone();
        for batch in &self.0 {
            for step in &batch.transfer.moves {
                if batch.found_in.contains(&step.tree) {
                    let balance = after.version(step.tree, step.key);
                    after.set_version(step.tree, step.key, balance.wrapping_add(step.amount));
                }
            }
        }
        after
    }
}

impl TransferBatch {
    fn writes_to(&self, tree: u8) -> bool {
        self.transfer.trees.contains(&tree)
    }

    /// Notes that it is in a tree, if it wrote to that tree and the thread's ledger there has its
    /// version or a later one.
    fn find_in(&mut self, tree: u8, ledger: ValueVersion) {
        // A refused batch is found only if the ledger has its own version.
        let is_refused = self.operation.effective == Some(false);
        let is_found = !is_refused || self.operation.version == ledger;
        if is_found && self.operation.version <= ledger && self.writes_to(tree) {
            self.found_in.push(tree);
        }
    }

    fn judge(&self, until: &DurableUntil, counts: &mut BatchTally) -> Result<(), String> {
        let is_written = self.operation.effective == Some(true);
        let is_refused = self.operation.effective == Some(false);
        let is_found = !self.found_in.is_empty();
        counts.written += u64::from(is_written);
        counts.refused += u64::from(is_refused);
        if is_refused && is_found {
            return Err(format!("was refused, and is in trees {:?}", self.found_in));
        }
        if is_found && self.found_in != self.transfer.trees {
            return Err(format!(
                "is torn: of its trees {:?} it is in {:?}",
                self.transfer.trees, self.found_in
            ));
        }
        if is_written && !is_found {
            self.judge_loss(until)?;
            counts.lost_before_durable += 1;
        }
        Ok(())
    }

    /// Refuses the loss of a batch that was acknowledged and must be durable.
    fn judge_loss(&self, until: &DurableUntil) -> Result<(), String> {
        let must_be_present = self.operation.end <= until.of(self.transfer.is_by_epochs());
        if must_be_present || self.operation.is_durable {
            return Err(format!(
                "was acknowledged, and is lost from its trees {:?}",
                self.transfer.trees
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
