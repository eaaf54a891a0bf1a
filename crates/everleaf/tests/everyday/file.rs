//! Stores on ordinary files: power cuts, logs that do not fit, pending writes, backups.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::future::Future;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use everleaf::{
    CodecKind, Durability, Engine, ErrorKind, LineStore, LogEnd, LogError, MediumChoice, Options,
    Pending, Result, Store, Survives, Tree, TreeOptions,
};
use medium::MediumError;
use medium::file::{Disk, FileOptions, Io};
use medium::testing::faulty::{Faults, Image, Machine, Which};
use medium::testing::{FileCall, Hooked, Then};
use pool::{Pool, PoolOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::folder;

/// The offset at which a pool's file names its holder.
const HOLDER: u64 = 0x2010;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options::new()
        .medium(MediumChoice::File)
        .log_bytes(64 << 10)
        .recovery_threads(1)
}

fn log_of(pool: &Path) -> PathBuf {
    PathBuf::from(format!("{}.log", pool.display()))
}

/// Options with which a store ends as a killed process does.
fn killable(pool: &Path) -> Store {
    options().close_cleanly(false).open(pool).unwrap()
}

fn on_machine(machine: &Arc<Machine>) -> Result<Store> {
    options()
        .close_cleanly(false)
        .open_on(machine.io(Which::Pool), machine.io(Which::Log))
}

fn read(tree: &Tree) -> Model {
    tree.iter()
        .map(|entry| {
            entry
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .unwrap()
        })
        .collect()
}

/// The states in which a tree may be found: the one after each operation, and the moment from which
/// on that was acknowledged.
struct History {
    models: Vec<Model>,
    acknowledged: Vec<usize>,
}

impl History {
    fn new() -> Self {
        Self {
            models: vec![Model::new()],
            acknowledged: vec![0],
        }
    }

    fn operate(&mut self, tree: &Tree, random: &mut SmallRng, machine: &Machine) -> Result<()> {
        let mut model = self.models.last().unwrap().clone();
        let key = format!("key {:03}", random.random_range(0..120)).into_bytes();
        if random.random_range(0..4) == 0 {
            assert_eq!(tree.remove(&key)?, model.remove(&key).is_some());
        } else {
            // Some values fill several slabs' worth of lines, most do not.
            let longest = if random.random_range(0..20) == 0 {
                3000
            } else {
                40
            };
            let value = vec![random.random(); random.random_range(0..longest)];
            tree.put(&key, &value)?;
            model.insert(key, value);
        }
        self.models.push(model);
        self.acknowledged.push(machine.now());
        Ok(())
    }

    /// Checks that everything that was acknowledged before `moment` is there, and nothing that was
    /// never written.
    fn verify(&self, machine: &Machine, moment: usize, piece_bytes: usize, random: &mut SmallRng) {
        let least = self
            .acknowledged
            .iter()
            .rposition(|acknowledged| *acknowledged <= moment)
            .unwrap();
        let crash = machine.crash(moment, piece_bytes);
        let mut pick = SmallRng::seed_from_u64(random.random());
        for choice in crash.samples(3, |below| pick.random_range(0..below)) {
            let image = crash.image(&choice);
            let machine = Machine::new(&image);
            let reader = options().read_only(true);
            let reader = reader
                .open_on(machine.io(Which::Pool), machine.io(Which::Log))
                .unwrap();
            let shown = read(&reader.open_tree("main").unwrap());
            assert!(
                (reader.check().unwrap(), machine.now()) == (vec![], 0) && machine.shown() == image
            );
            let store = on_machine(&machine).unwrap();
            let tree = store.tree("main").unwrap();
            let found = read(&tree);
            assert!(
                shown == found,
                "cut at {moment}: a reader shows another state"
            );
            let index = self.models[least..]
                .iter()
                .position(|model| *model == found);
            let count = self.models.len();
            let index = index
                .unwrap_or_else(|| panic!("cut at {moment}: at least {least} of {count} are lost"));
            // Only the operation that was under way may be done, too.
            assert!(index <= 1, "cut at {moment}: {index} more than was begun");
            assert_eq!(store.check().unwrap(), []);
            tree.put("after", "the crash").unwrap();
        }
    }
}

#[test]
fn random_operations_survive_every_cut() {
    for seed in 0..3 {
        let mut random = SmallRng::seed_from_u64(seed);
        let machine = Machine::new(&Image::default());
        let store = on_machine(&machine).unwrap();
        let tree = store.tree("main").unwrap();
        let mut history = History::new();
        let begin = machine.now();
        history.acknowledged[0] = begin;
        for _ in 0..500 {
            history.operate(&tree, &mut random, &machine).unwrap();
        }
        let end = machine.now();
        let log = store.stat().unwrap().log.unwrap();
        assert!(log.checkpoints > 1, "{log:?}");
        for _ in 0..100 {
            let moment = random.random_range(begin..=end);
            history.verify(&machine, moment, [64, 512][seed as usize % 2], &mut random);
        }
    }
}

#[test]
fn a_disk_that_fails_at_any_moment_loses_nothing_acknowledged() {
    for seed in 0..12 {
        let mut random = SmallRng::seed_from_u64(seed);
        let machine = Machine::new(&Image::default());
        let store = on_machine(&machine).unwrap();
        let tree = store.tree("main").unwrap();
        let mut history = History::new();
        history.acknowledged[0] = machine.now();
        let at = random.random_range(0..150);
        machine.set_faults(match seed % 3 {
            0 => Faults {
                sync: Some(at),
                ..Faults::default()
            },
            1 => Faults {
                write: Some(at),
                short: Some(700),
                ..Faults::default()
            },
            _ => Faults {
                full_from: Some(at),
                ..Faults::default()
            },
        });
        let failed = (0..500).find_map(|_| history.operate(&tree, &mut random, &machine).err());
        let failed = failed.expect("a failure");
        let known = matches!(
            failed.kind(),
            ErrorKind::Medium {
                source: MediumError::Failed(_),
            } | ErrorKind::PoolFull { .. }
        );
        assert!(known, "{failed}");
        if failed.medium().is_some() {
            machine.set_faults(Faults::default());
            assert!(
                tree.put("after", "a failure").is_err(),
                "nothing is acknowledged any more"
            );
            assert!(store.sync().is_err());
        }
        let moment = machine.now();
        let least = history.models.last().unwrap();
        let image = {
            let crash = machine.crash(moment, 512);
            crash.image(&vec![0; crash.choices().len()])
        };
        let store = on_machine(&Machine::new(&image)).unwrap();
        assert_eq!(
            read(&store.tree("main").unwrap()),
            *least,
            "what was acknowledged, and no more"
        );
    }
}

#[test]
fn a_pool_that_was_closed_is_one_file_and_one_that_was_not_is_two() {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let store = killable(&path);
    store.tree("main").unwrap().put("key", "value").unwrap();
    drop(store);
    assert!(log_of(&path).exists());
    let store = options().open(&path).unwrap();
    assert!(store.recovery().after_crash);
    let stat = store.stat().unwrap();
    let log = stat.log.unwrap();
    assert!(
        log.replay.groups > 0 && log.replay.end == LogEnd::Clean,
        "{log:?}"
    );
    assert!(
        log.private_bytes > 0 && log.log_capacity_bytes == 64 << 10,
        "{log:?}"
    );
    let tree = store.tree("main").unwrap();
    assert_eq!(
        tree.get("key").unwrap().as_deref(),
        Some(b"value".as_slice())
    );
    drop(tree);
    store.close().unwrap();
    assert!(!log_of(&path).exists());
    let moved = folder.path().join("b.pool");
    std::fs::rename(&path, &moved).unwrap();
    let store = options().open(&moved).unwrap();
    assert!(!store.recovery().after_crash);
    assert!(store.tree("main").unwrap().contains("key").unwrap());
}

/// Otherwise its log would be missing, and with it the last writes.
#[test]
fn a_pool_that_is_opened_by_another_name_has_its_log_beside_the_file() {
    let folder = folder();
    let [path, link] = ["real/a.pool", "link.pool"].map(|name| folder.path().join(name));
    std::fs::create_dir(folder.path().join("real")).unwrap();
    options().open(&path).unwrap().close().unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    killable(&link)
        .tree("main")
        .unwrap()
        .put("key", "value")
        .unwrap();
    assert!(log_of(&path).exists() && !log_of(&link).exists());
    let store = killable(&path);
    assert!(store.tree("main").unwrap().contains("key").unwrap());
    store.tree("main").unwrap().put("other", "value").unwrap();
    drop(store);
    assert_eq!(
        options()
            .open(&link)
            .unwrap()
            .tree("main")
            .unwrap()
            .len()
            .unwrap(),
        2
    );
}

fn log_error(pool: &Path) -> LogError {
    let error = options().open(pool).unwrap_err();
    assert!(error.to_string().contains("pool"), "{error}");
    match error.into_kind() {
        ErrorKind::Medium {
            source: MediumError::Log(error),
        } => error,
        other => panic!("{other}"),
    }
}

#[test]
fn logs_that_do_not_fit_are_refused_and_nothing_is_touched() {
    let folder = folder();
    let [path, other] = ["a.pool", "b.pool"].map(|name| folder.path().join(name));
    for (path, value) in [(&path, "a"), (&other, "b")] {
        killable(path)
            .tree("main")
            .unwrap()
            .put("key", value)
            .unwrap();
    }
    let log = log_of(&path);
    let aside = folder.path().join("aside");
    let whole = std::fs::read(&log).unwrap();
    std::fs::rename(&log, &aside).unwrap();
    assert!(matches!(log_error(&path), LogError::Missing { .. }));
    assert!(!log.exists());
    std::fs::copy(log_of(&other), &log).unwrap();
    assert!(matches!(log_error(&path), LogError::Foreign { .. }));
    std::fs::write(&log, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(log_error(&path), LogError::Damaged { .. }));
    let mut flipped = whole.clone();
    flipped[0x3000 + 30] ^= 1;
    std::fs::write(&log, &flipped).unwrap();
    assert!(matches!(
        log_error(&path),
        LogError::Damaged {
            position: 0x3000,
            ..
        }
    ));
    std::fs::write(&log, "somebody's notes").unwrap();
    assert!(matches!(log_error(&path), LogError::NotALog));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "somebody's notes");
    // The pool needs no log, beside a log that holds data.
    let new = folder.path().join("c.pool");
    std::fs::copy(&aside, log_of(&new)).unwrap();
    assert!(matches!(log_error(&new), LogError::Unasked { .. }));
    assert!(!new.exists());
    std::fs::rename(&aside, &log).unwrap();
    let store = options().open(&path).unwrap();
    assert_eq!(
        store.tree("main").unwrap().get("key").unwrap().as_deref(),
        Some(b"a".as_slice())
    );
}

#[test]
fn a_pool_goes_from_the_file_medium_to_emulated_memory_and_back() {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let dax = || Options::new().medium(MediumChoice::Dax);
    // The pool is made on the emulation, so its lines have the form that this processor needs.
    dax()
        .open(&path)
        .unwrap()
        .tree("main")
        .unwrap()
        .put("1", "dax")
        .unwrap();
    killable(&path)
        .tree("main")
        .unwrap()
        .put("2", "file")
        .unwrap();
    assert!(log_of(&path).exists());
    let store = dax().open(&path).unwrap();
    assert!(!log_of(&path).exists());
    assert!(store.stat().unwrap().log.is_none());
    let found = read(&store.tree("main").unwrap());
    assert_eq!(found.len(), 2, "{found:?}");
    drop(store);
    assert_eq!(
        read(&options().open(&path).unwrap().tree("main").unwrap()),
        found
    );
}

/// A bit in the line that names the log is damaged. Mapped memory needs no log, and is a way out if
/// no log with data lies there.
#[test]
fn a_damaged_line_that_names_the_log_is_an_error_with_a_way_out() {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let with = |medium| options().line_store(LineStore::Twin).medium(medium);
    let flip = || {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        // Both halves of the line.
        for offset in [pool::MEDIUM_LINE + 3, pool::MEDIUM_LINE + 35] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset).unwrap();
            file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
        }
    };
    let expect_damage = |medium| {
        let error = with(medium).open(&path).unwrap_err();
        assert!(
            matches!(
                error.medium(),
                Some(MediumError::Log(LogError::Mark { .. }))
            ),
            "{error}"
        );
        error.to_string()
    };
    with(MediumChoice::File)
        .open(&path)
        .unwrap()
        .tree("t")
        .unwrap()
        .put("1", "closed")
        .unwrap();
    flip();
    assert!(expect_damage(MediumChoice::File).contains("open it as mapped memory"));
    with(MediumChoice::Dax)
        .open(&path)
        .unwrap()
        .close()
        .unwrap();
    let killed = with(MediumChoice::File)
        .close_cleanly(false)
        .open(&path)
        .unwrap();
    killed.tree("t").unwrap().put("2", "in the log").unwrap();
    drop(killed);
    flip();
    expect_damage(MediumChoice::File);
    expect_damage(MediumChoice::Dax);
    // It is also refused if the file there cannot be recognised any more.
    let log = std::fs::read(log_of(&path)).unwrap();
    let blanked: Vec<u8> = log
        .iter()
        .enumerate()
        .map(|(at, byte)| if at < 8192 { 0 } else { *byte })
        .collect();
    std::fs::write(log_of(&path), blanked).unwrap();
    expect_damage(MediumChoice::Dax);
    std::fs::write(log_of(&path), log).unwrap();
    flip();
    let store = with(MediumChoice::Dax).open(&path).unwrap();
    assert_eq!(store.tree("t").unwrap().len().unwrap(), 2);
}

#[test]
fn a_file_in_memory_is_no_promise_against_loss_of_power() {
    if !Path::new("/dev/shm").is_dir() {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("a.pool");
    let store = Options::new().open(&path).unwrap();
    assert_eq!(store.survives(), Survives::ProcessCrash);
    assert!(store.stat().unwrap().medium.contains("volatile"));
    drop(store);
    for path in [path, folder.path().join("b.pool")] {
        let error = Options::new()
            .require(Survives::PowerLoss)
            .open(&path)
            .unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::NotDurable { .. }),
            "{error}"
        );
        assert!(!log_of(&path).exists());
    }
    assert!(!folder.path().join("b.pool").exists());
}

/// Such a pending write once counted as durable at once, although a crash would have taken it back.
#[test]
fn a_pending_write_of_a_tree_of_epochs_waits_for_its_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let store = Options::new()
        .manual_epochs()
        .open(folder.path().join("a.pool"))
        .unwrap();
    let tree = store
        .tree_with(
            "t",
            TreeOptions {
                engine: Engine::MASSTREE,
                ..TreeOptions::RECORDS
            },
        )
        .unwrap();
    let first = tree.pending().put("one", "value").unwrap();
    assert!(!first.is_durable());
    store.sync().unwrap();
    assert!(first.is_durable());
    let second = tree.pending().put("two", "value").unwrap();
    assert!(first.is_durable() && !second.is_durable());
    second.clone().wait().unwrap();
    assert!(second.is_durable());
}

/// An open notes a few words by itself, and syncs them only with the first write. What is read before
/// that is durable, although these notes are not.
#[test]
fn a_read_is_durable_in_a_store_that_was_just_opened() {
    for engine in Engine::ALL.iter().copied() {
        let folder = folder();
        let path = folder.path().join("a.pool");
        let kind = TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        };
        let store = options().open(&path).unwrap();
        let tree = store.tree_with("t", kind).unwrap();
        tree.put("key", "value").unwrap();
        drop(tree);
        store.close().unwrap();
        let store = options().open(&path).unwrap();
        let tree = store.open_tree("t").unwrap();
        let read = tree.pending().get("key").unwrap();
        assert!(read.is_durable(), "{engine}");
        let missing = tree.pending().remove("none").unwrap();
        assert!(
            missing.is_durable() || engine.is_buffered(),
            "{engine}: nothing was removed"
        );
    }
}

#[test]
fn pending_results_are_waited_for_together() {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let store = killable(&path);
    let words = store.word_tree("words").unwrap();
    let syncs = || store.stat().unwrap().log.unwrap().syncs;
    let before = syncs();
    let writes: Vec<Pending<()>> = (0..64)
        .map(|key| words.pending().put(key, key).unwrap())
        .collect();
    assert!(writes.is_sorted_by_key(Pending::lsn));
    let last = writes.last().unwrap().clone();
    Pending::wait_all(writes).unwrap();
    assert!(last.is_durable());
    // The background may have synced in between, but hardly each time.
    assert!(syncs() - before < 32, "{} syncs", syncs() - before);

    let inserted = words.pending().insert(5, 1).unwrap();
    assert!(inserted.is_durable(), "what it saw is durable");
    assert!(!inserted.wait().unwrap());
    assert!(words.pending().remove(5).unwrap().wait().unwrap());
    assert!(words.get(5).unwrap().is_none());
    let swapped = words.pending().compare_exchange(6, Some(6), Some(7));
    assert!(swapped.unwrap().wait().unwrap());
    let both = words.pending().get_many(&[5, 6]).unwrap();
    assert_eq!(both.wait().unwrap(), [None, Some(7)]);

    let tree = store.tree("bytes").unwrap();
    tree.pending().put("a", "1").unwrap().wait().unwrap();
    assert_eq!(tree.pending().update("a", "2").unwrap().peek(), Some(&true));
    assert_eq!(
        tree.pending().insert("a", "3").unwrap().peek(),
        Some(&false)
    );
    let read = tree.pending().get("a").unwrap();
    assert_eq!(read.wait().unwrap().as_deref(), Some(&b"2"[..]));
    let removed = tree.pending().compare_exchange("a", Some(b"2"), None);
    assert!(removed.unwrap().wait().unwrap());
    assert!(!tree.pending().remove("a").unwrap().wait().unwrap());
    let memory = Store::in_memory().unwrap();
    assert_eq!(
        memory
            .word_tree("words")
            .unwrap()
            .pending()
            .put(1, 1)
            .unwrap()
            .lsn(),
        0
    );
}

#[test]
fn deferred_durability_is_durable_after_a_sync() {
    for durability in [
        Durability::OnSync,
        Durability::Buffered(Duration::from_secs(3600)),
    ] {
        let machine = Machine::new(&Image::default());
        let options = options().durability(durability).close_cleanly(false);
        let store = options
            .open_on(machine.io(Which::Pool), machine.io(Which::Log))
            .unwrap();
        let words = store.word_tree("words").unwrap();
        words.put(1, 1).unwrap();
        store.sync().unwrap();
        let synced = machine.now();
        words.put(2, 2).unwrap();
        assert_eq!(
            (words.get(2).unwrap(), machine.now()),
            (Some(2), synced),
            "nothing was waited for"
        );
        let crash = machine.crash(machine.now(), 512);
        let store =
            on_machine(&Machine::new(&crash.image(&vec![0; crash.choices().len()]))).unwrap();
        let words = store.word_tree("words").unwrap();
        assert_eq!(
            (words.get(1).unwrap(), words.get(2).unwrap()),
            (Some(1), None)
        );
    }
}

/// A removed tree is durably gone, whatever durability operations on entries have.
#[test]
fn a_tree_that_is_removed_is_durably_gone_when_that_returns() {
    for engine in Engine::ALL.iter().copied() {
        for durability in [
            Durability::OnSync,
            Durability::Buffered(Duration::from_secs(3600)),
        ] {
            let machine = Machine::new(&Image::default());
            let options = options().durability(durability).close_cleanly(false);
            let store = options
                .open_on(machine.io(Which::Pool), machine.io(Which::Log))
                .unwrap();
            store
                .tree_with(
                    "gone",
                    TreeOptions {
                        engine,
                        ..TreeOptions::RECORDS
                    },
                )
                .unwrap();
            store.sync().unwrap();
            store.drop_tree("gone").unwrap();
            let crash = machine.crash(machine.now(), 512);
            let store =
                on_machine(&Machine::new(&crash.image(&vec![0; crash.choices().len()]))).unwrap();
            assert_eq!(store.trees().unwrap(), [], "{engine:?}, {durability:?}");
        }
    }
}

/// A write after a sync was once synced by itself, at once, although it had time.
#[test]
fn a_sync_by_hand_is_followed_by_none_in_the_background() {
    for durability in [
        Durability::OnSync,
        Durability::Buffered(Duration::from_secs(3600)),
    ] {
        let folder = folder();
        let store = options()
            .durability(durability)
            .open(folder.path().join("a.pool"))
            .unwrap();
        let words = store.word_tree("words").unwrap();
        let syncs = || store.stat().unwrap().log.unwrap().syncs;
        let before = syncs();
        for key in 0..100 {
            words.put(key, key).unwrap();
            store.sync().unwrap();
            // This gives woken threads time to run.
            for other in 0..100 {
                words.put(other, key).unwrap();
                std::thread::yield_now();
            }
        }
        assert!(syncs() - before < 120, "{} syncs for 100", syncs() - before);
    }
}

#[test]
fn a_backup_is_taken_while_writers_run() {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let store = options().open(&path).unwrap();
    let words = store.word_tree("words").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut key = 0;
            while !stop.load(Ordering::Relaxed) {
                words.put(key, key).unwrap();
                key += 1;
            }
        });
        for number in 0..5 {
            let target = folder.path().join(format!("copy {number}"));
            let before = words.len().unwrap();
            let bytes = store.backup(&target).unwrap();
            assert_eq!(std::fs::metadata(&target).unwrap().len(), bytes);
            let copy = options().open(&target).unwrap();
            assert_eq!(copy.check().unwrap(), []);
            let copied: Vec<(u64, u64)> = copy
                .word_tree("words")
                .unwrap()
                .range(..)
                .collect::<Result<_>>()
                .unwrap();
            // All keys were put in order, so the state of the tree at any moment has no gap.
            assert!(
                copied
                    .iter()
                    .enumerate()
                    .all(|(index, (key, _))| index as u64 == *key)
            );
            assert!(copied.len() as u64 >= before);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let again = store.backup(folder.path().join("copy 0")).unwrap_err();
    assert!(matches!(again.kind(), ErrorKind::Io { .. }), "{again}");
    let memory = Store::in_memory()
        .unwrap()
        .backup(folder.path().join("memory"))
        .unwrap_err();
    assert!(
        matches!(memory.kind(), ErrorKind::NoBackup { .. }),
        "{memory}"
    );
    assert!(!folder.path().join("memory").exists());
}

/// The pool is larger than the memory that it may take; each engine and codec is tested.
#[test]
fn written_pages_are_limited() {
    const LIMIT: u64 = 1 << 20;
    let kinds = Engine::ALL.iter().copied().flat_map(|engine| {
        [CodecKind::Word, CodecKind::Record].map(|codec| TreeOptions {
            engine,
            codec,
            ..TreeOptions::default()
        })
    });
    for kind in kinds {
        let folder = folder();
        let path = folder.path().join("a.pool");
        let store = options().private_bytes_max(LIMIT).open(&path).unwrap();
        let tree = store.tree_with("main", kind).unwrap();
        let (keys, value) = if kind.codec == CodecKind::Word {
            (100_000, vec![7; 8])
        } else {
            (10_000, vec![7; 400])
        };
        // The number is multiplied by an odd one, so that keys come in no order.
        let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let pending: Vec<_> = (0..keys)
            .map(|number| tree.pending().put(key(number), &value).unwrap())
            .collect();
        pending.into_iter().last().unwrap().wait().unwrap();
        let stat = store.stat().unwrap();
        let log = stat.log.unwrap();
        assert!(log.given_back_bytes > 2 * LIMIT, "{kind}: {log:?}");
        assert!(log.private_bytes < 2 * LIMIT, "{kind}: {log:?}");
        let is_there =
            |tree: &Tree| (0..keys).all(|number| tree.get(key(number)).unwrap().is_some());
        assert!(is_there(&tree), "{kind}");
        drop((tree, store));
        let store = options().private_bytes_max(LIMIT).open(&path).unwrap();
        let tree = store.tree_with("main", kind).unwrap();
        assert!(
            is_there(&tree) && tree.check().unwrap().is_empty(),
            "{kind}"
        );
        assert_eq!(tree.len().unwrap(), keys, "{kind}");
    }
}

#[test]
fn a_log_that_has_failed_gives_no_space() {
    let machine = Machine::new(&Image::default());
    let options = FileOptions {
        background: false,
        ..FileOptions::default()
    };
    let file =
        medium::File::open(machine.io(Which::Pool), machine.io(Which::Log), options).unwrap();
    let pool = Pool::open(file, PoolOptions::default()).unwrap();
    let guard = pool.pin();
    let allocate = || {
        [
            guard.allocate(500),
            guard.allocate_lines(500),
            guard.allocate_node(500),
        ]
    };
    assert!(allocate().iter().all(std::result::Result::is_ok));
    machine.set_faults(Faults {
        sync: Some(0),
        ..Faults::default()
    });
    let offset = guard.allocate(8).unwrap();
    guard.words(offset, 1).unwrap()[0].store(&guard, 1);
    guard.flush_words(guard.words(offset, 1).unwrap());
    assert!(guard.drain().is_err());
    for allocated in allocate() {
        let error = allocated.unwrap_err();
        assert!(
            matches!(error.medium(), Some(MediumError::Failed(_))),
            "{error}"
        );
    }
}

/// A tree whose creation failed was once listed nevertheless, at space that had been given back.
#[test]
fn a_tree_is_listed_or_not_as_was_answered_when_the_disk_failed() {
    for engine in Engine::ALL.iter().copied() {
        let kind = TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        };
        let machine = Machine::new(&Image::default());
        let store = on_machine(&machine).unwrap();
        store.tree_with("kept", kind).unwrap();
        machine.set_faults(Faults {
            sync: Some(0),
            ..Faults::default()
        });
        let made = store.tree_with("new", kind);
        let removed = store.drop_tree("kept");
        assert!(made.is_err() && removed.is_err(), "{made:?}, {removed:?}");
        let names: Vec<String> = store
            .trees()
            .unwrap()
            .into_iter()
            .map(|tree| tree.name)
            .collect();
        assert_eq!(names, ["kept"], "{}", engine.name());
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The log and every copy have the same content as the pool, so they have its permissions.
#[test]
fn a_user_without_access_to_a_pool_has_none_to_its_log_and_copies() {
    let folder = folder();
    let pool = folder.path().join("a.pool");
    let copy = folder.path().join("copy.pool");
    let store = options().open(&pool).unwrap();
    assert_eq!(mode(&log_of(&pool)), mode(&pool), "a new pool's log");
    store.tree("t").unwrap().put("secret", "secret").unwrap();
    store.close().unwrap();
    for secret in [0o600, 0o640, 0o606] {
        std::fs::set_permissions(&pool, Permissions::from_mode(secret)).unwrap();
        let store = killable(&pool);
        assert_eq!(mode(&log_of(&pool)), secret, "a log made for an old pool");
        store.tree("t").unwrap().put("secret", "again").unwrap();
        store.backup(&copy).unwrap();
        assert_eq!(mode(&copy), secret, "a copy");
        std::fs::remove_file(&copy).unwrap();
        drop(store);
        std::fs::set_permissions(log_of(&pool), Permissions::from_mode(0o666)).unwrap();
        let store = options().open(&pool).unwrap();
        assert!(store.recovery().after_crash);
        assert_eq!(mode(&log_of(&pool)), secret, "a log that was there");
        store.close().unwrap();
    }
}

/// A file of another program may lie at the log's path, or a link that leads to any file.
#[test]
fn what_lies_where_the_log_belongs_and_is_none_keeps_its_mode() {
    let folder = folder();
    let pool = folder.path().join("a.pool");
    let notes = folder.path().join("notes");
    options().open(&pool).unwrap().close().unwrap();
    std::fs::set_permissions(&pool, Permissions::from_mode(0o644)).unwrap();
    let log = log_of(&pool);
    std::fs::write(&log, "secret").unwrap();
    std::fs::set_permissions(&log, Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(log_error(&pool), LogError::NotALog));
    assert_eq!(mode(&log), 0o600);
    for content in ["secret", ""] {
        std::fs::remove_file(&log).unwrap();
        std::fs::write(&notes, content).unwrap();
        std::fs::set_permissions(&notes, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&notes, &log).unwrap();
        let error = log_error(&pool);
        assert!(
            matches!(&error, LogError::Link { path } if *path == log),
            "{error}"
        );
        assert_eq!(
            (
                mode(&notes),
                std::fs::read_to_string(&notes).unwrap().as_str()
            ),
            (0o600, content)
        );
    }
    // The link leads to a path that does not exist yet.
    std::fs::remove_file(&notes).unwrap();
    assert!(matches!(log_error(&pool), LogError::Link { .. }));
    assert!(!notes.exists());
    // The link leads to a real log elsewhere: a copy and mapped memory do not follow it either.
    std::fs::remove_file(&log).unwrap();
    killable(&pool)
        .tree("t")
        .unwrap()
        .put("key", "value")
        .unwrap();
    std::fs::rename(&log, &notes).unwrap();
    std::os::unix::fs::symlink(&notes, &log).unwrap();
    let mapped = Options::new()
        .medium(MediumChoice::Dax)
        .open(&pool)
        .unwrap_err();
    assert!(
        matches!(
            mapped.medium(),
            Some(MediumError::Log(LogError::Link { .. }))
        ),
        "{mapped}"
    );
    std::fs::rename(&notes, &log).unwrap();
    assert_eq!(
        options()
            .open(&pool)
            .unwrap()
            .tree("t")
            .unwrap()
            .len()
            .unwrap(),
        1
    );
}

/// Replaying a log may take long, and other processes ask for the holder meanwhile.
#[test]
fn a_pool_names_its_holder_before_its_log_is_replayed() {
    let folder = folder();
    let pool = folder.path().join("a.pool");
    let store = killable(&pool);
    store.tree("t").unwrap().put("key", "value").unwrap();
    drop(store);
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&pool)
        .unwrap();
    assert_eq!(pool::holder_of_file(&file), Some(std::process::id()));
    file.write_all_at(&[0; 8], HOLDER).unwrap();
    assert_eq!(pool::holder_of_file(&file), None);
    let mut log = std::fs::read(log_of(&pool)).unwrap();
    log[0x3000 + 30] ^= 1;
    std::fs::write(log_of(&pool), log).unwrap();
    options().open(&pool).unwrap_err();
    assert_eq!(pool::holder_of_file(&file), Some(std::process::id()));
}

/// A failed open does not even write its holder to the file.
#[test]
fn a_pool_without_the_log_that_it_needs_is_not_touched() {
    let folder = folder();
    let pool = folder.path().join("a.pool");
    let other = folder.path().join("b.pool");
    for pool in [&pool, &other] {
        killable(pool)
            .tree("t")
            .unwrap()
            .put("key", "value")
            .unwrap();
    }
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&pool)
        .unwrap();
    file.write_all_at(&[0; 8], HOLDER).unwrap();
    let whole = std::fs::read(&pool).unwrap();
    let others = std::fs::read(log_of(&other)).unwrap();
    for medium in [MediumChoice::File, MediumChoice::Dax] {
        for there in [None, Some(&b"this is no log"[..]), Some(&others)] {
            std::fs::remove_file(log_of(&pool)).ok();
            if let Some(there) = there {
                std::fs::write(log_of(&pool), there).unwrap();
            }
            let error = options().medium(medium).open(&pool).unwrap_err();
            assert!(
                matches!(error.medium(), Some(MediumError::Log(_))),
                "{error}"
            );
            assert!(
                std::fs::read(&pool).unwrap() == whole,
                "{medium:?}, {error}"
            );
        }
    }
    // The same holds for a pool that needs no log, beside a log that holds data.
    let closed = folder.path().join("c.pool");
    options()
        .line_store(LineStore::Twin)
        .open(&closed)
        .unwrap()
        .close()
        .unwrap();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&closed)
        .unwrap();
    file.write_all_at(&[0; 8], HOLDER).unwrap();
    let whole = std::fs::read(&closed).unwrap();
    std::fs::write(log_of(&closed), &others).unwrap();
    for medium in [MediumChoice::File, MediumChoice::Dax] {
        let error = options().medium(medium).open(&closed).unwrap_err();
        assert!(
            matches!(
                error.medium(),
                Some(MediumError::Log(LogError::Unasked { .. }))
            ),
            "{error}"
        );
        assert!(std::fs::read(&closed).unwrap() == whole, "{medium:?}");
    }
}

/// A disk on which some syncs succeed; then one fails, and all after it.
static SYNCS_LEFT: AtomicI64 = AtomicI64::new(0);

/// If its log stayed, it would be refused beside every pool that is made there later.
#[test]
fn a_pool_that_could_not_be_made_leaves_nothing() {
    let fail = |io| -> Arc<dyn Io> {
        let hook = |call| match call {
            FileCall::Sync if SYNCS_LEFT.fetch_sub(1, Ordering::Relaxed) <= 0 => {
                Err(std::io::Error::other("a fault on purpose"))
            }
            _ => Ok(Then::Go),
        };
        Arc::new(Hooked::deciding(io, hook))
    };
    let mut failed = 0;
    loop {
        let folder = folder();
        let path = folder.path().join("a.pool");
        SYNCS_LEFT.store(failed, Ordering::Relaxed);
        let Err(error) = options().close_cleanly(false).through(fail).open(&path) else {
            break;
        };
        assert!(error.medium().is_some(), "{error}");
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .collect();
        assert!(left.is_empty(), "after {failed} syncs: {left:?}");
        options().open(&path).unwrap();
        failed += 1;
    }
    assert!(failed > 2, "only {failed} syncs");
}

/// A log whose syncs wait while it is shut.
#[derive(Default)]
struct Gate {
    is_shut: AtomicBool,
    has_waited: AtomicBool,
}

impl Gate {
    fn pass(&self) {
        while self.is_shut.load(Ordering::Relaxed) {
            self.has_waited.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A disk that hangs for a while.
static HANGING: Gate = Gate {
    is_shut: AtomicBool::new(false),
    has_waited: AtomicBool::new(false),
};

/// A thread that ended an epoch once held a lock while it waited for the disk. A poll of another write
/// needs that lock, and blocked its executor.
#[test]
fn a_poll_does_not_block_while_the_disk_hangs_at_the_end_of_an_epoch() {
    let hang = |io| -> Arc<dyn Io> {
        let hook = |call| {
            if call == FileCall::Sync {
                HANGING.pass();
            }
        };
        Arc::new(Hooked::new(io, hook))
    };
    let folder = folder();
    let store = options()
        .close_cleanly(false)
        .manual_epochs()
        .through(hang)
        .open(folder.path().join("a.pool"))
        .unwrap();
    let kind = TreeOptions {
        engine: Engine::MASSTREE,
        ..TreeOptions::RECORDS
    };
    let tree = store.tree_with("t", kind).unwrap();
    tree.put("first", "value").unwrap();
    HANGING.is_shut.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| store.sync());
        wait_until(|| HANGING.has_waited.load(Ordering::Relaxed));
        let poll = scope.spawn(|| {
            let mut pending = tree.pending().put("second", "value").unwrap();
            let mut context = Context::from_waker(Waker::noop());
            let is_pending = Pin::new(&mut pending).poll(&mut context).is_pending();
            (is_pending, pending)
        });
        wait_until(|| poll.is_finished());
        let has_returned = poll.is_finished();
        HANGING.is_shut.store(false, Ordering::Relaxed);
        let (is_pending, pending) = poll.join().unwrap();
        sync.join().unwrap().unwrap();
        assert!(has_returned, "the poll has waited for the disk");
        assert!(is_pending);
        pending.wait().unwrap();
    });
}

/// Waits until `is_so`, for at most 10 seconds.
fn wait_until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Such an operation once waited for the disk while it held the lock of the pool's space, or of the
/// tree's first leaf; so threads that needed the lock waited, too.
#[test]
fn a_bulk_load_that_waits_for_the_disk_holds_no_lock() {
    for engine in [Engine::RNTREE, Engine::BZTREE] {
        let folder = folder();
        let file = |name| {
            let mut open = std::fs::OpenOptions::new();
            Disk(
                open.read(true)
                    .write(true)
                    .create_new(true)
                    .open(folder.path().join(name))
                    .unwrap(),
            )
        };
        let log = Arc::new(Gate::default());
        let gate = Arc::clone(&log);
        let hook = move |call| {
            if call == FileCall::Sync {
                gate.pass();
            }
        };
        let io = Arc::new(Hooked::new(Arc::new(file("a.log")), hook));
        let store = options()
            .close_cleanly(false)
            .open_on(Arc::new(file("a")), io)
            .unwrap();
        let tree = store
            .tree_with(
                "words",
                TreeOptions {
                    engine,
                    ..TreeOptions::WORDS
                },
            )
            .unwrap();
        let words = tree.as_words().unwrap();
        let is_shut = || log.is_shut.load(Ordering::Relaxed);
        let has_waited = || log.has_waited.load(Ordering::Relaxed);
        let wait_until = |is_so: &dyn Fn() -> bool| {
            let start = Instant::now();
            while !is_so() && start.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            is_so()
        };
        // More bytes than one operation may append without a wait.
        let entries = || {
            (1..6_000_000)
                .take_while(|_| is_shut() || !has_waited())
                .map(|key| (key, key))
        };
        let has_put = AtomicBool::new(false);
        let groups = || store.stat().unwrap().log.unwrap().groups;
        std::thread::scope(|scope| {
            log.is_shut.store(true, Ordering::Relaxed);
            let load = scope.spawn(|| words.bulk_load(entries(), 1.0));
            wait_until(&has_waited);
            let put = scope.spawn(|| {
                let before = groups();
                let put = scope.spawn(|| words.put(0, 1));
                // The operation appends its last groups under its locks.
                while is_shut() && !has_put.load(Ordering::Relaxed) {
                    has_put.store(groups() >= before + 2, Ordering::Relaxed);
                }
                put.join().unwrap()
            });
            wait_until(&|| has_put.load(Ordering::Relaxed));
            let was_shut = has_put.load(Ordering::Relaxed);
            log.is_shut.store(false, Ordering::Relaxed);
            let loaded = load.join().unwrap();
            put.join().unwrap().unwrap();
            assert!(
                was_shut,
                "{engine:?}: who wrote waited for the load to get on"
            );
            assert!(
                matches!(loaded.unwrap_err().kind(), ErrorKind::NotEmpty),
                "{engine:?}"
            );
        });
    }
}
