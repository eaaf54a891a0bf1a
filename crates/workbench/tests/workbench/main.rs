//! The command `everleaf-workbench`, run as users run it: each test starts it as a process of its own.

mod bench;
#[path = "../../../cli/tests/command/common/mod.rs"]
#[expect(dead_code, reason = "some of it is for the tests of the other command")]
mod common;
mod crash;
mod lab;
mod page;
mod torture;

/// The path of the command.
fn program() -> &'static str {
    env!("CARGO_BIN_EXE_everleaf-workbench")
}
