//! Errors: each says what failed, where, and a way out.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::common::{Said, on, pool, run, run_in_shell, run_with};
use serde_json::json;

#[test]
fn what_the_system_refuses_has_a_way_out() {
    let (folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    let folder = folder.path().to_str().unwrap();
    for (arguments, text) in [
        (
            on("load", &pool, &["/no/such/file"]),
            "cannot open /no/such/file: ",
        ),
        (
            on("restore", &pool, &["/no/such/file"]),
            "cannot open /no/such/file: ",
        ),
        (
            on("put", &pool, &["k", "--value-file", "/no/such/file"]),
            "cannot open /no/such/file: ",
        ),
        (
            on("dump", &pool, &["/no/such/folder/dump"]),
            "cannot create /no/such/folder/dump: ",
        ),
        (on("dump", &pool, &[folder]), "cannot create "),
        (
            ["demo", "--root", "/no/such/folder"]
                .map(Into::into)
                .to_vec(),
            "cannot walk /no/such/folder: ",
        ),
    ] {
        let said = run(&arguments).expect(3);
        assert!(
            said.errors.contains(text) && said.errors.contains("; check the path"),
            "{said:?}"
        );
    }
    // A folder can be opened, but not read.
    let said = run(&on("load", &pool, &[folder])).expect(3);
    assert!(
        said.errors.contains("cannot read ") && said.errors.contains("; check the path"),
        "{said:?}"
    );
    let script = format!("exec \"$0\" get {} k > /dev/full", pool.display());
    let said = run_in_shell(&script).expect(3);
    assert!(
        said.errors.contains("cannot write the output: ")
            && said.errors.contains("; send it elsewhere")
    );
}

#[test]
fn wrong_arguments_are_answered_with_right_ones() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    for (arguments, texts) in [
        (
            on("dump", &pool, &[pool.to_str().unwrap()]),
            ["is the pool itself", "; choose another file"],
        ),
        (
            on("backup", &pool, &[pool.to_str().unwrap(), "--force"]),
            ["is the pool itself", "; choose another file"],
        ),
        (
            on("get", &pool, &["123", "--hex"]),
            ["\"123\": a missing hex digit at byte 3", "; give two"],
        ),
        (
            on("get", &pool, &["1g", "--hex"]),
            ["\"1g\": a character that is no hex digit", "; give two"],
        ),
        (
            on("get", &pool, &[r"a\q", "--escaped"]),
            [r#""a\q": an unknown escape at byte 1"#, r"`\\`"],
        ),
        (
            on("rename", &pool, &["main", ""]),
            ["a tree name of 0 bytes", "; take one of 1 to 128 bytes"],
        ),
        (
            on("rename", &pool, &["main", &"n".repeat(300)]),
            ["a tree name of 300 bytes", "; take one"],
        ),
        (
            on("put", &pool, &["k", "v", "--limit-bytes", "1.5M"]),
            ["is not a number", "; give one such as 64M"],
        ),
        (
            on("put", &pool, &["k", "v", "--limit-bytes", "128K"]),
            ["no pool is so small", "; give 192K or more"],
        ),
    ] {
        let said = run(&arguments).expect(2);
        assert!(
            texts.iter().all(|text| said.errors.contains(text)),
            "{texts:?}: {said:?}"
        );
    }
}

/// A text that was escaped already was once escaped twice more.
#[test]
fn a_malformed_line_is_shown_as_it_was_written() {
    let (_folder, pool) = pool();
    for (line, more, texts) in [
        (
            "no tab\n",
            &[][..],
            &["line 1: no tab between key and value; `--skip-bad`"][..],
        ),
        (
            "a\\q\t1\n",
            &["--escaped"],
            &[
                r#"line 1: "a\q": an unknown escape at byte 1"#,
                "the escapes are",
                "`--skip-bad`",
            ],
        ),
        (
            "a\t\\\n",
            &["--escaped"],
            &[r#"line 1: "\": an escape that is cut off at byte 0"#],
        ),
        (
            "abc\t00\n",
            &["--hex"],
            &[
                r#"line 1: "abc": a missing hex digit at byte 3"#,
                "`--skip-bad`",
            ],
        ),
        (
            "x\t1\n",
            &["--codec=word"],
            &[
                r#"line 1: "x" is no number"#,
                "; give one from 0 to 2^64 - 1",
            ],
        ),
    ] {
        let said = run_with(&on("load", &pool, more), line.as_bytes()).expect(3);
        assert!(
            texts.iter().all(|text| said.errors.contains(text)),
            "{texts:?}: {said:?}"
        );
        // A note about a line that is left out needs no advice.
        let skipped = run_with(
            &on("load", &pool, &[more, &["--skip-bad"]].concat()),
            line.as_bytes(),
        )
        .expect(1);
        assert!(
            skipped.text().contains("1 line skipped") && !skipped.text().contains("--skip-bad")
        );
        std::fs::remove_file(&pool).unwrap();
    }
    for dump in [
        "",
        "notes\n",
        "# everleaf dump 1\n",
        "# everleaf dump 1\nno tree\n",
        "# everleaf dump 1\na\tb\n",
    ] {
        let said = run_with(&on("restore", &pool, &[]), dump.as_bytes()).expect(3);
        assert!(
            said.errors.contains("line ") && said.errors.contains("; "),
            "{said:?}"
        );
    }
    // A name that no tree may have, in a dump: the arguments are right.
    let name = format!(
        "# everleaf dump 1\n# tree engine=rntree codec=record name={}\n",
        "n".repeat(300)
    );
    let said = run_with(&on("restore", &pool, &["--json"]), name.as_bytes()).expect(3);
    assert_eq!(said.json()["kind"], json!("input"), "{said:?}");
}

#[test]
fn what_was_done_is_said_only_if_something_was_begun() {
    let (folder, pool) = pool();
    let nowhere = folder.path().join("no folder").join("a.pool");
    let said = run_with(&on("load", &nowhere, &["--json"]), b"a\t1\n").expect(3);
    assert!(
        !said.errors.contains("before that") && said.json().get("stored").is_none(),
        "{said:?}"
    );
    let said = run_with(
        &on("restore", &nowhere, &["--json"]),
        b"# everleaf dump 1\n",
    )
    .expect(3);
    assert!(
        !said.errors.contains("before that") && said.json().get("stored").is_none(),
        "{said:?}"
    );
    run(&on("put", &pool, &["k", "v"])).expect(0);
    let dump = run(&on("dump", &pool, &[])).expect(0).output;
    let said = run_with(&on("restore", &pool, &[]), &dump).expect(3);
    assert!(
        said.errors.contains("; give --merge") && !said.errors.contains("before that"),
        "{said:?}"
    );
    let said = run_with(&on("load", &pool, &["--json"]), b"no tab\n").expect(3);
    assert!(
        said.errors.contains("; before that, 0 entries were stored"),
        "{said:?}"
    );
    assert_eq!(said.json()["stored"], json!(0));
}

/// When the disk of the copy was full, the error once named the pool; and errors of the system had
/// three kinds.
#[test]
fn an_error_names_the_file_that_the_system_refused() {
    let (folder, pool) = pool();
    run_with(
        &on("load", &pool, &[]),
        crate::common::lines(0..20_000, |number| format!("{number}\tvalue\n")).as_bytes(),
    )
    .expect(0);
    for (command, file, text) in [
        ("backup", "q.pool", "creating "),
        ("dump", "q.dump", "cannot write "),
    ] {
        let target = folder.path().join(file);
        let script = format!(
            "ulimit -f 64; exec \"$0\" {command} {} {} --json",
            pool.display(),
            target.display()
        );
        let said = run_in_shell(&script).expect(3);
        assert_eq!(said.json()["kind"], json!("full"), "{said:?}");
        assert!(
            said.errors.contains(&format!("{text}{}", target.display())),
            "{said:?}"
        );
        assert!(
            !said.errors.contains(".part") && !said.errors.contains("a.pool"),
            "{said:?}"
        );
    }
    let nowhere = folder.path().join("no folder").join("b.pool");
    let nowhere = nowhere.to_str().unwrap();
    for (arguments, text) in [
        (on("backup", &pool, &[nowhere]), "b.pool: No such file"),
        (on("dump", &pool, &[nowhere]), "b.pool: No such file"),
        (
            on("put", nowhere.as_ref(), &["k", "v"]),
            "b.pool: cannot open the pool: No such file",
        ),
        (on("restore", &pool, &[nowhere]), "b.pool: No such file"),
    ] {
        let said = run(&[arguments, vec!["--json".into()]].concat()).expect(3);
        assert_eq!(said.json()["kind"], json!("io"), "{said:?}");
        assert!(
            said.errors.contains(text) && !said.errors.contains(".part"),
            "{text}: {said:?}"
        );
    }
    run(&on("put", &pool, &["k", "v", "--tree", "other"])).expect(0);
    let said = run(&on("rename", &pool, &["main", "other"])).expect(3);
    assert!(
        said.errors
            .contains("tree \"other\" exists already; take another name, or drop that tree first")
    );
}

/// The error once said that a writer had failed, but not why.
#[test]
fn a_demo_says_why_its_writer_failed() {
    let (folder, _) = pool();
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("one"), "").unwrap();
    let script = format!(
        "ulimit -f 8; exec \"$0\" demo --json --root {} --pool {}",
        files.display(),
        folder.path().join("demo.pool").display()
    );
    let said = run_in_shell(&script).expect(3);
    assert_eq!(said.json()["kind"], json!("full"), "{said:?}");
    assert!(
        said.errors.contains("file too long: ") && said.errors.contains("demo.pool"),
        "{said:?}"
    );
}

#[test]
fn the_usage_of_rm_has_all_forms() {
    let help = run(&["rm", "--help"]).expect(0);
    for form in [
        "rm [OPTIONS] <POOL> <KEY>",
        "rm [OPTIONS] <POOL> --prefix <KEY>",
        "[--from <KEY>] [--to <KEY>]",
        "rm [OPTIONS] <POOL> --all",
    ] {
        assert!(help.text().contains(form), "{help:?}");
    }
}

/// If the system limits the threads of a user, the error names that limit: the command once panicked.
#[test]
fn threads_that_cannot_be_started_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("everleaf");
    let pool = folder.path().join("a.pool");
    std::fs::copy(crate::program(), &program).unwrap();
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), all.clone()).unwrap();
    std::fs::set_permissions(&program, all).unwrap();
    let run = |threads: u32, arguments: &[&str]| {
        // Shells differ in the letter of this limit.
        let script = format!(
            "{{ ulimit -u {threads} 2>/dev/null || ulimit -p {threads}; }} && exec \"$0\" \"$@\""
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(&program).args(arguments);
        if std::fs::metadata(folder.path()).unwrap().uid() == 0 {
            // The limit does not bind root, so another user tries.
            command.uid(65534).gid(65534);
        }
        Said::of(command.stdin(Stdio::null()).output().unwrap())
    };
    let path = pool.to_str().unwrap();
    let put = ["put", path, "key", "value"];
    let commands: [&[&str]; 5] = [
        &["get", path, "key"],
        &["scan", path],
        &["check", path],
        &["stat", path],
        &["compact", path],
    ];
    // With one thread no command runs, and no pool is made.
    let said = run(1, &put).expect(3);
    assert!(
        said.errors.contains("thread") && said.errors.contains("`ulimit -u`"),
        "{said:?}"
    );
    assert!(!pool.exists());
    for threads in 2..4 {
        let said = run(threads, &put).expect(3);
        assert!(said.errors.contains("cannot start a thread"), "{said:?}");
        assert!(!pool.exists(), "{threads} threads");
    }
    run(500, &put).expect(0);
    for arguments in commands {
        run(1, arguments).expect(3);
        for threads in 2..6 {
            // Each command needs other threads, or none.
            let said = run(threads, arguments);
            assert!([0, 3].contains(&said.code), "{said:?}");
        }
        run(500, arguments).expect(0);
    }
}
