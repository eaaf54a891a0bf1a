use everleaf::{Engine, MediumChoice, Options, TreeOptions};
use medium::testing::faulty::{Faults, Image, Machine, Which};

use super::*;

/// After a failed wait, a second wait must fail as well.
#[test]
fn what_a_disk_that_fails_did_not_keep_is_not_called_durable() {
    for engine in Engine::ALL.iter().copied() {
        for faults in [
            Faults {
                sync: Some(0),
                ..Faults::default()
            },
            Faults {
                write: Some(0),
                ..Faults::default()
            },
        ] {
            let machine = Machine::new(&Image::default());
            let options = Options::new()
                .medium(MediumChoice::File)
                .close_cleanly(false);
            let options = options.log_bytes(64 << 10).recovery_threads(1);
            let store = options
                .open_on(machine.io(Which::Pool), machine.io(Which::Log))
                .unwrap();
            let tree = store
                .tree_with(
                    "t",
                    TreeOptions {
                        engine,
                        ..TreeOptions::RECORDS
                    },
                )
                .unwrap();
            let mut writes = Writes::new(&store, &tree);
            writes.put(b"before", b"value").unwrap();
            writes.settle().unwrap();
            machine.set_faults(faults);
            let failed =
                (0..1000_u32).any(|number| writes.put(&number.to_be_bytes(), b"value").is_err());
            assert!(
                failed | writes.settle().is_err(),
                "{faults:?} of {}",
                engine.name()
            );
            // `load` settles like this to report the entries that were stored.
            assert!(writes.settle().is_err());
            assert_eq!(writes.durable(), 1);
        }
    }
}

#[test]
fn few_syncs_make_many_puts_durable() {
    for engine in Engine::ALL.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pool");
        let options = Options::new().medium(MediumChoice::File);
        let store = options.clone().close_cleanly(false).open(&path).unwrap();
        let tree = store
            .tree_with(
                "t",
                TreeOptions {
                    engine,
                    ..TreeOptions::RECORDS
                },
            )
            .unwrap();
        let mut writes = Writes::new(&store, &tree);
        let count = 3 * UNDER_WAY_MAX + 5;
        let before = store.stat().unwrap().log.unwrap().syncs;
        for number in 0..count {
            writes.put(&number.to_be_bytes(), b"value").unwrap();
            assert!(writes.durable() <= number + 1);
        }
        writes.settle().unwrap();
        assert_eq!(writes.durable(), count);
        let log = store.stat().unwrap().log.unwrap();
        assert_eq!(log.backlog_bytes, 0, "all is durable");
        let syncs = log.syncs - before;
        assert!(
            syncs < count / 20,
            "{} syncs for {count} puts into {}",
            syncs,
            engine.name()
        );
        drop((tree, store));
        let store = options.open(&path).unwrap();
        assert_eq!(store.open_tree("t").unwrap().len().unwrap(), count);
    }
}
