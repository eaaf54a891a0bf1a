//! The command `everleaf`.

#![forbid(unsafe_code)]

fn main() {}
