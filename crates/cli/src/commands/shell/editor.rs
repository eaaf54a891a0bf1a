//! The prompt of a shell: lines that are edited, with history and completion.

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use everleaf::Store;
use rustyline::completion::Completer;
use rustyline::config::Config;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Editor, Helper};

use super::session::ShellCommand;
use super::words::as_word;
use terminal::failure::Failure;

/// The lines of a user.
pub(super) struct LineEditor<'s> {
    editor: Editor<ShellHelper<'s>, FileHistory>,
    /// The file of the history, if there is one.
    history: Option<PathBuf>,
}

/// How a user has ended the prompt.
pub(super) enum Typed {
    Line(String),
    /// Ctrl-C: the line is dropped.
    Cancelled,
    /// Ctrl-D.
    End,
}

impl<'s> LineEditor<'s> {
    /// A prompt for commands on this store.
    pub(super) fn new(store: &'s Store, history: Option<PathBuf>) -> Result<Self, Failure> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .auto_add_history(true)
            .build();
        let mut editor = Editor::with_config(config).map_err(refused)?;
        editor.set_helper(Some(ShellHelper { store }));
        if let Some(history) = &history {
            // Without a file the history begins empty.
            let _ = editor.load_history(history);
        }
        Ok(Self { editor, history })
    }

    /// Waits for a line.
    pub(super) fn read(&mut self, prompt: &str) -> Result<Typed, Failure> {
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Typed::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Typed::Cancelled),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(refused(error)),
        }
    }

    /// Adds the new lines to the file of the history.
    pub(super) fn save_history(&mut self) -> Result<(), Failure> {
        let Some(history) = &self.history else {
            return Ok(());
        };
        if let Some(folder) = history.parent() {
            let made = std::fs::create_dir_all(folder);
            made.map_err(Failure::io(format!("make {}", folder.display())))?;
        }
        self.editor.append_history(history).map_err(refused)
    }
}

fn refused(error: ReadlineError) -> Failure {
    match error {
        ReadlineError::Io(source) => Failure::io("read the terminal")(source),
        other => Failure::Refused(format!(
            "the terminal cannot be used ({other}); give the commands on standard input, or use another terminal"
        )),
    }
}

/// The default file of the history.
pub(super) fn history_file() -> Option<PathBuf> {
    let folder = match std::env::var_os("XDG_STATE_HOME") {
        Some(folder) if Path::new(&folder).is_absolute() => PathBuf::from(folder),
        _ => PathBuf::from(std::env::var_os("HOME")?).join(".local/state"),
    };
    Some(folder.join("everleaf").join("shell_history"))
}

/// Completes commands, their options, and names of trees.
struct ShellHelper<'s> {
    store: &'s Store,
}

impl ShellHelper<'_> {
    /// The words that may stand at the end of a line of these words.
    fn candidates(&self, before: &[&str], begun: &str) -> Vec<String> {
        let command = ShellCommand::command();
        let Some(first) = before.first() else {
            let names = command.get_subcommands().map(clap::Command::get_name);
            return names
                .chain(["help"])
                .map(|name| format!("{name} "))
                .collect();
        };
        let names_tree = before.last() == Some(&"--tree") || before == ["use"];
        if names_tree {
            let trees = self.store.trees().unwrap_or_default();
            return trees.iter().map(|tree| as_word(&tree.name)).collect();
        }
        if !begun.starts_with('-') {
            return Vec::new();
        }
        let Some(found) = command.find_subcommand(first) else {
            return Vec::new();
        };
        let options = found.get_arguments().filter_map(clap::Arg::get_long);
        options.map(|name| format!("--{name} ")).collect()
    }
}

impl Completer for ShellHelper<'_> {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _context: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let line = &line[..pos];
        let start = line
            .rfind(|character: char| character.is_ascii_whitespace())
            .map_or(0, |blank| blank + 1);
        let begun = &line[start..];
        let before: Vec<&str> = line[..start].split_ascii_whitespace().collect();
        let mut candidates = self.candidates(&before, begun);
        candidates.retain(|candidate| candidate.starts_with(begun));
        Ok((start, candidates))
    }
}

impl Hinter for ShellHelper<'_> {
    type Hint = String;
}

impl Highlighter for ShellHelper<'_> {}

impl Validator for ShellHelper<'_> {}

impl Helper for ShellHelper<'_> {}
