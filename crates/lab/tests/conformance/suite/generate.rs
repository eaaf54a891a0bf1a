//! Keys, values and operations to test with.

use engines::index::{Bounds, Condition, Direction};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::harness::{Cell, Closing, Kind};

/// A key by its number in the case's table, or any bytes at all.
#[derive(Clone, Debug)]
pub enum KeyRef {
    /// A key of the table.
    Table(usize),
    /// Bytes that need not be a key.
    Bytes(Vec<u8>),
}

/// One end of a range.
#[derive(Clone, Debug)]
pub enum Edge {
    /// No end.
    Open,
    /// This key too.
    Included(KeyRef),
    /// This key not.
    Excluded(KeyRef),
}

/// The expectation of `compare_exchange`.
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// The key is absent.
    Absent,
    /// The present value of the key, if it has one.
    Current,
    /// This value.
    Value(u32),
}

/// A condition, its value by number.
pub type ConditionOf = Condition<Expected>;

/// One operation. Keys are numbers in the case's table (modulo its length), values are numbers too
/// ([`value`]); `words` asks for the fast path, where there is one.
#[derive(Clone, Debug)]
pub enum Op {
    Insert {
        key: usize,
        value: u32,
    },
    Update {
        key: usize,
        value: u32,
    },
    Put {
        key: usize,
        value: u32,
    },
    Remove {
        key: usize,
    },
    CompareExchange {
        key: usize,
        expected: Expected,
        new: Option<u32>,
    },
    Write {
        key: usize,
        value: Option<u32>,
        condition: ConditionOf,
        words: bool,
    },
    Get {
        key: usize,
        words: bool,
    },
    GetMany {
        keys: Vec<usize>,
        words: bool,
    },
    Range {
        lower: Edge,
        upper: Edge,
        direction: Direction,
        limit: usize,
    },
    Prefix {
        bytes: KeyRef,
        cut: usize,
        direction: Direction,
    },
    WordScan {
        from: u64,
        limit: usize,
    },
    InsertRun {
        first: usize,
        count: usize,
        value: u32,
    },
    RemoveRun {
        first: usize,
        count: usize,
    },
    Len,
    Check,
    Reopen {
        how: Closing,
    },
}

/// A table of keys, and what to do with them.
#[derive(Clone, Debug)]
pub struct Case {
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// The operations.
    pub ops: Vec<Op>,
}

/// Value number `number`: in records of a length that follows from it, mostly short.
pub fn value(kind: Kind, number: u32) -> Vec<u8> {
    let word = u64::from(number)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(u64::from(number));
    if kind == Kind::Word {
        return word.to_be_bytes().to_vec();
    }
    let length = match number % 64 {
        0 => 70_000,
        1..=3 => 5_000,
        4..=8 => 333,
        9..=12 => 0,
        other => other as usize - 12,
    };
    word.to_le_bytes()
        .iter()
        .copied()
        .cycle()
        .take(length)
        .collect()
}

fn word_key() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        6 => 0..400u64,
        1 => (0..3u64).prop_map(|below| u64::MAX - below),
        1 => (0..4u64).prop_map(|above| (1 << 63) - 2 + above),
        2 => (0..8u64).prop_map(|high| high << 56),
        4 => any::<u64>(),
    ];
    word.prop_map(|word| word.to_be_bytes().to_vec())
}

fn awkward_byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0), Just(1), Just(b'a'), Just(255)]
}

/// Bytes of which many share a beginning.
pub fn awkward_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        // Prefixes of each other, zeros, the empty key.
        8 => vec(awkward_byte(), 0..12),
        // Alike in the first 8 bytes, different behind.
        6 => vec(awkward_byte(), 0..12).prop_map(|tail| [b"8 bytes:".to_vec(), tail].concat()),
        3 => (0..200u32).prop_map(|number| format!("user/{number:08}/name").into_bytes()),
        // Alike in 7, 21, 49 or 280 bytes, and of different lengths.
        3 => (0..4usize, 0..1500u32).prop_map(|(depth, number)| {
            format!("{}{number}", "shared/".repeat([1, 3, 7, 40][depth])).into_bytes()
        }),
        3 => vec(any::<u8>(), 0..20),
        1 => (awkward_byte(), 1..400usize).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn keys(cell: &Cell) -> impl Strategy<Value = Vec<Vec<u8>>> + use<> {
    let most = if cell.capacity == 4 { 48 } else { 320 };
    let key = if cell.kind == Kind::Word {
        word_key().boxed()
    } else {
        awkward_bytes().boxed()
    };
    vec(key, 1..most)
}

fn key_ref() -> impl Strategy<Value = KeyRef> {
    prop_oneof![
        4 => any::<u16>().prop_map(|key| KeyRef::Table(usize::from(key))),
        1 => awkward_bytes().prop_map(KeyRef::Bytes),
    ]
}

fn edge() -> impl Strategy<Value = Edge> {
    prop_oneof![
        1 => Just(Edge::Open),
        2 => key_ref().prop_map(Edge::Included),
        2 => key_ref().prop_map(Edge::Excluded),
    ]
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Forward), Just(Direction::Reverse)]
}

fn expected() -> impl Strategy<Value = Expected> {
    prop_oneof![
        2 => Just(Expected::Absent),
        4 => Just(Expected::Current),
        1 => any::<u32>().prop_map(Expected::Value),
    ]
}

fn condition() -> impl Strategy<Value = ConditionOf> {
    prop_oneof![
        Just(Condition::Always),
        Just(Condition::Absent),
        Just(Condition::Present),
        expected().prop_map(Condition::Equals),
    ]
}

fn write() -> impl Strategy<Value = Op> {
    let key = || any::<u16>().prop_map(usize::from);
    let value = any::<u32>;
    let some = || proptest::option::weighted(0.7, any::<u32>());
    prop_oneof![
        4 => (key(), value()).prop_map(|(key, value)| Op::Insert { key, value }),
        2 => (key(), value()).prop_map(|(key, value)| Op::Update { key, value }),
        2 => (key(), value()).prop_map(|(key, value)| Op::Put { key, value }),
        3 => key().prop_map(|key| Op::Remove { key }),
        2 => (key(), expected(), some())
            .prop_map(|(key, expected, new)| Op::CompareExchange { key, expected, new }),
        2 => (key(), some(), condition(), any::<bool>())
            .prop_map(|(key, value, condition, words)| Op::Write { key, value, condition, words }),
        2 => (key(), 1..120usize, value())
            .prop_map(|(first, count, value)| Op::InsertRun { first, count, value }),
        1 => (key(), 1..120usize).prop_map(|(first, count)| Op::RemoveRun { first, count }),
    ]
}

fn read() -> impl Strategy<Value = Op> {
    let key = || any::<u16>().prop_map(usize::from);
    prop_oneof![
        4 => (key(), any::<bool>()).prop_map(|(key, words)| Op::Get { key, words }),
        2 => (vec(key(), 0..40), any::<bool>()).prop_map(|(keys, words)| Op::GetMany { keys, words }),
        4 => (edge(), edge(), direction(), prop_oneof![Just(usize::MAX), 0..20usize])
            .prop_map(|(lower, upper, direction, limit)| Op::Range { lower, upper, direction, limit }),
        2 => (key_ref(), 0..12usize, direction())
            .prop_map(|(bytes, cut, direction)| Op::Prefix { bytes, cut, direction }),
        1 => (prop_oneof![0..400u64, any::<u64>()], 0..100usize)
            .prop_map(|(from, limit)| Op::WordScan { from, limit }),
        1 => Just(Op::Len),
        1 => Just(Op::Check),
    ]
}

fn reopen() -> impl Strategy<Value = Op> {
    prop_oneof![Just(Closing::Clean), Just(Closing::Crash)].prop_map(|how| Op::Reopen { how })
}

/// Cases for a cell.
pub fn case(cell: &Cell) -> impl Strategy<Value = Case> + use<> {
    let op = prop_oneof![20 => write(), 14 => read(), 1 => reopen()];
    (keys(cell), vec(op, 1..100)).prop_map(|(keys, ops)| Case { keys, ops })
}

impl Case {
    /// The key of a number.
    pub fn key(&self, number: usize) -> &[u8] {
        &self.keys[number % self.keys.len()]
    }

    /// The bytes that a range's end or a prefix names.
    pub fn bytes<'c>(&'c self, key: &'c KeyRef) -> &'c [u8] {
        match key {
            KeyRef::Table(number) => self.key(*number),
            KeyRef::Bytes(bytes) => bytes,
        }
    }

    /// The bounds of a range.
    pub fn bounds(&self, lower: &Edge, upper: &Edge) -> Bounds {
        use std::ops::Bound;
        let bound = |edge: &Edge| match edge {
            Edge::Open => Bound::Unbounded,
            Edge::Included(key) => Bound::Included(self.bytes(key).to_vec()),
            Edge::Excluded(key) => Bound::Excluded(self.bytes(key).to_vec()),
        };
        Bounds {
            lower: bound(lower),
            upper: bound(upper),
        }
    }
}
