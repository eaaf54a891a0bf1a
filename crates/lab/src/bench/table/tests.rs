use clap::Parser;

use super::*;
use crate::bench::args::PoolMedium;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn args(given: &[&str]) -> Args {
    Command::parse_from(["bench"].iter().chain(given)).args
}

#[test]
fn workloads_of_ycsb_are_named_with_their_distributions() {
    let words = |given: &[&str]| workload_in_words(&args(given));
    assert_eq!(
        words(&["--workload", "a"]),
        "workload a (YCSB-A), zipfian keys (theta 0.99)"
    );
    assert_eq!(
        words(&["--workload", "d"]),
        "workload d (YCSB-D), latest keys (theta 0.99)"
    );
    let uniform = ["--workload", "e", "--distribution", "uniform"];
    assert_eq!(words(&uniform), "workload e (YCSB-E), uniform keys");
    assert_eq!(words(&[]), "workload find, uniform keys");
    assert_eq!(words(&["--workload", "insert"]), "workload insert");
}

/// It once measured an emulation in shared memory without being asked.
#[test]
fn the_default_medium_is_that_of_an_open() {
    let given = args(&[]);
    assert_eq!(given.medium, PoolMedium::Auto);
    let resolved = crate::bench::with_medium(&given).unwrap();
    assert!(matches!(
        resolved.medium,
        PoolMedium::File | PoolMedium::Dax
    ));
    // The pool lies in the current folder, and is not made yet.
    let pool = resolved.pool.unwrap();
    assert!(pool.parent().unwrap() == std::path::Path::new(".") && !pool.exists());
    let named = crate::bench::with_medium(&args(&["--medium", "ram"])).unwrap();
    assert_eq!((named.medium, named.pool), (PoolMedium::Ram, None));
}

#[test]
fn figures_have_three_digits_and_a_unit() {
    assert_eq!(
        [time(69.768), time(3887.0), time(126_207.0), time(2.5e9)],
        ["69.8 ns", "3.89 \u{b5}s", "126 \u{b5}s", "2.50 s"]
    );
    assert_eq!([rate(69.768), rate(5e6)], ["14.3 M/s", "0.20 k/s"]);
}
