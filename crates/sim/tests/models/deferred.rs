//! Operations that return before they are durable, on a file: which writes a crash may take back,
//! and which values a read may return.

use everleaf_sim::index::CodecName::{Record, Word};
use everleaf_sim::index::IndexOperation::{Get, Insert, Put, Sync, Update};
use everleaf_sim::index::script::{every_change_in_epochs, reads_of_pending_writes};
use everleaf_sim::index::{Deferral, Engine, FollowUp, IndexOperation, IndexSubject};
use everleaf_sim::{ExplorationOptions, Explorer, Images, Rules, SecondCrash, Subject};
use medium::sim::{Mutation, Site, SiteKind};

use crate::common;

fn options() -> ExplorationOptions {
    let options = common::options("models", Images::Some { random: 4 }, SecondCrash::Never);
    ExplorationOptions {
        rules: Rules::Log,
        ..options
    }
}

fn subject(
    engine: Engine,
    codec: everleaf_sim::index::CodecName,
    deferral: Deferral,
) -> IndexSubject {
    IndexSubject::new(&common::small(engine, codec), FollowUp::Keys).deferring(deferral)
}

/// Explores the script; returns the number of recoveries, or the failure.
fn explore<S: Subject>(
    subject: S,
    script: &[S::Operation],
    options: ExplorationOptions,
) -> Result<u64, String> {
    let mut explorer = Explorer::new(subject, options).unwrap();
    explorer
        .explore(script)
        .map_err(|failure| failure.to_string())?;
    Ok(explorer.stats().recoveries)
}

/// After each write another operation reads a key: the one just written, or another.
fn with_reads() -> Vec<IndexOperation> {
    let mut script = Vec::new();
    for (place, operation) in every_change_in_epochs().into_iter().enumerate() {
        script.push(operation);
        match operation {
            Insert(key, _) | Update(key, _) | Put(key, _) if place % 3 == 0 => {
                script.push(Get(key));
            }
            _ if place % 5 == 0 => script.push(Get(10)),
            _ => {}
        }
    }
    script
}

/// Engines that are durable late, with reads between their writes.
fn keep_what_they_promise(deferral: Deferral) {
    for engine in [Engine::RNTREE, Engine::BZTREE] {
        for codec in [Word, Record] {
            let subject = subject(engine, codec, deferral);
            let recoveries =
                explore(subject, &with_reads(), options()).unwrap_or_else(|what| panic!("{what}"));
            assert!(recoveries > 200, "{recoveries}");
        }
    }
}

#[test]
fn what_a_crash_takes_back_is_the_end() {
    keep_what_they_promise(Deferral::Everything);
}

#[test]
fn what_was_read_beside_pending_writes_is_durable() {
    keep_what_they_promise(Deferral::Writes);
}

/// The engines whose writes are durable when they return, each with the folder of its reads.
const IMMEDIATE: [(Engine, &str); 4] = [
    (Engine::RNTREE, "/rntree/"),
    (Engine::BZTREE, "/bztree/"),
    (Engine::WBTREE, "/kit/paged/"),
    (Engine::CAWBT, "/cawbt/"),
];

/// Explores each way to read a key that was just written, with these faults. Returns the places where
/// lookups and ranges leave a wait to their caller.
fn explore_reads(
    engine: Engine,
    codec: everleaf_sim::index::CodecName,
    mutations: Vec<Mutation>,
) -> Result<Vec<Site>, String> {
    let options = ExplorationOptions {
        images: Images::Some { random: 0 },
        mutations,
        shrink: false,
        ..options()
    };
    let mut explorer = Explorer::new(subject(engine, codec, Deferral::Writes), options).unwrap();
    explorer.sim().start_census();
    explorer
        .explore(&reads_of_pending_writes())
        .map_err(|failure| failure.to_string())?;
    let places = explorer.sim().census().into_keys();
    let is_of_read = |site: &Site| {
        let reads = ["find.rs", "scan.rs"];
        reads.iter().any(|file| site.file.ends_with(file))
    };
    let waits = places.filter(|(kind, site)| *kind == SiteKind::Wait && is_of_read(site));
    Ok(waits.map(|(_, site)| site).collect())
}

/// A lookup or a range, alone, must not return an entry that a crash takes back. Each wait of a read
/// is needed for that.
#[test]
fn a_read_waits_for_the_pending_write_that_it_returns() {
    for (engine, folder) in IMMEDIATE {
        for codec in [Word, Record] {
            let sites = explore_reads(engine, codec, Vec::new());
            let sites = sites.unwrap_or_else(|failure| panic!("{failure}"));
            println!("{engine:?}, {codec:?}: {sites:?}");
            for file in ["find.rs", "scan.rs"] {
                let is_here = |site: &Site| site.file.ends_with(&format!("{folder}{file}")[..]);
                assert!(sites.iter().any(is_here), "{engine:?}: {folder}{file}");
            }
            for site in sites {
                let found = explore_reads(engine, codec, vec![Mutation::DropWait(site)]);
                assert!(found.is_err(), "{engine:?}, {codec:?}: {site}");
            }
        }
    }
}

#[test]
fn few_writes_in_all_their_images() {
    let script = [
        Insert(1, 1),
        Insert(2, 2),
        Sync,
        Put(1, 3),
        Insert(3, 4),
        Get(1),
        Update(2, 5),
        Get(3),
        Sync,
    ];
    for deferral in [Deferral::Writes, Deferral::Everything] {
        for engine in [Engine::RNTREE, Engine::BZTREE] {
            let options = ExplorationOptions {
                images: Images::All,
                second_crash: SecondCrash::InRecovery,
                ..options()
            };
            explore(subject(engine, Word, deferral), &script, options)
                .unwrap_or_else(|what| panic!("{what}"));
        }
    }
}

/// A subject that promises more than it keeps.
struct Boastful(
    IndexSubject,
    fn(&IndexOperation) -> everleaf_sim::DurabilityContract,
);

impl Subject for Boastful {
    type Operation = <IndexSubject as Subject>::Operation;
    type Outcome = <IndexSubject as Subject>::Outcome;
    type State = <IndexSubject as Subject>::State;
    type Instance = <IndexSubject as Subject>::Instance;

    fn initial(&self) -> Self::State {
        self.0.initial()
    }

    fn step(&self, state: &mut Self::State, operation: &IndexOperation) -> Self::Outcome {
        self.0.step(state, operation)
    }

    fn durability(&self, operation: &IndexOperation) -> everleaf_sim::DurabilityContract {
        (self.1)(operation)
    }

    fn is_same_part(&self, part: u64, one: &Self::State, other: &Self::State) -> bool {
        self.0.is_same_part(part, one, other)
    }

    fn copy_part(&self, part: u64, from: &Self::State, to: &mut Self::State) {
        self.0.copy_part(part, from, to);
    }

    fn open(&self, sim: &medium::sim::Sim) -> Result<Self::Instance, String> {
        self.0.open(sim)
    }

    fn apply(
        &self,
        opened: &mut Self::Instance,
        operation: &IndexOperation,
    ) -> Result<Self::Outcome, String> {
        self.0.apply(opened, operation)
    }

    fn observe(&self, opened: &mut Self::Instance) -> Result<Self::State, String> {
        self.0.observe(opened)
    }
}

/// The explorer must notice that this promise is not kept.
#[test]
fn a_promise_that_is_not_kept_is_found() {
    use everleaf_sim::DurabilityContract::{AtAnyTime, OfPart, OnReturn};
    let script = [Insert(1, 1), Sync, Put(1, 2), Get(1), Insert(2, 2), Sync];
    let on_return: fn(&IndexOperation) -> _ = |_| OnReturn;
    // If no operation waits, values that were read may be lost.
    let reads: fn(&IndexOperation) -> _ = |operation| match operation {
        Sync => OnReturn,
        Get(key) => OfPart(*key),
        _ => AtAnyTime,
    };
    for (deferral, promise) in [
        (Deferral::Writes, on_return),
        (Deferral::Everything, on_return),
        (Deferral::Everything, reads),
    ] {
        for engine in [Engine::RNTREE, Engine::BZTREE] {
            let subject = Boastful(subject(engine, Word, deferral), promise);
            let found = explore(subject, &script, options());
            assert!(
                found.is_err_and(|what| what.contains("crash")),
                "{engine:?}, {deferral:?}"
            );
        }
    }
    let kept = explore(
        Boastful(subject(Engine::RNTREE, Word, Deferral::Writes), reads),
        &script,
        options(),
    );
    kept.unwrap_or_else(|what| panic!("{what}"));
}
