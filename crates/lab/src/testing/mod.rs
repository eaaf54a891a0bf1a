//! Faults planted in engines, and damage done to pools: to test the tests, apart from what measures
//! and compares.

pub mod damage;
pub mod mutants;
