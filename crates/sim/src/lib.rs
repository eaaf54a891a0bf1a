//! The crash explorer: every crash that the memory model allows, found and checked.
//!
//! A [`Subject`] is a durable structure on a [`medium::Sim`], with its sequential specification.
//! The [`Explorer`] runs operations on it once, records every store, flush and fence, and then
//! crashes it: at every moment that matters, with every content that the memory may then have, and
//! again during the recovery and the operations after it. After each crash it lets the structure
//! recover and judges the result:
//!
//! - the state is that after all acknowledged operations, with the pending one wholly or not at
//!   all; or, where durability is buffered ([`DurabilityContract`]), exactly that at the end of the
//!   last epoch;
//! - the structure's own check finds nothing;
//! - further operations return the right results, and leave the right state.
//!
//! The crate needs only `medium`. The module `index`, behind the feature `engines`, drives
//! Everleaf's own engines, and `torture` judges pools of processes that were really killed.
//!
//! # A structure of your own
//!
//! An array with a length. The length must not be durable before the element is:
//!
//! ```
//! use everleaf_sim::{Complaint, Explorer, ExplorationOptions, Subject};
//! use medium::{MediumGuard, Medium, sim::Sim};
//!
//! struct Array { fenced: bool }
//!
//! impl Subject for Array {
//!     type Operation = u64;                 // append this
//!     type Outcome = ();
//!     type State = Vec<u64>;
//!     type Instance = Sim;
//!
//!     fn initial(&self) -> Vec<u64> { Vec::new() }
//!     fn step(&self, state: &mut Vec<u64>, value: &u64) { state.push(*value); }
//!
//!     fn open(&self, sim: &Sim) -> Result<Sim, Complaint> {
//!         sim.grow(4096).map_err(|error| error.to_string())?;
//!         Ok(sim.clone())
//!     }
//!
//!     fn apply(&self, sim: &mut Sim, value: &u64) -> Result<(), Complaint> {
//!         let guard = MediumGuard::new(&*sim);
//!         let length = &guard.words(64, 1).map_err(|bad| bad.to_string())?[0];
//!         let count = length.load(&guard);
//!         let element = &guard.words(128 + 8 * count, 1).map_err(|bad| bad.to_string())?[0];
//!         element.publish(&guard, *value);
//!         if self.fenced {
//!             guard.fence();
//!         }
//!         length.publish(&guard, count + 1);
//!         guard.drain().map_err(|error| error.to_string())
//!     }
//!
//!     fn observe(&self, sim: &mut Sim) -> Result<Vec<u64>, Complaint> {
//!         let guard = MediumGuard::new(&*sim);
//!         let count = guard.words(64, 1).map_err(|bad| bad.to_string())?[0].load(&guard);
//!         let elements = guard.words(128, count as usize).map_err(|bad| bad.to_string())?;
//!         Ok(elements.iter().map(|element| element.load(&guard)).collect())
//!     }
//! }
//!
//! let wrong = Explorer::new(Array { fenced: false }, ExplorationOptions::default()).unwrap().explore(&[7, 8]);
//! let report = wrong.unwrap_err().to_string();
//! assert!(report.starts_with("after recovery [0] was found, but it should be one of [[], [7]]"), "{report}");
//!
//! let mut explorer = Explorer::new(Array { fenced: true }, ExplorationOptions::default()).unwrap();
//! explorer.explore(&[7, 8]).unwrap();
//! println!("{}", explorer.stats());
//! ```
//!
//! A failure names the shortest sequence of operations found, the moment of the crash, the lines
//! that were behind with the first store that each one lacks, and a [`CrashReplay`] that repeats
//! exactly that crash ([`ExplorationOptions::replay`]).
//!
//! A longer example is `examples/linked_list.rs`: a user's own list, wrong and mended.
//! `docs/TESTING.md` goes through it and its report step by step. `everleaf crash` does this to
//! Everleaf's engines.
//!
//! # Several threads
//!
//! A subject that is [`Concurrent`] can be explored under threads: all their interleavings with a
//! bounded number of preemptions, the crashes of each, and whether what the operations returned can
//! be explained by some order of them (the module [`schedule`] says how). A counter that loses an
//! increment if two threads run at once:
//!
//! ```
//! use everleaf_sim::{Complaint, Concurrent, Explorer, ExplorationOptions, Program, Scheduling, Subject};
//! use medium::{MediumGuard, Medium, sim::Sim};
//!
//! struct Counter { atomic: bool }
//!
//! impl Subject for Counter {
//!     type Operation = ();                  // increment
//!     type Outcome = u64;                   // what it was before
//!     type State = u64;
//!     type Instance = Sim;
//!
//!     fn initial(&self) -> u64 { 0 }
//!     fn step(&self, state: &mut u64, _: &()) -> u64 { *state += 1; *state - 1 }
//!
//!     fn open(&self, sim: &Sim) -> Result<Sim, Complaint> {
//!         sim.grow(4096).map_err(|error| error.to_string())?;
//!         Ok(sim.clone())
//!     }
//!
//!     fn apply(&self, sim: &mut Sim, increment: &()) -> Result<u64, Complaint> { self.call(sim, increment) }
//!
//!     fn observe(&self, sim: &mut Sim) -> Result<u64, Complaint> {
//!         let guard = MediumGuard::new(&*sim);
//!         Ok(guard.words(64, 1).map_err(|bad| bad.to_string())?[0].load(&guard))
//!     }
//! }
//!
//! impl Concurrent for Counter {
//!     fn call(&self, sim: &Sim, _: &()) -> Result<u64, Complaint> {
//!         let guard = MediumGuard::new(sim);
//!         let counter = &guard.words(64, 1).map_err(|bad| bad.to_string())?[0];
//!         let mut count = counter.load(&guard);
//!         if self.atomic {
//!             while let Err(found) = counter.compare_exchange(&guard, count, count + 1) { count = found }
//!         } else {
//!             counter.store(&guard, count + 1);
//!         }
//!         guard.flush(counter);
//!         guard.drain().map_err(|error| error.to_string())?;
//!         Ok(count)
//!     }
//! }
//!
//! let two = Program::single(&[(), ()]);
//! let mut explorer = Explorer::new(Counter { atomic: false }, ExplorationOptions::default()).unwrap();
//! let wrong = explorer.explore_threads(&two, &Scheduling::default()).unwrap_err().to_string();
//! assert!(wrong.starts_with("() returned 0 where () did, which no order of the operations explains"), "{wrong}");
//!
//! let mut explorer = Explorer::new(Counter { atomic: true }, ExplorationOptions::default()).unwrap();
//! explorer.explore_threads(&two, &Scheduling::default()).unwrap();
//! assert!(explorer.stats().schedules > 3);
//! ```
//!
//! The report tells the schedule step by step, and gives it in a form that repeats it
//! ([`Search::Replay`]); the crash as well ([`ExplorationOptions::replay`]).
//!
//! Volatile state that threads share must be behind [`medium::sync`]; its docs list the rules for
//! an engine. For engines behind `Index` there is nothing else to do: `index::IndexSubject` is
//! concurrent, so `explorer.explore_threads(&Program::single(&[Insert(1, 1), Remove(2)]),
//! &Scheduling::default())` explores any of them, and `index::threads` has the programs that are
//! tried: all pairs and triples of operations on small trees.
//!
//! # How it works
//!
//! - **Model** ([`Model`]): the contents that each line may have. It walks along the trace, and
//!   writes a line to the `Sim` once only one content is possible, so that an image is a difference
//!   from the one before. Each rule has a litmus test (`tests/litmus.rs`).
//! - **Crash points**: before each fence (in a log, each wait) that makes something durable, and
//!   before growth. A crash there can leave every image that an earlier crash could leave. There
//!   are also crash points where expectations become stricter: after each operation, and after
//!   recovery.
//! - **Lazy recovery** ([`Images::All`]): lines with several possible contents stay open. When
//!   recovery loads a word in which these contents differ, the exploration branches over the
//!   distinct values. All paths are run depth first, each by a new recovery that repeats its
//!   choices. Lines that are not read cost nothing. In a log, the content chosen for one line
//!   restricts where the log was cut, and so the contents of other lines. [`Images::Eager`] makes
//!   every image in full, and must agree (`tests/agreement.rs`).
//! - **Second crashes** ([`SecondCrash`]): the stores of a recovery are recorded as well. Lines
//!   that the first crash left open stay open, restricted by what recovery has read.
//! - **Known crash points** are skipped: the same memory and the same expectations were explored
//!   before.
//!
//! - **Watchdog** ([`watchdog`]): a recovery that loops without operations on the medium, overflows
//!   its stack or aborts is a report, if the exploration runs in a child process.
//! - **Mutation** ([`Explorer::survey`], [`ExplorationOptions::mutations`]): a flush, fence, wait
//!   or store is left out, a publish is done before the persist that it depends on, or two persists
//!   are swapped. The exploration should then fail; otherwise that operation or order is not
//!   needed.
//!
//! # Not supported
//!
//! - Threads are explored under two contracts: immediate durability
//!   ([`DurabilityContract::OnReturn`]), and epochs that an operation ends
//!   ([`DurabilityContract::WithEpoch`] for all others). Only for a single thread does the explorer
//!   check that an epoch ends at one moment for all parts of the state. Under
//!   [`DurabilityContract::AtAnyTime`] histories are judged, and crashes must be switched off
//!   ([`Scheduling::crashes`]).
//! - Threads are sequentially consistent. Weak orderings of volatile memory are tested with `loom`:
//!   see `medium::sync`.
#![forbid(unsafe_code)]

mod context;
mod explore;
mod guarded;
mod linearize;
mod model;
mod mutation;
mod options;
mod report;
pub mod schedule;
mod strategy;
mod subject;
pub mod watchdog;

#[cfg(feature = "engines")]
pub mod index;
#[cfg(feature = "engines")]
mod specification;
#[cfg(feature = "engines")]
pub mod torture;

pub use explore::{Explorer, Verdict};
pub use model::{Behind, Model, Rules, images};
pub use options::{ExplorationOptions, Images, SecondCrash};
pub use report::{Crash, CrashFailure, CrashReplay, Point, Stats};
pub use schedule::{Concurrent, Program, Schedule, Scheduling, Search, ThreadsFailure};
pub use strategy::Choices;
pub use subject::{Complaint, DurabilityContract, Subject};
