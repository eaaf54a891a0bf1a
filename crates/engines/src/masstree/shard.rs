//! The state that the parts of a tree keep in a shard, for the thread that has it locked.

use super::layout::CLASSES;
use crate::kit::epochs::Shard;
use crate::kit::epochs::barrier::Pass;

/// The pass that a writer holds for the time of one operation: a locked shard. The epoch does not
/// end meanwhile.
pub(super) type Work<'e> = Pass<'e, Shard<Own>>;

/// The state of the allocator and the external log in a shard.
pub(super) struct Own {
    /// For each class the phase in which the line of its queue was listed.
    pub(super) queue_listed: [u64; CLASSES],
    /// For each class how far its queue may be emptied in the running epoch, where the queue's log
    /// does not say so.
    pub(super) limits: [Limit; CLASSES],
    /// For each class which part of its queue belongs to runs that are to be emptied.
    pub(super) parked: [Parked; CLASSES],
    pub(super) log: LogCursor,
    /// Objects that were freed since the open.
    pub(super) freed: u64,
    /// While a bulk load holds the shard, the runs that it allocates from.
    pub(super) loading: Option<OwnRuns>,
}

impl Default for Own {
    fn default() -> Self {
        let queue_listed = [0; CLASSES];
        let limits = [Limit::default(); CLASSES];
        let parked = [Parked::None; CLASSES];
        Self {
            queue_listed,
            limits,
            parked,
            log: LogCursor::default(),
            freed: 0,
            loading: None,
        }
    }
}

/// The last object that may be taken from a queue in an epoch; 0 if none may be taken.
#[derive(Clone, Copy, Default)]
pub(super) struct Limit {
    pub(super) epoch: u64,
    pub(super) object: u64,
}

/// The part of a queue whose objects are not to be taken, because their runs are to be emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parked {
    /// No part.
    None,
    /// Everything behind this object. It was free before the running epoch began.
    Behind(u64),
    /// The whole queue.
    All,
}

impl Parked {
    /// The queue has lost its objects up to this one.
    #[inline(always)]
    pub(super) fn lose(&mut self, last: u64) {
        if *self == Self::Behind(last) {
            *self = Self::All;
        }
    }

    /// Objects were put in front of the queue, this one the last of them.
    pub(super) fn gain(&mut self, last: u64) {
        if *self == Self::All {
            *self = Self::Behind(last);
        }
    }
}

/// Where the next entry of a shard's external log goes.
#[derive(Default)]
pub(super) struct LogCursor {
    /// The segments in the shard's chain.
    pub(super) segments: Vec<u64>,
    /// The entries that were written in an epoch.
    pub(super) entries: u64,
    pub(super) epoch: u64,
}

/// Runs that only one bulk load allocates from.
pub(super) struct OwnRuns {
    /// In the order in which they were taken from the pool; each leads to the one before.
    pub(super) all: Vec<u64>,
    /// For each class the next object of the run that is being carved; 0 if there is none.
    pub(super) fresh: [u64; CLASSES],
}

impl Default for OwnRuns {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            fresh: [0; CLASSES],
        }
    }
}
