//! The engines by name.

use clap::ValueEnum;
use sim::index::{self, AnyEngine, Size};

/// The engines that can be crashed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EngineName {
    Rntree,
    Bztree,
    Masstree,
}

/// How entries are coded.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CodecName {
    /// Byte strings
    Record,
    /// Numbers of 64 bits
    Word,
    /// Byte strings of which many share several slices of eight bytes, or differ by zeros at their end alone: layers below
    /// layers in masstree
    Layers,
}

/// The engine of these names.
pub(super) fn engine(name: EngineName, codec: CodecName, size: Size) -> AnyEngine {
    let name = match name {
        EngineName::Rntree => index::EngineName::RnTree,
        EngineName::Bztree => index::EngineName::BzTree,
        EngineName::Masstree => index::EngineName::MassTree,
    };
    let codec = match codec {
        CodecName::Record => index::CodecName::Record,
        CodecName::Word => index::CodecName::Word,
        CodecName::Layers => index::CodecName::Layers,
    };
    index::engine(name, codec, size)
}
