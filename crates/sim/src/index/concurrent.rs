//! Engines under several threads.

use std::collections::BTreeSet;

use engines::index::{Bounds, Direction, Index, MoveCount};
use medium::sim::Sim;
use pool::Pool;

use super::IndexOperation::{
    self, Compact, DropTree, Evacuate, Exchange, Get, GetMany, Insert, Load, Mark, Put, Remove,
    Reopen, Scan, ScanBack, Sync, Update, Visit,
};
use super::IndexOutcome::{self, Held, Value};
use super::{Caller, Condition, Entries, IndexSubject, OpenedIndex, text};
use crate::schedule::{Concurrent, PartOf};
use crate::subject::Complaint;

/// Moves all records to other slabs, and frees what they leave.
pub(super) fn evacuate(pool: &Pool<Sim>, tree: &dyn Index) -> engines::Result<()> {
    tree.sync()?;
    let _evacuation = pool.evacuate(pool::Evacuate::All, &BTreeSet::new());
    let mut count = MoveCount::default();
    tree.evacuate(pool::Evacuate::All, &mut count, &mut |_| Ok(true))?;
    pool.reclaim();
    Ok(())
}

impl IndexSubject {
    /// A range as a scan returns it; in order, and no key twice.
    fn entries(
        &self,
        caller: Caller<'_>,
        from: u64,
        to: u64,
        direction: Direction,
    ) -> Result<IndexOutcome, Complaint> {
        let keys = self.keys();
        let bounds = Bounds::of(&(keys.key_bytes(from)..=keys.key_bytes(to)));
        let mut entries = self.scan(caller, bounds, direction)?;
        if direction == Direction::Reverse {
            entries.reverse();
        }
        in_order(entries, from, to)
    }

    /// Runs the mark, if the open left it for later.
    pub(super) fn mark(pool: &Pool<Sim>, tree: &dyn Index) -> engines::Result<()> {
        if pool.needs_mark() && tree.mark(&|| true)? {
            pool.finish_marking_later();
        }
        Ok(())
    }

    /// Fills the tree, if it is empty. Epochs end while the source runs.
    fn load(&self, tree: &dyn Index, from: u64, to: u64) -> engines::Result<IndexOutcome> {
        let shape = self.keys();
        let mut keys = from..=to;
        let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
            let Some(number) = keys.next() else {
                return Ok(false);
            };
            // A few epochs are enough for the test.
            if number % 4 == 2
                && number < from + 12
                && let Some(epochs) = tree.epochs()
            {
                epochs.sync()?;
            }
            *key = shape.key_bytes(number);
            *value = shape.value_bytes(number);
            Ok(true)
        };
        match tree.bulk_load(&mut next, 1.0) {
            Ok(_) => Ok(Held(true)),
            Err(error) if matches!(error.kind(), engines::ErrorKind::NotEmpty) => Ok(Held(false)),
            Err(error) => Err(error),
        }
    }

    /// A range as the fast path of words returns it, for trees that have one.
    fn visit(&self, caller: Caller<'_>, from: u64, to: u64) -> Result<IndexOutcome, Complaint> {
        let Some(words) = caller.tree.words() else {
            return self.entries(caller, from, to, Direction::Forward);
        };
        let mut entries = Vec::new();
        words
            .scan_each(from, |key, value| {
                let is_inside = key <= to;
                entries.extend(is_inside.then_some((key, value)));
                is_inside
            })
            .map_err(text)?;
        in_order(entries, from, to)
    }
}

fn in_order(entries: Vec<(u64, u64)>, from: u64, to: u64) -> Result<IndexOutcome, Complaint> {
    if let Some(entry) = entries.iter().find(|entry| !(from..=to).contains(&entry.0)) {
        return Err(format!("a scan from {from} to {to} returned {entry:?}"));
    }
    if !entries.is_sorted_by(|one, other| one.0 < other.0) {
        return Err(format!(
            "a scan out of order, or with a key twice: {entries:?}"
        ));
    }
    Ok(IndexOutcome::Entries(entries))
}

impl IndexSubject {
    /// Calls an operation, and waits until its answer is durable, or does not.
    pub(super) fn call_as(
        &self,
        opened: &OpenedIndex,
        operation: &IndexOperation,
        waits: bool,
    ) -> Result<IndexOutcome, Complaint> {
        let tree: &dyn Index = opened.tree.as_deref().ok_or("not open")?;
        let caller = Caller { tree, waits };
        let outcome = match *operation {
            Insert(key, value) => self.write(caller, key, Some(value), Condition::Absent),
            Update(key, value) => self.write(caller, key, Some(value), Condition::Present),
            Put(key, value) => self.write(caller, key, Some(value), Condition::Always),
            Remove(key) => self.write(caller, key, None, Condition::Present),
            Exchange(key, old, new) => self.write(caller, key, Some(new), Condition::Equals(old)),
            Load(from, to) => self.load(tree, from, to),
            Sync => tree.sync().map(|()| Held(true)),
            Mark => match &opened.pool {
                Some(pool) => Self::mark(pool, tree).map(|()| Held(true)),
                None => return Err("not open".to_owned()),
            },
            Compact => {
                tree.sync().map_err(text)?;
                tree.reclaim();
                opened
                    .pool
                    .as_ref()
                    .ok_or("not open")?
                    .compact()
                    .map(|()| Held(true))
            }
            Evacuate => match &opened.pool {
                Some(pool) => evacuate(pool, tree).map(|()| Held(true)),
                None => return Err("not open".to_owned()),
            },
            Scan(from, to) => return self.entries(caller, from, to, Direction::Forward),
            ScanBack(from, to) => return self.entries(caller, from, to, Direction::Reverse),
            Visit(from, to) => return self.visit(caller, from, to),
            GetMany(one, other) => {
                return self.find(caller, &[one, other]).map(IndexOutcome::Entries);
            }
            Reopen | DropTree => {
                return Err("a tree is reopened and dropped by one thread alone".to_owned());
            }
            Get(key) => {
                let keys = self.keys();
                let found = tree
                    .read(&keys.key_bytes(key))
                    .and_then(|found| caller.answer(found))
                    .map_err(text)?;
                let value = found.map(|found| {
                    keys.value_number(&found)
                        .ok_or("a value that no operation wrote")
                });
                return Ok(Value(value.transpose()?));
            }
        };
        outcome.map_err(text)
    }
}

impl Concurrent for IndexSubject {
    fn call(
        &self,
        opened: &Self::Instance,
        operation: &IndexOperation,
    ) -> Result<IndexOutcome, Complaint> {
        self.call_as(opened, operation, true)
    }

    /// Each key is a part of its own. The end of an epoch is an operation on every key, at one
    /// moment for all of them. A scan, or a lookup of several keys, is a read of each key, at any
    /// time between its call and its return: so it returns every key that was present throughout,
    /// and none that was absent throughout.
    fn parts(
        &self,
        start: &Entries,
        calls: &[(IndexOperation, Option<IndexOutcome>)],
    ) -> Vec<Vec<PartOf<Self>>> {
        let mut keys: BTreeSet<u64> = start.keys().copied().collect();
        for (operation, outcome) in calls {
            keys.extend(operation.key());
            if let Some(IndexOutcome::Entries(entries)) = outcome {
                keys.extend(entries.iter().map(|entry| entry.0));
            }
        }
        let parts_of = |(operation, outcome): &(IndexOperation, Option<IndexOutcome>)| {
            let read: Vec<u64> = match *operation {
                Scan(from, to) | ScanBack(from, to) | Visit(from, to) => {
                    keys.range(from..=to).copied().collect()
                }
                GetMany(one, other) => vec![one, other],
                Sync | Compact | Evacuate => {
                    return keys
                        .iter()
                        .map(|key| (*key, Sync, outcome.clone()))
                        .collect();
                }
                _ => {
                    return operation
                        .key()
                        .map(|key| (key, *operation, outcome.clone()))
                        .into_iter()
                        .collect();
                }
            };
            let found = |key: u64| {
                let IndexOutcome::Entries(entries) = outcome.as_ref()? else {
                    return None;
                };
                let entry = entries.iter().find(|entry| entry.0 == key);
                Some(Value(entry.map(|entry| entry.1)))
            };
            read.into_iter()
                .map(|key| (key, Get(key), found(key)))
                .collect()
        };
        calls.iter().map(parts_of).collect()
    }
}
