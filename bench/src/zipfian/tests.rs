use super::*;

#[test]
fn the_first_ranks_are_drawn_as_often_as_the_distribution_says() {
    let count = 1000;
    let theta = 0.99;
    let zipfian = HotRanks::new(count, theta);
    let zeta: f64 = (1..=count).map(|rank| (rank as f64).powf(-theta)).sum();
    let draws = 100_000;
    let mut counts = vec![0_u64; count as usize];
    for draw in 0..draws {
        let rank = zipfian.rank(f64::from(draw) / f64::from(draws));
        counts[rank as usize] += 1;
    }
    let share = |rank: usize| counts[rank] as f64 / f64::from(draws);
    assert!((share(0) - 1.0 / zeta).abs() < 0.001);
    assert!((share(1) - 0.5_f64.powf(theta) / zeta).abs() < 0.001);
    assert!(share(0) > 50.0 * share(100));
    assert!(counts[500..].iter().sum::<u64>() > 0);
}
