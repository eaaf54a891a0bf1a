//! The demo's output in a terminal.

use std::io::{IsTerminal, Write};

use super::report::Report;
use terminal::context::Context;
use terminal::failure::Failure;

/// Prints named steps on standard output; nothing with `--json`.
pub(super) struct Show {
    context: Context,
    colours: bool,
}

impl Show {
    pub(super) fn new(context: Context) -> Self {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { context, colours }
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.colours {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn print(&self, text: &str) {
        if !self.context.json {
            // If the reader of a pipe has closed it, the demo goes on.
            let _ = writeln!(std::io::stdout(), "{text}");
        }
    }

    pub(super) fn title(&self, text: &str) {
        self.print(&format!("\n{}\n", self.painted("1", text)));
    }

    /// A step: its name, and one or more lines.
    pub(super) fn step(&self, name: &str, lines: &str) {
        let name = self.painted("1;36", &format!("{name:>8}"));
        let lines = lines.replace('\n', "\n          ");
        self.print(&format!("{name}  {lines}"));
    }

    /// The summary.
    pub(super) fn end(&self, report: &Report) -> Result<(), Failure> {
        let mut words = String::from("\n");
        for (name, text) in report.summary() {
            words += &self.painted("1", &format!("{name:>18}"));
            words = format!("{words}  {text}\n");
        }
        words += "\n  Next:\n";
        for command in &report.next {
            words = format!("{words}    {}\n", self.painted("32", command));
        }
        self.context.say(report, words)
    }
}
