use super::{Shape, sizes_to};

#[test]
fn sizes_are_decades_and_those_of_the_worst_overhead_up_to_the_one_asked_for() {
    assert_eq!(sizes_to(3_000), [3_000]);
    assert_eq!(sizes_to(100_000), [10_000, 100_000]);
    let paper = [
        10_000, 100_000, 1_000_000, 2_000_000, 3_000_000, 10_000_000, 20_000_000,
    ];
    assert_eq!(sizes_to(20_000_000), paper);
}

#[test]
fn a_curve_is_told_by_where_it_is_highest_and_what_it_falls_to() {
    let shape = |points: &[(f64, f64)]| Shape::of_points(points);
    let fallen = shape(&[
        (1e4, 900.0),
        (1e6, 40_000.0),
        (3e6, 30_000.0),
        (2e7, 10_000.0),
    ])
    .unwrap();
    assert_eq!(
        (fallen.first, fallen.peak, fallen.last),
        ((1e4, 900.0), (1e6, 40_000.0), (2e7, 10_000.0))
    );
    assert_eq!(
        fallen.rise_and_fall(),
        "900 at 10,000 keys, peak 40,000 at 1,000,000, then 10,000 at 20,000,000 (-75%)"
    );
    let risen = shape(&[(1e4, 900.0), (1e6, 1_000.0)]).unwrap();
    assert_eq!(
        risen.rise_and_fall(),
        "900 at 10,000 keys, rise up to the largest: 1,000 at 1,000,000"
    );
    assert_eq!(shape(&[]), None);
}
