use super::*;

#[test]
fn every_exhibit_names_its_source() {
    let exhibits = read(&super::super::root().join("crates/sim/tests/museum")).expect("the museum");
    let nameless: Vec<_> = exhibits
        .iter()
        .filter(|exhibit| exhibit.source.is_empty())
        .collect();
    assert!(exhibits.len() >= 20 && nameless.is_empty(), "{nameless:?}");
}
