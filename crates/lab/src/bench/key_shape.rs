//! Keys as people have them: with a common beginning, of several lengths, or in ascending order.
//!
//! A key is made of a *word*, of which only the upper [`KeyShape::bits`] count. Different words make
//! different keys, and keys sort as their words do. So everything that sorts or counts words is
//! right for keys of every shape.

use std::ops::{Deref, RangeInclusive};

use clap::ValueEnum;
use serde::Serialize;

use super::keys::Keys;

/// No key is longer.
const KEY_BYTES_MAX: usize = 64;
/// The room of a piece. A piece is copied with its room, because a copy of a fixed size is faster.
const PIECE_BYTES: usize = 16;

const PREFIX_START: &[u8; 14] = b"tenant42/user/";
const TIME_START: &[u8; 17] = b"event/2026-11-27T";
const URL_START: &[u8; 20] = b"https://www.example-";

/// The kinds of entries of a tenant, a number of two bits.
const KINDS: [Piece; 4] = pieces(["account/", "invoice/", "order/", "user/"]);

/// The paths of a host, a number of four bits. None is the beginning of another.
const PATHS: [Piece; 16] = pieces([
    "about/",
    "api/v2/",
    "blog/archive/",
    "blog/posts/",
    "docs/guide/",
    "docs/ref/",
    "events/",
    "help/",
    "images/large/",
    "images/small/",
    "news/",
    "products/",
    "shop/cart/",
    "shop/garden/",
    "users/",
    "wiki/",
]);

/// The words of a page's name, a number of five bits.
const PAGE_WORDS: [Piece; 32] = pieces([
    "amber-", "apple-", "autumn-", "bird-", "blue-", "bread-", "candle-", "city-", "cloud-",
    "copper-", "dawn-", "desert-", "ember-", "field-", "forest-", "fox-", "garden-", "glass-",
    "harbour-", "island-", "kettle-", "lantern-", "maple-", "meadow-", "moon-", "oak-", "paper-",
    "river-", "silver-", "summer-", "thunder-", "winter-",
]);

/// A syllable is one of these letters and one of [`RIMES`]. None is the beginning of another.
const ONSETS: &[u8; 16] = b"bdfghklmnprstvwz";
const RIMES: [Piece; 4] = pieces(["a", "en", "ist", "o"]);
/// Syllables of a word. Each is a number of six bits.
const SYLLABLES: u32 = 6;

/// A part of a key, with room behind it.
#[derive(Clone, Copy)]
struct Piece {
    bytes: [u8; PIECE_BYTES],
    length: usize,
}

/// Pieces with these texts.
const fn pieces<const N: usize>(texts: [&str; N]) -> [Piece; N] {
    let empty = Piece {
        bytes: [0; PIECE_BYTES],
        length: 0,
    };
    let mut pieces = [empty; N];
    let mut index = 0;
    while index < N {
        let text = texts[index].as_bytes();
        pieces[index].length = text.len();
        let mut place = 0;
        while place < text.len() {
            pieces[index].bytes[place] = text[place];
            place += 1;
        }
        index += 1;
    }
    pieces
}

/// A key.
#[derive(Clone, Copy)]
pub struct ShapedKey {
    /// The key, and room for a piece behind the longest one.
    bytes: [u8; KEY_BYTES_MAX + PIECE_BYTES],
    length: usize,
}

impl ShapedKey {
    fn new() -> Self {
        Self {
            bytes: [0; KEY_BYTES_MAX + PIECE_BYTES],
            length: 0,
        }
    }

    #[inline]
    fn push<const N: usize>(&mut self, part: &[u8; N]) {
        self.bytes[self.length..self.length + N].copy_from_slice(part);
        self.length += N;
    }

    #[inline]
    fn push_piece(&mut self, piece: &Piece) {
        self.bytes[self.length..self.length + PIECE_BYTES].copy_from_slice(&piece.bytes);
        self.length += piece.length;
    }
}

impl Deref for ShapedKey {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The shape of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyShape {
    /// Random bytes, which differ in the first ones
    #[default]
    Random,
    /// Random hex digits behind a common beginning: tenant42/user/9f86d081884c7d65
    Prefix,
    /// Tenants, kinds and random digits: tenant3/invoice/000000123456
    Tenants,
    /// Digits that ascend behind a common beginning: event/2026-11-27T000000123456
    Time,
    /// Addresses of pages, of several lengths: www.example-07.com/wiki/amber-forest-01f3c9
    Urls,
    /// Random syllables, of several lengths: bistdolenratenko
    Words,
}

impl KeyShape {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Prefix => "prefix",
            Self::Tenants => "tenants",
            Self::Time => "time",
            Self::Urls => "urls",
            Self::Words => "words",
        }
    }

    /// What the keys are made of, in words.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Random => "random bytes, which differ in the first ones",
            Self::Prefix => "a common beginning and 16 random hex digits",
            Self::Tenants => "8 tenants, 4 kinds and 12 random digits",
            Self::Time => "a common beginning and 12 digits, in ascending order",
            Self::Urls => "16 hosts, 16 paths, 1,024 names of pages and 6 random hex digits",
            Self::Words => "6 random syllables",
        }
    }

    /// How many upper bits of a word make the key; the other bits do not count.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::Random | Self::Prefix => u64::BITS,
            // Twelve digits hold 39 bits.
            Self::Tenants => 3 + 2 + 39,
            Self::Time => 39,
            Self::Urls => 4 + 4 + 5 + 5 + 24,
            Self::Words => 6 * SYLLABLES,
        }
    }

    /// The bytes of the shortest and of the longest key. Random keys may be made longer, see
    /// [`KeyShape::key`].
    #[must_use]
    pub fn key_bytes(self) -> RangeInclusive<usize> {
        match self {
            Self::Random => 8..=8,
            Self::Prefix => 30..=30,
            Self::Tenants => 25..=28,
            Self::Time => 29..=29,
            Self::Urls => 46..=62,
            Self::Words => 12..=24,
        }
    }

    /// The same in words, as `46 to 62`.
    #[must_use]
    pub fn key_bytes_in_words(self) -> String {
        let bytes = self.key_bytes();
        if bytes.start() == bytes.end() {
            bytes.end().to_string()
        } else {
            format!("{} to {}", bytes.start(), bytes.end())
        }
    }

    /// Whether keys ascend with their indices.
    #[must_use]
    pub fn is_ascending(self) -> bool {
        self == Self::Time
    }

    /// The word of an index. Different indices have different keys, if they are below two to the
    /// power of [`KeyShape::bits`].
    #[must_use]
    pub fn word(self, index: u64, seed: u64) -> u64 {
        let keys = if self.is_ascending() {
            Keys::ordered(index)
        } else {
            Keys::new(index, seed)
        };
        keys.with_bits(self.bits()).key(index)
    }

    /// The key of a word. Random keys are the eight bytes of the word; a caller that needs longer
    /// ones appends to them.
    #[must_use]
    pub fn key(self, word: u64) -> ShapedKey {
        let number = word >> (u64::BITS - self.bits());
        let mut key = ShapedKey::new();
        match self {
            Self::Random => key.push(&word.to_be_bytes()),
            Self::Prefix => {
                key.push(PREFIX_START);
                key.push(&hex_digits::<16>(number));
            }
            Self::Tenants => {
                key.push(b"tenant");
                key.push(&[b'0' + (number >> 41) as u8, b'/']);
                key.push_piece(&KINDS[(number >> 39 & 3) as usize]);
                key.push(&decimal_digits::<12>(number & ((1 << 39) - 1)));
            }
            Self::Time => {
                key.push(TIME_START);
                key.push(&decimal_digits::<12>(number));
            }
            Self::Urls => {
                key.push(URL_START);
                key.push(&decimal_digits::<2>(number >> 38));
                key.push(b".com/");
                key.push_piece(&PATHS[(number >> 34 & 15) as usize]);
                key.push_piece(&PAGE_WORDS[(number >> 29 & 31) as usize]);
                key.push_piece(&PAGE_WORDS[(number >> 24 & 31) as usize]);
                key.push(&hex_digits::<6>(number));
            }
            Self::Words => {
                for place in (0..SYLLABLES).rev() {
                    let syllable = number >> (6 * place);
                    key.push(&[ONSETS[(syllable >> 2 & 15) as usize]]);
                    key.push_piece(&RIMES[(syllable & 3) as usize]);
                }
            }
        }
        key
    }
}

/// The last `N` hex digits of a number.
fn hex_digits<const N: usize>(number: u64) -> [u8; N] {
    let mut digits = [0; N];
    for (place, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * place) & 15) as usize];
    }
    digits
}

/// The last `N` decimal digits of a number. `N` is even: two digits cost one division.
fn decimal_digits<const N: usize>(mut number: u64) -> [u8; N] {
    let mut digits = [0; N];
    for pair in digits.chunks_exact_mut(2).rev() {
        let both = (number % 100) as u8;
        pair[0] = b'0' + both / 10;
        pair[1] = b'0' + both % 10;
        number /= 100;
    }
    digits
}

#[cfg(test)]
mod tests;
