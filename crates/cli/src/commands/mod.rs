//! The subcommands, one file each.

mod adopt;
mod apply;
mod backup;
mod check;
mod compact;
mod demo;
mod drop;
mod dump;
mod engines;
mod examples;
mod get;
mod insert;
mod load;
mod put;
mod restore;
mod rm;
mod salvage;
mod scan;
mod shell;
mod stat;
mod trees;
mod violations;

use clap::Subcommand;

use terminal::completions;
use terminal::context::Context;
use terminal::failure::{Answer, Outcome};
use terminal::interrupt;

use crate::APPLICATION;
use crate::workbench::{self, Workbench};

/// The subcommands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Store this machine's own paths, kill the writer in mid-write, and prove that nothing
    /// acknowledged is lost
    #[command(after_help = examples::DEMO)]
    Demo(demo::Args),
    /// Store the entries of a file: lines of `key TAB value`, or a table in CSV or TSV
    ///
    /// With --escaped lines are read as `scan` prints them, so `scan | load --escaped` copies a tree
    /// of byte strings; a tree with types needs --key-type and --value-type as well.
    /// Entries are made durable in groups, each at most a tenth of a second after it was read. Those
    /// that are reported as stored are durable.
    #[command(after_help = examples::LOAD)]
    Load(load::Args),
    /// Run a script of conditions and writes as one transaction; exit code 1, and no change, if a
    /// condition does not hold
    ///
    /// The fields of a line are separated by tabs: `expect TAB tree TAB key TAB value`,
    /// `expect-absent TAB tree TAB key`, `expect-present TAB tree TAB key`, `put TAB tree TAB key TAB
    /// value` or `remove TAB tree TAB key`. Names, keys and values are read as `load` reads keys and
    /// values. Lines take effect in their order, and a condition sees the writes above it. Empty
    /// lines and lines that begin with # are left out. All trees must exist. After a crash the pool
    /// has all of the script's writes or none.
    #[command(after_help = examples::APPLY)]
    Apply(apply::Args),
    /// Print the value of a key; exit code 1 if it is absent
    #[command(after_help = examples::GET)]
    Get(get::Args),
    /// Set the value of a key
    #[command(after_help = examples::PUT)]
    Put(put::Args),
    /// Add a key; exit code 1, and no change, if it is present
    #[command(after_help = examples::INSERT)]
    Insert(insert::Args),
    /// Remove a key, or all keys of a range; exit code 1 if there is none
    #[command(override_usage = rm::USAGE)]
    #[command(after_help = examples::RM)]
    Rm(rm::Args),
    /// Remove a tree with all its entries; exit code 1 if there is none of this name
    #[command(after_help = examples::DROP)]
    Drop(drop::Args),
    /// Give a tree another name; exit code 1 if there is none of this name
    #[command(after_help = examples::RENAME)]
    Rename(drop::RenameArgs),
    /// Give a tree other types of keys and values, or none
    ///
    /// All entries are read first. If one is not of the types, the tree stays as it is. The bytes of
    /// the entries never change.
    #[command(after_help = examples::ADOPT)]
    Adopt(adopt::Args),
    /// Print the entries of a range of keys, in order
    #[command(after_help = examples::SCAN)]
    Scan(scan::Args),
    /// Run commands on a pool, one after the other: at a terminal, or from standard input
    ///
    /// The commands are get, put, insert, rm, scan, trees, use, begin, commit, rollback, snapshot,
    /// release and exit; `help` explains them. At a terminal lines are edited, with a history, and
    /// Tab completes commands, options and names of trees. From standard input the shell runs a
    /// script: the first error ends it, and a transaction that is open then is not made. With --json
    /// each command prints one object, and scan one for each entry before it. The shell opens the pool
    /// for writing, and makes it if it is missing.
    #[command(after_help = examples::SHELL)]
    Shell(shell::Args),
    /// List the engines and their settings
    #[command(after_help = examples::ENGINES)]
    Engines(engines::Args),
    /// List the trees of a pool
    #[command(after_help = examples::TREES)]
    Trees(trees::Args),
    /// Print figures about a pool, its medium and its trees
    #[command(after_help = examples::STAT)]
    Stat(stat::Args),
    /// Verify the whole structure; exit code 1 if anything is wrong
    ///
    /// The header and the root table of a pool are kept twice. A copy that is damaged or outdated
    /// while the other one is whole costs nothing, and is reported as lost redundancy. With --repair
    /// such copies are written anew first, and the answer says which. Nothing else is changed.
    #[command(after_help = examples::CHECK)]
    Check(check::Args),
    /// Copy a pool to a new file, also while another process writes it
    ///
    /// Only on the medium `file`. A pool that is open on `dax`, which `--medium auto` selects if
    /// the file system grants MAP_SYNC: give --medium file there. If another process has the pool
    /// open, the copy holds all that was durable when the command began, and that process goes on
    /// undisturbed. Otherwise the pool is opened, and recovered if necessary.
    #[command(after_help = examples::BACKUP)]
    Backup(backup::Args),
    /// Write a pool anew, so that its file takes no more room than its entries need
    ///
    /// The new pool is written beside the old one, so the disk needs room for both. It is compared
    /// with the old one, and renamed over it when it is durable. If this fails or is interrupted,
    /// the old pool is as it was, and no file stays behind.
    #[command(after_help = examples::COMPACT)]
    Compact(compact::Args),
    /// Write a pool as text
    #[command(after_help = examples::DUMP)]
    Dump(dump::Args),
    /// Make trees from a dump
    #[command(after_help = examples::RESTORE)]
    Restore(restore::Args),
    /// Print a completion script for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(completions::Args),
    #[command(flatten)]
    Workbench(Workbench),
}

/// Hidden subcommands: this program starts them as child processes.
#[derive(Subcommand, Debug)]
pub(crate) enum Child {
    DemoWriter(demo::writer::Args),
}

/// Runs as a child process.
pub(crate) fn run_child(command: Child) -> Answer {
    match command {
        Child::DemoWriter(args) => demo::writer::run(&args),
    }
}

/// Runs a subcommand.
pub(crate) fn run(command: Command, context: Context) -> Outcome {
    let changes_nothing = match &command {
        Command::Check(args) => !args.repairs(),
        Command::Dump(_) | Command::Backup(_) | Command::Compact(_) => true,
        _ => false,
    };
    if changes_nothing {
        interrupt::changes_nothing();
    }
    match command {
        Command::Demo(args) => demo::run(&args, context),
        Command::Load(args) => load::run(&args, context),
        Command::Apply(args) => apply::run(&args, context),
        Command::Get(args) => get::run(&args, context),
        Command::Put(args) => put::run(&args, context),
        Command::Insert(args) => insert::run(&args, context),
        Command::Rm(args) => rm::run(&args, context),
        Command::Drop(args) => drop::run(&args, context),
        Command::Rename(args) => drop::rename(&args, context),
        Command::Adopt(args) => adopt::run(&args, context),
        Command::Scan(args) => scan::run(&args, context),
        Command::Shell(args) => shell::run(&args, context),
        Command::Engines(args) => engines::run(&args, context),
        Command::Trees(args) => trees::run(&args, context),
        Command::Stat(args) => stat::run(&args, context),
        Command::Check(args) => check::run(&args, context),
        Command::Compact(args) => compact::run(&args, context),
        Command::Backup(args) => backup::run(&args, context),
        Command::Dump(args) => dump::run(&args, context),
        Command::Restore(args) => restore::run(&args, context),
        Command::Completions(args) => completions::print(
            &args,
            APPLICATION.name,
            APPLICATION.command::<Command>(),
            context,
        ),
        Command::Workbench(_) => Err(workbench::turn_into(
            &std::env::args_os().collect::<Vec<_>>(),
        )),
    }
}
