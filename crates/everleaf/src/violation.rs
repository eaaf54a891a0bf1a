//! The violations that a check of a store finds.

/// Something that [`Store::check`](crate::Store::check) found wrong.
///
/// ```
/// use everleaf::StoreViolation;
///
/// let found = StoreViolation {
///     tree: Some("stock".to_owned()),
///     offset: Some(0x1_2340),
///     what: "a record fails its check".to_owned(),
/// };
/// assert_eq!(found.to_string(), "tree \"stock\", offset 0x12340: a record fails its check");
/// # Ok::<(), everleaf::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreViolation {
    /// The tree concerned; `None` for the pool itself.
    pub tree: Option<String>,
    /// The offset in the file, if it is known.
    pub offset: Option<u64>,
    /// The fault, in words.
    pub what: String,
}

impl std::fmt::Display for StoreViolation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(tree) = &self.tree {
            write!(formatter, "tree {tree:?}, ")?;
        }
        if let Some(offset) = self.offset {
            write!(formatter, "offset {offset:#x}: ")?;
        }
        formatter.write_str(&self.what)
    }
}

/// A slab whose class word is damaged.
pub(crate) fn of_class(offset: u64) -> StoreViolation {
    let what = "the class word of a slab, which tells how it is cut up, is damaged: its content is read as before, and its \
                space is not reused; dump the trees and restore them into a new pool to have it back";
    StoreViolation {
        tree: None,
        offset: Some(offset),
        what: what.to_owned(),
    }
}
