//! Faults in the file medium, which are planted one at a time to check that its tests notice them.
//! Outside of its unit tests no fault can be planted, and the checks are compiled away.

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutant {
    /// A checkpoint writes back all frames that are appended, durable or not.
    CheckpointUnbound,
    /// A checkpoint does not tell readers in other processes how far it writes.
    Unannounced,
    /// The log has room for everything.
    NoRoomNeeded,
    /// An open goes on with the incarnation that it found.
    OldIncarnation,
    /// Frames are read wherever they lie.
    AnyPosition,
    /// The log is never sealed.
    NoSeal,
    /// Frames do not say how far the log was durable.
    NothingSaidDurable,
    /// Frames say that everything before them was durable.
    AllSaidDurable,
    /// An open relies on the header that it read, durable or not.
    HeaderKept,
    /// An open relies on the end of the log that it read, durable or not.
    EndKept,
    /// An open relies on the mark that it read, durable or not.
    MarkKept,
    /// Of two headers the one that can be read counts.
    AnyHeader,
    /// Groups are acknowledged before they are synced.
    EarlyAcknowledgement,
    /// Released units are punched at any checkpoint.
    PunchedEarly,
    /// Threads store to a page while it is given back.
    StoresGoOn,
    /// A page that equals the file is given back, whether its lines are checkpointed or not.
    EqualIsEnough,
    /// Pages are given back while a checkpoint changes the file.
    GivenBackAnytime,
    /// A page is given back even if one of its lines was appended since the file was read.
    LookedAtOnce,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in what this thread does from now on, or takes it out.
#[cfg(test)]
pub(crate) fn plant(mutant: Option<Mutant>) {
    PLANTED.set(mutant);
}

impl Mutant {
    /// Whether this fault is planted.
    #[inline(always)]
    pub(crate) fn is_planted(self) -> bool {
        #[cfg(test)]
        return PLANTED.get() == Some(self);
        #[cfg(not(test))]
        return false;
    }
}
