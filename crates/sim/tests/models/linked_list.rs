//! A user's own persistent linked list: wrong, caught, and mended.

use everleaf_sim::{Complaint, ExplorationOptions, Explorer, Images, SecondCrash, Stats, Subject};
use medium::Medium;
use medium::MediumGuard;
use medium::sim::{Sim, SiteKind};

use crate::linked_list_example::{Operation, Pop, Push};

/// The fault of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Nothing,
    /// The node is flushed, but not fenced before the head leads to it.
    HeadUnfenced,
    /// The node is not flushed.
    NodeUnflushed,
    /// The head is not fenced before the operation returns.
    AckUnfenced,
    /// A popped node is overwritten before the head that passes it by is durable.
    ReusedEarly,
    /// Recovery walks for ever.
    Endless,
    /// Recovery assumes that a node lies in memory.
    OutOfBounds,
}

/// A stack of words: the head at 64, nodes of one line each (value, next, check) from 128 on.
struct List {
    fault: Fault,
}

struct Opened {
    sim: Sim,
    free: Vec<u64>,
    next_fresh: u64,
}

const HEAD: u64 = 64;
const LENGTH: u64 = 4096;

impl Opened {
    fn walk(&self, fault: Fault) -> Result<Vec<(u64, u64)>, Complaint> {
        let guard = MediumGuard::new(&self.sim);
        let mut nodes = Vec::new();
        let mut offset = guard.words(HEAD, 1).map_err(|bad| bad.to_string())?[0].load(&guard);
        while offset != 0 || fault == Fault::Endless {
            let beyond = if fault == Fault::OutOfBounds {
                LENGTH
            } else {
                0
            };
            let node = guard.words(offset + beyond, 3);
            let node = match fault {
                Fault::OutOfBounds => node.expect("a node"),
                _ => node.map_err(|bad| bad.to_string())?,
            };
            let value = node[0].load(&guard);
            let next = node[1].load(&guard);
            if node[2].load(&guard) != value + 1 && fault != Fault::Endless {
                return Err(format!("the node at {offset:#x} is damaged"));
            }
            nodes.push((offset, value));
            offset = next;
        }
        Ok(nodes)
    }
}

impl Subject for List {
    type Operation = Operation;
    type Outcome = Option<u64>;
    type State = Vec<u64>;
    type Instance = Opened;

    fn initial(&self) -> Vec<u64> {
        Vec::new()
    }

    fn step(&self, state: &mut Vec<u64>, operation: &Operation) -> Option<u64> {
        operation.specification(state)
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        sim.grow(LENGTH).map_err(|error| error.to_string())?;
        let mut opened = Opened {
            sim: sim.clone(),
            free: Vec::new(),
            next_fresh: 128,
        };
        let used: Vec<u64> = opened
            .walk(self.fault)?
            .iter()
            .map(|(offset, _)| *offset)
            .collect();
        opened.next_fresh = used.iter().max().map_or(128, |last| last + 64);
        opened.free = (128..opened.next_fresh)
            .step_by(64)
            .filter(|offset| !used.contains(offset))
            .collect();
        Ok(opened)
    }

    fn apply(&self, list: &mut Opened, operation: &Operation) -> Result<Option<u64>, Complaint> {
        let guard = MediumGuard::new(&list.sim);
        let head = &guard.words(HEAD, 1).map_err(|bad| bad.to_string())?[0];
        let first = head.load(&guard);
        match operation {
            Push(value) => {
                let offset = list.free.pop().unwrap_or_else(|| {
                    list.next_fresh += 64;
                    list.next_fresh - 64
                });
                let node = guard.words(offset, 3).map_err(|bad| bad.to_string())?;
                node[0].store(&guard, *value);
                node[1].store(&guard, first);
                node[2].store(&guard, *value + 1);
                if self.fault != Fault::NodeUnflushed {
                    guard.flush_words(node);
                }
                if self.fault != Fault::HeadUnfenced {
                    guard.fence();
                }
                head.publish(&guard, offset);
                if self.fault != Fault::AckUnfenced {
                    guard.fence();
                }
                Ok(None)
            }
            Pop if first == 0 => Ok(None),
            Pop => {
                let node = guard.words(first, 3).map_err(|bad| bad.to_string())?;
                let value = node[0].load(&guard);
                head.publish(&guard, node[1].load(&guard));
                if self.fault == Fault::ReusedEarly {
                    node[0].store(&guard, 0);
                }
                guard.fence();
                list.free.push(first);
                Ok(Some(value))
            }
        }
    }

    fn observe(&self, list: &mut Opened) -> Result<Vec<u64>, Complaint> {
        Ok(list
            .walk(self.fault)?
            .into_iter()
            .map(|(_, value)| value)
            .collect())
    }

    fn follow_up(&self, state: &Vec<u64>, _recent: &[Operation]) -> Vec<Operation> {
        vec![Push(90 + state.len() as u64), Pop, Pop, Push(80)]
    }
}

fn options(images: Images) -> ExplorationOptions {
    ExplorationOptions {
        images,
        second_crash: SecondCrash::Anywhere,
        command: "cargo test -p everleaf-sim --test models linked_list::".to_owned(),
        replay: std::env::var("EVERLEAF_CRASH")
            .ok()
            .map(|text| text.parse().expect("EVERLEAF_CRASH")),
        ..ExplorationOptions::default()
    }
}

fn explore(fault: Fault, images: Images) -> Result<Stats, String> {
    let mut explorer = Explorer::new(List { fault }, options(images)).unwrap();
    explorer
        .set_up(&[Push(10)])
        .map_err(|failure| failure.to_string())?;
    let result = explorer.explore(&[Push(1), Pop, Push(2), Push(3), Pop]);
    result
        .map(|()| explorer.stats())
        .map_err(|failure| failure.to_string())
}

#[test]
fn the_right_list_survives_every_pair_of_crashes() {
    let stats = explore(Fault::Nothing, Images::All).unwrap();
    println!("{stats}");
    assert!(stats.second_points > 100 && stats.cut_short == 0);
}

#[test]
fn each_fault_is_caught() {
    for fault in [
        Fault::HeadUnfenced,
        Fault::NodeUnflushed,
        Fault::AckUnfenced,
        Fault::ReusedEarly,
    ] {
        for images in [Images::All, Images::Some { random: 2 }, Images::Eager] {
            let report = explore(fault, images).expect_err("a fault that was not noticed");
            println!("{fault:?}, {images:?}: {report}\n");
            assert!(report.contains("linked_list.rs:"), "{report}");
        }
    }
}

#[test]
fn a_loop_in_recovery_is_a_report() {
    let options = ExplorationOptions {
        steps_max: 10_000,
        ..options(Images::All)
    };
    let mut explorer = Explorer::new(
        List {
            fault: Fault::Endless,
        },
        options,
    )
    .unwrap();
    let report = explorer.explore(&[Push(1)]).unwrap_err().to_string();
    assert!(report.contains("step limit"), "{report}");
}

#[test]
fn a_recovery_that_reads_out_of_bounds_is_a_report() {
    let mut explorer = Explorer::new(
        List {
            fault: Fault::OutOfBounds,
        },
        options(Images::All),
    )
    .unwrap();
    let report = explorer.explore(&[Push(1)]).unwrap_err().to_string();
    println!("{report}");
    assert!(
        report.contains("panicked") && report.contains("linked_list.rs"),
        "{report}"
    );
}

/// A run of many operations takes many steps, and so does the recovery from a late crash.
#[test]
fn a_long_run_is_no_loop() {
    let options = ExplorationOptions {
        steps_max: 2000,
        second_crash: SecondCrash::Never,
        ..options(Images::Some { random: 0 })
    };
    let options = ExplorationOptions {
        shrink: false,
        ..options
    };
    let mut explorer = Explorer::new(
        List {
            fault: Fault::Nothing,
        },
        options,
    )
    .unwrap();
    let operations: Vec<_> = (0..400)
        .map(|number| if number % 2 == 0 { Push(number) } else { Pop })
        .collect();
    explorer
        .explore(&operations)
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_failure_is_shrunk_and_replayed() {
    let mut explorer = Explorer::new(
        List {
            fault: Fault::HeadUnfenced,
        },
        options(Images::All),
    )
    .unwrap();
    let failure = explorer
        .explore(&[Push(1), Pop, Push(2), Push(3), Pop])
        .unwrap_err();
    assert_eq!(failure.operations.len(), 1, "{failure}");
    assert!(matches!(failure.operations[0], Push(_)));
    assert!(!failure.crashes[0].behind.is_empty(), "{failure}");
    let again = ExplorationOptions {
        replay: Some(failure.replay()),
        ..options(Images::All)
    };
    let mut replaying = Explorer::new(
        List {
            fault: Fault::HeadUnfenced,
        },
        again.clone(),
    )
    .unwrap();
    let replayed = replaying.explore(&failure.operations).unwrap_err();
    assert_eq!(
        (replaying.stats().recoveries, replayed.to_string()),
        (1, failure.to_string())
    );
    let mut mended = Explorer::new(
        List {
            fault: Fault::Nothing,
        },
        again,
    )
    .unwrap();
    mended.explore(&failure.operations).unwrap();
}

#[test]
fn every_flush_and_fence_is_needed() {
    let list = List {
        fault: Fault::Nothing,
    };
    let mut explorer = Explorer::new(list, options(Images::All)).unwrap();
    let operations = [Push(1), Pop, Push(2), Push(3), Pop];
    explorer.sim().start_census();
    explorer.explore(&operations).unwrap();
    let mut planted = 0;
    for (kind, site) in explorer.sim().census().into_keys() {
        let mutation = match kind {
            SiteKind::Flush => medium::sim::Mutation::DropFlush(site),
            SiteKind::Fence => medium::sim::Mutation::DropFence(site),
            SiteKind::Store | SiteKind::StoreLine | SiteKind::Wait => continue,
        };
        let options = ExplorationOptions {
            mutations: vec![mutation],
            ..options(Images::All)
        };
        let mut mutant = Explorer::new(
            List {
                fault: Fault::Nothing,
            },
            options,
        )
        .unwrap();
        let failure = mutant
            .explore(&operations)
            .expect_err("a mutant that survived");
        assert!(
            failure.to_string().contains(&mutation.to_string()),
            "{failure}"
        );
        planted += 1;
    }
    assert_eq!(planted, 6);
}
