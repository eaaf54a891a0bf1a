//! engines

#![forbid(unsafe_code)]
