//! Every flush, fence and store of RNTree left out, one at a time: each must be noticed.

use std::collections::BTreeSet;

use engines::index::{Codec, RecordCodec, WordCodec};
use engines::rntree::{MaybeWords, RnTree};
use everleaf_sim::index::IndexOperation::{self, Exchange, Insert, Put, Remove, Reopen, Update};
use everleaf_sim::index::{FollowUp, IndexSubject, RnTreeEngine};
use everleaf_sim::{Explorer, Options, SecondCrash};
use medium::LineForm;
use medium::sim::{Mutation, Sim, Site, SiteKind};

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
fn every_mutant_is_caught() {
    let start = std::time::Instant::now();
    let mut sites = sites::<WordCodec>(LineForm::Single);
    sites.append(&mut self::sites::<RecordCodec>(LineForm::Twin));
    println!("{:?}", start.elapsed());
    let mut survivors = Vec::new();
    let mut planted = 0;
    for (kind, site) in sites {
        let mutation = match kind {
            SiteKind::Flush => Mutation::DropFlush(site),
            SiteKind::Fence => Mutation::DropFence(site),
            SiteKind::Store | SiteKind::StoreLine => Mutation::DropStore(site),
        };
        planted += 1;
        if survives(mutation) {
            survivors.push(mutation.to_string());
        }
    }
    println!("{planted} mutants, {:?}; survivors: {survivors:#?}", start.elapsed());
}
