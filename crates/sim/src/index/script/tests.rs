use super::*;

#[test]
fn words_read_back() {
    let mut operations = random_operations(7, 300, 20, writes_in_epochs);
    operations.extend([
        Sync,
        Mark,
        Compact,
        Evacuate,
        DropTree,
        Get(3),
        GetMany(3, 4),
        Exchange(1, 2, 3),
        Load(1, 5),
        Scan(1, 9),
        ScanBack(0, 7),
        Visit(2, 3),
    ]);
    assert_eq!(from_word(&to_word(&operations)), Ok(operations));
    assert_eq!(from_word(""), Ok(Vec::new()));
    for bad in [
        "i",
        "i1",
        "i1=",
        "i=1",
        "r",
        "rx",
        "x1=2",
        "s1",
        "q",
        "é1",
        "i18446744073709551616=1",
    ] {
        assert!(from_word(bad).is_err(), "{bad}");
    }
}
