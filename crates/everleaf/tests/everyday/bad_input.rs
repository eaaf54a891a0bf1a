//! Files that are no pools, or not any more: the result is a typed error or a whole store, never a
//! panic, and nothing is lost.

use std::fs;
use std::path::{Path, PathBuf};

use everleaf::{
    Engine, ErrorKind, LimitedBy, LineForm, LineStore, Options, Result, Store, Survives, TreeInfo,
    TreeOptions,
};
use medium::testing::stride;
use tempfile::TempDir;

use crate::common::{flipped, folder, opened};

const COPIES: [usize; 2] = [0x0000, 0x1000];
const STATE: usize = 0x2000;
/// The two copies of the first slots of the root table, and the bytes of a slot.
const ROOT_TABLES: [usize; 2] = [0x3000, 0xd800];
const ROOT_TABLE: usize = ROOT_TABLES[0];
const SLOT: usize = 512;
const HEADER_BYTES: usize = 64;

/// A pool with a tree of records and a tree of words, and then a tree of each engine, 200 keys
/// each.
fn pool() -> (TempDir, PathBuf) {
    pool_with(LineStore::detect())
}

fn pool_with(line_store: LineStore) -> (TempDir, PathBuf) {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let store = Options::new().line_store(line_store).open(&path).unwrap();
    let records = store.tree("records").unwrap();
    let words = store.word_tree("words").unwrap();
    for number in 0..200_u64 {
        records
            .put(format!("key {number:03}"), format!("value {number}"))
            .unwrap();
        words.put(number, number + 1).unwrap();
    }
    drop((records, words));
    for engine in Engine::ALL.iter().copied() {
        let tree = store
            .tree_with(
                engine.name(),
                TreeOptions {
                    engine,
                    ..TreeOptions::RECORDS
                },
            )
            .unwrap();
        (0..200_u64).for_each(|number| tree.put(number.to_be_bytes(), engine.name()).unwrap());
    }
    store.close().unwrap();
    (folder, path)
}

fn expect_whole(store: &Store) -> Result<()> {
    let records = store.tree("records")?;
    let words = store.word_tree("words")?;
    for number in 0..200_u64 {
        let value = records.get(format!("key {number:03}"))?;
        assert_eq!(value.as_deref(), Some(format!("value {number}").as_bytes()));
        assert_eq!(words.get(number)?, Some(number + 1));
    }
    assert_eq!((records.len()?, words.len()?), (200, 200));
    for engine in Engine::ALL.iter().copied() {
        let tree = store.open_tree(engine.name())?;
        for number in 0..200_u64 {
            assert_eq!(
                tree.get(number.to_be_bytes())?.as_deref(),
                Some(engine.name().as_bytes())
            );
        }
        assert_eq!(tree.len()?, 200);
    }
    Ok(())
}

fn header_with(bytes: &[u8], word: usize, value: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for copy in COPIES {
        bytes[copy + 8 * word..][..8].copy_from_slice(&value.to_le_bytes());
        let check = u64::from(crc32c::crc32c(&bytes[copy..copy + 56]));
        bytes[copy + 56..][..8].copy_from_slice(&check.to_le_bytes());
    }
    bytes
}

#[test]
fn a_header_copy_with_any_flipped_byte_is_mended_from_the_other() {
    let (_folder, path) = pool();
    let whole = fs::read(&path).unwrap();
    for copy in COPIES {
        for byte in 0..HEADER_BYTES {
            fs::write(&path, flipped(&whole, &[copy + byte], 1 << (byte % 8))).unwrap();
            let store =
                opened(&path).unwrap_or_else(|error| panic!("byte {byte} of {copy:#x}: {error}"));
            expect_whole(&store).unwrap();
            store.close().unwrap();
            let mended = fs::read(&path).unwrap();
            for copy in COPIES {
                assert_eq!(
                    mended[copy..copy + HEADER_BYTES],
                    whole[copy..copy + HEADER_BYTES]
                );
            }
        }
    }
}

#[test]
fn both_header_copies_with_a_flipped_byte_are_a_typed_error_and_nothing_is_written() {
    let (_folder, path) = pool();
    let whole = fs::read(&path).unwrap();
    for byte in 0..HEADER_BYTES {
        let damaged = flipped(&whole, &[byte, COPIES[1] + byte], 0x10);
        fs::write(&path, &damaged).unwrap();
        let error = opened(&path).unwrap_err();
        let typed = matches!(
            error.kind(),
            ErrorKind::Unopenable { offset: 0, .. } | ErrorKind::NotAPool { .. }
        );
        assert!(typed, "byte {byte}: {error}");
        assert!(error.to_string().contains("a.pool"), "{error}");
        assert!(
            fs::read(&path).unwrap() == damaged,
            "byte {byte}: the file was written to"
        );
    }
    fs::write(&path, &whole).unwrap();
    expect_whole(&opened(&path).unwrap()).unwrap();
}

/// If the records of the pool's own space are damaged, its use is found anew, as after a crash.
#[test]
fn a_flipped_byte_in_the_state_line_costs_nothing() {
    let (_folder, path) = pool();
    let whole = fs::read(&path).unwrap();
    for (byte, clean) in (0..64).flat_map(|byte| [(byte, true), (byte, false)]) {
        let mut damaged = flipped(&whole, &[STATE + byte], 0x40);
        if !clean {
            damaged[STATE + 9] ^= 1; // the clean flag fails its check
        }
        fs::write(&path, damaged).unwrap();
        let store = opened(&path).unwrap_or_else(|error| panic!("byte {byte}: {error}"));
        expect_whole(&store).unwrap();
        let words = store.word_tree("words").unwrap();
        (200..4000).for_each(|number| words.put(number, 1).unwrap());
        (200..4000).for_each(|number| assert!(words.remove(number).unwrap()));
        assert_eq!(store.check().unwrap(), []);
        drop(words);
        // If an open left the mark for later, a close before its end leaves it to the next open.
        store.finish_recovery();
        store.close().unwrap();
        let store = opened(&path).unwrap();
        assert!(!store.recovery().after_crash);
        expect_whole(&store).unwrap();
    }
}

/// A slot is kept twice: damage to one copy was once enough to lose a tree.
#[test]
fn a_flipped_byte_in_the_root_table_costs_nothing() {
    let (_folder, path) = pool();
    let whole = fs::read(&path).unwrap();
    for table in ROOT_TABLES {
        for byte in (0..SLOT * (2 + Engine::ALL.len())).step_by(stride(7)) {
            fs::write(&path, flipped(&whole, &[table + byte], 0x04)).unwrap();
            let used = opened(&path).and_then(|store| expect_whole(&store));
            assert!(used.is_ok(), "byte {byte} from {table:#x}: {used:?}");
        }
    }
}

/// A block that a disk lost or tore, wherever it lies in the root table.
#[test]
fn lost_blocks_of_one_copy_of_the_root_table_cost_nothing() {
    let (_folder, path) = pool();
    let whole = fs::read(&path).unwrap();
    for table in ROOT_TABLES {
        for at in (0..SLOT * (2 + Engine::ALL.len())).step_by(256) {
            for filler in [0, 0xa5] {
                let mut damaged = whole.clone();
                damaged[table + at..][..256].fill(filler);
                fs::write(&path, damaged).unwrap();
                let used = opened(&path).and_then(|store| expect_whole(&store));
                assert!(used.is_ok(), "{at} from {table:#x}: {used:?}");
            }
        }
    }
}

/// Uses every part of the trees. Answers may be wrong, but each operation returns one.
fn use_all(store: &Store) -> bool {
    let mut clean = store.check().unwrap().is_empty();
    for name in ["records", "words"] {
        let Ok(tree) = store.open_tree(name) else {
            clean = false;
            continue;
        };
        clean &= tree.iter().all(|entry| entry.is_ok());
        clean &= tree.iter().rev().all(|entry| entry.is_ok());
        let keys: Vec<Vec<u8>> = match name {
            "words" => (0..200_u64)
                .map(|number| number.to_be_bytes().to_vec())
                .collect(),
            _ => (0..200)
                .map(|number| format!("key {number:03}").into_bytes())
                .collect(),
        };
        for key in &keys {
            clean &= tree.get(key).is_ok();
            clean &= tree.put(key, 7_u64.to_be_bytes()).is_ok();
            clean &= tree.remove(key).is_ok();
        }
    }
    clean
}

/// Damage at one end once ended the whole range: the other end stopped, and did not report that
/// entries were missing.
#[test]
fn a_range_whose_one_end_met_damage_goes_on_from_the_other() -> Result<()> {
    let (_folder, path) = pool();
    let whole = fs::read(&path).unwrap();
    let expected = |from: u64, to: u64| {
        (from..to)
            .map(|number| format!("key {number:03}"))
            .collect::<Vec<_>>()
    };
    for damaged in [199, 150, 0, 50] {
        let key = format!("key {damaged:03}\0");
        let at = whole
            .windows(key.len())
            .position(|window| window == key.as_bytes())
            .unwrap();
        // The damaged word is the length of its record's key.
        fs::write(&path, flipped(&whole, &[at - 6], 8)).unwrap();
        let store = opened(&path)?;
        let tree = store.tree("records")?;
        let mut range = tree.iter();
        let mut before = Vec::new();
        let mut behind = Vec::new();
        let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
        if damaged >= 100 {
            while let Ok(Some((key, _))) = range.next_entry_back() {
                behind.insert(0, text(key));
            }
        } else {
            while let Ok(Some((key, _))) = range.next_entry() {
                before.push(text(key));
            }
        }
        range.skip_damage();
        // The range goes on from the other end, up to the damage, and past it to the entries at the
        // front.
        loop {
            let next = if damaged >= 100 {
                range.next_entry()
            } else {
                range.next_entry_back()
            };
            match next {
                Ok(Some((key, _))) if damaged >= 100 => before.push(text(key)),
                Ok(Some((key, _))) => behind.insert(0, text(key)),
                Ok(None) => break,
                Err(error) => {
                    assert!(error.is_corrupt(), "{error}");
                    range.skip_damage();
                }
            }
        }
        assert_eq!(
            (before, behind),
            (expected(0, damaged), expected(damaged + 1, 200))
        );
    }
    Ok(())
}

/// The offset of the first leaf of the tree in this slot of the root table.
fn first_leaf(bytes: &[u8], slot: usize) -> usize {
    let word = ROOT_TABLE + SLOT * slot + 8 * 18;
    let word = u64::from_le_bytes(bytes[word..][..8].try_into().unwrap());
    (word & ((1 << 48) - 1)) as usize
}

/// One line store of each form that this processor has.
fn forms() -> Vec<LineStore> {
    let single = [LineStore::Movdir64b, LineStore::Avx512, LineStore::Rtm];
    let single = single.into_iter().find(|store| store.is_supported());
    single.into_iter().chain([LineStore::Twin]).collect()
}

/// Where the slot line of a leaf is: once, or twice in a pool of twin lines.
fn slot_lines(leaf: usize, form: LineStore) -> Vec<usize> {
    if form == LineStore::Twin {
        vec![leaf - 64, leaf]
    } else {
        vec![leaf]
    }
}

/// Damages a pool, opens it as after a clean close and as after a crash, and uses it. Returns
/// whether the damage was noticed both times.
fn try_damage(path: &Path, whole: &[u8], form: LineStore, offset: usize, mask: u8) -> bool {
    [true, false].into_iter().all(|clean| {
        let mut damaged = flipped(whole, &[offset], mask);
        if !clean {
            damaged[STATE + 8] ^= 1; // the clean flag fails its check
        }
        fs::write(path, damaged).unwrap();
        match Options::new().create(false).line_store(form).open(path) {
            Ok(store) => !use_all(&store),
            Err(error) => {
                assert!(error.is_corrupt(), "offset {offset:#x}: {error}");
                true
            }
        }
    })
}

/// Damage that was not noticed must have changed nothing.
fn expect_kept(path: &Path, whole: &[u8], form: LineStore, offset: usize, mask: u8) {
    for clean in [true, false] {
        let mut damaged = flipped(whole, &[offset], mask);
        if !clean {
            damaged[STATE + 8] ^= 1;
        }
        fs::write(path, damaged).unwrap();
        let opened = Options::new().create(false).line_store(form).open(path);
        // Only one of the two opens may have noticed it.
        if let Ok(store) = opened
            && store.check().unwrap().is_empty()
        {
            expect_whole(&store).unwrap_or_else(|error| panic!("offset {offset:#x}: {error}"));
        }
    }
}

#[test]
fn a_flipped_byte_in_a_slot_line_is_noticed() {
    for form in forms() {
        let (_folder, path) = pool_with(form);
        let whole = fs::read(&path).unwrap();
        for leaf in [first_leaf(&whole, 0), first_leaf(&whole, 1)] {
            for line in slot_lines(leaf, form) {
                for byte in (0..64).step_by(stride(5)) {
                    let noticed = try_damage(&path, &whole, form, line + byte, 1 << (byte % 8));
                    // Only one copy of twin lines counts, and the tags say which. After a crash a
                    // copy with another tag looks torn: then the leaf may be as it was one change
                    // earlier.
                    let is_tag = byte % 8 == 7;
                    assert!(
                        noticed || form == LineStore::Twin,
                        "byte {byte} of the slot line"
                    );
                    if !noticed && !is_tag {
                        expect_kept(&path, &whole, form, line + byte, 1 << (byte % 8));
                    }
                }
            }
        }
    }
}

#[test]
fn a_flipped_byte_in_an_entry_or_a_record_is_noticed() {
    for form in forms() {
        let (_folder, path) = pool_with(form);
        let whole = fs::read(&path).unwrap();
        let records = first_leaf(&whole, 0) + 64;
        let words = first_leaf(&whole, 1) + 64;
        // The first 28 entries stayed when the leaf was split, so they are in use.
        for byte in (0..16 * 28).step_by(stride(7)) {
            let noticed = try_damage(&path, &whole, form, records + byte, 1 << (byte % 8));
            assert!(noticed, "byte {byte} of the entries of records");
        }
        for byte in (0..16 * 28).step_by(stride(17)) {
            let noticed = try_damage(&path, &whole, form, words + byte, 1 << (byte % 8));
            assert!(noticed, "byte {byte} of the entries of words");
        }
        let record =
            u64::from_le_bytes(whole[records + 8..][..8].try_into().unwrap()) & ((1 << 48) - 1);
        for byte in 0..8 + 7 + 7 {
            let noticed = try_damage(&path, &whole, form, record as usize + byte, 1 << (byte % 8));
            assert!(noticed || byte == 8 + 7, "byte {byte} of the first record");
        }
    }
}

#[test]
fn a_damaged_tree_leaves_the_others_usable_and_is_not_overwritten() {
    for form in forms() {
        let (_folder, path) = pool_with(form);
        let mut bytes = fs::read(&path).unwrap();
        let leaf = first_leaf(&bytes, 0);
        for line in slot_lines(leaf, form) {
            bytes[line + 6] = 0x3f; // more entries than a leaf has
        }
        bytes[STATE + 8] ^= 1;
        fs::write(&path, &bytes).unwrap();
        for _ in 0..2 {
            let store = Options::new()
                .create(false)
                .line_store(form)
                .open(&path)
                .unwrap();
            assert!(store.recovery().after_crash);
            assert_eq!(store.recovery().damaged.len(), 1);
            assert!(matches!(
                store.tree("records").unwrap_err().kind(),
                ErrorKind::Corrupt { .. }
            ));
            assert!(matches!(
                store.drop_tree("records").unwrap_err().kind(),
                ErrorKind::Corrupt { .. }
            ));
            let found = store.check().unwrap();
            // The damage concerns the leaf, and the leaves behind it, which are found in the slabs.
            assert!(!found.is_empty());
            assert!(
                found
                    .iter()
                    .all(|found| found.tree.as_deref() == Some("records")),
                "{found:?}"
            );
            let words = store.word_tree("words").unwrap();
            assert_eq!(words.get(5).unwrap(), Some(6));
            for number in 0..20_000 {
                words.put(number, number + 1).unwrap();
            }
            drop(words);
            store.close().unwrap();
            let now = fs::read(&path).unwrap();
            assert!(
                now[leaf..leaf + 960] == bytes[leaf..leaf + 960],
                "the damaged leaf was reused"
            );
        }
    }
}

/// Its space once stayed taken until the next crash.
#[test]
fn what_a_damaged_tree_that_was_dropped_leaves_behind_is_found_by_the_next_open() -> Result<()> {
    let (_folder, path) = pool();
    let mut bytes = fs::read(&path).unwrap();
    assert!(
        Store::open(&path)?
            .trees()?
            .iter()
            .any(|tree| tree.name == "bztree")
    );
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..][..8].try_into().unwrap());
    let slot = (0..8).find(|slot| bytes[ROOT_TABLE + SLOT * slot + 16..].starts_with(b"bztree"));
    let anchor =
        (word(&bytes, ROOT_TABLE + SLOT * slot.unwrap() + 8 * 18) & ((1 << 48) - 1)) as usize;
    // The second child of the root.
    let root = (word(&bytes, anchor) & ((1 << 48) - 2)) as usize;
    bytes[root + 512 + 8..][..8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let store = opened(&path)?;
    let error = store.drop_tree("bztree").unwrap_err();
    assert!(error.is_corrupt(), "{error}");
    assert!(matches!(
        store.open_tree("bztree").unwrap_err().kind(),
        ErrorKind::NoSuchTree { .. }
    ));
    let before = store.stat()?.allocations;
    store.close()?;
    let store = opened(&path)?;
    store.finish_recovery();
    assert!(store.stat()?.allocations < before);
    assert_eq!(store.check()?, []);
    Ok(())
}

#[test]
fn all_damage_of_a_tree_that_does_not_open_is_listed() -> Result<()> {
    let (_folder, path) = pool();
    let mut bytes = fs::read(&path).unwrap();
    for number in [5_u64, 190] {
        let entry = [number.to_le_bytes(), (number + 1).to_le_bytes()].concat();
        let at = bytes
            .windows(16)
            .position(|window| window == entry)
            .unwrap();
        bytes[at + 12] ^= 4;
    }
    fs::write(&path, &bytes).unwrap();
    let store = opened(&path)?;
    let error = store.open_tree("words").unwrap_err();
    let ErrorKind::Corrupt { offset: first, .. } = *error.kind() else {
        panic!("no damage")
    };
    let found = store.check()?;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found
            .iter()
            .all(|violation| violation.tree.as_deref() == Some("words"))
    );
    assert!(
        found[0].offset == Some(first) && found[1].offset > Some(first),
        "{found:?}"
    );
    let mut saved = 0;
    let left_out = store.salvage("words", |_, _| {
        saved += 1;
        true
    });
    assert_eq!((left_out?.len(), saved > 80), (2, true));
    assert!(matches!(
        store.salvage("none", |_, _| true).unwrap_err().kind(),
        ErrorKind::NoSuchTree { .. }
    ));
    Ok(())
}

#[test]
fn a_pool_of_another_version_or_with_unknown_features_is_refused() {
    let (_folder, path) = pool();
    let whole = fs::read(&path).unwrap();
    let ours = u64::from(pool::FORMAT_VERSION);
    for found in [ours - 1, ours + 1] {
        fs::write(&path, header_with(&whole, 1, found)).unwrap();
        let error = opened(&path).unwrap_err();
        let ErrorKind::Version {
            found: other,
            supported,
        } = *error.kind()
        else {
            panic!("{error}")
        };
        assert_eq!((u64::from(other), u64::from(supported)), (found, ours));
        assert!(error.to_string().contains("dump"), "{error}");
    }
    fs::write(&path, header_with(&whole, 2, 1 << 9)).unwrap();
    let error = opened(&path).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::UnknownFeatures { unknown: 0x200 }),
        "{error}"
    );
}

#[test]
fn a_tree_of_an_unknown_engine_is_named_and_the_others_are_usable() -> Result<()> {
    let (_folder, path) = pool();
    let mut bytes = fs::read(&path).unwrap();
    let state = 0x0001_0002_004d_u64; // in use, codec 2, engine 77
    let check = u64::from(crc32c::crc32c(&state.to_le_bytes()) & 0xffff) << 48;
    bytes[ROOT_TABLE..][..8].copy_from_slice(&(state | check).to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let store = opened(&path)?;
    let error = store.tree("records").unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::UnknownEngine { engine: 77, .. }),
        "{error}"
    );
    assert!(store.trees()?.iter().any(|tree| tree.kind.is_none()));
    assert_eq!(store.word_tree("words")?.len()?, 200);
    assert_eq!(store.check()?.len(), 1);
    Ok(())
}

#[test]
fn a_truncated_pool_is_refused_and_not_written_to() {
    let (_folder, path) = pool();
    let whole = fs::read(&path).unwrap();
    for length in [
        1,
        7,
        63,
        64,
        4096,
        0x2008,
        0xffff,
        0x10000,
        0x10001,
        whole.len() / 2,
        whole.len() - 1,
    ] {
        fs::write(&path, &whole[..length]).unwrap();
        let error = opened(&path).unwrap_err();
        let typed = matches!(error.kind(), ErrorKind::Unopenable { .. })
            || length < 64 && matches!(error.kind(), ErrorKind::NotAPool { .. });
        assert!(typed, "{length} bytes: {error}");
        assert!(
            fs::read(&path).unwrap() == whole[..length],
            "{length} bytes: the file was written to"
        );
    }
}

#[test]
fn files_that_are_no_pools_are_refused_and_not_written_to() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    let contents: [Vec<u8>; 5] = [
        b"dear diary\n".to_vec(),
        b"line\n".repeat(100_000),
        vec![0; 100],
        vec![0; 65_537],
        [
            vec![0; 65_536],
            b"an image that begins with a hole".repeat(99),
        ]
        .concat(),
    ];
    for content in contents {
        fs::write(&path, &content).unwrap();
        let error = Store::open(&path).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::NotAPool { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("notes.txt"), "{error}");
        assert!(fs::read(&path).unwrap() == content);
    }
    for odd in [folder.path(), Path::new("/dev/null")] {
        let error = Store::open(odd).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::NotAPool { .. }),
            "{error}"
        );
    }
    fs::write(&path, "").unwrap();
    assert!(matches!(
        opened(&path).unwrap_err().kind(),
        ErrorKind::NotAPool { .. }
    ));
    Store::open(&path).unwrap().tree("t").unwrap();
}

#[test]
fn a_missing_file_is_made_only_if_asked() {
    let folder = folder();
    let path = folder.path().join("new.pool");
    assert!(matches!(
        opened(&path).unwrap_err().kind(),
        ErrorKind::NoSuchPool
    ));
    assert!(!path.exists());
    let error = Store::open(folder.path().join("no/such/folder")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    // An open that fails leaves no file behind.
    if let Err(error) = Options::new().require(Survives::PowerLoss).open(&path) {
        assert!(
            matches!(error.kind(), ErrorKind::NotDurable { .. }),
            "{error}"
        );
        assert!(!path.exists());
    }
    let error = Options::new().limit_bytes(1000).open(&path).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::PoolFull { limit: 1000, .. }),
        "{error}"
    );
    assert!(!path.exists());
}

#[test]
fn read_only_files_and_folders_are_named_as_such() {
    // sysfs refuses to be written even by root.
    for path in ["/sys/kernel/fscaps", "/sys/kernel/new.pool"] {
        if !Path::new("/sys/kernel").is_dir() {
            return;
        }
        let error = Store::open(path).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::NotWritable { .. }),
            "{error}"
        );
    }
}

#[test]
fn a_pool_keeps_the_form_of_its_lines() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("twin.pool");
    let store = Options::new().line_store(LineStore::Twin).open(&path)?;
    store.tree("t")?.put("a", "b")?;
    assert_eq!(store.stat()?.line_form, LineForm::Twin);
    store.close()?;
    let store = Store::open(&path)?; // whatever the processor likes best
    assert_eq!(store.tree("t")?.get("a")?.as_deref(), Some(b"b".as_slice()));
    store.close()?;
    for single in [LineStore::Movdir64b, LineStore::Avx512, LineStore::Rtm] {
        let error = Options::new().line_store(single).open(&path).unwrap_err();
        let expected = if single.is_supported() {
            "LineForm"
        } else {
            "Unsupported"
        };
        assert!(
            format!("{:?}", error.kind()).starts_with(expected),
            "{error}"
        );
    }
    let unsupported = everleaf::FlushKind::all()
        .into_iter()
        .find(|flush| !flush.is_supported());
    let error = Options::new()
        .flush(unsupported.unwrap())
        .open(&path)
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unsupported { .. }),
        "{error}"
    );
    Ok(())
}

#[test]
fn at_its_limit_a_pool_says_so_loses_nothing_and_stays_usable() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("small.pool");
    let limited = Options::new().limit_bytes(1 << 20);
    let store = limited.open(&path)?;
    let records = store.tree("records")?;
    let words = store.word_tree("words")?;
    let mut count = 0_u64;
    let mut refused = 0;
    while refused < 2 {
        refused = 0;
        for result in [
            records.put(format!("key {count:06}"), vec![b'v'; 100]),
            words.put(count, count),
        ] {
            if let Err(error) = result {
                let by = LimitedBy::Limit;
                assert!(
                    matches!(error.kind(), ErrorKind::PoolFull { limit: 1_048_576, by: found, .. } if *found == by),
                    "{error}"
                );
                refused += 1;
            }
        }
        count += 1;
        assert!(count < 100_000, "no limit");
    }
    assert!(count > 3000, "only {count} keys in a MiB");
    let records_kept = records.len()?;
    let words_kept = words.len()?;
    assert_eq!(store.check()?, []);
    // Removes work, and make room.
    for number in 0..1000 {
        assert!(records.remove(format!("key {number:06}"))?);
    }
    for number in 0..500 {
        records.put(format!("new {number:06}"), vec![b'w'; 100])?;
    }
    drop((records, words));
    store.close()?;
    let store = limited.open(&path)?;
    assert_eq!(store.tree("records")?.len()?, records_kept - 500);
    assert_eq!(store.word_tree("words")?.len()?, words_kept);
    assert_eq!(store.check()?, []);
    Ok(())
}

/// A page or a sector of zeros was once taken for slots without trees: `check` called the pool
/// sound.
#[test]
fn zeros_in_the_root_table_are_damage() -> Result<()> {
    let (_folder, path) = pool();
    let whole = fs::read(&path).unwrap();
    let names = Store::open(&path)?.trees()?.len();
    for (at, bytes) in [(0, 4096), (0, 1024), (0, 512), (512, 512)] {
        let mut damaged = whole.clone();
        for table in ROOT_TABLES {
            damaged[table + at..][..bytes].fill(0);
        }
        fs::write(&path, &damaged).unwrap();
        let store = Options::new().read_only(true).open(&path)?;
        let found = store.check()?;
        let lost = (bytes / SLOT).min(names);
        assert_eq!(
            found.len(),
            lost,
            "{bytes} bytes of zeros at {at}: {found:?}"
        );
        assert_eq!(
            store
                .trees()?
                .iter()
                .filter(|tree| tree.kind.is_some())
                .count(),
            names - lost
        );
        assert!(store.open_tree("no such tree").unwrap_err().is_corrupt());
    }
    Ok(())
}

#[test]
fn a_damaged_slot_of_the_root_table_costs_one_tree() -> Result<()> {
    let (_folder, path) = pool();
    let whole = fs::read(&path).unwrap();
    let names: Vec<String> = Store::open(&path)?
        .trees()?
        .into_iter()
        .map(|tree| tree.name)
        .collect();
    // A bit of the state, of the name, of a root word, in both copies of the slot; and whether the
    // tree's name can still be read.
    for (byte, named) in [(0, true), (20, false), (8 * 18, true)] {
        for (slot, clean) in [
            (0, true),
            (1, true),
            (3, true),
            (0, false),
            (1, false),
            (3, false),
        ] {
            let places = ROOT_TABLES.map(|table| table + SLOT * slot + byte);
            let mut damaged = flipped(&whole, &places, 4);
            if !clean {
                damaged[STATE + 8] ^= 1;
            }
            fs::write(&path, &damaged).unwrap();
            let store = Options::new().create(false).open(&path)?;
            let trees = store.trees()?;
            assert_eq!(
                (trees.len(), store.stat()?.trees),
                (names.len(), names.len() as u64)
            );
            let is_lost = |tree: &&TreeInfo| tree.kind.is_none() || !names.contains(&tree.name);
            let lost: Vec<_> = trees.iter().filter(is_lost).collect();
            let [lost] = lost[..] else {
                panic!("{trees:?}")
            };
            assert_eq!(
                (names.contains(&lost.name), lost.kind.is_none()),
                (named, named),
                "{lost:?}"
            );
            assert!(
                named || lost.name == format!("damaged-slot-{slot}"),
                "{lost:?}"
            );
            assert_eq!(store.recovery().damaged.len(), usize::from(!clean));
            let found = store.check()?;
            assert_eq!(
                (found.len(), found[0].offset),
                (1, Some((ROOT_TABLE + SLOT * slot) as u64)),
                "{found:?}"
            );
            let missing = names.iter().find(|name| {
                !trees
                    .iter()
                    .any(|tree| tree.kind.is_some() && tree.name == **name)
            });
            let missing = missing.unwrap();
            for name in [missing, &lost.name] {
                let refused = [
                    store.open_tree(name).err(),
                    store.tree(name).err(),
                    store.drop_tree(name).err(),
                ];
                // All pointers to a tree without a name are whole.
                let is_salvaged = !named && *name == lost.name;
                let salvaged = store.salvage(name, |_, _| true);
                assert_eq!(salvaged.is_ok(), is_salvaged, "{name}");
                for error in refused.into_iter().chain(salvaged.err().map(Some)) {
                    let error = error.unwrap();
                    assert!(error.is_corrupt(), "{error}");
                }
            }
            // A tree whose name cannot be read may have any name.
            assert_eq!(store.tree("another").is_ok(), named);
            // No space that the lost tree may hold is reused.
            for name in names.iter().filter(|name| *name != missing) {
                let tree = store.open_tree(name)?;
                (1000..1500_u64)
                    .try_for_each(|number| tree.put(number.to_be_bytes(), number.to_be_bytes()))?;
                (1000..1500_u64)
                    .try_for_each(|number| tree.remove(number.to_be_bytes()).map(drop))?;
            }
            if named {
                store.drop_tree("another")?;
            }
            store.close()?;
            let mended = flipped(&fs::read(&path).unwrap(), &places, 4);
            fs::write(&path, mended).unwrap();
            let store = Store::open(&path)?;
            expect_whole(&store)?;
            assert_eq!(store.check()?, []);
            store.close()?;
        }
    }
    Ok(())
}
