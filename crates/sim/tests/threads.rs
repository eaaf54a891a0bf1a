//! RNTree under several threads: every schedule that matters, every crash of each.

use std::time::Instant;

use engines::index::{Codec, RecordCodec, WordCodec};
use engines::rntree::{MaybeWords, RnTree};
use everleaf_sim::index::IndexOperation::{self, Get, Insert, Put, Remove, Scan, ScanBack, Update, Visit};
use everleaf_sim::index::threads::{exhaust, pairs, scopes, triples};
use everleaf_sim::index::{FollowUp, IndexSubject, RnTreeEngine};
use everleaf_sim::{Explorer, Images, Options, Program, Scheduling, Search, SecondCrash};
use medium::LineForm;
use medium::sim::Sim;

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

/// Threads that do so many operations each on a few keys: splits and merges all the time.
fn random_program(seed: u64, threads: usize, length: usize) -> Program<IndexOperation> {
    let mut state = seed;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut operation = |number: usize| {
        let (key, value) = (1 + below(14), number as u64);
        match below(20) {
            0..7 => Insert(key, value),
            7..13 => Remove(key),
            13 => Put(key, value),
            14 => Update(key, value),
            15 | 16 => Get(key),
            17 => Scan(0, key + 4),
            18 => ScanBack(key, 20),
            _ => Visit(key, 20),
        }
    };
    let mut numbers = 0..;
    let mut thread = |length: usize| numbers.by_ref().take(length).map(&mut operation).collect();
    let before = thread(8);
    Program { before, threads: (0..threads).map(|_| thread(length)).collect(), uninterrupted: Vec::new() }
}

fn explore_randomly<C: Codec>(seed: u64, crashes: bool)
where
    RnTree<Sim, C, 4>: MaybeWords,
{
    let subject = IndexSubject::new(RnTreeEngine::<C, 4>::default(), FollowUp::Keys);
    let options = Options { limit_bytes: 16 << 20, ..options(LINEAR) };
    let mut explorer = Explorer::new(subject, options).unwrap();
    let program = random_program(seed, 3, 12);
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
    let program = Program { before: Vec::new(), threads, uninterrupted: vec![1] };
    explore_program::<RecordCodec>(&setup, &program);
    explore_program::<WordCodec>(&setup, &program);
}
