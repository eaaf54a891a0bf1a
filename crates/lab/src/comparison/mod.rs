//! Comparisons of stores, engines and trees: the order of measurements, statistics over their runs,
//! and tables.

mod numbers;
mod statistics;
mod table;

pub(crate) use numbers::rounded;
pub use numbers::{digits, grouped};
pub use statistics::{median, spread};
pub use table::{Row, Table};

/// The order in which `count` things are measured in run `number`, so that a drift of the machine
/// affects all of them alike. A later one finds warm caches, so each is first equally often.
pub fn turns(number: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (number + turn) % count)
}

#[cfg(test)]
mod tests;
