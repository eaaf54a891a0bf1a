use clap::CommandFactory;

#[test]
fn the_arguments_fit_together() {
    super::Cli::<super::commands::Command>::command().debug_assert();
    super::Cli::<super::commands::Child>::command().debug_assert();
}
