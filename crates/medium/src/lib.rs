//! medium
#[allow(dead_code, reason = "until the media come")]
mod flush;
pub use flush::FlushKind;
