//! Keys and values of types: `--key-type`, `--value-type`; and the encodings of answers in JSON.

use crate::common::{on, pool, run, run_with};
use everleaf::Store;
use serde_json::json;

/// The command and the library have the same encodings, both ways.
#[test]
fn typed_entries_are_those_of_the_library() {
    let (_folder, pool) = pool();
    let types = ["--key-type", "text,i32", "--value-type", "f64"];
    run(&on(
        "put",
        &pool,
        &[&["ada,-7", "1.5"], &types[..]].concat(),
    ))
    .expect(0);
    run(&on(
        "insert",
        &pool,
        &[&["ada,8", "-2"], &types[..]].concat(),
    ))
    .expect(0);
    run(&on(
        "insert",
        &pool,
        &[&["ada,8", "3"], &types[..]].concat(),
    ))
    .expect(1);
    {
        let store = Store::open(&pool).unwrap();
        let readings = store.typed::<(String, i32), f64>("main").unwrap();
        let found = readings.get(&("ada".to_owned(), -7)).unwrap();
        assert_eq!(found, Some(1.5));
        readings.put(&("a,b".to_owned(), 1), &0.25).unwrap();
        drop(readings);
        store.close().unwrap();
    }
    let scanned = run(&on("scan", &pool, &types)).expect(0);
    assert_eq!(
        scanned.text(),
        "\"a,b\",1\t0.25\nada,-7\t1.5\nada,8\t-2.0\n"
    );
    let of_ada = run(&on(
        "scan",
        &pool,
        &[&["--prefix", "ada"], &types[..]].concat(),
    ))
    .expect(0);
    assert_eq!(of_ada.text().lines().count(), 2);
    let from = run(&on(
        "scan",
        &pool,
        &[&["--from", "ada,0"], &types[..]].concat(),
    ))
    .expect(0);
    assert_eq!(from.text(), "ada,8\t-2.0\n");
    let got = run(&on(
        "get",
        &pool,
        &[&["ada,-7", "--json"], &types[..]].concat(),
    ))
    .expect(0);
    assert_eq!(
        got.json(),
        json!({ "found": true, "key": ["ada", -7], "key_encoding": "text,i32", "value": 1.5, "value_encoding": "f64" })
    );
    // The lines of a scan are read as they were printed.
    let load = on(
        "load",
        &pool,
        &[&["--tree", "copy", "--escaped"], &types[..]].concat(),
    );
    run_with(&load, &scanned.output).expect(0);
    let again = run(&on(
        "scan",
        &pool,
        &[&["--tree", "copy"], &types[..]].concat(),
    ))
    .expect(0);
    assert_eq!(again.text(), scanned.text());
    let rm = [&["ada,8", "--tree", "copy"], &types[..2]].concat();
    run(&on("rm", &pool, &rm)).expect(0);
    run(&on("rm", &pool, &rm)).expect(1);
}

#[test]
fn negative_numbers_need_no_quotes() {
    let (_folder, pool) = pool();
    let types = ["--key-type", "i64", "--value-type", "i64"];
    run(&on("put", &pool, &[&["-5", "-6"], &types[..]].concat())).expect(0);
    run(&on("put", &pool, &[&["3", "4"], &types[..]].concat())).expect(0);
    let scan = [&["--from", "-5", "--to", "0"], &types[..]].concat();
    assert_eq!(run(&on("scan", &pool, &scan)).expect(0).text(), "-5\t-6\n");
}

#[test]
fn a_wrong_type_is_told_with_a_way_out() {
    let (_folder, pool) = pool();
    let types = ["--key-type", "u64", "--value-type", "text"];
    let said = run(&on("put", &pool, &[&["x", "v"], &types[..]].concat())).expect(2);
    assert!(said.errors.contains("\"x\" is no u64"), "{said:?}");
    assert!(!pool.exists());
    let said = run(&on("put", &pool, &["x", "v", "--key-type", "string"])).expect(2);
    assert!(said.errors.contains("the types are u8"), "{said:?}");
    run(&on("put", &pool, &["a key", "v"])).expect(0);
    for more in [&[][..], &["--json"]] {
        let scan = [&["--key-type", "u64"], more].concat();
        let said = run(&on("scan", &pool, &scan)).expect(3);
        let names_key = said.errors.contains("the key \"a key\" is no u64");
        assert!(names_key && said.errors.contains("--key-type"), "{said:?}");
    }
    run(&on("get", &pool, &["k", "--hex", "--key-type", "u64"])).expect(2);
}

/// One key that was not UTF-8 was once in hex digits, and the others were text.
#[test]
fn one_answer_has_one_encoding() {
    let (_folder, pool) = pool();
    run_with(&on("load", &pool, &[]), b"a\t\xff\nb\tx\n").expect(0);
    let encodings = |more: &[&str]| -> Vec<String> {
        let said = run(&on("scan", &pool, &[more, &["--json"]].concat())).expect(0);
        said.text().lines().map(str::to_owned).collect()
    };
    assert_eq!(
        encodings(&[]),
        [
            r#"{"key":"a","key_encoding":"text","value":"ff","value_encoding":"hex"}"#,
            r#"{"key":"b","key_encoding":"text","value":"78","value_encoding":"hex"}"#,
        ]
    );
    // The values that are not printed do not count, nor do those beyond the limit.
    assert_eq!(
        encodings(&["--limit", "1", "--reverse"]),
        [r#"{"key":"b","key_encoding":"text","value":"x","value_encoding":"text"}"#]
    );
    assert_eq!(
        encodings(&["--keys"])[0],
        r#"{"key":"a","key_encoding":"text"}"#
    );
}

/// The longest key and the longest value go in and out by every command.
#[test]
fn keys_and_values_may_be_as_long_as_the_store_takes() {
    let (folder, pool) = pool();
    let key = "k".repeat(everleaf::KEY_BYTES_MAX);
    let value = vec![b'v'; everleaf::VALUE_BYTES_MAX];
    let file = folder.path().join("value");
    std::fs::write(&file, &value).unwrap();
    run(&on(
        "put",
        &pool,
        &[&key, "--value-file", file.to_str().unwrap()],
    ))
    .expect(0);
    let scanned = run(&on("scan", &pool, &[])).expect(0).output;
    run_with(
        &on("load", &pool, &["--tree", "copy", "--escaped"]),
        &scanned,
    )
    .expect(0);
    let got = run(&on("get", &pool, &[&key, "--raw", "--tree", "copy"])).expect(0);
    assert!(got.output == value, "another value");
}

/// A tree remembers its types, whether a program or the command has made it.
#[test]
fn a_tree_that_knows_its_types_needs_no_options() {
    let (_folder, pool) = pool();
    {
        let store = Store::open(&pool).unwrap();
        let scores = store.typed::<(String, u32), f64>("main").unwrap();
        scores.put(&("ada".to_owned(), 1), &7.5).unwrap();
        drop(scores);
        store.close().unwrap();
    }
    run(&on("put", &pool, &["bob,2", "8.25"])).expect(0);
    let scanned = run(&on("scan", &pool, &[])).expect(0);
    assert_eq!(scanned.text(), "ada,1\t7.5\nbob,2\t8.25\n");
    let one = run(&on("get", &pool, &["ada,1"])).expect(0);
    assert_eq!(one.text(), "7.5\n");
    run_with(&on("load", &pool, &[]), b"cid,3\t1\n").expect(0);
    run_with(&on("apply", &pool, &[]), b"put\tmain\tdan,4\t2\n").expect(0);
    run(&on("rm", &pool, &["ada,1"])).expect(0);

    let other = ["--key-type", "u64", "--value-type", "text"];
    let said = run(&on("put", &pool, &[&["1", "x"], &other[..]].concat())).expect(3);
    for named in ["text,u32 -> f64", "u64 -> text"] {
        assert!(said.errors.contains(named), "{said:?}");
    }
    run(&on("put", &pool, &["--hex", "00", "00"])).expect(3);

    let store = Store::open(&pool).unwrap();
    let scores = store.typed::<(String, u32), f64>("main").unwrap();
    let mut keys = Vec::new();
    for entry in &scores {
        keys.push(entry.unwrap().0);
    }
    let expected = [("bob", 2), ("cid", 3), ("dan", 4)];
    assert_eq!(
        keys,
        expected.map(|(name, number)| (name.to_owned(), number))
    );
}

/// Such a tree once held byte strings, without a word.
#[test]
fn one_type_alone_makes_no_tree() {
    let (_folder, pool) = pool();
    for (given, missing) in [
        (["--key-type", "u64"], "--value-type is missing"),
        (["--value-type", "text"], "--key-type is missing"),
    ] {
        for command in ["put", "insert"] {
            let entry: &[&str] = &["1", "ada"];
            let said = run(&on(command, &pool, &[entry, &given].concat())).expect(2);
            assert!(said.errors.contains(missing), "{said:?}");
            assert!(!pool.exists());
        }
        let said = run_with(&on("load", &pool, &given), b"1\tada\n").expect(2);
        assert!(said.errors.contains(missing), "{said:?}");
        assert!(!pool.exists());
        let script = format!("put 1 ada {}\n", given.join(" "));
        let said = run_with(&on("shell", &pool, &[]), script.as_bytes()).expect(2);
        assert!(said.errors.contains(missing), "{said:?}");
    }
    // Any bytes are a type, too.
    let bytes = ["1", "00ff", "--key-type", "u64", "--value-type", "bytes"];
    run(&on("put", &pool, &bytes)).expect(0);
    let trees = run(&on("trees", &pool, &[])).expect(0);
    assert_eq!(trees.text(), "main\trntree\trecord\t1 key\tu64 -> bytes\n");
    // A tree of numbers has the other type.
    let words = [
        "-1",
        "7",
        "--codec",
        "word",
        "--key-type",
        "i64",
        "--tree",
        "w",
    ];
    run(&on("put", &pool, &words)).expect(0);
    let listed = run(&on("trees", &pool, &["--json"])).expect(0).json();
    let word_tree = &listed["trees"][1];
    assert_eq!(
        (&word_tree["key_type"], &word_tree["value_type"]),
        (&json!("i64"), &json!("u64"))
    );
    // An existing tree of byte strings may be read in a form for which it has no type.
    run(&on("put", &pool, &["k", "v", "--tree", "plain"])).expect(0);
    let one = ["--tree", "plain", "--value-type", "text"];
    run(&on("get", &pool, &[&["k"], &one[..]].concat())).expect(0);
}

/// `rm` took a tree of numbers for one of any keys.
#[test]
fn no_key_of_another_type_is_removed_from_a_tree_of_numbers() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["7", "1", "--codec", "word"])).expect(0);
    let said = run(&on("rm", &pool, &["7", "--key-type", "i64"])).expect(3);
    let told = "tree \"main\" holds u64 -> u64, not i64 -> u64";
    assert!(said.errors.contains(told), "{said:?}");
    let said = run(&on("put", &pool, &["7", "2", "--value-type", "i64"])).expect(3);
    assert!(said.errors.contains("not u64 -> i64"), "{said:?}");
    run(&on("rm", &pool, &["7", "--key-type", "u64"])).expect(0);
}

/// A load that failed at its first line once left a tree that refused the right types.
#[test]
fn a_load_that_failed_leaves_no_tree_of_the_wrong_types() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    let into = |types: [&str; 4]| on("load", &pool, &[&["--tree", "users"], &types[..]].concat());
    let wrong = into(["--key-type", "u64", "--value-type", "u64"]);
    run_with(&wrong, b"1\tada\n").expect(3);
    let right = into(["--key-type", "u64", "--value-type", "text"]);
    run_with(&right, b"1\tada\n").expect(0);
    let said = run_with(&wrong, b"1\t2\n").expect(3);
    let told = "holds u64 -> text, not u64 -> u64";
    assert!(said.errors.contains(told), "{said:?}");
    // So does a tree of byte strings.
    let empty = on("load", &pool, &["/dev/null", "--tree", "empty"]);
    run(&empty).expect(0);
    let typed = [
        "1",
        "2",
        "--tree",
        "empty",
        "--key-type",
        "u8",
        "--value-type",
        "u8",
    ];
    run(&on("put", &pool, &typed)).expect(0);
    let trees = run(&on("trees", &pool, &[])).expect(0);
    let listed = "empty\trntree\trecord\t1 key\tu8 -> u8\n";
    assert!(trees.text().contains(listed), "{trees:?}");
}

/// Errors name options and commands, and no functions of the library.
#[test]
fn errors_about_types_are_in_the_words_of_the_command() {
    let (_folder, pool) = pool();
    let types = ["--key-type", "text,bytes:2", "--value-type", "unit"];
    run(&on("put", &pool, &[&["a,00ff", ""], &types[..]].concat())).expect(0);
    let other = ["--key-type", "u64", "--value-type", "text"];
    let mismatch = run(&on("put", &pool, &[&["1", "x"], &other[..]].concat())).expect(3);
    let told = "holds text,bytes:2 -> unit, not u64 -> text";
    assert!(mismatch.errors.contains(told), "{mismatch:?}");
    let hex = run(&on("put", &pool, &["--hex", "00", "00"])).expect(3);
    assert!(hex.errors.contains("holds text,bytes:2 -> unit"), "{hex:?}");
    let engine = run(&on("put", &pool, &["--engine", "bztree", "a,0000", ""])).expect(3);
    assert!(engine.errors.contains("leave `--engine`"), "{engine:?}");
    let script = b"put a,0000 ''\n";
    let read_only = run_with(&on("shell", &pool, &["--read-only"]), script).expect(3);
    assert!(read_only.errors.contains("`--read-only`"), "{read_only:?}");
    for said in [mismatch, hex, engine, read_only] {
        for word in ["Store::", "Options::", "`read_only`", "[2]", "(text"] {
            assert!(!said.errors.contains(word), "{said:?}");
        }
    }
    let stat = run(&on("stat", &pool, &[])).expect(0);
    let head = "main (rntree, record, text,bytes:2 -> unit)";
    assert!(stat.text().contains(head), "{stat:?}");
    let stat = run(&on("stat", &pool, &["--json"])).expect(0).json();
    assert_eq!(stat["trees"][0]["key_type"], json!("text,bytes:2"));
}

#[test]
fn a_tree_gets_types_by_adoption_and_loses_them() {
    let (_folder, pool) = pool();
    let hex = ["--hex", "0000000000000007", "616461"];
    run(&on("put", &pool, &hex)).expect(0);
    let types = ["--key-type", "u64", "--value-type", "text"];
    let said = run(&on("adopt", &pool, &types)).expect(0);
    assert_eq!(said.text(), "tree main holds u64 -> text\n");
    assert_eq!(run(&on("get", &pool, &["7"])).expect(0).text(), "ada\n");
    let wrong = ["--key-type", "u64", "--value-type", "u32"];
    let said = run(&on("adopt", &pool, &wrong)).expect(3);
    let told = "the value \"ada\", which is no u32";
    assert!(said.errors.contains(told), "{said:?}");
    let said = run(&on("adopt", &pool, &["--bytes"])).expect(0);
    assert_eq!(said.text(), "tree main holds byte strings\n");
    run(&on("put", &pool, &["any", "bytes"])).expect(0);
    let said = run(&on("adopt", &pool, &types)).expect(3);
    assert!(said.errors.contains("which is no u64"), "{said:?}");
    run(&on("adopt", &pool, &types[..2])).expect(2);
    run(&on("adopt", &pool, &[])).expect(2);
    let none = [&["--tree", "none"], &types[..]].concat();
    run(&on("adopt", &pool, &none)).expect(3);
}
