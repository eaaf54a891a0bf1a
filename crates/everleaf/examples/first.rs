//! The first steps: a pool, a tree, a range. Run with `cargo run -p everleaf --example first`.

use everleaf::{Error, Store};

fn main() -> Result<(), Error> {
    let store = Store::open("first.pool")?;
    println!("this pool survives: {:?}", store.survives());
    let stock = store.tree("stock")?;
    for (fruit, count) in [("apple", "12"), ("apricot", "7"), ("banana", "3")] {
        stock.put(fruit, count)?;
    }
    for entry in stock.prefix("ap") {
        let (fruit, count) = entry?;
        println!(
            "{}: {}",
            String::from_utf8_lossy(&fruit),
            String::from_utf8_lossy(&count)
        );
    }
    drop(stock);
    Ok(store.close()?)
}
