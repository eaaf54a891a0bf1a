//! everleaf
