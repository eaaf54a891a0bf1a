//! How a program handles a full pool. Run with `cargo run -p everleaf --example full`.

use everleaf::{Error, Options};

fn main() -> Result<(), Error> {
    let store = Options::new().limit_bytes(1 << 20).open("full.pool")?;
    let log = store.tree("log")?;
    for number in 0..100_000_u32 {
        match log.put(number.to_be_bytes(), [b'x'; 200]) {
            Ok(()) => {}
            Err(error) if error.is_full() => {
                println!("after {number} entries: {error}");
                // Nothing was lost, and removes still work: the oldest entries are removed.
                for old in 0..number.min(1000) {
                    log.remove(old.to_be_bytes())?;
                }
                break;
            }
            Err(error) => return Err(error),
        }
    }
    println!("{} entries are left", log.len()?);
    Ok(())
}
