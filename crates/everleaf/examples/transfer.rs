//! Two writes that a crash leaves together: a batch of an engine with epochs. Run with
//! `cargo run -p everleaf --example transfer`.

use everleaf::{Engine, Error, Store, TreeOptions};

/// An amount; nothing if the account is new.
fn amount(value: Option<impl AsRef<[u8]>>) -> i64 {
    value.and_then(|value| value.as_ref().try_into().ok()).map_or(0, i64::from_be_bytes)
}

fn main() -> Result<(), Error> {
    let store = Store::open("transfer.pool")?;
    let accounts = TreeOptions { engine: Engine::MASSTREE, ..TreeOptions::RECORDS };
    let accounts = store.tree_with("accounts", accounts)?;
    accounts.batch(|batch| {
        batch.put("mine", (amount(batch.get("mine")?) - 10).to_be_bytes())?;
        batch.put("yours", (amount(batch.get("yours")?) + 10).to_be_bytes())
    })?;
    // From here on no crash takes it back.
    store.sync()?;
    println!("mine: {}, yours: {}", amount(accounts.get("mine")?), amount(accounts.get("yours")?));
    Ok(())
}
