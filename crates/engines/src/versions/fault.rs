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
    /// A single write gives the lock of its key back before it is published.
    KeyLockEndsEarly,
    /// A single write gives its share of the stripe back before it is published.
    ShareEndsEarly,
    /// A single write asks whether versions are on before it has its share of the stripe.
    SwitchBeforeShare,
    /// A view reads the changes first and the tree after them.
    ChangesBeforeTree,
    /// An opener does not wait for the writes up to its stamp.
    NoWaitForPublished,
    /// A single write is published before it is recorded.
    PublishBeforeRecord,
    /// A batch is published before it is recorded.
    BatchBeforeRecord,
    /// A batch locks its stripes in the order of its writes.
    StripesInAnyOrder,
    /// A write takes its stamp in one step, and records its change in another.
    StampThenRecord,
    /// Each write of a batch has a stamp of its own.
    StampForEachWrite,
    /// A transaction does not check what it has read.
    NoCheck,
    /// A transaction checks what it has read only before the step that takes the stamp.
    CheckThenStamp,
    /// A transaction commits although its view was ended.
    EndedViewCommits,
    /// A transaction that has read a state of the running epoch, and writes to no tree of epochs, is
    /// not in that epoch.
    ReadsOfEpochIgnored,
    /// A view reads its stamp in one step, and is registered in another.
    RegisterLate,
    /// Of several values of a key only the first is kept.
    ValueNotKeptTwice,
    /// Of several changes after its stamp, a view takes the newest.
    NewestChangeWins,
    /// Versions are switched off although a thread opens a view.
    OffIgnoresOpeners,
    /// Versions are switched off although a view is open.
    OffIgnoresViews,
    /// A thread finds in one step that no view is open, and switches versions off in another.
    OffInTwoSteps,
    /// Changes are forgotten although the oldest view needs them.
    ForgetTooMuch,
    /// A read does not check that its view was not ended meanwhile.
    NoLastCheck,
    /// A read checks that its view was not ended before it reads, and not after.
    LastCheckFirst,
    /// The changes are forgotten before the view is marked as ended.
    ForgetBeforeMark,
    /// The changes of a range are read once, and not after each batch of entries.
    RangeReadsChangesOnce,
    /// The changes between the last entry of a range and its end are left out.
    NoChangesBehindLast,
    /// The changes between the begin of a batch of entries and its first entry are left out.
    NoChangesBeforeFirst,
    /// A load takes its stamp without the stripes.
    LoadWithoutStripes,
    /// A load is not recorded.
    LoadNotRecorded,
    /// A load is recorded before it has found the tree empty.
    LoadBeforeEmpty,
    /// A view does not wait for a load that has its stamp.
    NoWaitForLoad,
    /// A change of a key counts although the tree was loaded before it.
    ChangeBeatsLoad,
    /// A load counts although the key has changed before it.
    LoadBeatsChange,
    /// The keys of a range that a transaction has read are not checked.
    NoCheckOfRanges,
    /// A batch that could not be finished is no obstacle to views.
    UnfinishedIsNoObstacle,
    /// A batch that could not be finished is an obstacle only after views have ceased to wait for it.
    UnfinishedTooLate,
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
