//! The engines by name.

use clap::ValueEnum;
use engines::index::{RecordCodec, WordCodec};
use sim::index::RnTreeEngine;

use super::explore::run;
use super::report::Report;
use super::{Args, CodecName};
use crate::context::Context;
use crate::failure::Failure;

/// Engines, each by a line: its name, its type, the entries of a leaf in small scopes and at full size.
macro_rules! engines {
    ($($(#[$doc:meta])* $name:ident: $engine:ident, $small:literal, $full:literal;)*) => {
        /// The engines that can be crashed.
        #[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum EngineName {
            $($(#[$doc])* $name),*
        }

        /// Explores what the arguments say.
        pub(super) fn explore(args: &Args, context: Context) -> Result<Report, Failure> {
            match (args.engine, args.codec, args.exhaustive) {
                $(
                    (EngineName::$name, CodecName::Word, true) => {
                        run(&$engine::<WordCodec, $small>::default, args, context)
                    }
                    (EngineName::$name, CodecName::Word, false) => {
                        run(&$engine::<WordCodec, $full>::default, args, context)
                    }
                    (EngineName::$name, CodecName::Record, true) => {
                        run(&$engine::<RecordCodec, $small>::default, args, context)
                    }
                    (EngineName::$name, CodecName::Record, false) => {
                        run(&$engine::<RecordCodec, $full>::default, args, context)
                    }
                )*
            }
        }
    };
}

engines! {
    Rntree: RnTreeEngine, 4, 56;
}
