use super::*;

fn compare(further: &str) -> Compare {
    let line = format!("everleaf-peers --dir . {further}");
    Compare::parse_from(line.split_whitespace())
}

#[test]
fn the_arguments_fit_together() {
    Compare::command().debug_assert();
    Child::command().debug_assert();
}

#[test]
fn shapes_of_keys_are_listed_with_commas_or_spaces_and_random_if_none_is_named() {
    assert_eq!(compare("").key_shapes(), [KeyShape::Random]);
    let all = [KeyShape::Random, KeyShape::Prefix, KeyShape::Tenants];
    assert_eq!(
        compare("--key-shape random,prefix,tenants").key_shapes(),
        all
    );
    assert_eq!(
        compare("--key-shape random prefix tenants random").key_shapes(),
        all
    );
}

#[test]
fn the_size_of_keys_is_that_of_random_ones() {
    compare("--key-bytes 32").validate().unwrap();
    compare("--key-bytes 32 --key-shape prefix,random")
        .validate()
        .unwrap();
    compare("--key-shape prefix").validate().unwrap();
    let refused = compare("--key-bytes 32 --key-shape prefix,urls").validate();
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("leave it out, or add random"), "{why}");
}

/// The child gets the shape of its keys, and everything else as its parent has it.
#[test]
fn a_child_measures_what_its_parent_says() {
    let args = compare("--entries 5000 --key-bytes 32 --value-bytes 99 --workload get range");
    for key_shape in [KeyShape::Random, KeyShape::Urls] {
        let plan = args.plan.with_keys(key_shape);
        let mut line = vec![
            "everleaf-peers",
            "measure",
            "--store",
            "lmdb",
            "--folder",
            ".",
        ];
        let shape = measure::key_shape_argument(&[key_shape]);
        let arguments = plan.arguments();
        line.push(&shape);
        line.extend(arguments.iter().map(String::as_str));
        let Child::Measure(child) = Child::parse_from(line) else {
            panic!("another child");
        };
        assert_eq!(format!("{:?}", child.plan()), format!("{plan:?}"));
    }
}
