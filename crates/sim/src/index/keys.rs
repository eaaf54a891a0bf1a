//! Numbers as keys and values.

/// The bytes of a stride of a key in [`KeyShape::Layers`]: a slice of `masstree`.
const SLICE_BYTES: usize = 8;
/// Keys of [`KeyShape::Layers`] that differ by zeros at their end alone.
const TIES: u64 = 10;
/// Paths below each first slice of [`KeyShape::Layers`]: the number of slices of zeros, and of
/// tildes behind them.
const PATHS: [(usize, usize); 5] = [(0, 0), (2, 0), (2, 1), (2, 2), (0, 2)];
/// Zeros at the end of a key that belong to its path; fewer than [`TIES`] more belong to its tie.
const ZEROS_OF_PATH: usize = 2 * SLICE_BYTES;

/// How numbers become keys and values. Keys sort as their numbers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyShape {
    /// Eight bytes each.
    Words,
    /// Keys of ten bytes and a few more, which share their first eight; values of several lengths.
    Records,
    /// Keys of 8 to 50 bytes for layers below layers, with the values of records. A key is a first
    /// slice, a path of 0 to 4 slices, and some zeros. The last digit of the number is the number
    /// of zeros, the part before it chooses one of five paths, the rest is the first slice. So keys
    /// share 8, 16 or 24 bytes behind their first slice, or differ by zeros alone, and some keys
    /// end where a layer begins.
    Layers,
}

impl KeyShape {
    /// The bytes of a key.
    pub(super) fn key_bytes(self, key: u64) -> Vec<u8> {
        match self {
            Self::Words => key.to_be_bytes().to_vec(),
            Self::Records => {
                let mut bytes = vec![b'k'; 6];
                bytes.extend_from_slice(&key.to_be_bytes()[4..]);
                bytes.extend(std::iter::repeat_n(b'+', (key % 4) as usize));
                bytes
            }
            Self::Layers => {
                let rest = key / TIES;
                let ties = (key % TIES) as usize;
                let first = rest / PATHS.len() as u64;
                let path = (rest % PATHS.len() as u64) as usize;
                let (zeros, tildes) = PATHS[path];
                let mut bytes = vec![b'k'];
                bytes.extend_from_slice(&first.to_be_bytes()[1..]);
                bytes.resize(bytes.len() + SLICE_BYTES * zeros, 0);
                bytes.resize(bytes.len() + SLICE_BYTES * tildes, b'~');
                bytes.resize(bytes.len() + ties, 0);
                bytes
            }
        }
    }

    /// The number of a key; `None` if no number has these bytes.
    pub(super) fn key_number(self, bytes: &[u8]) -> Option<u64> {
        let of_part = |part: &[u8]| {
            part.iter()
                .fold(0, |number: u64, byte| number << 8 | u64::from(*byte))
        };
        let number = match self {
            Self::Words => of_part(bytes),
            Self::Records => of_part(bytes.get(6..10)?),
            Self::Layers => {
                let (first, behind) = bytes.split_at_checked(SLICE_BYTES)?;
                let tildes: usize = behind.iter().map(|byte| usize::from(*byte == b'~')).sum();
                let leading = behind.iter().take_while(|byte| **byte == 0).count();
                let (zeros, ties) = match tildes {
                    0 if leading < ZEROS_OF_PATH => (0, leading),
                    0 => (ZEROS_OF_PATH, leading - ZEROS_OF_PATH),
                    _ => (leading, behind.len() - leading - tildes),
                };
                let is_path =
                    |(z, t): &(usize, usize)| (z * SLICE_BYTES, t * SLICE_BYTES) == (zeros, tildes);
                let path = PATHS.iter().position(is_path)? as u64;
                (of_part(&first[1..]) * PATHS.len() as u64 + path).checked_mul(TIES)? + ties as u64
            }
        };
        (self.key_bytes(number) == bytes).then_some(number)
    }

    /// The bytes of a value.
    pub(super) fn value_bytes(self, value: u64) -> Vec<u8> {
        let mut bytes = value.to_be_bytes().to_vec();
        if self != Self::Words && [LONG_VALUE, THIRD_VALUE].contains(&value) {
            bytes.resize(value as usize, 7);
        } else if self != Self::Words && value == LINE_VALUE {
            bytes.resize(40, 7);
        } else if self != Self::Words {
            bytes.extend((0..value % 11).map(|index| (value + index) as u8));
        }
        bytes
    }

    /// The number of a value; `None` if no number has these bytes.
    pub(super) fn value_number(self, bytes: &[u8]) -> Option<u64> {
        let number = u64::from_be_bytes(*bytes.first_chunk::<8>()?);
        (self.value_bytes(number) == bytes).then_some(number)
    }
}

/// The number of a value that, with records, is longer than any slot of a slab.
pub const LONG_VALUE: u64 = 70_000;

/// The number of a value that, with records, is so long that three of its records fill a slab.
pub const THIRD_VALUE: u64 = 16_000;

/// The number of a value that, with records and a short key, gives a record which fits into a line
/// but not into half of one.
pub(super) const LINE_VALUE: u64 = 60_000;

#[cfg(test)]
mod tests;
