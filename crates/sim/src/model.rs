//! The memory model: which contents a crash may leave.
//!
//! For each line the model keeps its *history*: the contents that it may have had before, and the atoms stored since.
//! An atom is a word, or a line stored whole. The rules, each with a litmus test in `tests/litmus.rs`:
//!
//! 1. A line's content after a crash is any prefix of its history: stores to one line arrive in program order.
//! 2. Lines are independent: each has a prefix of its own.
//! 3. A flush makes nothing durable. It notes, for the guard through which it was made, how long the history is.
//! 4. A fence through that guard makes what was noted durable: the prefix is no shorter from then on. *Only* a fence
//!    does; a compare-exchange does not, nor does a fence of another guard.
//! 5. What is stored after the flush is not covered by it.
//! 6. A line that is stored whole is there wholly or not at all.
//! 7. Growth is durable when it returns.
//!
//! With persistent caches ([`Rules::PersistentCaches`], eADR) every store is durable at once, in the order of all
//! stores.
//!
//! Not covered: weak orderings between threads (events have the order in which they took effect), caches of real
//! processors.

use std::collections::BTreeMap;
use std::panic::Location;

use medium::sim::{Event, OpenLine, Sim, Site, Trace};
use medium::{LineValue, Medium};

/// Which model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rules {
    /// Lines reach the medium at any time, in any order; a flush and a fence set a lower bound. The weakest model:
    /// what survives it survives on a file and on other processors as well.
    #[default]
    Lines,
    /// Caches are persistent (eADR): a store is durable at once.
    PersistentCaches,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Word { within: u8, value: u64 },
    Line(LineValue),
}

#[derive(Clone, Copy, Debug)]
struct Atom {
    /// Position in the order of all events.
    sequence: u64,
    change: Change,
    site: &'static Location<'static>,
}

impl Atom {
    fn apply(&self, content: &mut LineValue) {
        match self.change {
            Change::Word { within, value } => content.0[usize::from(within)] = value,
            Change::Line(value) => *content = value,
        }
    }
}

/// A line that may not be what was last stored to it.
#[derive(Clone, Debug)]
struct History {
    /// What it may have been before the atoms: distinct, oldest first.
    bases: Vec<LineValue>,
    /// What was stored since and is not durable for sure.
    atoms: Vec<Atom>,
    /// What a crash may leave: distinct, oldest first. Empty if not computed.
    candidates: Vec<LineValue>,
}

fn push_distinct(list: &mut Vec<LineValue>, value: LineValue) {
    if !list.contains(&value) {
        list.push(value);
    }
}

impl History {
    fn new(bases: Vec<LineValue>) -> Self {
        Self { bases, atoms: Vec::new(), candidates: Vec::new() }
    }

    fn is_settled(&self) -> bool {
        self.bases.len() == 1 && self.atoms.is_empty()
    }

    /// Every base with the first `count` atoms.
    fn prefix(&self, count: usize) -> impl Iterator<Item = LineValue> {
        self.bases.iter().map(move |base| {
            let mut content = *base;
            self.atoms[..count].iter().for_each(|atom| atom.apply(&mut content));
            content
        })
    }

    /// The atoms before `sequence` are durable.
    fn raise(&mut self, sequence: u64) -> bool {
        let count = self.atoms.partition_point(|atom| atom.sequence < sequence);
        if count == 0 {
            return false;
        }
        let mut bases = Vec::new();
        self.prefix(count).for_each(|content| push_distinct(&mut bases, content));
        self.bases = bases;
        self.atoms.drain(..count);
        self.candidates.clear();
        true
    }

    fn candidates(&mut self) -> &[LineValue] {
        if self.candidates.is_empty() {
            let mut candidates = self.bases.clone();
            let mut contents = self.bases.clone();
            for atom in &self.atoms {
                for content in &mut contents {
                    atom.apply(content);
                    push_distinct(&mut candidates, *content);
                }
            }
            self.candidates = candidates;
        }
        &self.candidates
    }
}

/// A line that a crash left behind what was stored to it.
#[derive(Clone, Debug)]
pub struct Behind {
    /// The line's offset, in bytes.
    pub offset: u64,
    /// How many of its stores arrived, of those that were not durable for sure.
    pub arrived: usize,
    /// How many there were.
    pub stores: usize,
    /// The first store that is missing.
    pub missing: Site,
}

/// The state of the memory at one moment of a trace.
///
/// The model walks along a [`Trace`] ([`Model::apply`]). What is settled (has one possible content) it writes into the
/// `Sim`, so that its memory together with [`Model::open_lines`] is all that a crash may leave.
#[derive(Clone, Debug)]
pub struct Model {
    rules: Rules,
    lines: BTreeMap<u32, History>,
    /// For each guard: lines and how far they were flushed.
    flushed: BTreeMap<u64, Vec<(u32, u64)>>,
    sequence: u64,
    digest: u64,
}

fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word ^ 0xf39c_c060_5ced_c835) * 0x9e37_79b9_7f4a_7c15;
    (product as u64) ^ (product >> 64) as u64
}

fn hash_line(line: u32, content: &LineValue) -> u64 {
    content.0.iter().fold(u64::from(line) | 1 << 40, |state, word| mix(state.rotate_left(5), *word))
}

impl Model {
    /// The model of memory in which everything is settled, but for `open` lines. `digest` stands for the memory's
    /// content.
    pub fn new(rules: Rules, open: &[OpenLine], digest: u64) -> Self {
        let history = |open: &OpenLine| (open.line, History::new(open.candidates.clone()));
        let lines = open.iter().map(history).collect();
        Self { rules, lines, flushed: BTreeMap::new(), sequence: 0, digest }
    }

    /// A number that two memories share only if they have the same content (but for chance), both counted from the
    /// same start. Excludes lines that are open.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    fn settle(&mut self, sim: &Sim, line: u32, content: &LineValue) {
        let old = sim.peek(line).expect("a recorded line");
        if old != *content {
            self.digest ^= hash_line(line, &old) ^ hash_line(line, content);
            sim.poke(line, content);
        }
    }

    /// Whether the event makes something durable, so that a crash just before it can leave what a crash after it cannot.
    pub fn raises(&self, event: &Event) -> bool {
        let raises_line = |(line, sequence): &(u32, u64)| {
            let history = self.lines.get(line);
            history.and_then(|history| history.atoms.first()).is_some_and(|atom| atom.sequence < *sequence)
        };
        match event {
            Event::Fence { notes, .. } => {
                self.flushed.get(notes).is_some_and(|flushed| flushed.iter().any(raises_line))
            }
            Event::Store { .. } | Event::StoreLine { .. } => self.rules == Rules::PersistentCaches,
            Event::Grow { .. } => true,
            Event::Flush { .. } | Event::Narrow { .. } | Event::Mark(_) => false,
        }
    }

    /// Goes one event on. Events come from `trace`.
    pub fn apply(&mut self, sim: &Sim, trace: &Trace, event: &Event) {
        self.sequence += 1;
        match *event {
            Event::Store { word, value, site, .. } => {
                self.store(sim, word / 8, Change::Word { within: (word % 8) as u8, value }, site);
            }
            Event::StoreLine { line, value, site, .. } => {
                self.store(sim, line, Change::Line(trace.line_values[value as usize]), site);
            }
            Event::Flush { notes, line, count, .. } => {
                let sequence = self.sequence;
                let flushed = self.flushed.entry(notes).or_default();
                flushed.extend((line..line + count).map(|line| (line, sequence)));
            }
            Event::Fence { notes, .. } => {
                for (line, sequence) in self.flushed.remove(&notes).unwrap_or_default() {
                    if self.lines.get_mut(&line).is_some_and(|history| history.raise(sequence)) {
                        self.settle_if_single(sim, line);
                    }
                }
            }
            Event::Grow { length } => sim.set_length(length).expect("it grew when it was recorded"),
            Event::Narrow { line, word, value } => {
                let Some(history) = self.lines.get_mut(&line) else { return };
                history.bases.retain(|base| base.0[usize::from(word)] == value);
                history.candidates.clear();
                assert!(!history.bases.is_empty(), "a decision for what no content has");
                self.settle_if_single(sim, line);
            }
            Event::Mark(_) => {}
        }
    }

    fn store(&mut self, sim: &Sim, line: u32, change: Change, site: &'static Location<'static>) {
        let atom = Atom { sequence: self.sequence, change, site };
        if self.rules == Rules::PersistentCaches {
            let mut content = sim.peek(line).expect("a recorded line");
            if let Some(history) = self.lines.get_mut(&line) {
                history.atoms.push(atom);
                history.raise(u64::MAX);
                return self.settle_if_single(sim, line);
            }
            atom.apply(&mut content);
            return self.settle(sim, line, &content);
        }
        let history = self.lines.entry(line).or_insert_with(|| {
            History::new(vec![sim.peek(line).expect("a recorded line lies in the memory")])
        });
        history.atoms.push(atom);
        history.candidates.clear();
    }

    fn settle_if_single(&mut self, sim: &Sim, line: u32) {
        let settled = self.lines.get(&line).filter(|history| history.is_settled());
        if let Some(content) = settled.map(|history| history.bases[0]) {
            self.lines.remove(&line);
            self.settle(sim, line, &content);
        }
    }

    /// The lines whose content a crash now leaves open, and a number for all that it may leave: as [`Model::digest`],
    /// open lines included.
    pub fn open_lines(&mut self, sim: &Sim) -> (Vec<OpenLine>, u64) {
        let mut open = Vec::new();
        let mut digest = sim.extent().length();
        let mut single = Vec::new();
        for (&line, history) in &mut self.lines {
            let candidates = history.candidates();
            if let [content] = candidates {
                single.push((line, *content));
                continue;
            }
            digest ^= hash_line(line, &sim.peek(line).expect("a recorded line"));
            digest ^= candidates.iter().fold(3, |state, content| mix(state, hash_line(line, content)));
            open.push(OpenLine { line, candidates: candidates.to_vec() });
        }
        // Stores that changed nothing leave nothing open; their history stays, for its order.
        for (line, content) in single {
            self.settle(sim, line, &content);
        }
        (open, digest ^ self.digest)
    }

    /// Which of the open lines a crash left behind, if it left of each one of the contents given.
    pub fn behind(&self, left: &[(u32, Vec<LineValue>)]) -> Vec<Behind> {
        let behind = |(line, contents): &(u32, Vec<LineValue>)| {
            let history = self.lines.get(line)?;
            let stores = history.atoms.len();
            let is_left = |count: &usize| history.prefix(*count).any(|content| contents.contains(&content));
            let arrived = (0..=stores).rev().find(is_left)?;
            let missing = Site::from(history.atoms.get(arrived)?.site);
            Some(Behind { offset: u64::from(*line) * 64, arrived, stores, missing })
        };
        left.iter().filter_map(behind).collect()
    }
}

/// Every combination of contents of open lines: the images that a crash may leave, in full.
pub fn images(open: &[OpenLine]) -> impl Iterator<Item = Vec<(u32, LineValue)>> {
    let mut next = Some(vec![0; open.len()]);
    std::iter::from_fn(move || {
        let mut choices = next.take()?;
        let pick = |(open, choice): (&OpenLine, &usize)| (open.line, open.candidates[*choice]);
        let image = open.iter().zip(&choices).map(pick).collect();
        for (choice, open) in choices.iter_mut().zip(open) {
            *choice += 1;
            if *choice < open.candidates.len() {
                next = Some(choices);
                break;
            }
            *choice = 0;
        }
        Some(image)
    })
}
