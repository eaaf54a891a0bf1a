//! How a tree is opened.

use std::time::Duration;

use super::layout::{WIDTH, WIDTH_MAX};
use crate::index::EpochLength;
use crate::{ErrorKind, Result};

/// The fewest slots of a border node.
pub(super) const WIDTH_MIN: usize = 4;
/// Shards that writers are spread over, unless an option says otherwise.
const SHARDS: usize = 8;

/// How changes are made undoable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// By in-line logs, and by the external log where they do not suffice: the paper's INCLL.
    #[default]
    InLine,
    /// By the external log alone: the paper's LOGGING.
    Logging,
    /// Not at all: the paper's MT+. The tree is lost with its process, and cannot be opened again.
    Transient,
}

/// How a tree is opened.
#[derive(Clone, Copy, Debug)]
pub struct MassTreeOptions {
    /// When epochs end: by default every 64 ms.
    pub epoch: EpochLength,
    /// How changes are made undoable.
    pub mode: Mode,
    /// The most entries of a node, for tests: at least 4, at most 14, or 15 in a transient tree. By
    /// default the most.
    pub width: Option<usize>,
    /// Threads that restore nodes from the external log.
    pub recovery_threads: usize,
    /// Threads that may write at once, 1 to 64, by default 8. A further thread waits for an
    /// operation of another one. A tree that exists has as many as it was made with, or fewer.
    pub shards: usize,
    /// Whether dropping the tree ends the epoch. If not, the next open recovers as after a crash:
    /// for tests.
    pub close_cleanly: bool,
    /// Whether an open after a crash leaves the mark of the space in use to
    /// [`Index::mark`](crate::index::Index::mark). If not, the open takes O(slabs).
    pub mark_later: bool,
    /// How long an operation waits for a locked node that does not change. Then it ends with
    /// [`ErrorKind::Contended`].
    pub patience: Duration,
    /// The first epoch of this open, if it is later than the next one: for tests of what happens
    /// after many epochs.
    #[doc(hidden)]
    pub first_epoch: u64,
}

impl Default for MassTreeOptions {
    fn default() -> Self {
        Self {
            epoch: EpochLength::default(),
            mode: Mode::InLine,
            width: None,
            recovery_threads: crate::cores(),
            shards: SHARDS,
            close_cleanly: true,
            mark_later: false,
            patience: Duration::from_secs(10),
            first_epoch: 1,
        }
    }
}

impl MassTreeOptions {
    /// The most entries that a node of this mode has room for.
    fn width_max(&self) -> usize {
        if self.mode == Mode::Transient {
            WIDTH_MAX
        } else {
            WIDTH
        }
    }

    pub(super) fn node_width(&self) -> usize {
        self.width.unwrap_or(self.width_max())
    }

    pub(super) fn check_width(&self) -> Result<()> {
        let width = self.node_width();
        let max = self.width_max();
        if (WIDTH_MIN..=max).contains(&width) {
            return Ok(());
        }
        Err(ErrorKind::Setting {
            what: format!("a node of {width} entries: a node has {WIDTH_MIN} to {max}"),
        }
        .into())
    }
}
