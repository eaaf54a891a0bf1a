//! The recording of a [`Sim`](super::Sim).

use std::fmt;
use std::panic::Location;

use crate::LineValue;

/// A place in the source: where an operation on the medium was called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Site {
    /// The file, as the compiler was given it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl From<&'static Location<'static>> for Site {
    fn from(location: &'static Location<'static>) -> Self {
        Self {
            file: location.file(),
            line: location.line(),
            column: location.column(),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.file, self.line)
    }
}

/// The kind of the operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SiteKind {
    /// A store or compare-exchange of a word.
    Store,
    /// A store of a line.
    StoreLine,
    /// A flush.
    Flush,
    /// A fence.
    Fence,
    /// A wait.
    Wait,
}

/// Notes of a harness about the operations around the recorded ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// The operation of this number was called.
    Invoke(u32),
    /// The operation of this number returned: it is acknowledged.
    Response(u32),
    /// The harness read all of the state, so a crash may not take back any of it.
    Observed,
}

/// One recorded event. Offsets are in words and lines, from the medium's start.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A word was stored: one atom.
    Store {
        /// Which word.
        word: u32,
        /// Its new value.
        value: u64,
        /// Whether a compare-exchange did.
        exchanged: bool,
        /// The thread that stored it: threads are numbered from 0 in the order in which they first
        /// used any `Sim`.
        thread: u16,
        /// Where.
        site: &'static Location<'static>,
    },
    /// A line was stored whole: one atom of 64 bytes.
    StoreLine {
        /// Which line.
        line: u32,
        /// The index of its new value in [`Trace::line_values`].
        value: u32,
        /// The thread that stored it.
        thread: u16,
        /// Where.
        site: &'static Location<'static>,
    },
    /// Lines were flushed.
    Flush {
        /// Which guard's fence this flush waits for.
        notes: u64,
        /// The first line.
        line: u32,
        /// How many lines.
        count: u32,
        /// The thread that flushed.
        thread: u16,
        /// Where.
        site: &'static Location<'static>,
    },
    /// A guard fenced what it had flushed.
    Fence {
        /// Which guard's flushes.
        notes: u64,
        /// Its LSN, if the `Sim` is late.
        lsn: u64,
        /// The thread that fenced.
        thread: u16,
        /// Where.
        site: &'static Location<'static>,
    },
    /// A thread waited for an LSN that was not durable, and it became durable. Only if the `Sim` is
    /// late.
    Wait {
        /// Up to which LSN.
        lsn: u64,
        /// The thread that waited.
        thread: u16,
        /// Where.
        site: &'static Location<'static>,
    },
    /// The memory grew.
    Grow {
        /// The new length, in bytes.
        length: u64,
    },
    /// Lines lost their content for good, because their room was given back.
    Release {
        /// The first line.
        line: u32,
        /// How many lines.
        count: u32,
    },
    /// The chooser decided what a word of an open line held.
    Narrow {
        /// Which line.
        line: u32,
        /// Which of its words, 0 to 7.
        word: u8,
        /// The decision.
        value: u64,
    },
    /// The harness set a mark.
    Mark(Mark),
}

impl Event {
    /// The thread of an event that is an operation on the medium.
    pub fn thread(&self) -> Option<u16> {
        match self {
            Self::Store { thread, .. }
            | Self::StoreLine { thread, .. }
            | Self::Flush { thread, .. }
            | Self::Fence { thread, .. }
            | Self::Wait { thread, .. } => Some(*thread),
            Self::Grow { .. } | Self::Release { .. } | Self::Narrow { .. } | Self::Mark(_) => None,
        }
    }

    /// The kind and the place of an event that is an operation on the medium.
    pub fn site(&self) -> Option<(SiteKind, Site)> {
        match self {
            Self::Store { site, .. } => Some((SiteKind::Store, Site::from(*site))),
            Self::StoreLine { site, .. } => Some((SiteKind::StoreLine, Site::from(*site))),
            Self::Flush { site, .. } => Some((SiteKind::Flush, Site::from(*site))),
            Self::Fence { site, .. } => Some((SiteKind::Fence, Site::from(*site))),
            Self::Wait { site, .. } => Some((SiteKind::Wait, Site::from(*site))),
            Self::Grow { .. } | Self::Release { .. } | Self::Narrow { .. } | Self::Mark(_) => None,
        }
    }
}

/// All that was recorded, in the order in which it happened.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The events.
    pub events: Vec<Event>,
    /// Values of line stores.
    pub line_values: Vec<LineValue>,
}

impl Trace {
    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.events.clear();
        self.line_values.clear();
    }
}

/// A fault that is planted to see whether a test notices it. The source stays as it is: a
/// [`Sim`](super::Sim) leaves out the operations that are to be dropped. Operations that are to be
/// done in another order are moved in the recorded trace, by the code that evaluates it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutation {
    /// Flushes called there are not done.
    DropFlush(Site),
    /// Fences called there are not done.
    DropFence(Site),
    /// Waits called there are not done.
    DropWait(Site),
    /// Stores of words and lines called there are not done.
    DropStore(Site),
    /// Stores and compare-exchanges there are done (and flushed) before the preceding persist, not
    /// after it.
    PublishEarly(Site),
    /// The operations that the second of these fences persists are done before those that the first
    /// one persists, where the two are adjacent.
    SwapPersists(Site, Site),
}

impl fmt::Display for Mutation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropFlush(site) => write!(formatter, "without the flush at {site}"),
            Self::DropFence(site) => write!(formatter, "without the fence at {site}"),
            Self::DropWait(site) => write!(formatter, "without the wait at {site}"),
            Self::DropStore(site) => write!(formatter, "without the store at {site}"),
            Self::PublishEarly(site) => write!(formatter, "with the publish at {site} done first"),
            Self::SwapPersists(first, second) => {
                write!(
                    formatter,
                    "with what the fences at {first} and {second} persist swapped"
                )
            }
        }
    }
}
