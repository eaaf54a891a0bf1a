//! Lines that reach the medium one by one: memory, and persistent caches.

use std::collections::BTreeMap;
use std::panic::Location;

use medium::LineValue;
use medium::sim::{Event, OpenLine, Sim, Site};

use super::{Behind, Change, Memory, Rules};

#[derive(Clone, Copy, Debug)]
struct Atom {
    /// Position in the order of all events.
    sequence: u64,
    change: Change,
    site: &'static Location<'static>,
}

impl Atom {
    fn apply(&self, content: &mut LineValue) {
        self.change.apply(content);
    }
}

/// A line that may not have the content that was last stored to it.
#[derive(Clone, Debug)]
struct History {
    /// Its possible contents before the atoms: distinct, oldest first.
    bases: Vec<LineValue>,
    /// Later stores that are not certainly durable.
    atoms: Vec<Atom>,
    /// The contents that a crash may leave: distinct, oldest first. Empty if not computed.
    candidates: Vec<LineValue>,
    /// Which of them was stored last.
    newest: u16,
}

/// The index of the value, which is added if it is missing.
fn push_distinct(list: &mut Vec<LineValue>, value: LineValue) -> usize {
    list.iter()
        .position(|known| *known == value)
        .unwrap_or_else(|| {
            list.push(value);
            list.len() - 1
        })
}

impl History {
    fn new(bases: Vec<LineValue>) -> Self {
        Self {
            bases,
            atoms: Vec::new(),
            candidates: Vec::new(),
            newest: 0,
        }
    }

    fn is_settled(&self) -> bool {
        self.bases.len() == 1 && self.atoms.is_empty()
    }

    /// Every base with the first `count` atoms.
    fn prefix(&self, count: usize) -> impl Iterator<Item = LineValue> {
        self.bases.iter().map(move |base| {
            let mut content = *base;
            self.atoms[..count]
                .iter()
                .for_each(|atom| atom.apply(&mut content));
            content
        })
    }

    /// Makes the atoms before `sequence` durable.
    fn raise(&mut self, sequence: u64) -> bool {
        let count = self.atoms.partition_point(|atom| atom.sequence < sequence);
        if count == 0 {
            return false;
        }
        let mut bases = Vec::new();
        for content in self.prefix(count) {
            push_distinct(&mut bases, content);
        }
        self.bases = bases;
        self.atoms.drain(..count);
        self.candidates.clear();
        true
    }

    fn candidates(&mut self) -> &[LineValue] {
        if self.candidates.is_empty() {
            let mut candidates = self.bases.clone();
            let mut contents = self.bases.clone();
            let mut newest = candidates.len() - 1;
            for atom in &self.atoms {
                for content in &mut contents {
                    atom.apply(content);
                    newest = push_distinct(&mut candidates, *content);
                }
            }
            self.candidates = candidates;
            self.newest = newest as u16;
        }
        &self.candidates
    }
}

/// A history for each line. See [`Model`](super::Model).
#[derive(Clone, Debug)]
pub(super) struct Lines {
    rules: Rules,
    lines: BTreeMap<u32, History>,
    /// For each guard: lines and how far they were flushed.
    flushed: BTreeMap<u64, Vec<(u32, u64)>>,
    sequence: u64,
}

impl Lines {
    pub(super) fn new(rules: Rules, open: &[OpenLine]) -> Self {
        let bases = |open: &OpenLine| {
            open.newest_last()
                .map(|base| open.candidates[base])
                .collect()
        };
        let history = |open: &OpenLine| (open.line, History::new(bases(open)));
        let lines = open.iter().map(history).collect();
        Self {
            rules,
            lines,
            flushed: BTreeMap::new(),
            sequence: 0,
        }
    }

    pub(super) fn raises(&self, event: &Event) -> bool {
        let raises_line = |(line, sequence): &(u32, u64)| {
            let history = self.lines.get(line);
            history
                .and_then(|history| history.atoms.first())
                .is_some_and(|atom| atom.sequence < *sequence)
        };
        match event {
            Event::Fence { notes, .. } => self
                .flushed
                .get(notes)
                .is_some_and(|flushed| flushed.iter().any(raises_line)),
            Event::Store { .. } | Event::StoreLine { .. } => self.rules == Rules::PersistentCaches,
            _ => false,
        }
    }

    /// Applies an event other than a store.
    pub(super) fn apply(&mut self, memory: &mut Memory, sim: &Sim, event: &Event) {
        self.sequence += 1;
        match *event {
            Event::Flush {
                notes, line, count, ..
            } => {
                let sequence = self.sequence;
                let flushed = self.flushed.entry(notes).or_default();
                flushed.extend((line..line + count).map(|line| (line, sequence)));
            }
            Event::Fence { notes, .. } => {
                for (line, sequence) in self.flushed.remove(&notes).unwrap_or_default() {
                    if self
                        .lines
                        .get_mut(&line)
                        .is_some_and(|history| history.raise(sequence))
                    {
                        self.settle_if_single(memory, sim, line);
                    }
                }
            }
            Event::Narrow { line, word, value } => {
                let Some(history) = self.lines.get_mut(&line) else {
                    return;
                };
                history
                    .bases
                    .retain(|base| base.0[usize::from(word)] == value);
                history.candidates.clear();
                assert!(
                    !history.bases.is_empty(),
                    "a decision for a value that no content has"
                );
                self.settle_if_single(memory, sim, line);
            }
            _ => {}
        }
    }

    pub(super) fn store(
        &mut self,
        memory: &mut Memory,
        sim: &Sim,
        line: u32,
        change: Change,
        site: &'static Location<'static>,
    ) {
        self.sequence += 1;
        let atom = Atom {
            sequence: self.sequence,
            change,
            site,
        };
        if self.rules == Rules::PersistentCaches {
            let mut content = Memory::content(sim, line);
            if let Some(history) = self.lines.get_mut(&line) {
                history.atoms.push(atom);
                history.raise(u64::MAX);
                return self.settle_if_single(memory, sim, line);
            }
            atom.apply(&mut content);
            return memory.settle(sim, line, &content);
        }
        let new = || History::new(vec![Memory::content(sim, line)]);
        let history = self.lines.entry(line).or_insert_with(new);
        history.atoms.push(atom);
        history.candidates.clear();
    }

    /// The line has one content, which the caller knows.
    pub(super) fn forget(&mut self, line: u32) {
        self.lines.remove(&line);
    }

    fn settle_if_single(&mut self, memory: &mut Memory, sim: &Sim, line: u32) {
        let settled = self.lines.get(&line).filter(|history| history.is_settled());
        if let Some(content) = settled.map(|history| history.bases[0]) {
            self.lines.remove(&line);
            memory.settle(sim, line, &content);
        }
    }

    pub(super) fn open_lines(&mut self, memory: &mut Memory, sim: &Sim) -> Vec<OpenLine> {
        let mut open = Vec::new();
        for (&line, history) in &mut self.lines {
            match history.candidates() {
                // Stores that changed nothing leave nothing open; their history stays, for its
                // order.
                [content] => memory.settle(sim, line, content),
                candidates => {
                    let candidates = candidates.to_vec();
                    open.push(OpenLine {
                        line,
                        candidates,
                        newest: history.newest,
                        worlds: Vec::new(),
                    });
                }
            }
        }
        open
    }

    /// The stores that a crash lost of the line; `None` unless a single content is left.
    pub(super) fn behind(&self, line: u32, contents: &[LineValue]) -> Option<Behind> {
        let history = self.lines.get(&line)?;
        let stores = history.atoms.len();
        let is_left = |count: &usize| {
            history
                .prefix(*count)
                .any(|content| contents.contains(&content))
        };
        let arrived = (0..=stores).rev().find(is_left)?;
        Some(Behind {
            offset: u64::from(line) * 64,
            arrived,
            stores,
            missing: Site::from(history.atoms.get(arrived)?.site),
        })
    }
}
