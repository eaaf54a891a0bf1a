//! The museum: published bugs of persistent indexes, each planted again in a toy of a few lines.
//!
//! Each test is an exhibit. It explores a toy as it was published, which must fail with the
//! complaint that belongs to the bug, and the toy mended, which must pass. A toy keeps what the bug
//! needs and nothing else: nodes of a line, a handful of keys, one thread (two in `threads`). Where
//! a toy changes the shape of the original, its comment says so.
//!
//! The sources were read; each exhibit names its own. "Witcher, bug N" is the list
//! `bugs/sosp21-correctness-bugs.md` in the repository `cosmoss-jigu/witcher`, of *Witcher:
//! Systematic Crash Consistency Testing for Non-Volatile Memory Key-Value Stores* (SOSP 2021).
//! "owner/name#N" is an issue or a pull request on GitHub.
//!
//! `cargo test -p everleaf-sim --test museum NAME -- --nocapture` shows the report that an exhibit
//! gives.

mod cceh;
mod fast_fair;
mod leaf_chain;
mod level_hashing;
mod radix;
mod recipe;
mod root_split;
mod stores;
mod threads;
mod toy;
mod undo_log;
