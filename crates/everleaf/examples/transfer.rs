//! Two writes that a crash leaves together. Run with `cargo run -p everleaf --example transfer`.

use everleaf::{Batch, Error, ErrorKind, Store, Tree};

/// The balance of an account; 0 if it is new.
fn amount(accounts: &Tree, name: &str) -> Result<(i64, Option<[u8; 8]>), Error> {
    let bytes = accounts
        .get(name)?
        .and_then(|value| value.as_slice().try_into().ok());
    Ok((bytes.map_or(0, i64::from_be_bytes), bytes))
}

fn main() -> Result<(), Error> {
    let store = Store::open("transfer.pool")?;
    let accounts = store.tree("accounts")?;
    loop {
        let (mine, before) = amount(&accounts, "mine")?;
        let (yours, before_yours) = amount(&accounts, "yours")?;
        let mut transfer = Batch::new();
        transfer.expect(&accounts, "mine", before.as_ref().map(|bytes| &bytes[..]));
        transfer.expect(
            &accounts,
            "yours",
            before_yours.as_ref().map(|bytes| &bytes[..]),
        );
        transfer.put(&accounts, "mine", (mine - 10).to_be_bytes());
        transfer.put(&accounts, "yours", (yours + 10).to_be_bytes());
        match store.write(&transfer) {
            // Another thread was faster.
            Err(error) if matches!(error.kind(), ErrorKind::ConditionFailed { .. }) => {}
            written => break written?,
        }
    }
    println!(
        "mine: {}, yours: {}",
        amount(&accounts, "mine")?.0,
        amount(&accounts, "yours")?.0
    );
    Ok(())
}
