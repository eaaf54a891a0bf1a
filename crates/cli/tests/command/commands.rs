//! Every command that reads or writes entries, its exit codes, and its JSON.

use std::io::{BufRead, Read, Write};
use std::process::Stdio;

use crate::common::{Said, everleaf, lines, on, pool, run, run_in_shell, run_with};
use serde_json::json;

#[test]
fn put_get_insert_rm_answer_by_exit_code() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["apple", "12"])).expect(0);
    assert_eq!(run(&on("get", &pool, &["apple"])).expect(0).text(), "12\n");
    assert_eq!(
        run(&on("get", &pool, &["apple", "--raw"])).expect(0).text(),
        "12"
    );
    assert_eq!(run(&on("get", &pool, &["pear"])).expect(1).text(), "");
    run(&on("insert", &pool, &["apple", "13"])).expect(1);
    assert_eq!(run(&on("get", &pool, &["apple"])).expect(0).text(), "12\n");
    run(&on("insert", &pool, &["pear", ""])).expect(0);
    assert_eq!(run(&on("get", &pool, &["pear"])).expect(0).text(), "\n");
    run(&on("rm", &pool, &["apple"])).expect(0);
    run(&on("rm", &pool, &["apple"])).expect(1);
    run(&on("check", &pool, &[])).expect(0);
}

#[test]
fn every_command_speaks_json() {
    let (_folder, pool) = pool();
    let json = |arguments: &[&str], code| {
        let (subcommand, more) = arguments.split_first().unwrap();
        run(&[on(subcommand, &pool, more), vec!["--json".into()]].concat())
            .expect(code)
            .json()
    };
    assert_eq!(json(&["put", "k", "v"], 0), json!({ "stored": 1 }));
    assert_eq!(json(&["insert", "k", "w"], 1), json!({ "inserted": false }));
    assert_eq!(
        json(&["get", "k"], 0),
        json!({ "key": "k", "key_encoding": "text", "found": true, "value": "v", "value_encoding": "text" })
    );
    assert_eq!(
        json(&["get", "l"], 1),
        json!({ "key": "l", "key_encoding": "text", "found": false })
    );
    assert_eq!(
        json(&["scan"], 0),
        json!({ "key": "k", "key_encoding": "text", "value": "v", "value_encoding": "text" })
    );
    let check = json(&["check"], 0);
    assert_eq!(
        (&check["sound"], &check["violations"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(
        (&check["first_violations"], &check["trees_not_counted"]),
        (&json!([]), &json!(0))
    );
    let trees =
        json!({ "trees": [{ "name": "main", "engine": "rntree", "codec": "record", "keys": 1 }] });
    assert_eq!(json(&["trees"], 0), trees);
    let engines = run(&["engines", "--json"]).expect(0).json();
    assert_eq!(engines["engines"][0]["engine"], json!("rntree"));
    let stat = json(&["stat"], 0);
    assert_eq!(
        (&stat["keys"], &stat["format_version"]),
        (&json!(1), &json!(13))
    );
    assert!(stat["medium"].as_str().unwrap().starts_with("read-only: "));
    assert_eq!(json(&["rm", "k"], 0), json!({ "removed": 1 }));
    let error = run(&["--json", "get", "/no/such.pool", "k"]).expect(3);
    assert!(
        error.json()["error"]
            .as_str()
            .unwrap()
            .contains("/no/such.pool: no such pool"),
        "{error:?}"
    );
    assert!(error.errors.contains("no such pool"));
}

#[test]
fn an_emulated_medium_is_told_once_on_standard_error() {
    let (_folder, pool) = pool();
    let said = run(&on("put", &pool, &["k", "v", "--json"])).expect(0);
    let emulated = run(&on("stat", &pool, &["--json", "--quiet"])).expect(0);
    if emulated.json()["emulated"] == json!(true) {
        assert_eq!(said.errors.matches("is volatile").count(), 1, "{said:?}");
    }
    assert_eq!(emulated.errors, "");
}

/// A copy to a place that a loss of power erases is noted.
#[test]
fn a_backup_says_which_of_both_files_is_volatile() {
    let (folder, pool) = pool();
    let said = run(&on("put", &pool, &["k", "v", "--medium=file"])).expect(0);
    let both_are = said.errors.contains("is volatile");
    let [copy, other] = ["copy", "other"].map(|name| folder.path().join(name));
    let copied = run(&on("backup", &pool, &[copy.to_str().unwrap()]))
        .expect(0)
        .errors;
    for path in [&pool, &copy] {
        let says = copied.contains(&format!("{} is volatile", path.display()));
        assert_eq!(says, both_are, "{copied}");
    }
    let quiet = run(&on("backup", &pool, &[other.to_str().unwrap(), "--quiet"])).expect(0);
    assert_eq!(quiet.errors, "");
}

#[test]
fn a_backup_is_a_pool_of_its_own() {
    let (folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    let copy = folder.path().join("copy");
    let copied = run(&on(
        "backup",
        &pool,
        &[copy.to_str().unwrap(), "--medium=file", "--json"],
    ))
    .expect(0);
    assert!(copied.json()["bytes"].as_u64().unwrap() >= 64 << 10);
    assert_eq!(
        run(&on("get", &copy, &["k"])).expect(0).text().trim_end(),
        "v"
    );
    run(&on("check", &copy, &[])).expect(0);
    let again = |more: &[&str]| {
        let arguments = [&[copy.to_str().unwrap(), "--medium=file"], more].concat();
        run(&on("backup", &pool, &arguments))
    };
    run(&on("put", &pool, &["k", "new"])).expect(0);
    let refused = again(&[]).expect(3);
    assert!(
        refused.errors.contains("copy exists already") && refused.errors.contains("--force"),
        "{refused:?}"
    );
    assert_eq!(run(&on("get", &copy, &["k"])).expect(0).text(), "v\n");
    again(&["--force"]).expect(0);
    assert_eq!(run(&on("get", &copy, &["k"])).expect(0).text(), "new\n");
    // A damaged copy does not replace a sound one.
    let mut bytes = std::fs::read(&pool).unwrap();
    let value = bytes.windows(3).rposition(|window| window == b"new");
    bytes[value.unwrap()] ^= 1;
    std::fs::write(&pool, &bytes).unwrap();
    let refused = again(&["--force"]).expect(3);
    assert!(refused.errors.contains("was not replaced"), "{refused:?}");
    run(&on("check", &copy, &[])).expect(0);
    // A file that would be taken for the log of the copy.
    let log = folder.path().join("copy.log");
    std::fs::write(&log, "notes").unwrap();
    let refused = again(&["--force"]).expect(3);
    assert!(
        refused.errors.contains("copy.log exists, and would be"),
        "{refused:?}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn wrong_use_has_exit_code_2() {
    let (_folder, pool) = pool();
    run::<&str>(&[]).expect(2);
    run(&["no-such-command"]).expect(2);
    run(&["get"]).expect(2);
    run(&on("get", &pool, &["k", "--codec", "word"])).expect(2);
    run(&on("put", &pool, &["k", "v", "--line-store", "magic"])).expect(2);
    run(&on("scan", &pool, &["--prefix", "a", "--from", "b"])).expect(2);
    assert!(!pool.exists());
    run(&on("put", &pool, &["zz", "00", "--hex"])).expect(2);
    run(&on("put", &pool, &["a\\q", "", "--escaped"])).expect(2);
    run(&["--help"]).expect(0);
    run(&["--version"]).expect(0);
}

#[test]
fn scan_takes_ranges_prefixes_directions_and_limits() {
    let (_folder, pool) = pool();
    let lines = lines(0..30, |number| format!("k{number:02}\t{number}\n"));
    run_with(&on("load", &pool, &[]), lines.as_bytes()).expect(0);
    let keys = |more: &[&str]| {
        let said = run(&on("scan", &pool, &[more, &["--keys"]].concat())).expect(0);
        said.text().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]).len(), 30);
    assert_eq!(keys(&["--from", "k27"]), ["k27", "k28", "k29"]);
    assert_eq!(keys(&["--to", "k02"]), ["k00", "k01"]);
    assert_eq!(keys(&["--from", "k05", "--to", "k07"]), ["k05", "k06"]);
    assert_eq!(keys(&["--prefix", "k1", "--limit", "2"]), ["k10", "k11"]);
    assert_eq!(
        keys(&["--prefix", "k1", "--reverse", "--limit", "2"]),
        ["k19", "k18"]
    );
    assert_eq!(keys(&["--limit", "0"]), [""; 0]);
    let said = run(&on("scan", &pool, &["--from", "k29"])).expect(0);
    assert_eq!(said.text(), "k29\t29\n");
}

#[test]
fn binary_keys_are_given_and_shown_in_hex_or_escaped() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["00ff", "0a09", "--hex"])).expect(0);
    run(&on(
        "put",
        &pool,
        &["back\\\\slash\\x01", "\\tä", "--escaped"],
    ))
    .expect(0);
    assert_eq!(
        run(&on("scan", &pool, &[])).text(),
        "\\x00\\xff\t\\n\\t\nback\\\\slash\\x01\t\\tä\n"
    );
    assert_eq!(
        run(&on("scan", &pool, &["--hex", "--limit", "1"])).text(),
        "00ff\t0a09\n"
    );
    assert_eq!(
        run(&on("get", &pool, &["00ff", "--hex"])).expect(0).text(),
        "0a09\n"
    );
    let json = run(&on("scan", &pool, &["--limit", "1", "--json"])).json();
    assert_eq!(
        json,
        json!({ "key": "00ff", "key_encoding": "hex", "value": "\n\t", "value_encoding": "text" })
    );
    // Without an option for the notation, bytes are taken as they are.
    run(&on("put", &pool, &["a\\tb", "v"])).expect(0);
    assert_eq!(
        run(&on("get", &pool, &["a\\\\tb", "--escaped"]))
            .expect(0)
            .text(),
        "v\n"
    );
}

#[test]
fn trees_are_chosen_and_words_are_numbers() {
    let (_folder, pool) = pool();
    run(&on(
        "put",
        &pool,
        &["7", "42", "--tree", "ages", "--codec", "word"],
    ))
    .expect(0);
    assert_eq!(run(&on("get", &pool, &["7"])).expect(0).text(), "42\n");
    let said = run(&on("get", &pool, &["seven"])).expect(2);
    assert!(said.errors.contains("seven"), "{said:?}");
    assert_eq!(
        run(&on("scan", &pool, &["--json"])).json(),
        json!({ "key": 7, "key_encoding": "number", "value": 42, "value_encoding": "number" })
    );
    run(&on("put", &pool, &["k", "v", "--tree", "names"])).expect(0);
    let said = run(&on("get", &pool, &["k"])).expect(2);
    assert!(
        said.errors.contains("ages") && said.errors.contains("names"),
        "{said:?}"
    );
    assert_eq!(
        run(&on("get", &pool, &["k", "--tree", "names"]))
            .expect(0)
            .text(),
        "v\n"
    );
    let said = run(&on(
        "put",
        &pool,
        &["k", "v", "--tree", "names", "--codec", "word"],
    ))
    .expect(3);
    assert!(
        said.errors.contains("names") && said.errors.contains("record"),
        "{said:?}"
    );
    let said = run(&on("get", &pool, &["k", "--tree", "none"])).expect(3);
    assert!(said.errors.contains("no tree \"none\""), "{said:?}");
    assert_eq!(
        run(&on("trees", &pool, &[])).text(),
        "ages\trntree\tword\t1 key\nnames\trntree\trecord\t1 key\n"
    );
}

#[test]
fn load_names_malformed_lines_and_skips_them_if_asked() {
    let (folder, pool) = pool();
    let long_key = "k".repeat(70_000);
    let lines = format!("a\t1\nno tab here\nb\t2\tmore\n\n{long_key}\tv\nc\t3");
    let said = run_with(&on("load", &pool, &[]), lines.as_bytes()).expect(3);
    assert!(
        said.errors.contains("standard input, line 2: no tab"),
        "{said:?}"
    );
    assert_eq!(run(&on("scan", &pool, &[])).text(), "a\t1\n");

    let file = folder.path().join("lines.txt");
    std::fs::write(&file, &lines).unwrap();
    let said = run(&on(
        "load",
        &pool,
        &[file.to_str().unwrap(), "--skip-bad", "--json"],
    ))
    .expect(1);
    assert_eq!(
        (&said.json()["stored"], &said.json()["skipped"]),
        (&json!(3), &json!(3))
    );
    assert!(
        said.json()["first_skipped"]
            .as_str()
            .unwrap()
            .contains("lines.txt, line 2")
    );
    assert_eq!(
        run(&on("scan", &pool, &[])).text(),
        "a\t1\nb\t2\\tmore\nc\t3\n"
    );

    let words = b"1\t2\nx\t3\n4\t99999999999999999999\n";
    let said = run_with(
        &on(
            "load",
            &pool,
            &["--tree", "w", "--codec", "word", "--skip-bad"],
        ),
        words,
    )
    .expect(1);
    assert!(
        said.text().contains("2 lines skipped") && said.text().contains("line 2"),
        "{said:?}"
    );
    let said = run(&on("load", &pool, &["/no/such/file"])).expect(3);
    assert!(said.errors.contains("/no/such/file"), "{said:?}");

    // No key and value are so long in any notation; the line is not kept in memory.
    let lines = format!("d\t4\ne\t{}\nf\t6\n", "v".repeat(70 << 20));
    let said = run_with(&on("load", &pool, &["--tree", "long"]), lines.as_bytes()).expect(3);
    assert!(
        said.errors
            .contains("standard input, line 2: a line of 73400323 bytes"),
        "{said:?}"
    );
    let said = run_with(
        &on("load", &pool, &["--tree", "long", "--skip-bad"]),
        lines.as_bytes(),
    )
    .expect(1);
    assert!(said.text().contains("1 line skipped"), "{said:?}");
    assert_eq!(
        run(&on("scan", &pool, &["--tree", "long"])).text(),
        "d\t4\nf\t6\n"
    );
}

#[test]
fn a_scan_is_loaded_as_it_was() {
    let (folder, pool) = pool();
    for (key, value) in [
        ("back\\slash", "C:\\new\\table"),
        ("tab\tkey", "line\nfeed\r"),
        ("", ""),
        ("ä", "\u{7f}"),
    ] {
        run(&on("put", &pool, &[key, value])).expect(0);
    }
    run(&on("put", &pool, &["ff00", "fe", "--hex"])).expect(0);
    let scanned = run(&on("scan", &pool, &[])).expect(0).output;
    let other = folder.path().join("other.pool");
    run_with(&on("load", &other, &["--escaped"]), &scanned).expect(0);
    assert_eq!(run(&on("scan", &other, &[])).expect(0).output, scanned);
    assert_eq!(
        run(&on("get", &other, &["back\\slash", "--raw"]))
            .expect(0)
            .text(),
        "C:\\new\\table"
    );
    let hex = run(&on("scan", &pool, &["--hex"])).expect(0).output;
    let third = folder.path().join("third.pool");
    run_with(&on("load", &third, &["--hex"]), &hex).expect(0);
    assert_eq!(run(&on("scan", &third, &[])).expect(0).output, scanned);
    // The output of other programs has backslashes of its own.
    run_with(
        &on("load", &third, &["--tree", "raw"]),
        b"C:\\new\t\\\\host\n",
    )
    .expect(0);
    assert_eq!(
        run(&on("get", &third, &["C:\\new", "--raw", "--tree", "raw"]))
            .expect(0)
            .text(),
        "\\\\host"
    );
}

#[test]
fn a_value_comes_from_standard_input_or_from_a_file() {
    let (folder, pool) = pool();
    let value = b"two\nlines\n\x00\xff\n";
    run_with(&on("put", &pool, &["a", "-"]), value).expect(0);
    let file = folder.path().join("value");
    std::fs::write(&file, value).unwrap();
    run(&on(
        "insert",
        &pool,
        &["b", "--value-file", file.to_str().unwrap()],
    ))
    .expect(0);
    for key in ["a", "b"] {
        assert_eq!(
            run(&on("get", &pool, &[key, "--raw"])).expect(0).output,
            value
        );
    }
    // A number may end with a line feed.
    run_with(
        &on("put", &pool, &["1", "-", "--tree", "w", "--codec", "word"]),
        b"42\n",
    )
    .expect(0);
    assert_eq!(
        run(&on("get", &pool, &["1", "--tree", "w"]))
            .expect(0)
            .text(),
        "42\n"
    );
    run(&on("put", &pool, &["k"])).expect(2);
    run(&on("put", &pool, &["k", "v", "--value-file", "v"])).expect(2);
    run(&on("put", &pool, &["k", "--value-file", "/no/such/file"])).expect(3);
}

#[test]
fn absence_is_told_on_standard_error_only() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    for arguments in [
        vec!["get", "x"],
        vec!["rm", "x"],
        vec!["insert", "k", "w"],
        vec!["drop", "x"],
        vec!["rename", "x", "y"],
    ] {
        let said = run(&on(arguments[0], &pool, &arguments[1..])).expect(1);
        assert!(
            said.output.is_empty() && !said.errors.is_empty(),
            "{said:?}"
        );
        let said = run(&on(
            arguments[0],
            &pool,
            &[&arguments[1..], &["--json"]].concat(),
        ))
        .expect(1);
        said.json();
    }
}

#[test]
fn a_range_is_removed_and_counted() {
    let (_folder, pool) = pool();
    let lines = lines(0..10_000, |number| format!("k{number:05}\t{number}\n"));
    for engine in ["rntree", "bztree", "masstree", "wbtree"] {
        run_with(
            &on("load", &pool, &["--engine", engine, "--tree", engine]),
            lines.as_bytes(),
        )
        .expect(0);
        let rm = |more: &[&str], code| {
            run(&on(
                "rm",
                &pool,
                &[&["--tree", engine, "--json"], more].concat(),
            ))
            .expect(code)
            .json()
        };
        assert_eq!(rm(&["--prefix", "k0000"], 0), json!({ "removed": 10 }));
        assert_eq!(rm(&["--prefix", "k0000"], 1), json!({ "removed": 0 }));
        assert_eq!(
            rm(&["--from", "k00100", "--to", "k09990"], 0),
            json!({ "removed": 9890 })
        );
        let left = run(&on("scan", &pool, &["--keys", "--tree", engine])).expect(0);
        assert_eq!(left.text().lines().count(), 90 + 10);
        assert_eq!(rm(&["--from", "k0999"], 0), json!({ "removed": 10 }));
    }
    run(&on("rm", &pool, &["k", "--prefix", "k"])).expect(2);
    run(&on("rm", &pool, &[])).expect(2);
    run(&on("check", &pool, &[])).expect(0);
}

/// `rm --prefix ''` once removed all entries.
#[test]
fn a_whole_tree_is_emptied_only_if_asked() {
    let (_folder, pool) = pool();
    let count = |tree: &str| {
        let said = run(&on("scan", &pool, &["--tree", tree])).expect(0);
        said.text().lines().count()
    };
    let fill = |tree: &str, codec: &str| {
        let arguments = on("load", &pool, &["--tree", tree, "--codec", codec]);
        run_with(&arguments, b"1\t1\n2\t2\n").expect(0);
    };
    fill("text", "record");
    fill("words", "word");
    for everything in [
        ["--tree=text", "--prefix="],
        ["--tree=text", "--from="],
        ["--tree=words", "--from=0"],
    ] {
        let said = run(&on("rm", &pool, &everything)).expect(2);
        assert!(said.errors.contains("give --all"), "{said:?}");
    }
    let contradiction = ["--tree=text", "--prefix=1", "--all"];
    let said = run(&on("rm", &pool, &contradiction)).expect(2);
    assert!(said.errors.contains("give one or the other"), "{said:?}");
    run(&on("rm", &pool, &["--tree=text", "1", "--all"])).expect(2);
    assert_eq!((count("text"), count("words")), (2, 2));
    run(&on("rm", &pool, &["--tree=words", "--from=1"])).expect(0);
    assert_eq!(count("words"), 0);
    run(&on("rm", &pool, &["--tree=text", "--prefix=", "--all"])).expect(0);
    assert_eq!(count("text"), 0);
    fill("words", "word");
    run(&on("rm", &pool, &["--tree=words", "--all"])).expect(0);
    let said = run(&on("rm", &pool, &["--tree=words", "--all"])).expect(1);
    assert!(said.errors.ends_with("the tree has no entry\n"), "{said:?}");
}

/// The mark once became a part of the first key.
#[test]
fn a_byte_order_mark_before_the_first_line_is_left_out() {
    let (_folder, pool) = pool();
    let load = |more: &[&str], input: &[u8]| run_with(&on("load", &pool, more), input).expect(0);
    let note = "note: standard input begins with a byte order mark, which was left out\n";
    let said = load(&[], b"\xef\xbb\xbfa\t1\n\xef\xbb\xbfb\t2\n");
    assert!(said.errors.contains(note), "{said:?}");
    let keys = || run(&on("scan", &pool, &["--keys"])).expect(0);
    // A mark elsewhere belongs to its key, and a scan escapes it: so a scan can be loaded.
    assert_eq!(keys().text(), "a\n\\xef\\xbb\\xbfb\n");
    run(&on("rm", &pool, &["a"])).expect(0);
    let scan = run(&on("scan", &pool, &[])).expect(0).output;
    run(&on("rm", &pool, &["--all"])).expect(0);
    let said = load(&["--escaped"], &scan);
    assert!(!said.errors.contains(note), "{said:?}");
    assert_eq!(run(&on("scan", &pool, &[])).expect(0).output, scan);
    // A file without any line.
    let said = load(&["--json"], b"\xef\xbb\xbf");
    assert_eq!(said.json()["stored"], json!(0));
    assert!(said.errors.contains(note), "{said:?}");
    let said = load(&["--quiet"], b"\xef\xbb\xbfc\t3\n");
    assert_eq!(said.errors, "");
    assert_eq!(run(&on("get", &pool, &["c"])).expect(0).text(), "3\n");
}

#[test]
fn trees_are_renamed_and_dropped() {
    let (_folder, pool) = pool();
    for engine in ["rntree", "bztree", "masstree", "wbtree"] {
        run(&on(
            "put",
            &pool,
            &["k", engine, "--tree", engine, "--engine", engine],
        ))
        .expect(0);
        let new = format!("new {engine}");
        run(&on("rename", &pool, &[engine, &new])).expect(0);
        assert_eq!(
            run(&on("get", &pool, &["k", "--tree", &new]))
                .expect(0)
                .text()
                .trim_end(),
            engine
        );
        run(&on("get", &pool, &["k", "--tree", engine])).expect(3);
        // A tree of the old name is another one.
        run(&on(
            "put",
            &pool,
            &["l", "v", "--tree", engine, "--engine", engine],
        ))
        .expect(0);
        let said = run(&on("rename", &pool, &[engine, &new])).expect(3);
        assert!(said.errors.contains("exists already"), "{said:?}");
        run(&on("drop", &pool, &[engine])).expect(0);
        run(&on("check", &pool, &[])).expect(0);
        assert_eq!(
            run(&on("get", &pool, &["k", "--tree", &new]))
                .expect(0)
                .text()
                .trim_end(),
            engine
        );
        run(&on("drop", &pool, &[&new])).expect(0);
    }
    assert_eq!(
        run(&on("trees", &pool, &["--json"])).expect(0).json(),
        json!({ "trees": [] })
    );
}

#[test]
fn a_command_waits_for_the_holder_of_a_pool_if_asked() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    let held = std::fs::File::open(&pool).unwrap();
    held.lock().unwrap();
    let start = std::time::Instant::now();
    run(&on("get", &pool, &["k", "--wait", "0.2"])).expect(3);
    assert!(start.elapsed().as_millis() >= 200);
    let waiting = everleaf()
        .args(on("get", &pool, &["k", "--wait", "60"]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    drop(held);
    assert_eq!(
        Said::of(waiting.wait_with_output().unwrap())
            .expect(0)
            .text(),
        "v\n"
    );
    run(&on("get", &pool, &["k", "--wait", "soon"])).expect(2);
}

#[test]
fn errors_and_wrong_use_are_json_for_scripts() {
    let (_folder, pool) = pool();
    let wrong = run(&["get", "--json"]).expect(2).json();
    assert_eq!(
        (&wrong["kind"], &wrong["exit_code"]),
        (&json!("usage"), &json!(2))
    );
    assert!(
        wrong["error"].as_str().unwrap().contains("<KEY>"),
        "{wrong}"
    );
    assert_eq!(
        run(&["no-such-command", "--json"]).expect(2).json()["kind"],
        json!("usage")
    );
    // Here it is a key.
    assert!(run(&["get", "--", "--json"]).expect(2).output.is_empty());
    let failed = run_with(&on("load", &pool, &["--json"]), b"a\t1\nb\t2\nno tab\n")
        .expect(3)
        .json();
    assert_eq!(
        (&failed["kind"], &failed["stored"], &failed["skipped"]),
        (&json!("input"), &json!(2), &json!(0))
    );
    let absent = run(&on("get", &pool, &["a", "--tree", "none", "--json"]))
        .expect(3)
        .json();
    assert_eq!(absent["kind"], json!("absent"));
}

/// The signal that the system sends in this case would end the command without an error message.
#[test]
fn a_limit_of_the_shell_is_told_and_nothing_is_lost() {
    let lines = lines(0..60_000, |number| {
        format!("{number:05}\t{}\n", "v".repeat(100))
    });
    for medium in ["dax", "file"] {
        let (folder, pool) = pool();
        let input = folder.path().join("lines");
        std::fs::write(&input, &lines).unwrap();
        let script = format!(
            "ulimit -f 8000; exec \"$0\" load {} {} --medium {medium}",
            pool.display(),
            input.display()
        );
        let said = run_in_shell(&script).expect(3);
        assert!(said.errors.contains("ulimit -f"), "{said:?}");
        run(&on("check", &pool, &["--medium", medium])).expect(0);
    }
}

#[test]
fn a_limit_is_told_and_nothing_is_lost() {
    let (_folder, pool) = pool();
    let lines = lines(0..20_000, |number| {
        format!("{number:05}\t{}\n", "v".repeat(100))
    });
    let limited = ["--limit-bytes", "1M"];
    let said = run_with(&on("load", &pool, &limited), lines.as_bytes()).expect(3);
    assert!(said.errors.contains("pool full: growing "), "{said:?}");
    assert!(
        said.errors.contains("a.pool to ") && said.errors.contains("its limit is 1 MiB"),
        "{said:?}"
    );
    let stored = run(&on("scan", &pool, &["--keys"]))
        .expect(0)
        .text()
        .lines()
        .count();
    assert!(said.errors.contains(&format!(
        "{},{:03} entries were stored",
        stored / 1000,
        stored % 1000
    )));
    run(&on("rm", &pool, &["00000", "--limit-bytes=1M"])).expect(0);
    run(&on("check", &pool, &[])).expect(0);
}

#[test]
fn a_mistake_makes_no_pool_and_no_tree() {
    let (_folder, pool) = pool();
    let log = pool.with_file_name("a.pool.log");
    let word = ["abc", "1", "--codec=word"];
    for medium in ["--medium=auto", "--medium=file", "--medium=dax"] {
        let left = || (pool.exists(), log.exists());
        for subcommand in ["put", "insert"] {
            run(&on(subcommand, &pool, &[&word[..], &[medium]].concat())).expect(2);
            assert_eq!(left(), (false, false), "{subcommand} {medium}");
            run(&on(subcommand, &pool, &[&"k".repeat(70_000), "v", medium])).expect(3);
            assert_eq!(left(), (false, false), "{subcommand} {medium}");
        }
        run_with(&on("load", &pool, &[medium]), b"no tab\n").expect(3);
        assert_eq!(left(), (false, false), "load {medium}");
        run_with(
            &on("restore", &pool, &[medium]),
            b"# everleaf dump 1\nno tree\n",
        )
        .expect(3);
        assert_eq!(left(), (false, false), "restore {medium}");
        // Entries before the malformed line stay.
        run_with(&on("load", &pool, &[medium]), b"a\t1\nno tab\n").expect(3);
        assert_eq!(
            run(&on("scan", &pool, &[medium])).expect(0).text(),
            "a\t1\n"
        );
        // An existing pool stays, and gets no tree.
        run(&on("rm", &pool, &["a", medium])).expect(0);
        run(&on(
            "put",
            &pool,
            &[&word[..], &["--tree=new", medium]].concat(),
        ))
        .expect(2);
        run_with(&on("load", &pool, &[medium]), b"no tab\n").expect(3);
        assert_eq!(
            run(&on("trees", &pool, &[])).expect(0).text(),
            "main\trntree\trecord\t0 keys\n"
        );
        std::fs::remove_file(&pool).unwrap();
    }
}

#[test]
fn nobody_is_blamed_for_what_a_dead_process_held() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["k", "v", "--medium=file"])).expect(0);
    // The file still names the process that just ended.
    let held = std::fs::File::open(&pool).unwrap();
    held.lock().unwrap();
    let said = run(&on("get", &pool, &["k"])).expect(3);
    assert!(
        said.errors.contains("another process is writing this pool"),
        "{said:?}"
    );
}

#[test]
fn a_second_process_is_told_who_has_the_pool() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    let mut holder = everleaf()
        .args(on("load", &pool, &["-", "--wait=10"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let wanted = format!("process {} is writing this pool", holder.id());
    let refused = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let said = run(&on("rm", &pool, &["none"]));
        said.code == 3 && said.errors.contains(&wanted)
    });
    assert!(refused, "the holder is named");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    run(&on("get", &pool, &["k"])).expect(0);
}

/// All commands that only read work beside a process that writes, on the file medium.
#[test]
fn a_pool_is_read_beside_the_process_that_writes_it() {
    let (folder, pool) = pool();
    run(&on("put", &pool, &["k", "v", "--medium=file"])).expect(0);
    let mut writer = everleaf()
        .args(on("load", &pool, &["-", "--medium=file", "--wait=10"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    // The writer stores the line at once, and waits for more.
    input.write_all(b"k\tnew\n").unwrap();
    input.flush().unwrap();
    let is_writing = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        run(&on("rm", &pool, &["none"])).code == 3
    });
    assert!(is_writing);
    let got = run(&on("get", &pool, &["k"])).expect(0);
    assert!(["v\n", "new\n"].contains(&got.text()), "{got:?}");
    let scanned = run(&on("scan", &pool, &[])).expect(0);
    assert!(scanned.text().starts_with("k\t"), "{scanned:?}");
    let listed = run(&on("trees", &pool, &[])).expect(0);
    assert_eq!(listed.text(), "main\trntree\trecord\t1 key\n");
    let stat = run(&on("stat", &pool, &["--json"])).expect(0).json();
    assert_eq!(stat["keys"], serde_json::json!(1));
    run(&on("check", &pool, &[])).expect(0);
    let dumped = run(&on("dump", &pool, &[])).expect(0);
    assert!(dumped.text().contains("# end of dump trees=1 entries=1"));
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 2, "the copies have no names");
    drop(input);
    assert!(writer.wait().unwrap().success());
    assert_eq!(run(&on("get", &pool, &["k"])).expect(0).text(), "new\n");
}

#[test]
fn a_slow_scan_keeps_no_writer_out() {
    let (_folder, pool) = pool();
    let lines: Vec<String> = (0..20_000).map(|key| format!("{key:05}\told\n")).collect();
    let lines = lines.concat();
    run_with(&on("load", &pool, &[]), lines.as_bytes()).expect(0);
    let mut scan = everleaf()
        .args(on("scan", &pool, &[]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = std::io::BufReader::new(scan.stdout.take().unwrap());
    let mut scanned = String::new();
    // From here on the scan waits until the rest of its output is read.
    output.read_line(&mut scanned).unwrap();
    run(&on("put", &pool, &["19999", "new"])).expect(0);
    run(&on("rm", &pool, &["--all"])).expect(0);
    output.read_to_string(&mut scanned).unwrap();
    assert!(scan.wait().unwrap().success());
    assert!(scanned == lines, "the entries of one moment");
}

#[test]
fn what_only_reads_changes_no_file_even_after_a_kill() {
    let (folder, pool) = pool();
    let mut writer = everleaf()
        .args(on("load", &pool, &["-", "--medium=file"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    for number in 0..200_000 {
        writeln!(input, "key {number}\tvalue").unwrap();
    }
    // Most of it is stored, and the writer waits for more.
    writer.kill().unwrap();
    writer.wait().unwrap();
    let files = || {
        let read = |file: &str| {
            let path = folder.path().join(file);
            (
                std::fs::read(&path).unwrap(),
                std::fs::metadata(&path).unwrap().modified().unwrap(),
            )
        };
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        ["a.pool", "a.pool.log"].map(read)
    };
    let before = files();
    let kept = std::fs::File::open(&pool).unwrap();
    // Another reader.
    kept.lock_shared().unwrap();
    let keys = run(&on("scan", &pool, &["--keys"]))
        .expect(0)
        .text()
        .lines()
        .count();
    assert!(keys > 0);
    let stat = run(&on("stat", &pool, &["--json"])).expect(0).json();
    assert_eq!(
        (&stat["keys"], &stat["recovered_after_crash"]),
        (&json!(keys), &json!(true))
    );
    for subcommand in ["check", "trees", "dump"] {
        run(&on(subcommand, &pool, &[])).expect(0);
    }
    run(&on("dump", &pool, &["--salvage"])).expect(0);
    run(&on("get", &pool, &["key 0"])).expect(0);
    let refused = run(&on("rm", &pool, &["key 0"])).expect(3);
    assert!(
        refused
            .errors
            .contains("readers have the pool open and keep it locked"),
        "{refused:?}"
    );
    assert!(files() == before, "a file has changed");
    drop(kept);
    assert_eq!(run(&on("rm", &pool, &["--prefix=key"])).expect(0).code, 0);
}

#[test]
fn what_is_no_pool_is_refused_by_every_command() {
    let (folder, _) = pool();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "dear diary").unwrap();
    for subcommand in ["load", "scan", "trees", "stat", "check", "dump"] {
        let said = run(&on(subcommand, &text, &[])).expect(3);
        assert!(
            said.errors.contains("notes.txt") && said.errors.contains("not an Everleaf pool"),
            "{said:?}"
        );
    }
    run(&on("put", &text, &["k", "v"])).expect(3);
    assert_eq!(std::fs::read_to_string(&text).unwrap(), "dear diary");
}

#[test]
fn damage_is_found_by_check() {
    let (_folder, pool) = pool();
    run(&on(
        "put",
        &pool,
        &["a key to be found", "a value to be damaged"],
    ))
    .expect(0);
    let mut bytes = std::fs::read(&pool).unwrap();
    let place = bytes
        .windows(7)
        .position(|window| window == b"damaged")
        .unwrap();
    bytes[place] ^= 1;
    std::fs::write(&pool, bytes).unwrap();
    let said = run(&on("check", &pool, &["--json"])).expect(1);
    assert_eq!(said.json()["sound"], json!(false));
    assert_eq!(said.json()["first_violations"][0]["tree"], json!("main"));
    let said = run(&on("check", &pool, &[])).expect(1);
    assert!(said.text().contains("offset"), "{said:?}");
    // A get once printed the damaged value, with exit code 0.
    let refused = run(&on("get", &pool, &["a key to be found"])).expect(3);
    let names_key = refused.errors.contains("\"a key to be found\"");
    let names_offset = refused.errors.contains("offset");
    let names_way_out = refused.errors.contains("salvage");
    assert!(names_key && names_offset && names_way_out, "{refused:?}");
    assert!(!refused.text().contains("a value"), "{refused:?}");
}

/// The exit code was once 0, as if the tree were sound.
#[test]
fn stat_of_a_damaged_tree_is_a_no() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    run(&on("put", &pool, &["k", "v", "--tree", "whole"])).expect(0);
    run(&on("stat", &pool, &[])).expect(0);
    let mut bytes = std::fs::read(&pool).unwrap();
    // The first leaf of the tree: its slots.
    let leaf = u64::from_le_bytes(bytes[0x3090..0x3098].try_into().unwrap()) as usize & 0xffff_ffff;
    bytes[leaf + 8] ^= 1;
    std::fs::write(&pool, bytes).unwrap();
    let said = run(&on("stat", &pool, &["--json"])).expect(1).json();
    assert!(
        said["trees"][0]["error"].is_string() && said["trees"][1]["keys"] == json!(1),
        "{said}"
    );
    let said = run(&on("stat", &pool, &[])).expect(1);
    assert!(
        said.text().contains("`everleaf check` lists all damage"),
        "{said:?}"
    );
}

/// In trees of every engine: a damaged value once went into a dump of `masstree` as if it were
/// whole.
#[test]
fn no_dump_and_no_backup_takes_damage_for_what_was_stored() {
    for engine in ["rntree", "bztree", "masstree", "wbtree", "cawbt"] {
        let folder = tempfile::tempdir().unwrap();
        let pool = folder.path().join("a.pool");
        let make = [
            "a key to be found",
            "a value to be damaged",
            "--engine",
            engine,
        ];
        run(&on("put", &pool, &make)).expect(0);
        let mut bytes = std::fs::read(&pool).unwrap();
        let place = bytes
            .windows(7)
            .position(|window| window == b"damaged")
            .unwrap();
        bytes[place] ^= 1;
        std::fs::write(&pool, &bytes).unwrap();
        run(&on("check", &pool, &[])).expect(1);
        run(&on("dump", &pool, &[])).expect(3);
        run(&on("dump", &pool, &["--salvage"])).expect(1);
        let copy = folder.path().join("copy.pool");
        run(&on(
            "backup",
            &pool,
            &[copy.to_str().unwrap(), "--medium=file"],
        ))
        .expect(1);
        run(&on("check", &copy, &[])).expect(1);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            2,
            "{engine}: a file is left"
        );
    }
}

#[test]
fn completions_are_made_for_shells() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(&["completions", shell]).expect(0);
        assert!(said.text().contains("torture") && said.text().len() > 1000);
        // Names of enumerations are offered; what only this program calls is not.
        // The scripts of some shells offer no values at all.
        let offers_values = ["bash", "zsh", "fish"].contains(&shell);
        assert!(
            !offers_values
                || ["twin", "masstree", "record"]
                    .iter()
                    .all(|name| said.text().contains(name)),
            "{shell}"
        );
        assert!(
            !said.text().contains("torture-writer") && !said.text().contains("demo-writer"),
            "{shell}"
        );
    }
    // For values that are no files, no file is offered.
    let bash = run(&["completions", "bash"]).expect(0).text().to_owned();
    let of = |option: &str| {
        bash.split(&format!("{option})\n"))
            .nth(1)
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .to_owned()
    };
    assert!(
        !of("--prefix").contains("compgen -f") && of("--value-file").contains("compgen -f"),
        "{}",
        of("--prefix")
    );
    let help = run(&["put", "--help"]).expect(0);
    assert!(help.text().contains("rntree, bztree"), "{help:?}");
    run(&["completions", "no-such-shell"]).expect(2);
    let said = run(&["completions", "bash", "--json"]).expect(0);
    assert!(said.json()["script"].as_str().unwrap().contains("torture"));
}

#[test]
fn a_closed_output_is_no_error() {
    let (_folder, pool) = pool();
    let lines = lines(0..50_000, |number| format!("{number}\tv\n"));
    run_with(&on("load", &pool, &[]), lines.as_bytes()).expect(0);
    let mut scan = everleaf()
        .args(on("scan", &pool, &[]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(scan.stdout.take());
    assert!(scan.wait().unwrap().success());
}

/// The README's first command is `cargo run` without a name, in a workspace with two programs.
#[test]
fn cargo_run_means_this_command() {
    let manifest = include_str!("../../Cargo.toml");
    assert!(
        manifest
            .lines()
            .any(|line| line == "default-run = \"everleaf\""),
        "`cargo run -- demo` would not know what to run"
    );
}
