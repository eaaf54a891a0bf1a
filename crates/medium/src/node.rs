//! Persistent types: made of cells only, so that any bit pattern is a valid value.

/// A type that may lie in a pool. Implemented by [`node!`](crate::node!) only.
///
/// # Safety
/// The type is `repr(C)` or `repr(transparent)`, consists of cells only (so that every bit pattern
/// is valid and every access atomic), has no `Drop`, a size that is a multiple of 8 and an
/// alignment of at most 64.
pub unsafe trait Node: 'static {
    /// The type's name, for errors.
    const NAME: &'static str;
}

// SAFETY: an array has the layout and the validity of its elements.
unsafe impl<T: Node, const N: usize> Node for [T; N] {
    const NAME: &'static str = T::NAME;
}

/// Declares a persistent type: a struct of cells, arrays of cells, or other nodes.
///
/// The layout is `repr(C)`; add `const` assertions on `offset_of!` to hold it to its figure. A node
/// that contains a [`Line`](crate::Line) has it as its first field: in
/// [`LineForm::Twin`](crate::LineForm::Twin) the line's second copy lies in the 64 bytes before the
/// node.
#[macro_export]
macro_rules! node {
    ($(#[$meta:meta])* $vis:vis struct $name:ident $(<const $parameter:ident : usize>)? {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name $(<const $parameter: usize>)? {
            $($(#[$field_meta])* $field_vis $field: $type),*
        }
        // SAFETY: `repr(C)`, and the where clauses hold every field to `Node`, whose types are
        // cells: any bits are valid, all access is atomic, nothing is dropped; sizes and alignments
        // follow from the fields.
        unsafe impl $(<const $parameter: usize>)? $crate::private::Node for $name $(<$parameter>)?
        where $($type: $crate::private::Node),*
        {
            const NAME: &'static str = stringify!($name);
        }
    };
}
