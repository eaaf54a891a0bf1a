//! RNTree (work in progress).
