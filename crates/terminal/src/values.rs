//! Values on a command line.

use std::time::Duration;

use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use everleaf::{Durability, Engine};

/// A parser of names that completions offer: the names of these engines.
pub fn engine_of(engines: &'static [Engine]) -> impl TypedValueParser<Value = Engine> {
    let names = engines.iter().map(|engine| engine.name());
    let named = |name: String| engines.iter().find(|engine| engine.name == name).copied();
    // Only these names reach this.
    PossibleValuesParser::new(names).map(move |name| named(name).unwrap_or_default())
}

/// A parser of these names, which completions offer.
pub fn any_of<T, N: IntoIterator<Item = &'static str>>(names: N) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
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
