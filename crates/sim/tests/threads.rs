//! RNTree under several threads: every schedule that matters, every crash of each.

use std::time::Instant;

use engines::index::{Codec, MaybeWords, RecordCodec, WordCodec};
use engines::rntree::RnTree;
use everleaf_sim::index::IndexOperation::{self, Get, Insert, Put, Remove};
use everleaf_sim::index::threads::{exhaust, pairs, random, scopes, triples};
use everleaf_sim::index::{FollowUp, IndexSubject, RnTreeEngine};
use everleaf_sim::{Explorer, Images, Options, Program, Rules, Scheduling, Search, SecondCrash};
use medium::LineForm;
use medium::sim::{Mutation, Sim, SiteKind};

fn options(images: Images) -> Options {
    let command = "cargo test --release -p everleaf-sim --test threads".to_owned();
    Options { images, second_crash: SecondCrash::Never, command, ..Options::default() }
}

const LINEAR: Images = Images::Some { random: 0 };

fn scheduling(search: Search) -> Scheduling {
    Scheduling { search, ..Scheduling::default() }
}

/// A number from the environment, to run longer or with other seeds.
fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Explores programs on each scope, of each scope one in `share`.
fn explore<C: Codec>(
    programs: impl Fn(&everleaf_sim::index::suite::Scope) -> Vec<Program<IndexOperation>>,
    share: usize,
    (options, scheduling): (&Options, &Scheduling),
) where
    RnTree<Sim, C, 4>: MaybeWords,
{
    let share = if setting("EVERLEAF_LONG", 0) == 1 { 1 } else { share };
    for scope in scopes(4) {
        let start = Instant::now();
        let programs: Vec<_> = programs(&scope).into_iter().step_by(share).collect();
        let engine = RnTreeEngine::<C, 4>::default;
        let stats = exhaust(engine, &scope, &programs, 2, (options, scheduling));
        let stats = stats.unwrap_or_else(|failure| panic!("{failure}"));
        println!(
            "{}, {}: {} programs, {} schedules, {} of them cut; {stats}; {:?}",
            C::NAME,
            scope.name,
            programs.len(),
            stats.schedules,
            stats.schedules_cut,
            start.elapsed()
        );
        assert_eq!(stats.cut_short, 0);
    }
}

#[test]
fn pairs_of_words_with_two_preemptions() {
    let search = scheduling(Search::Exhaustive { preemptions_max: 2 });
    explore::<WordCodec>(pairs, 2, (&options(LINEAR), &search));
}

#[test]
fn all_pairs_of_words_with_one_preemption() {
    let search = scheduling(Search::Exhaustive { preemptions_max: 1 });
    explore::<WordCodec>(pairs, 1, (&options(LINEAR), &search));
}

#[test]
fn pairs_of_records() {
    let search = scheduling(Search::Exhaustive { preemptions_max: 1 });
    let options = Options { line_form: LineForm::Twin, ..options(LINEAR) };
    explore::<RecordCodec>(pairs, 2, (&options, &search));
}

#[test]
fn pairs_with_every_image() {
    let search = scheduling(Search::Exhaustive { preemptions_max: 1 });
    explore::<WordCodec>(pairs, 3, (&options(Images::All), &search));
}

/// On a file fences only order: who reads waits until what he saw is durable.
#[test]
fn pairs_on_a_file() {
    let search = scheduling(Search::Exhaustive { preemptions_max: 1 });
    let options = Options { rules: Rules::Log, ..options(Images::All) };
    explore::<WordCodec>(pairs, 3, (&options, &search));
    explore::<RecordCodec>(pairs, 6, (&options, &search));
}

/// Whether one thread alone can tell that no wait is done there.
fn is_found(mutation: Mutation, threads: Vec<Vec<IndexOperation>>) -> bool {
    let subject = IndexSubject::new(RnTreeEngine::<WordCodec, 4>::default(), FollowUp::Keys);
    let options = Options { rules: Rules::Log, mutations: vec![mutation], ..options(Images::All) };
    let mut explorer = Explorer::new(subject, options).unwrap();
    let program = Program::of(threads);
    explorer.explore_threads(&program, &scheduling(Search::Exhaustive { preemptions_max: 1 })).is_err()
}

/// Each place where an operation waits for what it saw is needed, and most are needed only beside other threads.
#[test]
fn waits_of_readers_are_found_missing_by_threads_alone() {
    let subject = IndexSubject::new(RnTreeEngine::<WordCodec, 4>::default(), FollowUp::Keys);
    let options = Options { rules: Rules::Log, ..options(LINEAR) };
    let mut explorer = Explorer::new(subject, options).unwrap();
    explorer.sim().start_census();
    let operations = [Put(1, 1), Insert(1, 2), Get(1), Get(2), Remove(2)];
    let pairs = operations.map(|operation| vec![vec![Put(1, 7)], vec![operation]]);
    for threads in pairs {
        let program = Program::of(threads);
        let explored = explorer.explore_threads(&program, &Scheduling::default());
        explored.unwrap_or_else(|failure| panic!("{failure}"));
    }
    let sites = explorer.sim().census().into_keys();
    let waits = sites.filter(|(kind, site)| *kind == SiteKind::Wait && site.file.contains("rntree"));
    let waits: Vec<_> = waits.map(|(_, site)| site).collect();
    println!("{waits:?}");
    for (file, threads) in [
        ("find.rs", vec![vec![Put(1, 7)], vec![Get(1)]]),
        ("insert.rs", vec![vec![Put(1, 7)], vec![Insert(1, 2)]]),
    ] {
        let found = waits.iter().filter(|site| site.file.ends_with(file)).filter(|site| {
            let mutation = Mutation::DropWait(**site);
            let alone = threads.concat();
            is_found(mutation, threads.clone()) && !is_found(mutation, vec![alone])
        });
        assert!(found.count() > 0, "no wait in {file} is missed");
    }
}

#[test]
fn triples_of_words() {
    let search = scheduling(Search::Exhaustive { preemptions_max: 1 });
    explore::<WordCodec>(triples, 29, (&options(LINEAR), &search));
}

#[test]
fn what_is_visible_is_durable() {
    explore::<WordCodec>(triples, 5, (&options(Images::All), &scheduling(Search::Sweep)));
    explore::<RecordCodec>(pairs, 1, (&options(Images::All), &scheduling(Search::Sweep)));
}

fn explore_randomly<C: Codec>(seed: u64, crashes: bool)
where
    RnTree<Sim, C, 4>: MaybeWords,
{
    let subject = IndexSubject::new(RnTreeEngine::<C, 4>::default(), FollowUp::Keys);
    let options = Options { limit_bytes: 16 << 20, ..options(LINEAR) };
    let mut explorer = Explorer::new(subject, options).unwrap();
    let program = random(seed, 3, 12, 14);
    let search = Search::Random { runs: 12, depth: 4, seed };
    let search = Scheduling { search, crashes, ..Scheduling::default() };
    let explored = explorer.explore_threads(&program, &search);
    explored.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
}

#[test]
fn long_runs_by_chance() {
    let first = setting("EVERLEAF_SEED", 1);
    for seed in first..first + setting("EVERLEAF_SEEDS", 6) {
        explore_randomly::<WordCodec>(seed, true);
        explore_randomly::<RecordCodec>(seed, seed % 2 == 0);
    }
}

/// One program, exhaustively: nothing must be wrong.
fn explore_program<C: Codec>(setup: &[IndexOperation], program: &Program<IndexOperation>)
where
    RnTree<Sim, C, 4>: MaybeWords,
{
    let subject = IndexSubject::new(RnTreeEngine::<C, 4>::default(), FollowUp::Keys);
    let mut explorer = Explorer::new(subject, options(LINEAR)).unwrap();
    explorer.set_up(setup).unwrap();
    let explored = explorer.explore_threads(program, &Scheduling::default());
    explored.unwrap_or_else(|failure| panic!("{failure}"));
}

/// The last leaf has no high key. Beside its split a reader may find a next leaf and still no high key: 0 is none.
#[test]
fn readers_beside_the_split_of_the_last_leaf_are_never_sent_past_their_leaf() {
    let setup = [10, 20, 30, 40].map(|key| Insert(key, key));
    explore_program::<WordCodec>(&setup, &Program::single(&[Insert(15, 1), Get(5)]));
    explore_program::<WordCodec>(&setup, &Program::single(&[Insert(15, 1), Insert(5, 2)]));
    explore_program::<WordCodec>(&setup, &Program::single(&[Insert(15, 1), Remove(5)]));
}

/// A merge gives the left leaf another high key and another next leaf. A reader that saw the one before and the other
/// after it would take its key for absent, or look for it past the leaf that it has come to.
///
/// The reader stands in the left leaf, whose keys have moved to the right since it descended; the left leaf has no dead
/// entries, so nothing else than the merge makes the reader look again.
#[test]
fn readers_beside_a_merge_are_never_sent_past_their_leaf() {
    let setup = [10, 20, 30, 40].map(|key| Insert(key, key));
    // Three leaves, of which the first is emptied and takes the second one's only key: [15] and [30, 40].
    let mut moves: Vec<_> = [15, 12, 13, 14].map(|key| Insert(key, key)).to_vec();
    moves.extend([12, 13, 20, 14, 10].map(Remove));
    let threads = vec![vec![Get(30)], moves, vec![Remove(40)]];
    let program = Program { uninterrupted: vec![1], ..Program::of(threads) };
    explore_program::<RecordCodec>(&setup, &program);
    explore_program::<WordCodec>(&setup, &program);
}
