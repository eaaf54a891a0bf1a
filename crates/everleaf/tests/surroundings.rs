//! Disks that are full and files that may not be written: the tests run themselves again, where that is so.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use everleaf::{Error, LimitedBy, LineStore, MediumChoice, Options};

/// A process that is being made holds for a moment what all tests have open: files, and their locks.
static ALONE: Mutex<()> = Mutex::new(());

/// Where the test runs that is run again, in another surrounding.
const SURROUNDING: &str = "EVERLEAF_TEST_FOLDER";

/// Runs one test of this file again, by a command that ends with this program.
fn run_again(mut command: Command, folder: &Path, name: &str) {
    let output = command.args(["--exact", name, "--nocapture"]).env(SURROUNDING, folder).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}

/// Files that may be read only, and a folder that may: told as such, to whom permissions mean something.
#[test]
fn permissions_that_are_missing_are_named() {
    if let Some(folder) = std::env::var_os(SURROUNDING) {
        return expect_refusals(Path::new(&folder));
    }
    let _alone = ALONE.lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let store = Options::new().line_store(LineStore::detect()).open(&path).unwrap();
    store.tree("t").unwrap().put("key", "value").unwrap();
    store.close().unwrap();
    let (locked, program) = (folder.path().join("locked"), folder.path().join("program"));
    fs::create_dir(&locked).unwrap();
    fs::copy(&path, locked.join("a.pool")).unwrap();
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let modes = [
        (folder.path(), 0o755),
        (&program, 0o755),
        (&path, 0o444),
        (&locked.join("a.pool"), 0o666),
        (&locked, 0o555),
    ];
    for (path, mode) in modes {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new(&program);
    if fs::metadata(&path).unwrap().uid() == 0 {
        // To root no permission is missing: somebody else tries.
        command.uid(65534).gid(65534);
    }
    run_again(command, folder.path(), "permissions_that_are_missing_are_named");
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
        assert!(matches!(&error, Error::ReadOnly { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    // The log would lie in a folder that cannot be written.
    let error = on(MediumChoice::File).open(locked.join("a.pool")).unwrap_err().to_string();
    assert!(error.contains("make the log beside the pool") && error.contains("denied"), "{error}");
    let store = on(MediumChoice::Dax).open(locked.join("a.pool")).unwrap();
    assert_eq!(store.tree("t").unwrap().get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// What the small disk holds.
const DISK_BYTES: u64 = 8 << 20;

/// On a disk of its own that is really full; where the system grants none, with a limit on the length of files.
#[test]
fn on_a_full_disk_a_pool_says_so_loses_nothing_and_stays_usable() {
    if let Some(folder) = std::env::var_os(SURROUNDING) {
        for medium in [MediumChoice::Dax, MediumChoice::File] {
            fill_disk(Path::new(&folder), medium);
        }
        return;
    }
    let _alone = ALONE.lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size={DISK_BYTES} small {:?} && ", folder.path());
    let limit = format!("trap '' XFSZ; ulimit -f {}; ", DISK_BYTES / 512);
    let ways: [(&[&str], &str); 3] = [
        (&["unshare", "--mount", "sh", "-c"], &mount),
        (&["unshare", "--map-root-user", "--mount", "sh", "-c"], &mount),
        (&["env", "sh", "-c"], &limit),
    ];
    let command = |(by, before): (&[&str], &str), then: &str| {
        let mut command = Command::new(by[0]);
        command.args(&by[1..]).arg(format!("{before}{then}"));
        command
    };
    let works = |way| command(way, "true").output().is_ok_and(|output| output.status.success());
    let way = ways.into_iter().find(|way| works(*way)).expect("a shell");
    println!("by {:?}", way.0);
    let mut again = command(way, "exec \"$0\" \"$@\"");
    again.arg(std::env::current_exe().unwrap());
    run_again(again, folder.path(), "on_a_full_disk_a_pool_says_so_loses_nothing_and_stays_usable");
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
    let Error::PoolFull { wanted, limit, by, .. } = error else { panic!("{error}") };
    match by {
        LimitedBy::Disk { free_bytes } => {
            assert!(free_bytes < wanted - limit, "{error}");
            assert!(
                error.to_string().starts_with(&format!("disk full: growing {}", folder.display())),
                "{error}"
            );
        }
        LimitedBy::FileSize => assert!(error.to_string().contains("ulimit"), "{error}"),
        _ => panic!("{error}"),
    }
    assert!(!error.to_string().contains("pool full"), "{error}");
    assert!(u64::from(count) * 1000 > DISK_BYTES / 2, "only {count} keys");
    assert_eq!((tree.len().unwrap(), store.check().unwrap()), (u64::from(count), vec![]));
    // Nothing is left for another pool, and nothing is left of it.
    let other = folder.join("other.pool");
    fs::write(folder.join("filler"), vec![1; DISK_BYTES as usize]).unwrap_err();
    if let Err(error) = options.open(&other) {
        assert!(matches!(&error, Error::PoolFull { .. } | Error::Medium { .. }), "{error}");
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
    assert_eq!((tree.len().unwrap(), store.check().unwrap()), (u64::from(count) - 200, vec![]));
    assert_eq!(tree.get(key(count - 1)).unwrap().as_deref(), Some(&[b'v'; 1000][..]));
    drop(tree);
    store.close().unwrap();
    for file in fs::read_dir(folder).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
}
