//! One crash in one word: what a report names, and `--replay` takes.

use std::fmt;
use std::str::FromStr;

use sim::Replay;
use sim::index::IndexOperation;
use sim::index::script::{from_word, to_word};

/// Operations that set the stage, operations, and crashes: `SETUP,OPERATIONS@CRASHES`.
#[derive(Clone, Debug)]
pub(super) struct Repeat {
    pub(super) setup: Vec<IndexOperation>,
    pub(super) operations: Vec<IndexOperation>,
    pub(super) crashes: Replay,
}

impl fmt::Display for Repeat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{},{}@{}", to_word(&self.setup), to_word(&self.operations), self.crashes)
    }
}

impl FromStr for Repeat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let parts =
            word.split_once('@').and_then(|(before, crashes)| Some((before.split_once(',')?, crashes)));
        let Some(((setup, operations), crashes)) = parts else {
            return Err("give SETUP,OPERATIONS@CRASHES, as the report of a failure has it".to_owned());
        };
        let crashes = if crashes.is_empty() { Replay::default() } else { crashes.parse()? };
        Ok(Self { setup: from_word(setup)?, operations: from_word(operations)?, crashes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for word in ["i10=10.i20=20,u10=100.s@57:0,1/3:", ",r1@12:", ",i1=1@"] {
            assert_eq!(word.parse::<Repeat>().map(|repeat| repeat.to_string()), Ok(word.to_owned()));
        }
        for bad in ["", "i1=1@1:", ",i1=1", ",i1=1@x", ",i1@1:"] {
            assert!(bad.parse::<Repeat>().is_err(), "{bad}");
        }
    }
}
