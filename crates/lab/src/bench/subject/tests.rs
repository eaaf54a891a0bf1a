use clap::{Parser, ValueEnum};

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

/// Arguments for a small tree of records in memory.
fn args(shape: KeyShape, further: &str) -> Args {
    let common = "bench --medium ram --records --keys 5000 --ops 1000 --runs 1 --key-shape";
    let line = format!("{common} {} {further}", shape.name());
    Command::parse_from(line.split(' ')).args
}

/// Each run verifies the values of its updates.
#[test]
fn runs_with_keys_of_each_shape_are_verified() {
    for shape in KeyShape::value_variants() {
        for workload in [
            "insert", "update", "remove", "mixed", "scan", "get_many", "e",
        ] {
            let args = args(*shape, &format!("--threads 2 --workload {workload}"));
            let (bench, keys) = Bench::loaded(&args).unwrap();
            bench.measure(&Script::new(&args, &keys, 0)).unwrap();
        }
    }
}

#[test]
fn a_tree_has_all_keys_of_the_shape_in_the_order_of_their_words() {
    for shape in KeyShape::value_variants() {
        for load in ["--workload load", "--workload find", "--bulk-load 1"] {
            let args = args(*shape, load);
            let (bench, keys) = Bench::loaded(&args).unwrap();
            bench.measure(&Script::new(&args, &keys, 0)).unwrap();
            let mut words: Vec<u64> = (0..args.keys).map(|index| keys.key(index)).collect();
            words.sort_unstable();
            let mut range = bench.tree().iter();
            for word in words {
                let (key, value) = range.next_entry().unwrap().unwrap();
                let expected = match shape {
                    KeyShape::Random => word.to_be_bytes().to_vec(),
                    shape => shape.key(word).to_vec(),
                };
                assert_eq!(key, expected, "{shape:?}, {load}");
                assert_eq!(value, word.to_be_bytes());
            }
            assert!(range.next_entry().unwrap().is_none());
        }
    }
}

#[test]
fn a_lost_update_is_told_with_its_key() {
    let args = args(KeyShape::Tenants, "--workload update");
    let (bench, keys) = Bench::loaded(&args).unwrap();
    let script = Script::new(&args, &keys, 0);
    bench.measure(&script).unwrap();
    let word = *script.last_updates().keys().next().unwrap();
    bench.subject().put(word, word).unwrap();
    let told = bench.verify(&script).unwrap_err().to_string();
    assert!(told.contains("key tenant"), "{told}");
}

#[test]
fn a_report_names_the_shape_of_the_keys() {
    let notes = NoteReceiver {
        line: &|_| {},
        store: &|_| {},
    };
    for shape in KeyShape::value_variants() {
        let said = crate::bench::run(&args(*shape, "--workload find"), notes).unwrap();
        assert_eq!(said.json["key_shape"], shape.name());
        let is_named = said.text.contains(&format!("keys ({}) of", shape.name()));
        assert_eq!(is_named, *shape != KeyShape::Random, "{}", said.text);
    }
}
