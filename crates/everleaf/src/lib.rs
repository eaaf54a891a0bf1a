//! everleaf

#![forbid(unsafe_code)]
