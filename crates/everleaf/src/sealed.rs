//! Traits that only this crate implements.

/// A part of such a trait, which nobody else can name.
pub trait Sealed {}
