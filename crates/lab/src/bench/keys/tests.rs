use super::*;

#[test]
fn keys_are_distinct() {
    let keys = Keys::new(100_000, 7);
    let all: std::collections::HashSet<u64> =
        (0..keys.count()).map(|index| keys.key(index)).collect();
    assert_eq!(all.len(), 100_000);
}

#[test]
fn short_keys_are_all_there_are() {
    for keys in [Keys::new(1 << 16, 7), Keys::ordered(1 << 16)] {
        let keys = keys.of_bytes(2).unwrap();
        let all: std::collections::HashSet<u64> =
            (0..keys.count()).map(|index| keys.key(index)).collect();
        assert_eq!(all.len(), 1 << 16);
        assert!(all.iter().all(|key| key.trailing_zeros() >= 48));
    }
    assert!(Keys::new((1 << 16) + 1, 7).of_bytes(2).is_none());
    assert!(Keys::new(2, 7).of_bytes(0).is_none());
    let same = |index| Keys::new(u64::MAX, 7).of_bytes(99).unwrap().key(index);
    assert!((0..100).all(|index| same(index) == Keys::new(u64::MAX, 7).key(index)));
}

#[test]
fn zipfian_ranks_have_their_frequencies() {
    let zipfian = Zipfian::new(1_000_000, 0.99);
    let mut random = Random::new(3);
    let draws = 200_000;
    let mut counts = [0_u32; 2];
    let mut among_first_hundred = 0;
    for _ in 0..draws {
        let rank = zipfian.rank(&mut random);
        assert!(rank < 1_000_000);
        if let Some(count) = counts.get_mut(rank as usize) {
            *count += 1;
        }
        among_first_hundred += u32::from(rank < 100);
    }
    let is_near = |count: u32, weight: f64, tolerance: f64| {
        // The sum of 1 / i^0.99 over a million is 15.39.
        let expected = f64::from(draws) * weight / 15.39;
        assert!(
            (f64::from(count) / expected - 1.0).abs() < tolerance,
            "{count} draws, not {expected}"
        );
    };
    // The method draws the first two ranks exactly, and the others by a smooth curve through them.
    is_near(counts[0], 1.0, 0.05);
    is_near(counts[1], 2_f64.powf(-0.99), 0.05);
    is_near(
        among_first_hundred,
        (1..=100).map(|rank| f64::from(rank).powf(-0.99)).sum(),
        0.1,
    );
}
