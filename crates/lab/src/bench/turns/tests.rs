use super::{available_bytes, turns};

#[test]
fn every_series_has_its_turn_in_every_run_and_comes_first_equally_often() {
    let order = |number| turns(number, 3).collect::<Vec<_>>();
    assert_eq!(
        [order(0), order(1), order(2), order(3)],
        [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]
    );
    assert_eq!(turns(7, 0).count(), 0);
}

#[test]
fn memory_that_is_to_be_had_is_read_from_what_the_kernel_says() {
    let said = "MemTotal:       24658536 kB\nMemFree:  100 kB\nMemAvailable:   23059412 kB\n";
    assert_eq!(available_bytes(said), Some(23_059_412 << 10));
    assert_eq!(available_bytes("MemTotal: 5 kB\n"), None);
}
