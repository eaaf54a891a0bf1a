//! Sequences of operations: random ones, and their form as one word.
//!
//! A command line takes the word. It has the operations with dots between them, each a letter and
//! its numbers: `i10=7` insert, `u10=7` update, `p10=7` put, `r10` remove, `x10=7-8` exchange,
//! `g10` get, `a1=9` get 1 and 9 at once, `l1=9` load all from 1 to 9, `f1=9` scan from 1 to 9,
//! `b1=9` scan back, `v1=9` visit, `s` sync, `o` reopen, `m` mark, `c` compact, `e` evacuate, `d`
//! drop the tree and make another.

use super::IndexOperation::{
    self, Compact, DropTree, Evacuate, Exchange, Get, GetMany, Insert, Load, Mark, Put, Remove,
    Reopen, Scan, ScanBack, Sync, Update, Visit,
};
use super::{LINE_VALUE, LONG_VALUE, THIRD_VALUE};
use crate::subject::Complaint;

/// Operations that succeed and that fail, split, merge, reuse space, close and open: they reach all
/// code of an engine.
pub fn every_change() -> Vec<IndexOperation> {
    let mut script = vec![
        Insert(10, 1),
        Insert(20, 2),
        Insert(10, 3),
        Update(20, 4),
        Update(30, 5),
    ];
    script.extend([
        Put(30, 6),
        Put(40, 7),
        Remove(20),
        Remove(20),
        Insert(25, 8),
    ]);
    script.extend([Exchange(25, 8, 9), Exchange(25, 8, 10), Reopen]);
    script.extend((41..53).map(|key| Insert(key, key)));
    // They come in sequence, so that each operation finds the state that the one before the last
    // has left.
    script.extend((0..4).map(|value| Update(50, 12 + value)));
    script.extend([10, 25, 30, 40, 41, 42, 43, 48, 49].map(Remove));
    script.extend([
        Insert(5, 11),
        Reopen,
        Remove(44),
        Remove(45),
        Remove(46),
        Remove(5),
        Reopen,
    ]);
    script
}

/// Small leaves that are merged to one.
pub fn merged_to_one_leaf() -> Vec<IndexOperation> {
    let removes = [70, 60, 50, 40, 30, 20].map(Remove);
    (1..8)
        .map(|key| Insert(10 * key, key))
        .chain(removes)
        .collect()
}

/// Loads into an empty tree: one leaf, several, more than one level; into one that was emptied; and
/// into one that is not.
pub fn every_load() -> Vec<IndexOperation> {
    let mut script = vec![Load(10, 12), Load(20, 22), Update(11, 1), Insert(13, 2)];
    script.extend((10..14).map(Remove));
    script.extend([Sync, Load(30, 40), Insert(29, 3), Remove(35), Sync]);
    script.extend((29..41).map(Remove));
    script.extend([
        Reopen,
        Load(50, 72),
        Sync,
        Update(60, 4),
        Reopen,
        Load(80, 81),
    ]);
    script
}

/// Drops trees: empty, of one node, of more than one level, with a value that has slabs of its own,
/// just after an open; and reuses their space.
pub fn every_drop() -> Vec<IndexOperation> {
    let mut script = vec![
        DropTree,
        Insert(10, 1),
        Update(10, 2),
        DropTree,
        Load(11, 31),
        Remove(12),
        Sync,
    ];
    script.extend([
        DropTree,
        Insert(20, 4),
        Sync,
        Reopen,
        Update(20, 5),
        DropTree,
        Load(31, 36),
        Reopen,
    ]);
    script.extend([
        DropTree,
        Sync,
        Reopen,
        Put(50, LONG_VALUE),
        Sync,
        Put(50, 6),
        Put(51, LONG_VALUE),
        DropTree,
    ]);
    script.extend([Sync, Put(50, 6)]);
    script
}

/// Gives space back, and takes it again: that of values with slabs of their own (first, last and
/// between others), and all of a tree's. The last operations lie in an epoch that does not end.
pub fn every_compaction() -> Vec<IndexOperation> {
    let mut script: Vec<_> = (10..20).map(|key| Insert(key, key)).collect();
    script.extend([50, 51, 52].map(|key| Put(key, LONG_VALUE)));
    script.extend([
        Sync,
        Remove(51),
        Sync,
        Compact,
        Update(10, 2),
        Put(51, LONG_VALUE),
        Sync,
    ]);
    script.extend([
        Remove(52),
        Put(50, 3),
        Compact,
        Put(53, LONG_VALUE),
        Sync,
        Reopen,
    ]);
    // The second of two slabs is given back. Its only value is the last one in a list of free ones
    // that goes on.
    script.extend([60, 61, 62, 63].map(|key| Put(key, THIRD_VALUE)));
    script.extend([
        Sync,
        Remove(61),
        Remove(63),
        Sync,
        Compact,
        Put(61, THIRD_VALUE),
        Sync,
    ]);
    script.extend([60, 61, 62].map(Remove));
    script.extend([10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 50, 51, 53].map(Remove));
    script.extend([
        Sync,
        Compact,
        Insert(5, 1),
        Put(50, LONG_VALUE),
        Sync,
        Remove(50),
        Remove(5),
        Sync,
    ]);
    script.extend([Insert(6, 1), Compact, Insert(7, 1), Compact, Insert(8, 1)]);
    script
}

/// Moves records and nodes to other slabs: nodes that are full, that were split, that are small; and
/// changes the same keys before and after.
pub fn every_evacuation() -> Vec<IndexOperation> {
    let mut script = vec![
        Insert(10, 1),
        Evacuate,
        Update(10, 2),
        Insert(20, 3),
        Insert(30, LINE_VALUE),
        Evacuate,
        Evacuate,
        Remove(20),
        Put(10, 4),
    ];
    // A split uses the space at once that a move has left.
    script.extend([Insert(31, 31), Insert(32, 32), Insert(33, 33), Evacuate]);
    script.extend([Insert(34, 34), Evacuate, Insert(35, 35), Evacuate]);
    script.extend([Reopen, Evacuate, Update(33, 5), Reopen]);
    script.extend([Remove(31), Remove(32), Evacuate, Remove(33), Insert(40, 6)]);
    script
}

/// Moves long records to other slabs, and one that has slabs of its own and stays.
pub fn evacuation_of_long_records() -> Vec<IndexOperation> {
    let mut script: Vec<_> = [50, 51, 52].map(|key| Put(key, THIRD_VALUE)).into();
    script.extend([Put(53, LONG_VALUE), Evacuate, Remove(51), Reopen, Evacuate]);
    script.extend([Put(50, 6), Evacuate, Put(52, 7)]);
    script
}

/// Moves records to other slabs within epochs that end, and within one that does not. The records
/// are so long that few of them fill a slab: a slab that new records come from is not emptied.
pub fn every_evacuation_in_epochs() -> Vec<IndexOperation> {
    let mut script: Vec<_> = (10..13).map(|key| Insert(key, key)).collect();
    script.extend((50..54).map(|key| Put(key, THIRD_VALUE)));
    script.extend([
        Sync,
        Remove(51),
        Evacuate,
        Put(54, THIRD_VALUE),
        Sync,
        Evacuate,
    ]);
    script.extend([
        Remove(50),
        Sync,
        Compact,
        Put(55, THIRD_VALUE),
        Insert(20, 1),
        Sync,
    ]);
    script.extend([Reopen, Evacuate, Update(10, 2), Sync, Remove(52), Evacuate]);
    script
}

/// Each way to read one key, for each change of the key that goes before it. For trees whose writes
/// return before they are durable.
pub fn reads_of_pending_writes() -> Vec<IndexOperation> {
    let mut script: Vec<_> = (1..8).map(|key| Insert(10 * key, key)).collect();
    script.push(Sync);
    let reads: [fn(u64) -> IndexOperation; 5] = [
        |key| Get(key),
        |key| GetMany(key, key),
        |key| Scan(key, key),
        |key| ScanBack(key, key),
        |key| Visit(key, key),
    ];
    for (number, read) in (1..).zip(reads) {
        script.extend([Put(30, 100 + number), read(30)]);
        script.extend([Insert(35, 200 + number), read(35)]);
        script.extend([Remove(35), read(35)]);
    }
    script.push(Sync);
    script
}

/// All changes of an engine with buffered durability: each kind of change alone in an epoch, and
/// together those that cannot share an in-line log.
pub fn every_change_in_epochs() -> Vec<IndexOperation> {
    let mut script = vec![
        Insert(10, 1),
        Insert(20, 2),
        Sync,
        Insert(10, 3),
        Update(20, 4),
        Sync,
    ];
    // Two values in one line; an insert after a remove; an update after that.
    script.extend([Put(30, 6), Put(40, 7), Update(10, 8), Sync]);
    script.extend([Update(10, 9), Update(20, 10), Update(30, 11), Sync]);
    script.extend([
        Remove(20),
        Insert(25, 12),
        Exchange(25, 12, 13),
        Sync,
        Remove(40),
        Remove(30),
        Sync,
    ]);
    script.extend([Insert(30, 14), Insert(40, 15), Update(30, 16), Sync]);
    // Splits, of more than one level.
    script.extend((41..47).map(|key| Insert(key, key)));
    script.push(Sync);
    script.extend((47..60).map(|key| Insert(key, key)));
    script.push(Reopen);
    // Nodes that are emptied, and their space is reused.
    script.extend([10, 25, 30, 40, 41, 42, 43].map(Remove));
    script.push(Sync);
    script.extend((44..56).map(Remove));
    script.extend([
        Sync,
        Insert(5, 11),
        Insert(6, 12),
        Sync,
        Remove(5),
        Insert(7, 13),
        Reopen,
    ]);
    script.extend((56..60).map(Remove));
    script.extend([Remove(6), Remove(7), Sync, Insert(8, 1)]);
    script
}

/// Values in both halves of a node of four slots, changed in every epoch; the last ones after the
/// tree was opened again.
pub fn values_in_epochs() -> Vec<IndexOperation> {
    let mut script = vec![Insert(10, 1), Insert(20, 2), Insert(30, 3), Sync];
    script.extend([
        Update(10, 4),
        Update(30, 5),
        Sync,
        Update(10, 6),
        Update(30, 7),
        Sync,
        Update(10, 8),
    ]);
    script.extend([Reopen, Update(10, 9), Update(30, 10)]);
    script
}

/// Values that change in an epoch that ends, and again after the tree was reopened.
pub fn values_of_two_lives() -> Vec<IndexOperation> {
    let mut script = vec![
        Insert(10, 1),
        Insert(20, 2),
        Insert(30, 3),
        Sync,
        Update(10, 4),
        Update(30, 5),
        Sync,
    ];
    script.extend([Reopen, Update(10, 6), Update(30, 7)]);
    script
}

/// Nodes that change in the second epoch after an open, and again in the second epoch after the
/// next open, before which they were only read while other nodes changed. A volatile field that
/// survived the reopen would be wrong then.
pub fn second_epochs_of_two_lives() -> Vec<IndexOperation> {
    let mut script: Vec<_> = (1..6).map(|key| Insert(10 * key, key)).collect();
    for value in [100, 200] {
        let fresh = 50 + value;
        script.extend([Reopen, Get(10), Update(50, value)]);
        script.extend((fresh..fresh + 3).map(|key| Insert(key, value)));
        // The last node is full by now: the next key splits it, and changes the one above.
        script.extend([Sync, Update(10, value), Insert(fresh + 3, value), Sync]);
    }
    script
}

/// Nodes that are loaded and not used again while epochs go on: the former content of their memory
/// must not matter.
pub fn loaded_and_left_alone() -> Vec<IndexOperation> {
    let mut script = vec![Load(1, 240), Sync];
    script.extend((0..20).flat_map(|value| [Update(1, value), Sync]));
    script
}

/// Several changes of one node within one epoch, and the same nodes touched again in the next: one
/// key is updated, removed and inserted; both lines of values change; nodes are split, emptied and
/// made again. Epochs are short.
pub fn what_epochs_meet() -> Vec<IndexOperation> {
    let mut script: Vec<_> = (1..5).map(|key| Insert(10 * key, key)).collect();
    script.push(Sync);
    for round in 0..3 {
        let value = 100 * round;
        script.extend([
            Update(10, value + 1),
            Remove(10),
            Insert(10, value + 2),
            Update(10, value + 3),
            Sync,
        ]);
        script.extend([
            Update(20, value + 4),
            Sync,
            Update(40, value + 5),
            Update(20, value + 6),
            Sync,
        ]);
        script.extend([
            Remove(30),
            Sync,
            Insert(30, value + 7),
            Sync,
            Update(30, value + 8),
            Remove(40),
            Sync,
        ]);
        // Changes after the first one of an epoch; a node is logged once.
        script.extend([Update(20, value + 12), Remove(10), Insert(15, value), Sync]);
        script.extend([Remove(15), Insert(10, value), Sync]);
        script.extend([
            Remove(10),
            Remove(20),
            Insert(11, value),
            Insert(21, value),
            Sync,
        ]);
        script.extend([
            Remove(11),
            Remove(21),
            Insert(10, value),
            Insert(20, value),
            Sync,
        ]);
        // A node that is split and whose halves are emptied.
        script.extend((31..35).map(|key| Insert(key, value)));
        script.extend([Sync, Insert(40, value + 9), Sync]);
        script.extend((31..35).map(Remove));
        script.extend([Sync, Update(20, value + 10), Update(20, value + 11)]);
        script.push(if round == 1 { Reopen } else { Sync });
    }
    script
}

/// Layers below layers, for keys as [`KeyShape::Layers`](super::KeyShape::Layers) has them: made
/// several at once, split beside other entries, with several levels of nodes in them; emptied one
/// by one, and several at once; and made again from the space that they gave back.
pub fn layers_in_epochs() -> Vec<IndexOperation> {
    // Two keys make three layers; one more ends in the second, one goes on from the third.
    let mut script = vec![
        Insert(20, 1),
        Sync,
        Insert(30, 2),
        Sync,
        Insert(10, 3),
        Insert(25, 4),
        Sync,
    ];
    script.extend([
        Remove(25),
        Update(30, 5),
        Sync,
        Remove(10),
        Sync,
        Remove(30),
        Sync,
        Remove(20),
        Sync,
    ]);
    // The same layers are made within one epoch; then all of them are removed, and an entry beside
    // them stays.
    script.extend([
        Insert(50, 6),
        Insert(20, 7),
        Insert(30, 8),
        Sync,
        Remove(20),
        Remove(30),
        Sync,
    ]);
    // A full node of which two entries are layers, split in the middle; keys that differ by zeros,
    // split as well.
    script.extend([
        Insert(20, 9),
        Insert(30, 10),
        Insert(60, 11),
        Insert(70, 12),
        Insert(100, 13),
        Sync,
    ]);
    script.extend([Insert(110, 14), Sync, Insert(0, 15)]);
    script.extend([1, 2, 5, 7].map(|key| Insert(key, key)));
    script.extend([Sync, Insert(3, 16), Insert(40, 17), Reopen]);
    // Nodes above each other four layers down, emptied from either side.
    script.extend((21..27).map(|key| Insert(key, key)));
    script.extend([Sync, Remove(26), Remove(25), Sync, Insert(25, 18), Sync]);
    script.extend((21..26).map(Remove));
    script.extend([Sync, Put(29, 19), Put(21, 20), Exchange(21, 20, 21), Reopen]);
    // Layers are removed, one after the other or several at once, with the nodes that become empty.
    script.extend([29, 21, 20, 30, 40].map(Remove));
    script.extend([
        Sync,
        Remove(1),
        Remove(2),
        Remove(3),
        Sync,
        Remove(5),
        Remove(7),
        Remove(0),
        Sync,
    ]);
    script.extend([
        Remove(60),
        Insert(60, 22),
        Remove(70),
        Remove(60),
        Sync,
        Insert(125, 23),
        Insert(120, 24),
    ]);
    script.extend([
        Sync,
        Remove(50),
        Remove(100),
        Remove(110),
        Sync,
        Remove(120),
        Remove(125),
        Sync,
    ]);
    script.extend([Insert(31, 25), Insert(32, 26)]);
    script
}

/// A mix of operations: makes one from a number below 100, a key, a value, and whether the tree is
/// to grow.
pub type Mix = fn(u64, u64, u64, bool) -> IndexOperation;

/// Writes, and occasionally a clean close.
pub fn writes(chance: u64, key: u64, value: u64, is_growing: bool) -> IndexOperation {
    match (chance, is_growing) {
        (0, _) => Reopen,
        (1..10, _) => Update(key, value),
        (10..20, _) => Put(key, value),
        (20..70, true) | (20..40, false) => Insert(key, value),
        _ => Remove(key),
    }
}

/// Writes, with the end of an epoch every few of them.
pub fn writes_in_epochs(chance: u64, key: u64, value: u64, is_growing: bool) -> IndexOperation {
    match (chance, is_growing) {
        (0, _) => Reopen,
        (1..15, _) => Sync,
        (15..25, _) => Update(key, value),
        (25..35, _) => Put(key, value),
        (35..75, true) | (35..50, false) => Insert(key, value),
        _ => Remove(key),
    }
}

/// `count` operations on `keys` keys that come and go: splits, merges, recycled entries. The tree
/// grows in the first half and shrinks in the second.
pub fn random_operations(seed: u64, count: usize, keys: u64, mix: Mix) -> Vec<IndexOperation> {
    let mut numbers = Numbers::of_seed(seed);
    let mut operations = Vec::with_capacity(count);
    for position in 0..count {
        let key = numbers.below(keys);
        let chance = numbers.below(100);
        operations.push(mix(chance, key, position as u64, position < count / 2));
    }
    operations
}

/// Numbers that a seed decides on every machine.
pub(super) struct Numbers {
    state: u64,
}

impl Numbers {
    pub(super) fn of_seed(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number, below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % bound
    }
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
        GetMany(one, other) => format!("a{one}={other}"),
        Load(from, to) => format!("l{from}={to}"),
        Scan(from, to) => format!("f{from}={to}"),
        ScanBack(from, to) => format!("b{from}={to}"),
        Visit(from, to) => format!("v{from}={to}"),
        Sync => "s".to_owned(),
        Reopen => "o".to_owned(),
        Mark => "m".to_owned(),
        Compact => "c".to_owned(),
        Evacuate => "e".to_owned(),
        DropTree => "d".to_owned(),
    });
    words.collect::<Vec<_>>().join(".")
}

/// The operations that a word stands for.
pub fn from_word(word: &str) -> Result<Vec<IndexOperation>, Complaint> {
    word.split('.')
        .filter(|part| !part.is_empty())
        .map(operation)
        .collect()
}

fn operation(part: &str) -> Result<IndexOperation, Complaint> {
    let bad = || {
        format!(
            "no operation: {part:?}; one is as i10=7, u10=7, p10=7, r10, x10=7-8, g10, a1=9, l1=9, f1=9, b1=9, v1=9, s, o, m, c, e or d"
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
        "a" => pair().and_then(|(one, other)| Ok(GetMany(one, number(other)?))),
        "l" => pair().and_then(|(from, to)| Ok(Load(from, number(to)?))),
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
        "m" if rest.is_empty() => Ok(Mark),
        "c" if rest.is_empty() => Ok(Compact),
        "e" if rest.is_empty() => Ok(Evacuate),
        "d" if rest.is_empty() => Ok(DropTree),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests;
