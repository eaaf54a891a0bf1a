//! Functions for the tests of engines.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeSet;
use std::time::Instant;

use everleaf_sim::index::batches::TreeKind;
use everleaf_sim::index::script::{every_drop, every_load, from_word, to_word};
use everleaf_sim::index::suite::{self, Suite};
use everleaf_sim::index::{
    AnyEngine, CodecName, Engine, FollowUp, IndexOperation, IndexSubject, RUBBISH_FROM, Size,
    engine,
};
use everleaf_sim::{
    Complaint, CrashFailure, CrashReplay, ExplorationOptions, Explorer, Images, Rules, SecondCrash,
    Stats, Subject,
};
use medium::sim::{Mutation, Site};

/// An error as a complaint.
#[expect(clippy::needless_pass_by_value, reason = "called by `map_err`")]
pub(crate) fn text(error: impl ToString) -> Complaint {
    error.to_string()
}

/// A number from the environment, to run with other seeds or longer.
pub(crate) fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number"))
    })
}

/// Whether `cargo xtask thorough` runs the tests: then scopes are larger, and take longer than
/// ordinary tests may.
pub(crate) fn is_thorough() -> bool {
    setting("EVERLEAF_CASES", 1) > 1
}

/// These pairs of engines; all pairs in thorough runs.
pub(crate) fn pairs_or(few: &[[Engine; 2]]) -> Vec<[TreeKind; 2]> {
    let mut pairs = few.to_vec();
    if is_thorough() {
        pairs.clear();
        for one in Engine::ALL {
            pairs.extend(Engine::ALL.iter().map(|other| [*one, *other]));
        }
    }
    let kinds = pairs.into_iter().map(|pair| pair.map(TreeKind::Engine));
    kinds.collect()
}

/// The seeds of the ordinary tests, and further ones where `cargo xtask thorough` runs them.
pub(crate) fn seeds(ordinary: u64, thorough: u64) -> std::ops::RangeInclusive<u64> {
    1..=if is_thorough() { thorough } else { ordinary }
}

/// An engine with four entries a leaf.
pub(crate) fn small(name: Engine, codec: CodecName) -> AnyEngine {
    engine(name, codec, Size::Small)
}

/// The options of a test file; the command runs the calling test.
pub(crate) fn options(test: &str, images: Images, second_crash: SecondCrash) -> ExplorationOptions {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let cases = if is_thorough() {
        "EVERLEAF_CASES=8 "
    } else {
        ""
    };
    let command = format!("{cases}cargo test --release -p everleaf-sim --test {test} {name}");
    ExplorationOptions {
        images,
        second_crash,
        command,
        limit_bytes: 16 << 20,
        ..ExplorationOptions::default()
    }
}

/// A crash to be repeated, as a report names it: the setup, the operations, the crashes.
type Repeat = (Vec<IndexOperation>, Vec<IndexOperation>, CrashReplay);

/// The value of `EVERLEAF_CRASH`: `SETUP,OPERATIONS@CRASHES`.
fn repeat() -> Option<Repeat> {
    let text = std::env::var("EVERLEAF_CRASH").ok()?;
    let (programs, crashes) = text
        .split_once('@')
        .expect("EVERLEAF_CRASH=SETUP,OPERATIONS@CRASHES");
    let (setup, operations) = programs
        .split_once(',')
        .expect("EVERLEAF_CRASH=SETUP,OPERATIONS@CRASHES");
    let program = |word| from_word(word).unwrap_or_else(|bad| panic!("EVERLEAF_CRASH: {bad}"));
    let crashes = match crashes {
        "" => CrashReplay::default(),
        crashes => crashes
            .parse()
            .unwrap_or_else(|bad| panic!("EVERLEAF_CRASH: {bad}")),
    };
    Some((program(setup), program(operations), crashes))
}

/// Repeats a crash with the engine and the options of an exploration. If a test explores in several
/// ways, those whose operations do not reach the crash find nothing.
fn explore_again(
    engine: &AnyEngine,
    follow_up: FollowUp,
    options: &ExplorationOptions,
    repeat: &Repeat,
) {
    let (setup, operations, crashes) = repeat;
    let options = ExplorationOptions {
        replay: Some(crashes.clone()),
        ..options.clone()
    };
    let mut explorer = Explorer::new(IndexSubject::new(engine, follow_up), options).unwrap();
    explorer
        .set_up(setup)
        .unwrap_or_else(|failure| panic!("{failure}"));
    for from_operation in 0..operations.len().max(1) {
        explorer.options_mut().from_operation = from_operation;
        explorer
            .explore(operations)
            .unwrap_or_else(|failure| panic!("{}", report(&failure)));
    }
    println!("repeated: {}", explorer.stats());
}

/// The report of a failure, with the command that repeats it.
pub(crate) fn report(failure: &CrashFailure<IndexOperation>) -> String {
    let setup = to_word(&failure.setup);
    let operations = to_word(&failure.operations);
    let crash = format!("EVERLEAF_CRASH={setup},{operations}@{}", failure.replay());
    failure.narrate(&format!("{crash} {}", failure.command))
}

/// Explores a sequence; nothing must be wrong, and nothing left out.
pub(crate) fn explore(
    engine: &AnyEngine,
    operations: &[IndexOperation],
    follow_up: FollowUp,
    options: ExplorationOptions,
) -> Stats {
    if let Some(repeat) = repeat() {
        explore_again(engine, follow_up, &options, &repeat);
        return Stats::default();
    }
    let entries = engine.leaf_entries();
    let mut explorer = Explorer::new(IndexSubject::new(engine, follow_up), options).unwrap();
    let start = Instant::now();
    explorer
        .explore(operations)
        .unwrap_or_else(|failure| panic!("{}", report(&failure)));
    let stats = explorer.stats();
    println!(
        "{} {}, {entries} entries: {stats}; {:?}",
        engine.name(),
        engine.codec(),
        start.elapsed()
    );
    assert_eq!(stats.cut_short, 0);
    stats
}

/// A load leaves all or nothing, and so does the drop of a tree, for each kind of recovery and
/// medium.
pub(crate) fn explore_loads_and_drops(name: Engine, options: &ExplorationOptions) {
    explore_loads_and_drops_of(
        &[CodecName::Word, CodecName::Record].map(|codec| small(name, codec)),
        options,
    );
}

/// Does the same as [`explore_loads_and_drops`], for these trees.
pub(crate) fn explore_loads_and_drops_of(engines: &[AnyEngine], options: &ExplorationOptions) {
    for engine in engines {
        for rules in [Rules::Lines, Rules::Log, Rules::PersistentCaches] {
            // With persistent caches there are as many second crashes as pairs of stores.
            let is_short = engine.codec() == "word" && rules == Rules::Lines || is_thorough();
            // Every store is a crash point there.
            if rules == Rules::PersistentCaches && engine.codec() != "word" && !is_thorough() {
                continue;
            }
            let second_crash = match rules {
                Rules::Lines | Rules::Log if is_short => options.second_crash,
                _ => SecondCrash::Never,
            };
            let rubbish_from = Some(RUBBISH_FROM);
            let options = ExplorationOptions {
                rules,
                second_crash,
                rubbish_from,
                ..options.clone()
            };
            explore(engine, &every_load(), FollowUp::Keys, options.clone());
            explore(engine, &every_drop(), FollowUp::Keys, options);
        }
    }
}

/// Explores all sequences of `length` operations on small trees; nothing must be wrong, and nothing
/// left out.
pub(crate) fn exhaust(engine: &AnyEngine, length: usize, options: &ExplorationOptions) -> Stats {
    if let Some(repeat) = repeat() {
        explore_again(engine, FollowUp::SplitAndMerge, options, &repeat);
        return Stats::default();
    }
    let found = suite::exhaust(
        engine,
        Suite {
            length,
            threads: 2,
            progress: None,
        },
        options,
    );
    if let Some(failure) = &found.failure {
        panic!("{}", report(failure));
    }
    let stats = found.stats;
    let ExplorationOptions {
        rules,
        line_form,
        second_crash,
        ..
    } = options;
    println!(
        "{} {}, {length}, {rules:?}, {line_form:?}, {second_crash:?}: {stats}; {:.1} s",
        engine.name(),
        engine.codec(),
        found.seconds
    );
    assert_eq!(stats.cut_short, 0);
    stats
}

/// Leaves out each store, flush, fence and wait of a script whose place is `here`, one after the
/// other. An exploration must notice it, by lines or by a log. Returns how many there were.
pub(crate) fn expect_drops_noticed<S: Subject>(
    explorer: impl Fn(Rules, Vec<Mutation>) -> Explorer<S>,
    script: &[S::Operation],
    here: impl Fn(&Site) -> bool,
) -> u32 {
    let all = [Rules::Lines, Rules::Log];
    let mut mutations = BTreeSet::new();
    for rules in all {
        let survey = explorer(rules, Vec::new()).survey(script);
        mutations.extend(survey.unwrap_or_else(|failure| panic!("{failure}")));
    }
    let mut missed = 0;
    for mutation in mutations {
        let site = match mutation {
            Mutation::DropFlush(site)
            | Mutation::DropFence(site)
            | Mutation::DropWait(site)
            | Mutation::DropStore(site) => site,
            Mutation::PublishEarly(_) | Mutation::SwapPersists(..) => continue,
        };
        if !here(&site) {
            continue;
        }
        let is_noticed = all
            .into_iter()
            .any(|rules| explorer(rules, vec![mutation]).explore(script).is_err());
        assert!(is_noticed, "{mutation} was not noticed");
        missed += 1;
    }
    missed
}
