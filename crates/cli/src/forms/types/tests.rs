use super::*;

fn key_type(names: &str) -> FieldType {
    names.parse().unwrap()
}

fn bytes_of<K: Key>(key: &K) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

/// The text becomes these bytes, and the bytes become the text and the JSON.
#[track_caller]
fn assert_form(names: &str, text: &str, bytes: &[u8], json: &str) {
    let of_type = key_type(names);
    assert_eq!(of_type.to_string(), names);
    assert_eq!(of_type.read(text.as_bytes(), true).unwrap(), bytes);
    assert_eq!(of_type.show(bytes).unwrap(), text);
    assert_eq!(of_type.json(bytes).unwrap().to_string(), json);
}

#[test]
fn the_encodings_are_those_of_the_library() {
    assert_form("u8", "7", &bytes_of(&7_u8), "7");
    assert_form("u16", "700", &bytes_of(&700_u16), "700");
    assert_form("u32", "70000", &bytes_of(&70_000_u32), "70000");
    let most = u64::MAX;
    assert_form(
        "u64",
        &most.to_string(),
        &bytes_of(&most),
        &most.to_string(),
    );
    let wide = u128::MAX;
    assert_form(
        "u128",
        &wide.to_string(),
        &bytes_of(&wide),
        &format!("\"{wide}\""),
    );
    assert_form("i8", "-7", &bytes_of(&-7_i8), "-7");
    assert_form("i16", "-700", &bytes_of(&-700_i16), "-700");
    assert_form("i32", "-70000", &bytes_of(&-70_000_i32), "-70000");
    let least = i64::MIN;
    assert_form(
        "i64",
        &least.to_string(),
        &bytes_of(&least),
        &least.to_string(),
    );
    assert_form("i128", "-1", &bytes_of(&-1_i128), "\"-1\"");
    assert_form("f32", "0.1", &bytes_of(&0.1_f32), "0.1");
    assert_form("f64", "-2.5", &bytes_of(&-2.5_f64), "-2.5");
    assert_form("f64", "inf", &bytes_of(&f64::INFINITY), "\"inf\"");
    assert_form("bool", "true", &bytes_of(&true), "true");
    assert_form("char", "\u{e4}", &bytes_of(&'\u{e4}'), "\"\u{e4}\"");
    assert_form("text", r"a\tb", b"a\tb", r#""a\tb""#);
    assert_form("bytes", "00ff", &[0, 255], r#""00ff""#);
    assert_form("bytes:2", "00ff", &bytes_of(&[0_u8, 255]), r#""00ff""#);
    assert_form("unit", "", &[], "[]");
}

#[test]
fn a_tuple_is_a_line_of_csv() {
    let ada = ("ada".to_owned(), 7_u32);
    assert_form("text,u32", "ada,7", &bytes_of(&ada), r#"["ada",7]"#);
    let quoted = ("Smith, \"J\"".to_owned(), 7_u32);
    assert_form(
        "text,u32",
        r#""Smith, ""J""",7"#,
        &bytes_of(&quoted),
        r#"["Smith, \"J\"",7]"#,
    );
    let many = (1_u8, "\0".to_owned(), vec![0_u8], "z".to_owned());
    assert_form(
        "u8,text,bytes,text",
        r"1,\x00,00,z",
        &bytes_of(&many),
        "[1,\"\\u0000\",\"00\",\"z\"]",
    );
    let with_array = ([1_u8, 2], 3_u64);
    assert_form(
        "bytes:2,u64",
        "0102,3",
        &bytes_of(&with_array),
        "[\"0102\",3]",
    );
    let empty = (String::new(), String::new());
    assert_form("text,text", ",", &bytes_of(&empty), "[\"\",\"\"]");
}

#[test]
fn bounds_and_prefixes_take_the_first_parts() {
    let of_type = key_type("text,u32");
    let whole = of_type.read(b"ada,7", false).unwrap();
    let bound = of_type.read_bound(b"ada", false).unwrap();
    assert!(whole.starts_with(&bound) && bound.len() == whole.len() - 4);
    assert_eq!(of_type.read_prefix(b"ada", false).unwrap(), bound);
    // Another first part that only begins with these letters has another end.
    let longer = of_type.read(b"adam,7", false).unwrap();
    assert!(!longer.starts_with(&bound));
    // The last part of a prefix may be the beginning of a text.
    let of_texts = key_type("u8,text");
    let prefix = of_texts.read_prefix(b"1,ab", false).unwrap();
    assert!(of_texts.read(b"1,abc", false).unwrap().starts_with(&prefix));
    for names in ["u64", "text,u32"] {
        let refused = key_type(names).read_prefix(b"1,1", false).unwrap_err();
        assert!(refused.contains("--from and --to"), "{refused}");
    }
    assert!(of_type.read_bound(b"a,1,2", false).is_err());
}

#[test]
fn what_is_of_another_type_is_refused() {
    for (names, text, what) in [
        ("u8", "256", "\"256\" is no u8; give a number from 0 to 255"),
        ("u64", "-1", "is no u64; give a number from 0 to 2^64 - 1"),
        ("i8", "x", "is no i8; give a number from -128 to 127"),
        ("bool", "yes", "give true or false"),
        ("char", "ab", "give one character"),
        ("bytes", "0", "a missing hex digit"),
        ("bytes:2", "00", "is no bytes:2; give 4 hex digits"),
        ("unit", "x", "give an empty text"),
        ("text,u32", "ada", "1 part was given, but text,u32 has 2"),
        ("text,u32", "a,b,1", "3 parts were given"),
        ("text,u32", "\"a\",1\n\"b\",2", "more than one line of CSV"),
    ] {
        let refused = key_type(names).read(text.as_bytes(), false).unwrap_err();
        assert!(refused.contains(what), "{names} {text}: {refused}");
    }
    assert!(key_type("text").read(b"\xff", false).is_err());
    for (names, bytes) in [
        ("u64", &b"seven"[..]),
        ("bool", &[2]),
        ("text", &[255]),
        ("text,u32", b"no end"),
        ("u8,u8", &[1, 2, 3]),
        ("bytes:2", &[1]),
    ] {
        assert_eq!(key_type(names).show(bytes), None, "{names}");
        assert_eq!(key_type(names).json(bytes), None, "{names}");
    }
}

#[test]
fn a_wrong_name_is_answered_with_the_right_ones() {
    let refused = "u65".parse::<FieldType>().unwrap_err();
    assert!(
        refused.contains("no type \"u65\"; the types are u8, u16"),
        "{refused}"
    );
    let refused = "bytes:x".parse::<FieldType>().unwrap_err();
    assert!(refused.contains("bytes:16"), "{refused}");
    let refused = "u8,u8,u8,u8,u8".parse::<FieldType>().unwrap_err();
    assert!(refused.contains("up to 4"), "{refused}");
}
