//! Full disks, and files that may not be written: each test runs itself again in such surroundings.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use everleaf::{
    Engine, ErrorKind, Grown, LimitedBy, LineStore, MediumChoice, Options, TreeOptions,
};

mod common;

use common::run_again;

/// A new process holds for a moment the files that all tests have open, and their locks.
static ALONE: Mutex<()> = Mutex::new(());

/// The variable with the folder of a test that runs again, in other surroundings.
const SURROUNDING: &str = "EVERLEAF_TEST_FOLDER";

/// Files and a folder that are read-only are reported as such, to a user who is bound by
/// permissions.
#[test]
fn permissions_that_are_missing_are_named() {
    if let Some(folder) = std::env::var_os(SURROUNDING) {
        return expect_refusals(Path::new(&folder));
    }
    let _alone = ALONE.lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let store = Options::new()
        .line_store(LineStore::detect())
        .open(&path)
        .unwrap();
    store.tree("t").unwrap().put("key", "value").unwrap();
    store.close().unwrap();
    let locked = folder.path().join("locked");
    let program = folder.path().join("program");
    fs::create_dir(&locked).unwrap();
    fs::copy(&path, locked.join("a.pool")).unwrap();
    // The pool is left as by a killed process: it needs its log.
    let killed = locked.join("b.pool");
    let log = locked.join("b.pool.log");
    let store = Options::new()
        .medium(MediumChoice::File)
        .close_cleanly(false)
        .open(&killed)
        .unwrap();
    store.tree("t").unwrap().put("key", "value").unwrap();
    drop(store);
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let modes = [
        (folder.path(), 0o755),
        (&program, 0o755),
        (&path, 0o444),
        (&locked.join("a.pool"), 0o666),
        (&killed, 0o444),
        (&log, 0o444),
        (&locked, 0o555),
    ];
    for (path, mode) in modes {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new(&program);
    if fs::metadata(&path).unwrap().uid() == 0 {
        // Permissions do not bind root, so another user tries.
        command.uid(65534).gid(65534);
    }
    run_again(
        command,
        SURROUNDING,
        folder.path(),
        "permissions_that_are_missing_are_named",
    );
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
}

fn expect_refusals(folder: &Path) {
    let locked = folder.join("locked");
    let on = |medium| Options::new().medium(medium);
    let opens = [
        (on(MediumChoice::Auto), folder.join("a.pool")),
        (on(MediumChoice::Dax), folder.join("a.pool")),
        (on(MediumChoice::File), folder.join("a.pool")),
        (on(MediumChoice::Dax), locked.join("new.pool")),
        (on(MediumChoice::File), locked.join("new.pool")),
    ];
    for (options, path) in opens {
        let error = options.open(&path).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::NotWritable { .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
    }
    for path in [
        folder.join("a.pool"),
        locked.join("a.pool"),
        locked.join("b.pool"),
    ] {
        let store = Options::new().read_only(true).open(&path).unwrap();
        assert_eq!(
            store.tree("t").unwrap().get("key").unwrap().as_deref(),
            Some(&b"value"[..])
        );
    }
    // The log would lie in a folder that cannot be written.
    let error = on(MediumChoice::File)
        .open(locked.join("a.pool"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("make the log beside the pool") && error.contains("denied"),
        "{error}"
    );
    let store = on(MediumChoice::Dax).open(locked.join("a.pool")).unwrap();
    assert_eq!(
        store.tree("t").unwrap().get("key").unwrap().as_deref(),
        Some(&b"value"[..])
    );
}

/// The size of the small disk.
const DISK_BYTES: u64 = 8 << 20;

/// Runs on a disk of its own that is really full or, if the system grants none, with a limit on the
/// length of files.
#[test]
fn on_a_full_disk_a_pool_says_so_loses_nothing_and_stays_usable() {
    if let Some(folder) = std::env::var_os(SURROUNDING) {
        for medium in [MediumChoice::Dax, MediumChoice::File] {
            fill_disk(Path::new(&folder), medium);
        }
        return;
    }
    on_a_small_disk(
        "on_a_full_disk_a_pool_says_so_loses_nothing_and_stays_usable",
        true,
    );
}

/// Runs a test again, on a small disk. If the system grants none, runs it with a limit on the
/// length of files if that is enough; otherwise the test is left out.
fn on_a_small_disk(test: &str, limit_will_do: bool) {
    let _alone = ALONE.lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mount = format!(
        "mount -t tmpfs -o size={DISK_BYTES} small '{}' && ",
        folder.path().display()
    );
    let limit = format!("trap '' XFSZ; ulimit -f {}; ", DISK_BYTES / 512);
    let ways: [(&[&str], &str); 3] = [
        (&["unshare", "--mount", "sh", "-c"], &mount),
        (
            &["unshare", "--map-root-user", "--mount", "sh", "-c"],
            &mount,
        ),
        (&["env", "sh", "-c"], &limit),
    ];
    let command = |(by, before): (&[&str], &str), then: &str| {
        let mut command = Command::new(by[0]);
        command.args(&by[1..]).arg(format!("{before}{then}"));
        command
    };
    let works = |way| {
        command(way, "true")
            .output()
            .is_ok_and(|output| output.status.success())
    };
    let ways = &ways[..if limit_will_do { 3 } else { 2 }];
    let Some(way) = ways.iter().copied().find(|way| works(*way)) else {
        assert!(!limit_will_do, "no shell");
        eprintln!("SKIPPED: {test}: the system grants no mount");
        return;
    };
    println!("by {:?}", way.0);
    let mut again = command(way, "exec \"$0\" \"$@\"");
    again.arg(std::env::current_exe().unwrap());
    run_again(again, SURROUNDING, folder.path(), test);
}

/// Takes all room of a disk.
fn take_all(folder: &Path) -> PathBuf {
    let path = folder.join("filler");
    let mut filler = fs::File::create(&path).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    path
}

#[test]
fn entries_are_read_and_removed_on_a_disk_with_no_byte_free() {
    if let Some(folder) = std::env::var_os(SURROUNDING) {
        for engine in Engine::ALL {
            remove_on_full_disk(Path::new(&folder), *engine);
        }
        return;
    }
    on_a_small_disk(
        "entries_are_read_and_removed_on_a_disk_with_no_byte_free",
        false,
    );
}

#[test]
fn a_pool_is_read_on_a_read_only_file_system() {
    if let Some(folder) = std::env::var_os(SURROUNDING) {
        return read_on_read_only_disk(Path::new(&folder));
    }
    on_a_small_disk("a_pool_is_read_on_a_read_only_file_system", false);
}

fn read_on_read_only_disk(folder: &Path) {
    let path = |number: usize| folder.join(format!("{number}.pool"));
    for (number, engine) in Engine::ALL.iter().enumerate() {
        // Half of the pools are left as by a killed process.
        let options = Options::new()
            .medium(MediumChoice::File)
            .log_bytes(64 << 10);
        let store = options
            .close_cleanly(number % 2 == 0)
            .open(path(number))
            .unwrap();
        let tree = store
            .tree_with(
                "t",
                TreeOptions {
                    engine: *engine,
                    ..TreeOptions::RECORDS
                },
            )
            .unwrap();
        tree.put("key", "value").unwrap();
        store.sync().unwrap();
    }
    let mounted = Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(folder)
        .status()
        .unwrap();
    assert!(mounted.success());
    fs::write(folder.join("new"), "text").unwrap_err();
    for number in 0..Engine::ALL.len() {
        let error = Options::new().open(path(number)).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::NotWritable { .. }),
            "{error}"
        );
        let store = Options::new().read_only(true).open(path(number)).unwrap();
        assert_eq!(store.check().unwrap(), []);
        assert_eq!(
            store.open_tree("t").unwrap().get("key").unwrap().as_deref(),
            Some(&b"value"[..])
        );
        let elsewhere = tempfile::tempdir().unwrap();
        store.backup(elsewhere.path().join("copy")).unwrap();
        assert_eq!(
            Options::new()
                .open(elsewhere.path().join("copy"))
                .unwrap()
                .check()
                .unwrap(),
            []
        );
    }
}

#[test]
fn a_copy_needs_room_in_the_folder_of_the_pool_and_the_error_says_so() {
    if let Some(folder) = std::env::var_os(SURROUNDING) {
        return read_beside_a_writer_on_full_disk(Path::new(&folder));
    }
    on_a_small_disk(
        "a_copy_needs_room_in_the_folder_of_the_pool_and_the_error_says_so",
        false,
    );
}

fn read_beside_a_writer_on_full_disk(folder: &Path) {
    let path = folder.join("a.pool");
    let options = Options::new().medium(MediumChoice::File);
    let reader = options.clone().read_only(true);
    let writer = options.open(&path).unwrap();
    let tree = writer.tree("t").unwrap();
    tree.put("key", "value").unwrap();
    let filler = take_all(folder);
    let expect_value = |store: &everleaf::Store| {
        let value = store.open_tree("t").unwrap().get("key").unwrap();
        assert_eq!(value.as_deref(), Some(&b"value"[..]));
    };
    // A reader in place needs no room.
    expect_value(&reader.open(&path).unwrap());
    let copier = reader.read_from_copy(true);
    let error = copier.open(&path).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotBeside { .. }),
        "{error}"
    );
    let text = error.to_string();
    let says_so = text.contains("a copy in its folder needs") && text.contains("0 bytes are free");
    assert!(says_so, "{error}");
    fs::remove_file(&filler).unwrap();
    expect_value(&copier.open(&path).unwrap());
    drop(tree);
    writer.close().unwrap();
    // While no process writes, a reader without a copy keeps writers out instead.
    take_all(folder);
    let store = copier.open(&path).unwrap();
    expect_value(&store);
    let error = options.open(&path).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Locked { readers: true, .. }),
        "{error}"
    );
}

fn remove_on_full_disk(folder: &Path, engine: Engine) {
    let path = folder.join("a.pool");
    let options = Options::new().medium(MediumChoice::File).create(false);
    let key = |number: u32| format!("key {number:06}");
    let store = options.clone().create(true).open(&path).unwrap();
    let tree = store
        .tree_with(
            "records",
            TreeOptions {
                engine,
                ..TreeOptions::RECORDS
            },
        )
        .unwrap();
    (0..1000).for_each(|number| tree.put(key(number), [7; 100]).unwrap());
    drop(tree);
    store.close().unwrap();
    let filler = take_all(folder);
    for left in (400..1000).rev().step_by(100) {
        // Each close keeps the reserve for the next open.
        let reader = Options::new().read_only(true).open(&path).unwrap();
        assert_eq!(reader.check().unwrap(), []);
        assert_eq!(
            reader.open_tree("records").unwrap().len().unwrap(),
            u64::from(left) + 1
        );
        drop(reader);
        let store = options.open(&path).unwrap();
        let tree = store.open_tree("records").unwrap();
        (left - 99..=left).for_each(|number| assert!(tree.remove(key(number)).unwrap()));
        drop(tree);
        store.close().unwrap();
        assert!(!everleaf::log_path(&path).exists());
        take_all(folder);
    }
    // Without the reserve the log has no room, and the error says so.
    let length = fs::metadata(&path).unwrap().len();
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(length)
        .unwrap();
    let more = folder.join("more");
    fs::rename(&filler, &more).unwrap();
    take_all(folder);
    let before = fs::read(&path).unwrap();
    let error = options.open(&path).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::PoolFull {
                file: Grown::Log,
                ..
            }
        ),
        "{error}"
    );
    let log = everleaf::log_path(&path);
    assert!(
        error
            .to_string()
            .starts_with(&format!("disk full: creating {} with ", log.display())),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("with 0 bytes free; free some space"),
        "{error}"
    );
    assert!(!log.exists() && fs::read(&path).unwrap() == before);
    // With room again, the next close keeps a reserve again.
    fs::remove_file(&more).unwrap();
    options.open(&path).unwrap().close().unwrap();
    take_all(folder);
    let store = options.open(&path).unwrap();
    assert_eq!(
        (
            store.check().unwrap(),
            store.open_tree("records").unwrap().len().unwrap()
        ),
        (vec![], 400)
    );
    store.close().unwrap();
    for file in fs::read_dir(folder).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
}

fn fill_disk(folder: &Path, medium: MediumChoice) {
    let path = folder.join("a.pool");
    let options = Options::new().medium(medium).log_bytes(1 << 20);
    let store = options.open(&path).unwrap();
    let tree = store.tree("records").unwrap();
    let key = |number: u32| format!("key {number:06}");
    let mut count = 0;
    let error = loop {
        match tree.put(key(count), vec![b'v'; 1000]) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        assert!(u64::from(count) * 1000 < DISK_BYTES, "no limit");
    };
    assert!(error.is_full(), "{error}");
    let ErrorKind::PoolFull {
        wanted, limit, by, ..
    } = *error.kind()
    else {
        panic!("{error}")
    };
    match by {
        LimitedBy::Disk { free_bytes } => {
            assert!(free_bytes < wanted - limit, "{error}");
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("disk full: growing {}", folder.display())),
                "{error}"
            );
        }
        LimitedBy::FileSize => assert!(error.to_string().contains("ulimit"), "{error}"),
        _ => panic!("{error}"),
    }
    assert!(!error.to_string().contains("pool full"), "{error}");
    assert!(
        u64::from(count) * 1000 > DISK_BYTES / 2,
        "only {count} keys"
    );
    assert_eq!(
        (tree.len().unwrap(), store.check().unwrap()),
        (u64::from(count), vec![])
    );
    // There is no room for another pool, and the failed attempt leaves no file.
    let other = folder.join("other.pool");
    fs::write(folder.join("filler"), vec![1; DISK_BYTES as usize]).unwrap_err();
    if let Err(error) = options.open(&other) {
        assert!(
            matches!(
                error.kind(),
                ErrorKind::PoolFull { .. } | ErrorKind::Medium { .. }
            ),
            "{error}"
        );
        assert!(!other.exists());
    }
    fs::remove_file(folder.join("filler")).unwrap();
    for number in 0..500 {
        assert!(tree.remove(key(number)).unwrap());
    }
    for number in 0..300 {
        tree.put(key(number), vec![b'w'; 1000]).unwrap();
    }
    drop(tree);
    store.close().unwrap();
    let store = options.open(&path).unwrap();
    let tree = store.tree("records").unwrap();
    assert_eq!(
        (tree.len().unwrap(), store.check().unwrap()),
        (u64::from(count) - 200, vec![])
    );
    assert_eq!(
        tree.get(key(count - 1)).unwrap().as_deref(),
        Some(&[b'v'; 1000][..])
    );
    drop(tree);
    store.close().unwrap();
    for file in fs::read_dir(folder).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
}
