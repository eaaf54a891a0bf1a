//! Transactions over the loaded entries, which are called accounts here: each reads three of them
//! and updates two.
//!
//! The value of an account counts its updates. So the accounts together must have two updates for
//! each transaction that committed: an update that got lost, or that was made by a transaction that
//! did not commit, is found.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::entries::{EntryShape, mix};
use crate::failure::{Failure, Result};
use crate::measure::Run;
use crate::metric::{HOT_THREADS, MEMORY_TRANSACTION_THREADS, TRANSACTION_THREADS};
use crate::peers::{PeerReader, TransactionDurability, TransactionPeer};
use crate::transfer::{AccountTransfer, READS, TransferKeys, WRITES};
use crate::zipfian::HotRanks;

/// The exponent of the distribution of hot keys.
pub(crate) const HOT_THETA: f64 = 0.99;

/// How accounts are chosen.
#[derive(Clone, Copy)]
enum Choice {
    Uniform,
    Hot(HotRanks),
}

/// Random choices of accounts, for one thread.
struct Chooser {
    shape: EntryShape,
    choice: Choice,
    next: u64,
}

impl Chooser {
    fn account(&mut self) -> u64 {
        let random = mix(self.next);
        self.next += 1;
        match self.choice {
            Choice::Uniform => random % self.shape.entries,
            Choice::Hot(zipfian) => {
                let fraction = (random >> 11) as f64 / (1_u64 << 53) as f64;
                // Hot accounts are not neighbours in the order of the load.
                self.shape.shuffled(zipfian.rank(fraction))
            }
        }
    }

    /// Different accounts.
    fn accounts(&mut self) -> [u64; READS] {
        let mut accounts = [u64::MAX; READS];
        for number in 0..READS {
            let mut account = self.account();
            while accounts[..number].contains(&account) {
                account = self.account();
            }
            accounts[number] = account;
        }
        accounts
    }
}

/// The store with its accounts.
struct Bank<'r> {
    run: &'r Run,
    /// Transactions that have committed since the load.
    committed: AtomicU64,
    /// The number of the next sequence of random choices. No two threads have the same.
    next_sequence: AtomicU64,
}

/// The figures of a timed run.
struct Rates {
    per_second: f64,
    /// Conflicts for each transaction that committed.
    conflicts: f64,
}

/// Measures all figures of the workload.
pub(crate) fn measure(run: &Run) -> Result {
    let folder = run.folder("transactions")?;
    let peer = run.open(&folder)?;
    run.load(&*peer, false)?;
    run.close(peer)?;
    let bank = Bank {
        run,
        committed: AtomicU64::new(0),
        next_sequence: AtomicU64::new(0),
    };

    let peer = bank.open(&folder, TransactionDurability::OnCommit)?;
    for (threads, name) in TRANSACTION_THREADS {
        run.tell(
            name,
            bank.timed(&*peer, threads, Choice::Uniform)?.per_second,
        )?;
    }
    let zipfian = HotRanks::new(run.plan.shape.entries, HOT_THETA);
    let hot = bank.timed(&*peer, HOT_THREADS, Choice::Hot(zipfian))?;
    run.tell("tx-hot-64", hot.per_second)?;
    run.tell("tx-hot-conflicts", hot.conflicts)?;
    bank.close(peer)?;

    let peer = bank.open(&folder, TransactionDurability::OnSync)?;
    for (threads, name) in MEMORY_TRANSACTION_THREADS {
        run.tell(
            name,
            bank.timed(&*peer, threads, Choice::Uniform)?.per_second,
        )?;
    }
    bank.close(peer)?;

    let peer = run.open(&folder)?;
    let mut reader = run.reader(&*peer)?;
    bank.check(&mut *reader)?;
    drop(reader);
    run.close(peer)?;
    std::fs::remove_dir_all(&folder).map_err(Failure::path("remove", &folder))
}

impl Bank<'_> {
    /// Opens the store for transactions, and reads it as a whole, which fills its caches.
    fn open(
        &self,
        folder: &std::path::Path,
        durability: TransactionDurability,
    ) -> Result<Box<dyn TransactionPeer>> {
        let kind = self.run.kind;
        let peer = (kind.open_transactions)(kind, folder, durability)
            .map_err(Failure::store(kind.name, "open for transactions"))?;
        self.check_all(&*peer)?;
        Ok(peer)
    }

    fn close(&self, peer: Box<dyn TransactionPeer>) -> Result {
        peer.close()
            .map_err(Failure::store(self.run.kind.name, "close"))
    }

    /// Runs transactions on each thread, and one sync at the end.
    fn timed(&self, peer: &dyn TransactionPeer, threads: u64, choice: Choice) -> Result<Rates> {
        let name = self.run.kind.name;
        let conflicts = AtomicU64::new(0);
        let committed = AtomicU64::new(0);
        let ended = AtomicU64::new(0);
        let per_second = self.run.timed(threads, |_, deadline| {
            let shape = self.run.plan.shape;
            let sequence = self.next_sequence.fetch_add(1, Ordering::Relaxed);
            let mut chooser = Chooser {
                shape,
                choice,
                next: sequence << 40,
            };
            let mut keys = TransferKeys::default();
            let mut transfer = AccountTransfer::new(shape);
            let mut count = 0;
            let mut own_conflicts = 0;
            while Instant::now() < deadline {
                transfer.accounts = chooser.accounts();
                for (account, key) in transfer.accounts.iter().zip(&mut keys) {
                    shape.key(*account, key);
                }
                own_conflicts += peer
                    .transact(&keys, &mut transfer)
                    .map_err(Failure::store(name, "transaction"))?;
                if let Some(account) = transfer.damaged {
                    let what = format!("a transaction found no whole value of entry {account}");
                    return Err(self.run.wrong("transaction", &what));
                }
                count += 1;
            }
            conflicts.fetch_add(own_conflicts, Ordering::Relaxed);
            committed.fetch_add(count, Ordering::Relaxed);
            // ORDER: pairs with the same line of the other threads, so the sync comes after all
            // transactions.
            let is_last = ended.fetch_add(1, Ordering::AcqRel) + 1 == threads;
            if is_last {
                peer.sync().map_err(Failure::store(name, "sync"))?;
            }
            Ok(count)
        })?;
        let committed = committed.into_inner();
        self.committed.fetch_add(committed, Ordering::Relaxed);
        self.check_all(peer)?;
        Ok(Rates {
            per_second,
            conflicts: conflicts.into_inner() as f64 / committed.max(1) as f64,
        })
    }

    fn check_all(&self, peer: &dyn TransactionPeer) -> Result {
        let mut reader = peer
            .reader()
            .map_err(Failure::store(self.run.kind.name, "begin to read"))?;
        self.check(&mut *reader)
    }

    /// Reads all accounts: each must have a whole value, and together they must have as many
    /// updates as the transactions that committed have made.
    fn check(&self, reader: &mut dyn PeerReader) -> Result {
        const ACTION: &str = "read after transactions";
        let Run { kind, plan, .. } = self.run;
        let shape = plan.shape;
        let sorted = &self.run.sorted;
        let mut first = Vec::new();
        let mut expected = Vec::new();
        let mut seen = 0;
        let mut updates: u64 = 0;
        let mut damaged = None;
        shape.key(u64::from(sorted[0]), &mut first);
        let mut see = |key: &[u8], value: &[u8]| {
            let Some(index) = sorted.get(seen).map(|index| u64::from(*index)) else {
                return;
            };
            seen += 1;
            shape.key(index, &mut expected);
            let has_key = key == expected.as_slice();
            match shape.account_state(index, value, &mut expected) {
                Some(state) if has_key => updates = updates.wrapping_add(state.updates),
                _ => damaged = Some(index),
            }
        };
        reader
            .range(&first, sorted.len(), &mut see)
            .map_err(Failure::store(kind.name, ACTION))?;
        if let Some(index) = damaged {
            let what = format!("entry {index} has another key, or a value that nothing wrote");
            return Err(self.run.wrong(ACTION, &what));
        }
        if seen != sorted.len() {
            let what = format!("{seen} of {} entries are left", sorted.len());
            return Err(self.run.wrong(ACTION, &what));
        }
        let committed = self.committed.load(Ordering::Relaxed);
        if updates != committed * WRITES as u64 {
            let what = format!(
                "{committed} transactions committed two updates each, but the values count {updates} updates"
            );
            return Err(self.run.wrong(ACTION, &what));
        }
        Ok(())
    }
}
