//! PlantedFault that tests plant in the protocol, to see that they notice them.

/// A sentence of the protocol that is left out or turned round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VersionsFault {
    /// An opener does not wait for the writes that may not have seen the switch.
    NoGracePeriod,
    /// An opener does not wait for the end of another one's grace period.
    OpenerSkipsGracePeriod,
    /// A single write does not lock its key.
    NoKeyLock,
    /// A view reads the changes first and the tree after them.
    ChangesBeforeTree,
    /// An opener does not wait for the writes up to its stamp.
    NoWaitForPublished,
    /// A single write is published before it is recorded.
    PublishBeforeRecord,
    /// A write takes its stamp in one step, and records its change in another.
    StampThenRecord,
    /// Each write of a batch has a stamp of its own.
    StampForEachWrite,
    /// A transaction does not check what it has read.
    NoCheck,
    /// A transaction checks what it has read only before the step that takes the stamp.
    CheckThenStamp,
    /// A view reads its stamp in one step, and is registered in another.
    RegisterLate,
    /// Of several values of a key only the first is kept.
    ValueNotKeptTwice,
    /// Of several changes after its stamp, a view takes the newest.
    NewestChangeWins,
    /// Versions are switched off although a thread opens a view.
    OffIgnoresOpeners,
    /// Changes are forgotten although the oldest view needs them.
    ForgetTooMuch,
    /// A read does not check that its view was not ended meanwhile.
    NoLastCheck,
    /// The changes are forgotten before the view is marked as ended.
    ForgetBeforeMark,
    /// The changes of a range are read once, and not after each batch of entries.
    RangeReadsChangesOnce,
    /// The changes between the last entry of a range and its end are left out.
    NoChangesBehindLast,
    /// A load takes its stamp without the stripes.
    LoadWithoutStripes,
    /// A load is not recorded.
    LoadNotRecorded,
    /// A change of a key counts although the tree was loaded before it.
    ChangeBeatsLoad,
    /// The keys of a range that a transaction has read are not checked.
    NoCheckOfRanges,
    /// A batch that could not be finished is no obstacle to views.
    UnfinishedIsNoObstacle,
}

/// The faults that are planted; none in a build without the feature `sim`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlantedFault {
    #[cfg(feature = "sim")]
    planted: Option<VersionsFault>,
}

impl PlantedFault {
    #[cfg(feature = "sim")]
    pub(super) fn of(fault: VersionsFault) -> Self {
        Self {
            planted: Some(fault),
        }
    }

    /// Whether this fault is planted.
    #[inline(always)]
    pub(crate) fn has(self, fault: VersionsFault) -> bool {
        #[cfg(feature = "sim")]
        return self.planted == Some(fault);
        #[cfg(not(feature = "sim"))]
        {
            let _ = fault;
            false
        }
    }
}
