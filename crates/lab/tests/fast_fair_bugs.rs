//! Published bugs of FAST-FAIR's code, none of which ours has. The museum of `everleaf-sim` has
//! them planted in a toy.

use engines::engine::CodecKind;
use everleaf::{Options, TreeOptions};
use everleaf_lab::{ENGINES, FAST_FAIR};
use sim::index::IndexOperation::{self, DropTree, Insert, Remove};
use sim::index::{CodecName, FollowUp, IndexSubject, RUBBISH_FROM, Size, engine};
use sim::{ExplorationOptions, Explorer, Images, Rules, SecondCrash};

/// Explores operations on a tree of nodes with several lines, and of small ones; after each crash a
/// write comes first.
fn explore(setup: &[IndexOperation], operations: &[IndexOperation]) {
    explore_with(FollowUp::SplitAndMerge, setup, operations);
}

fn explore_with(follow_up: FollowUp, setup: &[IndexOperation], operations: &[IndexOperation]) {
    for (codec, size) in [CodecName::Word, CodecName::Record]
        .into_iter()
        .flat_map(|codec| [(codec, Size::Full), (codec, Size::Small)])
    {
        for follow_up_first in [true, false] {
            let options = ExplorationOptions {
                rules: Rules::Lines,
                images: Images::All,
                second_crash: SecondCrash::InRecovery,
                limit_bytes: 16 << 20,
                rubbish_from: Some(RUBBISH_FROM),
                follow_up_first,
                ..ExplorationOptions::default()
            };
            let explored = engine(FAST_FAIR, codec, size);
            let subject = IndexSubject::new(&explored, follow_up);
            let mut explorer = Explorer::new(subject, options).unwrap();
            explorer
                .set_up(setup)
                .unwrap_or_else(|failure| panic!("{failure}"));
            if let Err(failure) = explorer.explore(operations) {
                panic!("{codec:?}, {size:?}: {}", failure.narrate(&failure.command));
            }
            let stats = explorer.stats();
            assert!(stats.cut_short == 0 && stats.points > 0, "{stats}");
        }
    }
}

/// Entries that a crash leaves of a split or a merge name the sibling's records, whose memory may
/// then be reused.
#[test]
fn copies_that_a_crash_leaves_do_not_outlive_their_records() {
    explore_with(
        FollowUp::Reuse,
        &up_to(28),
        &[Insert(285, 1), Insert(295, 2)],
    );
    explore_with(
        FollowUp::Reuse,
        &up_to(8),
        &[Remove(80), Remove(70), Remove(60), Remove(50), Remove(40)],
    );
}

fn up_to(last: u64) -> Vec<IndexOperation> {
    (1..=last).map(|key| Insert(10 * key, key)).collect()
}

/// A search tolerates the entry that an interrupted insert leaves behind; a later remove must not
/// find it first. Witcher, bug 4.
#[test]
fn an_interrupted_insert_leaves_no_ghost() {
    explore(
        &up_to(3),
        &[Insert(15, 1), Remove(20), Remove(15), Insert(20, 4)],
    );
}

/// A remove shifts to the left, and flushes a line when it is done with it, not when it begins.
/// Witcher, bug 3.
#[test]
fn a_remove_flushes_a_line_when_it_leaves_it() {
    explore(&up_to(9), &[Remove(20), Insert(20, 21), Remove(10)]);
}

/// A line is durable before the entry that it has taken over changes. RECIPE, issue 9.
#[test]
fn shifts_over_several_lines_are_ordered() {
    explore(&up_to(9), &[Insert(5, 1), Insert(35, 2)]);
}

/// All parts of a new tree are flushed. FAST_FAIR, issue 13.
#[test]
fn a_new_tree_is_durable() {
    explore(&up_to(1), &[DropTree, Insert(10, 1)]);
}

/// Both halves of a root that is split are reached, whatever crashes. Witcher, bug 5.
#[test]
fn a_split_of_the_root_leaves_no_orphan() {
    explore(&up_to(28), &[Insert(285, 1), Remove(10), Insert(295, 2)]);
}

/// A key that is there is not inserted again, and a remove of a key that is not there ends.
#[test]
fn keys_are_unique_and_absent_ones_are_not_removed() {
    for size in [Size::Small, Size::Full] {
        let store = Options::new().engines(ENGINES).open_in_memory().unwrap();
        let nodes = if size == Size::Small {
            FAST_FAIR.small
        } else {
            FAST_FAIR.full
        };
        let kind = TreeOptions {
            engine: FAST_FAIR,
            codec: CodecKind::Word,
            ..TreeOptions::default()
        };
        let kind = nodes
            .settings
            .iter()
            .fold(kind, |kind, (name, value)| kind.with(name, *value).unwrap());
        let tree = store.tree_with("keys", kind).unwrap();
        let key = |number: u64| number.to_be_bytes();
        for number in 0..200_u64 {
            assert!(tree.insert(key(number * 7 % 200), key(number)).unwrap());
            assert!(!tree.insert(key(number * 7 % 200), key(0)).unwrap());
        }
        assert_eq!(tree.len().unwrap(), 200);
        for number in 0..200 {
            assert!(!tree.remove(key(1000 + number)).unwrap() && tree.remove(key(number)).unwrap());
            assert!(!tree.remove(key(number)).unwrap());
        }
        assert!(tree.is_empty().unwrap() && tree.check().unwrap().is_empty());
    }
}
