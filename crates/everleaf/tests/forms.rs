//! Each form of the search kernels, and each line store, with each engine, if the processor has
//! them.

use std::collections::BTreeMap;

use everleaf::{CodecKind, Engine, ErrorKind, LineStore, Options, Result, Store, TreeOptions};
use medium::kernels::Kernels;
use tempfile::TempDir;

/// Keys in an order that splits leaves everywhere, and some of them removed again.
fn fill_and_compare(store: &Store, engine: Engine, codec: CodecKind) -> Result<()> {
    let tree = store.tree_with(
        codec.name(),
        TreeOptions {
            engine,
            codec,
            ..TreeOptions::RECORDS
        },
    )?;
    let mut model = BTreeMap::new();
    for number in 0..4000_u64 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        tree.put(key, number.to_be_bytes())?;
        model.insert(key.to_vec(), number.to_be_bytes().to_vec());
    }
    let removed: Vec<Vec<u8>> = model.keys().step_by(3).cloned().collect();
    for key in &removed {
        assert!(tree.remove(key)? && model.remove(key).is_some());
    }
    assert!(
        model
            .iter()
            .all(|(key, value)| tree.get(key).unwrap().as_deref() == Some(&value[..]))
    );
    assert!(removed.iter().all(|key| tree.get(key).unwrap().is_none()));
    let mut entries = tree.iter();
    let mut expected = model.iter();
    while let Some((key, value)) = entries.next_entry()? {
        assert_eq!(
            expected.next().map(|(key, value)| (&key[..], &value[..])),
            Some((key, value))
        );
    }
    assert_eq!(expected.next(), None);
    Ok(())
}

fn with(kernels: Kernels, line_store: LineStore, folder: &TempDir) -> Result<()> {
    kernels.install().unwrap();
    for engine in Engine::ALL {
        let path = folder
            .path()
            .join(format!("{kernels}-{line_store}-{}.pool", engine.name));
        let store = Options::new().line_store(line_store).open(&path)?;
        for codec in [CodecKind::Word, CodecKind::Record] {
            fill_and_compare(&store, *engine, codec)?;
        }
        assert_eq!(store.check()?, []);
        store.close()?;
    }
    Ok(())
}

#[test]
fn every_form_that_the_processor_has_gives_the_same_trees() -> Result<()> {
    let memory = std::path::Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
    .unwrap();
    for kernels in Kernels::all() {
        match kernels.is_supported() {
            true => with(kernels, LineStore::detect(), &folder)?,
            false => assert!(
                kernels
                    .install()
                    .unwrap_err()
                    .to_string()
                    .contains(kernels.name())
            ),
        }
    }
    for line_store in LineStore::all() {
        match line_store.is_supported() {
            true => with(Kernels::active(), line_store, &folder)?,
            false => {
                let path = folder.path().join(line_store.name());
                let refused = Options::new()
                    .line_store(line_store)
                    .open(&path)
                    .unwrap_err();
                assert!(
                    matches!(refused.kind(), ErrorKind::Unsupported { .. }),
                    "{refused}"
                );
                assert!(refused.to_string().contains(line_store.name()), "{refused}");
            }
        }
    }
    Ok(())
}
