//! Many writes from one thread: none waits for the disk, and one sync makes all of them durable.
//! Run with `cargo run --release -p everleaf --example readings`.

use std::time::Instant;

use everleaf::{Error, Store};

fn main() -> Result<(), Error> {
    let store = Store::open("readings.pool")?;
    let readings = store.tree("readings")?;
    let start = Instant::now();
    for time in 0..10_000_u32 {
        // A pending write is for waiting; here the sync below waits for all of them.
        let value = format!("{} C", 20 + time % 5);
        drop(readings.pending().put(time.to_be_bytes(), value)?);
    }
    store.sync()?;
    println!("10,000 durable readings in {:?}", start.elapsed());
    let last = readings.iter().next_back().transpose()?;
    println!(
        "the last: {:?}",
        last.map(|(_, value)| String::from_utf8_lossy(&value).into_owned())
    );
    Ok(())
}
