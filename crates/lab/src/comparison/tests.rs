use super::*;

#[test]
fn each_has_its_turn_in_every_run_and_comes_first_equally_often() {
    let order = |number| turns(number, 3).collect::<Vec<_>>();
    assert_eq!(
        [order(0), order(1), order(2), order(3)],
        [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]
    );
    assert_eq!(turns(7, 0).count(), 0);
}
