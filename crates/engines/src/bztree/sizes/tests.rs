use super::*;

#[test]
fn sizes_out_of_bounds_are_refused_by_name() {
    let default = NodeSizes::default();
    assert_eq!(default.validated().unwrap(), NodeSizes::of_leaf(56));
    assert_eq!((default.free_entries, default.inner_children), (12, 63));
    for entries in 4..=56 {
        assert!(NodeSizes::of_leaf(entries).validated().is_ok(), "{entries}");
    }
    for (sizes, named) in [
        (NodeSizes::of_leaf(3), "3 entries a leaf"),
        (NodeSizes::of_leaf(57), "57 entries a leaf"),
        (NodeSizes::of_leaf(usize::MAX), "entries a leaf"),
        (
            NodeSizes {
                free_entries: 0,
                ..default
            },
            "0 free entries",
        ),
        (
            NodeSizes {
                free_entries: 43,
                ..default
            },
            "43 free entries",
        ),
        (
            NodeSizes {
                inner_children: 3,
                ..default
            },
            "3 children",
        ),
        (
            NodeSizes {
                inner_children: 64,
                ..default
            },
            "64 children",
        ),
    ] {
        let error = sizes.validated().unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("take"), "{error}");
    }
}

#[test]
fn a_leaf_has_all_the_room_that_is_allocated_for_it() {
    let rooms = NodeSizes::default().rooms();
    assert_eq!(
        [28 + 12, 52, 80].map(|entries| rooms.room(entries)),
        [40, 56, 56]
    );
    assert_eq!(rooms.from(39).collect::<Vec<_>>(), [40, 50, 56]);
    for entries in 0..=56 {
        let room = rooms.room(entries);
        let taken = |entries| pool::lines_taken(leaf_bytes(entries));
        assert!(
            room >= entries && taken(room) == taken(entries),
            "{entries}"
        );
        assert!(room == 56 || taken(room + 1) > taken(room), "{entries}");
    }
    assert_eq!(NodeSizes::of_leaf(4).rooms().room(3), 4);
}
