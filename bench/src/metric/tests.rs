use super::*;

#[test]
fn figures_have_a_unit_and_know_what_is_better() {
    let get = from_name("get-1").unwrap();
    let disk = from_name("disk-idle").unwrap();
    assert_eq!(
        [
            get.figure(1_234_567.0),
            get.figure(29_100.0),
            disk.figure(1_048_576.0)
        ],
        ["1.23 M/s", "29.1 k/s", "1.00 MiB"]
    );
    assert!(get.advantage(3.0, 1.0) > 1.0 && disk.advantage(3.0, 1.0) < 1.0);
}

#[test]
fn fewer_conflicts_are_better_and_none_are_the_best() {
    let conflicts = from_name("tx-hot-conflicts").unwrap();
    assert_eq!(conflicts.figure(0.0), "0.00");
    assert!(conflicts.advantage(0.5, 3.0) > 1.0);
    assert!((conflicts.advantage(0.0, 1.0) - 2.0).abs() < 1e-9);
    assert!((conflicts.advantage(0.0, 0.0) - 1.0).abs() < 1e-9);
}
