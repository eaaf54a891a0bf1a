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
