//! Reads a pool after a kill, in every way.

use std::collections::HashMap;

use everleaf::{Store, Tree, TreeOptions};
use sim::torture::{Contents, TortureWorkload, ValueVersion, has_words, version_of};

use super::keys::TortureKeys;
use super::lists::{LISTS, Lists};
use terminal::failure::Failure;

/// Keys that are read at once.
const GROUP: usize = 16;

/// Opens (or makes) the trees of a torture pool.
pub(super) fn open_trees(store: &Store, workload: &TortureWorkload) -> everleaf::Result<Vec<Tree>> {
    let open = |tree: u8| {
        let kind = if has_words(tree) {
            TreeOptions::WORDS
        } else {
            TreeOptions::RECORDS
        };
        store.tree_with(
            &workload.tree_name(tree),
            TreeOptions {
                engine: workload.engine(tree),
                ..kind
            },
        )
    };
    (0..workload.tree_count()).map(open).collect()
}

/// A key's number, and its bytes in a tree.
struct NumberedKey {
    number: u32,
    bytes: Vec<u8>,
}

/// The keys that a store may have.
pub(super) struct StoreKeys {
    pub(super) numbers: Vec<u32>,
    pub(super) form: TortureKeys,
}

/// Reads all trees of a store, which may have these keys, forward, backward and key by key. Verifies
/// that all agree, that the structure is sound, and that nothing leaks. Adds what the trees have to
/// `contents`.
pub(super) fn read_all(
    store: &Store,
    workload: &TortureWorkload,
    keys: &StoreKeys,
    round: u32,
    contents: &mut Contents,
    violations: &mut Vec<String>,
) -> Result<(), Failure> {
    for damage in &store.recovery().damaged {
        let part = damage.part.to_string();
        let what = &damage.what;
        violations.push(format!("tree {part:?} could not be recovered: {what}"));
    }
    if !store.recovery().damaged.is_empty() {
        return Ok(());
    }
    violations.extend(
        store
            .check()?
            .iter()
            .map(|violation| format!("check: {violation}")),
    );
    if store.trees()?.iter().any(|tree| tree.name == LISTS) {
        let lists = Lists::open(store)?;
        violations.extend(lists.faults(&store.snapshot()?)?);
    }
    let mut records = 0;
    for (number, tree) in open_trees(store, workload)?.iter().enumerate() {
        let mut all_keys = Vec::new();
        for key in &keys.numbers {
            all_keys.push(NumberedKey {
                number: *key,
                bytes: keys.form.bytes(number as u8, *key),
            });
        }
        let versions = contents.of_tree(number as u8);
        let found = read_forward(tree, number as u8, &all_keys, versions, violations)?;
        compare_backward(tree, violations)?;
        compare_reads(tree, number as u8, round, &all_keys, versions, violations)?;
        let counted = tree.len()?;
        if counted != found {
            violations.push(format!(
                "{}: len() says {counted}, a scan found {found}",
                tree.name()
            ));
        }
        if !has_words(number as u8) {
            records += found;
        }
    }
    verify_figures(store, records, workload, violations)
}

/// Returns how many entries there are.
fn read_forward(
    tree: &Tree,
    number: u8,
    all_keys: &[NumberedKey],
    versions: &mut [ValueVersion],
    violations: &mut Vec<String>,
) -> Result<u64, Failure> {
    let known: HashMap<&[u8], u32> = all_keys
        .iter()
        .map(|key| (key.bytes.as_slice(), key.number))
        .collect();
    let mut found = 0;
    let mut last: Option<Vec<u8>> = None;
    let mut range = tree.iter();
    while let Some((key, value)) = range.next_entry()? {
        if last.as_deref().is_some_and(|last| last >= key) {
            violations.push(format!(
                "{}: {key:02x?} comes after {last:02x?}",
                tree.name()
            ));
        }
        last = Some(key.to_vec());
        found += 1;
        match (known.get(key), version_of(number, value)) {
            (Some(key), Some(version)) => versions[*key as usize] = version,
            (None, _) => {
                violations.push(format!(
                    "{}: a key that no operation wrote: {key:02x?}",
                    tree.name()
                ));
            }
            (_, None) => violations.push(format!(
                "{}: key {key:02x?} has a value of {} bytes that no operation wrote: {:02x?}",
                tree.name(),
                value.len(),
                &value[..value.len().min(16)]
            )),
        }
    }
    Ok(found)
}

/// Checks that a reverse scan returns the forward scan, reversed.
fn compare_backward(tree: &Tree, violations: &mut Vec<String>) -> Result<(), Failure> {
    let forward = tree.iter().collect::<everleaf::Result<Vec<_>>>()?;
    let mut backward = tree.iter().rev().collect::<everleaf::Result<Vec<_>>>()?;
    backward.reverse();
    if forward != backward {
        violations.push(format!(
            "{}: forward {} entries, reverse {} or others",
            tree.name(),
            forward.len(),
            backward.len()
        ));
    }
    Ok(())
}

/// Checks that a read of each key returns the same as the scan; alternately one by one and in
/// groups.
fn compare_reads(
    tree: &Tree,
    number: u8,
    round: u32,
    all_keys: &[NumberedKey],
    versions: &[ValueVersion],
    violations: &mut Vec<String>,
) -> Result<(), Failure> {
    for keys in all_keys.chunks(GROUP) {
        let bytes: Vec<_> = keys.iter().map(|key| key.bytes.as_slice()).collect();
        let values = if round.is_multiple_of(2) {
            tree.get_many(&bytes)?
        } else {
            bytes
                .iter()
                .map(|key| tree.get(key))
                .collect::<everleaf::Result<_>>()?
        };
        for (key, value) in keys.iter().zip(values) {
            let expected = versions[key.number as usize];
            let found = value.map_or(Some(0), |value| version_of(number, &value));
            if found != Some(expected) {
                violations.push(format!(
                    "{}: a read of {:02x?} gave {found:#x?}, a scan {expected:#x}",
                    tree.name(),
                    key.bytes
                ));
            }
        }
    }
    Ok(())
}

/// Checks that nothing leaks: after recovery from a crash only leaves and records are allocated.
fn verify_figures(
    store: &Store,
    records: u64,
    workload: &TortureWorkload,
    violations: &mut Vec<String>,
) -> Result<(), Failure> {
    // An engine with epochs keeps free objects, and counts them itself, in `check`.
    let has_epochs = (0..workload.tree_count()).any(|tree| workload.engine(tree).is_buffered());
    if has_epochs || !store.recovery().after_crash {
        return Ok(());
    }
    store.finish_recovery();
    let mut reached = 0;
    let mut leaves = 0;
    let mut are_counted = true;
    for tree in open_trees(store, workload)? {
        let stat = tree.stat()?;
        reached += stat.allocations.unwrap_or(0);
        leaves += stat.leaves;
        are_counted &= stat.allocations.is_some();
    }
    let expected = if are_counted {
        reached
    } else {
        records + leaves
    };
    let allocations = store.stat()?.allocations;
    if allocations != expected {
        violations.push(format!(
            "{allocations} allocations, but the trees reach {expected}"
        ));
    }
    Ok(())
}
