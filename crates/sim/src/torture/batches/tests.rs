use engines::engine::Engine;

use super::super::transfer::Move;
use super::super::{Acknowledged, Announcement, OperationKind, Oracle, version};
use super::*;

fn work() -> TortureWorkload {
    TortureWorkload {
        engine: Engine::RNTREE,
        acknowledged: Acknowledged::Durable,
        threads: 2,
        keys: 100,
        trees: 2,
        batches: true,
    }
}

/// The versions of a thread's first transfers of a kind.
fn versions(count: usize, is_asked: impl Fn(&Transfer) -> bool) -> Vec<ValueVersion> {
    let all = (1..).map(|sequence| version(1, 0, sequence));
    all.filter(|version| is_asked(&Transfer::of(*version, &work())))
        .take(count)
        .collect()
}

fn several_trees(transfer: &Transfer) -> bool {
    transfer.trees.len() > 1
}

/// The records of a thread that writes these batches; `refused` was refused, the last one is under
/// way.
fn said(versions: &[ValueVersion], refused: Option<ValueVersion>) -> Vec<u8> {
    let mut last = None;
    let mut said = Vec::new();
    for version in versions {
        let answer = last.map(|last| Some(last) != refused);
        let record = Announcement {
            thread: 0,
            answer,
            seen: 0,
            kind: OperationKind::Batch,
            tree: 0,
            key: ledger(&work(), 0),
            version: *version,
            expected: 0,
        };
        said.extend(record.encode());
        last = Some(*version);
    }
    said
}

/// Does a part of a batch: its writes to the trees that `is_done` chooses.
fn apply(contents: &mut Contents, version: ValueVersion, is_done: impl Fn(u8) -> bool) {
    let transfer = Transfer::of(version, &work());
    for Move { tree, key, amount } in transfer.moves {
        if is_done(tree) {
            contents.set_version(tree, key, contents.version(tree, key).wrapping_add(amount));
        }
    }
    let done = transfer.trees.iter().filter(|tree| is_done(**tree));
    done.for_each(|tree| contents.set_version(*tree, ledger(&work(), 0), version));
}

fn judged(said: &[u8], found: &Contents) -> (Vec<String>, Tally) {
    let work = work();
    let mut tally = Tally::default();
    let mut violations = Vec::new();
    let history = RoundHistory::read(said, &work).unwrap();
    let mut oracle = Oracle::new(Contents::empty(&work), work);
    oracle.judge(history, found.clone(), &mut tally, &mut violations);
    (violations, tally)
}

#[test]
fn transfers_follow_from_their_versions_and_keep_the_sum() {
    let mut by_epochs = 0;
    let mut over_both = 0;
    for version in 1..1000 {
        let transfer = Transfer::of(version, &work());
        assert_eq!(transfer.moves, Transfer::of(version, &work()).moves);
        assert_eq!(
            transfer
                .moves
                .iter()
                .fold(0_u64, |sum, step| sum.wrapping_add(step.amount)),
            0
        );
        assert!(
            (2..=4).contains(&transfer.moves.len())
                && transfer.moves.iter().all(|step| step.amount != 0)
        );
        by_epochs += u32::from(transfer.is_by_epochs());
        over_both += u32::from(transfer.needs_epoch() && !transfer.is_by_epochs());
    }
    assert!(
        by_epochs > 100 && over_both > 100,
        "{by_epochs} {over_both}"
    );
}

#[test]
fn a_batch_is_there_wholly_or_not_at_all() {
    let version = versions(1, several_trees)[0];
    let transfer = Transfer::of(version, &work());
    let said = said(&[version], None);
    let mut found = Contents::empty(&work());
    let (violations, tally) = judged(&said, &found);
    assert_eq!(
        (violations.len(), tally.pending_undone),
        (0, 1),
        "{violations:?}"
    );
    apply(&mut found, version, |tree| tree == transfer.trees[0]);
    let (violations, _) = judged(&said, &found);
    assert!(
        violations.iter().any(|what| what.contains("is torn")),
        "{violations:?}"
    );
    assert!(
        violations
            .iter()
            .any(|what| what.contains("the sum of all accounts")),
        "{violations:?}"
    );
    apply(&mut found, version, |tree| tree != transfer.trees[0]);
    let (violations, tally) = judged(&said, &found);
    assert_eq!(
        (violations.len(), tally.pending_done),
        (0, 1),
        "{violations:?}"
    );
    // A ledger without its accounts, and an account without a ledger.
    let Move { tree, key, amount } = transfer.moves[1];
    found.set_version(tree, key, 0);
    assert!(
        judged(&said, &found)
            .0
            .iter()
            .any(|what| what.contains("with the batches that are there"))
    );
    found.set_version(tree, key, amount);
    found.set_version(tree, ledger(&work(), 1), version);
    assert!(
        judged(&said, &found)
            .0
            .iter()
            .any(|what| what.contains("no batch of thread 1"))
    );
}

#[test]
fn an_acknowledged_batch_stays_and_a_refused_one_leaves_nothing() {
    let versions = versions(3, |transfer| !transfer.is_by_epochs());
    let mut found = Contents::empty(&work());
    apply(&mut found, versions[0], |_| true);
    let (violations, _) = judged(&said(&versions[..2], None), &found);
    assert_eq!(violations, Vec::<String>::new());
    let (violations, _) = judged(&said(&versions, None), &found);
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(
        violations[0].contains("was acknowledged, and is lost"),
        "{violations:?}"
    );
    let refused = said(&versions, Some(versions[1]));
    let (violations, tally) = judged(&refused, &found);
    assert_eq!(
        (violations.len(), tally.batches.unwrap().refused),
        (0, 1),
        "{violations:?}"
    );
    apply(&mut found, versions[1], |_| true);
    let (violations, _) = judged(&refused, &found);
    assert!(violations[0].contains("was refused"), "{violations:?}");
}

/// If a part of the batches by epochs is lost, it is the last part.
#[test]
fn batches_by_epochs_are_lost_together() {
    let versions = versions(4, Transfer::is_by_epochs);
    let said = said(&versions, None);
    let mut found = Contents::empty(&work());
    let (violations, tally) = judged(&said, &found);
    assert_eq!(
        (violations.len(), tally.batches.unwrap().lost_before_durable),
        (0, 3),
        "{violations:?}"
    );
    for version in &versions {
        apply(&mut found, *version, |_| true);
        assert_eq!(judged(&said, &found).0, Vec::<String>::new());
    }
    let mut found = Contents::empty(&work());
    apply(&mut found, versions[2], |_| true);
    assert!(
        judged(&said, &found)
            .0
            .iter()
            .any(|what| what.contains("with the batches that are there"))
    );
}

/// A batch over both kinds of trees ends the epoch: earlier operations are durable with it.
#[test]
fn a_batch_over_both_kinds_keeps_what_came_before() {
    let first = versions(1, Transfer::is_by_epochs)[0];
    let is_over_both = |transfer: &Transfer| transfer.needs_epoch() && !transfer.is_by_epochs();
    let second = versions(100, is_over_both)
        .into_iter()
        .find(|version| *version > first)
        .unwrap();
    let said = said(&[first, second], None);
    let mut found = Contents::empty(&work());
    apply(&mut found, second, |_| true);
    assert!(!judged(&said, &found).0.is_empty());
    let mut found = Contents::empty(&work());
    [first, second]
        .iter()
        .for_each(|version| apply(&mut found, *version, |_| true));
    assert_eq!(judged(&said, &found).0, Vec::<String>::new());
}
