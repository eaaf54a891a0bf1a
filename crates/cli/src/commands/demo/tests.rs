use everleaf::{Options, TreeOptions};

use super::*;

#[test]
fn what_is_finished_is_durable() -> Result<(), Failure> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("files");
    let pool = folder.path().join("demo.pool");
    std::fs::create_dir(&root).unwrap();
    (0..100).for_each(|number| std::fs::write(root.join(number.to_string()), "content").unwrap());
    let listing = Listing::walk(&root, 1000, &pool, |_| ());
    let count = listing.len() as u64;
    assert!(count >= 100);
    for engine in Engine::ALL.iter().copied() {
        let pool = folder.path().join(engine.name());
        // Nothing becomes durable with time, nor at the close.
        let options = Options::new().manual_epochs().close_cleanly(false);
        let store = options.open(&pool)?;
        let tree = store.tree_with(
            TREE,
            TreeOptions {
                engine,
                ..TreeOptions::RECORDS
            },
        )?;
        assert_eq!(finish(&store, &tree, &listing)? as u64, count);
        drop((tree, store));
        assert_eq!(
            options.open(&pool)?.open_tree(TREE)?.len()?,
            count,
            "{engine:?}"
        );
    }
    Ok(())
}
