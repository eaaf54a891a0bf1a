//! The crash explorer: every crash that the memory model allows, found and checked.
//!
//! A [`Subject`] is a durable structure on a [`medium::Sim`], with its sequential specification. The [`Explorer`] runs
//! operations on it once, records every store, flush and fence, and then crashes it: at every moment that matters, with
//! every content that the memory may then have, and again during what follows. After each crash it lets the structure
//! recover and judges the result:
//!
//! - the state is that after all acknowledged operations, with the pending one wholly or not at all; or, where durability
//!   is buffered ([`Durability`]), exactly that at the end of the last epoch;
//! - the structure's own check finds nothing;
//! - further operations return what they should, and leave what they should.
//!
//! It needs the medium only. What drives Everleaf's own engines is the module `index`, behind the feature `engines`.
//!
//! # A structure of your own
//!
//! An array with a length. The length must not be durable before the element is:
//!
//! ```
//! use everleaf_sim::{Complaint, Explorer, Options, Subject};
//! use medium::{Guard, Medium, sim::Sim};
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
//!         let guard = Guard::new(&*sim);
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
//!         let guard = Guard::new(&*sim);
//!         let count = guard.words(64, 1).map_err(|bad| bad.to_string())?[0].load(&guard);
//!         let elements = guard.words(128, count as usize).map_err(|bad| bad.to_string())?;
//!         Ok(elements.iter().map(|element| element.load(&guard)).collect())
//!     }
//! }
//!
//! let wrong = Explorer::new(Array { fenced: false }, Options::default()).unwrap().explore(&[7, 8]);
//! let report = wrong.unwrap_err().to_string();
//! assert!(report.starts_with("after recovery [0] was found, but it should be one of [[], [7]]"), "{report}");
//!
//! let mut explorer = Explorer::new(Array { fenced: true }, Options::default()).unwrap();
//! explorer.explore(&[7, 8]).unwrap();
//! println!("{}", explorer.stats());
//! ```
//!
//! A failure names the shortest sequence of operations found, the moment of the crash, the lines that were behind with
//! the first store that each one lacks, and an [`Replay`] that repeats exactly that crash ([`Options::replay`]).
//!
//! A longer example is `examples/linked_list.rs`: somebody's own list, wrong and mended. `docs/TESTING.md` goes through it
//! and its report step by step. `everleaf crash` does this to Everleaf's engines.
//!
//! # How it works
//!
//! - **Model** ([`Model`]): for each line, what it may hold. Walks along the trace; what is settled it writes to the `Sim`,
//!   so that an image is a difference from the one before. Its rules have a litmus test each (`tests/litmus.rs`).
//! - **Crash points**: before each fence (in a log, each wait) that makes something durable, and before growth: what a crash earlier could
//!   leave, a crash there can leave, too. And where expectations get stricter: after each operation, after recovery.
//! - **Lazy recovery** ([`Images::All`]): lines whose content is open stay open. When recovery loads a word about which the
//!   contents that are left disagree, it branches over the distinct values; all paths are run depth first, each by a new
//!   recovery that repeats its choices. What nobody reads costs nothing. In a log, what one line is found to hold narrows
//!   down where the log was cut, and so what other lines may hold. [`Images::Eager`] enumerates plainly, and must
//!   agree (`tests/agreement.rs`).
//! - **Second crashes** ([`SecondCrash`]): what a recovery stored is recorded as well; the lines that the first crash left
//!   open stay so, but for what recovery has read.
//! - **Known crash points** are skipped: the same memory and the same expectations were explored before.
//!
//! - **Watchdog** ([`watchdog`]): a recovery that loops without operations on the medium, overflows its stack or aborts is
//!   a report, if the exploration runs in a child process.
//! - **Mutation** ([`Explorer::survey`], [`Options::mutations`]): a flush, fence, wait or store is left out, a publish is
//!   done before what it depends on, two persists are swapped; what is explored should then fail, or one of them is
//!   not needed.
//!
//! # What it does not do yet
//!
//! - Operations run one after the other. Threads need a scheduler for which each operation on the medium is a yield
//!   point (a hook in `Sim::load`, `store`, `flush`, `fence`), sets of pending operations in `Context`, and a search for
//!   linearisations; the events carry thread numbers already.
#![forbid(unsafe_code)]

mod context;
mod explore;
mod guarded;
mod model;
mod mutation;
mod report;
mod strategy;
mod subject;
pub mod watchdog;

#[cfg(feature = "engines")]
pub mod index;

pub use explore::{Explorer, Images, Options, SecondCrash, Verdict};
pub use model::{Behind, Model, Rules, images};
pub use report::{Crash, Failure, Point, Replay, Stats};
pub use subject::{Complaint, Durability, Subject};
