use super::{APPLICATION, commands, workbench};

#[test]
fn the_arguments_fit_together() {
    APPLICATION.command::<commands::Command>().debug_assert();
    APPLICATION.command::<commands::Child>().debug_assert();
}

/// Every line of the examples can be run as it stands, as far as the parser can tell.
#[test]
fn every_command_has_examples_that_parse() {
    let command = APPLICATION.command::<commands::Command>();
    let mut parsed = 0;
    for subcommand in command.get_subcommands() {
        let name = subcommand.get_name();
        if workbench::has_subcommand(name) {
            continue;
        }
        let help = subcommand.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_else(|| panic!("{name} has no examples"));
        let lines = help.strip_prefix("Examples:\n").unwrap();
        for line in lines.replace("\\\n", "").lines() {
            // Of a pipeline the last part is this command.
            let line = line.rsplit(" | ").next().unwrap();
            let words = shlex::split(line).unwrap();
            let result = APPLICATION
                .command::<commands::Command>()
                .try_get_matches_from(&words);
            assert!(result.is_ok(), "{line}: {:?}", result.err());
            assert_eq!(words[1], name, "{line}");
            parsed += 1;
        }
    }
    assert!(parsed > 30, "{parsed}");
}
