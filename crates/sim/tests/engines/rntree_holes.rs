//! The holes of RNTree that only crashes within a persist show, or only threads that stop anywhere.
//! The others: `crates/engines/tests/rntree_stopped/holes.rs`.

use std::collections::BTreeSet;
use std::path::Path;

use everleaf_sim::index::CodecName::{Record, Word};
use everleaf_sim::index::IndexOperation::{self, Insert, Put, Remove};
use everleaf_sim::index::threads::{ProgramExploration, exhaust};
use everleaf_sim::index::{CodecName, Engine, FollowUp, IndexSubject};
use everleaf_sim::{
    ExplorationOptions, Explorer, Images, Program, Scheduling, Search, SecondCrash,
};
use medium::LineForm;
use medium::sim::{Mutation, Site};

use crate::common;

/// A leaf splits alone, another one shares with its neighbour.
const CHANGES: [IndexOperation; 7] = [
    Insert(10, 1),
    Insert(20, 2),
    Insert(30, 3),
    Insert(40, 4),
    Insert(25, 5),
    Insert(12, 6),
    Insert(14, 7),
];

/// Explores every crash with these faults; returns further faults that could be planted, or the
/// report.
fn explore(
    codec: CodecName,
    line_form: LineForm,
    mutations: Vec<Mutation>,
) -> Result<BTreeSet<Mutation>, String> {
    let options = common::options("engines", Images::All, SecondCrash::Never);
    let options = ExplorationOptions {
        line_form,
        mutations,
        shrink: false,
        ..options
    };
    let engine = common::small(Engine::RNTREE, codec);
    let mut explorer = Explorer::new(IndexSubject::new(&engine, FollowUp::Keys), options).unwrap();
    explorer
        .survey(&CHANGES)
        .map_err(|failure| failure.to_string())
}

/// Whether it is a place in the source where a split publishes a leaf that other threads can reach.
fn is_publish(site: Site) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let line = |text: String| text.lines().nth(site.line as usize - 1).map(str::to_owned);
    let is_there = |line: String| line.contains(" leaf.slots.publish(");
    site.file.ends_with("rntree/split.rs")
        && std::fs::read_to_string(root.join(site.file))
            .ok()
            .and_then(line)
            .is_some_and(is_there)
}

/// The faults that `plant` picks at the publish of a split must be noticed.
fn is_noticed_at_the_publish(plant: fn(Mutation) -> Option<Site>) {
    for (codec, line_form) in [
        (Word, LineForm::Single),
        (Word, LineForm::Twin),
        (Record, LineForm::Twin),
    ] {
        let all = explore(codec, line_form, Vec::new()).unwrap_or_else(|report| panic!("{report}"));
        let planted = all
            .into_iter()
            .filter(|mutation| plant(*mutation).is_some_and(is_publish));
        let planted: Vec<_> = planted.collect();
        assert_eq!(planted.len(), 1, "{planted:?}");
        let noticed = explore(codec, line_form, planted.clone()).is_err();
        assert!(
            noticed,
            "{codec:?}, {line_form:?}: not noticed: {}",
            planted[0]
        );
    }
}

/// The published split marks its undo log as valid before its content is durable. This engine has
/// no log; here the slot line that links the new leaf must come second.
#[test]
fn a_split_is_valid_only_after_its_content() {
    is_noticed_at_the_publish(|mutation| match mutation {
        Mutation::PublishEarly(site) => Some(site),
        _ => None,
    });
}

/// The published split flushes a range that `next` is not in.
#[test]
fn a_split_flushes_the_link_to_its_leaf() {
    is_noticed_at_the_publish(|mutation| match mutation {
        Mutation::DropFlush(site) => Some(site),
        _ => None,
    });
}

/// Every schedule with two preemptions, with words; in thorough runs with records as well.
fn explore_schedules(setup: &[IndexOperation], program: &Program<IndexOperation>) {
    let options = common::options("engines", Images::Some { random: 0 }, SecondCrash::Never);
    let scheduling = Scheduling {
        crashes: false,
        ..Scheduling::default()
    };
    let search = Search::Exhaustive { preemptions_max: 2 };
    for codec in [Word, Record]
        .into_iter()
        .take(if common::is_thorough() { 2 } else { 1 })
    {
        let engine = common::small(Engine::RNTREE, codec);
        let next = |number: usize| (number == 0).then(|| (program.clone(), search.clone()));
        let work = ProgramExploration {
            options: &options,
            follow_up: FollowUp::Keys,
            scheduling: &scheduling,
            workers: 1,
            progress: None,
        };
        let stats = exhaust(&engine, setup, next, work);
        let stats = stats.unwrap_or_else(|failure| panic!("{failure}"));
        println!("{codec:?}: {} schedules", stats.schedules);
        assert_eq!(stats.cut_short, 0);
    }
}

/// The published remove compares a version that never changes, and does not return on a leaf that
/// was modified meanwhile: a thread that goes on for ever is a violation.
#[test]
fn a_remove_returns_on_a_leaf_that_others_modify() {
    let setup = [Insert(10, 1), Insert(20, 2)];
    for other in [
        Put(10, 3),
        Put(20, 3),
        Insert(15, 3),
        Remove(20),
        Remove(10),
    ] {
        explore_schedules(&setup, &Program::single(&[Remove(10), other]));
    }
}

/// In the published code split detection is dead: a racing insert can land in the wrong leaf.
#[test]
fn racing_inserts_land_in_the_leaf_that_covers_them() {
    let setup = [10, 20, 30, 40].map(|key| Insert(key, key));
    for key in [5, 25, 35, 45] {
        explore_schedules(&setup, &Program::single(&[Insert(15, 1), Insert(key, 2)]));
    }
}

/// A writer goes on from a leaf that was just split, while a merge gives the leaf another high key
/// and another next leaf. With the old high key and the new next leaf it would go too far.
#[test]
fn a_merge_sends_no_writer_too_far() {
    let mut setup: Vec<_> = (1..7).map(|key| Insert(10 * key, key)).collect();
    setup.push(Insert(25, 7));
    explore_schedules(
        &setup,
        &Program::of(vec![vec![Put(27, 101)], vec![Remove(10), Remove(20)]]),
    );
}
