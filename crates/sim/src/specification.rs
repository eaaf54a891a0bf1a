//! The part of the sequential specification of a map that all judges use.

use engines::index::Condition;

/// Whether the condition of a write to a key holds while the key has this value.
pub(crate) fn holds<V: PartialEq>(condition: &Condition<V>, current: Option<&V>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::Absent => current.is_none(),
        Condition::Present => current.is_some(),
        Condition::Equals(value) => current == Some(value),
        Condition::Written(_) | Condition::Moved { .. } => {
            unreachable!("no judged operation writes a record ahead")
        }
    }
}
