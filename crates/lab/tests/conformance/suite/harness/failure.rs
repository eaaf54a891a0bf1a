//! How a test fails: with a sentence, not with a panic, so that shrinking is quiet.

use std::any::Any;
use std::fmt;

use medium::testing::panic_text;

/// The reason of a failure.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure(pub String);

impl Failure {
    /// A panic, with its message.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        Self(format!(
            "panicked: {}",
            panic_text(panic).unwrap_or("without a message")
        ))
    }
}

/// A test's result.
pub type Check = Result<(), Failure>;

impl fmt::Debug for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        let at = std::panic::Location::caller();
        Self(format!(
            "unexpected error: {error} ({}:{})",
            at.file(),
            at.line()
        ))
    }
}

/// Fails unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::harness::Failure(format!(
                "{} ({}:{})", format_args!($($message)+), file!(), line!()
            )));
        }
    };
}

/// Fails unless both are equal.
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($message:tt)+) => {
        match (&$left, &$right) {
            (left, right) => ensure!(
                left == right,
                "{}: is {}, should be {}",
                format_args!($($message)+),
                $crate::harness::brief(left),
                $crate::harness::brief(right)
            ),
        }
    };
}

/// Debug output, cut where it gets long.
pub fn brief(value: &impl fmt::Debug) -> String {
    let mut text = format!("{value:?}");
    if text.len() > 400 {
        let end = (0..=400)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}
