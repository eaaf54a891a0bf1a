use super::*;

#[test]
fn any_bytes_survive_both_ways() {
    let all: Vec<u8> = (0..=255).collect();
    for bytes in [
        b"".as_slice(),
        b"plain",
        b"a\\b\t\n\r\0",
        "\u{e4}\u{85}\u{feff}".as_bytes(),
        &all,
    ] {
        let escaped = escape(bytes);
        assert!(!escaped.contains(['\t', '\n', '\r', '\0']));
        assert_eq!(unescape(escaped.as_bytes()).unwrap(), bytes);
        assert_eq!(from_hex(to_hex(bytes).as_bytes()).unwrap(), bytes);
    }
    assert_eq!(escape(b"\xff\\\t\xc3\xa4"), "\\xff\\\\\\t\u{e4}");
}

#[test]
fn a_shell_takes_command_lines_apart_again() {
    let arguments = ["everleaf", "--prefix", "/a b/it's\t$HOME;*", "", "-x"];
    assert_eq!(shlex::split(&command_line(arguments)).unwrap(), arguments);
    assert_eq!(command_line(["stat", "/tmp/a.pool"]), "stat /tmp/a.pool");
}

#[test]
fn what_is_no_escape_is_refused_with_its_place() {
    let at = |text: &str| unescape(text.as_bytes()).unwrap_err().at;
    assert_eq!(at("ab\\q"), 2);
    assert_eq!(at("ab\\"), 2);
    assert_eq!(at("\\x"), 0);
    assert_eq!(at("a\\x4"), 1);
    assert_eq!(at("\\xzz"), 2);
    assert_eq!(from_hex(b"123").unwrap_err().at, 3);
    assert_eq!(from_hex(b"1g").unwrap_err().at, 1);
}

#[test]
fn an_error_shows_a_text_as_it_was_written() {
    assert_eq!(quoted(br"a\q"), r#""a\q""#);
    assert_eq!(quoted(b"a\n\xff"), r#""a\n\xff""#);
    assert_eq!(quoted(&[b'a'; 1000]).len(), QUOTED_BYTES_MAX + 5);
    let error = unescape(br"a\q").unwrap_err().to_string();
    assert_eq!(
        error,
        r"an unknown escape at byte 1; the escapes are `\\` `\t` `\n` `\r` `\xNN`"
    );
}

#[test]
fn types_are_named_as_the_options_name_them() {
    for (encoding, name) in [
        ("u64", "u64"),
        ("bytes[16]", "bytes:16"),
        ("()", "unit"),
        ("(text,bytes[2])", "text,bytes:2"),
        ("(text,(u8,u8))", "(text,(u8,u8))"),
        ("order:2", "order:2"),
        ("option(u64)", "option(u64)"),
    ] {
        assert_eq!(type_name(encoding), name);
    }
    assert_eq!(types_of_error("(u8,u8) -> bytes"), "u8,u8 -> bytes");
    assert_eq!(types_of_error("byte strings"), "byte strings");
}
