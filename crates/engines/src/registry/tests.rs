use crate::engine::{Engine, OUTSIDE_IDS};

#[test]
fn ids_and_names_are_unique_and_found_again() {
    for (index, engine) in Engine::ALL.iter().enumerate() {
        assert!(engine.id < OUTSIDE_IDS);
        assert_eq!(Engine::from_name(engine.name), Some(*engine));
        assert!(
            Engine::ALL[..index]
                .iter()
                .all(|other| other != engine && other.name != engine.name)
        );
    }
    assert_eq!(Engine::from_name("no such engine"), None);
}

#[test]
fn nodes_can_be_set_as_an_entry_says() {
    for engine in Engine::ALL {
        for nodes in [engine.small, engine.full] {
            engine.settings(nodes.settings).unwrap();
        }
    }
}
