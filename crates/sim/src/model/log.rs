//! A log of groups of lines, as a file has it.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

use medium::LineValue;
use medium::sim::{Event, OpenLine, Sim, Site, Worlds};

use super::{Behind, Change, Memory};

/// The content of a line when a group was appended.
#[derive(Clone, Debug)]
struct LineVersion {
    /// The LSN of the group.
    lsn: u64,
    /// One content for each base.
    contents: Vec<LineValue>,
    site: &'static Location<'static>,
}

/// A line that may not have the content that was last stored to it.
#[derive(Clone, Debug)]
struct History {
    /// The durable content; several only if an earlier crash left the line open, each then with the
    /// worlds of that crash.
    bases: Vec<(LineValue, Worlds)>,
    /// The contents in groups that are not certainly durable, oldest first.
    versions: Vec<LineVersion>,
    /// The content in memory, for each base.
    current: Vec<LineValue>,
}

/// Keeps the items that are marked.
fn filter<T>(list: &mut Vec<T>, kept: &[bool]) {
    let mut kept = kept.iter();
    list.retain(|_| *kept.next().expect("one for each item"));
}

impl History {
    fn is_settled(&self) -> bool {
        self.bases.len() == 1 && self.versions.is_empty() && self.current[0] == self.bases[0].0
    }

    /// The content in the newest group, or the durable one.
    fn last(&self, base: usize) -> &LineValue {
        self.versions
            .last()
            .map_or(&self.bases[base].0, |version| &version.contents[base])
    }

    /// Drops the bases for which `keep` does not hold.
    fn retain(&mut self, keep: impl Fn(&LineValue, &Worlds) -> bool) {
        let kept: Vec<bool> = self
            .bases
            .iter()
            .map(|(content, worlds)| keep(content, worlds))
            .collect();
        filter(&mut self.bases, &kept);
        filter(&mut self.current, &kept);
        self.versions
            .iter_mut()
            .for_each(|version| filter(&mut version.contents, &kept));
        assert!(
            !self.bases.is_empty(),
            "a decision for a value that no content has"
        );
    }

    /// Joins bases that no longer differ.
    fn merge(&mut self) {
        let mut index = self.bases.len();
        while index > 1 {
            index -= 1;
            let same = |other: &usize| {
                self.bases[index].0 == self.bases[*other].0
                    && self.current[index] == self.current[*other]
                    && self
                        .versions
                        .iter()
                        .all(|version| version.contents[index] == version.contents[*other])
            };
            if let Some(other) = (0..index).find(same) {
                let (_, worlds) = self.bases.remove(index);
                self.bases[other].1.add(&worlds);
                self.current.remove(index);
                self.versions.iter_mut().for_each(|version| {
                    version.contents.remove(index);
                });
            }
        }
    }

    /// The line's possible contents, and the worlds of each: world `earlier * cuts + cut` is world
    /// `earlier` of an earlier crash, with the first `cut` of the groups `lsns` and perhaps part of
    /// the next one.
    fn candidates(&self, earlier: &Worlds, lsns: &[u64]) -> OpenLine {
        let cuts = lsns.len() + 1;
        let mut open = OpenLine {
            line: 0,
            candidates: Vec::new(),
            newest: 0,
            worlds: Vec::new(),
        };
        // The number of groups after which each version has certainly arrived.
        let whole = |version: &LineVersion| lsns.partition_point(|lsn| *lsn < version.lsn) + 1;
        for number in 0..=self.versions.len() {
            let first = number
                .checked_sub(1)
                .map_or(0, |last| whole(&self.versions[last]) - 1);
            let end = self.versions.get(number).map_or(cuts, whole);
            for (base, (content, worlds)) in self.bases.iter().enumerate() {
                let content = number
                    .checked_sub(1)
                    .map_or(content, |last| &self.versions[last].contents[base]);
                let mut mine = Worlds::default();
                for world in worlds.iter().filter(|world| earlier.contains(*world)) {
                    mine.add(&Worlds::range(world * cuts + first, world * cuts + end));
                }
                let known = open
                    .candidates
                    .iter()
                    .position(|known| known == content)
                    .unwrap_or_else(|| {
                        open.candidates.push(*content);
                        open.worlds.push(Worlds::default());
                        open.candidates.len() - 1
                    });
                open.worlds[known].add(&mine);
                open.newest = known as u16;
            }
        }
        open
    }
}

/// One log for all lines. See [`Model`](super::Model).
#[derive(Clone, Debug)]
pub(super) struct LogModel {
    lines: BTreeMap<u32, History>,
    /// The worlds of an earlier crash that are still possible.
    earlier: Worlds,
    /// For each guard: lines that it flushed.
    flushed: BTreeMap<u64, BTreeSet<u32>>,
    /// The groups that are not durable for sure, by their LSNs, oldest first.
    groups: Vec<u64>,
}

impl LogModel {
    pub(super) fn new(open: &[OpenLine]) -> Self {
        let mut earlier = Worlds::range(0, usize::from(open.is_empty()));
        let history = |open: &OpenLine| {
            let base = |base: usize| (open.candidates[base], open.worlds[base].clone());
            let bases: Vec<_> = open.newest_last().map(base).collect();
            let current = bases.iter().map(|(content, _)| *content).collect();
            (
                open.line,
                History {
                    bases,
                    versions: Vec::new(),
                    current,
                },
            )
        };
        open.iter()
            .flat_map(|open| &open.worlds)
            .for_each(|worlds| earlier.add(worlds));
        let lines = open.iter().map(history).collect();
        Self {
            lines,
            earlier,
            flushed: BTreeMap::new(),
            groups: Vec::new(),
        }
    }

    pub(super) fn raises(&self, event: &Event) -> bool {
        matches!(event, Event::Wait { lsn, .. } if self.groups.first().is_some_and(|first| first <= lsn))
    }

    pub(super) fn store(&mut self, sim: &Sim, line: u32, change: Change) {
        let earlier = &self.earlier;
        let history = self.lines.entry(line).or_insert_with(|| {
            let content = Memory::content(sim, line);
            History {
                bases: vec![(content, earlier.clone())],
                versions: Vec::new(),
                current: vec![content],
            }
        });
        history
            .current
            .iter_mut()
            .for_each(|content| change.apply(content));
    }

    /// Applies an event other than a store.
    pub(super) fn apply(&mut self, memory: &mut Memory, sim: &Sim, event: &Event) {
        match *event {
            Event::Flush {
                notes, line, count, ..
            } => {
                self.flushed
                    .entry(notes)
                    .or_default()
                    .extend(line..line + count);
            }
            Event::Fence {
                notes, lsn, site, ..
            } => self.append(notes, lsn, site),
            Event::Wait { lsn, .. } => self.make_durable(memory, sim, lsn),
            Event::Narrow { line, word, value } => {
                let Some(history) = self.lines.get_mut(&line) else {
                    return;
                };
                history.retain(|content, _| content.0[usize::from(word)] == value);
                let mut left = Worlds::default();
                history
                    .bases
                    .iter()
                    .for_each(|(_, worlds)| left.add(worlds));
                self.earlier.keep(&left);
                let earlier = &self.earlier;
                self.lines
                    .values_mut()
                    .for_each(|history| history.retain(|_, worlds| worlds.meets(earlier)));
                self.settle(memory, sim);
            }
            _ => {}
        }
    }

    fn append(&mut self, notes: u64, lsn: u64, site: &'static Location<'static>) {
        let mut appended = false;
        for line in self.flushed.remove(&notes).unwrap_or_default() {
            let Some(history) = self.lines.get_mut(&line) else {
                continue;
            };
            if (0..history.bases.len()).any(|base| history.last(base) != &history.current[base]) {
                appended = true;
                history.versions.push(LineVersion {
                    lsn,
                    contents: history.current.clone(),
                    site,
                });
            }
        }
        if appended {
            self.groups.push(lsn);
        }
    }

    fn make_durable(&mut self, memory: &mut Memory, sim: &Sim, lsn: u64) {
        self.groups.retain(|group| *group > lsn);
        for history in self.lines.values_mut() {
            let count = history
                .versions
                .partition_point(|version| version.lsn <= lsn);
            if let Some(last) = history.versions.drain(..count).next_back() {
                history
                    .bases
                    .iter_mut()
                    .zip(last.contents)
                    .for_each(|(base, content)| base.0 = content);
            }
        }
        self.settle(memory, sim);
    }

    /// The line has one content, which the caller knows.
    pub(super) fn forget(&mut self, line: u32) {
        self.lines.remove(&line);
    }

    fn settle(&mut self, memory: &mut Memory, sim: &Sim) {
        self.lines.retain(|&line, history| {
            history.merge();
            if let [(content, _)] = &history.bases[..] {
                memory.settle(sim, line, content);
            }
            !history.is_settled()
        });
    }

    pub(super) fn open_lines(&mut self, memory: &mut Memory, sim: &Sim) -> Vec<OpenLine> {
        let mut lines = Vec::new();
        for (&line, history) in &self.lines {
            let open = history.candidates(&self.earlier, &self.groups);
            match &open.candidates[..] {
                [content] => memory.settle(sim, line, content),
                _ => lines.push(OpenLine { line, ..open }),
            }
        }
        lines
    }

    /// The groups that a crash lost of the line; `None` unless a single content is left.
    pub(super) fn behind(&self, line: u32, contents: &[LineValue]) -> Option<Behind> {
        let history = self.lines.get(&line)?;
        let is_left = |number: &usize| match number.checked_sub(1) {
            None => history
                .bases
                .iter()
                .any(|(content, _)| contents.contains(content)),
            Some(last) => history.versions[last]
                .contents
                .iter()
                .any(|content| contents.contains(content)),
        };
        let arrived = (0..=history.versions.len()).rev().find(is_left)?;
        Some(Behind {
            offset: u64::from(line) * 64,
            arrived,
            stores: history.versions.len(),
            missing: Site::from(history.versions.get(arrived)?.site),
        })
    }
}
