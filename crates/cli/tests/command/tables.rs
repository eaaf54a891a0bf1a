//! `load` of tables: CSV, TSV, headers, quotes, chosen columns.

use std::path::Path;

use crate::common::{Said, on, pool, run, run_with};

const PRICES: &str =
    "id,name,price\r\n2,\"Pear, green\",1.5\r\n1,\"The \"\"best\"\"\napple\",0.5\r\n";

fn load(pool: &Path, more: &[&str], table: &str) -> Said {
    run_with(&on("load", pool, more), table.as_bytes())
}

fn content(pool: &Path, more: &[&str]) -> String {
    run(&on("scan", pool, more)).expect(0).text().to_owned()
}

#[test]
fn columns_of_a_table_are_chosen_by_name() {
    let (_folder, pool) = pool();
    let columns = [
        "--format",
        "csv",
        "--key-column",
        "id",
        "--value-column",
        "name",
    ];
    load(&pool, &columns, PRICES).expect(0);
    assert_eq!(
        content(&pool, &[]),
        "1\tThe \"best\"\\napple\n2\tPear, green\n"
    );

    // The rest of the row is the value, as a line of CSV.
    load(&pool, &["--format", "csv", "--tree", "rest"], PRICES).expect(0);
    assert_eq!(
        content(&pool, &["--tree", "rest"]),
        "1\t\"The \"\"best\"\"\\napple\",0.5\n2\t\"Pear, green\",1.5\n"
    );

    // Columns of types: the key is a number, the value a tuple of the other columns.
    let types = [
        "--tree",
        "typed",
        "--key-type",
        "u32",
        "--value-type",
        "text,f64",
    ];
    load(&pool, &[&["--format", "csv"], &types[..]].concat(), PRICES).expect(0);
    assert_eq!(
        content(&pool, &[&["--json"], &types[..]].concat())
            .lines()
            .next(),
        Some(
            r#"{"key":1,"key_encoding":"u32","value":["The \"best\"\napple",0.5],"value_encoding":"text,f64"}"#
        )
    );

    // A key of two columns, in another order than in the table.
    let two = [
        "--format",
        "csv",
        "--key-column",
        "name",
        "--key-column",
        "id",
        "--value-column",
        "price",
    ];
    let types = [
        "--tree",
        "two",
        "--key-type",
        "text,u32",
        "--value-type",
        "text",
    ];
    load(&pool, &[&two[..], &types].concat(), PRICES).expect(0);
    assert_eq!(
        content(&pool, &types),
        "\"Pear, green\",2\t1.5\n\"The \"\"best\"\"\\napple\",1\t0.5\n"
    );
}

#[test]
fn a_table_may_have_tabs_and_no_header() {
    let (_folder, pool) = pool();
    let table = "a\t\"x\ty\"\tC:\\new\nb\tz\t\n";
    load(
        &pool,
        &["--format", "tsv", "--no-header", "--value-column", "3"],
        table,
    )
    .expect(0);
    assert_eq!(content(&pool, &[]), "a\tC:\\\\new\nb\t\n");
    // A byte order mark before the header is no part of a name.
    let marked = "\u{feff}id,v\n1,x\n";
    let said = load(
        &pool,
        &["--format", "csv", "--key-column", "id", "--tree", "m"],
        marked,
    );
    assert!(said.expect(0).errors.contains("byte order mark"));
    assert_eq!(content(&pool, &["--tree", "m"]), "1\tx\n");
    load(
        &pool,
        &["--format", "csv", "--no-header", "--tree", "none"],
        "",
    )
    .expect(0);
}

#[test]
fn what_does_not_fit_a_table_is_named() {
    let (_folder, pool) = pool();
    let csv =
        |more: &[&str], table: &str| load(&pool, &[&["--format", "csv"], more].concat(), table);
    for (more, table, code, parts) in [
        (
            &["--key-column", "nr"][..],
            PRICES,
            2,
            ["no column \"nr\"", "\"id\", \"name\", \"price\""],
        ),
        (
            &["--key-column", "4"],
            PRICES,
            2,
            ["no column \"4\"", "its columns are"],
        ),
        (
            &["--no-header", "--key-column", "4"],
            PRICES,
            2,
            ["no column", "from 1 to 3"],
        ),
        (
            &["--key-column", "a"],
            "a,a\n1,2\n",
            2,
            ["several columns \"a\"", "by its number"],
        ),
        (
            &["--key-column", "1", "--key-column", "2"],
            PRICES,
            2,
            ["make a tuple", "--key-type"],
        ),
        (&[], "", 3, ["no header", "--no-header"]),
        (
            &[],
            "a,b\n1,2\n1,2,3\n",
            3,
            [
                "standard input, line 3",
                "3 fields, and the first one has 2",
            ],
        ),
        (
            &["--key-type", "u8", "--value-type", "text"],
            "a,b\nx,2\n",
            3,
            ["line 2: \"x\" is no u8", "--skip-bad"],
        ),
    ] {
        let said = csv(more, table).expect(code);
        for part in parts {
            assert!(said.errors.contains(part), "{more:?}: {said:?}");
        }
    }
    let said = load(&pool, &["--key-column", "id"], "a\tb\n").expect(2);
    assert!(said.errors.contains("--format csv"), "{said:?}");
    // Entries before the malformed row stay, and so do those behind it with --skip-bad.
    let skipping = [
        "--key-type",
        "u8",
        "--value-type",
        "text",
        "--skip-bad",
        "--tree",
        "skip",
    ];
    let said = csv(&skipping, "a,b\n1,x\n2,x,y\nz,x\n3,x\n").expect(1);
    assert!(
        said.text()
            .contains("2 lines skipped, the first: standard input, line 3"),
        "{said:?}"
    );
    assert_eq!(
        content(&pool, &["--tree", "skip", "--key-type", "u8"]),
        "1\tx\n3\tx\n"
    );
}

/// Memory stays bounded: the rest of the file was once one field.
#[test]
fn a_quote_that_is_not_closed_is_told() {
    let (_folder, pool) = pool();
    let table = format!("a,b\n1,x\n2,\"y\n{}", "v,w\n".repeat(18 << 20));
    let said = load(&pool, &["--format", "csv", "--skip-bad"], &table).expect(3);
    let names_row = said
        .errors
        .contains("standard input, line 3: the row has more than");
    let has_way_out = said.errors.contains("perhaps a quote is not closed");
    assert!(names_row && has_way_out, "{said:?}");
    assert!(said.errors.contains("1 entry was stored"), "{said:?}");
}

/// The rest of a small file was once one field, and the exit code was 0.
#[test]
fn a_quote_that_is_not_closed_in_a_small_table_is_told() {
    for (number, end) in ["", "\n"].into_iter().enumerate() {
        let (_folder, pool) = pool();
        let table = format!("id,name\n0,Kiwi\n1,\"Pear\n2,Fig\n3,Plum{end}");
        let said = load(&pool, &["--format", "csv"], &table).expect(3);
        let told = said.errors.contains("line 3: a quote is not closed");
        assert!(told, "{number}: {said:?}");
        let whole = format!("id,name\n0,Kiwi\n1,\"Pear\"{end}");
        load(&pool, &["--format", "csv"], &whole).expect(0);
        assert_eq!(content(&pool, &[]), "0\tKiwi\n1\tPear\n");
    }
}

/// `C:\new` was once stored with a line feed.
#[test]
fn a_backslash_stands_for_itself_unless_escapes_are_asked_for() {
    let (_folder, pool) = pool();
    let lines = "dir\tC:\\new\n";
    let said = load(&pool, &[], lines).expect(0);
    assert!(said.errors.contains("line 1 has a backslash"), "{said:?}");
    let raw = |tree: &str| run(&on("get", &pool, &["dir", "--raw", "--tree", tree])).expect(0);
    assert_eq!(raw("main").text(), "C:\\new");
    let said = load(&pool, &["--escaped", "--tree", "escaped"], lines).expect(0);
    assert!(!said.errors.contains("backslash"), "{said:?}");
    assert_eq!(raw("escaped").text(), "C:\new");
    let script = "put\tmain\tdir\tD:\\new\n";
    run_with(&on("apply", &pool, &["-"]), script.as_bytes()).expect(0);
    assert_eq!(raw("main").text(), "D:\\new");
}
