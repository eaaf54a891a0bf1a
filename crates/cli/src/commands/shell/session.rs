//! The commands of a shell, and the state between them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Parser;
use everleaf::{Snapshot, Store, Transaction, Tree, View};
use serde_json::json;

use super::words::words_of;
use crate::arguments::{NewTreeArgs, TreeArgs};
use crate::commands::get::GetArgs;
use crate::commands::scan::ScanArgs;
use crate::commands::trees;
use crate::forms::{EntryForms, FormArgs};
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};

/// The commands of the shell.
#[derive(Parser, Debug)]
#[command(
    name = "",
    no_binary_name = true,
    disable_version_flag = true,
    override_usage = "COMMAND [OPTIONS]; `help COMMAND` explains a command",
    after_help = "Words are separated by blanks. A word in quotes ('a b' or \"a b\") may have blanks; write a quote within it twice. A backslash stands for itself."
)]
pub(super) enum ShellCommand {
    /// Print the value of a key
    Get(GetArgs),
    /// Set the value of a key
    Put(ShellPutArgs),
    /// Add a key; no change if it is present
    Insert(ShellPutArgs),
    /// Remove a key
    Rm(ShellRmArgs),
    /// Print the entries of a range of keys, in order
    Scan(ScanArgs),
    /// List the trees
    Trees,
    /// Choose the tree of the commands that name none, and the forms of its keys and values
    Use(UseArgs),
    /// Begin a transaction: the commands up to `commit` take effect together
    Begin,
    /// Make the writes of the transaction, all at once
    Commit,
    /// End the transaction without its writes
    Rollback,
    /// Read the pool as it is now, until `release`
    Snapshot,
    /// Leave the snapshot: read the newest state again
    Release,
    /// End the shell; so does Ctrl-D
    #[command(alias = "quit")]
    Exit,
}

/// The arguments of `put` and `insert`.
#[derive(clap::Args, Debug)]
pub(super) struct ShellPutArgs {
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// The value
    #[arg(allow_negative_numbers = true)]
    value: OsString,
    #[command(flatten)]
    tree: NewTreeArgs,
    #[command(flatten)]
    forms: FormArgs,
}

/// The arguments of `rm`.
#[derive(clap::Args, Debug)]
pub(super) struct ShellRmArgs {
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    #[command(flatten)]
    tree: TreeArgs,
    #[command(flatten)]
    forms: FormArgs,
}

/// The arguments of `use`.
#[derive(clap::Args, Debug)]
pub(super) struct UseArgs {
    /// The tree
    tree: String,
    #[command(flatten)]
    forms: FormArgs,
}

/// The state of the pool that the commands read.
enum Moment {
    /// The newest one.
    Newest,
    /// That of a transaction, with its own writes.
    Transaction(Transaction),
    /// That of a snapshot.
    Snapshot(Snapshot),
}

/// Whether the shell goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NextStep {
    GoOn,
    End,
}

/// A store, and the state between two commands.
pub(super) struct Session<'s> {
    store: &'s Store,
    context: Context,
    moment: Moment,
    /// The tree of the commands that name none; `None` for the default one.
    tree: TreeArgs,
    /// The options for the forms of keys and values in that tree.
    forms: FormArgs,
}

impl<'s> Session<'s> {
    pub(super) fn new(store: &'s Store, context: Context, tree: TreeArgs, forms: FormArgs) -> Self {
        Self {
            store,
            context,
            moment: Moment::Newest,
            tree,
            forms,
        }
    }

    /// Runs the command on a line. An empty line and a comment do nothing.
    pub(super) fn run(&mut self, line: &[u8]) -> Result<NextStep, Failure> {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(NextStep::GoOn);
        }
        let words = words_of(line).map_err(Failure::Usage)?;
        let command = match ShellCommand::try_parse_from(words) {
            Ok(command) => command,
            // Help is an error to the parser.
            Err(help) if !help.use_stderr() => {
                let text = help.render().to_string();
                self.context
                    .say(&json!({ "help": text }), text.trim_end())?;
                return Ok(NextStep::GoOn);
            }
            Err(error) => return Err(Failure::of_parser(&error)),
        };
        if matches!(command, ShellCommand::Exit) {
            return Ok(NextStep::End);
        }
        self.run_command(command)?;
        Ok(NextStep::GoOn)
    }

    fn run_command(&mut self, command: ShellCommand) -> Outcome {
        match command {
            ShellCommand::Get(args) => self.get(&args),
            ShellCommand::Put(args) => self.put(&args),
            ShellCommand::Insert(args) => self.insert(&args),
            ShellCommand::Rm(args) => self.rm(&args),
            ShellCommand::Scan(args) => self.scan(&args),
            ShellCommand::Trees => trees::print(self.store, self.context),
            ShellCommand::Use(args) => self.use_tree(args),
            ShellCommand::Begin => self.begin(),
            ShellCommand::Commit => self.commit(),
            ShellCommand::Rollback => self.rollback(),
            ShellCommand::Snapshot => self.snapshot(),
            ShellCommand::Release => self.release(),
            // The caller ends the shell.
            ShellCommand::Exit => Ok(Answer::Yes),
        }
    }

    /// The tree that a command names, or else the one of the session.
    fn tree_args(&self, named: &TreeArgs) -> TreeArgs {
        TreeArgs {
            tree: named.tree.clone().or(self.tree.tree.clone()),
        }
    }

    /// The options of a command, and those of the session if the command is about its tree.
    fn form_args(&self, named: &TreeArgs, forms: &FormArgs) -> FormArgs {
        if named.tree.is_none() || named.tree == self.tree.tree {
            forms.or(&self.forms)
        } else {
            forms.clone()
        }
    }

    /// The tree of a command that reads, and the forms of its keys and values.
    fn opened(&self, named: &TreeArgs, forms: &FormArgs) -> Result<OpenedTree, Failure> {
        let tree = self.tree_args(named).open(self.store)?;
        let forms = self.form_args(named, forms).of_tree(&tree);
        Ok(OpenedTree { tree, forms })
    }

    fn get(&self, args: &GetArgs) -> Outcome {
        let OpenedTree { tree, forms } = self.opened(&args.tree, &args.forms)?;
        let key = forms.key_argument(&args.key)?;
        let value = match &self.moment {
            Moment::Newest => tree.get(&key)?,
            Moment::Transaction(transaction) => transaction.get(&tree, &key)?,
            Moment::Snapshot(snapshot) => snapshot.get(&tree, &key)?,
        };
        args.answer(self.context, &forms, &key, value.as_deref())
    }

    fn scan(&self, args: &ScanArgs) -> Outcome {
        let OpenedTree { tree, forms } = self.opened(&args.tree, &args.forms)?;
        let count = match &self.moment {
            Moment::Newest => args.print(self.context, &self.store.snapshot()?, &tree, &forms)?,
            Moment::Transaction(transaction) => {
                args.print(self.context, transaction, &tree, &forms)?
            }
            Moment::Snapshot(snapshot) => args.print(self.context, snapshot, &tree, &forms)?,
        };
        if self.context.json {
            // So a program that reads the answers knows where this one ends.
            self.context.say(&json!({ "scanned": count }), "")?;
        }
        Ok(Answer::Yes)
    }

    /// The entry of a command that writes, and its tree, which is made if it is missing. It is not
    /// made for an invalid key or value.
    fn entry(&self, args: &ShellPutArgs) -> Result<EntryToWrite, Failure> {
        self.expect_writable()?;
        let named = NewTreeArgs {
            tree: self.tree_args(&args.tree.tree),
            ..args.tree.clone()
        };
        let forms = self.form_args(&args.tree.tree, &args.forms);
        let tree = named.find(self.store, &forms)?;
        let key = tree.forms.key_argument(&args.key)?;
        let value = tree
            .forms
            .read_value(args.value.as_bytes())
            .map_err(Failure::Usage)?;
        let tree = tree.open(self.store)?;
        Ok(EntryToWrite { tree, key, value })
    }

    fn expect_writable(&self) -> Result<(), Failure> {
        match self.moment {
            Moment::Snapshot(_) => Err(Failure::Usage(
                "a snapshot is for reading; `release` leaves it".to_owned(),
            )),
            Moment::Newest | Moment::Transaction(_) => Ok(()),
        }
    }

    fn put(&mut self, args: &ShellPutArgs) -> Outcome {
        let EntryToWrite { tree, key, value } = self.entry(args)?;
        match &mut self.moment {
            Moment::Transaction(transaction) => transaction.put(&tree, &key, &value)?,
            _ => tree.put(&key, &value)?,
        }
        self.context.say(&json!({ "stored": 1 }), "")?;
        Ok(Answer::Yes)
    }

    fn insert(&mut self, args: &ShellPutArgs) -> Outcome {
        let EntryToWrite { tree, key, value } = self.entry(args)?;
        let inserted = match &mut self.moment {
            Moment::Transaction(transaction) => transaction.insert(&tree, &key, &value)?,
            _ => tree.insert(&key, &value)?,
        };
        self.context.answer(
            &json!({ "inserted": inserted }),
            inserted,
            "the key is present",
        )
    }

    fn rm(&mut self, args: &ShellRmArgs) -> Outcome {
        self.expect_writable()?;
        let OpenedTree { tree, forms } = self.opened(&args.tree, &args.forms)?;
        let key = forms.key_argument(&args.key)?;
        let tree = forms.to_remove(self.store, tree)?;
        let removed = match &mut self.moment {
            Moment::Transaction(transaction) => transaction.remove(&tree, &key)?,
            _ => tree.remove(&key)?,
        };
        self.context.answer(
            &json!({ "removed": u64::from(removed) }),
            removed,
            "the key is absent",
        )
    }

    fn use_tree(&mut self, args: UseArgs) -> Outcome {
        self.store.open_tree(&args.tree)?;
        self.context.say(&json!({ "tree": args.tree }), "")?;
        self.tree.tree = Some(args.tree);
        self.forms = args.forms;
        Ok(Answer::Yes)
    }

    fn begin(&mut self) -> Outcome {
        match self.moment {
            Moment::Newest => {}
            Moment::Transaction(_) => {
                return Err(Failure::Usage(
                    "a transaction is open; end it with `commit` or `rollback`".to_owned(),
                ));
            }
            Moment::Snapshot(_) => {
                return Err(Failure::Usage(
                    "a snapshot is open; `release` leaves it".to_owned(),
                ));
            }
        }
        self.moment = Moment::Transaction(self.store.begin()?);
        self.context.say(&json!({ "begun": true }), "")?;
        Ok(Answer::Yes)
    }

    /// Takes the transaction; after that there is none.
    fn take_transaction(&mut self) -> Result<Transaction, Failure> {
        match std::mem::replace(&mut self.moment, Moment::Newest) {
            Moment::Transaction(transaction) => Ok(transaction),
            other => {
                self.moment = other;
                Err(Failure::Usage(
                    "no transaction is open; `begin` begins one".to_owned(),
                ))
            }
        }
    }

    fn commit(&mut self) -> Outcome {
        self.take_transaction()?.commit()?;
        self.context
            .say(&json!({ "committed": true }), "committed")?;
        Ok(Answer::Yes)
    }

    fn rollback(&mut self) -> Outcome {
        drop(self.take_transaction()?);
        self.context
            .say(&json!({ "rolled_back": true }), "rolled back")?;
        Ok(Answer::Yes)
    }

    fn snapshot(&mut self) -> Outcome {
        if let Moment::Transaction(_) = self.moment {
            return Err(Failure::Usage(
                "a transaction is open, which reads one moment already; end it with `commit` or `rollback`".to_owned(),
            ));
        }
        self.moment = Moment::Snapshot(self.store.snapshot()?);
        self.context.say(&json!({ "snapshot": true }), "")?;
        Ok(Answer::Yes)
    }

    fn release(&mut self) -> Outcome {
        let Moment::Snapshot(_) = self.moment else {
            return Err(Failure::Usage(
                "no snapshot is open; `snapshot` takes one".to_owned(),
            ));
        };
        self.moment = Moment::Newest;
        self.context.say(&json!({ "snapshot": false }), "")?;
        Ok(Answer::Yes)
    }

    /// The prompt: the pool, the tree, and what is open.
    pub(super) fn prompt(&self) -> String {
        let pool = self.store.path().file_name().unwrap_or_default();
        let pool = Path::new(pool).display();
        let tree = match self.tree_args(&TreeArgs { tree: None }).name(self.store) {
            Ok(tree) => format!("/{tree}"),
            Err(_) => String::new(),
        };
        let open = match self.moment {
            Moment::Newest => "",
            Moment::Transaction(_) => " (transaction)",
            Moment::Snapshot(_) => " (snapshot)",
        };
        format!("{pool}{tree}{open}> ")
    }

    /// Ends the session. A transaction that was not committed is dropped; returns whether there was
    /// one.
    pub(super) fn end(self) -> bool {
        let Moment::Transaction(transaction) = &self.moment else {
            return false;
        };
        if transaction.is_empty() {
            return false;
        }
        self.context
            .note("note: the transaction was not committed, so its writes were not made");
        true
    }
}

/// A tree, and the forms of its keys and values.
struct OpenedTree {
    tree: Tree,
    forms: EntryForms,
}

/// An entry that a command writes.
struct EntryToWrite {
    tree: Tree,
    key: Vec<u8>,
    value: Vec<u8>,
}
