use std::path::Path;

use super::justified;
use super::place::Sources;

#[test]
fn every_justification_names_a_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Sources::new(&root);
    let known = justified::ENGINES.iter().map(|known| known.justified);
    let all: Vec<_> = known.chain([justified::SHARED]).flatten().collect();
    let lost: Vec<_> = all
        .iter()
        .filter(|justified| !sources.places(justified.file).iter().any(|place| justified.is_at(place)))
        .collect();
    assert!(all.len() > 80 && lost.is_empty(), "these justify no place: {lost:#?}");
}

#[test]
fn a_justification_is_not_written_twice() {
    let known = justified::ENGINES.iter().map(|known| known.justified);
    for list in known.chain([justified::SHARED]) {
        for (index, one) in list.iter().enumerate() {
            let is_same = |other: &&justified::Justified| {
                (other.file, other.function, other.call, other.ordinal, other.after)
                    == (one.file, one.function, one.call, one.ordinal, one.after)
                    && other.changes.iter().any(|change| one.changes.contains(change))
            };
            assert!(!list[..index].iter().any(|other| is_same(&other)), "{one:?}");
        }
    }
}
