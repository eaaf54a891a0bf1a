use super::*;

#[test]
fn the_best_of_a_line_is_marked() {
    let row = Row {
        title: "gets".to_owned(),
        cells: vec!["1.0 M/s".to_owned(), "2.0 M/s".to_owned()],
        best: Some(1),
    };
    let table = Table {
        heading: "Reads".to_owned(),
        columns: vec!["one".to_owned(), "other".to_owned()],
        rows: vec![row],
    };
    let title = "  gets".to_owned() + &" ".repeat(38);
    let heading = "Reads".to_owned() + &" ".repeat(39);
    assert_eq!(
        table.text(),
        format!("{heading}        one      other\n{title}    1.0 M/s   *2.0 M/s\n")
    );
    assert_eq!(
        table.markdown(),
        "| Reads | one | other |\n| --- | --- | --- |\n| gets | 1.0 M/s | **2.0 M/s** |\n"
    );
}
