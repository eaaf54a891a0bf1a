//! Opening a store: everything between the opening of its pool and the first operation of a user.
//!
//! A crash leaves bitmaps that do not say which space is in use, and perhaps batches of which some
//! trees have the writes and others do not. [`recover`] goes through these steps in this order:
//!
//! 1. [`Opened::read_batches`] reads the journal of batches, and drops those that were not
//!    committed. It comes before any tree opens, since opening a tree may begin another epoch.
//! 2. [`Opened::mark_batches`] marks the space that committed batches use.
//! 3. [`Opened::open_trees`] opens every tree, which recovers it. The trees of most engines mark
//!    the space that they use; those of engines that mark later do so in step 4 or 5.
//! 4. [`Opened::mark_for_batches`] lets the remaining trees mark now if there are batches: applying
//!    a batch in step 6 may need space, and which space is free is known once all trees have
//!    marked.
//! 5. [`Opened::end_mark`] frees the space that nothing has marked. If there are trees that have
//!    not marked, a thread in the background lets them, and then frees the rest. If something is
//!    damaged, space that was in use before the crash is not reused before the next open, so that
//!    nothing more is lost of the damaged part.
//! 6. [`Opened::finish_batches`] applies the committed batches to their trees.
//!
//! After a clean close the bitmaps say which space is in use, and the trees open when they are
//! first asked for: [`Opened::read_bitmaps`] takes the place of steps 2 to 5.
//!
//! Damage ends none of the steps. It is listed in [`Recovery::damaged`], and the store opens
//! without the damaged part. Errors of the medium end the open.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engines::batch::Unfinished;
use engines::engine::{Host, Settings};
use engines::index::Index;
use engines::{Error, Result};
use pool::{LostCopy, Pool};

use crate::backend::{OpenTree, StoreOpening};
use crate::background::{Background, UnmarkedTree};
use crate::violation::StoreViolation;

/// The report of an open: its duration, and the damage that it found.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// Whether the pool was not closed cleanly. All trees are then opened before the open returns.
    /// Nodes of [`Engine::MASSTREE`](crate::Engine::MASSTREE) are recovered when they are first
    /// used, or by a sweep in the background; with trees of it, of
    /// [`Engine::BZTREE`](crate::Engine::BZTREE) and of [`Engine::WBTREE`](crate::Engine::WBTREE) the
    /// space in use is found out in the background,
    /// see [`Store::finish_recovery`](crate::Store::finish_recovery), or before the open returns if
    /// a batch was under way.
    pub after_crash: bool,
    /// The whole of opening: from the mapping of the file to the end of recovery.
    pub duration: Duration,
    /// The parts of the pool that could not be recovered. While there are any, no space that was in
    /// use before the crash is reused, so that no more of them is lost. In
    /// [`Store::stat`](crate::Store::stat) also damage that was found in the background. After a
    /// batch that could not be finished all writes return
    /// [`ErrorKind::BatchUnfinished`](crate::ErrorKind::BatchUnfinished).
    pub damaged: Vec<NotRecovered>,
}

/// A part of a pool that could not be recovered, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotRecovered {
    /// The part.
    pub part: DamagedPart,
    /// The damage, in words.
    pub what: String,
}

/// A part of a pool that can be damaged by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DamagedPart {
    /// A tree.
    Tree {
        /// Its name, as [`Store::trees`](crate::Store::trees) lists it.
        name: String,
    },
    /// A batch that was under way when the process ended.
    Batch,
    /// The part that the trees share: the space of the pool and its bitmaps.
    Pool,
}

/// The name of the tree, `(a batch)`, or `(the pool)`.
impl fmt::Display for DamagedPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tree { name } => name,
            Self::Batch => "(a batch)",
            Self::Pool => "(the pool)",
        })
    }
}

impl NotRecovered {
    fn tree(name: &str, error: &Error) -> Self {
        let name = name.to_owned();
        Self {
            part: DamagedPart::Tree { name },
            what: error.what(),
        }
    }

    fn batch(error: &Error) -> Self {
        Self {
            part: DamagedPart::Batch,
            what: error.what(),
        }
    }
}

impl From<StoreViolation> for NotRecovered {
    fn from(found: StoreViolation) -> Self {
        let StoreViolation { tree, offset, what } = found;
        let part = match tree {
            Some(name) => DamagedPart::Tree { name },
            None => DamagedPart::Pool,
        };
        let what = match offset {
            Some(offset) => format!("damaged at offset {offset:#x}: {what}"),
            None => what,
        };
        Self { part, what }
    }
}

/// The open trees of a store by their names.
pub(crate) type OpenTrees = BTreeMap<String, OpenTree>;

/// The results that an open hands to the store.
pub(crate) struct Recovered {
    pub(crate) recovery: Recovery,
    /// The copies of the numbers of epochs that were lost before the open.
    pub(crate) lost_epochs: Vec<LostCopy>,
    /// All whole trees after a crash; none after a clean close.
    pub(crate) trees: OpenTrees,
    /// The thread that marks the trees or reads the bitmaps, if that is left to one.
    pub(crate) background: Option<Background>,
}

/// The conditions of a recovery.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'o> {
    /// The options with which the trees are opened.
    pub(crate) opening: &'o StoreOpening,
    /// Whether the store is only read: it then reuses no space, so nothing is marked in the
    /// background.
    pub(crate) is_only_read: bool,
    /// When the open of the store began.
    pub(crate) start: Instant,
}

/// Recovers a pool in the steps that the module's documentation lists.
pub(crate) fn recover<M: Host>(pool: &Pool<M>, terms: Terms<'_>) -> Result<Recovered> {
    let after_crash = pool.needs_mark();
    // A tree that is opened writes both copies.
    let lost_epochs = engines::copies::lost_of_epochs(pool)?;
    let mut opened = Opened {
        pool,
        terms,
        trees: OpenTrees::new(),
        damaged: Vec::new(),
    };
    let batches = opened.read_batches()?;
    let background = if after_crash {
        opened.mark_batches(&batches);
        opened.open_trees()?;
        let unmarked = opened.mark_for_batches(&batches);
        opened.end_mark(unmarked)
    } else {
        opened.read_bitmaps()
    };
    opened.finish_batches(batches)?;
    Ok(Recovered {
        recovery: Recovery {
            after_crash,
            duration: terms.start.elapsed(),
            damaged: opened.damaged,
        },
        lost_epochs,
        trees: opened.trees,
        background,
    })
}

/// A pool that is being recovered, and how far that has got.
struct Opened<'p, M: Host> {
    pool: &'p Pool<M>,
    terms: Terms<'p>,
    trees: OpenTrees,
    damaged: Vec<NotRecovered>,
}

impl<M: Host> Opened<'_, M> {
    /// Step 1.
    fn read_batches(&mut self) -> Result<Unfinished> {
        let batches = Unfinished::read(self.pool)?;
        self.damaged
            .extend(batches.damage.iter().map(NotRecovered::batch));
        Ok(batches)
    }

    /// Step 2.
    fn mark_batches(&mut self, batches: &Unfinished) {
        if let Err(error) = batches.mark(self.pool) {
            self.damaged.push(NotRecovered::batch(&error));
        }
    }

    /// Step 3.
    fn open_trees(&mut self) -> Result<()> {
        let roots = self.pool.roots()?;
        for root in &roots.damaged {
            let damage = NotRecovered::tree(&root.label(), &root.error());
            self.damaged.push(damage);
        }
        for root in roots.trees {
            match OpenTree::open(self.pool, &root, Settings::NONE, self.terms.opening) {
                Ok(tree) => {
                    self.trees.insert(root.name, tree);
                }
                Err(error) => self.damaged.push(NotRecovered::tree(&root.name, &error)),
            }
        }
        Ok(())
    }

    /// Step 4. Returns the trees that have not marked.
    fn mark_for_batches(&mut self, batches: &Unfinished) -> Vec<UnmarkedTree> {
        let mut unmarked = Vec::new();
        for (name, tree) in &self.trees {
            if tree.kind.engine.marks_later {
                unmarked.push(UnmarkedTree {
                    name: name.clone(),
                    index: Arc::clone(&tree.striped) as Arc<dyn Index>,
                });
            }
        }
        if batches.is_empty() || !self.damaged.is_empty() {
            return unmarked;
        }
        for tree in unmarked {
            if let Err(error) = tree.index.mark(&|| true) {
                self.damaged.push(NotRecovered::tree(&tree.name, &error));
            }
        }
        Vec::new()
    }

    /// Step 5.
    fn end_mark(&self, unmarked: Vec<UnmarkedTree>) -> Option<Background> {
        if !self.damaged.is_empty() {
            self.pool.give_up_marking();
            return None;
        }
        if unmarked.is_empty() {
            self.pool.finish_marking();
            return None;
        }
        if self.terms.is_only_read {
            self.pool.give_up_marking();
            return None;
        }
        Some(Background::mark(self.pool.clone(), unmarked))
    }

    /// After a clean close, instead of steps 2 to 5.
    fn read_bitmaps(&self) -> Option<Background> {
        if !self.pool.has_bitmaps_to_read() {
            return None;
        }
        Some(Background::read_bitmaps(self.pool))
    }

    /// Step 6. It comes before any user of the store reads.
    fn finish_batches(&mut self, batches: Unfinished) -> Result<()> {
        let finished = batches.finish(self.pool, |anchor| {
            let mut trees = self.trees.values();
            let tree = trees.find(|tree| tree.anchor == anchor)?;
            Some(tree.index())
        });
        match finished {
            Err(error) if error.is_corrupt() || error.is_full() => {
                self.damaged.push(NotRecovered::batch(&error));
                Ok(())
            }
            finished => finished,
        }
    }
}

#[cfg(test)]
mod tests;
