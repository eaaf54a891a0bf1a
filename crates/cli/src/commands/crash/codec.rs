//! How entries are coded, by name.

use clap::ValueEnum;
use sim::index;

/// How entries are coded.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CodecName {
    /// Byte strings
    Record,
    /// Numbers of 64 bits
    Word,
    /// Byte strings that share several slices of eight bytes, or differ only by zeros at their end:
    /// several layers of a trie
    Layers,
}

impl From<CodecName> for index::CodecName {
    fn from(codec: CodecName) -> Self {
        match codec {
            CodecName::Record => Self::Record,
            CodecName::Word => Self::Word,
            CodecName::Layers => Self::Layers,
        }
    }
}
