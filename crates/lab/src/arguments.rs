//! Values on a command line.

use std::time::Duration;

use engines::registry::Engine;
use medium::Durability;

/// An engine by its name, including those for comparison only.
pub fn parse_any_engine(name: &str) -> Result<Engine, String> {
    let names = || crate::ENGINES.iter().map(|engine| engine.name()).collect::<Vec<_>>().join(", ");
    crate::engine_from_name(name).ok_or_else(|| format!("no such engine; there are {}", names()))
}

/// When an operation on the file medium is durable.
pub fn parse_durability(text: &str) -> Result<Durability, String> {
    match text {
        "immediate" => Ok(Durability::Immediate),
        "sync" => Ok(Durability::OnSync),
        number => match number.parse() {
            Ok(ms) => Ok(Durability::Buffered(Duration::from_millis(ms))),
            Err(_) => Err("give immediate, sync, or a number of milliseconds".to_owned()),
        },
    }
}

/// The fill factor of leaves in a bulk load.
pub fn parse_fill(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(fill) if (0.5..=1.0).contains(&fill) => Ok(fill),
        _ => Err("give a number from 0.5 to 1".to_owned()),
    }
}
