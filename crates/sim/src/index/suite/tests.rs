use engines::index::Index as _;
use medium::sim::{Sim, SimOptions};

use super::*;
use crate::index::{CodecName, Engine, Size, engine};
use crate::subject::Subject;

fn small() -> AnyEngine {
    engine(Engine::RNTREE, CodecName::Word, Size::Small)
}

fn figures(setup: &[IndexOperation]) -> (u64, u32, u64) {
    let subject = IndexSubject::new(&small(), FollowUp::Keys);
    let sim = Sim::new(SimOptions::default()).unwrap();
    let mut opened = subject.open(&sim).unwrap();
    for operation in setup {
        subject.apply(&mut opened, operation).unwrap();
    }
    let stat = opened.tree.as_ref().unwrap().stat().unwrap();
    (stat.leaves, stat.height, stat.keys)
}

#[test]
fn seeds_are_what_they_are_called() {
    let after = |scope: usize, operation: IndexOperation| {
        let mut operations = scopes(4, 32)[scope].setup.clone();
        operations.push(operation);
        figures(&operations)
    };
    let seeds: Vec<_> = scopes(4, 32)
        .iter()
        .map(|scope| figures(&scope.setup))
        .collect();
    assert_eq!(seeds, [(1, 0, 0), (1, 0, 3), (32, 1, 99), (3, 1, 4)]);
    // Inserting any of the absent keys splits a leaf, and its parent.
    assert_eq!(
        [15, 975].map(|key| after(2, Insert(key, 1))),
        [(33, 2, 100); 2]
    );
    // Removing any of the present keys merges leaves.
    assert_eq!(
        [10, 40, 50].map(|key| after(3, Remove(key))),
        [(2, 1, 3); 3]
    );
}

#[test]
fn what_follows_a_recovery_splits_and_merges() {
    splits_and_merges(&small());
}

#[test]
fn so_it_does_with_the_other_engines() {
    for name in [Engine::BZTREE, Engine::MASSTREE] {
        splits_and_merges(&engine(name, CodecName::Word, Size::Small));
    }
}

fn splits_and_merges(engine: &AnyEngine) {
    for scope in scopes(4, 32) {
        let subject = IndexSubject::new(engine, FollowUp::SplitAndMerge);
        let sim = Sim::new(SimOptions::default()).unwrap();
        let mut opened = subject.open(&sim).unwrap();
        let mut state = subject.initial();
        for operation in &scope.setup {
            subject.step(&mut state, operation);
            subject.apply(&mut opened, operation).unwrap();
        }
        for key in scope.keys {
            let mut opened = subject.open(&sim).unwrap();
            let mut state = state.clone();
            let mut leaves = Vec::new();
            for operation in subject.follow_up(&state, &[Put(key, 1)]) {
                subject.step(&mut state, &operation);
                subject.apply(&mut opened, &operation).unwrap();
                leaves.push(opened.tree.as_ref().unwrap().stat().unwrap().leaves);
            }
            let some = |happens: fn(&[u64]) -> bool| leaves.windows(2).any(happens);
            let what = format!("{}, {}, {key}: {leaves:?}", engine.name(), scope.name);
            assert!(some(|pair| pair[0] < pair[1]), "no split: {what}");
            assert!(some(|pair| pair[0] > pair[1]), "no merge: {what}");
        }
    }
}

#[test]
fn with_buffered_durability_a_sync_stands_at_every_place() {
    let scope = Scope {
        name: "",
        setup: Vec::new(),
        keys: [1, 2, 3],
    };
    let scripts = scripts(&scope, 3, DurabilityContract::WithEpoch);
    assert_eq!(scripts.len(), 3 * 12usize.pow(3));
    let [a, b, c] = [Insert(1, 100), Insert(1, 101), Insert(1, 102)];
    assert_eq!(scripts[0], [a, b, c, EndEpoch]);
    assert_eq!(scripts[1], [a, EndEpoch, b, c, EndEpoch]);
    assert_eq!(scripts[2], [a, b, EndEpoch, c, EndEpoch]);
}

#[test]
fn sequences_are_all_there_once() {
    let mut all: Vec<_> = sequences([1, 2, 3], 2)
        .map(|sequence| format!("{sequence:?}"))
        .collect();
    assert_eq!(all[0], "[insert 1=100, insert 1=101]");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 144);
}
