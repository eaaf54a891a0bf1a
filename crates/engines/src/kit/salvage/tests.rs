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

fn entry_of(key: u32) -> OwnedEntry {
    (key.to_be_bytes().to_vec(), vec![0; 3])
}

/// The neighbours of each damage, as numbers; 0 stands for none.
fn neighbours(left_out: &[LeftOut]) -> Vec<[u32; 2]> {
    let number = |key: &Option<Arc<[u8]>>| match key {
        Some(key) => u32::from_be_bytes((**key).try_into().unwrap()),
        None => 0,
    };
    left_out
        .iter()
        .map(|left_out| [number(&left_out.keys.above), number(&left_out.keys.below)])
        .collect()
}

/// Which keys lie around damage is known only when the entries around it are decided.
#[test]
fn lost_keys_are_named_by_the_keys_around_them() {
    let unreadable = || Err(Error::corrupt(0, "damaged"));
    let node = |salvage: &mut Salvage<'_>| salvage.leave_out(0, Part::Node, String::new());
    for sorted in [true, false] {
        let mut visit = |_: &[u8], _: &[u8]| true;
        let mut salvage = Salvage::new(&mut visit);
        node(&mut salvage);
        for key in 1..100 {
            salvage.entry(0, Ok(entry_of(key)));
        }
        node(&mut salvage);
        salvage.leave_out(0, Part::Unknown, String::new());
        let leaf = vec![Ok(entry_of(200)), unreadable(), Ok(entry_of(210))];
        salvage.entries(0, leaf, sorted);
        salvage.entries(0, vec![Ok(entry_of(300)), unreadable()], sorted);
        let expected = if sorted {
            [[0, 1], [99, 200], [0, 0], [200, 210], [300, 0]]
        } else {
            [[0, 1], [99, 200], [0, 0], [99, 300], [210, 0]]
        };
        assert_eq!(neighbours(&salvage.finish()), expected, "sorted: {sorted}");
    }
}
