use std::path::Path;

use super::justified;
use super::place::Sources;

#[test]
fn every_justification_names_a_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Sources::new(&root);
    let known = justified::ENGINES
        .iter()
        .flat_map(|known| known.justified)
        .copied();
    let all: Vec<_> = known.chain([justified::SHARED]).flatten().collect();
    let lost: Vec<_> = all
        .iter()
        .filter(|justified| {
            let file = justified.place.split(' ').next().unwrap_or_default();
            !sources
                .places(file)
                .iter()
                .any(|place| place.to_string() == justified.place)
        })
        .collect();
    assert!(
        all.len() > 80 && lost.is_empty(),
        "these justify no place: {lost:#?}"
    );
}

#[test]
fn a_justification_is_not_written_twice() {
    let known = justified::ENGINES
        .iter()
        .flat_map(|known| known.justified)
        .copied();
    for list in known.chain([justified::SHARED]) {
        for (index, one) in list.iter().enumerate() {
            let is_same = |other: &&justified::Justified| {
                (other.place, other.after) == (one.place, one.after)
                    && other
                        .changes
                        .iter()
                        .any(|change| one.changes.contains(change))
            };
            assert!(
                !list[..index].iter().any(|other| is_same(&other)),
                "{one:?}"
            );
        }
    }
}
