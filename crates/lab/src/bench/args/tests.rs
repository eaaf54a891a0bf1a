use clap::Parser;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn args(given: &str) -> Args {
    Command::parse_from(given.split(' ')).args
}

#[test]
fn a_shape_of_keys_needs_records_and_has_its_own_lengths() {
    let refused = |given: &str, way_out: &str| {
        let refused = args(given).validate();
        let Err(Failure::Usage(why)) = &refused else {
            panic!("{given}: {refused:?}");
        };
        assert!(why.contains(way_out), "{given}: {why}");
    };
    refused("bench --key-shape prefix", "--records");
    let sized = "bench --key-shape prefix --records --key-size 8";
    refused(sized, "leave out one of the two");
    let too_many = "bench --key-shape words --records --keys 68719476737";
    refused(too_many, "--keys to at most 68719476736");
    args("bench --key-shape prefix --records")
        .validate()
        .unwrap();
    args("bench --key-shape urls --value-size 150")
        .validate()
        .unwrap();
    args("bench --key-shape random").validate().unwrap();
}

#[test]
fn keys_are_random_and_of_eight_bytes_if_nothing_else_is_said() {
    let given = args("bench");
    assert_eq!((given.key_shape, given.key_size()), (KeyShape::Random, 8));
    assert!(given.words());
    assert!(!args("bench --key-size 24").words());
}

#[test]
fn the_mean_length_of_keys_is_that_of_their_shape() {
    let mean = |shape: &str| args(&format!("bench --records --key-shape {shape}")).key_bytes_mean();
    assert!((mean("prefix") - 30.0).abs() < 1e-9);
    assert!((mean("words") - 16.5).abs() < 0.5);
    assert!((args("bench --key-size 24").key_bytes_mean() - 24.0).abs() < 1e-9);
}

#[test]
fn keys_with_a_time_are_loaded_in_their_order() {
    let is_in_order = |shape: &str| {
        let args = args(&format!("bench --records --key-shape {shape}"));
        let keys = args.keys_drawn();
        (0..1000).is_sorted_by_key(|index| keys.key(index))
    };
    assert!(is_in_order("time"));
    assert!(!is_in_order("prefix") && !is_in_order("random"));
}
