//! The engines in which faults are planted: how each is run, and which faults are justified.

use std::collections::BTreeSet;
use std::sync::Arc;

use engines::engine::Engine;
use engines::masstree::Mode;
use medium::LineForm;
use medium::sim::{Mutation, Site};

use super::justified::{self, Justified};
use super::sites;
use sim::Complaint;
use sim::Rules;
use sim::index::IndexOperation::{Insert, Put, Remove, Sync as EndEpoch, Update};
use sim::index::batches::{BatchSubject, TreeKind};
use sim::index::script::{
    every_change, every_change_in_epochs, every_compaction, every_drop, every_evacuation,
    every_load, loaded_and_left_alone, merged_to_one_leaf, reads_of_pending_writes,
    second_epochs_of_two_lives, values_in_epochs, values_of_two_lives, what_epochs_meet,
};
use sim::index::suite::{Suite, exhaust};
use sim::index::threads::{epoch_end, takers};
use sim::index::{
    AnyEngine, CodecName, Deferral, Explored, FollowUp, IndexOperation, IndexSubject, RUBBISH_FROM,
    Size, engine,
};
use sim::{ExplorationOptions, Explorer, Images, SecondCrash};
use sim::{Program, Scheduling, Search};

/// The result of an exploration: the faults that could be planted, or the complaint.
pub type TrialOutcome = Result<BTreeSet<Mutation>, Complaint>;

/// One way to run an engine: on one codec, one form of lines, one memory model.
pub struct Trial {
    pub(super) name: String,
    explore: Box<dyn Fn(Vec<Mutation>) -> TrialOutcome + Sync>,
}

impl Trial {
    /// Explores every crash of `script`. `options.mutations` is ignored.
    pub fn of_script(
        engine: AnyEngine,
        script: Vec<IndexOperation>,
        options: ExplorationOptions,
    ) -> Self {
        let follow_up = FollowUp::SplitAndMerge;
        Self::new(engine, script, follow_up, Deferral::Nothing, options)
    }

    /// Does the same as [`Trial::of_script`], but fast: one crash, few images, a short follow-up.
    pub fn quick(
        engine: AnyEngine,
        script: Vec<IndexOperation>,
        options: ExplorationOptions,
    ) -> Self {
        Self::with_few_images(engine, script, SecondCrash::Never, options)
    }

    /// Does the same as [`Trial::quick`], with a second crash anywhere after the first.
    pub fn again(
        engine: AnyEngine,
        script: Vec<IndexOperation>,
        options: ExplorationOptions,
    ) -> Self {
        Self::with_few_images(engine, script, SecondCrash::Anywhere, options)
    }

    fn with_few_images(
        engine: AnyEngine,
        script: Vec<IndexOperation>,
        second_crash: SecondCrash,
        options: ExplorationOptions,
    ) -> Self {
        let options = few_images(second_crash, options);
        Self::new(engine, script, FollowUp::Keys, Deferral::Nothing, options)
    }

    /// Does the same as [`Trial::quick`], but writes return before they are durable, and reads wait
    /// until their results are. It finds no places for faults.
    pub fn deferring(
        engine: AnyEngine,
        script: Vec<IndexOperation>,
        options: ExplorationOptions,
    ) -> Self {
        let options = few_images(SecondCrash::Never, options);
        Self::new(engine, script, FollowUp::Keys, Deferral::Writes, options)
    }

    /// Does the same as [`Trial::of_script`], but the operations after a crash reuse free space,
    /// and open the tree again. It finds no places for faults.
    pub fn reusing(
        engine: AnyEngine,
        script: Vec<IndexOperation>,
        options: ExplorationOptions,
    ) -> Self {
        Self::new(engine, script, FollowUp::Reuse, Deferral::Nothing, options)
    }

    fn new(
        engine: AnyEngine,
        script: Vec<IndexOperation>,
        follow_up: FollowUp,
        deferral: Deferral,
        options: ExplorationOptions,
    ) -> Self {
        let ExplorationOptions {
            line_form, rules, ..
        } = options;
        let name = format!(
            "{} {}, {line_form:?}, {rules:?}",
            engine.name(),
            engine.codec()
        );
        let explore = move |mutations| {
            let subject = IndexSubject::new(&engine, follow_up).deferring(deferral);
            let mut explorer = explorer(subject, &options, mutations);
            explorer
                .survey(&script)
                .map_err(|failure| failure.to_string())
        };
        Self {
            name,
            explore: Box::new(explore),
        }
    }

    /// Explores all sequences of `length` operations. It finds no places for faults.
    pub fn of_suite(engine: AnyEngine, length: usize, options: ExplorationOptions) -> Self {
        let rules = options.rules;
        let name = format!(
            "{} {}, all sequences of {length}, {rules:?}",
            engine.name(),
            engine.codec()
        );
        let explore = move |mutations| {
            let options = with_faults(&options, mutations);
            let report = exhaust(
                &engine,
                Suite {
                    length,
                    threads: 1,
                    progress: None,
                },
                &options,
            );
            report.report.map_or_else(|| Ok(BTreeSet::new()), Err)
        };
        Self {
            name,
            explore: Box::new(explore),
        }
    }

    /// Explores threads on the state that `setup` leaves, with at most one preemption.
    pub fn of_threads(
        engine: AnyEngine,
        mut setup: Vec<IndexOperation>,
        program: Program<IndexOperation>,
        options: ExplorationOptions,
    ) -> Self {
        let rules = options.rules;
        let name = format!("{} {}, threads, {rules:?}", engine.name(), engine.codec());
        setup.extend(epoch_end(engine.durability()));
        let explore = move |mutations| {
            let subject = IndexSubject::new(&engine, FollowUp::Keys);
            let mut explorer = explorer(subject, &options, mutations);
            explorer
                .set_up(&setup)
                .map_err(|failure| failure.to_string())?;
            let scheduling = Scheduling {
                search: Search::Exhaustive { preemptions_max: 1 },
                ..Scheduling::default()
            };
            explorer
                .survey_threads(&program, &scheduling)
                .map_err(|failure| failure.to_string())
        };
        Self {
            name,
            explore: Box::new(explore),
        }
    }

    /// Explores batches over two trees of these kinds, by one thread.
    pub fn of_batches(kinds: [TreeKind; 2], options: ExplorationOptions) -> Self {
        let name = format!("batches of {kinds:?}, {:?}", options.rules);
        let explore = move |mutations| {
            let subject = BatchSubject::new(kinds.clone());
            let script = subject.script();
            let mut explorer = subject.explorer(with_faults(&options, mutations))?;
            explorer
                .survey(&script)
                .map_err(|failure| failure.to_string())
        };
        Self {
            name,
            explore: Box::new(explore),
        }
    }

    /// Explores a batch over two trees beside a single write, with at most two preemptions.
    pub fn of_batches_beside(kinds: [TreeKind; 2], options: ExplorationOptions) -> Self {
        let name = format!(
            "batches of {kinds:?} beside single writes, {:?}",
            options.rules
        );
        let explore = move |mutations| {
            let subject = BatchSubject::new(kinds.clone());
            let setup = subject.setup();
            let programs = subject.beside();
            let mut explorer = subject.explorer(with_faults(&options, mutations))?;
            explorer
                .set_up(&setup)
                .map_err(|failure| failure.to_string())?;
            let search = Search::Exhaustive { preemptions_max: 2 };
            let scheduling = Scheduling {
                search,
                ..Scheduling::default()
            };
            let mut places = BTreeSet::new();
            for program in programs {
                let survey = explorer.survey_threads(&program, &scheduling);
                places.extend(survey.map_err(|failure| failure.to_string())?);
            }
            Ok(places)
        };
        Self {
            name,
            explore: Box::new(explore),
        }
    }

    /// The faults that could be planted.
    pub(super) fn survey(&self) -> TrialOutcome {
        (self.explore)(Vec::new())
    }

    /// Whether a fault makes it fail.
    pub(super) fn notices(&self, mutation: Mutation) -> bool {
        (self.explore)(vec![mutation]).is_err()
    }
}

/// An engine in which faults are planted.
pub struct MutationTarget {
    /// Its name.
    pub name: &'static str,
    /// The trials that run first, and notice most faults.
    pub quick: Vec<Trial>,
    /// The trials that determine the places of faults.
    pub trials: Vec<Trial>,
    /// Further trials, for faults that no other trial notices.
    pub suites: Vec<Trial>,
    /// The justified faults.
    pub(super) justified: Vec<Justified>,
    /// The folders whose justifications must all be needed.
    folders: &'static [&'static str],
    /// Whether only the code in its folders is judged.
    pub(super) is_part: bool,
    /// The engine whose target judges the shared code that it reaches.
    pub(super) judged_by: Option<Engine>,
    /// A text that the description of each planted mutant must contain.
    pub(super) only: String,
}

impl MutationTarget {
    /// The target of an engine.
    pub fn of(engine: Engine) -> Self {
        match engine {
            _ if engine == Engine::RNTREE => rntree(),
            _ if engine == Engine::MASSTREE => masstree(),
            _ if engine == Engine::CAWBT => cawbt(),
            _ => immediate(engine),
        }
    }

    /// The target of this name: an engine, or `batches`, which engines share.
    pub fn from_name(name: &str) -> Option<Self> {
        if name == BATCHES {
            Some(batches())
        } else {
            crate::engine_from_name(name).map(Self::of)
        }
    }

    /// An engine without trials. RNTree's target judges the code that all engines share.
    fn without_trials(engine: Engine) -> Self {
        let known = justified::ENGINES
            .iter()
            .find(|known| known.engine.name == engine.name);
        let (folders, own) =
            known.map_or((&[][..], &[][..]), |known| (known.folders, known.justified));
        Self {
            name: engine.name,
            quick: Vec::new(),
            trials: Vec::new(),
            suites: Vec::new(),
            justified: [justified::SHARED, &own.concat()].concat(),
            folders,
            is_part: false,
            judged_by: Some(Engine::RNTREE).filter(|judge| *judge != engine),
            only: String::new(),
        }
    }

    /// Plants only mutants with this text in their description, as `in_line_log.rs:92`. Unused
    /// justifications are not reported then.
    #[must_use]
    pub fn only(self, text: &str) -> Self {
        Self {
            only: text.to_owned(),
            ..self
        }
    }

    /// Whether this target decides if a justification is unused: one target accounts for the code
    /// that all engines share.
    pub(super) fn accounts_for(&self, justified: &Justified) -> bool {
        self.folders
            .iter()
            .any(|folder| justified.place.starts_with(folder))
    }

    fn is_here(&self, site: &Site) -> bool {
        self.folders.iter().any(|folder| site.file.contains(folder))
    }

    /// Whether all places of a fault are in these folders.
    pub(super) fn has(&self, mutation: &Mutation) -> bool {
        sites(mutation).iter().all(|site| self.is_here(site))
    }

    /// Whether some place of a fault is in these folders.
    pub(super) fn has_some(&self, mutation: &Mutation) -> bool {
        sites(mutation).iter().any(|site| self.is_here(site))
    }
}

/// An explorer of an engine that has faults.
fn explorer(
    subject: IndexSubject,
    options: &ExplorationOptions,
    faults: Vec<Mutation>,
) -> Explorer<IndexSubject> {
    Explorer::new(subject, with_faults(options, faults)).expect("memory for the explorer")
}

/// One crash, or two, few images.
fn few_images(second_crash: SecondCrash, options: ExplorationOptions) -> ExplorationOptions {
    ExplorationOptions {
        images: Images::Some { random: 0 },
        second_crash,
        ..options
    }
}

/// The first failure is enough.
fn with_faults(options: &ExplorationOptions, mutations: Vec<Mutation>) -> ExplorationOptions {
    ExplorationOptions {
        mutations,
        shrink: false,
        ..options.clone()
    }
}

fn options(line_form: LineForm, rules: Rules) -> ExplorationOptions {
    let second_crash = SecondCrash::InRecovery;
    let rubbish_from = Some(RUBBISH_FROM);
    ExplorationOptions {
        rules,
        line_form,
        rubbish_from,
        second_crash,
        ..ExplorationOptions::default()
    }
}

/// One crash, few images.
fn once(rules: Rules) -> ExplorationOptions {
    let images = Images::Some { random: 0 };
    let second_crash = SecondCrash::Never;
    ExplorationOptions {
        images,
        second_crash,
        ..options(LineForm::Single, rules)
    }
}

const CODECS: [CodecName; 2] = [CodecName::Word, CodecName::Record];

/// The scripts for trees. (Drops of trees, and moves, are run with records only, which include all
/// that words need.)
fn scripts(codec: CodecName) -> impl Iterator<Item = Vec<IndexOperation>> {
    let mut scripts = vec![every_change(), every_load()];
    if codec == CodecName::Record {
        scripts.push(every_drop());
        scripts.push(every_evacuation());
    }
    scripts.into_iter()
}

/// An engine with immediate durability, with the smallest nodes.
fn immediate(engine: Engine) -> MutationTarget {
    let twin = engine
        .stores_lines
        .then_some((LineForm::Twin, Rules::Lines));
    let scopes = [
        (LineForm::Single, Rules::Lines),
        (LineForm::Single, Rules::Log),
    ];
    let trials = |make: fn(AnyEngine, Vec<IndexOperation>, ExplorationOptions) -> Trial| {
        let of_scope = |(line_form, rules)| {
            CODECS.map(|codec| {
                let engine = self::engine(engine, codec, Size::Small);
                let trial =
                    move |script| make(Arc::clone(&engine), script, options(line_form, rules));
                scripts(codec).map(trial)
            })
        };
        scopes
            .into_iter()
            .chain(twin)
            .flat_map(of_scope)
            .flatten()
            .collect()
    };
    let quick = trials(Trial::quick);
    let trials = trials(Trial::of_script);
    // A reader, alone, must wait for the write before it.
    let deferring = CODECS.map(|codec| {
        let engine = self::engine(engine, codec, Size::Small);
        let options = options(LineForm::Single, Rules::Log);
        Trial::deferring(engine, reads_of_pending_writes(), options)
    });
    MutationTarget {
        quick,
        trials,
        suites: deferring.into(),
        ..MutationTarget::without_trials(engine)
    }
}

/// The name of the target of batches.
const BATCHES: &str = "batches";

/// The journal of batches: over trees that consist only of words, and over one of them and one that
/// is durable by epochs.
fn batches() -> MutationTarget {
    let words = || [TreeKind::PlainWords, TreeKind::PlainWords];
    let mixed = || [TreeKind::PlainWords, TreeKind::Engine(Engine::MASSTREE)];
    let options = |rules, images, second_crash| {
        let images = Images::Some { random: images };
        ExplorationOptions {
            images,
            second_crash,
            ..options(LineForm::Single, rules)
        }
    };
    let rules = [Rules::Lines, Rules::Log];
    let quick = rules.into_iter().flat_map(|rules| {
        [words(), mixed()]
            .map(|kinds| Trial::of_batches(kinds, options(rules, 0, SecondCrash::Never)))
    });
    let trials = rules.into_iter().flat_map(|rules| {
        let options = || options(rules, 2, SecondCrash::InRecovery);
        [
            Trial::of_batches(words(), options()),
            Trial::of_batches(mixed(), options()),
            Trial::of_batches_beside(words(), options()),
        ]
    });
    MutationTarget {
        name: BATCHES,
        quick: quick.collect(),
        trials: trials.collect(),
        justified: justified::BATCHES.to_vec(),
        folders: &["engines/src/batch/"],
        is_part: true,
        judged_by: None,
        ..MutationTarget::without_trials(Engine::RNTREE)
    }
}

/// RNTree, which also judges the code that all engines share.
fn rntree() -> MutationTarget {
    // A thread that opens a slab, and then finds its key present, gives the space back without a
    // fence. Its next allocation there is published.
    let slab_left_open = {
        let program = Program::of(vec![vec![Insert(13, 8)], vec![Insert(13, 18), Put(10, 19)]]);
        let engine = engine(Engine::RNTREE, CodecName::Record, Size::Small);
        Trial::of_threads(engine, Vec::new(), program, once(Rules::Lines))
    };
    let mut target = immediate(Engine::RNTREE);
    target.suites.push(slab_left_open);
    // Splits that copy records.
    for rules in [Rules::Lines, Rules::Log] {
        let gathering = Explored::small(Engine::RNTREE, CodecName::Record)
            .opening_with("gather", 1)
            .shared();
        let options = options(LineForm::Single, rules);
        target.quick.push(Trial::quick(
            Arc::clone(&gathering),
            every_change(),
            options.clone(),
        ));
        target
            .trials
            .push(Trial::of_script(gathering, every_change(), options));
    }
    target
}

/// CAWBT, also where inner nodes give each other children.
fn cawbt() -> MutationTarget {
    let mut target = immediate(Engine::CAWBT);
    let script = || {
        let mut script: Vec<_> = (1..13).map(|key| Insert(10 * key, key)).collect();
        script.extend([71, 72].map(|key| Insert(key, key)));
        script.extend([10, 20, 30, 40].map(Remove));
        script.extend([51, 52, 61, 62].map(|key| Insert(key, key)));
        script.extend([72, 80, 90, 100].map(Remove));
        script.extend([IndexOperation::Reopen, Remove(50)]);
        script
    };
    for codec in CODECS {
        for line_form in [LineForm::Single, LineForm::Twin] {
            let engine = self::engine(Engine::CAWBT, codec, Size::Small);
            let options = options(line_form, Rules::Lines);
            target
                .quick
                .push(Trial::quick(Arc::clone(&engine), script(), options.clone()));
            target
                .trials
                .push(Trial::of_script(engine, script(), options));
        }
    }
    // Nodes that are freed when the root is lowered are reused, and the tree is opened once more.
    let engine = self::engine(Engine::CAWBT, CodecName::Record, Size::Small);
    let single = options(LineForm::Single, Rules::Lines);
    target
        .suites
        .push(Trial::reusing(engine, merged_to_one_leaf(), single));
    // The split that follows stores the node once more whose separator an open has replaced; a
    // crash tears that.
    let mut script: Vec<_> = [10, 20, 40, 50, 30, 60].map(|key| Insert(key, key)).into();
    script.push(Remove(40));
    let options = ExplorationOptions {
        from_operation: script.len() - 1,
        ..options(LineForm::Twin, Rules::Lines)
    };
    let engine = self::engine(Engine::CAWBT, CodecName::Word, Size::Small);
    target.suites.push(Trial::again(engine, script, options));
    target
}

/// Masstree where space is used again and the tree is opened once more after a crash.
fn masstree_reopened(rules: Rules) -> [Trial; 2] {
    let options = |images, second_crash| {
        let images = Images::Some { random: images };
        ExplorationOptions {
            images,
            second_crash,
            ..options(LineForm::Single, rules)
        }
    };
    // A node that an open has put back from the external log changes without a log of its own;
    // another open must not put it back again.
    let script = [Insert(10, 1), EndEpoch, Remove(10), Insert(10, 2)];
    let word = engine(Engine::MASSTREE, CodecName::Word, Size::Small);
    // The epoch of a compaction fails, is swept and forgotten.
    let sweeping = Explored::small(Engine::MASSTREE, CodecName::Record).opening_with("sweep", 1);
    [
        Trial::reusing(word, script.into(), options(0, SecondCrash::Anywhere)),
        Trial::reusing(
            sweeping.shared(),
            every_compaction(),
            options(2, SecondCrash::InRecovery),
        ),
    ]
}

/// At four slots a node.
#[expect(clippy::too_many_lines, reason = "a table of trials")]
fn masstree() -> MutationTarget {
    let of_codec = |codec| engine(Engine::MASSTREE, codec, Size::Small);
    let trials = |make: fn(AnyEngine, Vec<IndexOperation>, ExplorationOptions) -> Trial| {
        let of_rules = |rules| {
            let images = Images::Some { random: 2 };
            let options = ExplorationOptions {
                images,
                ..options(LineForm::Single, rules)
            };
            let mut closed = every_change_in_epochs();
            closed.push(IndexOperation::Sync);
            let word = || Explored::small(Engine::MASSTREE, CodecName::Word);
            let closing = word().closing_cleanly().shared();
            let sweeping = word().opening_with("sweep", 1).shared();
            let logging = word().with("mode", Mode::Logging as u64).shared();
            // Value logs of epochs longer ago than their sixteen bits can tell; and of an epoch
            // with the same sixteen bits.
            let [far, around] = [(1 << 15) + 5, (1 << 16) + 3]
                .map(|first| word().opening_with("first-epoch", first).shared());
            let loaded = ExplorationOptions {
                from_operation: 2,
                ..options.clone()
            };
            let usual = CODECS
                .map(|codec| make(of_codec(codec), every_change_in_epochs(), options.clone()));
            let others = [
                make(of_codec(CodecName::Record), every_load(), options.clone()),
                make(of_codec(CodecName::Record), every_drop(), options.clone()),
                make(
                    of_codec(CodecName::Record),
                    every_compaction(),
                    options.clone(),
                ),
                make(closing, closed, options.clone()),
                make(logging, every_change_in_epochs(), options.clone()),
                make(sweeping, every_change_in_epochs(), options.clone()),
                make(
                    of_codec(CodecName::Word),
                    what_epochs_meet(),
                    options.clone(),
                ),
                make(far, values_in_epochs(), options.clone()),
                make(around, values_of_two_lives(), options.clone()),
                make(
                    of_codec(CodecName::Word),
                    second_epochs_of_two_lives(),
                    options.clone(),
                ),
                make(of_codec(CodecName::Word), loaded_and_left_alone(), loaded),
            ];
            usual.into_iter().chain(others)
        };
        [Rules::Lines, Rules::Log]
            .into_iter()
            .flat_map(of_rules)
            .collect()
    };
    // Recovery must not restore a node again over later writes.
    let again = [Rules::Lines, Rules::Log].map(|rules| {
        let script = [
            Insert(10, 1),
            Insert(20, 2),
            EndEpoch,
            Update(10, 3),
            EndEpoch,
        ];
        Trial::again(
            of_codec(CodecName::Word),
            script.into(),
            options(LineForm::Single, rules),
        )
    });
    let reopened = [Rules::Lines, Rules::Log]
        .into_iter()
        .flat_map(masstree_reopened);
    let suite = |rules| Trial::of_suite(of_codec(CodecName::Word), 2, once(rules));
    // A write while the end of an epoch flushes earlier writes.
    let beside = [Rules::Lines, Rules::Log].map(|rules| {
        let program = Program::of(vec![vec![Update(10, 3), EndEpoch], vec![Insert(15, 4)]]);
        Trial::of_threads(
            of_codec(CodecName::Word),
            vec![Insert(10, 1), Insert(20, 2)],
            program,
            once(rules),
        )
    });
    // The second shard begins a log, in space that was used before.
    let second_log = [Rules::Lines, Rules::Log].map(|rules| {
        let program = Program::of(vec![vec![Update(10, 3)], vec![Remove(20), Insert(20, 4)]]);
        Trial::of_threads(
            of_codec(CodecName::Word),
            vec![Insert(10, 1), Insert(20, 2)],
            program,
            once(rules),
        )
    });
    let taken_over = [Rules::Lines, Rules::Log].into_iter().flat_map(|rules| {
        let trial = move |(setup, program)| {
            let engine = Explored::small(Engine::MASSTREE, CodecName::Record)
                .opening_with("sweep", 1)
                .shared();
            Trial::of_threads(engine, setup, program, once(rules))
        };
        takers().into_iter().map(trial)
    });
    let in_threads = beside.into_iter().chain(second_log).chain(taken_over);
    MutationTarget {
        quick: trials(Trial::quick),
        trials: trials(Trial::of_script)
            .into_iter()
            .chain(in_threads)
            .collect(),
        suites: [Rules::Lines, Rules::Log]
            .map(suite)
            .into_iter()
            .chain(again)
            .chain(reopened)
            .collect(),
        ..MutationTarget::without_trials(Engine::MASSTREE)
    }
}
