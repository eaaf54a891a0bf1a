//! One crash in one word: what a report names, and `--replay` takes.

use std::fmt;
use std::str::FromStr;

use sim::index::IndexOperation;
use sim::index::script::{from_word, to_word};
use sim::{Replay, Schedule};

use crate::text::command_line;

/// Operations that set the stage, operations, and crashes: `SETUP,OPERATIONS@CRASHES`. With several threads, what one
/// does before the others begin, what each does, and when which goes on: `SETUP,BEFORE,THREAD,THREAD@SCHEDULE@CRASHES`.
#[derive(Clone, Debug)]
pub(super) struct Repeat {
    pub(super) setup: Vec<IndexOperation>,
    pub(super) operations: Vec<IndexOperation>,
    pub(super) threads: Option<(Vec<Vec<IndexOperation>>, Schedule)>,
    pub(super) crashes: Replay,
}

impl Repeat {
    /// The command that repeats it, where `command` is what explores.
    pub(super) fn command(&self, command: &str) -> String {
        format!("{command} --replay {}", command_line([self.to_string()]))
    }
}

impl fmt::Display for Repeat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{},{}", to_word(&self.setup), to_word(&self.operations))?;
        if let Some((threads, schedule)) = &self.threads {
            threads.iter().try_for_each(|thread| write!(formatter, ",{}", to_word(thread)))?;
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
            [programs, schedule, crashes] => (programs, Some(schedule.parse::<Schedule>()?), crashes),
            _ => return Err(bad()),
        };
        let mut programs = programs.split(',').map(from_word).collect::<Result<Vec<_>, _>>()?;
        if programs.len() < 2 || (programs.len() > 2) != schedule.is_some() {
            return Err(bad());
        }
        let threads = programs.split_off(2);
        let crashes = if crashes.is_empty() { Replay::default() } else { crashes.parse()? };
        let operations = programs.pop().unwrap_or_default();
        let setup = programs.pop().unwrap_or_default();
        Ok(Self { setup, operations, threads: schedule.map(|schedule| (threads, schedule)), crashes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for word in ["i10=10.i20=20,u10=100.s@57:0,1/3:", ",r1@12:", ",i1=1@", "i1=1,,g1,r1.s@1,12:0@7:1"] {
            assert_eq!(word.parse::<Repeat>().map(|repeat| repeat.to_string()), Ok(word.to_owned()));
        }
        for bad in ["", "i1=1@1:", ",i1=1", ",i1=1@x", ",i1@1:", ",i1=1@0@1:", ",,g1@1:", ",,g1@0@@"] {
            assert!(bad.parse::<Repeat>().is_err(), "{bad}");
        }
    }
}
