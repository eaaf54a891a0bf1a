//! A time series with retention: readings of some sensors by time, the old ones removed by a range
//! for each sensor.
//!
//! ```text
//! cargo run --release -p everleaf --example time_series
//! ```
//!
//! Each run adds ten days of readings and keeps the last fifteen. From the third run on the file
//! does not grow.

use std::process::ExitCode;

use everleaf::{Error, Pending, Store, TypedTree};

const SENSORS: [&str; 4] = ["attic", "cellar", "roof", "yard"];
/// Seconds between two readings.
const EVERY: u64 = 60;
const DAY: u64 = 24 * 60 * 60;
const RUN_DAYS: u64 = 10;
const KEPT_DAYS: u64 = 15;

/// Readings in degrees, by sensor and second.
type Readings = TypedTree<(String, u64), f64>;

/// The last second with a reading, or 0.
fn last(readings: &Readings, sensor: &str) -> Result<u64, Error> {
    let last = readings.prefix(sensor).next_back().transpose()?;
    Ok(last.map_or(0, |((_, second), _)| second))
}

/// One day of a sensor. No reading waits for the disk; one wait makes all of them durable.
fn add_day(readings: &Readings, sensor: &str, start: u64) -> Result<(), Error> {
    let writes = (start..start + DAY).step_by(EVERY as usize).map(|second| {
        let of_day = (second % DAY) as f64 / DAY as f64 * std::f64::consts::TAU;
        readings
            .pending()
            .put(&(sensor.to_owned(), second), &(12.0 - 8.0 * of_day.cos()))
    });
    Pending::wait_all(writes.collect::<Result<Vec<_>, _>>()?)?;
    Ok(())
}

fn run() -> Result<(), Error> {
    let store = Store::open("time_series.pool")?;
    let readings: Readings = store.typed("readings")?;
    println!("{} readings were there", readings.len()?);
    let mut removed = 0;
    for sensor in SENSORS {
        let start = last(&readings, sensor)?.next_multiple_of(DAY);
        let end = start + RUN_DAYS * DAY;
        for day in (start..end).step_by(DAY as usize) {
            add_day(&readings, sensor, day)?;
        }
        let oldest = end.saturating_sub(KEPT_DAYS * DAY);
        removed += readings.remove_range((sensor.to_owned(), 0)..(sensor.to_owned(), oldest))?;
    }
    println!(
        "{removed} old ones were removed, {} are there now",
        readings.len()?
    );
    for sensor in SENSORS {
        // The last day alone.
        let end = last(&readings, sensor)?;
        let day = (sensor.to_owned(), end + EVERY - DAY)..=(sensor.to_owned(), end);
        let mut count = 0;
        let mut least = f64::INFINITY;
        let mut most = f64::NEG_INFINITY;
        for entry in readings.range(day) {
            let (_, degrees) = entry?;
            count += 1;
            least = degrees.min(least);
            most = degrees.max(most);
        }
        println!("{sensor:>8}: {count} readings of the last day, {least:.1} to {most:.1} degrees");
    }
    println!("the file has {} KiB", store.stat()?.file_bytes >> 10);
    drop(readings);
    Ok(store.close()?)
}

fn main() -> ExitCode {
    run().map_or_else(
        |error| {
            eprintln!("time_series: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}
