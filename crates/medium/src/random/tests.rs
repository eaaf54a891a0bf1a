use std::collections::HashSet;

#[test]
fn ids_differ_also_in_each_half() {
    let ids: Vec<u128> = (0..1000).map(|_| super::random_id()).collect();
    let halves: HashSet<u64> = ids
        .iter()
        .flat_map(|id| [*id as u64, (*id >> 64) as u64])
        .collect();
    assert_eq!(halves.len(), 2000);
}
