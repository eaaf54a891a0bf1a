//! A user's own persistent linked list: wrong, the explorer's report about it, and mended.
//!
//! ```text
//! cargo run --release -p everleaf-sim --example linked_list
//! ```
//!
//! `docs/TESTING.md` goes through it step by step.

use everleaf_sim::{Complaint, ExplorationOptions, Explorer, Stats, Subject};
use medium::sim::Sim;
use medium::{Medium, MediumGuard, Word};

/// Where the offset of the first node is.
const HEAD: u64 = 64;
/// Where nodes begin. A node is a line: its value, and the offset of the next node.
const NODES: u64 = 128;
const LENGTH: u64 = 4096;

/// A stack of numbers.
pub(crate) struct List {
    /// Whether a node is durable before the head leads to it.
    pub(crate) mended: bool,
}

/// An operation on a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Operation {
    /// Puts a number on top.
    Push(u64),
    /// Takes the number on top.
    Pop,
}

pub(crate) use Operation::{Pop, Push};

impl Operation {
    /// The specification of a stack, without persistent memory: changes its numbers, the top one
    /// first, and returns the result.
    pub(crate) fn specification(self, stack: &mut Vec<u64>) -> Option<u64> {
        match self {
            Push(value) => {
                stack.insert(0, value);
                None
            }
            Pop => (!stack.is_empty()).then(|| stack.remove(0)),
        }
    }
}

fn words<'g>(
    guard: &'g MediumGuard<'_, Sim>,
    offset: u64,
    count: usize,
) -> Result<&'g [Word], Complaint> {
    guard.words(offset, count).map_err(|bad| bad.to_string())
}

/// The nodes, from the top: offset and value.
fn walk(sim: &Sim) -> Result<Vec<(u64, u64)>, Complaint> {
    let guard = MediumGuard::new(sim);
    let mut nodes = Vec::new();
    let mut offset = words(&guard, HEAD, 1)?[0].load(&guard);
    while offset != 0 {
        let node = words(&guard, offset, 2)?;
        nodes.push((offset, node[0].load(&guard)));
        offset = node[1].load(&guard);
    }
    Ok(nodes)
}

impl List {
    fn push(&self, sim: &Sim, value: u64) -> Result<(), Complaint> {
        let fresh = walk(sim)?
            .iter()
            .map(|(offset, _)| offset + 64)
            .max()
            .unwrap_or(NODES);
        let guard = MediumGuard::new(sim);
        let head = &words(&guard, HEAD, 1)?[0];
        let node = words(&guard, fresh, 2)?;
        node[0].store(&guard, value);
        node[1].store(&guard, head.load(&guard));
        guard.flush_words(node);
        if self.mended {
            guard.fence();
        }
        head.publish(&guard, fresh);
        guard.drain().map_err(|error| error.to_string())
    }

    fn pop(sim: &Sim) -> Result<Option<u64>, Complaint> {
        let guard = MediumGuard::new(sim);
        let head = &words(&guard, HEAD, 1)?[0];
        let first = head.load(&guard);
        if first == 0 {
            return Ok(None);
        }
        let node = words(&guard, first, 2)?;
        let value = node[0].load(&guard);
        head.publish(&guard, node[1].load(&guard));
        guard.drain().map_err(|error| error.to_string())?;
        Ok(Some(value))
    }
}

impl Subject for List {
    type Operation = Operation;
    type Outcome = Option<u64>;
    type State = Vec<u64>;
    type Instance = Sim;

    fn initial(&self) -> Vec<u64> {
        Vec::new()
    }

    fn step(&self, state: &mut Vec<u64>, operation: &Operation) -> Option<u64> {
        operation.specification(state)
    }

    fn open(&self, sim: &Sim) -> Result<Sim, Complaint> {
        sim.grow(LENGTH).map_err(|error| error.to_string())?;
        Ok(sim.clone())
    }

    fn apply(&self, sim: &mut Sim, operation: &Operation) -> Result<Option<u64>, Complaint> {
        match operation {
            Push(value) => self.push(sim, *value).map(|()| None),
            Pop => Self::pop(sim),
        }
    }

    fn observe(&self, sim: &mut Sim) -> Result<Vec<u64>, Complaint> {
        Ok(walk(sim)?.into_iter().map(|(_, value)| value).collect())
    }

    // A crash may leave a list that seems right until it is used.
    fn follow_up(&self, _: &Vec<u64>, _: &[Operation]) -> Vec<Operation> {
        vec![Push(9), Pop, Pop]
    }
}

/// Crashes the list wherever that matters.
pub(crate) fn explore(mended: bool) -> Result<Stats, String> {
    let options = ExplorationOptions {
        command: "cargo run --release -p everleaf-sim --example linked_list".to_owned(),
        replay: std::env::var("EVERLEAF_CRASH")
            .ok()
            .map(|text| text.parse().expect("EVERLEAF_CRASH")),
        ..ExplorationOptions::default()
    };
    let mut explorer =
        Explorer::new(List { mended }, options).map_err(|error| error.to_string())?;
    explorer
        .explore(&[Push(7), Push(8), Pop, Pop, Pop])
        .map_err(|failure| failure.to_string())?;
    Ok(explorer.stats())
}

fn main() {
    match explore(false) {
        Ok(stats) => println!("nothing found: {stats}"),
        Err(report) => println!("{report}"),
    }
    match explore(true) {
        Ok(stats) => println!("\nmended: {stats}"),
        Err(report) => println!("\nstill wrong: {report}"),
    }
}
