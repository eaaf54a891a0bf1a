use super::*;

fn saved(keys: impl Iterator<Item = u32>) -> (Vec<u32>, usize) {
    let mut saved = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        saved.push(u32::from_be_bytes(key.try_into().unwrap()));
        true
    };
    let mut salvage = Salvage::new(&mut visit);
    for key in keys {
        assert!(salvage.entry(0, Ok((key.to_be_bytes().to_vec(), vec![0; 3]))));
    }
    let left_out = salvage.finish().len();
    (saved, left_out)
}

/// A line has eight keys. In a tree of words only the order of the keys shows that they are
/// damaged.
#[test]
fn a_line_of_damaged_keys_costs_no_other() {
    for damaged in [0..8, 100..108, 900..908] {
        let is_damaged = |key: &u32| damaged.contains(key);
        let whole: Vec<u32> = (0..1000).filter(|key| !is_damaged(key)).collect();
        let keys = || (0..1000).map(|key| if is_damaged(&key) { !key } else { key });
        assert_eq!(saved(keys()), (whole, 8));
    }
}

#[test]
fn long_entries_are_not_kept_for_long() {
    let mut seen = 0;
    let mut visit = |_: &[u8], _: &[u8]| {
        seen += 1;
        true
    };
    let mut salvage = Salvage::new(&mut visit);
    for key in 0..6_u32 {
        salvage.entry(
            0,
            Ok((key.to_be_bytes().to_vec(), vec![0; AHEAD_BYTES / 2])),
        );
        assert!(salvage.ahead.len() <= 2);
    }
    assert!(salvage.finish().is_empty());
    assert_eq!(seen, 6);
}
