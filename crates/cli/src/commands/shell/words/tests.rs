use super::*;

fn split(line: &str) -> Result<Vec<String>, String> {
    let words = words_of(line.as_bytes())?;
    Ok(words
        .into_iter()
        .map(|word| word.into_string().unwrap())
        .collect())
}

#[test]
fn words_are_separated_by_blanks_and_may_be_quoted() {
    assert_eq!(split("  put a\tb ").unwrap(), ["put", "a", "b"]);
    assert_eq!(
        split(r#"put 'a key' "it's" '' 'don''t' a\n"#).unwrap(),
        ["put", "a key", "it's", "", "don't", r"a\n"]
    );
    assert_eq!(split("it's").unwrap(), ["it's"]);
    assert_eq!(split("").unwrap(), [""; 0]);
}

#[test]
fn a_quote_that_is_not_closed_is_refused() {
    assert!(split("put 'a").unwrap_err().contains("not closed"));
    assert!(
        split("put 'a'b")
            .unwrap_err()
            .contains("a blank is missing")
    );
}

#[test]
fn any_text_can_be_written_as_a_word() {
    for text in ["plain", "two words", "it's", "'", "\"", "", "#no comment"] {
        assert_eq!(split(&as_word(text)).unwrap(), [text]);
    }
}
