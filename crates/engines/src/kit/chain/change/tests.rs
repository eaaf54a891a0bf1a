use medium::arena::Arena;

use super::*;
use crate::index::RecordCodec;

#[test]
fn nodes_that_come_to_nothing_are_given_back() {
    let mut tree = InnerTree::<RecordCodec>::new(1).unwrap();
    // An arena of a single step, so that the build runs out of tails.
    tree.tails = Some(Arena::new(1).unwrap());
    let most = (4 << 20) / size_of::<Tails>() as u32;
    let leaf = |number: u32| {
        (
            Separator {
                word: u64::from(number),
                tail: 0,
            },
            number,
        )
    };
    let leaves: Vec<_> = (1..=(most + 1) * CHILDREN_BUILT as u32).map(leaf).collect();
    for _ in 0..2 {
        assert!(tree.build(&leaves).is_err());
        assert_eq!(tree.nodes.bytes_used(), 0);
    }
    tree.build(&leaves[..CHILDREN_BUILT]).unwrap();
    assert_eq!(tree.height(), 1);
}
