use std::collections::HashSet;

use clap::Parser;

use super::{Script, WorkloadStep, updated};
use crate::bench::args::Args;
use crate::bench::subject::Bench;
use terminal::failure::Failure;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

/// Arguments for a small tree in memory.
fn args(further: &[&str]) -> Args {
    let common = "bench --medium ram --keys 20000 --ops 4000 --threads 2".split(' ');
    Command::parse_from(common.chain(further.iter().copied())).args
}

/// An update that writes the present value cannot be distinguished from one that is lost.
#[test]
fn every_update_writes_a_value_of_its_own() {
    // Each run has the same keys, so the same value would come again.
    let args = args(&["--workload", "update", "--distribution", "sequential"]);
    let keys = args.keys_drawn();
    let mut written = HashSet::new();
    for number in 0..3 {
        let script = Script::new(&args, &keys, number);
        for (thread, steps) in script.threads.iter().enumerate() {
            let mut stamps = script.stamps(thread);
            for step in steps {
                let WorkloadStep::Update(key) = *step else {
                    panic!("{step:?} in a workload of updates");
                };
                let value = updated(key, stamps.take());
                assert!(value != key && written.insert((key, value)), "{key:#x}");
            }
        }
    }
}

#[test]
fn an_update_that_was_lost_is_found_after_the_run() {
    for further in [&[][..], &["--records"]] {
        for workload in ["update", "a", "f", "balanced", "mixed"] {
            let args = args(&[&["--workload", workload], further].concat());
            let (bench, keys) = Bench::loaded(&args).unwrap();
            let script = Script::new(&args, &keys, 0);
            bench.measure(&script).unwrap();
            let key = *script.last_updates().keys().next().unwrap();
            // The value that a load gives to it.
            bench.subject().put(key, key).unwrap();
            let verified = bench.verify(&script);
            assert!(
                matches!(verified, Err(Failure::Refused(_))),
                "{further:?}, {workload}: {verified:?}"
            );
        }
    }
}
