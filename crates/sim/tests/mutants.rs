//! Every flush, fence and store of RNTree left out, one at a time: each must be noticed.

use std::collections::BTreeSet;

use engines::index::{Codec, RecordCodec, WordCodec};
use engines::rntree::{MaybeWords, RnTree};
use everleaf_sim::index::IndexOperation::{self, Exchange, Insert, Put, Remove, Reopen, Update};
use everleaf_sim::index::{FollowUp, IndexSubject, RnTreeEngine};
use everleaf_sim::{Explorer, Options, SecondCrash};
use medium::LineForm;
use medium::sim::{Mutation, Sim, Site, SiteKind};

/// What may be left out unnoticed: file, a snippet of one of the lines up to the operation, and why.
const REDUNDANT: [(&str, &str, &str); 7] = [
    (
        "rntree/mod.rs",
        "slots.init(&guard, &Slots::identity(0, 0).0)",
        "the first leaf's empty slot line is all zero, and so is the fresh memory that it goes to; needed where a \
         tree is made in space that was used before",
    ),
    (
        "medium/src/cell.rs",
        "other.store_words(guard, &twin::repair(tag))",
        "every store of a twin line goes through its words in the same order, so two torn ones cannot complete each \
         other (tests/twin_line.rs); needed where word stores may be reordered",
    ),
    (
        "pool/src/space.rs",
        "publish(guard, checked(0))",
        "a slab without a class is looked at, found empty, and freed",
    ),
    (
        "pool/src/space.rs",
        "bitmap_check(&bitmap)",
        "a bitmap that fails its check costs a mark, nothing else",
    ),
    ("pool/src/space.rs", "word.store(guard, *bits)", "the same"),
    (
        "pool/src/space.rs",
        "State::HighWater.publish(guard, u64::from(high_water))",
        "whoever publishes what was allocated fences through the same guard before",
    ),
    (
        "pool/src/pool.rs",
        "State::Clean.publish(&guard, 1)",
        "a clean flag that is lost costs a mark, nothing else",
    ),
];

/// Why it does not matter whether what is called there is done, if that is known.
fn redundancy(site: Site) -> Option<&'static str> {
    let path = format!("{}/../../{}", env!("CARGO_MANIFEST_DIR"), site.file);
    let source = std::fs::read_to_string(path).expect("the source of a site");
    let start = (site.line as usize).saturating_sub(4);
    let context: Vec<&str> = source.lines().skip(start).take(site.line as usize - start).collect();
    let matches = |(file, snippet, _): &&(&str, &str, &str)| {
        site.file.ends_with(file) && context.iter().any(|line| line.contains(snippet))
    };
    REDUNDANT.iter().find(matches).map(|(_, _, why)| *why)
}

fn script() -> Vec<IndexOperation> {
    let mut script = vec![Insert(10, 1), Insert(20, 2), Update(20, 4), Put(30, 6), Put(40, 7), Remove(20)];
    script.extend([Insert(25, 8), Exchange(25, 8, 9), Reopen]);
    script.extend((41..53).map(|key| Insert(key, key)));
    script.extend([10, 25, 30, 40, 41, 42, 43, 48, 49].map(Remove));
    script.extend([Insert(5, 11), Reopen, Remove(44), Remove(45), Remove(46), Remove(5), Reopen]);
    script
}

fn explorer<C: Codec>(
    line_form: LineForm,
    mutations: Vec<Mutation>,
) -> Explorer<IndexSubject<RnTreeEngine<C, 4>>>
where
    RnTree<Sim, C, 4>: MaybeWords,
{
    let options =
        Options { line_form, mutations, second_crash: SecondCrash::InRecovery, ..Options::default() };
    Explorer::new(IndexSubject::new(RnTreeEngine::default(), FollowUp::SplitAndMerge), options).unwrap()
}

fn sites<C: Codec>(line_form: LineForm) -> BTreeSet<(SiteKind, Site)>
where
    RnTree<Sim, C, 4>: MaybeWords,
{
    let mut explorer = explorer::<C>(line_form, Vec::new());
    explorer.sim().start_census();
    explorer.explore(&script()).unwrap_or_else(|failure| panic!("{failure}"));
    explorer.sim().census().into_keys().collect()
}

fn survives(mutation: Mutation) -> bool {
    [LineForm::Single, LineForm::Twin].into_iter().all(|line_form| {
        explorer::<WordCodec>(line_form, vec![mutation]).explore(&script()).is_ok()
            && explorer::<RecordCodec>(line_form, vec![mutation]).explore(&script()).is_ok()
    })
}

#[test]
fn every_mutant_is_caught_or_known_to_be_harmless() {
    let mut sites = sites::<WordCodec>(LineForm::Single);
    sites.append(&mut self::sites::<RecordCodec>(LineForm::Twin));
    let (mut planted, mut survivors) = (0, Vec::new());
    for (kind, site) in sites {
        let mutation = match kind {
            SiteKind::Flush => Mutation::DropFlush(site),
            SiteKind::Fence => Mutation::DropFence(site),
            SiteKind::Wait => Mutation::DropWait(site),
            SiteKind::Store | SiteKind::StoreLine => Mutation::DropStore(site),
        };
        planted += 1;
        if survives(mutation) && redundancy(site).is_none() {
            survivors.push(mutation.to_string());
        }
    }
    println!("{planted} mutants");
    assert!(planted > 40 && survivors.is_empty(), "not noticed: {survivors:#?}");
}
