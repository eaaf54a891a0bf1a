//! Batches over two trees, of each pair of engines: a crash leaves all of one or none.

use everleaf_sim::index::Engine;
use everleaf_sim::index::batches::{BatchOperation, BatchSubject, TreeKind};
use everleaf_sim::{ExplorationOptions, Images, Program, Rules, Scheduling, Search, SecondCrash};

use crate::common;

fn options(images: Images, rules: Rules, second_crash: SecondCrash) -> ExplorationOptions {
    ExplorationOptions {
        rules,
        ..common::options("engines", images, second_crash)
    }
}

/// One thread that crashes anywhere, and again in the recovery.
fn one_thread(kinds: &[TreeKind; 2], images: Images, second_crash: SecondCrash) {
    for rules in [Rules::Lines, Rules::Log] {
        let subject = BatchSubject::new(kinds.clone());
        let script = subject.script();
        let mut explorer = subject
            .explorer(options(images, rules, second_crash))
            .unwrap();
        explorer
            .explore(&script)
            .unwrap_or_else(|failure| panic!("{kinds:?}: {failure}"));
        println!("batches of {kinds:?}, {rules:?}: {}", explorer.stats());
        assert_eq!(explorer.stats().cut_short, 0);
    }
}

/// A batch beside a single write to one of its keys. Returns the first violation.
fn beside(
    kinds: &[TreeKind; 2],
    options: ExplorationOptions,
    preemptions_max: u32,
    change: impl Fn(&mut Program<BatchOperation>),
) -> Result<(), String> {
    let subject = BatchSubject::new(kinds.clone());
    let setup = subject.setup();
    let programs = subject.beside();
    let mut explorer = subject.explorer(options)?;
    explorer
        .set_up(&setup)
        .map_err(|failure| failure.to_string())?;
    let scheduling = Scheduling {
        search: Search::Exhaustive { preemptions_max },
        ..Scheduling::default()
    };
    for mut program in programs {
        change(&mut program);
        explorer
            .explore_threads(&program, &scheduling)
            .map_err(|failure| failure.to_string())?;
    }
    println!(
        "batches of {kinds:?} beside single writes: {}",
        explorer.stats()
    );
    Ok(())
}

/// Pairs of engines: those in which each engine is first and second once, and some that are durable
/// by epochs; all of them in thorough runs.
fn pairs() -> Vec<[TreeKind; 2]> {
    common::pairs_or(&[
        [Engine::RNTREE, Engine::BZTREE],
        [Engine::WBTREE, Engine::CAWBT],
        [Engine::MASSTREE, Engine::RNTREE],
        [Engine::MASSTREE, Engine::MASSTREE],
    ])
}

const WORDS: [TreeKind; 2] = [TreeKind::PlainWords, TreeKind::PlainWords];

/// Every image of every crash of the journal, over trees that consist only of words.
#[test]
fn the_journal_over_plain_words() {
    one_thread(&WORDS, Images::All, SecondCrash::InRecovery);
    one_thread(
        &[TreeKind::PlainWords, TreeKind::Engine(Engine::MASSTREE)],
        Images::Some { random: 2 },
        SecondCrash::InRecovery,
    );
}

#[test]
fn the_journal_over_plain_words_beside_a_single_write() {
    for rules in [Rules::Lines, Rules::Log] {
        let options = options(Images::Some { random: 2 }, rules, SecondCrash::InRecovery);
        beside(&WORDS, options, 2, |_| ()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Two batches on the same keys in opposite order: neither waits for the other for ever, and one
/// comes after the other.
#[test]
fn two_batches_on_the_same_keys() {
    let options = options(
        Images::Some { random: 1 },
        Rules::Lines,
        SecondCrash::InRecovery,
    );
    let other = BatchOperation::Batch(vec![(1, 2, Some(8)), (0, 1, Some(9))], Vec::new());
    let done = beside(&WORDS, options, 2, |program| {
        program.threads[1] = vec![other.clone()];
    });
    done.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn each_pair_of_engines() {
    let random = u32::from(common::is_thorough());
    for kinds in pairs() {
        one_thread(&kinds, Images::Some { random }, SecondCrash::InRecovery);
    }
    one_thread(
        &[TreeKind::Words(Engine::RNTREE), TreeKind::Gathering],
        Images::Some { random },
        SecondCrash::InRecovery,
    );
}

#[test]
fn each_pair_of_engines_beside_a_single_write() {
    for kinds in pairs() {
        let options = options(Images::Some { random: 1 }, Rules::Lines, SecondCrash::Never);
        beside(&kinds, options, 1, |_| ()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// A split beside a batch copies the record that a tree has just taken over from it. The batch's
/// later writes must not reuse the space of the record.
#[test]
fn a_split_that_copies_the_record_of_a_batch() {
    let kinds = [TreeKind::Gathering, TreeKind::Words(Engine::CAWBT)];
    let options = options(Images::Some { random: 1 }, Rules::Lines, SecondCrash::Never);
    let done = beside(&kinds, options, 1, |program| {
        let writes = [(0, 9, Some(5)), (1, 3, Some(6)), (1, 4, Some(7))];
        let singles = (2..9).map(|key| BatchOperation::Single((0, key, Some(key))));
        program.threads = vec![
            vec![BatchOperation::Batch(writes.into(), Vec::new())],
            singles.collect(),
        ];
    });
    done.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn writes_that_are_no_batch_are_found_torn() {
    let options = options(Images::Some { random: 1 }, Rules::Lines, SecondCrash::Never);
    let torn = |program: &mut Program<BatchOperation>| {
        program.threads[0] = vec![BatchOperation::Torn(vec![(0, 1, Some(5)), (1, 2, Some(6))])];
    };
    let report = beside(&WORDS, options, 1, torn).expect_err("torn, but not found");
    assert!(report.contains("crash"), "{report}");
}
