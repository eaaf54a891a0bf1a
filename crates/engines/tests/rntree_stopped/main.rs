//! RNTree whose threads are stopped in the middle of operations. They have a process of their own:
//! a thread that is stopped keeps memory from being reused, and other tests measure how much is in
//! use.

mod holes;
mod late;
