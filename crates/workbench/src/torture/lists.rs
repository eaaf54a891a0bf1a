//! Lists to which transactions append, and audits of what snapshots show: for `torture
//! --transactions`.
//!
//! A list is a run of keys with the numbers 0, 1, 2 and so on, each with the version of the transfer
//! that has appended it. A transaction finds the end of a list by a range from its end, so two
//! transactions that append at the same time conflict by that range.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use everleaf::{Result, Snapshot, Store, Transaction, Tree, TypedTree, View};
use sim::torture::{TortureWorkload, Transfer, ValueVersion, account_keys, ledger, version_of};

use super::keys::TortureKeys;

/// The name of the tree with the lists.
pub(super) const LISTS: &str = "torture lists";
/// Lists. Few, so that threads contend.
const LIST_COUNT: u64 = 4;

/// The lists of a store, and the last entry of each that is known to be committed.
pub(super) struct Lists {
    tree: TypedTree<(u32, u64), u64>,
    committed: [AtomicU64; LIST_COUNT as usize],
}

/// An entry that a transaction has appended.
#[derive(Clone, Copy)]
pub(super) struct Appended {
    list: u32,
    /// Its number, from 1 on.
    length: u64,
}

impl Lists {
    pub(super) fn open(store: &Store) -> Result<Self> {
        Ok(Self {
            tree: store.typed(LISTS)?,
            committed: Default::default(),
        })
    }

    fn list_of(version: ValueVersion) -> u32 {
        (version % LIST_COUNT) as u32
    }

    /// The number of entries that were committed before now, of the list to which the transfer with
    /// this version appends.
    pub(super) fn committed_before(&self, version: ValueVersion) -> u64 {
        self.committed[Self::list_of(version) as usize].load(Ordering::SeqCst)
    }

    /// Appends a version to its list.
    pub(super) fn append(
        &self,
        transaction: &mut Transaction,
        version: ValueVersion,
    ) -> Result<Appended> {
        let list = Self::list_of(version);
        let whole = (list, 0)..=(list, u64::MAX);
        let last = transaction.range(&self.tree, whole).next_back();
        let length = match last.transpose()? {
            Some(((_, number), _)) => number + 1,
            None => 0,
        };
        transaction.put(&self.tree, &(list, length), &version)?;
        Ok(Appended {
            list,
            length: length + 1,
        })
    }

    /// Notes that an entry was committed. `before` is the number of entries that had been committed
    /// when its transaction began.
    ///
    /// # Errors
    /// If the entry comes before one of these: the words for it.
    pub(super) fn note_committed(
        &self,
        appended: Appended,
        before: u64,
    ) -> std::result::Result<(), String> {
        self.committed[appended.list as usize].fetch_max(appended.length, Ordering::SeqCst);
        if appended.length > before {
            return Ok(());
        }
        Err(format!(
            "a transaction has appended entry {} to list {}, which had {before} entries before it began",
            appended.length, appended.list
        ))
    }

    /// The faults of the lists in a view: gaps, versions that are in a list twice or not in the
    /// order in which their thread has written them.
    pub(super) fn faults(&self, view: &impl View) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        let mut lengths = BTreeMap::new();
        // By list, round and thread.
        let mut last = BTreeMap::new();
        for entry in view.iter(&self.tree) {
            let ((list, number), version) = entry?;
            let length = lengths.entry(list).or_insert(0);
            if number != *length {
                faults.push(format!(
                    "list {list} has entry {number} where {length} is due"
                ));
            }
            *length = number + 1;
            let of_thread = last.entry((list, version >> 32)).or_insert(0);
            if version <= *of_thread {
                faults.push(format!(
                    "list {list} has {version:#x} behind {of_thread:#x}"
                ));
            }
            *of_thread = version;
        }
        Ok(faults)
    }
}

/// The faults of the accounts and ledgers in a snapshot: money that was made or lost, a transfer
/// of which only a part is there.
pub(super) fn faults_of_transfers(
    snapshot: &Snapshot,
    trees: &[Tree],
    workload: &TortureWorkload,
    keys: TortureKeys,
) -> Result<Vec<String>> {
    let version_in = |tree: usize, key: u32| -> Result<ValueVersion> {
        let number = tree as u8;
        let value = snapshot.get(&trees[tree], keys.bytes(number, key))?;
        Ok(value.map_or(0, |value| version_of(number, &value).unwrap_or(u64::MAX)))
    };
    let mut faults = Vec::new();
    let mut sum = 0_u64;
    for tree in 0..trees.len() {
        for account in account_keys(workload) {
            sum = sum.wrapping_add(version_in(tree, account)?);
        }
    }
    if sum != 0 {
        let sum = sum.cast_signed();
        faults.push(format!("in a snapshot the sum of all accounts is {sum}"));
    }
    for thread in 0..workload.threads {
        let key = ledger(workload, thread);
        let mut ledgers = Vec::new();
        for tree in 0..trees.len() {
            ledgers.push(version_in(tree, key)?);
        }
        for version in ledgers.iter().filter(|version| **version != 0) {
            let transfer = Transfer::of(*version, workload);
            for tree in transfer.trees {
                let there = ledgers[usize::from(tree)];
                if there < *version {
                    faults.push(format!(
                        "in a snapshot transfer {version:#x} is in one tree, and tree {tree} has {there:#x}"
                    ));
                }
            }
        }
    }
    Ok(faults)
}
