//! Engines under several threads: every relevant schedule, every crash of each.

use std::collections::BTreeSet;
use std::time::Instant;

use everleaf_sim::index::CodecName::{Record, Word};
use everleaf_sim::index::IndexOperation::{
    self, Exchange, Get, GetMany, Insert, Put, Remove, Scan, ScanBack, Update, Visit,
};
use everleaf_sim::index::suite::Scope;
use everleaf_sim::index::threads::{Chance, ProgramExploration, exhaust, pairs, scopes, triples};
use everleaf_sim::index::{AnyEngine, CodecName, Engine, Explored, FollowUp, IndexSubject};
use everleaf_sim::{
    DurabilityContract, ExplorationOptions, Explorer, Images, Program, Rules, Scheduling, Search,
    SecondCrash,
};
use medium::LineForm;
use medium::sim::{Mutation, Site, SiteKind};
use medium::testing::stride;

use crate::common;
use crate::common::setting;

fn options(images: Images) -> ExplorationOptions {
    ExplorationOptions {
        limit_bytes: 4 << 20,
        ..common::options("engines", images, SecondCrash::Never)
    }
}

const LINEAR: Images = Images::Some { random: 0 };

fn scheduling(search: Search) -> Scheduling {
    Scheduling {
        search,
        ..Scheduling::default()
    }
}

/// The programs of a seed tree.
type Programs = fn(&Scope, DurabilityContract) -> Vec<Program<IndexOperation>>;

/// Explores programs on each scope: one in `share` of the scope's programs.
fn explore(
    engine: &AnyEngine,
    programs: Programs,
    share: usize,
    options: &ExplorationOptions,
    search: &Search,
) {
    explore_further(engine, programs, share, options, search, FollowUp::Keys);
}

fn explore_further(
    engine: &AnyEngine,
    programs: Programs,
    share: usize,
    options: &ExplorationOptions,
    search: &Search,
    follow_up: FollowUp,
) {
    let share = if setting("EVERLEAF_LONG", 0) == 1 {
        1
    } else {
        share
    };
    for scope in scopes(engine.leaf_entries()) {
        let start = Instant::now();
        let programs: Vec<_> = programs(&scope, engine.durability())
            .into_iter()
            .step_by(share)
            .collect();
        let next = |number: usize| Some((programs.get(number)?.clone(), search.clone()));
        let scheduling = &Scheduling::default();
        let work = ProgramExploration {
            options,
            follow_up,
            scheduling,
            workers: 2,
            progress: None,
        };
        let stats = exhaust(engine, &scope.setup, next, work);
        let stats = stats.unwrap_or_else(|failure| panic!("{failure}"));
        println!(
            "{} {}, {}: {} programs, {} schedules, {} of them cut; {stats}; {:?}",
            engine.name(),
            engine.codec(),
            scope.name,
            programs.len(),
            stats.schedules,
            stats.schedules_cut,
            start.elapsed()
        );
        assert_eq!(stats.cut_short, 0);
    }
}

fn rntree(codec: CodecName) -> AnyEngine {
    common::small(Engine::RNTREE, codec)
}

const ONE: Search = Search::Exhaustive { preemptions_max: 1 };
const TWO: Search = Search::Exhaustive { preemptions_max: 2 };

#[test]
#[ignore = "thorough: 8 s"]
fn pairs_of_words_with_two_preemptions() {
    explore(&rntree(Word), pairs, stride(5), &options(LINEAR), &TWO);
}

#[test]
#[ignore = "thorough: 15 s"]
fn pairs_of_records_with_two_preemptions() {
    explore(&rntree(Record), pairs, 4, &options(LINEAR), &TWO);
}

#[test]
fn pairs_of_records() {
    let options = ExplorationOptions {
        line_form: LineForm::Twin,
        ..options(LINEAR)
    };
    explore(
        &rntree(Record),
        pairs,
        if common::is_thorough() { 2 } else { 3 },
        &options,
        &ONE,
    );
    let gathering = Explored::small(Engine::RNTREE, Record)
        .opening_with("gather", 1)
        .shared();
    explore(&gathering, pairs, 7, &options, &ONE);
}

#[test]
fn pairs_with_every_image() {
    explore(&rntree(Word), pairs, 3, &options(Images::All), &ONE);
}

/// Readers of nodes without versions validate against a table beside them.
#[test]
fn pairs_of_cawbt() {
    explore(
        &common::small(Engine::CAWBT, Word),
        pairs,
        1,
        &options(LINEAR),
        &ONE,
    );
    explore(
        &common::small(Engine::CAWBT, Record),
        pairs,
        3,
        &options(LINEAR),
        &ONE,
    );
    explore(
        &common::small(Engine::CAWBT, Word),
        pairs,
        5,
        &options(Images::All),
        &Search::Sweep,
    );
    let twin = ExplorationOptions {
        line_form: LineForm::Twin,
        ..options(LINEAR)
    };
    explore(&common::small(Engine::CAWBT, Word), pairs, 7, &twin, &ONE);
}

/// With epochs a crash leaves each key as it was at the end of the last one, wherever that fell.
#[test]
fn pairs_in_epochs() {
    for rules in [Rules::Lines, Rules::Log] {
        let options = ExplorationOptions {
            rules,
            ..options(LINEAR)
        };
        for codec in [Word, Record] {
            let share = if common::is_thorough() { 2 } else { 3 };
            explore(
                &common::small(Engine::MASSTREE, codec),
                pairs,
                share,
                &options,
                &ONE,
            );
        }
    }
}

#[test]
fn pairs_in_epochs_with_two_preemptions() {
    explore(
        &common::small(Engine::MASSTREE, Word),
        pairs,
        13,
        &options(LINEAR),
        &TWO,
    );
}

/// Explores a program on masstrees, without crashes; nothing must be wrong.
fn explore_masstrees(setup: &[IndexOperation], program: &Program<IndexOperation>, search: &Search) {
    for codec in [Record, Word] {
        let next = |number: usize| (number == 0).then(|| (program.clone(), search.clone()));
        let options = options(LINEAR);
        let scheduling = Scheduling {
            crashes: false,
            ..Scheduling::default()
        };
        let work = ProgramExploration {
            options: &options,
            follow_up: FollowUp::Keys,
            scheduling: &scheduling,
            workers: 1,
            progress: None,
        };
        let engine = common::small(Engine::MASSTREE, codec);
        exhaust(&engine, setup, next, work).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Explores a program on masstrees whose threads work on a full node, and on one beside it.
fn explore_in_a_node_to_share(program: &Program<IndexOperation>, search: &Search) {
    explore_masstrees(&scopes(4)[2].setup, program, search);
}

/// A scan reads a node again because an entry was inserted into it, and meanwhile the node is
/// split: the scan reads entries that have moved in the new node.
#[test]
fn a_scan_finds_what_moves_out_of_the_node_that_it_reads_again() {
    for scan in [ScanBack(0, 400), Scan(0, 400), Visit(0, 400)] {
        explore_in_a_node_to_share(
            &Program::single(&[Insert(17, 101), Insert(18, 102), scan]),
            &ONE,
        );
    }
}

/// A read or an update of one key reads a node again, and finds the entry in the new node of a
/// split. Before it reads again it waits for an operation of the last thread; otherwise the program
/// would need another preemption. All other threads run without a pause.
#[test]
#[ignore = "thorough: 22 s"]
fn a_read_and_a_write_find_what_moves_out_of_the_node_that_they_read_again() {
    for operation in [Get(20), Update(20, 103)] {
        let program = Program::single(&[operation, Insert(17, 101), Insert(18, 102), Get(60)]);
        explore_in_a_node_to_share(
            &Program {
                uninterrupted: vec![1, 2, 3],
                ..program
            },
            &TWO,
        );
    }
}

/// A scan goes from parent to parent. Beside it a full parent is split: the scan must not skip the
/// children that moved, although the link to the next parent has not changed yet.
#[test]
fn a_scan_passes_over_nothing_of_a_parent_that_is_split() {
    // The first parent is full, and the third of its nodes.
    let setup: Vec<_> = (1..29)
        .map(|key| Insert(10 * key, key))
        .chain([Insert(15, 1)])
        .collect();
    for scan in [Visit(60, 100), Scan(60, 100)] {
        explore_masstrees(&setup, &Program::single(&[scan, Insert(55, 101)]), &TWO);
    }
}

/// Explores operations of one thread while another one reads key 10, on masstrees with keys 10
/// and 20. All nodes were used before, so that readers need no pass, which would keep the epoch
/// from ending.
fn explore_beside_a_reader(reader: &[IndexOperation], writer: &[IndexOperation], search: &Search) {
    let program = Program {
        before: vec![Get(10)],
        ..Program::of(vec![reader.to_vec(), writer.to_vec()])
    };
    explore_masstrees(&scopes(4)[0].setup, &program, search);
}

/// Another key gets a key's slot after a reader has found it, in the same epoch: the reader must
/// not return the other key's value.
#[test]
fn a_reader_takes_no_value_of_the_key_that_has_the_slot_by_then() {
    for reader in [
        Get(10),
        Scan(0, 100),
        ScanBack(0, 100),
        Visit(0, 100),
        Exchange(10, 101, 102),
    ] {
        explore_beside_a_reader(&[reader], &[Remove(10), Insert(15, 101)], &ONE);
    }
}

/// A pointer that a reader has loaded leads to memory that a later epoch writes first: the reader
/// must not return a value from there that other threads cannot find yet.
#[test]
fn a_reader_takes_no_value_that_a_later_epoch_is_about_to_publish() {
    for reader in [Get(10), Scan(0, 100), Visit(0, 100)] {
        let writer = [Update(10, 101), IndexOperation::Sync, Update(10, 102)];
        explore_beside_a_reader(&[reader, Get(10)], &writer, &TWO);
    }
}

/// The tree after a crash under threads can be split and merged.
#[test]
fn pairs_with_splits_and_merges_after_the_crash() {
    let share = if common::is_thorough() { 2 } else { 5 };
    for codec in [Word, Record] {
        explore_further(
            &rntree(codec),
            pairs,
            share,
            &options(LINEAR),
            &ONE,
            FollowUp::SplitAndMerge,
        );
    }
}

#[test]
#[ignore = "thorough: 29 s"]
fn triples_in_epochs() {
    explore(
        &common::small(Engine::MASSTREE, Record),
        triples,
        11,
        &options(LINEAR),
        &ONE,
    );
}

/// On a file fences only order: a reader waits until the values that it read are durable.
#[test]
fn pairs_on_a_file() {
    let options = ExplorationOptions {
        rules: Rules::Log,
        ..options(Images::All)
    };
    explore(&rntree(Word), pairs, 3, &options, &ONE);
    explore(&rntree(Record), pairs, 6, &options, &ONE);
}

/// Two operations of two threads, of which the second reads the first one's effect, on a tree with
/// or without key 1.
fn readers_of_writes_that_are_not_durable() -> Vec<Program<IndexOperation>> {
    let pair = |before: &[IndexOperation], writer, reader| Program {
        before: before.to_vec(),
        ..Program::single(&[writer, reader])
    };
    let of_a_put = [
        Get(1),
        GetMany(1, 2),
        Insert(1, 2),
        Exchange(1, 1, 2),
        Scan(0, 9),
        ScanBack(0, 9),
        Visit(0, 9),
    ];
    let of_a_removal = [
        Get(1),
        GetMany(1, 2),
        Update(1, 2),
        Exchange(1, 1, 2),
        Remove(1),
        Scan(0, 9),
        Visit(0, 9),
    ];
    let puts = of_a_put.map(|reader| pair(&[], Put(1, 7), reader));
    let removals = of_a_removal.map(|reader| pair(&[Insert(1, 1)], Remove(1), reader));
    puts.into_iter().chain(removals).collect()
}

#[test]
fn waits_of_readers_are_found_missing() {
    expect_waits_of_readers_are_found_missing(Engine::RNTREE, "rntree/");
}

#[test]
fn waits_of_readers_of_bztree_are_found_missing() {
    expect_waits_of_readers_are_found_missing(Engine::BZTREE, "bztree/");
}

#[test]
fn waits_of_readers_of_paged_trees_are_found_missing() {
    expect_waits_of_readers_are_found_missing(Engine::WBTREE, "kit/paged/");
}

#[test]
fn waits_of_readers_of_cawbt_are_found_missing() {
    expect_waits_of_readers_are_found_missing(Engine::CAWBT, "cawbt/");
}

/// Each wait of an operation in `folder` for values that it read is needed; with words, and in
/// thorough runs with records.
fn expect_waits_of_readers_are_found_missing(engine: Engine, folder: &str) {
    for codec in [Word, Record]
        .into_iter()
        .take(if common::is_thorough() { 2 } else { 1 })
    {
        let explorer = |mutations| {
            let subject = IndexSubject::new(&common::small(engine, codec), FollowUp::Keys);
            let options = ExplorationOptions {
                rules: Rules::Log,
                mutations,
                shrink: false,
                ..options(LINEAR)
            };
            Explorer::new(subject, options).unwrap()
        };
        let mut sound = explorer(Vec::new());
        sound.sim().start_census();
        for program in readers_of_writes_that_are_not_durable() {
            let explored = sound.explore_threads(&program, &scheduling(ONE));
            explored.unwrap_or_else(|failure| panic!("{failure}"));
        }
        let sites = sound.sim().census().into_keys();
        let waits =
            sites.filter(|(kind, site)| *kind == SiteKind::Wait && site.file.contains(folder));
        // Waits of recovery are tested with single threads.
        let waits = waits.filter(|(_, site)| !site.file.contains("recover.rs"));
        let waits: Vec<_> = waits.map(|(_, site)| site).collect();
        let is_missed = |site: &&Site| {
            readers_of_writes_that_are_not_durable()
                .iter()
                .any(|program| {
                    explorer(vec![Mutation::DropWait(**site)])
                        .explore_threads(program, &scheduling(ONE))
                        .is_err()
                })
        };
        let superfluous: Vec<_> = waits.iter().filter(|site| !is_missed(site)).collect();
        println!("{codec:?}: {waits:?}");
        assert!(superfluous.is_empty(), "{codec:?}: {superfluous:?}");
        let files: BTreeSet<_> = waits
            .iter()
            .filter_map(|site| site.file.rsplit('/').next())
            .collect();
        assert!(
            ["find.rs", "insert.rs", "remove.rs", "scan.rs"]
                .iter()
                .all(|file| files.contains(file))
        );
    }
}

#[test]
#[ignore = "thorough: 24 s"]
fn triples_of_words() {
    explore(&rntree(Word), triples, 5, &options(LINEAR), &ONE);
}

/// A part of all triples, with two preemptions: minutes. `EVERLEAF_LONG=1` takes all, which is
/// hours.
#[test]
#[ignore = "thorough: minutes"]
fn triples_of_words_with_two_preemptions() {
    explore(&rntree(Word), triples, 29, &options(LINEAR), &TWO);
}

#[test]
fn what_is_visible_is_durable() {
    explore(
        &rntree(Word),
        triples,
        5,
        &options(Images::All),
        &Search::Sweep,
    );
    explore(
        &rntree(Record),
        pairs,
        1,
        &options(Images::All),
        &Search::Sweep,
    );
}

#[test]
fn what_is_visible_is_durable_with_other_engines_lines_and_media() {
    let of = |line_form, rules| ExplorationOptions {
        line_form,
        rules,
        ..options(LINEAR)
    };
    let rntree = rntree(Word);
    explore(
        &rntree,
        pairs,
        2,
        &of(LineForm::Twin, Rules::Lines),
        &Search::Sweep,
    );
    explore(
        &rntree,
        pairs,
        2,
        &of(LineForm::Single, Rules::Log),
        &Search::Sweep,
    );
    for name in [Engine::BZTREE, Engine::MASSTREE] {
        for rules in [Rules::Lines, Rules::Log] {
            explore(
                &common::small(name, Word),
                pairs,
                7,
                &of(LineForm::Single, rules),
                &Search::Sweep,
            );
        }
    }
}

/// Epochs end beside random threads: a flush that the end of an epoch leaves out is noticed.
#[test]
fn faults_in_the_end_of_an_epoch_are_found_by_chance() {
    let masstree = common::small(Engine::MASSTREE, Word);
    let explorer = |mutations| {
        let subject = IndexSubject::new(&masstree, FollowUp::Keys);
        let options = ExplorationOptions {
            limit_bytes: 16 << 20,
            mutations,
            shrink: false,
            ..options(LINEAR)
        };
        Explorer::new(subject, options).unwrap()
    };
    let explore = |explorer: &mut Explorer<IndexSubject>, seed| {
        let (mut program, search) = Chance::default().program(seed, masstree.durability());
        program.before.push(IndexOperation::Sync);
        assert!(
            program
                .threads
                .iter()
                .flatten()
                .any(|operation| *operation == IndexOperation::Sync)
        );
        explorer.explore_threads(&program, &scheduling(search))
    };
    let mut sound = explorer(Vec::new());
    sound.sim().start_census();
    for seed in 1..4 {
        explore(&mut sound, seed).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
    let places: Vec<_> = sound.sim().census().into_keys().collect();
    let is_here = |(kind, site): &&(SiteKind, Site)| {
        *kind == SiteKind::Flush && site.file.ends_with("kit/epochs/mod.rs")
    };
    let flushes: Vec<Site> = places
        .iter()
        .filter(is_here)
        .map(|(_, site)| *site)
        .collect();
    println!("{}; {flushes:?}", sound.stats());
    assert!(!flushes.is_empty(), "{places:?}");
    // The flush of the lines, and the one in `publish` for the number of the epoch.
    for site in flushes {
        let mut mutant = explorer(vec![Mutation::DropFlush(site)]);
        assert!(
            (1..4).any(|seed| explore(&mut mutant, seed).is_err()),
            "the missing flush at {site} is not noticed"
        );
    }
}

fn explore_randomly(codec: CodecName, seed: u64, crashes: bool) {
    let subject = IndexSubject::new(&rntree(codec), FollowUp::Keys);
    let options = ExplorationOptions {
        limit_bytes: 16 << 20,
        ..options(LINEAR)
    };
    let mut explorer = Explorer::new(subject, options).unwrap();
    let (program, search) = Chance::default().program(seed, DurabilityContract::OnReturn);
    let search = Scheduling {
        search,
        crashes,
        ..Scheduling::default()
    };
    let explored = explorer.explore_threads(&program, &search);
    explored.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
}

#[test]
fn long_runs_by_chance() {
    let first = setting("EVERLEAF_SEED", 1);
    for seed in first..first + setting("EVERLEAF_SEEDS", 6) {
        explore_randomly(Word, seed, true);
        explore_randomly(Record, seed, seed % 2 == 0);
    }
}

/// One program, exhaustively: nothing must be wrong.
fn explore_program(
    codec: CodecName,
    setup: &[IndexOperation],
    program: &Program<IndexOperation>,
    search: Search,
) {
    let subject = IndexSubject::new(&rntree(codec), FollowUp::Keys);
    let mut explorer = Explorer::new(subject, options(LINEAR)).unwrap();
    explorer.set_up(setup).unwrap();
    let explored = explorer.explore_threads(program, &scheduling(search));
    explored.unwrap_or_else(|failure| panic!("{failure}"));
}

/// The last leaf has no high key. Beside its split a reader may find a next leaf and still no high
/// key: 0 is none.
#[test]
fn readers_beside_the_split_of_the_last_leaf_are_never_sent_past_their_leaf() {
    let setup = [10, 20, 30, 40].map(|key| Insert(key, key));
    explore_program(
        Word,
        &setup,
        &Program::single(&[Insert(15, 1), Get(5)]),
        TWO,
    );
    explore_program(
        Word,
        &setup,
        &Program::single(&[Insert(15, 1), Insert(5, 2)]),
        TWO,
    );
    explore_program(
        Word,
        &setup,
        &Program::single(&[Insert(15, 1), Remove(5)]),
        TWO,
    );
}

/// A split sends writers on to the new leaf before it removes the moved entries from the old one. A
/// reader could still find an entry there, in its state before a write that has returned.
#[test]
fn a_writer_that_a_split_sends_on_writes_after_its_end() {
    let setup = [10, 20, 30, 40].map(|key| Insert(key, key));
    for write in [Put(40, 2), Update(40, 2)] {
        let program = Program::single(&[Insert(15, 1), write, Get(40)]);
        for codec in [Word, Record] {
            explore_program(codec, &setup, &program, ONE);
        }
    }
}

/// A merge gives the left leaf another high key and another next leaf. A reader that read one of
/// them before the merge and the other after it would not find its key, or search beyond the right
/// leaf.
///
/// The reader is in the left leaf, whose keys have moved to the right since it descended. The left
/// leaf has no dead entries, so only the merge makes the reader try again.
#[test]
fn readers_beside_a_merge_are_never_sent_past_their_leaf() {
    let setup = [10, 20, 30, 40].map(|key| Insert(key, key));
    // Three leaves, of which the first is emptied and takes the second one's only key: [15] and
    // [30, 40].
    let mut moves: Vec<_> = [15, 12, 13, 14].map(|key| Insert(key, key)).to_vec();
    moves.extend([12, 13, 20, 14, 10].map(Remove));
    let threads = vec![vec![Get(30)], moves, vec![Remove(40)]];
    let program = Program {
        uninterrupted: vec![1],
        ..Program::of(threads)
    };
    explore_program(Record, &setup, &program, TWO);
    explore_program(Word, &setup, &program, TWO);
}

/// A full leaf and its neighbour become three leaves. Before the inner nodes know the first new
/// leaf, another thread fills it and splits it: what comes of that must not be entered before the
/// old neighbour, whose place the new leaf then takes.
#[test]
fn a_leaf_that_takes_its_neighbours_place_is_not_split_before() {
    let scope = &scopes(4)[2];
    let others = vec![Insert(21, 101), Insert(22, 102), Insert(23, 103)];
    let mut later = others.clone();
    later.push(Insert(24, 104));
    for moves in [others, later] {
        let program = Program::of(vec![vec![Insert(17, 100)], moves]);
        explore_program(Record, &scope.setup, &program, ONE);
        explore_program(Word, &scope.setup, &program, ONE);
    }
}
