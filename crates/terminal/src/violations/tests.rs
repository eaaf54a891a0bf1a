use super::*;

#[test]
fn all_are_counted_and_the_first_are_listed() {
    let all: Violations = (0..1500)
        .map(|number| format!("violation {number}"))
        .collect();
    assert_eq!((all.count(), all.first.len()), (1500, LISTED_MAX));
    let told = all.told();
    assert_eq!(
        (told.len(), &*told[19], &*told[20]),
        (21, "violation 19", "and 1,480 more")
    );
    let few: Violations = ["one".to_owned()].into_iter().collect();
    assert_eq!(few.told(), ["one"]);
}

#[test]
fn equal_violations_are_listed_once_with_their_number() {
    let lines = ["one", "two", "one", "three", "two", "one"].map(str::to_owned);
    assert_eq!(
        counted_lines(lines.clone().into_iter()),
        ["one (3 times)", "two (2 times)", "three"]
    );
    let all: Violations = lines.into_iter().collect();
    assert_eq!(all.count(), 6);
    assert_eq!(all.told(), ["one (3 times)", "two (2 times)", "three"]);
}
