//! Sequences of operations: made by chance, and written down in one word.
//!
//! The word is what a command line takes: operations with dots between them, a letter and its numbers each: `i10=7` insert,
//! `u10=7` update, `p10=7` put, `r10` remove, `x10=7-8` exchange, `g10` get, `f1=9` scan from
//! 1 to 9, `b1=9` scan back, `v1=9` visit, `s` sync, `o` reopen.

use super::IndexOperation::{
    self, Exchange, Get, Insert, Put, Remove, Reopen, Scan, ScanBack, Sync, Update, Visit,
};
use crate::subject::Complaint;

/// `count` operations on `keys` keys that come and go: splits, merges, recycled entries, now and then a clean close. The tree
/// grows in the first half and shrinks in the second.
pub fn random_operations(seed: u64, count: usize, keys: u64) -> Vec<IndexOperation> {
    let mut state = seed;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let operation = |position: usize| {
        let growing = position < count / 2;
        let (key, value) = (below(keys), position as u64);
        match (below(100), growing) {
            (0, _) => Reopen,
            (1..10, _) => Update(key, value),
            (10..20, _) => Put(key, value),
            (20..70, true) | (20..40, false) => Insert(key, value),
            _ => Remove(key),
        }
    };
    (0..count).map(operation).collect()
}

/// The operations in one word.
pub fn to_word(operations: &[IndexOperation]) -> String {
    let words = operations.iter().map(|operation| match operation {
        Insert(key, value) => format!("i{key}={value}"),
        Update(key, value) => format!("u{key}={value}"),
        Put(key, value) => format!("p{key}={value}"),
        Remove(key) => format!("r{key}"),
        Exchange(key, old, new) => format!("x{key}={old}-{new}"),
        Get(key) => format!("g{key}"),
        Scan(from, to) => format!("f{from}={to}"),
        ScanBack(from, to) => format!("b{from}={to}"),
        Visit(from, to) => format!("v{from}={to}"),
        Sync => "s".to_owned(),
        Reopen => "o".to_owned(),
    });
    words.collect::<Vec<_>>().join(".")
}

/// The operations that a word stands for.
pub fn from_word(word: &str) -> Result<Vec<IndexOperation>, Complaint> {
    word.split('.').filter(|part| !part.is_empty()).map(operation).collect()
}

fn operation(part: &str) -> Result<IndexOperation, Complaint> {
    let bad = || {
        format!(
            "no operation: {part:?}; one is as i10=7, u10=7, p10=7, r10, x10=7-8, g10, f1=9, b1=9, v1=9, s or o"
        )
    };
    let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
    let (letter, rest) = part.split_at_checked(1).ok_or_else(bad)?;
    let pair = || {
        let (key, value) = rest.split_once('=').ok_or_else(bad)?;
        Ok::<_, Complaint>((number(key)?, value))
    };
    match letter {
        "i" => pair().and_then(|(key, value)| Ok(Insert(key, number(value)?))),
        "u" => pair().and_then(|(key, value)| Ok(Update(key, number(value)?))),
        "p" => pair().and_then(|(key, value)| Ok(Put(key, number(value)?))),
        "f" => pair().and_then(|(from, to)| Ok(Scan(from, number(to)?))),
        "b" => pair().and_then(|(from, to)| Ok(ScanBack(from, number(to)?))),
        "v" => pair().and_then(|(from, to)| Ok(Visit(from, number(to)?))),
        "r" => Ok(Remove(number(rest)?)),
        "g" => Ok(Get(number(rest)?)),
        "x" => {
            let (key, values) = pair()?;
            let (old, new) = values.split_once('-').ok_or_else(bad)?;
            Ok(Exchange(key, number(old)?, number(new)?))
        }
        "s" if rest.is_empty() => Ok(Sync),
        "o" if rest.is_empty() => Ok(Reopen),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        let mut operations = random_operations(7, 300, 20);
        operations.extend([Sync, Get(3), Exchange(1, 2, 3), Scan(1, 9), ScanBack(0, 7), Visit(2, 3)]);
        assert_eq!(from_word(&to_word(&operations)), Ok(operations));
        assert_eq!(from_word(""), Ok(Vec::new()));
        for bad in ["i", "i1", "i1=", "i=1", "r", "rx", "x1=2", "s1", "q", "é1", "i18446744073709551616=1"] {
            assert!(from_word(bad).is_err(), "{bad}");
        }
    }
}
