//! The check of batches: of each all or nothing, all that were acknowledged, and no balance that
//! does not follow from them.

use super::super::transfer::{Move, Transfer, accounts, ledger};
use super::super::{BatchTally, Tally, Work};
use super::{Contents, History, NEVER, Op, Until};

/// A batch of a round.
struct Batch {
    thread: u8,
    op: Op,
    transfer: Transfer,
    /// The trees in which it is found.
    found_in: Vec<u8>,
}

/// The batches of a round.
#[derive(Default)]
pub(super) struct Batches(Vec<Batch>);

impl Batches {
    /// Takes the batches out of the history and finds them in the ledgers: if a batch is in a tree,
    /// so are all of the same thread before it, as far as they wrote to that tree.
    pub(super) fn find(
        history: &mut History,
        work: &Work,
        before: &Contents,
        found: &Contents,
        violations: &mut Vec<String>,
    ) -> Self {
        let mut all = Vec::new();
        for thread in (0..work.threads).filter(|_| work.batches) {
            let key = ledger(work, thread);
            let ops = history.ops.remove(&(0, key)).unwrap_or_default();
            let with_transfer = |op: Op| Batch {
                thread,
                op,
                transfer: Transfer::of(op.version, work),
                found_in: Vec::new(),
            };
            let mut batches: Vec<Batch> = ops.into_iter().map(with_transfer).collect();
            for tree in 0..work.tree_count() {
                let now = found.version(tree, key);
                if now == before.version(tree, key) {
                    continue;
                }
                let in_tree = || {
                    batches
                        .iter()
                        .filter(|batch| batch.transfer.trees.contains(&tree))
                };
                if !in_tree().any(|batch| batch.op.version == now) {
                    let name = work.tree_name(tree);
                    violations.push(format!(
                        "tree {name:?}: no batch of thread {thread} wrote {now:#x}"
                    ));
                    continue;
                }
                for Batch {
                    op,
                    transfer,
                    found_in,
                    ..
                } in &mut batches
                {
                    // A refused batch is found only if it wrote what is there.
                    let is_found = op.effective != Some(false) || op.version == now;
                    if is_found && op.version <= now && transfer.trees.contains(&tree) {
                        found_in.push(tree);
                    }
                }
            }
            all.append(&mut batches);
        }
        Self(all)
    }

    /// When batches that are there began, and whether an epoch had to end for them.
    pub(super) fn begins(&self) -> impl Iterator<Item = (u64, bool)> {
        let found = self.0.iter().filter(|batch| !batch.found_in.is_empty());
        found.map(|batch| (batch.op.begin, batch.transfer.needs_epoch()))
    }

    /// Checks each batch, and all balances; counts how batches ended.
    pub(super) fn judge(
        self,
        work: &Work,
        before: &Contents,
        found: &Contents,
        until: &Until,
        tally: &mut Tally,
        violations: &mut Vec<String>,
    ) {
        if !work.batches {
            return;
        }
        let counts = tally.batches.get_or_insert_default();
        for batch in &self.0 {
            if let Err(what) = batch.judge(until, counts) {
                violations.push(format!(
                    "batch {:#x} of thread {} {what}; told at {}: {}",
                    batch.op.version,
                    batch.thread,
                    batch.op.begin,
                    batch
                        .op
                        .effective
                        .map_or("pending".to_owned(), |answer| answer.to_string())
                ));
            }
            if batch.op.end == NEVER {
                let (done, all_done) = match batch.found_in.len() {
                    0 => (&mut counts.pending_undone, &mut tally.pending_undone),
                    _ => (&mut counts.pending_done, &mut tally.pending_done),
                };
                (*done, *all_done) = (*done + 1, *all_done + 1);
            }
        }
        self.judge_balances(work, before, found, violations);
    }

    /// Checks that each balance is what it was before the round, and what the batches that are
    /// there added; and that no money was made or lost.
    fn judge_balances(
        &self,
        work: &Work,
        before: &Contents,
        found: &Contents,
        violations: &mut Vec<String>,
    ) {
        let mut expected = before.clone();
        for Batch {
            transfer, found_in, ..
        } in &self.0
        {
            for Move { tree, key, amount } in &transfer.moves {
                if found_in.contains(tree) {
                    let balance = expected.version(*tree, *key).wrapping_add(*amount);
                    expected.set_version(*tree, *key, balance);
                }
            }
        }
        let mut sum = 0_u64;
        for tree in 0..work.tree_count() {
            for key in accounts(work) {
                let (expected, now) = (expected.version(tree, key), found.version(tree, key));
                sum = sum.wrapping_add(now);
                if now != expected {
                    violations.push(format!(
                        "tree {:?}: account {} has {}, with the batches that are there it has {}",
                        work.tree_name(tree),
                        key - work.keys,
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
}

impl Batch {
    fn judge(&self, until: &Until, counts: &mut BatchTally) -> Result<(), String> {
        let Self {
            op,
            transfer,
            found_in,
            ..
        } = self;
        counts.written += u64::from(op.effective == Some(true));
        counts.refused += u64::from(op.effective == Some(false));
        if op.effective == Some(false) && !found_in.is_empty() {
            return Err(format!("was refused, and is in trees {found_in:?}"));
        }
        if !found_in.is_empty() && *found_in != transfer.trees {
            return Err(format!(
                "is torn: of its trees {:?} it is in {found_in:?}",
                transfer.trees
            ));
        }
        if op.effective == Some(true) && found_in.is_empty() {
            if op.end <= until.of(transfer.is_by_epochs()) || op.is_durable {
                return Err(format!(
                    "was acknowledged, and is lost from its trees {:?}",
                    transfer.trees
                ));
            }
            counts.lost_before_durable += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
