//! The ways in which a stand-in can be wrong.

macro_rules! flaws {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// What is wrong with a stand-in.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Flaw {
            $($(#[$meta])* $name,)*
        }

        impl Flaw {
            /// All of them, by number.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

flaws! {
    /// Nothing.
    None,
    /// Insert replaces the value of a key that is there.
    InsertReplaces,
    /// Update adds a key that is absent.
    UpdateInserts,
    /// A failed comparison writes all the same.
    ComparisonIsIgnored,
    /// Between the comparison and the write another thread may write.
    ComparisonIsNotAtomic,
    /// Between looking for a key and adding or removing it another thread may do the same.
    WritesRace,
    /// A reverse range lacks its first entry.
    ReverseSkipsTheFirst,
    /// An excluded end is included.
    ExcludedIsIncluded,
    /// A range goes on by counting entries, not from its last key.
    RangeCounts,
    /// `get_many` answers in the order of keys.
    GetManySorts,
    /// `get_into` does not clear the buffer.
    GetIntoAppends,
    /// Only the first 16 bytes of a key count.
    KeysAreCut,
    /// A key one byte too long is taken.
    LongKeysAreTaken,
    /// A clean close loses a key.
    CleanCloseLosesOne,
    /// A crash loses a key.
    CrashLosesOne,
    /// What is removed is never freed.
    RemoveLeaks,
    /// A removed tree keeps its space until the next mark.
    DestroyLeaks,
    /// A condition that fails leaks.
    FailedConditionLeaks,
    /// Space grows with every insert, though it is all reachable.
    Hoards,
    /// A write refused by a full pool takes a key with it.
    FullPoolLoses,
    /// A bulk load that fails keeps what it had loaded.
    BulkLoadKeepsAPart,
    /// A bulk load does not look at the order.
    BulkLoadTakesAnyOrder,
    /// Trees open with another codec or capacity.
    OpensAsAnything,
    /// All trees of a pool are one.
    TreesMix,
    /// One fence too many per write.
    OneFenceMore,
    /// One fence too few per write.
    OneFenceLess,
    /// A damaged record is a panic.
    DamagePanics,
    /// A damaged record makes a scan go in circles.
    DamageCircles,
}
