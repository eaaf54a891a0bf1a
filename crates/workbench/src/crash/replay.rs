//! One crash in one word: what a report names, and `--replay` takes.

use std::fmt;
use std::str::FromStr;

use sim::index::IndexOperation::{
    self, Compact, DropTree, Evacuate, Exchange, Get, GetMany, Insert, Load, Mark, Put, Remove,
    Reopen, Scan, ScanBack, Sync, Update, Visit,
};
use sim::index::script::{from_word, to_word};
use sim::{CrashReplay, Schedule};

use terminal::text::command_line;

/// The scheduler's limit.
const THREADS_MAX: usize = 64;
/// A longer load would exceed the steps of a run.
const LOAD_MAX: u64 = 1 << 14;
/// Larger keys and values cannot be distinguished in records.
const NUMBER_MAX: u64 = u32::MAX as u64;

/// The setup, the operations, and the crashes: `SETUP,OPERATIONS@CRASHES`. With several threads
/// also the operations before them, those of each thread, and the schedule:
/// `SETUP,BEFORE,THREAD,THREAD@SCHEDULE@CRASHES`.
#[derive(Clone, Debug)]
pub(super) struct Repeat {
    pub(super) setup: Vec<IndexOperation>,
    pub(super) operations: Vec<IndexOperation>,
    pub(super) threads: Option<(Vec<Vec<IndexOperation>>, Schedule)>,
    pub(super) crashes: CrashReplay,
}

impl Repeat {
    /// All operations, one after the other.
    pub(super) fn all_operations(&self) -> Vec<IndexOperation> {
        let threads = self.threads.iter().flat_map(|(threads, _)| threads);
        [&self.setup, &self.operations]
            .into_iter()
            .chain(threads)
            .flatten()
            .copied()
            .collect()
    }

    /// The command that repeats it; `command` is that of the exploration.
    pub(super) fn command(&self, command: &str) -> String {
        format!("{command} --replay {}", command_line([self.to_string()]))
    }
}

impl fmt::Display for Repeat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{},{}",
            to_word(&self.setup),
            to_word(&self.operations)
        )?;
        if let Some((threads, schedule)) = &self.threads {
            threads
                .iter()
                .try_for_each(|thread| write!(formatter, ",{}", to_word(thread)))?;
            write!(formatter, "@{schedule}")?;
        }
        write!(formatter, "@{}", self.crashes)
    }
}

impl FromStr for Repeat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let bad = || {
            "give SETUP,OPERATIONS@CRASHES or SETUP,BEFORE,THREAD,THREAD@SCHEDULE@CRASHES, as the report of a failure \
             has it"
                .to_owned()
        };
        let parts: Vec<&str> = word.split('@').collect();
        let (programs, schedule, crashes) = match parts[..] {
            [programs, crashes] => (programs, None, crashes),
            [programs, schedule, crashes] => {
                (programs, Some(schedule.parse::<Schedule>()?), crashes)
            }
            _ => return Err(bad()),
        };
        let mut programs = programs
            .split(',')
            .map(from_word)
            .collect::<Result<Vec<_>, _>>()?;
        if programs.len() < 2 || (programs.len() > 2) != schedule.is_some() {
            return Err(bad());
        }
        let threads = programs.split_off(2);
        if threads.len() > THREADS_MAX {
            return Err(format!("{} threads: at most {THREADS_MAX}", threads.len()));
        }
        let is_of_one =
            |operation: &&IndexOperation| matches!(operation, Load(..) | Reopen | DropTree);
        if let Some(operation) = threads.iter().flatten().find(is_of_one) {
            return Err(format!("{operation:?} is for one thread alone"));
        }
        if let Some(bad) = programs
            .iter()
            .chain(&threads)
            .flatten()
            .find_map(out_of_bounds)
        {
            return Err(bad);
        }
        let crashes = if crashes.is_empty() {
            CrashReplay::default()
        } else {
            crashes.parse()?
        };
        if crashes.crashes.len() > 2 {
            return Err(
                "at most two crashes: a second one comes in what follows the first".to_owned(),
            );
        }
        let operations = programs.pop().unwrap_or_default();
        let setup = programs.pop().unwrap_or_default();
        Ok(Self {
            setup,
            operations,
            threads: schedule.map(|schedule| (threads, schedule)),
            crashes,
        })
    }
}

/// The error in the numbers of an operation, if there is one.
fn out_of_bounds(operation: &IndexOperation) -> Option<String> {
    let numbers = match *operation {
        GetMany(from, to)
        | Load(from, to)
        | Scan(from, to)
        | ScanBack(from, to)
        | Visit(from, to) => {
            if from > to {
                return Some(format!("{operation:?}: the first key comes after the last"));
            }
            if matches!(operation, Load(..)) && to - from >= LOAD_MAX {
                return Some(format!("{operation:?}: at most {LOAD_MAX} keys"));
            }
            [from, to]
        }
        Insert(key, value) | Update(key, value) | Put(key, value) => [key, value],
        Exchange(key, old, new) => [key, old.max(new)],
        Remove(key) | Get(key) => [key, 0],
        Sync | Reopen | Mark | Compact | Evacuate | DropTree => [0, 0],
    };
    let too_large = numbers.iter().find(|number| **number > NUMBER_MAX)?;
    Some(format!(
        "{operation:?}: {too_large} is more than {NUMBER_MAX}"
    ))
}

#[cfg(test)]
mod tests;
