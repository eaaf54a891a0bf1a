use engines::engine::Engine;

use super::super::Announcement;
use super::super::contents::TreeKey;
use super::*;

fn op(kind: OperationKind, version: ValueVersion, begin: u64, end: u64) -> RecordedOperation {
    let effective = (end != NEVER).then_some(true);
    RecordedOperation {
        kind,
        version,
        expected: 0,
        begin,
        end,
        effective,
        seen: 0,
        is_durable: false,
    }
}

/// Rules under which acknowledged operations must be present up to a moment.
fn rules(until: u64, are_reads_durable: bool) -> KeyRules {
    KeyRules {
        until,
        are_reads_durable,
    }
}

fn judged(before: ValueVersion, ops: &[RecordedOperation], now: ValueVersion) -> bool {
    judge_key(before, &mut ops.to_vec(), now, false, &rules(NEVER, true)).is_ok()
}

#[test]
fn an_acknowledged_write_stays_and_a_pending_one_may() {
    let acknowledged = [op(OperationKind::Put, 7, 1, 2)];
    assert!(judged(5, &acknowledged, 7));
    assert!(!judged(5, &acknowledged, 5));
    assert!(!judged(5, &acknowledged, 0));
    assert!(!judged(5, &acknowledged, 6));
    let pending = [op(OperationKind::Put, 7, 1, NEVER)];
    assert!(judged(5, &pending, 7) && judged(5, &pending, 5));
    assert!(!judged(5, &pending, 0) && !judged(5, &pending, 8));
}

#[test]
fn an_acknowledged_removal_stays_and_a_pending_one_may() {
    let acknowledged = [op(OperationKind::Remove, 7, 1, 2)];
    assert!(judged(5, &acknowledged, 0));
    assert!(!judged(5, &acknowledged, 5));
    let pending = [op(OperationKind::Remove, 7, 1, NEVER)];
    assert!(judged(5, &pending, 0) && judged(5, &pending, 5));
    assert!(judged(0, &[], 0) && !judged(5, &[], 0) && !judged(0, &[], 5));
}

#[test]
fn of_overlapping_changes_any_may_be_the_last() {
    let overlapping = [
        op(OperationKind::Put, 7, 1, 4),
        op(OperationKind::Put, 8, 2, 3),
    ];
    assert!(judged(0, &overlapping, 7) && judged(0, &overlapping, 8));
    let in_turn = [
        op(OperationKind::Put, 7, 1, 2),
        op(OperationKind::Put, 8, 3, 4),
    ];
    assert!(!judged(0, &in_turn, 7) && judged(0, &in_turn, 8));
    let removed = [
        op(OperationKind::Put, 7, 1, 2),
        op(OperationKind::Remove, 0, 3, 4),
    ];
    assert!(judged(0, &removed, 0) && !judged(0, &removed, 7));
    let put_after = [
        op(OperationKind::Remove, 0, 1, 2),
        op(OperationKind::Put, 7, 3, 4),
    ];
    assert!(judged(5, &put_after, 7) && !judged(5, &put_after, 0));
}

#[test]
fn what_was_read_is_durable() {
    let mut read = op(OperationKind::Get, 0, 2, 3);
    read.seen = 7;
    let ops = [op(OperationKind::Put, 7, 1, NEVER), read];
    assert!(judged(5, &ops, 7) && !judged(5, &ops, 5));
    assert!(!judged(5, &[read], 5), "read from nowhere");
}

fn read(seen: ValueVersion, begin: u64, end: u64) -> RecordedOperation {
    let mut read = op(OperationKind::Get, 0, begin, end);
    read.seen = seen;
    read.effective = (end != NEVER).then_some(seen != 0);
    read
}

/// The reader of a shared key once could not say that a removal it had seen was taken back.
#[test]
fn an_absence_that_was_read_is_durable() {
    let removal = op(OperationKind::Remove, 0, 1, NEVER);
    assert!(judged(5, &[removal], 5));
    let ops = [removal, read(0, 2, 3)];
    assert!(judged(5, &ops, 0) && !judged(5, &ops, 5));
    // One write was done before the read, another one may have come after it.
    let put = op(OperationKind::Put, 7, 1, 2);
    let ops = [put, op(OperationKind::Remove, 0, 3, NEVER), read(0, 4, 5)];
    assert!(judged(5, &ops, 0) && !judged(5, &ops, 7));
    let ops = [
        op(OperationKind::Put, 7, 1, 6),
        op(OperationKind::Remove, 0, 3, NEVER),
        read(0, 4, 5),
    ];
    assert!(judged(0, &ops, 7) && judged(0, &ops, 0) && !judged(5, &ops, 5));
    // A write that is not durable yet may still be lost, unless a sync came after it.
    let ops = [removal, read(0, 2, 3)];
    let judged = |until| judge_key(5, &mut ops.to_vec(), 5, false, &rules(until, false)).is_ok();
    assert!(judged(BEFORE) && judged(2) && !judged(3));
}

/// One record says how an operation ended and what its thread does next.
#[test]
fn what_a_thread_does_next_comes_after() {
    let ops = [
        op(OperationKind::Put, 7, 1, 2),
        op(OperationKind::Remove, 0, 2, 3),
    ];
    assert!(judged(5, &ops, 0) && !judged(5, &ops, 7));
}

/// A read shows the order of two writes that overlap.
#[test]
fn a_write_that_was_read_over_does_not_come_back() {
    let ops = [
        op(OperationKind::Put, 7, 1, 4),
        op(OperationKind::Put, 8, 2, 3),
        read(8, 5, 6),
    ];
    assert!(judged(0, &ops, 8) && !judged(0, &ops, 7));
}

/// With buffered durability, a removal that was present once did not count as evidence that earlier
/// operations are durable.
#[test]
fn a_removal_that_is_there_says_what_was_before_it() {
    let record = |answer, kind, key, version| Announcement {
        thread: 0,
        answer,
        seen: 0,
        kind,
        tree: 0,
        key,
        version,
        expected: 0,
    };
    let said: Vec<u8> = [
        record(None, OperationKind::Put, 1, 7),
        record(Some(true), OperationKind::Remove, 2, 8),
        record(Some(true), OperationKind::Get, 3, 9),
    ]
    .iter()
    .flat_map(Announcement::encode)
    .collect();
    let contents = |versions: [ValueVersion; 4]| Contents::of(vec![versions.to_vec(), vec![0; 4]]);
    let judged = |found| {
        let work = TortureWorkload {
            engine: Engine::RNTREE,
            acknowledged: Acknowledged::Buffered,
            threads: 1,
            keys: 4,
            trees: 2,
            batches: false,
        };
        let history = RoundHistory::read(&said, &work).unwrap();
        let mut oracle = Oracle::new(contents([0, 5, 6, 0]), work);
        let mut tally = Tally::default();
        let mut violations = Vec::new();
        oracle.judge(history, contents(found), &mut tally, &mut violations);
        violations.is_empty()
    };
    assert!(judged([0, 7, 0, 0]) && judged([0, 7, 6, 0]) && judged([0, 5, 6, 0]));
    assert!(
        !judged([0, 5, 0, 0]),
        "the put is lost, and what came after it is not"
    );
}

/// All trees have one log and one sequence of epochs: an earlier operation is not lost alone,
/// whichever tree it was in.
#[test]
fn all_trees_are_as_at_one_moment() {
    let record = |answer, tree, version| Announcement {
        thread: 0,
        answer,
        seen: 0,
        kind: OperationKind::Put,
        tree,
        key: 1,
        version,
        expected: 0,
    };
    let records = [
        record(None, 0, 7),
        record(Some(true), 1, 8),
        record(Some(true), 0, 9),
    ];
    let said: Vec<u8> = records.iter().flat_map(Announcement::encode).collect();
    let engine = Engine::MASSTREE;
    let work = TortureWorkload {
        engine,
        acknowledged: Acknowledged::Buffered,
        threads: 1,
        keys: 2,
        trees: 2,
        batches: false,
    };
    let judged = |first, second| {
        let mut oracle = Oracle::new(Contents::empty(&work), work.clone());
        let history = RoundHistory::read(&said, &work).unwrap();
        let found = vec![vec![0, first], vec![0, second]];
        let mut violations = Vec::new();
        oracle.judge(
            history,
            Contents::of(found),
            &mut Tally::default(),
            &mut violations,
        );
        violations.is_empty()
    };
    assert!(judged(0, 0) && judged(7, 0) && judged(7, 8) && judged(9, 8));
    assert!(!judged(0, 8) && !judged(9, 0));
}

#[test]
fn with_epochs_what_was_acknowledged_late_may_be_lost() {
    let ops = [
        op(OperationKind::Put, 7, 1, 2),
        op(OperationKind::Put, 8, 3, 6),
    ];
    let judged =
        |now, until| judge_key(5, &mut ops.to_vec(), now, true, &rules(until, false)).is_ok();
    assert!(judged(5, BEFORE) && judged(7, BEFORE) && judged(8, BEFORE));
    assert!(!judged(5, 4) && judged(7, 4) && judged(8, 4) && !judged(0, 4));
    assert!(!judged(7, 7) && judged(8, 7));
}

#[test]
fn with_tickets_what_was_waited_for_or_read_is_durable() {
    let mut ops = vec![
        op(OperationKind::Put, 7, 1, 2),
        op(OperationKind::Put, 8, 3, 6),
    ];
    let judged = |ops: &[RecordedOperation], now| {
        judge_key(5, &mut ops.to_vec(), now, true, &rules(BEFORE, true)).is_ok()
    };
    assert!(judged(&ops, 5) && judged(&ops, 7) && judged(&ops, 8));
    ops[0].is_durable = true;
    assert!(!judged(&ops, 5) && judged(&ops, 7) && judged(&ops, 8));
    let mut read = op(OperationKind::Get, 0, 7, 8);
    read.seen = 8;
    ops.push(read);
    assert!(!judged(&ops, 5) && !judged(&ops, 7) && judged(&ops, 8));
}

#[test]
fn a_wait_is_for_what_its_own_thread_did() {
    let record = |thread, answer, kind, version| Announcement {
        thread,
        answer,
        seen: 0,
        kind,
        tree: 0,
        key: 9,
        version,
        expected: 0,
    };
    let said: Vec<u8> = [
        record(0, None, OperationKind::Put, 1),
        record(1, None, OperationKind::Put, 2),
        record(1, Some(true), OperationKind::Put, 3),
        record(0, Some(true), OperationKind::Sync, 4),
        record(0, Some(true), OperationKind::Put, 5),
    ]
    .iter()
    .flat_map(Announcement::encode)
    .collect();
    let work = TortureWorkload {
        engine: Engine::RNTREE,
        acknowledged: Acknowledged::Durable,
        threads: 1,
        keys: 100,
        trees: 2,
        batches: false,
    };
    let history = RoundHistory::read(&said, &work).unwrap();
    let on_key_9 = TreeKey { tree: 0, key: 9 };
    let durable = history.operations[&on_key_9].iter().map(|op| op.is_durable);
    assert_eq!(
        durable.collect::<Vec<_>>(),
        [true, false, false, false, false]
    );
}

#[test]
fn answers_on_a_key_of_one_thread_are_those_of_a_map() {
    let inserted_twice = [
        op(OperationKind::Insert, 7, 1, 2),
        op(OperationKind::Insert, 8, 3, 4),
    ];
    assert!(
        judge_key(
            0,
            &mut inserted_twice.to_vec(),
            8,
            true,
            &rules(NEVER, true)
        )
        .is_err()
    );
    assert!(
        judge_key(
            0,
            &mut inserted_twice[..1].to_vec(),
            7,
            true,
            &rules(NEVER, true)
        )
        .is_ok()
    );
}
