//! `everleaf engines`: the engines and their settings.

use everleaf::Engine;
use terminal::context::Context;
use terminal::engine_list;
use terminal::failure::Outcome;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, context: Context) -> Outcome {
    engine_list::print(Engine::ALL, context)
}
