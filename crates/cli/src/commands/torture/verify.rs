//! Reads a pool after a kill, in every way.

use std::collections::HashMap;

use everleaf::{Store, Tree, TreeOptions};
use sim::torture::{Contents, TortureWorkload, ValueVersion, has_words, key_bytes, version_of};

use crate::failure::Failure;

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

/// Reads all trees forward, backward and key by key, and verifies that all agree, that the
/// structure is sound, and that nothing leaks.
pub(super) fn read_all(
    store: &Store,
    workload: &TortureWorkload,
    round: u32,
    violations: &mut Vec<String>,
) -> Result<Contents, Failure> {
    for damage in &store.recovery().damaged {
        let part = damage.part.to_string();
        let what = &damage.what;
        violations.push(format!("tree {part:?} could not be recovered: {what}"));
    }
    let mut contents = Contents::empty(workload);
    if !store.recovery().damaged.is_empty() {
        return Ok(contents);
    }
    violations.extend(
        store
            .check()?
            .iter()
            .map(|violation| format!("check: {violation}")),
    );
    for (number, tree) in open_trees(store, workload)?.iter().enumerate() {
        let all_keys: Vec<Vec<u8>> = (0..workload.key_count())
            .map(|key| key_bytes(number as u8, key))
            .collect();
        let versions = contents.of_tree(number as u8);
        read_forward(tree, number as u8, &all_keys, versions, violations)?;
        compare_backward(tree, violations)?;
        compare_reads(tree, number as u8, round, &all_keys, versions, violations)?;
        let counted = tree.len()?;
        let found = contents.count(number as u8);
        if counted != found {
            violations.push(format!(
                "{}: len() says {counted}, a scan found {found}",
                tree.name()
            ));
        }
    }
    verify_figures(store, &contents, workload, violations)?;
    Ok(contents)
}

fn read_forward(
    tree: &Tree,
    number: u8,
    all_keys: &[Vec<u8>],
    versions: &mut [ValueVersion],
    violations: &mut Vec<String>,
) -> Result<(), Failure> {
    let known: HashMap<&[u8], usize> = all_keys.iter().map(Vec::as_slice).zip(0..).collect();
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
        match (known.get(key), version_of(number, value)) {
            (Some(&key), Some(version)) => versions[key] = version,
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
    Ok(())
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
    all_keys: &[Vec<u8>],
    versions: &[ValueVersion],
    violations: &mut Vec<String>,
) -> Result<(), Failure> {
    for (keys, versions) in all_keys.chunks(GROUP).zip(versions.chunks(GROUP)) {
        let values = if round.is_multiple_of(2) {
            tree.get_many(keys)?
        } else {
            keys.iter()
                .map(|key| tree.get(key))
                .collect::<everleaf::Result<_>>()?
        };
        for ((key, expected), value) in keys.iter().zip(versions).zip(values) {
            let found = value.map_or(Some(0), |value| version_of(number, &value));
            if found != Some(*expected) {
                violations.push(format!(
                    "{}: a read of {key:02x?} gave {found:#x?}, a scan {expected:#x}",
                    tree.name()
                ));
            }
        }
    }
    Ok(())
}

/// Checks that nothing leaks: after recovery from a crash only leaves and records are allocated.
fn verify_figures(
    store: &Store,
    contents: &Contents,
    workload: &TortureWorkload,
    violations: &mut Vec<String>,
) -> Result<(), Failure> {
    // An engine with epochs keeps free objects, and counts them itself, in `check`.
    let has_epochs = (0..workload.tree_count()).any(|tree| workload.engine(tree).is_buffered());
    if has_epochs || !store.recovery().after_crash {
        return Ok(());
    }
    store.finish_recovery();
    let records: u64 = (0..workload.tree_count())
        .filter(|tree| !has_words(*tree))
        .map(|tree| contents.count(tree))
        .sum();
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
