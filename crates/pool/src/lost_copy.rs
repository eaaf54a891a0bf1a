//! Lost redundancy: one of two copies is damaged.

/// A copy of something that the pool keeps twice. It is damaged or outdated, and the other copy is
/// whole: nothing is lost, but the next damage may cost something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostCopy {
    /// Where it lies in the file.
    pub offset: u64,
    /// The copy and its fault, in words.
    pub what: String,
    /// Whether it passes its check, but has an older content than the other one. A crash in the
    /// middle of a change leaves such a copy, too.
    pub is_outdated: bool,
    /// Whether it can be written anew from the other copy.
    pub can_be_mended: bool,
}

/// The name of a copy.
pub(crate) fn ordinal(copy: usize) -> &'static str {
    if copy == 0 { "first" } else { "second" }
}
