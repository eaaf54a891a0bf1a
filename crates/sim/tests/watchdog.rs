//! Recoveries that end or block their process: each gives a report that says where.

use std::process::Command;
use std::sync::Once;
use std::time::Duration;

use everleaf_sim::watchdog::{self, Ended, ProcessEnd};
use everleaf_sim::{Complaint, ExplorationOptions, Explorer, Images, Subject};
use medium::sim::Sim;
use medium::{Medium, MediumGuard};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Nothing,
    /// If the counter has changed, recovery loops without an access to the medium.
    Loops,
    /// It aborts the process.
    Aborts,
    /// It calls itself for ever.
    Overflows,
    /// It waits for ever.
    Sleeps,
    /// The process is stopped for a while.
    IsStopped,
}

/// The variables with the child's fault, the images that it tries, and the crash that it repeats.
const VARIABLE: &str = "EVERLEAF_TEST_FAULT";
const IMAGES: &str = "EVERLEAF_TEST_IMAGES";
const REPLAY: &str = "EVERLEAF_CRASH";

/// Once is enough.
static STOPPED: Once = Once::new();

/// A counter.
struct Counter(Fault);

fn descend(depth: u64) -> u64 {
    let here = std::hint::black_box([depth; 64]);
    if depth == u64::MAX {
        here[0]
    } else {
        descend(depth + 1) + here[63]
    }
}

impl Subject for Counter {
    /// Count up.
    type Operation = ();
    type Outcome = ();
    type State = u64;
    type Instance = Sim;

    fn initial(&self) -> u64 {
        0
    }

    fn step(&self, state: &mut u64, _operation: &()) {
        *state += 1;
    }

    fn open(&self, sim: &Sim) -> Result<Sim, Complaint> {
        sim.grow(4096).map_err(|error| error.to_string())?;
        if self.observe(&mut sim.clone())? == 2 {
            match self.0 {
                Fault::Nothing => {}
                Fault::Loops => loop {
                    std::thread::yield_now();
                },
                Fault::Aborts => std::process::abort(),
                Fault::Overflows => drop(std::hint::black_box(descend(0))),
                Fault::Sleeps => loop {
                    std::thread::park();
                },
                Fault::IsStopped => STOPPED.call_once(|| {
                    let stop = format!(
                        "kill -STOP {0}; sleep 4; kill -CONT {0}",
                        std::process::id()
                    );
                    Command::new("sh")
                        .args(["-c", &stop])
                        .status()
                        .expect("a shell");
                }),
            }
        }
        Ok(sim.clone())
    }

    fn apply(&self, sim: &mut Sim, _operation: &()) -> Result<(), Complaint> {
        let guard = MediumGuard::new(&*sim);
        let word = &guard.words(64, 1).map_err(|bad| bad.to_string())?[0];
        word.publish(&guard, word.load(&guard) + 1);
        guard.drain().map_err(|error| error.to_string())
    }

    fn observe(&self, sim: &mut Sim) -> Result<u64, Complaint> {
        let guard = MediumGuard::new(&*sim);
        Ok(guard.words(64, 1).map_err(|bad| bad.to_string())?[0].load(&guard))
    }
}

/// The test that runs in the child; without the variables it does nothing.
#[test]
fn child() {
    let Ok(fault) = std::env::var(VARIABLE) else {
        return;
    };
    let faults = [
        Fault::Nothing,
        Fault::Loops,
        Fault::Aborts,
        Fault::Overflows,
        Fault::Sleeps,
        Fault::IsStopped,
    ];
    let fault = faults
        .into_iter()
        .find(|known| format!("{known:?}") == fault)
        .unwrap();
    assert!(watchdog::is_watched());
    let images = if std::env::var_os(IMAGES).is_some() {
        Images::Some { random: 1 }
    } else {
        Images::All
    };
    let replay = std::env::var(REPLAY).ok().map(|text| text.parse().unwrap());
    let mut explorer = Explorer::new(
        Counter(fault),
        ExplorationOptions {
            images,
            replay,
            ..ExplorationOptions::default()
        },
    )
    .unwrap();
    explorer.explore(&[(), (), ()]).unwrap();
}

fn watch(fault: Fault, limit: Duration) -> Result<bool, Ended> {
    watch_with(fault, limit, &[])
}

fn watch_with(fault: Fault, limit: Duration, variables: &[(&str, &str)]) -> Result<bool, Ended> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child", "--test-threads", "1"])
        .env(VARIABLE, format!("{fault:?}"));
    command
        .envs(variables.iter().copied())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    match watchdog::watch(command, limit).unwrap() {
        ProcessEnd::Exited(status) => Ok(status.success()),
        ProcessEnd::Cut(ended) => Err(ended),
    }
}

#[test]
fn a_recovery_that_loops_aborts_or_overflows_is_a_report() {
    let long = Duration::from_secs(300);
    assert_eq!(watch(Fault::Nothing, long), Ok(true));
    let short = Duration::from_secs(2);
    for (fault, limit) in [
        (Fault::Loops, short),
        (Fault::Sleeps, short),
        (Fault::Aborts, long),
        (Fault::Overflows, long),
    ] {
        let ended = watch(fault, limit).expect_err("a fault that was not noticed");
        let report = ended.to_string();
        println!("{fault:?}: {report}\n");
        let what = if limit == short {
            "made no progress for 2s"
        } else {
            "died of signal"
        };
        assert!(report.contains(what), "{report}");
        // The first crash that leaves a 2 is the one in the second operation.
        assert!(
            report.contains("operation 2: ()") && report.contains("EVERLEAF_CRASH="),
            "{report}"
        );
    }
}

/// Whichever images are tried, the report repeats the crash that caused the loop.
#[test]
fn the_replay_of_a_report_opens_the_same_image() {
    let long = Duration::from_secs(300);
    for variables in [vec![], vec![(IMAGES, "some")]] {
        let ended =
            watch_with(Fault::Aborts, long, &variables).expect_err("a fault that was not noticed");
        let crash = ended.doing[0].crash.as_str();
        println!("{variables:?}: {crash}");
        let again = [variables.as_slice(), &[(REPLAY, crash)]].concat();
        let repeated =
            watch_with(Fault::Aborts, long, &again).expect_err("the replay does no harm");
        assert_eq!(repeated.doing[0].crash, crash);
    }
}

/// Only processor time counts: a process that is stopped, or gets no processor time, is no loop.
#[test]
fn a_process_that_is_stopped_for_a_while_is_no_report() {
    assert_eq!(watch(Fault::IsStopped, Duration::from_secs(2)), Ok(true));
}
