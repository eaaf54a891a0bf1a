//! `everleaf crash`: crashes an engine at every relevant moment, and checks every recovery.

mod codec;
mod explore;
mod replay;
mod report;
mod threads;
mod watch;

use std::num::NonZero;

use clap::ValueEnum;
use everleaf::Engine;
use medium::LineForm;
use sim::index::{AnyEngine, Size};
use sim::{Rules, watchdog};
use terminal::values::engine_of;

use codec::CodecArgument;
use replay::Repeat;
use report::ExplorationScope;
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::text::command_line;

/// The most operations of a sequence in small scopes: 12 choices each, from a few seed trees.
const LENGTH_MAX: u64 = 6;
/// The most operations of one random sequence: each crash is followed by operations on all keys
/// used before it, so the time grows with the square.
const SEQUENCE_MAX: u32 = 20_000;
/// Random images for each crash of a random sequence or program.
const RANDOM_IMAGES: u32 = 2;
/// The most threads.
const THREADS_MAX: i64 = 16;
/// Both shapes of records.
const ALL_RECORDS: [CodecArgument; 2] = [CodecArgument::Record, CodecArgument::Layers];
/// Minutes of random threads in the long profile.
const LONG_MINUTES: u64 = 60;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The engine
    #[arg(long, value_name = "NAME", value_parser = engine_of(lab::ENGINES))]
    engine: Engine,
    /// The codec of entries [default: record; with --exhaustive and one thread also layers, for a
    /// trie, with a report each]
    #[arg(long, value_enum)]
    codec: Option<CodecArgument>,
    /// Operations of the random sequence, at most 20,000; leaves have their full size. With
    /// --threads, operations of all random programs together
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    ops: u32,
    /// The seed of random choices [default: random]
    #[arg(long, conflicts_with = "exhaustive")]
    seed: Option<u64>,
    /// Explore every short sequence of 12 choices on a few seed trees instead, with leaves of four
    /// entries
    #[arg(long, conflicts_with = "ops")]
    exhaustive: bool,
    /// Operations of each sequence; one more takes twelve times as long
    #[arg(long, default_value_t = 3, requires = "exhaustive", conflicts_with = "threads", value_parser = clap::value_parser!(u64).range(1..=LENGTH_MAX))]
    length: u64,
    /// Explore this many threads: random programs under random schedules, with leaves of four
    /// entries. With --exhaustive, 2 or 3 threads with one operation each: every pair or triple on
    /// four seed trees, under every schedule
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(2..=THREADS_MAX))]
    threads: Option<u16>,
    /// The most preemptions: times that a thread is stopped although it could go on
    #[arg(long, value_name = "N", default_value_t = 2, requires_all = ["exhaustive", "threads"], value_parser = clap::value_parser!(u32).range(0..=8))]
    preemptions: u32,
    /// Explore random programs for this long, instead of a number of operations
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["ops", "exhaustive"], value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    minutes: Option<u64>,
    /// Explore for hours: all sequences of 4, all triples of threads, then an hour of random
    /// threads; with each codec. Prints a report for each, up to the first violation
    #[arg(long, conflicts_with_all = ["ops", "exhaustive", "threads", "codec", "replay", "images"])]
    long: bool,
    /// The memory model that says which crashes are possible
    #[arg(long, value_enum, default_value_t = MediumName::Dax)]
    medium: MediumName,
    /// The store of a 64-byte line
    #[arg(long, value_enum, default_value_t = Lines::Single)]
    lines: Lines,
    /// The images of each crash [default: some with --threads and for engines durable by epochs,
    /// else all]
    #[arg(long, value_enum)]
    images: Option<Images>,
    /// Where a second crash is tried [default: recovery if exhaustive with one thread, else never]
    #[arg(long, value_enum, value_name = "WHERE")]
    second_crash: Option<SecondCrash>,
    /// Cores to use [default: all; a random sequence of one thread needs one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Leave out the flush, fence, wait or store at this place in the source, to see the report of
    /// a mistake
    #[arg(long, value_name = "FILE:LINE")]
    leave_out: Option<String>,
    /// Report a recovery as a loop after this long without an operation on the medium: seconds of
    /// processor time, or asleep
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    patience: u64,
    /// Repeat one crash, in the form that a report gives
    #[arg(long, value_name = "CRASH", conflicts_with_all = ["seed", "ops", "length", "jobs", "minutes", "preemptions"])]
    replay: Option<Repeat>,
}

/// How far random programs go.
enum Length {
    Operations(u32),
    Minutes(u64),
}

/// The memory model.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum MediumName {
    /// Persistent memory: lines arrive at any time, in any order; a fence waits for those that were
    /// flushed
    Dax,
    /// Persistent memory and persistent caches: a store is durable at once
    Eadr,
    /// An ordinary file: a log of lines, written in groups; a wait makes groups durable
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

/// The form of lines.
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

/// The images of each crash that are tried.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Images {
    /// All that recovery can tell apart
    All,
    /// All lines old, all new, each line alone old or new; and two random ones, unless the scope is
    /// exhaustive
    Some,
}

/// Where a second crash is tried.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum SecondCrash {
    /// Nowhere
    Never,
    /// During recovery
    Recovery,
    /// During recovery and the operations after it
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
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Args {
    fn second_crash(&self) -> SecondCrash {
        let is_usual = self.exhaustive && self.threads.is_none();
        self.second_crash.unwrap_or(if is_usual {
            SecondCrash::Recovery
        } else {
            SecondCrash::Never
        })
    }

    /// Before an epoch ends none of its writes are durable, so recovery reads dozens of open lines:
    /// too many images to try all, with two crashes in a row.
    fn images(&self) -> Images {
        let are_many = self.threads.is_some() || self.engine.is_buffered();
        self.images
            .unwrap_or(if are_many { Images::Some } else { Images::All })
    }

    /// The explorer's option; an exhaustive scope has no random images.
    fn images_tried(&self) -> sim::Images {
        match self.images() {
            Images::All => sim::Images::All,
            Images::Some => sim::Images::Some {
                random: if self.exhaustive { 0 } else { RANDOM_IMAGES },
            },
        }
    }

    fn codec(&self) -> CodecArgument {
        self.codec.unwrap_or(CodecArgument::Record)
    }

    fn engine(&self) -> AnyEngine {
        let size = if self.exhaustive || self.threads.is_some() {
            Size::Small
        } else {
            Size::Full
        };
        sim::index::engine(self.engine, self.codec().into(), size)
    }

    /// Whether the seed matters.
    fn is_random(&self) -> bool {
        !self.exhaustive && self.replay.is_none()
    }

    /// The seed; a new one at each call, if none is given and it matters.
    fn seed(&self) -> u64 {
        self.seed
            .unwrap_or_else(|| if self.is_random() { rand::random() } else { 1 })
    }

    /// Cores to use.
    fn workers(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        self.jobs.map_or(cores, usize::from)
    }

    fn extent(&self) -> Length {
        self.minutes
            .map_or(Length::Operations(self.ops), Length::Minutes)
    }

    /// The command, without the exploration's own arguments.
    fn command(&self) -> String {
        let mut command = format!("everleaf crash --engine {}", self.engine);
        if !self.long {
            command += &format!(" --codec {}", name(&self.codec()));
        }
        command += &format!(
            " --medium {} --lines {}",
            name(&self.medium),
            name(&self.lines)
        );
        // With --long each part has its own value, unless one was given.
        if let Some(second_crash) = self
            .second_crash
            .or((!self.long).then(|| self.second_crash()))
        {
            command += &format!(" --second-crash {}", name(&second_crash));
        }
        if let Some(images) = &self.images {
            command += &format!(" --images {}", name(images));
        }
        if self.exhaustive {
            command += " --exhaustive";
        }
        if let Some(threads) = self.threads {
            command += &format!(" --threads {threads}");
        }
        if let Some(place) = &self.leave_out {
            command += &format!(" --leave-out {}", command_line([place]));
        }
        command
    }

    /// The command that repeats all explorations.
    fn whole_command(&self, seed: u64) -> String {
        let command = self.command();
        if self.long {
            let minutes = self
                .minutes
                .map_or_else(String::new, |minutes| format!(" --minutes {minutes}"));
            return format!("{command} --long{minutes} --seed {seed}");
        }
        match (&self.replay, self.exhaustive, self.extent()) {
            (Some(repeat), ..) => repeat.command(&command),
            (None, true, _) if self.threads.is_some() => {
                format!("{command} --preemptions {}", self.preemptions)
            }
            (None, true, _) => format!("{command} --length {}", self.length),
            (None, false, Length::Operations(count)) => {
                format!("{command} --ops {count} --seed {seed}")
            }
            (None, false, Length::Minutes(minutes)) => {
                format!("{command} --minutes {minutes} --seed {seed}")
            }
        }
    }

    /// The scope of the exploration.
    fn scope(&self, seed: u64) -> ExplorationScope {
        match (&self.replay, self.exhaustive, self.threads) {
            _ if self.long => ExplorationScope::Long,
            (Some(_), ..) => ExplorationScope::OneCrash,
            (None, true, None) => ExplorationScope::AllSequences {
                length: self.length,
            },
            (None, true, Some(threads)) => ExplorationScope::AllSchedules {
                threads,
                preemptions: self.preemptions,
            },
            (None, false, None) => ExplorationScope::RandomSequence {
                length: self.ops,
                seed,
            },
            (None, false, Some(threads)) => ExplorationScope::RandomSchedules { threads, seed },
        }
    }

    /// The explorations that are asked for.
    fn parts(&self) -> Vec<Self> {
        let with = |codec: CodecArgument| Self {
            codec: Some(codec),
            ..self.clone()
        };
        if !self.long {
            let is_both = self.engine.is_trie
                && self.codec.is_none()
                && self.exhaustive
                && self.threads.is_none()
                && self.replay.is_none();
            return if is_both {
                ALL_RECORDS.map(with).into()
            } else {
                vec![with(self.codec())]
            };
        }
        let of_codec = |codec: CodecArgument| {
            let all = Self {
                codec: Some(codec),
                exhaustive: true,
                long: false,
                minutes: None,
                ..self.clone()
            };
            let minutes = Some(self.minutes.unwrap_or(LONG_MINUTES));
            [
                Self {
                    length: 4,
                    ..all.clone()
                },
                Self {
                    threads: Some(3),
                    ..all.clone()
                },
                Self {
                    threads: Some(3),
                    exhaustive: false,
                    minutes,
                    ..all
                },
            ]
        };
        let codecs = [CodecArgument::Word].into_iter().chain(ALL_RECORDS);
        codecs
            .filter(|codec| *codec != CodecArgument::Layers || self.engine.is_trie)
            .flat_map(of_codec)
            .collect()
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    if args.exhaustive && args.threads.is_some_and(|threads| threads > 3) {
        return Err(Failure::Usage(
            "--exhaustive takes 2 or 3 threads, as more have too many schedules; leave it out for random ones"
                .to_owned(),
        ));
    }
    if args.minutes.is_some() && args.threads.is_none() && !args.long {
        return Err(Failure::Usage(
            "--minutes is for random programs: give --threads, or --long".to_owned(),
        ));
    }
    let is_sequence = !args.exhaustive && !args.long && args.threads.is_none();
    if is_sequence && args.ops > SEQUENCE_MAX {
        return Err(Failure::Usage(format!(
            "--ops {}: a sequence has at most {SEQUENCE_MAX} operations, as the time to crash it everywhere grows with the \
             square; explore several of them, by --seed, or random threads, by --threads",
            args.ops
        )));
    }
    if !watchdog::is_watched() {
        return watch::run(args, context);
    }
    watch::end_with_parent();
    for part in args.parts() {
        let report = explore::run(&part, context)?;
        report.say(context)?;
        if !report.is_sound() {
            return Ok(Answer::No);
        }
        if let Some(repeat) = &args.replay {
            let came = report.stats.is_some_and(|stats| stats.points > 0)
                || repeat.crashes.crashes.is_empty();
            context.note(if came {
                "the crash that was repeated does no harm; is it the build that the report came from?"
            } else {
                "these operations do not come to that crash; is it the build, and are these the other arguments, that the \
                 report came from?"
            });
        }
    }
    Ok(Answer::Yes)
}

/// A place in the source, as `--leave-out` names it.
fn parse_place(text: &str) -> Result<(&str, u32), Failure> {
    let place = text
        .rsplit_once(':')
        .and_then(|(file, line)| Some((file, line.parse().ok()?)));
    place.ok_or_else(|| {
        Failure::Usage(format!(
            "{text:?} is no place in the source; give FILE:LINE"
        ))
    })
}

#[cfg(test)]
mod tests;
