//! PMwCAS under crashes: operations on one to four words of which some share lines, a crash
//! anywhere, also in recovery.

use engines::pmwcas::{Pmwcas, Seen};
use everleaf_sim::index::pool_options;
use everleaf_sim::{
    Complaint, Concurrent, ExplorationOptions, Explorer, Images, Program, Rules, Scheduling,
    Search, SecondCrash, Subject,
};
use medium::sim::{Mutation, Sim, Site, SiteKind};
use medium::{LineForm, Word};
use pool::{Pool, ROOT_WORDS};

use crate::common::{is_thorough, text};

/// The words: two in one line, two in lines of their own.
const PLACES: [usize; WORDS] = [0, 1, 8, 16];
const WORDS: usize = 4;
const LINES_BYTES: usize = 192;

type Values = [u64; WORDS];

/// Changes words from one value to another, all or none.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Operation {
    Swap(Vec<(usize, u64, u64)>),
    Reopen,
}

use Operation::{Reopen, Swap};

struct Words {
    slots: usize,
    /// The number that a new descriptor's last operation had; 0: there was none.
    last_number: u64,
}

/// The numbers of operations: 35 bits.
const NUMBERS: u64 = 1 << 35;
/// The factor that the format uses for its checks.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Makes free descriptors as a number of operations leave them, of which the first had eight words
/// and the others two.
fn age(guard: &pool::Guard<'_, Sim>, place: u64, slots: usize, last: u64) -> Result<(), Complaint> {
    for descriptor in 0..2 * slots as u64 {
        let words = guard.words(place + 256 * descriptor, 32).map_err(text)?;
        let status = last << 6;
        words[0].store(
            guard,
            status | (status + 1).wrapping_mul(SPREAD) >> 48 << 48,
        );
        for line in [15, 23, 31] {
            words[line].store(guard, 1 | 2_u64.wrapping_mul(SPREAD) >> 35 << 35);
        }
        guard.flush_words(words);
    }
    Ok(())
}

struct Opened {
    sim: Sim,
    pool: Pool<Sim>,
    pmwcas: Pmwcas,
    lines: u64,
}

impl Opened {
    fn cell<'g>(
        &self,
        guard: &'g pool::Guard<'_, Sim>,
        word: usize,
    ) -> Result<&'g Word, Complaint> {
        Ok(&guard
            .words(self.lines + 8 * PLACES[word] as u64, 1)
            .map_err(text)?[0])
    }
}

impl Subject for Words {
    type Operation = Operation;
    type Outcome = bool;
    type State = Values;
    type Instance = Opened;

    fn initial(&self) -> Values {
        [0; WORDS]
    }

    fn step(&self, state: &mut Values, operation: &Operation) -> bool {
        let Swap(words) = operation else { return true };
        let holds = words.iter().all(|(word, old, _)| state[*word] == *old);
        if holds {
            words.iter().for_each(|(word, _, new)| state[*word] = *new);
        }
        holds
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        let pool = Pool::open(sim.clone(), pool_options()).map_err(text)?;
        let root = if let Some(root) = pool.trees().map_err(text)?.pop() {
            if pool.needs_mark() {
                root.words[..2]
                    .iter()
                    .try_for_each(|offset| pool.mark(*offset))
                    .map_err(text)?;
            }
            root
        } else {
            let guard = pool.pin();
            let place = guard
                .allocate_lines(Pmwcas::bytes(self.slots))
                .map_err(text)?;
            Pmwcas::format(&guard, place, self.slots).map_err(text)?;
            if self.last_number > 0 {
                age(&guard, place, self.slots, self.last_number)?;
            }
            let lines = guard.allocate_lines(LINES_BYTES).map_err(text)?;
            let words = guard.words(lines, LINES_BYTES / 8).map_err(text)?;
            words.iter().for_each(|word| word.store(&guard, 0));
            guard.flush_words(words);
            guard.fence();
            let mut roots = [0; ROOT_WORDS];
            roots[0] = place;
            roots[1] = lines;
            pool.create_tree("words", 9, 9, &roots).map_err(text)?
        };
        if pool.needs_mark() {
            pool.finish_marking();
        }
        let pmwcas = Pmwcas::open(&pool.pin(), root.words[0], self.slots).map_err(text)?;
        Ok(Opened {
            sim: sim.clone(),
            pool,
            pmwcas,
            lines: root.words[1],
        })
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<bool, Complaint> {
        if *operation == Reopen {
            *opened = self.open(&opened.sim.clone())?;
            return Ok(true);
        }
        self.call(opened, operation)
    }

    fn observe(&self, opened: &mut Opened) -> Result<Values, Complaint> {
        let guard = opened.pool.pin();
        let mut values = [0; WORDS];
        let mut seen = Seen::default();
        for (word, value) in values.iter_mut().enumerate() {
            *value = opened
                .pmwcas
                .observe(&guard, opened.cell(&guard, word)?, &mut seen)
                .map_err(text)?;
        }
        opened.pmwcas.settle(&guard, &seen).map_err(text)?;
        Ok(values)
    }

    fn follow_up(&self, state: &Values, _recent: &[Operation]) -> Vec<Operation> {
        let swap = |words: &[usize], from: u64, to: u64| {
            let value = |word: usize, step: u64| state[word] + step;
            Swap(
                words
                    .iter()
                    .map(|word| (*word, value(*word, from), value(*word, to)))
                    .collect(),
            )
        };
        vec![
            swap(&[0, 2], 0, 100),
            swap(&[0, 1, 2], 0, 200),
            swap(&[1, 3], 0, 100),
            swap(&[0, 1, 2, 3], 100, 0),
        ]
    }
}

impl Concurrent for Words {
    fn call(&self, opened: &Opened, operation: &Operation) -> Result<bool, Complaint> {
        let Swap(words) = operation else {
            return Err("reopened by one thread alone".to_owned());
        };
        let guard = opened.pool.pin();
        let mut swap = opened.pmwcas.allocate();
        for (word, old, new) in words {
            swap.add_word(&guard, opened.cell(&guard, *word)?, *old, *new)
                .map_err(text)?;
        }
        swap.execute(&guard).map_err(text)
    }
}

fn swap(words: &[(usize, u64, u64)]) -> Operation {
    Swap(words.to_vec())
}

/// Operations that succeed and fail, compare without changing, and bring values back.
fn script() -> Vec<Operation> {
    vec![
        swap(&[(0, 0, 1), (2, 0, 1)]),
        swap(&[(2, 1, 2), (3, 0, 1)]),
        // Fails at its first word, so that its descriptor, of two lines, is filled again as it is.
        swap(&[(0, 7, 9), (1, 7, 9), (2, 7, 9)]),
        swap(&[(0, 1, 1), (1, 0, 5), (2, 2, 0)]),
        swap(&[(0, 1, 9), (3, 7, 9)]),
        swap(&[(1, 4, 9), (2, 0, 9)]),
        Reopen,
        swap(&[(3, 1, 0)]),
        swap(&[(0, 1, 0), (1, 5, 0), (2, 0, 3), (3, 0, 4)]),
        swap(&[(0, 0, 1), (1, 0, 5), (2, 3, 2)]),
        swap(&[(0, 1, 2), (1, 5, 6), (2, 2, 3), (3, 4, 5)]),
        swap(&[(0, 2, 3), (1, 6, 7), (2, 3, 4)]),
        // Only the process ends, as its last operation has succeeded: the final values are in the
        // cache, and not durable.
        Reopen,
    ]
}

fn explorer(slots: usize, options: ExplorationOptions) -> Explorer<Words> {
    let command = "cargo test --release -p everleaf-sim --test engines pmwcas::".to_owned();
    Explorer::new(
        Words {
            slots,
            last_number: 0,
        },
        ExplorationOptions { command, ..options },
    )
    .unwrap()
}

const ONE: Search = Search::Exhaustive { preemptions_max: 1 };
const TWO: Search = Search::Exhaustive { preemptions_max: 2 };

/// Every schedule of some programs that the search makes, and for each schedule every crash that
/// the options ask for.
fn explore_programs(
    programs: impl IntoIterator<Item = Program<Operation>>,
    slots: usize,
    search: Search,
    options: ExplorationOptions,
) {
    let scheduling = Scheduling {
        search,
        ..Scheduling::default()
    };
    let rules = options.rules;
    let mut explorer = explorer(slots, options);
    for program in programs {
        let explored = explorer.explore_threads(&program, &scheduling);
        explored.unwrap_or_else(|failure| panic!("{failure}"));
    }
    let stats = explorer.stats();
    println!(
        "{rules:?}: {} schedules, {} of them cut; {stats}",
        stats.schedules, stats.schedules_cut
    );
    assert_eq!(stats.cut_short, 0);
}

#[test]
fn a_script_survives_every_pair_of_crashes() {
    for rules in [Rules::Lines, Rules::Log, Rules::PersistentCaches] {
        for second_crash in [SecondCrash::InRecovery, SecondCrash::Anywhere] {
            for slots in [1, 3] {
                let options = ExplorationOptions {
                    rules,
                    second_crash,
                    images: Images::All,
                    ..ExplorationOptions::default()
                };
                let mut explorer = explorer(slots, options);
                explorer
                    .explore(&script())
                    .unwrap_or_else(|failure| panic!("{failure}"));
                println!(
                    "{rules:?}, {second_crash:?}, {slots} slots: {}",
                    explorer.stats()
                );
                assert_eq!(explorer.stats().cut_short, 0);
            }
        }
    }
}

/// When the numbers of operations start again, a descriptor that was being filled is still told
/// from a damaged one.
#[test]
fn numbers_that_come_round_survive_every_pair_of_crashes() {
    let all = |from, to| Swap((0..WORDS).map(|word| (word, from, to)).collect());
    let script: Vec<_> = [(0, 1), (1, 2), (9, 9), (2, 3), (3, 4)]
        .map(|(from, to)| all(from, to))
        .into();
    for last_number in [NUMBERS - 3, NUMBERS - 2, NUMBERS - 1] {
        for second_crash in [SecondCrash::InRecovery, SecondCrash::Anywhere] {
            let command = "cargo test --release -p everleaf-sim --test engines pmwcas::".to_owned();
            let options = ExplorationOptions {
                command,
                second_crash,
                images: Images::All,
                ..ExplorationOptions::default()
            };
            let mut explorer = Explorer::new(
                Words {
                    slots: 1,
                    last_number,
                },
                options,
            )
            .unwrap();
            explorer
                .explore(&script)
                .unwrap_or_else(|failure| panic!("from {last_number}: {failure}"));
            assert_eq!(explorer.stats().cut_short, 0);
        }
    }
}

#[test]
fn twin_lines_change_nothing() {
    let options = ExplorationOptions {
        line_form: LineForm::Twin,
        ..ExplorationOptions::default()
    };
    explorer(1, options)
        .explore(&script())
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// All short sequences of operations on two and three words with values 0 and 1.
fn exhaust(length: u32) {
    let mut choices = Vec::new();
    for words in [&[0, 1][..], &[0, 2], &[1, 3], &[0, 2, 3], &[0, 1, 2]] {
        for (from, to) in [(0, 1), (1, 0), (0, 0)] {
            choices.push(Swap(words.iter().map(|word| (*word, from, to)).collect()));
        }
    }
    let options = ExplorationOptions {
        from_operation: length as usize - 1,
        ..ExplorationOptions::default()
    };
    let mut explorer = explorer(1, options);
    let count = choices.len().pow(length);
    for number in 0..count {
        let choice = |place| choices[number / choices.len().pow(place) % choices.len()].clone();
        let sequence: Vec<_> = (0..length).map(choice).collect();
        explorer
            .explore(&sequence)
            .unwrap_or_else(|failure| panic!("{failure}"));
    }
    println!("{}", explorer.stats());
    assert_eq!(
        (explorer.stats().traces, explorer.stats().cut_short),
        (count as u64, 0)
    );
}

#[test]
fn short_sequences_exhausted() {
    exhaust(2);
}

#[test]
#[ignore = "thorough: 13 s"]
fn sequences_of_three_exhausted() {
    exhaust(3);
}

/// Two threads whose operations overlap in one word or more: every schedule with two preemptions,
/// every crash of each.
#[test]
fn two_threads_that_help_each_other() {
    let programs = [
        [swap(&[(0, 0, 1), (2, 0, 1)]), swap(&[(2, 0, 2), (3, 0, 2)])],
        [swap(&[(0, 0, 1), (2, 0, 1)]), swap(&[(0, 0, 2), (2, 0, 2)])],
        [swap(&[(0, 0, 1), (2, 0, 1)]), swap(&[(0, 1, 2), (2, 1, 2)])],
        [
            swap(&[(0, 0, 1), (1, 0, 1), (3, 0, 1)]),
            swap(&[(1, 0, 2), (2, 0, 2), (3, 0, 2)]),
        ],
        [swap(&[(0, 0, 0), (2, 0, 1)]), swap(&[(0, 0, 1), (3, 0, 0)])],
    ];
    for (rules, share) in [
        (Rules::Lines, 1),
        (Rules::Log, if is_thorough() { 1 } else { 2 }),
    ] {
        let images = Images::Some { random: 0 };
        let options = ExplorationOptions {
            rules,
            images,
            second_crash: SecondCrash::Never,
            ..ExplorationOptions::default()
        };
        let programs = programs.iter().step_by(share);
        explore_programs(
            programs.map(|operations| Program::single(operations)),
            2,
            TWO,
            options,
        );
    }
}

/// A helper finds the name of another operation, whose owner has stopped, in the next word: it
/// helps that one first, and neither counts as failed.
#[test]
#[ignore = "thorough: 20 s"]
fn a_helper_that_is_blocked_helps_what_blocks_it() {
    let helped = [
        swap(&[(0, 0, 1), (2, 0, 1)]),
        swap(&[(0, 0, 1), (1, 0, 1), (2, 0, 1)]),
    ];
    // One of the operations in the way fails at its second word: then the helped one must succeed.
    let blocking = [swap(&[(2, 0, 2), (3, 0, 2)]), swap(&[(2, 0, 2), (3, 7, 2)])];
    let meeting = [swap(&[(0, 0, 3), (3, 0, 3)]), swap(&[(0, 1, 3), (3, 0, 3)])];
    let images = Images::Some { random: 0 };
    let options = ExplorationOptions {
        images,
        second_crash: SecondCrash::Never,
        ..ExplorationOptions::default()
    };
    let programs = helped.into_iter().zip(blocking).zip(meeting);
    let programs =
        programs.map(|((helped, blocking), meeting)| Program::single(&[helped, blocking, meeting]));
    explore_programs(programs, 3, TWO, options);
}

/// Visible before durable: a thread is stopped wherever it waits for a fence, or is about to,
/// another thread executes its whole operation on the values that it finds, and then comes the
/// crash.
fn sweep(mutations: Vec<Mutation>) -> Explorer<Words> {
    let images = Images::All;
    explorer(
        2,
        ExplorationOptions {
            images,
            mutations,
            second_crash: SecondCrash::Never,
            shrink: false,
            ..ExplorationOptions::default()
        },
    )
}

/// One thread writes; the other changes the value, changes something else on condition of the
/// value, or only compares it.
fn programs_on_values_that_are_not_durable() -> Vec<Program<Operation>> {
    let written = [
        swap(&[(0, 0, 1), (2, 0, 1)]),
        swap(&[(1, 0, 1), (2, 0, 1), (3, 0, 1)]),
    ];
    let building = [
        swap(&[(2, 1, 2)]),
        swap(&[(2, 1, 1), (3, 0, 5)]),
        swap(&[(2, 0, 9), (3, 0, 9)]),
    ];
    written
        .iter()
        .flat_map(|one| {
            building
                .iter()
                .map(|other| Program::single(&[one.clone(), other.clone()]))
        })
        .collect()
}

#[test]
fn what_is_visible_is_durable() {
    for rules in [Rules::Lines, Rules::Log] {
        let images = Images::All;
        let options = ExplorationOptions {
            rules,
            images,
            second_crash: SecondCrash::Never,
            ..ExplorationOptions::default()
        };
        explore_programs(
            programs_on_values_that_are_not_durable(),
            2,
            Search::Sweep,
            options,
        );
    }
}

/// The sweep is for the fence behind the decision: without it another thread reads, and returns, a
/// value that a crash takes back.
#[test]
fn the_sweep_misses_the_fence_behind_the_decision() {
    let scheduling = Scheduling {
        search: Search::Sweep,
        ..Scheduling::default()
    };
    let mut sound = sweep(Vec::new());
    sound.sim().start_census();
    for program in programs_on_values_that_are_not_durable() {
        sound
            .explore_threads(&program, &scheduling)
            .unwrap_or_else(|failure| panic!("{failure}"));
    }
    let sites = sound.sim().census().into_keys();
    let fences = sites.filter(|(kind, site)| {
        *kind == SiteKind::Fence && site.file.ends_with("pmwcas/execute.rs")
    });
    let missed: Vec<Site> = fences
        .map(|(_, site)| site)
        .filter(|site| {
            programs_on_values_that_are_not_durable()
                .iter()
                .any(|program| {
                    sweep(vec![Mutation::DropFence(*site)])
                        .explore_threads(program, &scheduling)
                        .is_err()
                })
        })
        .collect();
    println!("missed: {missed:?}");
    // All three: before the names, before the decision, behind it.
    assert_eq!(missed.len(), 3);
}

/// A helper reaches the next word of an operation when that has ended, and the owner's next
/// operation holds the word.
#[test]
fn a_helper_that_is_blocked_finds_its_operation_decided() {
    let helped = [
        swap(&[(0, 0, 1), (2, 0, 1)]),
        swap(&[(0, 0, 1), (1, 0, 1), (2, 0, 1)]),
    ];
    let following = [swap(&[(2, 1, 2), (3, 0, 2)]), swap(&[(2, 1, 2), (3, 7, 2)])];
    let helping = [swap(&[(0, 1, 3), (3, 0, 3)]), swap(&[(0, 0, 3), (2, 0, 3)])];
    let images = Images::Some { random: 0 };
    let options = ExplorationOptions {
        images,
        second_crash: SecondCrash::Never,
        ..ExplorationOptions::default()
    };
    let programs = helped
        .into_iter()
        .zip(following)
        .zip(helping)
        .take(if is_thorough() { 2 } else { 1 });
    let programs = programs.map(|((helped, following), helping)| {
        Program::of(vec![vec![helped, following], vec![helping]])
    });
    explore_programs(
        programs,
        2,
        Search::Exhaustive { preemptions_max: 3 },
        options,
    );
}

/// Two words, three words, and two threads, with every image that a crash may leave, and one more
/// crash in the recovery.
#[test]
fn two_threads_survive_every_pair_of_crashes() {
    let programs = [
        [swap(&[(0, 0, 1), (2, 0, 1)]), swap(&[(0, 0, 2), (2, 0, 2)])],
        [swap(&[(0, 0, 1), (2, 0, 1)]), swap(&[(0, 1, 2), (2, 1, 2)])],
        [swap(&[(0, 0, 1), (1, 0, 1)]), swap(&[(1, 0, 2), (2, 0, 2)])],
        [
            swap(&[(0, 0, 1), (1, 0, 1), (2, 0, 1)]),
            swap(&[(1, 0, 2), (2, 0, 2), (3, 0, 2)]),
        ],
    ];
    for rules in [Rules::Lines, Rules::Log] {
        let options = ExplorationOptions {
            rules,
            images: Images::All,
            second_crash: SecondCrash::InRecovery,
            ..ExplorationOptions::default()
        };
        explore_programs(
            programs
                .iter()
                .map(|operations| Program::single(operations)),
            2,
            ONE,
            options,
        );
    }
}

/// Operations that can be left out without a failure, and why: a file of `pmwcas`, and a part of
/// one line of it.
const REDUNDANT: [(&str, &str, &str); 4] = [
    (
        "execute.rs",
        "Phase::Freed => guard.flush",
        "every guard here fences what it flushed; needed where a guard ends before a fence",
    ),
    (
        "seen.rs",
        "compare_exchange(guard, value | DIRTY, value)",
        "a reader of a dirty word whose value is durable finds its commit durable, and does not wait",
    ),
    (
        "recover.rs",
        "cell.publish(guard, target.old);",
        "one thread never leaves the first half of an RDCSS durable behind",
    ),
    (
        "layout.rs",
        "line[WRITER].store(guard, writer(sequence))",
        "a descriptor then counts as torn that is damaged: the tests in recover.rs damage some",
    ),
];

fn source(file: &str) -> String {
    let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the source of a site")
}

fn is_redundant(site: Site) -> bool {
    let source = source(site.file);
    let line = source
        .lines()
        .nth(site.line as usize - 1)
        .unwrap_or_default();
    REDUNDANT.iter().any(|(file, snippet, _)| {
        // The snippet must name a single place, also after later changes.
        let here = site.file.ends_with(&format!("pmwcas/{file}")) && line.contains(snippet);
        assert!(
            !here || source.matches(snippet).count() == 1,
            "{snippet:?} is in {file} more than once"
        );
        here
    })
}

#[test]
#[ignore = "thorough: 12 s; `cargo xtask mutants --engine bztree` plants the same faults"]
fn every_flush_fence_and_store_is_needed() {
    let run = |mutations: Vec<Mutation>| {
        // The slowest comes last: most mutants are noticed before.
        let scopes = [
            (Rules::Lines, SecondCrash::InRecovery),
            (Rules::Log, SecondCrash::InRecovery),
            (Rules::Lines, SecondCrash::Anywhere),
        ];
        scopes.into_iter().try_for_each(|(rules, second_crash)| {
            let mutations = mutations.clone();
            let shrink = false;
            let options = ExplorationOptions {
                mutations,
                rules,
                second_crash,
                shrink,
                ..ExplorationOptions::default()
            };
            explorer(1, options).explore(&script())
        })
    };
    let mut census = explorer(1, ExplorationOptions::default());
    census.sim().start_census();
    census
        .explore(&script())
        .unwrap_or_else(|failure| panic!("{failure}"));
    let mut planted = 0;
    let mut survivors = Vec::new();
    for (kind, site) in census.sim().census().into_keys() {
        if !site.file.contains("pmwcas") || site.file.contains("tests") {
            continue;
        }
        let mutation = match kind {
            SiteKind::Flush => Mutation::DropFlush(site),
            SiteKind::Fence => Mutation::DropFence(site),
            SiteKind::Store | SiteKind::StoreLine => Mutation::DropStore(site),
            SiteKind::Wait => Mutation::DropWait(site),
        };
        planted += 1;
        if run(vec![mutation]).is_ok() && !is_redundant(site) {
            survivors.push(mutation.to_string());
        }
    }
    println!("{planted} mutants");
    assert!(
        planted > 12 && survivors.is_empty(),
        "not noticed: {survivors:#?}"
    );
}
