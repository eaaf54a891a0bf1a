//! `everleaf dump --salvage`: the undamaged entries of damaged trees, and an account of the rest.

use std::collections::BTreeSet;

use everleaf::{DamagedPart, Part, Store};
use indicatif::ProgressBar;
use serde::Serialize;

use super::dump::Output;
use terminal::violations::{ListedViolation, Violations, list};

use super::violations::with_keys;
use crate::dump_format::{DumpWriter, TreeHead};
use terminal::context::Context;
use terminal::failure::Failure;
use terminal::{interrupt, progress};

/// The damage because of which parts were not saved.
#[derive(Serialize)]
pub(super) struct Damages {
    damages: u64,
    #[serde(serialize_with = "with_keys")]
    first_damages: Vec<ListedViolation>,
    /// Entries that are damaged themselves.
    damaged_entries: u64,
    /// Nodes that cannot be read: each may have many entries, and lead to many nodes.
    unreadable_nodes: u64,
    /// Trees of which nothing, or not all, can be read.
    unreadable_trees: u64,
    /// The difference between the entries that the trees count and those that were saved; `None` if
    /// a tree cannot be counted.
    missing_entries: Option<u64>,
}

impl Damages {
    /// The damage of the pool itself, which belongs to none of its trees.
    pub(super) fn of_pool(store: &Store, trees: &BTreeSet<String>) -> Self {
        let mut damages = Self {
            damages: 0,
            first_damages: Vec::new(),
            damaged_entries: 0,
            unreadable_nodes: 0,
            unreadable_trees: 0,
            missing_entries: Some(0),
        };
        for damage in &store.recovery().damaged {
            let is_of_tree = match &damage.part {
                DamagedPart::Tree { name } => trees.contains(name),
                _ => false,
            };
            if !is_of_tree {
                damages.missing_entries = None;
                damages.add(ListedViolation::from(damage.what.clone()));
            }
        }
        damages
    }

    pub(super) fn is_empty(&self) -> bool {
        self.damages == 0
    }

    fn add(&mut self, violation: ListedViolation) {
        self.damages += 1;
        list(&mut self.first_damages, violation);
    }

    /// Counts a tree of which nothing, or not the rest, can be read.
    fn leave_out(&mut self, context: Context, tree: &str, error: &everleaf::Error) {
        let what = error.what();
        context.note(format!("left out: tree {tree:?}: {what}"));
        self.unreadable_trees += 1;
        self.missing_entries = None;
        self.add(ListedViolation::of_tree(tree, what));
    }

    /// The parts that were not saved, in words.
    pub(super) fn words(&self) -> String {
        let mut words = Vec::new();
        if self.damaged_entries > 0 {
            words.push(progress::many(self.damaged_entries, "damaged entry"));
        }
        if self.unreadable_nodes > 0 {
            let held = if self.unreadable_nodes == 1 {
                "it"
            } else {
                "they"
            };
            let nodes = progress::many(self.unreadable_nodes, "unreadable node");
            words.push(format!("{nodes}, with what {held} held and led to"));
        }
        if self.unreadable_trees > 0 {
            words.push(progress::many(self.unreadable_trees, "tree"));
        }
        if words.is_empty() {
            words.push(format!(
                "{} whose cost is not known",
                progress::many(self.damages, "damage")
            ));
        }
        let missing = match self.missing_entries {
            Some(missing) => {
                format!(
                    "the trees count {} more than were saved",
                    progress::many(missing, "entry")
                )
            }
            None => "how many entries are missing is not known".to_owned(),
        };
        format!("left out: {}; {missing}", words.join(", "))
    }

    /// Writes all readable entries of a tree.
    pub(super) fn salvage_tree(
        &mut self,
        context: Context,
        store: &Store,
        name: &str,
        writer: &mut DumpWriter<Output>,
        bar: &ProgressBar,
    ) -> Result<(), Failure> {
        let opened = store.open_tree(name);
        let mut trees = store.trees()?.into_iter();
        let info = trees.find(|tree| tree.name == name);
        let Some(tree) = info.and_then(TreeHead::of) else {
            if let Err(error) = &opened {
                self.leave_out(context, name, error);
            }
            return Ok(());
        };
        let codec = tree.kind.codec;
        let counted = opened.as_ref().ok().and_then(|tree| tree.len().ok());
        let mut head = Head {
            tree,
            is_written: false,
        };
        let mut saved = 0_u64;
        let mut written = Ok(());
        let salvaged = store.salvage(name, |key, value| {
            written = head.write_entry(writer, key, value);
            saved += 1;
            bar.inc(1);
            written.is_ok()
        });
        written?;
        let left_out = match salvaged {
            Ok(left_out) => left_out,
            Err(error) => {
                if head.is_written {
                    writer.end_tree()?;
                }
                self.leave_out(context, name, &error);
                return Ok(());
            }
        };
        head.write(writer)?;
        writer.end_tree()?;
        let missing = counted.map(|counted| counted.saturating_sub(saved));
        self.missing_entries = self
            .missing_entries
            .zip(missing)
            .map(|(before, missing)| before + missing);
        let mut found = Violations::default();
        // If the salvage reports no part, all of a tree that does not open may be missing.
        if opened.is_err()
            && left_out
                .iter()
                .all(|left_out| left_out.part == Part::Unknown)
        {
            self.unreadable_trees += 1;
        }
        for left_out in left_out {
            match left_out.part {
                Part::Entry => self.damaged_entries += 1,
                Part::Node => self.unreadable_nodes += 1,
                Part::Unknown => {}
            }
            let violation = ListedViolation::of_salvage(name, codec, left_out);
            found.add(violation.clone());
            self.add(violation);
        }
        // A tree that does not open is damaged even if nothing was left out.
        if let Err(error) = opened.as_ref()
            && found.is_empty()
        {
            let violation = ListedViolation::of_tree(name, error.what());
            found.add(violation.clone());
            self.add(violation);
        }
        found.note(context, "damage");
        Ok(())
    }
}

/// The line that begins a tree. If nothing of a tree can be read, it is left out as well.
struct Head {
    tree: TreeHead,
    is_written: bool,
}

impl Head {
    /// Writes the line, unless it is written already.
    fn write(&mut self, writer: &mut DumpWriter<Output>) -> Result<(), Failure> {
        if self.is_written {
            return Ok(());
        }
        self.is_written = true;
        writer.tree(&self.tree)
    }

    /// Writes an entry below the line.
    fn write_entry(
        &mut self,
        writer: &mut DumpWriter<Output>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Failure> {
        self.write(writer)?;
        interrupt::check()?;
        writer.entry(key, value)
    }
}
