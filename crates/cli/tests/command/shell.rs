//! `everleaf shell`: scripts on standard input, and a user at a terminal.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::common::{Said, everleaf, on, pool, run, run_with};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::LocalModes;
use serde_json::{Value, json};

/// The longest time for which a shell says nothing.
const PATIENCE: Timespec = Timespec {
    tv_sec: 20,
    tv_nsec: 0,
};

fn shell(pool: &Path, more: &[&str], script: &str) -> Said {
    run_with(&on("shell", pool, more), script.as_bytes())
}

fn answers(said: &Said) -> Vec<Value> {
    let lines = said.text().lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_script_reads_and_writes() {
    let (_folder, pool) = pool();
    let said = shell(
        &pool,
        &[],
        "# a comment\nput apple 12\n\nput 'a key' C:\\new\nget apple\nget 'a key' --raw\nscan\nrm apple\nget apple\ntrees\n",
    )
    .expect(0);
    assert_eq!(
        said.text(),
        "12\nC:\\newa key\tC:\\\\new\napple\t12\nmain\trntree\trecord\t1 key\n"
    );
    assert!(said.errors.contains("a new pool") && said.errors.contains("the key is absent"));
    assert_eq!(
        run(&on("get", &pool, &["a key"])).expect(0).text(),
        "C:\\\\new\n"
    );
}

#[test]
fn a_transaction_is_made_as_a_whole_or_not() {
    let (_folder, pool) = pool();
    let script = "put a 1\nbegin\nput a 2\nput b 2 --tree other\nget a\nrollback\nget a\n\
                  begin\nput a 3\ninsert a 4\nrm none\nscan\ncommit\nget a\n";
    let said = shell(&pool, &[], script).expect(0);
    assert_eq!(said.text(), "2\nrolled back\n1\na\t3\ncommitted\n3\n");
    // A transaction that the script leaves open is not made.
    let said = shell(&pool, &[], "begin\nput a 5\n").expect(1);
    assert!(said.errors.contains("was not committed"), "{said:?}");
    // Neither is one before an error.
    let said = shell(&pool, &[], "begin\nput a 6\nput a\ncommit\n").expect(2);
    assert!(said.errors.contains("standard input, line 3: "), "{said:?}");
    assert_eq!(run(&on("get", &pool, &["a"])).expect(0).text(), "3\n");
}

#[test]
fn a_snapshot_shows_one_moment_until_it_is_released() {
    let (_folder, pool) = pool();
    let said = shell(&pool, &[], "put a 1\nsnapshot\nget a\nput a 2\n").expect(2);
    assert_eq!(said.text(), "1\n");
    assert!(said.errors.contains("`release` leaves it"), "{said:?}");
    let said = shell(
        &pool,
        &["--json"],
        "snapshot\nrelease\nput a 2\nscan\nbegin\nsnapshot\n",
    )
    .expect(2);
    let answers = answers(&said);
    assert_eq!(answers[0], json!({ "snapshot": true }));
    assert_eq!(answers[1], json!({ "snapshot": false }));
    assert_eq!(answers[4], json!({ "scanned": 1 }));
    assert_eq!(answers[5], json!({ "begun": true }));
    assert_eq!(
        (&answers[6]["kind"], &answers[6]["exit_code"]),
        (&json!("usage"), &json!(2))
    );
    for wrong in [
        "commit",
        "rollback",
        "release",
        "begin\nbegin",
        "no-such",
        "get 'a",
    ] {
        shell(&pool, &[], wrong).expect(2);
    }
    shell(&pool, &[], "get a --tree none").expect(3);
    shell(&pool, &[], "exit\nno-such").expect(0);
}

#[test]
fn a_session_has_a_tree_and_its_types() {
    let (_folder, pool) = pool();
    let types = [
        "--tree",
        "scores",
        "--key-type",
        "text,u32",
        "--value-type",
        "f64",
    ];
    let script = "put ada,7 1.5\nput note text --tree notes\nget note --tree notes\nget ada,7\n\
                  use notes\nscan\nuse scores --key-type text,u32\nscan --prefix ada --value-type f64\nhelp use\n";
    let said = shell(&pool, &types, script).expect(0);
    let (answers, help) = said
        .text()
        .split_at("text\n1.5\nnote\ttext\nada,7\t1.5\n".len());
    assert_eq!(answers, "text\n1.5\nnote\ttext\nada,7\t1.5\n");
    assert!(help.contains("Choose the tree"), "{help}");
    let typed = run(&on("scan", &pool, &[&["--json"], &types[..]].concat())).expect(0);
    assert_eq!(typed.json()["key"], json!(["ada", 7]));
    // An unused new pool is removed, and a reader changes nothing.
    let (_folder, unused) = crate::common::pool();
    shell(&unused, &[], "help\n").expect(0);
    assert!(!unused.exists());
    let said = shell(
        &pool,
        &["--read-only", "--tree", "notes"],
        "get note\nput a b\n",
    )
    .expect(3);
    assert_eq!(said.text(), "text\n");
}

/// A shell whose input and output are a terminal.
struct ShellAtTerminal {
    child: Child,
    terminal: File,
    /// The other end of the terminal, which the shell has as well.
    path: CString,
}

fn shell_at_terminal(pool: &Path, home: &Path) -> ShellAtTerminal {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let path = ptsname(&terminal, Vec::new()).unwrap();
    let other_end = || {
        let mut options = File::options();
        options.read(true).write(true);
        Stdio::from(options.open(path.to_str().unwrap()).unwrap())
    };
    let mut command = everleaf();
    command
        .args(on("shell", pool, &[]))
        .env("TERM", "xterm")
        .env("HOME", home)
        .env_remove("XDG_STATE_HOME")
        .stdin(other_end())
        .stdout(other_end())
        .stderr(other_end());
    // The copies of the terminal in the command would keep the reader waiting at the end.
    let child = command.spawn().unwrap();
    ShellAtTerminal {
        child,
        terminal: File::from(terminal),
        path,
    }
}

/// The output that a terminal has shown so far.
struct Shown {
    bytes: Vec<u8>,
    /// How many of them come before the next text that is awaited.
    seen: usize,
}

impl Shown {
    fn new() -> Self {
        Self {
            bytes: Vec::new(),
            seen: 0,
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Reads until the terminal shows a text.
    fn await_text(&mut self, terminal: &mut File, awaited: &str) {
        let mut part = [0; 4096];
        loop {
            let at = self.bytes[self.seen..]
                .windows(awaited.len())
                .position(|window| window == awaited.as_bytes());
            if let Some(at) = at {
                self.seen += at + awaited.len();
                return;
            }
            let mut ready = [PollFd::new(&*terminal, PollFlags::IN)];
            let is_ready = poll(&mut ready, Some(&PATIENCE)).unwrap() > 0;
            let text = self.text();
            assert!(is_ready, "nothing more comes before {awaited:?}: {text}");
            let length = terminal
                .read(&mut part)
                .unwrap_or_else(|error| panic!("{error} before {awaited:?}: {text}"));
            self.bytes.extend_from_slice(&part[..length]);
        }
    }

    /// Reads until no process has the terminal.
    fn read_to_end(&mut self, terminal: &mut File) {
        let mut part = [0; 4096];
        loop {
            let mut ready = [PollFd::new(&*terminal, PollFlags::IN)];
            let is_ready = poll(&mut ready, Some(&PATIENCE)).unwrap() > 0;
            assert!(is_ready, "the shell does not end: {}", self.text());
            // At the end a terminal gives an error.
            let Ok(length @ 1..) = terminal.read(&mut part) else {
                return;
            };
            self.bytes.extend_from_slice(&part[..length]);
        }
    }
}

/// The screen of a user who types these keys. Each step is typed when the screen shows the text
/// before it.
fn screen(pool: &Path, home: &Path, steps: &[(&str, &str)]) -> String {
    let ShellAtTerminal {
        mut child,
        mut terminal,
        ..
    } = shell_at_terminal(pool, home);
    let mut shown = Shown::new();
    for (awaited, typed) in steps {
        shown.await_text(&mut terminal, awaited);
        terminal.write_all(typed.as_bytes()).unwrap();
    }
    shown.read_to_end(&mut terminal);
    assert!(child.wait().unwrap().success());
    shown.text()
}

#[test]
fn a_user_at_a_terminal_has_completion_and_history() {
    let (folder, pool) = pool();
    run(&on("put", &pool, &["k", "the value", "--tree", "prices"])).expect(0);
    run(&on("put", &pool, &["k", "other", "--tree", "names"])).expect(0);
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let shown = screen(
        &pool,
        &home,
        &[
            ("a.pool> ", "use pri\t\r"),
            ("a.pool/prices> ", "ge\tk\r"),
            ("the value", ""),
            ("a.pool/prices> ", "no-such\r"),
            ("unrecognized subcommand", ""),
            ("a.pool/prices> ", "begin\r"),
            ("(transaction)> ", "put k new\x03"),
            ("(transaction)> ", "rollback\r"),
            ("rolled back", ""),
            ("a.pool/prices> ", "\x04"),
        ],
    );
    assert!(
        shown.contains("2 trees; `help` lists the commands"),
        "{shown}"
    );
    assert!(shown.contains("use prices"), "{shown}");
    let history = home.join(".local/state/everleaf/shell_history");
    let lines = std::fs::read_to_string(&history).unwrap();
    assert!(
        lines.contains("use prices\nget k\nno-such\nbegin\nrollback\n"),
        "{lines}"
    );
    // The next shell has these lines.
    let shown = screen(
        &pool,
        &home,
        &[
            ("a.pool> ", "\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\r"),
            ("a.pool/prices> ", "\x04"),
        ],
    );
    assert!(shown.contains("use prices"), "{shown}");
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let (folder, pool) = pool();
    let mut shell = shell_at_terminal(&pool, folder.path());
    let path = shell.path.to_str().unwrap();
    let other_end = File::options().read(true).write(true).open(path).unwrap();
    let edits_lines = || {
        let settings = rustix::termios::tcgetattr(&other_end).unwrap();
        settings.local_modes.contains(LocalModes::ICANON)
    };
    // At the prompt the shell edits the line itself.
    while edits_lines() {
        assert!(shell.child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(2));
    }
    let process = Pid::from_child(&shell.child);
    kill_process(process, Signal::TERM).unwrap();
    assert_eq!(shell.child.wait().unwrap().code(), Some(3));
    assert!(edits_lines(), "the shell would show nothing that is typed");
}

/// Such a signal once ended only the command, and the shell went on at its prompt.
#[test]
fn a_signal_during_a_command_ends_the_shell_without_its_transaction() {
    let (folder, pool) = pool();
    let mut lines = String::new();
    for number in 0..20_000 {
        lines += &format!("{number:05}\tvalue\n");
    }
    run_with(&on("load", &pool, &[]), lines.as_bytes()).expect(0);
    for signal in [Signal::TERM, Signal::HUP] {
        let ShellAtTerminal {
            mut child,
            mut terminal,
            ..
        } = shell_at_terminal(&pool, folder.path());
        let mut shown = Shown::new();
        for (awaited, typed) in [
            ("a.pool/main> ", "begin\r"),
            ("(transaction)> ", "put 00000 changed\r"),
            ("(transaction)> ", "scan\r"),
        ] {
            shown.await_text(&mut terminal, awaited);
            terminal.write_all(typed.as_bytes()).unwrap();
        }
        // The terminal holds a part of the entries, so the command waits until they are read.
        shown.await_text(&mut terminal, "00010\tvalue");
        kill_process(Pid::from_child(&child), signal).unwrap();
        shown.read_to_end(&mut terminal);
        assert_eq!(child.wait().unwrap().code(), Some(3), "{}", shown.text());
        let found = run(&on("get", &pool, &["00000"])).expect(0);
        assert_eq!(found.text(), "value\n");
    }
}
