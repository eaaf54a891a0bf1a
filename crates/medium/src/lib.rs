//! medium
#[allow(dead_code, reason = "until the media come")]
mod flush;
pub mod kernels;
#[allow(dead_code, reason = "until the media come")]
mod line_store;
pub use flush::FlushKind;
pub use line_store::{LineStore, LineValue, TAG_MASK, WholeLoad, twin};
