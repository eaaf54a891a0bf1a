//! RNTree whose threads are stopped in the middle of operations. A process of its own: who is
//! stopped keeps memory from being reused, and other tests look at how much is in use.

mod holes;
mod late;
