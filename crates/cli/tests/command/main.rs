//! The command `everleaf`, run as users run it: each test starts it as a process of its own.

mod addresses;
mod apply;
mod command_page;
mod commands;
mod common;
mod compact;
mod dump_restore;
mod errors;
mod interrupt;
mod kills;
mod progress;
mod repair;
mod shell;
mod tables;
mod typed;
mod workbench;

/// The path of the command.
fn program() -> &'static str {
    env!("CARGO_BIN_EXE_everleaf")
}
