//! The memory model: which contents a crash may leave.
//!
//! With [`Rules::Lines`], the model keeps for each line its *history*: the contents that it may
//! have had before, and the atoms stored since. An atom is a word, or a line stored whole. The
//! rules, each with a litmus test in `tests/litmus.rs`:
//!
//! 1. A line's content after a crash is any prefix of its history: stores to one line arrive in
//!    program order.
//! 2. Lines are independent: each has a prefix of its own.
//! 3. A flush makes nothing durable. It notes, for the guard through which it was made, how long
//!    the history is.
//! 4. A fence through that guard makes the noted stores durable: the prefix is no shorter from then
//!    on. *Only* a fence does this; a compare-exchange does not, nor does a fence through another
//!    guard.
//! 5. A flush does not cover later stores.
//! 6. After a crash a line that was stored as a whole has all of that store or nothing of it.
//! 7. Growth is durable when it returns.
//! 8. Released lines are zeros, durably, from then on.
//! 9. If a line is stored as a whole, any other store to it before a fence of the same thread is a
//!    violation.
//!
//! With persistent caches ([`Rules::PersistentCaches`], eADR) every store is durable at once, in
//! the order of all stores.
//!
//! With a log ([`Rules::Log`], an ordinary file) lines are not independent:
//!
//! 1. A fence appends the lines that its guard flushed to the log, as one group, with the content
//!    that they have then.
//! 2. A crash leaves all groups before some place in the log, and any of the lines of the group
//!    after it.
//! 3. A wait makes the groups up to its LSN durable. *Only* a wait does.
//! 4. Stores that are in no group are lost.
//! 5. Released lines are zeros, durably, once the groups before are durable.
//! 6. Growth is durable when it returns. (If growth is in the log, too, a crash may lose it and
//!    everything after it. That is the same as a crash before the growth, which is explored.)
//!
//! Every image of a log is also one of lines, if each fence is followed by a wait: with lines the
//! fence alone makes durable.
//!
//! Not covered: weak orderings between threads (events have the order in which they took effect);
//! streaming stores to one line in every order before their fence (a `Sim` makes them in two
//! orders, from either end); caches of real processors. CLFLUSH, CLFLUSHOPT and CLWB are one flush,
//! the weakest of them.

mod line_stores;
mod lines;
mod log;

use medium::sim::{Event, OpenLine, Sim, Site, Trace, Worlds};
use medium::{LineValue, Medium};

pub(crate) use self::line_stores::misused;
use self::lines::Lines;
use self::log::LogModel;

/// The rules of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rules {
    /// Lines reach the medium at any time, in any order; a flush and a fence set a lower bound. The
    /// weakest model: a structure that survives it survives on other processors as well, and, if it
    /// waits for its fences, on a file.
    #[default]
    Lines,
    /// Caches are persistent (eADR): a store is durable at once.
    PersistentCaches,
    /// A fence appends the flushed lines to a log, as one group; a wait makes groups durable. Needs
    /// a late `Sim`.
    Log,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Word { within: u8, value: u64 },
    Line(LineValue),
}

impl Change {
    fn apply(&self, content: &mut LineValue) {
        match self {
            Self::Word { within, value } => content.0[usize::from(*within)] = *value,
            Self::Line(value) => *content = *value,
        }
    }
}

/// A line of which a crash lost stores.
#[derive(Clone, Debug)]
pub struct Behind {
    /// The line's offset, in bytes.
    pub offset: u64,
    /// How many of its stores arrived, of those that were not certainly durable; in a log, of its
    /// groups.
    pub arrived: usize,
    /// How many there were in total.
    pub stores: usize,
    /// The first store that is missing; in a log, the fence of the first group that is missing.
    pub missing: Site,
}

fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word ^ 0xf39c_c060_5ced_c835) * 0x9e37_79b9_7f4a_7c15;
    (product as u64) ^ (product >> 64) as u64
}

fn hash_line(line: u32, content: &LineValue) -> u64 {
    content
        .0
        .iter()
        .fold(u64::from(line) | 1 << 40, |state, word| {
            mix(state.rotate_left(5), *word)
        })
}

fn hash_candidates(open: &OpenLine) -> u64 {
    let contents = open
        .candidates
        .iter()
        .map(|content| hash_line(open.line, content));
    contents.fold(3 + (u64::from(open.newest) << 8), mix)
}

/// The memory of a `Sim`, with the lines that have one possible content, and its digest.
#[derive(Clone, Debug)]
struct Memory {
    digest: u64,
}

impl Memory {
    fn content(sim: &Sim, line: u32) -> LineValue {
        sim.peek(line).expect("a recorded line lies in the memory")
    }

    /// Notes that the line has one content from now on.
    fn settle(&mut self, sim: &Sim, line: u32, content: &LineValue) {
        let old = Self::content(sim, line);
        if old != *content {
            self.digest ^= hash_line(line, &old) ^ hash_line(line, content);
            sim.poke(line, content);
        }
    }
}

#[derive(Clone, Debug)]
enum LineModel {
    Lines(Lines),
    Log(LogModel),
}

/// The state of the memory at one moment of a trace.
///
/// The model walks along a [`Trace`] ([`Model::apply`]). It writes lines that are settled, with one
/// possible content, into the `Sim`. Its memory and [`Model::open_lines`] together describe all
/// images that a crash may leave.
#[derive(Clone, Debug)]
pub struct Model {
    memory: Memory,
    kind: LineModel,
}

impl Model {
    /// The model of memory in which all lines but the `open` ones are settled. `digest` is that of
    /// the memory's content.
    pub fn new(rules: Rules, open: &[OpenLine], digest: u64) -> Self {
        let kind = match rules {
            Rules::Lines | Rules::PersistentCaches => LineModel::Lines(Lines::new(rules, open)),
            Rules::Log => LineModel::Log(LogModel::new(open)),
        };
        Self {
            memory: Memory { digest },
            kind,
        }
    }

    /// A digest of the memory, without open lines: equal for two memories that began alike only if
    /// their contents are equal (with high probability).
    pub fn digest(&self) -> u64 {
        self.memory.digest
    }

    /// Whether the event makes something durable, so that a crash just before it can leave an image
    /// that a crash after it cannot.
    pub fn raises(&self, event: &Event) -> bool {
        match (event, &self.kind) {
            (Event::Grow { .. } | Event::Release { .. }, _) => true,
            (_, LineModel::Lines(lines)) => lines.raises(event),
            (_, LineModel::Log(log)) => log.raises(event),
        }
    }

    /// Whether a crash after the event may leave an image that a crash before it cannot.
    pub(crate) fn adds(&self, event: &Event) -> bool {
        match event {
            Event::Grow { .. } | Event::Release { .. } => true,
            Event::Store { .. } | Event::StoreLine { .. } => {
                matches!(self.kind, LineModel::Lines(_))
            }
            Event::Fence { .. } => matches!(self.kind, LineModel::Log(_)),
            _ => false,
        }
    }

    /// Applies the next event of `trace`.
    pub fn apply(&mut self, sim: &Sim, trace: &Trace, event: &Event) {
        if let Event::Grow { length } = *event {
            return sim
                .set_length(length)
                .expect("it grew when it was recorded");
        }
        if let Event::Release { line, count } = *event {
            for line in line..line + count {
                match &mut self.kind {
                    LineModel::Lines(lines) => lines.forget(line),
                    LineModel::Log(log) => log.forget(line),
                }
                self.memory.settle(sim, line, &LineValue::ZERO);
            }
            return;
        }
        let stored = match *event {
            Event::Store {
                word, value, site, ..
            } => Some((
                word / 8,
                Change::Word {
                    within: (word % 8) as u8,
                    value,
                },
                site,
            )),
            Event::StoreLine {
                line, value, site, ..
            } => Some((line, Change::Line(trace.line_values[value as usize]), site)),
            _ => None,
        };
        match (&mut self.kind, stored) {
            (LineModel::Lines(lines), Some((line, change, site))) => {
                lines.store(&mut self.memory, sim, line, change, site);
            }
            (LineModel::Log(log), Some((line, change, _))) => log.store(sim, line, change),
            (LineModel::Lines(lines), None) => lines.apply(&mut self.memory, sim, event),
            (LineModel::Log(log), None) => log.apply(&mut self.memory, sim, event),
        }
    }

    /// The lines that a crash at this moment leaves open, and a digest of all images that it may
    /// leave: [`Model::digest`], with open lines included.
    pub fn open_lines(&mut self, sim: &Sim) -> (Vec<OpenLine>, u64) {
        let open = match &mut self.kind {
            LineModel::Lines(lines) => lines.open_lines(&mut self.memory, sim),
            LineModel::Log(log) => log.open_lines(&mut self.memory, sim),
        };
        let digest = open.iter().fold(sim.extent().length(), |digest, open| {
            let worlds = open.worlds.iter().flat_map(Worlds::iter);
            let worlds = worlds.fold(0, |state, world| mix(state, world as u64));
            let candidates = hash_candidates(open);
            digest
                ^ hash_line(open.line, &Memory::content(sim, open.line))
                ^ mix(candidates, worlds)
        });
        (open, digest ^ self.memory.digest)
    }

    /// The open lines of which a crash lost stores, if each has one of the contents given.
    pub fn behind(&self, left: &[(u32, Vec<LineValue>)]) -> Vec<Behind> {
        let behind = |(line, contents): &(u32, Vec<LineValue>)| match &self.kind {
            LineModel::Lines(lines) => lines.behind(*line, contents),
            LineModel::Log(log) => log.behind(*line, contents),
        };
        left.iter().filter_map(behind).collect()
    }
}

/// Every combination of contents of open lines: the images that a crash may leave, in full.
pub fn images(open: &[OpenLine]) -> impl Iterator<Item = Vec<(u32, LineValue)>> {
    combinations(open)
        .filter(|choices| is_possible(open, choices))
        .map(|choices| {
            open.iter()
                .zip(choices)
                .map(|(open, choice)| (open.line, open.candidates[choice]))
                .collect()
        })
}

/// Whether there is a world in which all lines have their chosen content.
fn is_possible(open: &[OpenLine], choices: &[usize]) -> bool {
    let mut sets = open
        .iter()
        .zip(choices)
        .filter_map(|(open, choice)| open.worlds.get(*choice));
    let Some(first) = sets.next() else {
        return true;
    };
    let mut left = first.clone();
    sets.for_each(|set| left.keep(set));
    !left.is_empty()
}

fn combinations(open: &[OpenLine]) -> impl Iterator<Item = Vec<usize>> {
    let first = vec![0; open.len()];
    std::iter::successors(Some(first), |choices| combination_after(choices, open))
}

/// The combination after this one: they are counted like numbers, the first digit first.
fn combination_after(choices: &[usize], open: &[OpenLine]) -> Option<Vec<usize>> {
    let mut following = choices.to_vec();
    for (choice, open) in following.iter_mut().zip(open) {
        *choice += 1;
        if *choice < open.candidates.len() {
            return Some(following);
        }
        *choice = 0;
    }
    None
}

/// The number of images; in a log, contents that recur are counted again.
pub(crate) fn image_count(open: &[OpenLine]) -> f64 {
    if open.iter().all(|open| open.worlds.is_empty()) {
        return open
            .iter()
            .map(|open| open.candidates.len() as f64)
            .product();
    }
    let mut worlds = Worlds::default();
    open.iter()
        .flat_map(|open| &open.worlds)
        .for_each(|set| worlds.add(set));
    let in_world = |world: usize| {
        let count =
            |open: &OpenLine| open.worlds.iter().filter(|set| set.contains(world)).count() as f64;
        open.iter().map(count).product::<f64>()
    };
    // A world with all of the next group equals the next world with none of the group after it.
    worlds.iter().map(in_world).sum::<f64>() - (worlds.iter().count() as f64 - 1.0)
}
