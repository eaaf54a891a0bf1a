//! A pool as text, and back.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{lines, on, pool, run, run_with, salvage_in_part};

/// A pool with binary keys, an empty tree, a tree of words, and an odd name; and its dump.
struct Sample {
    folder: tempfile::TempDir,
    pool: std::path::PathBuf,
    dump: Vec<u8>,
}

fn sample() -> Sample {
    let (folder, pool) = pool();
    let mut records = String::new();
    for number in 0..600_u32 {
        let hex = |number: u32| format!("{:08x}", number.wrapping_mul(0x9e37_79b9));
        records += &format!(
            "{}{}\t{}\n",
            hex(number),
            "00".repeat(number as usize % 7),
            hex(number).repeat(3)
        );
    }
    records += "\t\n"; // an empty key with an empty value
    run_with(
        &on("load", &pool, &["--hex", "--tree", "odd name=\t\u{e4}"]),
        records.as_bytes(),
    )
    .expect(0);
    let words = lines(0..500, |number| {
        format!("{}\t{number}\n", u64::from(number).pow(5))
    });
    run_with(
        &on("load", &pool, &["--tree", "words", "--codec", "word"]),
        words.as_bytes(),
    )
    .expect(0);
    run(&on("put", &pool, &["k", "v", "--tree", "empty"])).expect(0);
    run(&on("rm", &pool, &["k", "--tree", "empty"])).expect(0);
    let dump = run(&on("dump", &pool, &[])).expect(0).output;
    Sample { folder, pool, dump }
}

#[test]
fn any_bytes_survive_a_dump_and_a_restore() {
    let Sample { folder, pool, dump } = sample();
    let text = std::str::from_utf8(&dump).unwrap();
    assert!(
        text.lines()
            .all(|line| !line.contains(|c: char| c.is_control() && c != '\t'))
    );
    let file = folder.path().join("pool.dump");
    let other = folder.path().join("other.pool");
    let said = run(&on("dump", &pool, &[file.to_str().unwrap(), "--json"])).expect(0);
    assert_eq!(said.json()["entries"], serde_json::json!(1101));
    assert!(fs::read(&file).unwrap() == dump);
    let said = run(&on("restore", &other, &[file.to_str().unwrap(), "--json"])).expect(0);
    assert_eq!(said.json()["stored"], serde_json::json!(1101));
    assert!(run(&on("dump", &other, &[])).expect(0).output == dump);
    run(&on("check", &other, &[])).expect(0);
    // Into trees with entries only if asked; the result is the same.
    for fill in ["nan", "7", "-1", "0.4"] {
        run_with(
            &on("restore", &other, &["-", &format!("--fill={fill}")]),
            &dump,
        )
        .expect(2);
    }
    let said = run_with(&on("restore", &other, &["-"]), &dump).expect(3);
    assert!(said.errors.contains("--merge"), "{said:?}");
    run_with(&on("restore", &other, &["--merge"]), &dump).expect(0);
    assert!(run(&on("dump", &other, &[])).expect(0).output == dump);
    let one = run(&on("dump", &pool, &["--tree", "words"])).expect(0);
    assert!(one.text().starts_with(
        "# everleaf dump 1\n# tree engine=rntree codec=word name=words\n0\t0\n1\t1\n"
    ));
    assert!(one.text().ends_with("# end of dump trees=1 entries=500\n"));
    let twice = run(&on("dump", &pool, &["--tree", "words", "--tree", "words"])).expect(0);
    assert_eq!(twice.output, one.output);
}

#[test]
fn a_damaged_dump_is_noticed_and_loads_no_part_of_a_tree() {
    let Sample { folder, dump, .. } = sample();
    let other = folder.path().join("other.pool");
    let trees = || match other.exists() {
        true => run(&on("trees", &other, &[])).expect(0).text().to_owned(),
        false => String::new(),
    };
    for length in [0, 10, 100, dump.len() / 2, dump.len() - 60] {
        let said = run_with(&on("restore", &other, &[]), &dump[..length]).expect(3);
        assert!(said.errors.contains("standard input, line "), "{said:?}");
        assert!(
            !trees().contains("words"),
            "the truncated tree is not there"
        );
        let _ = fs::remove_file(&other);
    }
    let said = run_with(
        &on("restore", &other, &[]),
        &[&dump[..], &dump[..]].concat(),
    )
    .expect(3);
    assert!(said.errors.contains("one dump at a time"), "{said:?}");
    fs::remove_file(&other).unwrap();
    let mut changed = dump.clone();
    let value = changed
        .windows(5)
        .rposition(|window| window == b"\t499\n")
        .unwrap();
    changed[value + 1] = b'3';
    let said = run_with(&on("restore", &other, &[]), &changed).expect(3);
    assert!(said.errors.contains("the dump was changed"), "{said:?}");
    assert!(!trees().contains("words"), "{}", trees());
    let said = run_with(&on("restore", &other, &["--merge"]), b"no dump\n").expect(3);
    assert!(
        said.errors.contains("line 1: a dump begins with"),
        "{said:?}"
    );
}

#[test]
fn the_pool_is_not_overwritten_by_its_own_dump() {
    let Sample {
        folder: _folder,
        pool,
        dump,
    } = sample();
    let said = run(&on("dump", &pool, &[pool.to_str().unwrap()])).expect(2);
    assert!(said.errors.contains("the pool itself"), "{said:?}");
    assert!(run(&on("dump", &pool, &[])).expect(0).output == dump);
}

#[test]
fn nor_is_its_log() {
    let (folder, pool) = pool();
    let log = format!("{}.log", pool.display());
    for medium in ["--medium=file", "--medium=dax"] {
        run(&on("put", &pool, &["k", "v", medium])).expect(0);
        let said = run(&on("dump", &pool, &[&log, medium])).expect(2);
        assert!(said.errors.contains("is the log of the pool"), "{said:?}");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&log, &link).unwrap();
        run(&on("dump", &pool, &[link.to_str().unwrap(), medium])).expect(2);
        fs::remove_file(link).unwrap();
        assert!(!fs::exists(&log).unwrap());
        assert_eq!(
            run(&on("get", &pool, &["k", medium])).expect(0).text(),
            "v\n"
        );
        fs::remove_file(&pool).unwrap();
    }
}

/// `dump v.pool q.pool` once replaced another pool.
#[test]
fn a_dump_replaces_no_file_without_force() {
    let (folder, pool) = pool();
    let other = folder.path().join("b.pool");
    let link = folder.path().join("link");
    run(&on("put", &pool, &["k", "v"])).expect(0);
    run(&on("put", &other, &["k", "precious"])).expect(0);
    fs::hard_link(&other, &link).unwrap();
    let value = || {
        run(&on("get", &other, &["k"]))
            .expect(0)
            .text()
            .trim_end()
            .to_owned()
    };
    for target in [&other, &link] {
        let target = target.to_str().unwrap();
        let said = run(&on("dump", &pool, &[target, "--json"])).expect(3);
        assert_eq!(said.json()["kind"], serde_json::json!("io"));
        let way_out = format!("{target} exists already; choose another name, or give --force");
        assert!(said.errors.contains(&way_out), "{said:?}");
    }
    assert_eq!(value(), "precious");
    // Not even with --force while a process has the other pool open.
    let holder = fs::File::open(&other).unwrap();
    holder.try_lock().unwrap();
    let log = other.with_file_name("b.pool.log");
    fs::write(&log, "a log").unwrap();
    for target in [&other, &link, &log] {
        let target = target.to_str().unwrap();
        let said = run(&on("dump", &pool, &[target, "--force", "--json"])).expect(3);
        assert_eq!(said.json()["kind"], serde_json::json!("locked"));
        assert!(said.errors.contains("a process has locked"), "{said:?}");
    }
    assert_eq!(fs::read(&log).unwrap(), b"a log");
    fs::remove_file(&log).unwrap();
    drop(holder);
    assert_eq!(value(), "precious");
    // The pool itself has more names than one.
    let second = folder.path().join("second");
    fs::hard_link(&pool, &second).unwrap();
    let said = run(&on("dump", &pool, &[second.to_str().unwrap(), "--force"])).expect(2);
    assert!(said.errors.contains("is the pool itself"), "{said:?}");
    let append = format!("\"$0\" dump {0} >> {0}", pool.display());
    let said = crate::common::run_in_shell(&append).expect(2);
    assert!(
        said.errors.contains("standard output is the pool itself"),
        "{said:?}"
    );
    run(&on("dump", &pool, &[other.to_str().unwrap(), "--force"])).expect(0);
    let dump = run(&on("dump", &pool, &[])).expect(0).output;
    assert_eq!(fs::read(&other).unwrap(), dump);
}

#[test]
fn standard_output_is_written_to_by_every_name_that_it_has() {
    let (folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    let dump = run(&on("dump", &pool, &[])).expect(0).output;
    let pool = pool.display();
    let file = folder.path().join("file");
    let file = file.display();
    for script in [
        format!("\"$0\" dump {pool} /dev/stdout"),
        format!("\"$0\" dump {pool} /dev/fd/1 | cat"),
        // The shell has made the file and writes to it as well.
        format!("{{ \"$0\" dump {pool} /dev/stdout; printf end; }} > {file}; cat {file}"),
        format!("\"$0\" dump {pool} /dev/fd/3 -q 3> {file} > /dev/null; cat {file}"),
        format!("mkfifo {file}.fifo; \"$0\" dump {pool} {file}.fifo > /dev/null & cat {file}.fifo"),
    ] {
        let said = crate::common::run_in_shell(&script).expect(0);
        let output = said.output.strip_suffix(b"end").unwrap_or(&said.output);
        assert!(output == dump, "{script}: {said:?}");
    }
}

#[test]
fn a_byte_order_mark_before_a_dump_is_left_out() {
    let (_folder, pool) = pool();
    let other = pool.with_file_name("other.pool");
    // The first key begins with a byte order mark, too.
    run(&on("put", &pool, &["\u{feff}k", "v"])).expect(0);
    let dump = run(&on("dump", &pool, &[])).expect(0).output;
    let marked = ["\u{feff}".as_bytes(), &dump].concat();
    let said = run_with(&on("restore", &other, &[]), &marked).expect(0);
    assert!(
        said.errors.contains("begins with a byte order mark"),
        "{said:?}"
    );
    assert_eq!(run(&on("dump", &other, &[])).expect(0).output, dump);
}

#[test]
fn a_dump_that_fails_leaves_the_last_one() {
    let Sample { folder, pool, dump } = sample();
    let file = folder.path().join("pool.dump");
    let link = folder.path().join("link");
    fs::write(&file, "an old dump, much longer than nothing").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("pool.dump", &link).unwrap();
    run(&on("dump", &pool, &[link.to_str().unwrap(), "--force"])).expect(0);
    assert!(fs::read(&file).unwrap() == dump, "a link's file is meant");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640
    );
    run(&on("dump", &pool, &["/dev/null"])).expect(0);
    // A tree that does not exist, and damage behind many sound entries: each is found after the
    // dump has begun.
    run(&on(
        "dump",
        &pool,
        &[
            file.to_str().unwrap(),
            "--force",
            "--tree=words",
            "--tree=none",
        ],
    ))
    .expect(3);
    let mut bytes = fs::read(&pool).unwrap();
    let value = bytes
        .windows(8)
        .rposition(|window| window == 499_u64.to_le_bytes())
        .unwrap();
    bytes[value] ^= 1;
    fs::write(&pool, &bytes).unwrap();
    let said = run(&on("dump", &pool, &[file.to_str().unwrap(), "--force"])).expect(3);
    assert!(said.errors.contains("damaged at offset"), "{said:?}");
    assert!(fs::read(&file).unwrap() == dump);
    bytes[value] ^= 1;
    fs::write(&pool, &bytes).unwrap();
    let said = run(&on("dump", &pool, &["/no/such/folder/dump"])).expect(3);
    assert!(
        said.errors.contains("create /no/such/folder/dump"),
        "{said:?}"
    );
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().ends_with(".part")),
        "{left:?}"
    );
}

#[test]
fn what_is_whole_is_salvaged_from_a_damaged_pool() {
    for engine in ["rntree", "bztree", "masstree"] {
        let (_folder, pool) = pool();
        let lines = lines(0..3000, |number| {
            format!("key {number:04}\tvalue {number:04}\n")
        });
        run_with(&on("load", &pool, &["--engine", engine]), lines.as_bytes()).expect(0);
        let mut bytes = fs::read(&pool).unwrap();
        // The lengths of one record become impossible: before its key, or before its value where
        // the key is in the node.
        let first = if engine == "masstree" {
            b"value 1500".as_slice()
        } else {
            b"key 1500"
        };
        let at = bytes
            .windows(first.len())
            .position(|window| window == first)
            .unwrap();
        bytes[at - 8..at - 3].fill(0xff);
        fs::write(&pool, &bytes).unwrap();
        let said = run(&on("dump", &pool, &[])).expect(3);
        assert!(
            said.errors.contains("damaged at offset"),
            "{engine}: {said:?}"
        );
        let said = run(&on("dump", &pool, &["--salvage"])).expect(1);
        let saved = said
            .text()
            .lines()
            .filter(|line| line.starts_with("key "))
            .count();
        assert!(saved == 2999, "{engine}: {saved} of 3000: {}", said.errors);
        let other = pool.with_file_name("saved.pool");
        run_with(&on("restore", &other, &[]), &said.output).expect(0);
        assert_eq!(
            run(&on("get", &other, &["key 2999"])).expect(0).text(),
            "value 2999\n"
        );
        let file = pool.with_file_name("saved.dump");
        let said = run(&on(
            "dump",
            &pool,
            &[file.to_str().unwrap(), "--salvage", "--json"],
        ))
        .expect(1);
        // A tree of masstree reads its records to count them.
        let missing = (engine != "masstree").then_some(1);
        let words = match missing {
            Some(_) => "left out: 1 damaged entry; the trees count 1 entry more than were saved",
            None => "left out: 1 damaged entry; how many entries are missing is not known",
        };
        assert!(said.errors.contains(words), "{said:?}");
        let answer = said.json();
        let counts = ["damages", "damaged_entries", "unreadable_nodes", "trees"];
        assert_eq!(
            counts.map(|name| answer[name].as_u64()),
            [1, 1, 0, 1].map(Some),
            "{engine}: {answer}"
        );
        assert_eq!(
            answer["missing_entries"].as_u64(),
            missing,
            "{engine}: {answer}"
        );
        let damage = &answer["first_damages"][0];
        assert!(
            damage["tree"] == "main" && damage["offset"].is_u64() && damage["what"].is_string(),
            "{answer}"
        );
    }
}

#[test]
fn whole_leaves_are_salvaged_from_a_tree_that_does_not_open() {
    let (_folder, pool) = pool();
    let words = lines(0..3000, |number| {
        format!("{number}\t{}\n", number + 77_000_000)
    });
    run_with(
        &on("load", &pool, &["--tree", "w", "--codec", "word"]),
        words.as_bytes(),
    )
    .expect(0);
    run(&on("put", &pool, &["a", "b", "--tree", "t"])).expect(0);
    let mut bytes = fs::read(&pool).unwrap();
    let value = bytes
        .windows(8)
        .position(|window| window == 77_001_500_u64.to_le_bytes())
        .unwrap();
    bytes[value + 2] ^= 4;
    fs::write(&pool, &bytes).unwrap();
    let said = run(&on("get", &pool, &["1", "--tree", "w"])).expect(3);
    assert!(
        said.errors.contains("fail their check") && said.errors.contains("--salvage"),
        "{said:?}"
    );
    let said = run(&on("dump", &pool, &["--salvage"])).expect(1);
    assert!(
        said.errors
            .contains("the entries of a leaf: the slots and entries of a leaf fail"),
        "{said:?}"
    );
    assert!(
        said.errors
            .contains("left out: 1 unreadable node, with what it held"),
        "{said:?}"
    );
    assert!(
        said.errors
            .contains("how many entries are missing is not known"),
        "{said:?}"
    );
    let file = pool.with_file_name("saved.dump");
    let answer = salvage_in_part(&pool, &file);
    assert_eq!(
        (&answer["unreadable_nodes"], answer.get("missing_entries")),
        (&1.into(), None),
        "{answer}"
    );
    let answer = run(&on("check", &pool, &["--json"])).expect(1).json();
    assert_eq!(
        (&answer["entries"], &answer["trees_not_counted"]),
        (&1.into(), &1.into()),
        "{answer}"
    );
    let checked = run(&on("check", &pool, &[])).expect(1);
    let counted = "in 2 trees, 1 entry; 1 tree is too damaged to count its entries";
    assert!(checked.text().contains(counted), "{checked:?}");
    let saved: Vec<&str> = said
        .text()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert!(
        saved.len() > 2940 && saved.contains(&"a\tb"),
        "{} lines",
        saved.len()
    );
    assert!(
        saved
            .iter()
            .all(|line| words.contains(*line) || *line == "a\tb")
    );
    assert!(!saved.iter().any(|line| line.starts_with("1500\t")));
    let other = pool.with_file_name("saved.pool");
    run_with(&on("restore", &other, &[]), &said.output).expect(0);
    assert_eq!(
        run(&on("get", &other, &["2999", "--tree", "w"]))
            .expect(0)
            .text(),
        "77002999\n"
    );
}

/// The error once said that nothing was stored.
#[test]
fn a_merge_that_fails_says_what_it_stored() {
    let (_folder, pool) = pool();
    let lines = lines(0..1000, |number| format!("{number:04}\tv\n"));
    run_with(&on("load", &pool, &[]), lines.as_bytes()).expect(0);
    let dump = run(&on("dump", &pool, &[])).expect(0).output;
    run(&on("rm", &pool, &["--from", "0500"])).expect(0);
    let cut = &dump[..dump.len() * 9 / 10];
    let said = run_with(&on("restore", &pool, &["--merge", "--json"]), cut).expect(3);
    let stored = said.json()["stored"].as_u64().unwrap();
    assert!(stored > 500, "{said:?}");
    assert_eq!(
        run(&on("scan", &pool, &["--keys"]))
            .expect(0)
            .text()
            .lines()
            .count() as u64,
        stored
    );
}

/// Once nothing of such a file was saved.
#[test]
fn what_is_left_of_a_file_that_was_cut_off_is_salvaged() {
    let (_folder, pool) = pool();
    let lines = lines(0..20_000, |number| format!("{number}\tvalue\n"));
    run_with(&on("load", &pool, &[]), lines.as_bytes()).expect(0);
    let bytes = std::fs::read(&pool).unwrap();
    std::fs::write(&pool, &bytes[..bytes.len() / 2]).unwrap();
    for command in ["dump", "stat"] {
        let said = run(&on(command, &pool, &[])).expect(3);
        assert!(
            said.errors
                .contains("`everleaf dump --salvage` saves all whole entries"),
            "{said:?}"
        );
    }
    let said = run(&on("dump", &pool, &["--salvage"])).expect(1);
    assert!(said.text().lines().count() > 2000, "{said:?}");
    assert!(
        said.errors.contains("that was cut off is left out"),
        "{}",
        said.errors
    );
}

/// The summary once said that no entry was left out.
#[test]
fn a_salvage_that_loses_entries_says_so() {
    for engine in ["wbtree", "bztree", "masstree"] {
        let (folder, pool) = pool();
        let lines = lines(0..5_000, |number| format!("key{number:06}\tvalue\n"));
        run_with(&on("load", &pool, &["--engine", engine]), lines.as_bytes()).expect(0);
        let whole = std::fs::read(&pool).unwrap();
        let file = folder.path().join("saved.dump");
        let dump = |more: &[&str]| {
            run(&on(
                "dump",
                &pool,
                &[&[file.to_str().unwrap(), "--salvage", "--force"], more].concat(),
            ))
        };
        // Among them the anchor of masstree, at 64 KiB, and the first pages of slabs.
        for at in (0x10000..whole.len()).step_by(if engine == "masstree" {
            0x10000
        } else {
            0x5000
        }) {
            let mut bytes = whole.clone();
            bytes[at..at + 4096].fill(0);
            std::fs::write(&pool, &bytes).unwrap();
            let said = dump(&["--json"]);
            let answer = said.json();
            let told = ["damaged_entries", "unreadable_nodes", "unreadable_trees"];
            let told = told
                .iter()
                .map(|field| answer[field].as_u64().unwrap())
                .sum::<u64>();
            assert!(
                answer["entries"] == 5_000 || told > 0,
                "{engine}, {at:#x}: {said:?}"
            );
            let is_damaged = answer["damages"] != 0;
            assert!(
                !is_damaged || !said.errors.contains("no entry"),
                "{engine}, {at:#x}: {said:?}"
            );
        }
    }
}

/// A dump once forgot the types: the copy was a tree of bytes.
#[test]
fn a_tree_keeps_its_types_in_dumps_restores_and_rewritten_pools() {
    let (folder, pool) = pool();
    let scores = |path: &std::path::Path| -> everleaf::Result<Vec<((String, u32), i64)>> {
        let store = everleaf::Store::open(path)?;
        let scores = store.typed::<(String, u32), i64>("scores")?;
        scores.iter().collect()
    };
    let store = everleaf::Store::open(&pool).unwrap();
    let tree = store.typed::<(String, u32), i64>("scores").unwrap();
    for (name, score) in [("ada", 7), ("bob", -3)] {
        tree.put(&(name.to_owned(), 1), &score).unwrap();
    }
    drop(tree);
    store.tree("bytes").unwrap().put("key", "value").unwrap();
    store.close().unwrap();

    // It is read as bytes if asked for, and not written as such.
    let said = run(&on(
        "get",
        &pool,
        &["--tree=scores", "--hex", "616461000000000001"],
    ));
    assert_eq!(said.expect(0).text(), "8000000000000007\n");
    run(&on("scan", &pool, &["--tree=scores"])).expect(0);
    let said = run(&on("put", &pool, &["--tree=scores", "--hex", "00", "00"])).expect(3);
    assert!(said.errors.contains("text,u32 -> i64"), "{said:?}");

    let dump = run(&on("dump", &pool, &[])).expect(0).output;
    let head = "# tree engine=rntree codec=record key=(text,u32) value=i64 name=scores\n";
    assert!(std::str::from_utf8(&dump).unwrap().contains(head));
    let salvaged = run(&on("dump", &pool, &["--salvage"])).expect(0).output;
    assert!(salvaged == dump);

    let other = folder.path().join("other.pool");
    run_with(&on("restore", &other, &[]), &dump).expect(0);
    assert_eq!(scores(&other).unwrap(), scores(&pool).unwrap());
    run_with(&on("restore", &other, &["--merge"]), &dump).expect(0);
    run(&on("compact", &other, &[])).expect(0);
    assert_eq!(scores(&other).unwrap(), scores(&pool).unwrap());
    assert!(run(&on("dump", &other, &[])).expect(0).output == dump);

    // Entries of other types are not merged into it.
    let store = everleaf::Store::open(&other).unwrap();
    drop(store.adopt_as_bytes("scores").unwrap());
    store.close().unwrap();
    let said = run_with(&on("restore", &other, &["--merge"]), &dump).expect(3);
    assert!(said.errors.contains("holds byte strings"), "{said:?}");
}

/// A dump is restored with another engine: all trees, with their types and codecs.
#[test]
fn a_dump_is_restored_into_another_engine() {
    let (folder, pool) = pool();
    run(&on("put", &pool, &["k", "v", "--tree", "plain"])).expect(0);
    let typed = [
        "7",
        "ada",
        "--key-type",
        "u64",
        "--value-type",
        "text",
        "--tree",
        "typed",
    ];
    run(&on("put", &pool, &typed)).expect(0);
    let words = ["1", "2", "--codec", "word", "--tree", "words"];
    run(&on("put", &pool, &words)).expect(0);
    let dump = run(&on("dump", &pool, &[])).expect(0).output;
    let other = folder.path().join("other.pool");
    run_with(&on("restore", &other, &["--engine", "bztree"]), &dump).expect(0);
    let trees = run(&on("trees", &other, &[])).expect(0);
    assert_eq!(
        trees.text(),
        "plain\tbztree\trecord\t1 key\ntyped\tbztree\trecord\t1 key\tu64 -> text\nwords\tbztree\tword\t1 key\n"
    );
    let got = run(&on("get", &other, &["7", "--tree", "typed"])).expect(0);
    assert_eq!(got.text(), "ada\n");
    // A tree that exists keeps its engine.
    let merge = ["--merge", "--engine", "wbtree"];
    let said = run_with(&on("restore", &other, &merge), &dump).expect(3);
    let told = "uses engine bztree, not wbtree";
    assert!(said.errors.contains(told), "{said:?}");
    run_with(&on("restore", &other, &["--engine", "none"]), &dump).expect(2);
}
