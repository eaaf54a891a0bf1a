//! The crash explorer.
#![forbid(unsafe_code)]

mod context;
mod explore;
mod guarded;
mod model;
mod report;
mod strategy;
mod subject;

pub use explore::{Explorer, Images, Options, SecondCrash, Verdict};
pub use model::{Behind, Model, Rules, images};
pub use report::{Crash, Failure, Point, Replay, Stats};
pub use subject::{Complaint, Subject};

#[cfg(feature = "engines")]
pub mod index;
