//! Damaged pools as transcripts: the salvage of a pool without its log, `check --repair`, and keys
//! that are named by their neighbours. `docs/COMMAND.md` shows the same transcripts.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Said, everleaf, lines, on, pool, run, run_with, salvage_in_part};
use serde_json::json;

const PAGE: &str = include_str!("../../../../docs/COMMAND.md");

fn log_of(pool: &Path) -> PathBuf {
    pool.with_file_name("a.pool.log")
}

/// Lets `everleaf load` store these lines, and kills it before it closes the pool.
fn load_and_kill(pool: &Path, lines: &str) {
    let mut load = everleaf()
        .args(on("load", pool, &["--medium", "file"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let input = load.stdin.as_mut().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    input.flush().unwrap();
    // The lines are durable a tenth of a second after they were read.
    let is_named =
        || fs::read(pool).is_ok_and(|bytes| bytes.get(0x2040..0x2048) == Some(b"EVERLLOG"));
    for _ in 0..600 {
        if is_named() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_millis(500));
    load.kill().unwrap();
    load.wait().unwrap();
    assert!(is_named(), "the pool names no log");
}

/// The text with the name of the pool instead of its path, and without the number of the log.
fn plain(text: &str, pool: &Path) -> String {
    let text = text.replace(pool.to_str().unwrap(), "a.pool");
    let mut words = Vec::new();
    for word in text.split(' ') {
        let digits = word.trim_end_matches(')');
        let is_uuid = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        words.push(if is_uuid {
            word.replace(digits, "5f3e...")
        } else {
            word.to_owned()
        });
    }
    words.join(" ")
}

/// Standard error without the note that the test's folder is volatile.
fn errors(said: &Said, pool: &Path) -> String {
    let is_note = |line: &&str| line.starts_with("note: ");
    let lines: Vec<&str> = said.errors.lines().filter(|line| !is_note(line)).collect();
    plain(&lines.join("\n"), pool)
}

/// The page shows these lines.
#[track_caller]
fn expect_on_page(text: &str) {
    for line in text.lines() {
        assert!(PAGE.contains(line), "docs/COMMAND.md does not show: {line}");
    }
}

/// Such a dump once ended with exit code 3, and the advice to run `dump --salvage`.
#[test]
fn a_pool_whose_log_is_missing_is_salvaged() {
    let (_folder, pool) = pool();
    run_with(
        &on("load", &pool, &["--medium", "file"]),
        b"apple\t12\nbanana\t80\n",
    )
    .expect(0);
    load_and_kill(&pool, "plum\t7\n");
    assert!(
        run(&on("dump", &pool, &[]))
            .expect(0)
            .text()
            .contains("plum\t7\n")
    );
    fs::remove_file(log_of(&pool)).unwrap();
    let said = run(&on("check", &pool, &[])).expect(3);
    let way_out = "`everleaf dump --salvage` saves all whole entries";
    assert!(said.errors.contains(way_out), "{said:?}");
    expect_on_page(&errors(&said, &pool));
    let said = run(&on("dump", &pool, &["--salvage"])).expect(1);
    expect_on_page(&errors(&said, &pool));
    expect_on_page(said.text());
    let saved: Vec<&str> = said
        .text()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(saved, ["apple\t12", "banana\t80"]);
    let file = pool.with_file_name("saved.dump");
    let answer = salvage_in_part(&pool, &file);
    assert_eq!(
        (
            &answer["entries"],
            &answer["damages"],
            &answer["first_damages"][0]["count"]
        ),
        (&json!(2), &json!(1), &json!(1)),
        "{answer}"
    );
    let other = pool.with_file_name("saved.pool");
    run(&on("restore", &other, &[file.to_str().unwrap()])).expect(0);
    run(&on("check", &other, &[])).expect(0);
}

#[test]
fn of_a_pool_that_was_never_checkpointed_nothing_is_left_without_the_log() {
    let (_folder, pool) = pool();
    load_and_kill(&pool, "plum\t7\n");
    let log = fs::read(log_of(&pool)).unwrap();
    fs::remove_file(log_of(&pool)).unwrap();
    run(&on("dump", &pool, &[])).expect(3);
    let said = run(&on("dump", &pool, &["--salvage"])).expect(1);
    assert!(
        said.errors.contains("all that was written was in the log"),
        "{said:?}"
    );
    assert!(
        said.text().ends_with("# end of dump trees=0 entries=0\n"),
        "{said:?}"
    );
    // Without the log's header everything is there.
    let mut headless = log;
    headless[..0x2000].fill(0);
    fs::write(log_of(&pool), &headless).unwrap();
    run(&on("dump", &pool, &[])).expect(3);
    let said = run(&on("dump", &pool, &["--salvage"])).expect(1);
    assert!(said.text().contains("\nplum\t7\n"), "{said:?}");
    assert!(
        said.errors.contains("lines were found without its header"),
        "{said:?}"
    );
}

/// The error once advised to run the command that had failed.
#[test]
fn a_salvage_does_not_advise_a_salvage() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    let bytes = fs::read(&pool).unwrap();
    fs::write(&pool, &bytes[..1000]).unwrap();
    let said = run(&on("dump", &pool, &["--salvage", "--json"])).expect(3);
    assert!(!said.errors.contains("--salvage"), "{said:?}");
    assert_eq!(said.json()["kind"], json!("damaged"));
}

/// One header of two gone was once "sound".
#[test]
fn a_lost_copy_is_reported_and_repaired() {
    let (_folder, pool) = pool();
    run_with(&on("load", &pool, &[]), b"apple\t12\nbanana\t80\n").expect(0);
    let whole = fs::read(&pool).unwrap();
    let mut bytes = whole.clone();
    bytes[..256].iter_mut().for_each(|byte| *byte ^= 0xa5);
    bytes[0xd800 + 16..0xd800 + 24].fill(0);
    fs::write(&pool, &bytes).unwrap();
    let said = run(&on("check", &pool, &[])).expect(1);
    assert_eq!(
        said.text(),
        "redundancy lost: offset 0x0: the first copy of the header fails its check; the other copy is whole\n\
         redundancy lost: offset 0xd808: the second copy of root table slot 0: the name of its tree fails its check; the other copy is whole\n\
         redundancy lost: 2 copies, but no entry: 1 tree, 2 entries, no violation\n\
         `everleaf check --repair` writes lost copies anew\n"
    );
    expect_on_page(said.text());
    let answer = run(&on("check", &pool, &["--json"])).expect(1).json();
    assert_eq!(
        (
            &answer["sound"],
            &answer["violations"],
            &answer["lost_copies"],
            &answer["mended_copies"]
        ),
        (&json!(false), &json!(0), &json!(2), &json!(0)),
        "{answer}"
    );
    assert!(fs::read(&pool).unwrap() == bytes, "a check writes nothing");
    let said = run(&on("check", &pool, &["--repair"])).expect(0);
    assert_eq!(
        said.text(),
        "mended: offset 0x0: the first copy of the header fails its check; written anew from the other copy\n\
         mended: offset 0xd808: the second copy of root table slot 0: the name of its tree fails its check; written anew from the other copy\n\
         sound: 1 tree, 2 entries, no violation\n"
    );
    expect_on_page(said.text());
    let mended = fs::read(&pool).unwrap();
    assert!(mended[..64] == whole[..64] && mended[0xd800..0xda00] == whole[0xd800..0xda00]);
    let answer = run(&on("check", &pool, &["--repair", "--json"]))
        .expect(0)
        .json();
    assert_eq!(answer["mended_copies"], json!(0));
    assert!(
        fs::read(&pool).unwrap() == mended,
        "there was nothing to repair"
    );
}

#[test]
fn a_repair_changes_nothing_if_both_copies_are_damaged() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    let whole = fs::read(&pool).unwrap();
    for pair in [[0, 0x1000], [0x3000 + 16, 0xd800 + 16]] {
        let mut bytes = whole.clone();
        for at in pair {
            bytes[at..at + 8].fill(0xa5);
        }
        fs::write(&pool, &bytes).unwrap();
        let said = run(&on("check", &pool, &["--repair"]));
        assert!(said.code != 0, "{said:?}");
        assert!(fs::read(&pool).unwrap() == bytes, "{pair:x?}");
    }
}

#[test]
fn lost_keys_are_named_by_their_neighbours_and_equal_lines_are_counted() {
    for codec in ["record", "word"] {
        let (_folder, pool) = pool();
        let lines = lines(0..3000, |number| {
            if codec == "word" {
                format!("{number}\t{}\n", number + 77_000_000)
            } else {
                format!("key {number:04}\tvalue {number:04}\n")
            }
        });
        run_with(&on("load", &pool, &["--codec", codec]), lines.as_bytes()).expect(0);
        let mut bytes = fs::read(&pool).unwrap();
        let damaged = 1500..1503_u32;
        for number in damaged {
            if codec == "word" {
                // The whole leaf fails its check.
                let value = u64::from(number + 77_000_000).to_le_bytes();
                let at = bytes.windows(8).position(|window| window == value).unwrap();
                bytes[at + 2] ^= 4;
                continue;
            }
            let key = format!("key {number}");
            let key = key.as_bytes();
            let at = bytes
                .windows(key.len())
                .position(|window| window == key)
                .unwrap();
            // The value fails its check.
            let value = bytes[at..]
                .windows(5)
                .position(|window| window == b"value")
                .unwrap();
            bytes[at + value] ^= 1;
        }
        fs::write(&pool, &bytes).unwrap();
        let file = pool.with_file_name("saved.dump");
        let file = file.to_str().unwrap();
        let said = run(&on("dump", &pool, &[file, "--salvage", "--json"])).expect(1);
        let answer = said.json();
        let damage = &answer["first_damages"][0];
        if codec == "word" {
            let keys = [&damage["above"], &damage["below"]].map(|key| key.as_u64().unwrap());
            assert!(keys[0] < 1500 && keys[1] > 1502, "{answer}");
            let words = format!("keys between {} and {}", keys[0], keys[1]);
            assert!(said.errors.contains(&words), "{said:?}");
            continue;
        }
        assert_eq!(answer["damages"], json!(3), "{answer}");
        let counts: Vec<u64> = answer["first_damages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|damage| damage["count"].as_u64().unwrap())
            .collect();
        // The three may lie in two leaves.
        assert_eq!(counts.iter().sum::<u64>(), 3, "{answer}");
        assert!(counts.len() < 3, "{answer}");
        assert_eq!(
            (
                &damage["above"],
                &damage["below"],
                &damage["above_encoding"]
            ),
            (&json!("key 1499"), &json!("key 1503"), &json!("text")),
            "{answer}"
        );
        let words = "a key between \"key 1499\" and \"key 1503\" (";
        assert!(said.errors.contains(words), "{said:?}");
    }
}

/// One answer lists keys that are text and keys that are not. All of them are in hex digits then.
#[test]
fn neighbours_of_lost_keys_have_one_encoding() {
    let (_folder, pool) = pool();
    let mut entries = Vec::new();
    for number in 0..200_u32 {
        entries.extend(format!("key {number:03}\tvalue {number:03}\n").bytes());
    }
    entries.extend(b"key 900\xff\tv\nkey 901\tvalue 901\n");
    run_with(&on("load", &pool, &[]), &entries).expect(0);
    let mut bytes = fs::read(&pool).unwrap();
    for number in ["100", "901"] {
        let value = format!("value {number}");
        let at = bytes
            .windows(value.len())
            .position(|window| window == value.as_bytes())
            .unwrap();
        bytes[at] ^= 1;
    }
    fs::write(&pool, &bytes).unwrap();
    let answer = salvage_in_part(&pool, &pool.with_file_name("saved.dump"));
    let damages = answer["first_damages"].as_array().unwrap();
    let mut encodings = Vec::new();
    for damage in damages {
        for field in ["above_encoding", "below_encoding"] {
            encodings.extend(damage[field].as_str());
        }
    }
    assert_eq!(encodings, ["hex"; 3], "{answer}");
    assert_eq!(damages[0]["above"], "6b657920303939", "{answer}");
}

/// The text of a damage was once nested in another one, and a check advised a check.
#[test]
fn damage_is_told_once_and_a_check_advises_no_check() {
    let (_folder, pool) = pool();
    run_with(&on("load", &pool, &[]), b"apple\t12\nbanana\t80\n").expect(0);
    let mut bytes = fs::read(&pool).unwrap();
    let key = bytes.windows(6).position(|window| window == b"banana");
    let key = key.unwrap();
    // The lengths of the record.
    bytes[key - 8..key].fill(0xff);
    fs::write(&pool, &bytes).unwrap();
    let checked = run(&on("check", &pool, &[])).expect(1);
    let first = checked.text().lines().next().unwrap();
    assert!(first.starts_with("tree \"main\", offset 0x"), "{checked:?}");
    assert!(
        first.ends_with(": a record with impossible lengths"),
        "{checked:?}"
    );
    assert!(!checked.text().contains("check`"), "{checked:?}");
    let refused = run(&on("dump", &pool, &[])).expect(3).errors;
    assert_eq!(refused.matches("damaged at offset").count(), 1, "{refused}");
    assert!(
        refused.contains(": a record with impossible lengths; `everleaf check`"),
        "{refused}"
    );
}
