use medium::Dax;
use pool::{Pool, PoolOptions};

use super::*;
use crate::index::{Condition, WordCodec, WordIndex};
use crate::rntree::RnTreeOptions;

#[test]
fn a_visit_that_is_pinned_goes_on_where_the_leaf_ends() {
    let pool = Pool::open(Dax::plain(1 << 26).unwrap(), PoolOptions::default()).unwrap();
    let tree = RnTree::<Dax, WordCodec>::create(
        &pool,
        "t",
        RnTreeOptions {
            leaf_entries: 4,
            ..RnTreeOptions::default()
        },
    )
    .unwrap();
    let keys: Vec<u64> = (0..100).map(|key| 10 * key).chain([u64::MAX]).collect();
    for key in &keys {
        WordIndex::write_durably(&tree, *key, Some(*key), Condition::Absent).unwrap();
    }
    for from in [0, 1, 10, 995, u64::MAX] {
        let mut progress = ScanProgress {
            resume: from,
            seen: Lsn::DURABLE,
        };
        let mut visited = Vec::new();
        let mut visit = |entries: &[[u64; 2]], _: Lsn| {
            visited.extend(entries.iter().map(|[key, _]| *key));
            true
        };
        let mut steps = 0;
        while tree.visit_pinned(&mut progress, &mut visit).unwrap() {
            steps += 1;
            assert!(steps < 100, "from {from}");
        }
        assert_eq!(
            visited,
            keys.iter()
                .copied()
                .filter(|key| *key >= from)
                .collect::<Vec<_>>()
        );
    }
    let mut progress = ScanProgress {
        resume: 0,
        seen: Lsn::DURABLE,
    };
    let refuse = &mut |_: &[[u64; 2]], _| false;
    assert!(!tree.visit_pinned(&mut progress, refuse).unwrap());
}
