//! `everleaf apply`: conditions and writes of a script, as one transaction.
//!
//! The script is read to its end before the pool is opened, so the pool is not locked while the
//! command waits for input.

use std::collections::HashMap;
use std::path::PathBuf;

use everleaf::{Error, ErrorKind, Store, Transaction, Tree, View};
use serde::Serialize;

use crate::forms::FormArgs;
use crate::input::{Input, LineRead, note_byte_order_mark, too_long};
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;
use terminal::{interrupt, progress, text};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The script; `-` is standard input. A carriage return at a line's end belongs to its last
    /// field. A byte order mark before the first line is left out
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Keys and values are hex digits
    #[arg(long, conflicts_with = "escaped")]
    hex: bool,
    /// Names, keys and values are in the form that `scan` prints: `\t` `\n` `\r` `\\` `\xNN` stand for
    /// bytes
    #[arg(long)]
    escaped: bool,
}

/// The first field of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Expect,
    ExpectAbsent,
    ExpectPresent,
    Put,
    Remove,
}

impl Verb {
    const ALL: [Self; 5] = [
        Self::Expect,
        Self::ExpectAbsent,
        Self::ExpectPresent,
        Self::Put,
        Self::Remove,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Expect => "expect",
            Self::ExpectAbsent => "expect-absent",
            Self::ExpectPresent => "expect-present",
            Self::Put => "put",
            Self::Remove => "remove",
        }
    }

    fn from_name(name: &[u8]) -> Option<Self> {
        let mut verbs = Self::ALL.into_iter();
        verbs.find(|verb| verb.name().as_bytes() == name)
    }

    fn has_value(self) -> bool {
        matches!(self, Self::Expect | Self::Put)
    }

    /// The form of its lines.
    fn form(self) -> String {
        let value = if self.has_value() { " TAB value" } else { "" };
        format!("{} TAB tree TAB key{value}", self.name())
    }
}

/// A line of the script, as it was written.
struct Line {
    /// The number of the line, from 1.
    number: u64,
    verb: Verb,
    tree: String,
    key: Vec<u8>,
    /// Empty if the verb takes no value.
    value: Vec<u8>,
}

/// A line of the script, ready to be run.
struct Step {
    /// The number of the line, from 1.
    number: u64,
    tree: Tree,
    key: Vec<u8>,
    action: Action,
}

enum Action {
    Expect(Vec<u8>),
    ExpectAbsent,
    ExpectPresent,
    Put(Vec<u8>),
    Remove,
}

/// The counts of a script that was applied.
#[derive(Serialize, Default)]
struct Done {
    applied: bool,
    conditions: u64,
    put: u64,
    removed: u64,
}

/// The answer if a condition does not hold.
#[derive(Serialize)]
struct Unmet {
    applied: bool,
    line: u64,
    what: String,
}

/// Why a transaction was undone.
enum Undone {
    Unmet(Unmet),
    Failed(Failure),
}

impl From<Failure> for Undone {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Error> for Undone {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

impl Args {
    /// Reads the script.
    fn read(&self, input: &mut Input) -> Result<Vec<Line>, Failure> {
        let mut lines = Vec::new();
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            interrupt::check()?;
            let read = input.read_line(&mut line)?;
            number += 1;
            let parsed = match read {
                LineRead::End => return Ok(lines),
                LineRead::TooLong(length) => Err(too_long(length)),
                LineRead::Line(_) => {
                    let content = line.strip_suffix(b"\n").unwrap_or(&line);
                    if content.is_empty() || content.starts_with(b"#") {
                        continue;
                    }
                    self.parse(number, content)
                }
            };
            let parsed = parsed.map_err(|what| bad_line(input, number, what))?;
            lines.push(parsed);
        }
    }

    /// The parts of a line, or its fault.
    fn parse(&self, number: u64, content: &[u8]) -> Result<Line, String> {
        let mut fields = content.splitn(4, |byte| *byte == b'\t');
        let first = fields.next().unwrap_or_default();
        let Some(verb) = Verb::from_name(first) else {
            return Err(unknown_verb(first));
        };
        let Some(tree) = fields.next() else {
            return Err(other_fields(verb));
        };
        let Some(key) = fields.next() else {
            return Err(other_fields(verb));
        };
        let value = fields.next();
        if value.is_some() != verb.has_value() {
            return Err(other_fields(verb));
        }
        Ok(Line {
            number,
            verb,
            tree: self.tree_name(tree)?,
            key: key.to_vec(),
            value: value.unwrap_or_default().to_vec(),
        })
    }

    /// The options for the forms of keys and values, in all trees.
    fn forms(&self) -> FormArgs {
        FormArgs {
            hex: self.hex,
            escaped: self.escaped,
            ..FormArgs::default()
        }
    }

    fn tree_name(&self, field: &[u8]) -> Result<String, String> {
        // A name is text, also where keys are hex digits.
        let name = text::maybe_unescaped(field, self.escaped)?;
        String::from_utf8(name.into_owned()).map_err(|_| {
            let field = text::quoted(field);
            format!("{field} is no name of a tree, since it is not UTF-8; `everleaf trees` lists the names")
        })
    }

    /// Opens the trees, and reads keys and values as these trees need.
    fn resolve(
        &self,
        store: &Store,
        input: &Input,
        lines: Vec<Line>,
    ) -> Result<Vec<Step>, Failure> {
        let mut trees: HashMap<String, Tree> = HashMap::new();
        let mut steps = Vec::with_capacity(lines.len());
        for line in lines {
            interrupt::check()?;
            let number = line.number;
            let tree = match trees.get(&line.tree) {
                Some(tree) => tree.clone(),
                None => {
                    let tree = open_tree(store, input, &line)?;
                    self.forms().of_tree(&tree).to_write(store, tree)?
                }
            };
            trees.insert(line.tree.clone(), tree.clone());
            let step = self.step(tree, &line);
            steps.push(step.map_err(|what| bad_line(input, number, what))?);
        }
        Ok(steps)
    }

    fn step(&self, tree: Tree, line: &Line) -> Result<Step, String> {
        let forms = self.forms().of_tree(&tree);
        let value = || forms.read_value(&line.value);
        let action = match line.verb {
            Verb::Expect => Action::Expect(value()?),
            Verb::ExpectAbsent => Action::ExpectAbsent,
            Verb::ExpectPresent => Action::ExpectPresent,
            Verb::Put => Action::Put(value()?),
            Verb::Remove => Action::Remove,
        };
        Ok(Step {
            number: line.number,
            key: forms.read_key(&line.key)?,
            tree,
            action,
        })
    }
}

fn bad_line(input: &Input, number: u64, what: String) -> Failure {
    Failure::Line {
        input: input.name.clone(),
        number,
        what: what + "; nothing was written",
    }
}

fn unknown_verb(first: &[u8]) -> String {
    let names = Verb::ALL.map(Verb::name).join(", ");
    let first = text::quoted(first);
    format!("the first field is {first}; give one of {names}, and a tab behind it")
}

fn other_fields(verb: Verb) -> String {
    format!("the fields do not fit; the form is `{}`", verb.form())
}

fn open_tree(store: &Store, input: &Input, line: &Line) -> Result<Tree, Failure> {
    store.open_tree(&line.tree).map_err(|error| {
        if error.is_absent() {
            let name = &line.tree;
            let what = format!(
                "no tree {name:?}; `everleaf trees` lists those there are, and `everleaf load POOL /dev/null --tree NAME` \
                 makes an empty one"
            );
            return bad_line(input, line.number, what);
        }
        error.into()
    })
}

/// Runs the steps in a transaction.
fn apply(transaction: &mut Transaction, input: &Input, steps: &[Step]) -> Result<Done, Undone> {
    let mut done = Done {
        applied: true,
        ..Done::default()
    };
    for step in steps {
        interrupt::check().map_err(|interruption| Undone::Failed(interruption.into()))?;
        apply_step(transaction, step, &mut done).map_err(|undone| undone.at(input, step))?;
    }
    Ok(done)
}

fn apply_step(transaction: &mut Transaction, step: &Step, done: &mut Done) -> Result<(), Undone> {
    let Step { tree, key, .. } = step;
    match &step.action {
        Action::Put(value) => {
            transaction.put(tree, key, value)?;
            done.put += 1;
        }
        Action::Remove => {
            if transaction.remove(tree, key)? {
                done.removed += 1;
            }
        }
        Action::Expect(value) => {
            let found = transaction.get(tree, key)?;
            expect(step, found.as_deref() == Some(value), found.as_deref())?;
            done.conditions += 1;
        }
        Action::ExpectAbsent => {
            let found = transaction.get(tree, key)?;
            expect(step, found.is_none(), found.as_deref())?;
            done.conditions += 1;
        }
        Action::ExpectPresent => {
            let found = transaction.get(tree, key)?;
            expect(step, found.is_some(), found.as_deref())?;
            done.conditions += 1;
        }
    }
    Ok(())
}

/// Fails if a condition does not hold, and says what was found in its place.
fn expect(step: &Step, holds: bool, found: Option<&[u8]>) -> Result<(), Undone> {
    if holds {
        return Ok(());
    }
    let forms = FormArgs::default().of_tree(&step.tree);
    let state = match found {
        Some(value) => {
            let value = forms.show_value(value)?;
            format!("has the value {}", text::quoted(value.as_bytes()))
        }
        None => "is absent".to_owned(),
    };
    let key = forms.show_key(&step.key)?;
    let key = text::quoted(key.as_bytes());
    let name = step.tree.name();
    Err(Undone::Unmet(Unmet {
        applied: false,
        line: step.number,
        what: format!("key {key} of tree {name:?} {state}"),
    }))
}

impl Undone {
    /// Names the line, if it is to blame.
    fn at(self, input: &Input, step: &Step) -> Self {
        match self {
            Self::Failed(Failure::Store(error)) if is_of_line(&error) => {
                Self::Failed(bad_line(input, step.number, error.what()))
            }
            other => other,
        }
    }
}

/// Whether a line cannot be done, in whatever state the store is.
fn is_of_line(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::KeyTooLong { .. }
            | ErrorKind::ValueTooLong { .. }
            | ErrorKind::NotAWord { .. }
            | ErrorKind::BatchTooLarge { .. }
    )
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    interrupt::gently();
    let mut input = Input::open(&args.file)?;
    let lines = args.read(&mut input)?;
    if input.has_byte_order_mark {
        note_byte_order_mark(context, &input.name);
    }
    let store = args.pool.open(context, false)?;
    let steps = args.resolve(&store, &input, lines)?;
    let applied = store.transaction(|transaction| apply(transaction, &input, &steps));
    drop(steps);
    let closed = store.close();
    match applied {
        Ok(done) => {
            closed?;
            context.say(&done, done.words())?;
            Ok(Answer::Yes)
        }
        Err(Undone::Unmet(unmet)) => {
            closed?;
            let no = format!(
                "{}, line {}: {}; nothing was written",
                input.name, unmet.line, unmet.what
            );
            context.answer(&unmet, false, &no)
        }
        Err(Undone::Failed(failure)) => Err(failure),
    }
}

impl Done {
    fn words(&self) -> String {
        format!(
            "applied: {} met, {} put, {} removed",
            progress::many(self.conditions, "condition"),
            progress::many(self.put, "entry"),
            progress::many(self.removed, "entry")
        )
    }
}
