//! `everleaf crash`: crashes an engine at every moment that matters, and judges every recovery.

mod engine;
mod explore;
mod replay;
mod report;

use clap::ValueEnum;
use medium::LineForm;
use sim::Rules;

use crate::context::Context;
use crate::failure::{Answer, Failure, Outcome};
use engine::EngineName;
use replay::Repeat;

/// The most operations of a sequence in small scopes: 12 choices each, from four seed trees.
const LENGTH_MAX: u64 = 6;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The engine
    #[arg(long, value_name = "NAME")]
    engine: EngineName,
    /// How entries are coded
    #[arg(long, value_enum, default_value_t = CodecName::Record)]
    codec: CodecName,
    /// Operations of the random sequence; leaves have their full size
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    ops: u32,
    /// The seed of the random sequence [default: random]
    #[arg(long, conflicts_with = "exhaustive")]
    seed: Option<u64>,
    /// Instead: every sequence of 12 choices on four seed trees, with leaves of four entries
    #[arg(long, conflicts_with = "ops")]
    exhaustive: bool,
    /// Operations of each sequence; each one more takes twelve times as long
    #[arg(long, default_value_t = 3, requires = "exhaustive", value_parser = clap::value_parser!(u64).range(1..=LENGTH_MAX))]
    length: u64,
    /// Whose crashes
    #[arg(long, value_enum, default_value_t = MediumName::Dax)]
    medium: MediumName,
    /// How 64-byte lines are stored
    #[arg(long, value_enum, default_value_t = Lines::Single)]
    lines: Lines,
    /// Where a second crash is tried [default: recovery if exhaustive, else never]
    #[arg(long, value_enum, value_name = "WHERE")]
    second_crash: Option<SecondCrash>,
    /// Cores to use [default: all; a random sequence needs one]
    #[arg(long, value_name = "N", requires = "exhaustive", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Leave out the flush, fence, wait or store called there, to see the report of a mistake
    #[arg(long, value_name = "FILE:LINE")]
    leave_out: Option<String>,
    /// Repeat one crash, as a report names it
    #[arg(long, value_name = "CRASH", conflicts_with_all = ["seed", "ops", "length", "jobs"])]
    replay: Option<Repeat>,
}

/// How entries are coded.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum CodecName {
    /// Byte strings
    Record,
    /// Numbers of 64 bits
    Word,
}

/// What a crash may leave.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum MediumName {
    /// Persistent memory: lines arrive at any time, in any order; a fence waits for those that were flushed
    Dax,
    /// Persistent memory and persistent caches: a store is durable at once
    Eadr,
    /// An ordinary file: a log of lines, written in groups; durable is what was waited for
    File,
}

impl MediumName {
    fn rules(self) -> Rules {
        match self {
            Self::Dax => Rules::Lines,
            Self::Eadr => Rules::PersistentCaches,
            Self::File => Rules::Log,
        }
    }
}

/// How lines are stored.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Lines {
    /// By one store of 64 bytes
    Single,
    /// As two copies that validate themselves, by eight stores of 8 bytes
    Twin,
}

impl Lines {
    fn form(self) -> LineForm {
        match self {
            Self::Single => LineForm::Single,
            Self::Twin => LineForm::Twin,
        }
    }
}

/// Where a second crash is tried.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum SecondCrash {
    /// Nowhere
    Never,
    /// During recovery
    Recovery,
    /// During recovery and what follows
    Anywhere,
}

impl From<SecondCrash> for sim::SecondCrash {
    fn from(name: SecondCrash) -> Self {
        match name {
            SecondCrash::Never => Self::Never,
            SecondCrash::Recovery => Self::InRecovery,
            SecondCrash::Anywhere => Self::Anywhere,
        }
    }
}

/// The name of a value on the command line.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Args {
    fn second_crash(&self) -> SecondCrash {
        let usual = if self.exhaustive { SecondCrash::Recovery } else { SecondCrash::Never };
        self.second_crash.unwrap_or(usual)
    }

    /// The command, up to what is explored.
    fn command(&self) -> String {
        let mut command = format!(
            "everleaf crash --engine {} --codec {} --medium {} --lines {} --second-crash {}",
            name(&self.engine),
            name(&self.codec),
            name(&self.medium),
            name(&self.lines),
            name(&self.second_crash()),
        );
        if self.exhaustive {
            command += " --exhaustive";
        }
        if let Some(place) = &self.leave_out {
            command += &format!(" --leave-out {place}");
        }
        command
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let report = engine::explore(args, context)?;
    let sound = report.is_sound();
    context.say(&report, report.words())?;
    if context.json
        && let Some(story) = report.story()
    {
        context.note(story);
    }
    if args.replay.is_some() && sound {
        context.note("the crash that was repeated does no harm; is it the build that the report came from?");
    }
    Ok(Answer::from_bool(sound))
}

/// A place in the source, as `--leave-out` names it.
fn parse_place(text: &str) -> Result<(&str, u32), Failure> {
    let place = text.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
    place.ok_or_else(|| Failure::Usage(format!("{text:?} is no place in the source; give FILE:LINE")))
}
