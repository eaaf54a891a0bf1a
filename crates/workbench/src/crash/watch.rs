//! Explores in a child process that is watched, so that a recovery which loops without using the
//! medium, overflows its stack or aborts is reported as a violation.

use std::process::Command;
use std::time::{Duration, Instant};

use sim::watchdog::{self, ProcessEnd};

use super::Args;
use super::report::{FailedRecovery, Report};
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};

/// Runs this command again in a child process, which prints the report. If the child does not
/// finish, prints one for it.
pub(super) fn run(args: &Args, context: Context) -> Outcome {
    let start = Instant::now();
    let program = std::env::current_exe().map_err(Failure::io("find this program"))?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    let seed = args.seed();
    if args.seed.is_none() && args.is_random() {
        // The seed is chosen here, so that it is known even if the child fails.
        command.arg(format!("--seed={seed}"));
    }
    let watched = watchdog::watch(command, Duration::from_secs(args.patience));
    match watched.map_err(Failure::io("watch the exploration in a child process"))? {
        ProcessEnd::Exited(status) => Ok(Answer::Child(
            status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(1),
        )),
        ProcessEnd::Cut(ended) => {
            let whole = args.whole_command(seed);
            let violation = FailedRecovery::of_ended(&ended, &whole);
            let report = Report {
                stats: None,
                images_avoided: None,
                violations: 1,
                seconds: start.elapsed().as_secs_f64(),
                first_violations: vec![violation],
                command: whole,
                ..Report::new(args, seed)
            };
            report.say(context)?;
            Ok(Answer::No)
        }
    }
}

/// Makes the child end with its parent. To be called in the child.
pub(super) fn end_with_parent() {
    // If the system cannot do that, the child of a killed parent ends when its exploration does.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}
