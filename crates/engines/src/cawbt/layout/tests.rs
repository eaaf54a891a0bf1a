use super::*;

fn leaf(ids: &[u32]) -> NodeContent {
    let mut content = NodeContent::empty_leaf().with_next(0x1000);
    ids.iter()
        .for_each(|id| content.insert_entry(content.count, *id, u64::from(*id) * 16));
    content
}

fn inner(ids: &[u32]) -> NodeContent {
    let mut content = NodeContent {
        pointers: [64, 0, 0, 0, 0],
        ..NodeContent::default()
    };
    ids.iter()
        .for_each(|id| content.insert_child(content.count + 1, *id, u64::from(*id) * 64));
    content
}

fn ids_of(content: &NodeContent) -> Vec<u32> {
    let node = content.sealed(0x40, 0x80);
    node.validated(0x40).unwrap();
    assert_eq!((node.parent(), node.count()), (0x80, content.count));
    (0..node.count())
        .map(|position| node.id(position))
        .collect()
}

fn pointers_of(content: &NodeContent) -> Vec<u64> {
    content.sealed(0x40, 0).pointers().collect()
}

#[test]
fn entries_come_and_go() {
    let mut content = leaf(&[1, 3]);
    content.insert_entry(1, 2, 32);
    content.insert_entry(3, (1 << ID_BITS) - 1, (1 << 48) - 16);
    assert_eq!(ids_of(&content), [1, 2, 3, (1 << ID_BITS) - 1]);
    assert_eq!(pointers_of(&content), [16, 32, 48, (1 << 48) - 16]);
    content.remove_entry(0);
    content.remove_entry(1);
    assert_eq!(
        (ids_of(&content), content.pointers[NEXT]),
        (vec![2, (1 << ID_BITS) - 1], 0x1000)
    );
}

#[test]
fn children_come_and_go() {
    let mut content = inner(&[2, 4]);
    content.insert_child(2, 3, 192);
    content.insert_child(1, 1, 77 * 64);
    assert_eq!(ids_of(&content), [1, 2, 3, 4]);
    assert_eq!(pointers_of(&content), [64, 77 * 64, 128, 192, 256]);
    content.remove_child(0);
    content.remove_child(3);
    assert_eq!(
        (ids_of(&content), pointers_of(&content)),
        (vec![2, 3], vec![77 * 64, 128, 192])
    );
}

#[test]
fn nodes_are_split_and_joined() {
    let Halves {
        left,
        separator,
        right,
    } = leaf(&[1, 2, 3, 4]).split();
    assert_eq!(
        (ids_of(&left), separator, ids_of(&right)),
        (vec![1, 2], 3, vec![3, 4])
    );
    assert_eq!(ids_of(&left.without(1).without(7)), [2]);
    assert_eq!(ids_of(&left.joined(0, &right)), [1, 2, 3, 4]);
    let Halves {
        left,
        separator,
        right,
    } = inner(&[2, 3, 4, 5]).split();
    assert_eq!(
        (ids_of(&left), separator, ids_of(&right)),
        (vec![2, 3], 4, vec![5])
    );
    assert_eq!(pointers_of(&right), [256, 320]);
    let joined = left.joined(separator, &right);
    assert_eq!(
        (ids_of(&joined), pointers_of(&joined)),
        (vec![2, 3, 4, 5], vec![64, 128, 192, 256, 320])
    );
}

#[test]
fn every_changed_byte_fails_the_check() {
    let node = leaf(&[7, 8, 9]).sealed(0x1240, 0x5680);
    node.validated(0x1240).unwrap();
    assert!(node.validated(0x1280).is_err());
    for (byte, change) in (0..64).flat_map(|byte| (1..=0xff_u64).map(move |change| (byte, change)))
    {
        let mut damaged = node;
        damaged.0.0[byte / 8] ^= change << (8 * (byte % 8)) & !TAG_MASK;
        assert!(
            damaged == node || damaged.validated(0x1240).is_err(),
            "byte {byte} xor {change:#x}"
        );
    }
}
