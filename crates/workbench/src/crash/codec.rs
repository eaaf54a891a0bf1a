//! How entries are coded, by name.

use clap::ValueEnum;
use sim::index;

/// How entries are coded.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CodecArgument {
    /// Byte strings
    Record,
    /// Numbers of 64 bits
    Word,
    /// Byte strings that share several slices of eight bytes, or differ only by zeros at their end:
    /// several layers of a trie
    Layers,
}

impl From<CodecArgument> for index::CodecName {
    fn from(codec: CodecArgument) -> Self {
        match codec {
            CodecArgument::Record => Self::Record,
            CodecArgument::Word => Self::Word,
            CodecArgument::Layers => Self::Layers,
        }
    }
}
