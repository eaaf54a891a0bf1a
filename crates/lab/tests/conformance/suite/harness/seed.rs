//! Seeds, and the output of a failing test.

use std::sync::mpsc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Cell, Check, Failure};

/// A test that takes longer than this hangs.
const HANGS_AFTER: Duration = Duration::from_secs(300);

/// The seed of all random choices of a test.
#[derive(Clone, Copy, Debug)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed of a test.
    pub fn of(test: &str) -> Self {
        match std::env::var("EVERLEAF_SEED").ok().as_deref() {
            None => Self(u64::from(crc32c::crc32c(test.as_bytes()))),
            Some("random") => Self(rand::random()),
            Some(number) => Self(
                number
                    .parse()
                    .expect("EVERLEAF_SEED is a number or `random`"),
            ),
        }
    }

    /// A generator; each stream gives its own numbers.
    pub fn rng(self, stream: u64) -> SmallRng {
        SmallRng::seed_from_u64(self.0 ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The seed as proptest wants it.
    pub fn bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.rng(0).fill(&mut bytes);
        bytes
    }
}

/// The factor for the number of cases.
pub fn factor() -> u32 {
    std::env::var("EVERLEAF_CASES").map_or(1, |factor| {
        factor.parse().expect("EVERLEAF_CASES is a number")
    })
}

/// A test of the suite.
pub type Test = fn(&Cell, Seed) -> Check;

/// A test in a cell.
pub fn trial(name: String, seed: Seed, cell: Cell, body: Test) -> Trial {
    Trial::test(name.clone(), move || run(&name, seed, cell, body))
}

/// Runs one test, on a thread of its name; tells how to run it again if it fails or hangs.
fn run(name: &str, seed: Seed, cell: Cell, body: Test) -> Result<(), Failed> {
    let cases = if factor() > 1 {
        format!("EVERLEAF_CASES={} ", factor())
    } else {
        String::new()
    };
    let Seed(number) = seed;
    let replay = format!(
        "{name}: seed {number}; replay: {cases}EVERLEAF_SEED={number} cargo test --release -p everleaf-lab --test {} -- \
         --exact {name}",
        env!("CARGO_CRATE_NAME")
    );
    let (ended, watched) = mpsc::channel::<()>();
    let work = move || {
        let _ended = ended;
        body(&cell, seed)
    };
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)?;
    if watched.recv_timeout(HANGS_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("hangs: {replay}");
        std::process::abort();
    }
    let outcome = thread
        .join()
        .unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)));
    outcome.map_err(|failure| {
        let text = format!("{failure:?}\n  {replay}");
        // The failure is printed at once: a returned text is printed after the last test, and
        // another test may hang.
        eprintln!("{text}");
        text.into()
    })
}
