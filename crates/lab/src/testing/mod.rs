//! Faults planted in engines, to test the tests: apart from what measures and compares.

pub mod mutants;
