//! A graph of files, its strongly connected components, and a short circle in one of them.

use std::collections::{BTreeMap, VecDeque};

/// Which file uses which. Files are numbered in the order in which they were added.
pub(super) struct Graph {
    paths: Vec<String>,
    /// For each file, the files that it uses, each with the line of the first use.
    uses: Vec<BTreeMap<usize, usize>>,
}

impl Graph {
    /// A graph of these files, without a use.
    pub(super) fn new(paths: Vec<String>) -> Self {
        let uses = vec![BTreeMap::new(); paths.len()];
        Self { paths, uses }
    }

    /// Notes that a line of `from` uses `to`.
    pub(super) fn add(&mut self, from: usize, to: usize, line: usize) {
        let first = self.uses[from].entry(to).or_insert(line);
        *first = line.min(*first);
    }

    pub(super) fn path(&self, file: usize) -> &str {
        &self.paths[file]
    }

    /// The first line of `from` that uses `to`.
    pub(super) fn line(&self, from: usize, to: usize) -> usize {
        self.uses[from].get(&to).copied().unwrap_or(1)
    }

    /// The sets of more than two files in which every file reaches every other one.
    pub(super) fn components(&self) -> Vec<Vec<usize>> {
        let reached: Vec<Vec<bool>> = (0..self.paths.len())
            .map(|file| self.reached_from(file))
            .collect();
        let mut is_done = vec![false; self.paths.len()];
        let mut components = Vec::new();
        for file in 0..self.paths.len() {
            if is_done[file] {
                continue;
            }
            let component: Vec<usize> = (file..self.paths.len())
                .filter(|other| reached[file][*other] && reached[*other][file])
                .collect();
            for member in &component {
                is_done[*member] = true;
            }
            if component.len() > 2 {
                components.push(component);
            }
        }
        components
    }

    /// For each file, whether a chain of uses leads from `start` to it.
    fn reached_from(&self, start: usize) -> Vec<bool> {
        let mut is_reached = vec![false; self.paths.len()];
        let mut open = vec![start];
        while let Some(file) = open.pop() {
            for next in self.uses[file].keys() {
                if !is_reached[*next] {
                    is_reached[*next] = true;
                    open.push(*next);
                }
            }
        }
        is_reached
    }

    /// A shortest circle of at least three files of a component, back to its first file. If the
    /// component only has pairs of files that use each other, it is the way through two such pairs
    /// and back.
    pub(super) fn short_circle(&self, component: &[usize]) -> Vec<usize> {
        let mut shortest: Option<Vec<usize>> = None;
        for from in component {
            for to in self.uses[*from].keys() {
                let Some(back) = self.way_back(*to, *from, component) else {
                    continue;
                };
                if shortest.as_ref().is_none_or(|it| back.len() + 1 < it.len()) {
                    let mut circle = vec![*from];
                    circle.extend(back);
                    shortest = Some(circle);
                }
            }
        }
        shortest.unwrap_or_else(|| self.two_pairs(component))
    }

    /// The shortest chain of uses from `start` to `end` within a component that has a file between
    /// them.
    fn way_back(&self, start: usize, end: usize, component: &[usize]) -> Option<Vec<usize>> {
        let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(file) = open.pop_front() {
            for next in self.uses[file].keys() {
                let is_direct = file == start && *next == end;
                if is_direct || *next == start || !component.contains(next) {
                    continue;
                }
                if came_from.contains_key(next) {
                    continue;
                }
                came_from.insert(*next, file);
                open.push_back(*next);
            }
        }
        let mut way = vec![end];
        let mut file = end;
        while file != start {
            file = *came_from.get(&file)?;
            way.push(file);
        }
        way.reverse();
        Some(way)
    }

    /// The way from a file to a second one that both it and a third one use and are used by.
    fn two_pairs(&self, component: &[usize]) -> Vec<usize> {
        let are_pair = |one: usize, other: usize| {
            self.uses[one].contains_key(&other) && self.uses[other].contains_key(&one)
        };
        for middle in component {
            let mut partners = component.iter().filter(|other| are_pair(*middle, **other));
            if let Some(first) = partners.next()
                && let Some(last) = partners.next()
            {
                return vec![*first, *middle, *last, *middle, *first];
            }
        }
        unreachable!("three files that reach each other have a circle or two pairs")
    }
}
