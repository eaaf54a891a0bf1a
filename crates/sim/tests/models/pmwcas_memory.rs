//! PMwCAS on words whose memory is retired and used again, as a tree's nodes are.

use std::cell::RefCell;

use engines::pmwcas::{Pmwcas, Recycling, VALUE_MASK};
use everleaf_sim::index::pool_options;
use everleaf_sim::{
    Complaint, Concurrent, ExplorationOptions, Explorer, Images, Program, Rules, Scheduling,
    Search, SecondCrash, Subject,
};
use medium::Word;
use medium::sim::Sim;
use pool::{Guard, Pool, ROOT_WORDS};

use crate::common::text;

/// A node: its status is its first word, and says in bit 0 that the node is frozen.
const NODE_BYTES: usize = 64;
/// The content of a record in a node's former memory: not a word of PMwCAS.
const FOREIGN: u64 = u64::MAX;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Operation {
    /// Changes the counter from 0, on condition of the node's status: fails if the node was
    /// replaced.
    Change,
    /// Replaces the node by another, and retires it.
    Replace,
    /// Changes the counter from 0, and nothing else.
    Count,
    /// Reuses free memory for something else.
    Fill,
}

use Operation::{Change, Count, Fill, Replace};

struct Nodes;

struct Opened {
    pool: Pool<Sim>,
    pmwcas: Pmwcas,
    /// Where the counter lies, and behind it the word that leads to the node.
    words: u64,
    filled: RefCell<Vec<u64>>,
}

impl Opened {
    fn cell<'g>(&self, guard: &'g Guard<'_, Sim>, word: u64) -> Result<&'g Word, Complaint> {
        Ok(&guard.words(self.words + 8 * word, 1).map_err(text)?[0])
    }

    fn read(&self, guard: &Guard<'_, Sim>, cell: &Word) -> Result<u64, Complaint> {
        Ok(self.pmwcas.read(guard, cell).map_err(text)? & VALUE_MASK)
    }

    /// The node that is there now, and its status.
    fn node<'g>(&self, guard: &'g Guard<'_, Sim>) -> Result<(u64, &'g Word, u64), Complaint> {
        let node = self.read(guard, self.cell(guard, 1)?)?;
        let status = &guard.words(node, 1).map_err(text)?[0];
        Ok((node, status, self.read(guard, status)?))
    }

    fn change(&self, guard: &Guard<'_, Sim>) -> Result<bool, Complaint> {
        loop {
            let (_, cell, status) = self.node(guard)?;
            let mut swap = self.pmwcas.allocate();
            swap.add_word(guard, self.cell(guard, 0)?, 0, 1)
                .map_err(text)?;
            swap.add_word(guard, cell, status & !1, status & !1)
                .map_err(text)?;
            if swap.execute(guard).map_err(text)? {
                return Ok(true);
            }
            if self.read(guard, self.cell(guard, 0)?)? != 0 {
                return Ok(false);
            }
        }
    }

    fn replace(&self, guard: &Guard<'_, Sim>) -> Result<bool, Complaint> {
        let new = make_node(guard)?;
        guard.fence();
        loop {
            let (old, cell, status) = self.node(guard)?;
            let mut swap = self.pmwcas.allocate();
            swap.add_word(guard, cell, status, status | 1)
                .map_err(text)?;
            let lead = self.cell(guard, 1)?;
            swap.add_recycling(guard, lead, old, new, Recycling::FreeOne)
                .map_err(text)?;
            // The default callback would free the new node after a failure.
            let done = swap.execute_with(guard, |recycled| match recycled {
                engines::pmwcas::Recycled::Replaced(node) => guard.retire(node),
                engines::pmwcas::Recycled::Unused(_) => {}
            });
            if done.map_err(text)? {
                return Ok(true);
            }
        }
    }

    fn fill(&self, guard: &Guard<'_, Sim>) -> Result<bool, Complaint> {
        for _ in 0..2 {
            let record = guard.allocate_lines(NODE_BYTES).map_err(text)?;
            let words = guard.words(record, NODE_BYTES / 8).map_err(text)?;
            words.iter().for_each(|word| word.store(guard, FOREIGN));
            self.filled.borrow_mut().push(record);
        }
        Ok(true)
    }
}

fn make_node(guard: &Guard<'_, Sim>) -> Result<u64, Complaint> {
    let node = guard.allocate_lines(NODE_BYTES).map_err(text)?;
    let words = guard.words(node, NODE_BYTES / 8).map_err(text)?;
    words.iter().for_each(|word| word.store(guard, 0));
    guard.flush_words(words);
    Ok(node)
}

impl Subject for Nodes {
    type Operation = Operation;
    type Outcome = bool;
    /// The counter.
    type State = u64;
    type Instance = Opened;

    fn initial(&self) -> u64 {
        0
    }

    fn step(&self, state: &mut u64, operation: &Operation) -> bool {
        let (holds, new) = match operation {
            Change => (*state == 0, 1),
            Count => (*state == 0, 2),
            Replace | Fill => (true, *state),
        };
        if holds {
            *state = new;
        }
        holds
    }

    fn open(&self, sim: &Sim) -> Result<Opened, Complaint> {
        const SLOTS: usize = 3;
        let pool = Pool::open(sim.clone(), pool_options()).map_err(text)?;
        let guard = pool.pin();
        let place = guard.allocate_lines(Pmwcas::bytes(SLOTS)).map_err(text)?;
        Pmwcas::format(&guard, place, SLOTS).map_err(text)?;
        let words = guard.allocate_lines(4 * NODE_BYTES).map_err(text)?;
        let node = make_node(&guard)?;
        assert!(words < node, "a helper comes to the node last");
        guard.words(words, 2).map_err(text)?[0].store(&guard, 0);
        guard.words(words, 2).map_err(text)?[1].store(&guard, node);
        guard.flush_words(guard.words(words, 2).map_err(text)?);
        guard.fence();
        pool.create_tree("nodes", 9, 9, &[0; ROOT_WORDS])
            .map_err(text)?;
        let pmwcas = Pmwcas::open(&guard, place, SLOTS).map_err(text)?;
        drop(guard);
        Ok(Opened {
            pool,
            pmwcas,
            words,
            filled: RefCell::default(),
        })
    }

    fn apply(&self, opened: &mut Opened, operation: &Operation) -> Result<bool, Complaint> {
        self.call(opened, operation)
    }

    fn observe(&self, opened: &mut Opened) -> Result<u64, Complaint> {
        let guard = opened.pool.pin();
        for record in opened.filled.borrow().iter() {
            let words = guard.words(*record, NODE_BYTES / 8).map_err(text)?;
            if words.iter().any(|word| word.load(&guard) != FOREIGN) {
                return Err(format!("a thread wrote to the record at {record:#x}"));
            }
        }
        opened.read(&guard, opened.cell(&guard, 0)?)
    }

    fn follow_up(&self, _state: &u64, _recent: &[Operation]) -> Vec<Operation> {
        Vec::new()
    }
}

impl Concurrent for Nodes {
    fn call(&self, opened: &Opened, operation: &Operation) -> Result<bool, Complaint> {
        let guard = opened.pool.pin();
        match operation {
            Change => opened.change(&guard),
            Replace => opened.replace(&guard),
            Fill => opened.fill(&guard),
            Count => {
                let mut swap = opened.pmwcas.allocate();
                swap.add_word(&guard, opened.cell(&guard, 0)?, 0, 2)
                    .map_err(text)?;
                swap.execute(&guard).map_err(text)
            }
        }
    }
}

/// One thread begins a change of a node, which another thread then replaces and retires. A third
/// thread, which began after that, finds the change and helps. When it reaches the node, the first
/// thread may have given up, and the node's memory may be in use for something else.
#[test]
fn a_helper_writes_to_no_memory_that_was_free_before() {
    let command = "cargo test --release -p everleaf-sim --test models pmwcas_memory::".to_owned();
    let options = ExplorationOptions {
        rules: Rules::Lines,
        images: Images::Some { random: 0 },
        second_crash: SecondCrash::Never,
        command,
        ..ExplorationOptions::default()
    };
    let mut explorer = Explorer::new(Nodes, options).unwrap();
    let program = Program {
        // The second thread runs without preemption.
        uninterrupted: vec![1],
        ..Program::of(vec![vec![Change, Fill], vec![Replace], vec![Count]])
    };
    let search = Search::Exhaustive { preemptions_max: 3 };
    let scheduling = Scheduling {
        search,
        crashes: false,
        ..Scheduling::default()
    };
    explorer
        .explore_threads(&program, &scheduling)
        .unwrap_or_else(|failure| panic!("{failure}"));
    let stats = explorer.stats();
    println!("{} schedules; {stats}", stats.schedules);
    assert!(stats.schedules > 100 && stats.cut_short == 0);
}
