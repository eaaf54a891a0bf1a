//! Lines whose content is still open: decided word by word, when they are loaded.

use crate::LineValue;

/// A set of worlds. If the contents of several lines depend on each other, each combination that a
/// crash may leave is a *world*; for example, each place at which a log was cut.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Worlds(Vec<u64>);

impl Worlds {
    /// The worlds from `first` up to, but not with, `end`.
    pub fn range(first: usize, end: usize) -> Self {
        let mut worlds = Self::default();
        (first..end).for_each(|world| worlds.insert(world));
        worlds
    }

    /// Adds one.
    pub fn insert(&mut self, world: usize) {
        if self.0.len() <= world / 64 {
            self.0.resize(world / 64 + 1, 0);
        }
        self.0[world / 64] |= 1 << (world % 64);
    }

    /// Whether it is there.
    pub fn contains(&self, world: usize) -> bool {
        self.0
            .get(world / 64)
            .is_some_and(|bits| bits & 1 << (world % 64) != 0)
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        (0..64 * self.0.len()).filter(|world| self.contains(*world))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }

    /// Whether they have one in common.
    pub fn meets(&self, other: &Self) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .any(|(mine, other)| mine & other != 0)
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        other.iter().for_each(|world| self.insert(world));
    }

    /// Keeps what is in `other` as well.
    pub fn keep(&mut self, other: &Self) {
        self.0.truncate(other.0.len());
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(mine, other)| *mine &= other);
    }
}

/// A line that a crash left with one of several contents.
#[derive(Clone, Debug)]
pub struct OpenLine {
    /// Which line, counted from the medium's start.
    pub line: u32,
    /// The contents that it may have: at least one, each once; earlier ones first.
    pub candidates: Vec<LineValue>,
    /// The index of the content that it held last. It is not always the last index, because a line
    /// may get an earlier content again.
    pub newest: u16,
    /// For each candidate, the worlds in which the line may hold it. Each world allows at least one
    /// candidate of each line. Empty if lines are independent of each other.
    pub worlds: Vec<Worlds>,
}

impl OpenLine {
    /// The candidates, the newest one last.
    pub fn newest_last(&self) -> impl Iterator<Item = usize> + '_ {
        let newest = usize::from(self.newest);
        (0..self.candidates.len())
            .filter(move |candidate| *candidate != newest)
            .chain([newest])
    }
}

/// A word of an open line is about to be loaded, and the candidates that are still possible
/// disagree on its value.
#[derive(Debug)]
pub struct Decision<'a> {
    /// Which line.
    pub line: u32,
    /// Which of its words, 0 to 7.
    pub word: usize,
    /// The possible values of the word: at least two, distinct, in the order of the oldest
    /// candidate that has them.
    pub values: &'a [u64],
    /// The index of the value of the newest candidate that is still possible. The oldest one has
    /// the value at index 0.
    pub newest: usize,
}

/// Decides what open lines hold.
pub trait Chooser: Send {
    /// The index of one of `decision.values`. Called with the `Sim` locked: it must not use the
    /// medium.
    fn choose(&mut self, decision: &Decision<'_>) -> usize;
}

/// An open line, and the decisions on it so far.
#[derive(Debug)]
struct UndecidedLine {
    content: OpenLine,
    /// Candidates that agree with every decision, ascending.
    alive: Vec<u16>,
    /// Bit w: memory holds word w, because it was decided or stored.
    known: u8,
}

impl UndecidedLine {
    fn new(content: OpenLine) -> Self {
        let alive = (0..content.candidates.len() as u16).collect();
        Self {
            content,
            alive,
            known: 0,
        }
    }

    fn reset(&mut self) {
        self.known = 0;
        self.alive.clear();
        self.alive.extend(0..self.content.candidates.len() as u16);
    }

    /// Whether no decision so far, on this line or another, excludes the candidate.
    fn is_possible(&self, candidate: u16, worlds: Option<&Worlds>) -> bool {
        let mine = self.content.worlds.get(usize::from(candidate));
        mine.zip(worlds).is_none_or(|(mine, left)| mine.meets(left))
    }

    /// The worlds that are consistent with the decisions on this line.
    fn worlds(&self) -> Worlds {
        let mut worlds = Worlds::default();
        let sets = self
            .alive
            .iter()
            .filter_map(|candidate| self.content.worlds.get(usize::from(*candidate)));
        sets.for_each(|set| worlds.add(set));
        worlds
    }

    fn value(&self, candidate: u16, word: usize) -> u64 {
        self.content.candidates[usize::from(candidate)].0[word]
    }
}

/// How a load of an open line is answered.
pub(super) enum LoadAnswer {
    /// Memory holds the word.
    InMemory,
    /// All candidates agree.
    Agreed(u64),
    /// The chooser decided.
    Decided(u64),
}

/// All open lines.
#[derive(Debug, Default)]
pub(super) struct OpenLines {
    /// Ascending by line.
    slots: Vec<UndecidedLine>,
    /// Slots to reset.
    touched: Vec<u32>,
    /// The worlds that no decision has excluded; `None` while no world is excluded.
    worlds: Option<Worlds>,
    values: Vec<u64>,
}

impl OpenLines {
    /// Replaces the open lines, which are sorted by line.
    pub(super) fn install(&mut self, lines: Vec<OpenLine>) {
        assert!(
            lines.is_sorted_by(|one, other| one.line < other.line),
            "open lines are sorted"
        );
        assert!(
            lines
                .iter()
                .all(|line| (1..1 << 16).contains(&line.candidates.len()))
        );
        assert!(
            lines
                .iter()
                .all(|line| usize::from(line.newest) < line.candidates.len())
        );
        self.touched.clear();
        self.worlds = None;
        self.slots = lines.into_iter().map(UndecidedLine::new).collect();
    }

    /// Takes the open lines out, as they were installed.
    pub(super) fn uninstall(&mut self) -> Vec<OpenLine> {
        self.touched.clear();
        self.worlds = None;
        self.slots.drain(..).map(|slot| slot.content).collect()
    }

    /// Forgets all decisions.
    pub(super) fn reset(&mut self) {
        self.worlds = None;
        for index in self.touched.drain(..) {
            self.slots[index as usize].reset();
        }
    }

    fn slot(&mut self, line: u32) -> &mut UndecidedLine {
        let index = self.touch(line);
        &mut self.slots[index]
    }

    fn touch(&mut self, line: u32) -> usize {
        let index = self
            .slots
            .binary_search_by_key(&line, |slot| slot.content.line);
        let index = index.expect("the line is marked as open");
        if self.slots[index].known == 0 {
            self.touched.push(index as u32);
        }
        index
    }

    /// Memory now holds words of the line, whatever the candidates say.
    pub(super) fn set_known(&mut self, line: u32, words: u8) {
        self.slot(line).known |= words;
    }

    /// Decides the value that a load finds. After `Agreed` and `Decided` the caller stores the
    /// value into memory.
    pub(super) fn load(
        &mut self,
        line: u32,
        word: usize,
        chooser: Option<&mut (dyn Chooser + 'static)>,
    ) -> LoadAnswer {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        let index = self.touch(line);
        let slot = &mut self.slots[index];
        if slot.known & 1 << word != 0 {
            self.values = values;
            return LoadAnswer::InMemory;
        }
        slot.known |= 1 << word;
        let mut newest = 0;
        let mut is_newest_left = false;
        for &candidate in &slot.alive {
            if !slot.is_possible(candidate, self.worlds.as_ref()) {
                continue;
            }
            let value = slot.value(candidate, word);
            let position = values
                .iter()
                .position(|known| *known == value)
                .unwrap_or_else(|| {
                    values.push(value);
                    values.len() - 1
                });
            if !is_newest_left {
                newest = position;
                is_newest_left = candidate == slot.content.newest;
            }
        }
        let answer = if values.len() == 1 {
            LoadAnswer::Agreed(values[0])
        } else {
            let decision = Decision {
                line,
                word,
                values: &values,
                newest,
            };
            let chosen = chooser.map_or(newest, |chooser| chooser.choose(&decision));
            let value = values[chosen];
            let content = &slot.content;
            slot.alive
                .retain(|candidate| content.candidates[usize::from(*candidate)].0[word] == value);
            if !content.worlds.is_empty() {
                let mut left = slot.worlds();
                self.worlds.iter().for_each(|worlds| left.keep(worlds));
                self.worlds = Some(left);
            }
            LoadAnswer::Decided(value)
        };
        self.values = values;
        answer
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(|slot| slot.content.line)
    }
}
