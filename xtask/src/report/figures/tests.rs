use super::*;

#[test]
fn what_is_not_measured_stays() {
    let table = Table {
        name: "toy",
        head: "| engine | what | found |",
        keys: 2,
    };
    let row = |engine: &str| Row {
        keys: vec![engine.to_owned(), "all".to_owned()],
        arguments: Vec::new(),
    };
    let rows = ["a", "b", "c"].map(row);
    let page = "| engine | what | found |\n| --- | --- | --- |\n| a | all | 1 |\n| b | all | 2 |\n\nelse\n";
    let renewal = Renewal {
        page,
        engine: Some("b"),
        table: Some("toy"),
    };
    let found = table
        .measure(&rows, renewal, |_| Ok(vec!["3".to_owned()]))
        .expect("it is measured");
    assert!(
        found.ends_with("| a | all | 1 |\n| b | all | 3 |\n| c | all | - |\n\n"),
        "{found}"
    );
    let renewal = Renewal {
        table: Some("another"),
        ..renewal
    };
    let found = table
        .measure(&rows, renewal, |_| Ok(vec!["3".to_owned()]))
        .expect("it is not measured");
    assert!(found.contains("| b | all | 2 |\n"), "{found}");
    assert!(table.is_in(&found, &rows) && !table.is_in(page, &rows) && !table.is_in("", &[]));
}

#[test]
fn counts_are_readable() {
    let counts =
        [0.0, 12.0, 123.0, 1234.0, 1_234_567.0, 2.5e15].map(|number| count(&number.into()));
    assert_eq!(count(&f64::INFINITY.into()), "over 1.8e308");
    assert_eq!(counts, ["0", "12", "123", "1,234", "1,234,567", "2.5e15"]);
}
