use super::*;

#[test]
fn medians_are_in_the_middle() {
    assert_eq!((median(&mut [3, 1, 2]), median(&mut [0.5])), (2, 0.5));
    assert_eq!(median::<u64>(&mut []), 0);
}

#[test]
fn what_logs_did_is_added_up() {
    let log = |capacity_bytes, written_bytes, checkpoints, replayed_bytes| LogStat {
        capacity_bytes,
        written_bytes,
        syncs: 10,
        groups: 30,
        checkpoints,
        checkpoint_seconds: 0.1,
        replayed_bytes,
        torn_tail: replayed_bytes > 0,
    };
    let mut logs = Logs::default();
    logs.add(&log(64, 0, 0, 0), None);
    logs.add(
        &log(64, 0, 0, 50),
        Some(&LogFigures {
            seconds: 1.0,
            log_bytes_at_open: 64,
            log: log(64, 40, 0, 50),
        }),
    );
    logs.add(
        &log(64, 0, 0, 9),
        Some(&LogFigures {
            seconds: 1.0,
            log_bytes_at_open: 64,
            log: log(128, 500, 3, 9),
        }),
    );
    assert_eq!(
        (
            logs.grown,
            logs.recycled,
            logs.checkpointed,
            logs.checkpoints
        ),
        (1, 1, 1, 3)
    );
    assert_eq!(
        (logs.replays, logs.replayed_bytes_max, logs.torn_tails),
        (2, 50, 2)
    );
    assert_eq!(
        (
            logs.groups,
            logs.capacity_bytes_max,
            logs.checkpoints_time_share
        ),
        (60, 128, 0.1)
    );
    let words = Report {
        log: Some(logs),
        ..Report::default()
    }
    .words();
    assert!(
        words.contains("grew in 1, went around in 1, was checkpointed in 1 (3 times, 10 %"),
        "{words}"
    );
}

#[test]
fn many_violations_are_counted_and_some_told() {
    let mut report = Report::default();
    report.add_violations(3, vec!["lost".to_owned(); 15]);
    report.add_violations(4, vec!["lost".to_owned(); 15]);
    assert_eq!(
        (report.violations, report.first_violations.len()),
        (30, VIOLATIONS_TOLD)
    );
    assert!(report.is_violated() && report.words().contains("30 VIOLATIONS"));
    assert_eq!(report.first_violations[15], "cut 4: lost");
    report.no_sync = true;
    assert!(report.words().contains("as there must be"));
}
